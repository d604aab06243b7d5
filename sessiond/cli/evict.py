"""`sessiond evict`: make room now, or say what would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sessiond.cli import terminal, times
from sessiond.cli.answer import locate
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.cli.table import Column, print_table
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessiond.cli.terminal import Terminal

COLUMNS = (
    Column("LAST ACTIVE", style=lambda _: ("dim",)),
    Column("RULE"),
    Column("WHAT", leaves=1),
    Column("TITLE", shrinks_to=16, style=lambda _: ("bold",)),
    Column("SIZE", right=True),
    Column("SESSION", style=lambda _: ("cyan",)),
)
_HOLDERS = {
    "pinned": "in pinned sessions",
    "young": "in sessions active within min_age",
    "not distilled": "in sessions not distilled yet",
    "digests, names, events and indexes": "in digests, names, events and indexes",
}


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

    What is pinned, not yet distilled, or was active within min_age stays; only above the hard cap does min_age not
    count. The daemon does this by itself.
    """
    report = work(config_file, "evict", dry_run=dry_run)
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": _is_enough(report)})
        return
    to = terminal.stdout()
    if dry_run:
        _print_plan(config_file, to, report)
    else:
        _print_done(to, report)


def _is_enough(report: dict[str, Any]) -> bool:
    """Whether the store is within its caps afterwards."""
    if report["dry_run"]:
        return bool(report["bytes"] >= report["need"])
    return report["unreachable"] is None


def _print_done(to: Terminal, report: dict[str, Any]) -> None:
    freed = format_size(max(0, report["used_before"] - report["used_after"]))
    if report["evicted"]:
        to.line(f"{times.count(len(set(report['evicted'])), 'session')} evicted, {freed} freed")
    elif _is_enough(report):
        to.line("nothing to evict: the store is within its caps")
    else:
        to.line("nothing was evicted")
    if report["lost"]:
        lost = times.count(len(report["lost"]), "session")
        terminal.say_note(f"{lost} had to go undistilled (on_overflow): sessiond status says which")
    for line in _unreachable(report):
        terminal.say_note(line)


def _unreachable(report: dict[str, Any]) -> list[str]:
    found = report.get("unreachable")
    if found is None:
        return []
    held = [
        f"  {format_size(each['bytes'])} {_HOLDERS.get(each['what'], each['what'])}"
        for each in found["held_by"]
        if each["bytes"]
    ]
    return [f"still {format_size(found['bytes'])} too much, and nothing more may go now:", *held]


# --- what would go ------------------------------------------------------------------------------


def _print_plan(config_file: Path | None, to: Terminal, report: dict[str, Any]) -> None:
    plan, need = report["plan"], format_size(report["need"])
    if plan:
        print_table(to, COLUMNS, _rows(config_file, to, plan))
    elif not report["need"]:
        to.line(f"nothing would go: the store takes {format_size(report['used'])} and is within its caps")
    else:
        to.line(f"nothing would go, though the store takes {format_size(report['used'])} and {need} must go")
    if plan and to.is_screen:
        sessions = times.count(len({each["session_uid"] for each in plan}), "session")
        to.line(
            f"{sessions} would go, about {format_size(report['bytes'])}" + (f"; {need} must" if report["need"] else "")
        )
    if not _is_enough(report):
        terminal.say_note("this is not enough: the rest is pinned, not distilled yet, too young, or not evictable")


def _rows(config_file: Path | None, to: Terminal, plan: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    named = _names(config_file, list(dict.fromkeys(each["session_uid"] for each in plan)), is_short=to.is_screen)
    return [
        (
            times.when(each["last_activity"], times.now(), absolute=not to.is_screen),
            each["rule"],
            each["what"],
            named[each["session_uid"]].title or "-",
            format_size(each["bytes"]) if to.is_screen else str(each["bytes"]),
            named[each["session_uid"]].name,
        )
        for each in plan
    ]


class _Named(NamedTuple):
    name: str
    title: str


def _names(config_file: Path | None, uids: list[str], *, is_short: bool) -> dict[str, _Named]:
    """How a person knows these sessions. The plan itself, which the daemon may have made, has only their uids."""
    from sessiond.store import connect, glance
    from sessiond.store.spent import titles

    at, masker = locate(config_file)
    with connect.reading(at.store) as db:
        short = glance.short_names(db, uids) if is_short else {}
        titled = titles(db, uids)
    return {uid: _Named(short.get(uid, uid), masker.mask(titled.get(uid) or "")) for uid in uids}
