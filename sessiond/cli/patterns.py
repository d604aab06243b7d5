"""`sessiond patterns`: what recurs over sessions, agents and repositories, with evidence."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import errors_page, options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.errors import NEWEST, described
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.passes import patterns
from sessiond.passes.patterns import About
from sessiond.store import occurrences
from sessiond.store.connect import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.passes.patterns import Pattern
    from sessiond.store.occurrences import Source
    from sessiond.store.reader import Wanted

SHOWN = 20
RECURRING = 2  # sessions with the same error: then it is no accident of one of them


@click.command(
    "patterns",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond patterns", "what recurs, across agents first"),
        ("sessiond patterns --repo . -S 30d", "here, in the last month"),
        ("sessiond patterns --json | jq '.[] | select(.trend == \"rising\")'", "for a script"),
    ),
)
@options.which
@options.span
@options.limit
@options.as_json
@click.pass_obj
def command(config_file: Path | None, /, as_json: bool, limit: int | None, **given: Any) -> None:
    """What recurs over sessions: signals, and errors of more than one session; 20 in all unless -n says otherwise.

    Those that cross agents come first, then those of most sessions. Signals: retry_storm, repeated_error, abandoned,
    clean_pass, recovery, and budget_overrun for sessions that spent more tokens than nine in ten others.
    """
    # One state of the store: what is counted must still be there when its places are looked up.
    with answering(config_file) as answer, snapshot(answer.db):
        wanted = options.wanted(answer.db, given, since=given["since"], until=given["until"])
        corpus = _Corpus(answer, wanted)
        if as_json:
            answer.print_json([_object(each) for each in corpus.patterns(limit)])
        else:
            found, has_more = (corpus.patterns(limit), False) if limit else corpus.overview(SHOWN)
            _print(answer, found, has_more=has_more)
            if not found and occurrences.is_distilled(answer.db):
                terminal.say_note("no such patterns")
        if not occurrences.is_distilled(answer.db):
            terminal.say_note(errors_page.NOTHING_DISTILLED)


class _Corpus:
    """The sessions that are asked about, and what all of them spent."""

    def __init__(self, answer: Answer, wanted: Wanted) -> None:
        self._answer = answer
        self._db = answer.db
        self._wanted = wanted
        self._weeks = patterns.weeks(times.now())
        self._spent = occurrences.tokens(answer.db)
        self._over = patterns.overruns(self._spent, occurrences.sidechains(answer.db))

    def patterns(self, limit: int | None) -> list[Pattern]:
        errors = patterns.specific_first(self._errors(), limit)
        return patterns.ranked([*self._signals(), *errors])[:limit]

    def overview(self, limit: int) -> tuple[list[Pattern], bool]:
        """Every signal, for they are few and tell of all sessions, and errors up to the limit; are there more?"""
        signals = list(self._signals())
        room = max(0, limit - len(signals))
        errors = patterns.specific_first(self._errors(), room + 1)
        return patterns.ranked([*signals, *errors[:room]]), len(errors) > room

    def _errors(self) -> Iterator[Pattern]:
        source = occurrences.ERRORS
        tallies = occurrences.tallies(self._db, source, self._wanted, self._weeks, least_sessions=RECURRING)
        for tally in patterns.across_agents_first(tallies):
            spent = self._tokens(occurrences.sessions_of(self._db, source, self._wanted, tally.name))
            yield described(self._answer, self._wanted, tally, self._weeks, spent)

    def _signals(self) -> Iterator[Pattern]:
        for source in (occurrences.SIGNALS, occurrences.overruns(self._over)):
            yield from self._of(source)

    def _of(self, source: Source) -> Iterator[Pattern]:
        for tally in occurrences.tallies(self._db, source, self._wanted, self._weeks):
            newest = occurrences.sightings(self._db, source, self._wanted, tally.name, limit=NEWEST)
            spent = self._tokens(occurrences.sessions_of(self._db, source, self._wanted, tally.name))
            yield patterns.describe(About.SIGNAL, tally, newest, self._weeks, tokens=spent)

    def _tokens(self, sessions: Iterable[int]) -> int | None:
        known = [self._spent[each] for each in sessions if each in self._spent]
        return sum(known) if known else None


def _object(pattern: Pattern) -> dict[str, Any]:
    return {
        "kind": pattern.kind,
        "name": pattern.name,
        "fingerprint": pattern.fingerprint,
        "sample": pattern.sample,
        "sessions": pattern.sessions,
        "occurrences": pattern.occurrences,
        "flavors": list(pattern.flavors),
        "repos": list(pattern.repos),
        "tokens": pattern.tokens,
        "first_at": pattern.first_at,
        "last_at": pattern.last_at,
        "trend": pattern.trend,
        "went_away_after": errors_page.helped_object(pattern.went_away_after),
        "evidence": list(pattern.evidence),
    }


def _print(answer: Answer, found: Sequence[Pattern], *, has_more: bool) -> None:
    to = terminal.stdout()
    for number, (heading, some) in enumerate(groupby(found, _heading)):
        if number:
            to.line()
        to.line(to.style(f"{errors_page.HEAD}  {heading}", "dim"))
        errors_page.print_entries(answer, to, list(some))
    if has_more and to.is_screen:
        to.line(to.style(f"there are more: -n {SHOWN * 5}, or narrow it with -S, --repo, --agent", "dim"))


def _heading(pattern: Pattern) -> str:
    if pattern.is_generic:
        return "TOO GENERAL TO TELL"
    return "ACROSS AGENTS" if len(pattern.flavors) > 1 else "WITHIN ONE AGENT"
