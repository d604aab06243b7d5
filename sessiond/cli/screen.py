"""The live screen of `run`: what is being taken in, how far back history is read, and what to ask meanwhile."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sessiond.cli import status_page, terminal, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from sessiond.cli.terminal import Terminal

    Status = Mapping[str, Any]

DRAWN_PER_SECOND = 2
ASK = (
    ("sessiond sessions", "what was done lately"),
    ("sessiond search WORDS", "find it again"),
    ("sessiond status", "this page, once"),
)


@contextmanager
def live(status: Callable[[], Status]) -> Iterator[None]:
    """The screen, for as long as the daemon works; it says so when it stops.

    To a daemon SIGHUP means "read your configuration"; on a screen it means that the window was closed.
    """
    to = terminal.stdout()
    screen = _Screen(to, status)
    console = Console(file=to.stream, no_color=not to.has_colour, highlight=False, markup=False, emoji=False)
    picture = Live(
        console=console,
        get_renderable=screen.draw,
        refresh_per_second=DRAWN_PER_SECOND,
        redirect_stdout=False,
        vertical_overflow="ellipsis",
    )
    hang_up = signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    # A terminal that was closed takes no more pictures; the daemon must stop in order all the same.
    try:
        with suppress(OSError):
            picture.start(refresh=True)
        yield
    finally:
        screen.is_stopping = True
        with suppress(OSError):
            picture.stop()
        signal.signal(signal.SIGHUP, hang_up)


class _Screen:
    """Draws what the daemon says. A look that fails leaves the last picture: the screen must not stop the daemon."""

    def __init__(self, to: Terminal, status: Callable[[], Status]) -> None:
        self._to = to
        self._status = status
        self._last: Status = {}
        self.is_stopping = False

    def draw(self) -> Text:
        try:
            self._last = self._status()
        except Exception as error:  # noqa: BLE001 - the outer edge of a thread that only draws
            self._last = {**self._last, "degraded": [{"name": "screen", "detail": f"{type(error).__name__}: {error}"}]}
        self._to.width = terminal.width_now()
        lines = screen_lines(self._to, self._last, times.now(), is_stopping=self.is_stopping)
        return Text("\n").join(Text.from_ansi(line, no_wrap=True, overflow="ellipsis") for line in lines)


def screen_lines(to: Terminal, status: Status, now: datetime, *, is_stopping: bool = False) -> list[str]:
    """Everything on the screen, as lines."""
    if is_stopping:
        return [f"{to.style(to.glyph('■', '#'), 'yellow')} stopping…  what was read is being written"]
    return [
        *status_page.page_lines(to, status, now),
        "",
        to.style(to.fit("  Nothing leaves this machine. The agents' files are only read. Ctrl-C stops.", 0), "dim"),
        "",
        *_questions(to, status),
    ]


def _questions(to: Terminal, status: Status) -> list[str]:
    agents = status.get("agents") or ()
    if agents and not any(each.get("found") for each in agents):
        return [to.fit("  Waiting: as soon as one of these agents writes a session, it appears here.", 0)]
    width = max(len(command) for command, _ in ASK)
    lines = [to.style("  In another terminal:", "dim")]
    return lines + [
        f"    {to.style(command.ljust(width), 'cyan')}  {to.fit(words, width + 6)}" for command, words in ASK
    ]
