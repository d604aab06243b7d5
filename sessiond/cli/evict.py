"""`sessiond evict`: make room now, or say what would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import terminal, times
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.cli.table import Column, print_table
from sessiond.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (Column("LAST ACTIVE"), Column("SESSION"), Column("RULE"), Column("WHAT"), Column("SIZE", right=True))


@click.command(
    "evict",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond evict --dry-run", "what would go, in which order, and why"),
        ("sessiond evict", "make room now, by the rules of [retention]"),
    ),
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, dry_run: bool, as_json: bool) -> None:
    """Let the oldest sessions' raw bytes go until the store is below its low water; digests stay.

    Nothing goes that is not distilled, pinned or younger than min_age. The daemon does this by itself.
    """
    report = work(config_file, "evict", dry_run=dry_run)
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": report.get("unreachable") is None})
        return
    to = terminal.stdout()
    if dry_run:
        _print_plan(to, report)
        return
    freed = format_size(max(0, report["used_before"] - report["used_after"]))
    what = times.count(len(report["evicted"]), "session")
    to.line(f"{what} evicted, {freed} freed" if report["evicted"] else "nothing to evict: the store is within its caps")
    for line in _unreachable(report):
        terminal.say_note(line)


def _print_plan(to: terminal.Terminal, report: dict[str, Any]) -> None:
    if not report["plan"]:
        to.line(f"nothing would go: the store takes {format_size(report['used'])} and is within its caps")
        return
    rows = [
        (
            times.when(each["last_activity"], times.now(), absolute=not to.is_screen),
            terminal.plain(each["session_uid"]),
            each["rule"],
            each["what"],
            format_size(each["bytes"]) if to.is_screen else str(each["bytes"]),
        )
        for each in report["plan"]
    ]
    print_table(to, COLUMNS, rows)
    if to.is_screen:
        to.line()
        sessions = times.count(len({each["session_uid"] for each in report["plan"]}), "session")
        to.line(f"{sessions} would go, about {format_size(report['bytes'])}; {format_size(report['need'])} must go")


def _unreachable(report: dict[str, Any]) -> list[str]:
    found = report.get("unreachable")
    if found is None:
        return []
    held = ", ".join(f"{format_size(each['bytes'])} {each['what']}" for each in found["held_by"] if each["bytes"])
    return [f"still {format_size(found['bytes'])} too much, and nothing more may go: {held}"]
