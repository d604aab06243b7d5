"""What recurs over sessions: how often, since when, which way it goes, and what made it go away. Pure.

The store counts (`Tally`) and names the newest places (`Sighting`); here that becomes a `Pattern`, with evidence for
everything it says. The same rows give the same patterns in the same order, however they come in.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sessiond.model import Kind, utc
from sessiond.passes.fingerprint import fingerprint
from sessiond.store.occurrences import Weeks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from sessiond.passes.fingerprint import Fingerprint
    from sessiond.store.occurrences import Sighting, Tally

EVIDENCE = 5
# Sessions that are asked what helped, the newest: what helped years ago may not help today.
VOTES = 50
# With fewer sessions than this, nine in ten of them are too few to measure the tenth by.
ENOUGH_SESSIONS = 20
_WHERE = re.compile(r"cd [^\s;&|]+ ?(?:&&|;) ?")


class Trend(StrEnum):
    NEW = "new"
    RISING = "rising"
    STEADY = "steady"
    FALLING = "falling"
    GONE = "gone"


class About(StrEnum):
    ERROR = "error"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True)
class Helped:
    """What was done in `sessions` of the newest sessions; `place` is the newest time it worked."""

    steps: tuple[str, ...]  # none: it was only tried again
    sessions: int
    place: str


@dataclass(frozen=True, slots=True)
class Pattern:
    kind: About
    name: str
    fingerprint: str | None
    sample: str
    sessions: int
    occurrences: int
    flavors: tuple[str, ...]
    repos: tuple[str, ...]
    tools: tuple[str, ...]
    tokens: int | None
    first_at: str
    last_at: str
    trend: Trend
    followed_by: Helped | None
    went_away_after: Helped | None
    evidence: tuple[str, ...]
    is_generic: bool  # says that something failed, and not what


def weeks(now: datetime) -> Weeks:
    week = timedelta(days=7)
    return Weeks(utc(now - week), utc(now - 2 * week))


def trend(tally: Tally, weeks: Weeks) -> Trend:
    """Sessions with it in the last week against those in the week before; a quarter more or less is neither."""
    if not tally.recent:
        return Trend.GONE
    if tally.first_at >= weeks.one_ago:
        return Trend.NEW
    if 4 * abs(tally.recent - tally.before) <= max(tally.recent, tally.before):
        return Trend.STEADY
    return Trend.RISING if tally.recent > tally.before else Trend.FALLING


def describe(
    kind: About, tally: Tally, sightings: Sequence[Sighting], weeks: Weeks, *, tokens: int | None = None
) -> Pattern:
    """One name with all that is known of it; `sightings` are its newest, at least one."""
    newest = in_order(sightings)
    sample = newest[0].sample
    printed = fingerprint(sample) if kind is About.ERROR else None
    return Pattern(
        kind=kind,
        name=(tally.name if printed is None else printed.normal) or tally.name,
        fingerprint=tally.name if kind is About.ERROR else None,
        sample=sample,
        sessions=tally.sessions,
        occurrences=tally.occurrences,
        flavors=tally.flavors,
        repos=tally.repos,
        tools=tally.tools,
        tokens=tokens,
        first_at=tally.first_at,
        last_at=tally.last_at,
        trend=trend(tally, weeks),
        followed_by=followed_by(newest),
        went_away_after=went_away_after(newest),
        evidence=tuple(f"{each.session_uid}#{each.last_seq}" for each in evidence(newest)),
        is_generic=printed is not None and printed.is_generic,
    )


def in_order(sightings: Iterable[Sighting]) -> list[Sighting]:
    """The newest first; a total order."""
    by_place = sorted(sightings, key=lambda each: (each.session_uid, -each.last_seq, each.first_seq, each.tool or ""))
    return sorted(by_place, key=lambda each: each.last_at, reverse=True)


def evidence(newest: Sequence[Sighting]) -> list[Sighting]:
    """A few sessions that stand for all: the newest, and of every agent at least one while there is room."""
    sessions = list({each.session_uid: each for each in reversed(newest)}.values())[::-1]
    of_agents = list({each.flavor: each.session_uid for each in reversed(sessions)}.values())[::-1]
    others = [each.session_uid for each in sessions if each.session_uid not in set(of_agents)]
    chosen = set([*of_agents, *others][:EVIDENCE])
    return [each for each in sessions if each.session_uid in chosen]


# --- what helped --------------------------------------------------------------------------------


def steps(recovery: dict[str, Any], repo: str | None) -> tuple[str, ...]:
    """What was done until an error was gone, in words; the same thing several times in a row is one step."""
    told = [phrase(action, repo) for action in recovery["actions"]]
    return tuple(words for words, _ in groupby(told))


def phrase(action: dict[str, Any], repo: str | None) -> str:
    """A call in words that are the same in every checkout: `edit src/db.py`, `pytest -q`."""
    words = str(action["summary"])
    if repo:
        words = words.replace(repo.rstrip("/") + "/", "")
    while (where := _WHERE.match(words)) is not None:
        words = words[where.end() :]
    if action["kind"] == Kind.EDIT and " " not in words:
        return f"edit {words}"
    return words or str(action["tool"] or action["kind"])


def went_away_after(newest: Sequence[Sighting]) -> Helped | None:
    """What most sessions did before the error was gone; of several, what was done last.

    A session that did more than another, and all that the other did in that order, speaks for the other's way too: so
    the step that matters is found among those that happened to be done beside it.
    """
    votes = [
        (steps(each.recovered_by, each.repo), f"{each.session_uid}#{each.recovered_by['seq']}")
        for each in _once_a_session(newest)
        if each.recovered_by is not None
    ][:VOTES]
    ways = Counter(done for done, _ in votes)
    # Counter keeps the order of the votes, newest first, and max() takes the first of equals.
    best = max(ways, key=lambda way: sum(ways[other] for other in ways if _contains(other, way)), default=None)
    if best is None:
        return None
    support = sum(ways[other] for other in ways if _contains(other, best))
    return Helped(best, support, next(place for done, place in votes if done == best))


def _contains(done: tuple[str, ...], way: tuple[str, ...]) -> bool:
    if not way:
        return not done  # to do nothing is a way of its own, and no part of every other
    left = iter(done)
    return all(step in left for step in way)


def followed_by(newest: Sequence[Sighting]) -> Helped | None:
    """What went well next in most sessions; of several, the newest."""
    votes = [
        (phrase(each.followed_by, each.repo), f"{each.session_uid}#{each.followed_by['seq']}")
        for each in _once_a_session(newest)
        if each.followed_by is not None
    ][:VOTES]
    for words, count in Counter(words for words, _ in votes).most_common(1):
        return Helped((words,), count, next(place for told, place in votes if told == words))
    return None


def _once_a_session(newest: Sequence[Sighting]) -> list[Sighting]:
    seen: dict[str, Sighting] = {}
    for each in newest:
        # Several tools may have met it: of these, the one whose end is known tells more.
        known = seen.setdefault(each.session_uid, each)
        if known.recovered_by is None and each.recovered_by is not None:
            seen[each.session_uid] = each
    return list(seen.values())


# --- order --------------------------------------------------------------------------------------


def specific_first(found: Iterable[Pattern], limit: int | None) -> list[Pattern]:
    """At most so many, as they come; those that say too little only where there is room left. Reads no further."""
    telling: list[Pattern] = []
    generic: list[Pattern] = []
    for each in found:
        (generic if each.is_generic else telling).append(each)
        if limit is not None and len(telling) >= limit:
            break
    return (telling + generic)[:limit]


def telling_first(prints: Iterable[Fingerprint]) -> list[Fingerprint]:
    """As they come, but those that say too little last."""
    return sorted(prints, key=lambda each: each.is_generic)


def across_agents_first(tallies: Iterable[Tally]) -> list[Tally]:
    """Then most sessions, most occurrences, the newest; a total order."""
    by_name = sorted(tallies, key=lambda each: each.name)
    return sorted(by_name, key=_weight, reverse=True)


def ranked(patterns: Iterable[Pattern]) -> list[Pattern]:
    """As `across_agents_first`, with those that say too little at the end."""
    by_name = sorted(patterns, key=lambda each: (each.kind, each.fingerprint or each.name))
    return sorted(by_name, key=lambda each: (not each.is_generic, *_weight(each)), reverse=True)


def _weight(each: Tally | Pattern) -> tuple[bool, int, int, str]:
    return len(each.flavors) > 1, each.sessions, each.occurrences, each.last_at


# --- what was spent -----------------------------------------------------------------------------


def overruns(spent: dict[int, int], aside: Collection[int] = ()) -> dict[int, str]:
    """The sessions that spent more than nine in ten others do, and how that is said. Those `aside` are no measure."""
    amounts = {session: amount for session, amount in spent.items() if amount > 0 and session not in aside}
    if len(amounts) < ENOUGH_SESSIONS:
        return {}
    budget = p90(amounts.values())
    words = f"nine in ten sessions spend at most {budget:,}"
    return {session: f"{amount:,} tokens; {words}" for session, amount in sorted(amounts.items()) if amount > budget}


def p90(amounts: Iterable[int]) -> int:
    """The smallest amount that nine in ten do not exceed."""
    ordered = sorted(amounts)
    return ordered[(9 * len(ordered) + 9) // 10 - 1]
