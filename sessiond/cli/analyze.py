"""`sessiond analyze`: distil what is behind, now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import terminal, times
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    "analyze",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond analyze", "before asking for errors and patterns of just now"),
        ("sessiond ingest && sessiond analyze", "everything written until now, distilled"),
    ),
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, as_json: bool) -> None:
    """Distil every session that has new events, quiet or not; the daemon does it by itself a little later.

    Asks the daemon where one is running, else does it itself.
    """
    report = work(config_file, "analyze")
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": not report["failed"]})
    else:
        terminal.stdout().line(_words(report))
    if report["failed"]:
        terminal.say_error(f"{times.count(len(report['failed']), 'session')} cannot be distilled (the log says why)")
        raise click.exceptions.Exit(1)


def _words(report: dict[str, Any]) -> str:
    if not report["sessions"]:
        return "nothing to distil: every digest is up to date" if not report["failed"] else "nothing was distilled"
    words = f"{times.count(report['sessions'], 'session')} distilled, {times.count(report['events'], 'event')} read"
    if report["overtaken"]:
        words += f"; {report['overtaken']} went on meanwhile and are taken next time"
    return words
