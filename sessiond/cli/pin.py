"""`sessiond pin`: sessions that are kept whatever the watermarks say. `unpin` is the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.errors import UsageError
from sessiond.store import reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessiond.cli.answer import Answer


@click.command(
    "pin",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond pin 3f2a", "keep this one"),
        ("sessiond pin --repo . --outcome success", "keep what went well here"),
    ),
)
@click.argument("uids", nargs=-1, metavar="[UID]...")
@options.which
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, uids: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Keep sessions, sub-agents included, whatever the watermarks say: they are never evicted.

    By UID or its beginning, several at a time, or all that the options name.
    """
    change(config_file, "pin", uids, given, as_json=as_json)


def change(config_file: Path | None, verb: str, uids: Sequence[str], given: dict[str, Any], *, as_json: bool) -> None:
    """Pin or unpin, and say what is different now."""
    if bool(uids) == options.is_any(given):
        raise UsageError(f"{verb} takes UIDs, or options that name sessions", hint=f"see: sessiond {verb} --help")
    with answering(config_file) as answer:
        found = named(answer, uids) if uids else matching(answer, given)
    if not found and not as_json:
        terminal.say_note("no such sessions")
        return
    report = _merged(verb, [work(config_file, verb, uids=some) for some in some_at_a_time(found)])
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": True})
        return
    _print(verb, report)


def named(answer: Answer, texts: Sequence[str]) -> list[str]:
    """The sessions that these words mean, each once, in their order."""
    return list(dict.fromkeys(reader.resolve_uid(answer.db, text) for text in texts))


def matching(answer: Answer, given: dict[str, Any], **more: Any) -> list[str]:
    """The sessions that the options name, newest first, those without events included."""
    wanted = options.wanted(answer.db, given, everything=True, **more)
    return [each.session_uid for each in reader.sessions(answer.db, wanted)]


def some_at_a_time(uids: Sequence[str], size: int = 500) -> list[list[str]]:
    """A request to the daemon is bounded in size."""
    return [list(uids[at : at + size]) for at in range(0, len(uids), size)]


def _merged(verb: str, reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    lists = ("changed", "unchanged", "evicted")
    return {"pinned": verb == "pin", **{name: [uid for each in reports for uid in each[name]] for name in lists}}


def _print(verb: str, report: dict[str, Any]) -> None:
    to = terminal.stdout()
    for uid in report["changed"]:
        to.line(f"{verb}ned {terminal.plain(uid)}")
    for uid in report["unchanged"]:
        to.line(f"{terminal.plain(uid)} was {'pinned already' if report['pinned'] else 'not pinned'}")
    if report["pinned"] and report["evicted"]:
        before = times.count(len(report["evicted"]), "session")
        terminal.say_note(f"{before} evicted already: what is left is the digest, and what comes from now on")
