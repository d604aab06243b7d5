"""`sessiond reindex`: events and digests derived anew from what was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import terminal, times
from sessiond.cli.byhand import work
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@click.command(
    "reindex",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond reindex", "after an upgrade that understands an agent better"),
        ("sessiond reindex 3f2a", "one session, with its forks and sub-agents"),
    ),
)
@click.argument("uids", nargs=-1, metavar="[UID]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, uids: tuple[str, ...], as_json: bool) -> None:
    """Derive events and digests anew from the bytes that were kept, as this version reads them.

    The agents' files are not needed. Sessions that are partly evicted stay as they are. Nothing new is taken in
    meanwhile: it is read afterwards. Asks the daemon where one is running, else does it itself.
    """
    report = work(config_file, "reindex", uids=list(uids))
    is_complete = not report["failed"] and not report["left"]
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": is_complete})
    else:
        to = terminal.stdout()
        for line in _words(report):
            to.line(line)
    if not is_complete:
        terminal.say_error(_what_is_missing(report))
        raise click.exceptions.Exit(1)


def _words(report: dict[str, Any]) -> Iterator[str]:
    done = f"{times.count(report['sessions'], 'session')} derived anew, {times.count(report['events'], 'event')}"
    yield f"{done}; {report['changed']:,} changed"
    for name, why in (
        ("skipped_evicted", "partly evicted"),
        ("skipped_agents", "of agents that are not installed"),
        ("skipped_rewritten", "of files whose earlier versions are not kept"),
        ("skipped_damaged", "not whole in the archive (sessiond verify says where)"),
    ):
        if report[name]:
            yield f"{times.count(report[name], 'session')} left untouched: {why}"


def _what_is_missing(report: dict[str, Any]) -> str:
    if report["failed"]:
        return f"{times.count(len(report['failed']), 'session')} could not be derived anew (the log says why)"
    return f"stopped: {times.count(report['left'], 'session')} left to do; run it again"
