"""`sessiond pause`: read nothing for a while. Light."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sessiond.cli import terminal, times
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.errors import UsageError
from sessiond.units import parse_span

if TYPE_CHECKING:
    from pathlib import Path

FOREVER = "forever"


@click.command(
    "pause",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond pause --for 2h", "it goes on by itself"),
        ("sessiond pause", "it goes on when you say so: sessiond unpause"),
    ),
)
@click.option("--for", "span", metavar="TIME", help='Go on by itself after so long: "45m", "2h".')
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, span: str | None, as_json: bool) -> None:
    """Read nothing of what the agents write, until `unpause` or for as long as --for says; a restart changes nothing.

    How far each file was read stays known: afterwards everything that was written meanwhile is taken in. To keep
    nothing of a folder, see: sessiond exclude.
    """
    report = work(config_file, "pause", until=_until(span))
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": False})
        return
    until = times.parse(report["paused_until"])
    when = "until you say: sessiond unpause" if until is None else f"until {times.local(until)}"
    terminal.stdout().line(f"paused {when}")


def _until(span: str | None) -> str:
    if span is None:
        return FOREVER
    try:
        length = parse_span(span)
    except ValueError as error:
        fact, _, hint = str(error).partition("; ")
        raise UsageError(f"--for: {fact}", hint=hint) from None
    if not length:
        raise UsageError("--for: that is no time at all", hint='write a time such as "45m" or "2h"')
    return times.iso(times.now() + length)
