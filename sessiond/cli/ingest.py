"""`sessiond ingest`: everything written before the call is stored and searchable when it returns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from sessiond import paths
from sessiond.cli import terminal, times
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.errors import NotRunning
from sessiond.serve.client import Client
from sessiond.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Tell = Callable[[dict[str, Any]], None]

ASK_AGAIN_SECONDS = 0.05
DRAW_SECONDS = 0.1
BAR = 28


@click.command(
    "ingest",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond ingest", "before a search that must not miss anything"),
        ("sessiond ingest --json | jq .sweep_ms", "how long a look at all files takes"),
    ),
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, as_json: bool) -> None:
    """Take in everything that was written until now; when it returns, all of it is stored and searchable.

    Asks the daemon where one is running, else does it itself.
    """
    progress = Progress(terminal.stderr())
    began = time.monotonic()
    try:
        try:
            result = _through_daemon(progress.tell)
        except NotRunning:
            from sessiond.daemon import ingest_once

            result = ingest_once(config_file, progress.tell)
    finally:
        progress.clear()
    result.setdefault("seconds", round(time.monotonic() - began, 3))
    if as_json:
        result.setdefault("as_of", times.iso(times.now()))
        result.setdefault("complete", True)
        print_json(result)
        return
    terminal.stdout().line(_words(result))
    if degraded := result.get("degraded"):
        names = ", ".join(str(each.get("name")) for each in degraded)
        terminal.say_note(f"not everything could be taken in ({names}). See: sessiond status")


def _through_daemon(tell: Tell) -> dict[str, Any]:
    client = Client(paths.resolve(paths.environment()).socket)
    ticket = client.call("ingest")["ticket"]
    while True:
        state: dict[str, Any] = client.call("ingested", ticket=ticket)
        if state.pop("done"):
            state.pop("history", None)
            return state
        tell(state)
        time.sleep(ASK_AGAIN_SECONDS)


def _words(result: dict[str, Any]) -> str:
    took = format_duration(result["seconds"])
    if "lines" not in result:  # an older daemon
        return f"everything written until now is stored and searchable ({took})"
    of_files = f" of {times.count(result['files'], 'file')}" if "files" in result else ""
    return f"{times.count(result['lines'], 'line')}{of_files} taken in, {result.get('rejected', 0):,} rejected ({took})"


class Progress:
    """One line that is drawn over and over on a terminal; nothing anywhere else."""

    def __init__(self, to: terminal.Terminal) -> None:
        self._to = to
        self._drawn_at = 0.0
        self._is_drawn = False

    def tell(self, state: dict[str, Any]) -> None:
        now = time.monotonic()
        if not self._to.is_screen or now - self._drawn_at < DRAW_SECONDS:
            return
        self._drawn_at, self._is_drawn = now, True
        history = state.get("history") or state
        total, done = history.get("total_bytes") or 0, history.get("done_bytes") or 0
        words = f"{format_size(done)} of {format_size(total)}" if total else "looking for files"
        if history.get("seconds_left"):
            words += f", about {format_duration(history['seconds_left'])} left"
        bar = self._to.style(self._to.bar(done / total if total else 0, BAR), "cyan")
        self._write(f"\r\x1b[K{bar}  {self._to.fit(words, BAR + 3)}")

    def clear(self) -> None:
        if self._is_drawn:
            self._write("\r\x1b[K")
            self._is_drawn = False

    def _write(self, text: str) -> None:
        self._to.stream.write(text)
        self._to.stream.flush()
