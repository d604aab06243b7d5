"""The answer to `sessiond errors TEXT`: seen how often, where, and what made it go away."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sessiond.cli import errors_page, times
from sessiond.cli.table import Column, print_table
from sessiond.passes import patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessiond.cli.answer import Answer
    from sessiond.cli.terminal import Terminal
    from sessiond.passes.patterns import Pattern
    from sessiond.store.occurrences import Sighting

SHOWN = 10
NEW_SHOWN = 3
COLUMNS = (
    Column("WHEN", style=lambda _: ("dim",)),
    Column("AGENT", leaves=1),
    Column("REPO", shrinks_to=8, leaves=3),
    Column("TIMES", right=True, leaves=2),
    Column("TITLE", shrinks_to=12, leaves=4),
    Column("FIRST", style=lambda _: ("cyan",)),
    Column("LAST", leaves=6, style=lambda _: ("cyan",)),
    Column("WENT AWAY AFTER", shrinks_to=18, leaves=5, style=lambda _: ("green",)),
)


def print_seen(
    answer: Answer,
    to: Terminal,
    found: Sequence[tuple[Pattern, list[Sighting]]],
    new: Sequence[str],
    limit: int | None,
) -> None:
    """The errors in turn. One that says too little gets a line, where others say more."""
    is_any_telling = any(not pattern.is_generic for pattern, _ in found)
    for number, (pattern, seen) in enumerate(found):
        if number:
            to.line()
        _print_one(answer, to, pattern)
        if not (pattern.is_generic and is_any_telling):
            _print_sessions(answer, to, seen, limit or SHOWN)
    if new:
        to.line()
    for line in new[:NEW_SHOWN]:
        to.line(to.style("not seen before: ", "yellow") + to.fit(answer.words(line), len("not seen before: ")))
    if len(new) > NEW_SHOWN:
        to.line(to.style(f"and {times.count(len(new) - NEW_SHOWN, 'more line')} not seen before", "dim"))


def _print_one(answer: Answer, to: Terminal, pattern: Pattern) -> None:
    for line in errors_page.wrapped(to, answer.words(pattern.sample), 0):
        to.line(to.style(line, "bold"))
    for line in errors_page.wrapped(to, _seen_words(to, pattern), 0):
        to.line(line)
    words = errors_page.what_helped(answer, pattern.went_away_after)
    if words is not None:
        for line in errors_page.wrapped(to, f"went away after: {words}", 0):
            to.line(to.style(line, "green"))
    elif not pattern.is_generic:
        to.line(to.style("no session shows what made it go away", "dim"))


def _seen_words(to: Terminal, pattern: Pattern) -> str:
    *most, last = pattern.flavors
    agents = f"{', '.join(most)} and {last}" if most else last
    often, sessions = times.count(pattern.occurrences, "time"), times.count(pattern.sessions, "session")
    since = f"; first {errors_page.ago(to, pattern.first_at)}" if pattern.sessions > 1 else ""
    return (
        f"seen {often} in {sessions} of {agents}{since}, last {errors_page.ago(to, pattern.last_at)}; {pattern.trend}"
    )


def _print_sessions(answer: Answer, to: Terminal, seen: Sequence[Sighting], shown: int) -> None:
    listed = seen[:shown]
    places = [place for each in listed for place in _places(each)]
    names = errors_page.short_names(answer, to, places)
    print_table(to, COLUMNS, [_row(answer, to, each, names) for each in listed])
    if len(seen) > shown:
        more = times.count(len(seen) - shown, "more session")
        to.line(to.style(f"and {more}: -n {len(seen)}, or --json", "dim"))


def _places(sighting: Sighting) -> tuple[str, str]:
    return f"{sighting.session_uid}#{sighting.first_seq}", f"{sighting.session_uid}#{sighting.last_seq}"


def _row(answer: Answer, to: Terminal, sighting: Sighting, names: dict[str, str]) -> tuple[str, ...]:
    first, last = _places(sighting)
    repo = answer.words(sighting.repo) or "-"
    return (
        times.when(sighting.last_at, times.now(), absolute=not to.is_screen),
        sighting.flavor,
        os.path.basename(repo.rstrip("/")) if to.is_screen else repo,
        times.number(sighting.count),
        answer.words(sighting.title) or "-",
        names.get(first, first),
        "" if to.is_screen and first == last else names.get(last, last),
        errors_page.what_helped(answer, patterns.went_away_after([sighting])) or ("" if to.is_screen else "-"),
    )
