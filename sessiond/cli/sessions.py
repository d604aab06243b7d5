"""`sessiond sessions`: the list, newest first."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from sessiond import model
from sessiond.cli import options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.table import Column, print_table
from sessiond.store import glance, reader

if TYPE_CHECKING:
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.cli.terminal import Terminal
    from sessiond.model import Session

ACTIVE = timedelta(minutes=10)  # quiet for less than this is at work
SHOWN = 20
OUTCOME_STYLES = {"success": ("green",), "fail": ("red",), "abandoned": ("yellow",)}
COLUMNS = (
    Column("WHEN", style=lambda _: ("dim",)),
    Column("AGENT", leaves=1),
    Column("REPO", shrinks_to=8, leaves=2),
    Column("TITLE", shrinks_to=16, style=lambda _: ("bold",)),
    Column("OUTCOME", leaves=3, style=lambda text: OUTCOME_STYLES.get(text, ("dim",))),
    Column("TURNS", right=True, leaves=5),
    Column("TOKENS", right=True, leaves=4),
    Column("SESSION", style=lambda _: ("cyan",)),
)


@click.command(
    "sessions",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond sessions", "the newest of all agents and repositories"),
        ("sessiond sessions --repo . -S today", "what was done here today"),
        ("sessiond sessions --outcome fail -S 7d", "what went wrong this week"),
        ("sessiond sessions --file src/app.py", "who edited this file?"),
        ("sessiond sessions --active", "what is being worked on right now"),
        ("sessiond sessions --json | jq -r .[].session_uid", "for a script"),
    ),
)
@options.which
@options.span
@click.option("--file", "file", metavar="PATH", help="Only those that edited this file.")
@click.option(
    "--state", "states", multiple=True, callback=options.one_of(model.State), metavar="WORD",
    help="Only in this state: discovered, ingested, analyzed, evicted.",
)  # fmt: skip
@click.option("--active", is_flag=True, help="Only those at work now: active in the last minutes, or in a long call.")
@click.option("--changed-since", type=click.IntRange(min=0), metavar="N", help="Only changed after this revision.")
@click.option("-a", "--all", "everything", is_flag=True, help="Sub-agents and sessions without events too.")
@options.limit
@options.as_json
@click.pass_obj
def command(config_file: Path | None, /, as_json: bool, limit: int | None, **given: Any) -> None:
    """List sessions, newest first; 20 of them unless -n says otherwise.

    Options that may be repeated mean OR; different ones mean AND.
    """
    with answering(config_file) as answer:
        wanted = options.wanted(
            answer.db,
            given,
            states=given["states"],
            since=given["since"],
            until=given["until"],
            file=_file(given["file"]),
            changed_since=given["changed_since"],
            **(_active(answer) if given["active"] else {}),
            everything=given["everything"],
            # One more than is shown tells whether there are more.
            limit=limit if as_json else (limit or SHOWN) + 1,
        )
        found = reader.sessions(answer.db, wanted)
        if as_json:
            answer.print_json([each.to_dict() for each in found])
        else:
            _print(answer, terminal.stdout(), found, limit or SHOWN)


def _active(answer: Answer) -> dict[str, str]:
    now = times.now()
    return {"active_since": model.utc(now - ACTIVE), "at_work_since": model.utc(now - answer.outcome_after)}


def _file(text: str | None) -> str | None:
    """`./a` and `../a` are meant from here; any other path is matched by its end."""
    return os.path.abspath(text) if text is not None and text.startswith(".") else text


def _print(answer: Answer, to: Terminal, found: list[Session], shown: int) -> None:
    if not found:
        terminal.say_note("no such sessions")
        return
    listed = found[:shown]
    names = glance.short_names(answer.db, [each.session_uid for each in listed]) if to.is_screen else {}
    print_table(to, COLUMNS, [_row(answer, to, each, names) for each in listed])
    if len(found) > shown and to.is_screen:
        to.line(to.style(f"there are more: -n {shown * 5}, or narrow it with -S, --repo, --agent", "dim"))


def _row(answer: Answer, to: Terminal, session: Session, names: dict[str, str]) -> tuple[str, ...]:
    spent = tokens(session)
    return (
        times.when(session.last_event_at or session.discovered_at, times.now(), absolute=not to.is_screen),
        session.flavor,
        answer.words(repo_name(session)) if to.is_screen else answer.words(session.repo) or "-",
        answer.words(session.title) or "-",
        "" if session.outcome == "unknown" and to.is_screen else session.outcome.value,
        times.number(session.cost.turns),
        times.short_number(spent) if to.is_screen else str(spent or 0),
        names.get(session.session_uid, session.session_uid),
    )


def tokens(session: Session) -> int | None:
    cost = session.cost
    parts = (cost.input_tokens, cost.output_tokens, cost.cache_tokens)
    return None if parts == (None, None, None) else sum(part or 0 for part in parts)


def repo_name(session: Session) -> str:
    return os.path.basename(session.repo.rstrip("/")) if session.repo else "-"
