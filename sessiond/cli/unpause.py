"""`sessiond unpause`: go on reading where it stopped. Light."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sessiond.cli import terminal, times
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    "unpause",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(("sessiond unpause && sessiond ingest", "and wait until everything is there")),
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, as_json: bool) -> None:
    """End a pause: everything that was written meanwhile is taken in now."""
    report = work(config_file, "unpause")
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": report["paused_by"] is None})
        return
    is_over = "reading goes on" if report["paused_by"] is None else "your pause is over"
    terminal.stdout().line(is_over if report["was_paused"] else "it was not paused by you")
    if report["paused_by"] is not None:
        terminal.say_note(f"it is paused still ({report['paused_by']}): sessiond status says why")
