"""`sessiond errors`: what keeps going wrong; and, of one error, whether it was seen and what made it go away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import errors_page, lookup, options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.passes import patterns
from sessiond.passes.patterns import About
from sessiond.store import occurrences
from sessiond.store.connect import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.passes.patterns import Pattern
    from sessiond.store.occurrences import Tally, Weeks
    from sessiond.store.reader import Wanted

SHOWN = 20
NEWEST = 100  # places that are looked at for what helped


@click.command(
    "errors",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond errors", "what keeps going wrong"),
        ("sessiond errors --repo . -S 30d", "here, in the last month"),
        ("sessiond errors \"No module named 'requests'\"", "seen before? what made it go away?"),
        ("make 2>&1 | sessiond errors -", "the same of what a command printed"),
        ("sessiond errors --json", "for a script"),
    ),
)
@click.argument("text", nargs=-1)
@options.which
@options.span
@options.limit
@options.as_json
@click.pass_obj
def command(config_file: Path | None, /, text: tuple[str, ...], as_json: bool, limit: int | None, **given: Any) -> None:
    """What keeps going wrong, in most sessions first; 20 errors unless -n says otherwise.

    With an error's TEXT, or - for what is piped in: has it been seen, where, and what made it go away? The same error
    is known again with other paths, numbers, names and times in it.
    """
    asked = lookup.asked_for(text) if text else None
    # One state of the store: what is counted must still be there when its places are looked up.
    with answering(config_file) as answer, snapshot(answer.db):
        wanted = options.wanted(answer.db, given, since=given["since"], until=given["until"])
        if asked is not None:
            lookup.look_up(answer, wanted, asked, limit, as_json=as_json)
            return
        found = patterns.specific_first(listed(answer, wanted), limit if as_json else (limit or SHOWN) + 1)
        if as_json:
            answer.print_json([errors_page.error_object(each) for each in found])
        if not found:
            _say_why_none(answer, as_json=as_json)
        elif not as_json:
            _print(answer, found, limit or SHOWN)


def _print(answer: Answer, found: Sequence[Pattern], shown: int) -> None:
    to = terminal.stdout()
    to.line(to.style(f"{errors_page.HEAD}  ERROR", "dim"))
    errors_page.print_entries(answer, to, found[:shown])
    if len(found) > shown and to.is_screen:
        to.line(to.style(f"there are more: -n {shown * 5}, or narrow it with -S, --repo, --agent", "dim"))


def _say_why_none(answer: Answer, *, as_json: bool) -> None:
    if not occurrences.is_distilled(answer.db):
        terminal.say_note(errors_page.NOTHING_DISTILLED)
    elif not as_json:
        terminal.say_note("no such errors")


def listed(answer: Answer, wanted: Wanted) -> Iterator[Pattern]:
    """Every error, in most sessions first; each is looked at closely only when it is asked for."""
    weeks = patterns.weeks(times.now())
    for tally in occurrences.tallies(answer.db, occurrences.ERRORS, wanted, weeks):
        yield described(answer, wanted, tally, weeks)


def described(answer: Answer, wanted: Wanted, tally: Tally, weeks: Weeks, tokens: int | None = None) -> Pattern:
    newest = occurrences.sightings(answer.db, occurrences.ERRORS, wanted, tally.name, limit=NEWEST)
    return patterns.describe(About.ERROR, tally, newest, weeks, tokens=tokens)
