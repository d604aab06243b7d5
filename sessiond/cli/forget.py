"""`sessiond forget`: sessions deleted everywhere, for good. Lists, asks, and says done only when it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.cli.pin import matching, named, some_at_a_time
from sessiond.cli.sessions import repo_name
from sessiond.cli.table import Column, print_table
from sessiond.errors import SessiondError, UsageError
from sessiond.store import forget, glance, reader
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.cli.terminal import Terminal

SHOWN = 50  # on a screen, before the question
COLUMNS = (
    Column("WHEN", style=lambda _: ("dim",)),
    Column("AGENT", leaves=1),
    Column("REPO", shrinks_to=8, leaves=2),
    Column("TITLE", shrinks_to=16, style=lambda _: ("bold",)),
    Column("EVENTS", right=True, leaves=3),
    Column("SIZE", right=True),
    Column("SESSION", style=lambda _: ("cyan",)),
)


@click.command(
    "forget",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond forget 3f2a", "one session, after asking"),
        ("sessiond forget --repo . --dry-run", "what would go of this repository"),
        ("sessiond forget --until 180d --yes", "nothing since half a year: gone, unasked"),
        ("sessiond forget --excluded", "what was stored before sessiond exclude"),
    ),
)
@click.argument("uids", nargs=-1, metavar="[UID]...")
@options.which
@options.span
@click.option("--excluded", is_flag=True, help="Those of folders that [privacy] exclude covers now.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(
    config_file: Path | None, /, uids: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool, **given: Any
) -> None:
    """Delete sessions from everywhere: records, archive, digests, search index, and copies of the store.

    Sub-agents go with their session. The agents' own files stay where they are, and sessiond leaves them alone from
    then on. By UID or its beginning, or all that the options name: --since and --until go by the last activity, as
    the list shows it, and pinned sessions stay unless they are named.
    """
    with answering(config_file) as answer:
        found = _chosen(config_file, answer, uids, given)
        planned = forget.plan(answer.db, found)
        told = _told(answer, planned)
        if not as_json:
            _print(answer, planned, limit=None if dry_run else SHOWN)
    if not found or dry_run:
        if as_json:
            _print_json({**told, "dry_run": dry_run})
        return
    if not yes:
        _ask(len(planned.uids))
    report = _merged([work(config_file, "forget", uids=some) for some in some_at_a_time(found)])
    if as_json:
        _print_json(report)
    else:
        _print_done(report)


def _chosen(config_file: Path | None, answer: Answer, uids: Sequence[str], given: dict[str, Any]) -> list[str]:
    names_some = options.is_any(given) or any(given[name] for name in ("since", "until", "excluded"))
    if bool(uids) == names_some:  # neither, and that must not mean all; or both
        raise UsageError("forget takes UIDs, or options that name sessions", hint="see: sessiond forget --help")
    if uids:
        return named(answer, uids)
    found = matching(answer, given, since=given["since"])
    if given["until"] is not None:
        earlier = forget.active_before(answer.db, given["until"])
        found = [uid for uid in found if uid in earlier]
    if given["excluded"]:
        from sessiond.cli.exclude import covered

        excluded = covered(config_file, answer.db)
        found = [uid for uid in found if uid in excluded]
    pinned = forget.pinned_among(answer.db, found)
    if pinned:
        terminal.say_note(f"{times.count(len(pinned), 'pinned session')} stay: name them by UID to forget them too")
    return [uid for uid in found if uid not in pinned]


def _ask(count: int) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{times.count(count, 'session')} would be forgotten, for good", hint="--yes, or --dry-run")
    if not click.confirm(f"Forget {times.count(count, 'session')}, for good?", default=False, err=True):
        raise SessiondError("nothing was forgotten")


# --- telling ------------------------------------------------------------------------------------


def _told(answer: Answer, planned: forget.Plan) -> dict[str, Any]:
    sessions = [
        {
            "session_uid": each.session_uid,
            "title": answer.masker.mask(each.title) if each.title else None,
            "repo": each.repo,
            "last_event_at": each.last_event_at,
            "events": each.events,
            "bytes": planned.bytes[each.session_uid],
        }
        for each in (reader.session(answer.db, uid) for uid in planned.uids)
    ]
    return {"sessions": sessions, "bytes": sum(planned.bytes.values()), "also_held_by": planned.kin}


def _print(answer: Answer, planned: forget.Plan, limit: int | None) -> None:
    to = terminal.stdout()
    if not planned.uids:
        terminal.say_note("no such sessions")
        return
    shown = planned.uids[:limit] if to.is_screen else planned.uids
    names = glance.short_names(answer.db, list(shown)) if to.is_screen else {}
    print_table(to, COLUMNS, [_row(answer, to, uid, planned.bytes[uid], names.get(uid, uid)) for uid in shown])
    if len(shown) < len(planned.uids):
        to.line(to.style(f"and {len(planned.uids) - len(shown):,} more: --dry-run lists them all", "dim"))
    if to.is_screen:
        size = format_size(sum(planned.bytes.values()))
        to.line(f"{times.count(len(planned.uids), 'session')}, {size} in the archive")
    _warn_of_kin(planned.kin)


def _row(answer: Answer, to: Terminal, uid: str, size: int, name: str) -> tuple[str, ...]:
    session = reader.session(answer.db, uid)
    return (
        times.when(session.last_event_at or session.discovered_at, times.now(), absolute=not to.is_screen),
        session.flavor,
        answer.words(repo_name(session)) if to.is_screen else answer.words(session.repo) or "-",
        answer.words(session.title) or "-",
        times.number(session.events) if to.is_screen else str(session.events),
        format_size(size) if to.is_screen else str(size),
        name,
    )


def _warn_of_kin(kin: Sequence[str]) -> None:
    for uid in kin:
        terminal.say_note(f"{uid} stays: a fork that may repeat parts of it")


def _print_done(report: dict[str, Any]) -> None:
    to = terminal.stdout()
    to.line(f"{times.count(len(report['forgotten']), 'session')} forgotten: no file of sessiond holds them any more")
    for path in report["removed_copies"]:
        to.line(f"a copy from before an upgrade was deleted: {terminal.shown_path(path)}")
    for path in report["damaged_copies"]:
        terminal.say_note(f"a damaged store that was set aside may still hold them: rm {terminal.shown_path(path)}*")


def _merged(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "forgotten": [uid for each in reports for uid in each["forgotten"]],
        "bytes": sum(each["bytes"] for each in reports),
        "also_held_by": sorted({uid for each in reports for uid in each["also_held_by"]}),
        "removed_copies": [path for each in reports for path in each["removed_copies"]],
        "damaged_copies": reports[-1]["damaged_copies"],
    }


def _print_json(value: dict[str, Any]) -> None:
    print_json({**value, "as_of": times.iso(times.now()), "complete": True})
