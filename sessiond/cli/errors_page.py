"""Errors and patterns as they are shown: to people a few lines each, whatever the width; to programs an object.

The sample first: it is the news.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from sessiond.cli import terminal, times
from sessiond.passes.patterns import About, Trend
from sessiond.store import glance
from sessiond.units import format_ago

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sessiond.cli.answer import Answer
    from sessiond.cli.terminal import Terminal
    from sessiond.passes.patterns import Helped, Pattern

HEAD = "SESSIONS"
INDENT = len(HEAD) + 2
SAMPLE_LINES = 2
NAMED = 3  # repositories, tools: of more, only how many
AGAIN = "trying again"
NOTHING_DISTILLED = "nothing distilled yet: sessiond analyze"
_TRENDS = {
    Trend.NEW: ("+", ("yellow",)),
    Trend.RISING: ("↗", ("red",)),
    Trend.STEADY: ("→", ("dim",)),
    Trend.FALLING: ("↘", ("green",)),
    Trend.GONE: ("✓", ("green",)),
}


SIGNALS = {
    "retry_storm": "the same call or request failed again and again",
    "repeated_error": "the same error three times or more in one session",
    "abandoned": "left unfinished",
    "clean_pass": "done at the first try, and nothing failed",
    "recovery": "an error, and then what had failed went well",
    "budget_overrun": "more tokens than nine in ten sessions spend",
}


class Part(NamedTuple):
    text: str
    leaves: int = 0  # the higher, the sooner it is left out on a narrow screen; 0: never
    short: str = ""  # what stands for it where there is little room


def print_entries(answer: Answer, to: Terminal, patterns: Sequence[Pattern]) -> None:
    names = short_names(answer, to, [each.evidence[0] for each in patterns])
    for each in patterns:
        for line in _entry(answer, to, each, names):
            to.line(line)


def short_names(answer: Answer, to: Terminal, places: Sequence[str]) -> dict[str, str]:
    """Places as a person types them; where there is no screen they stay as they are."""
    if not to.is_screen:
        return {}
    uids = {place: place.rpartition("#")[0] for place in places}
    short = glance.short_names(answer.db, list(dict.fromkeys(uids.values())))
    return {place: f"{short[uid]}#{place.rpartition('#')[2]}" for place, uid in uids.items()}


def _entry(answer: Answer, to: Terminal, pattern: Pattern, names: dict[str, str]) -> Iterator[str]:
    number = to.style(terminal.pad(times.number(pattern.sessions), len(HEAD), right=True), "cyan") + "  "
    for text in wrapped(to, _headline(answer, pattern), INDENT):
        yield number + to.style(text, "bold")
        number = " " * INDENT
    yield " " * INDENT + _facts(answer, to, pattern, names)
    if (after := _afterwards(answer, pattern)) is not None:
        words, style = after
        for text in wrapped(to, words, INDENT):
            yield " " * INDENT + to.style(text, style)


def _headline(answer: Answer, pattern: Pattern) -> str:
    if pattern.kind is About.ERROR:
        return answer.words(pattern.sample)
    return f"{pattern.name}: {SIGNALS[pattern.name]}" if pattern.name in SIGNALS else pattern.name


def _afterwards(answer: Answer, pattern: Pattern) -> tuple[str, str] | None:
    """Of an error what came after it; of a signal, which is about many things, the newest of them."""
    if pattern.kind is About.SIGNAL:
        return f"newest: {answer.words(pattern.sample)}", "dim"
    helped = what_helped(answer, pattern.went_away_after)
    if helped is not None:
        return f"went away after: {helped}", "green"
    if pattern.followed_by is not None:
        return f"followed by: {answer.words(pattern.followed_by.steps[0])}", "dim"
    return None


def what_helped(answer: Answer, helped: Helped | None) -> str | None:
    if helped is None:
        return None
    words = ", then ".join(answer.words(step) for step in helped.steps) or AGAIN
    return words + (f" ({helped.sessions:,} sessions)" if helped.sessions > 1 else "")


def _facts(answer: Answer, to: Terminal, pattern: Pattern, names: dict[str, str]) -> str:
    place = pattern.evidence[0]
    spent = times.short_number(pattern.tokens) if to.is_screen else str(pattern.tokens)
    repos = list(dict.fromkeys(_shown_repo(answer, to, repo) for repo in pattern.repos))
    parts = [
        Part(f"{to.glyph(_TRENDS[pattern.trend][0], '')} {pattern.trend}".strip()),
        Part(times.count(pattern.occurrences, "time")),
        Part(", ".join(pattern.flavors), 2, times.count(len(pattern.flavors), "agent")),
        Part(_named(repos, to), 4, times.count(len(repos), "repo") if len(repos) > 1 else ""),
        Part(_named([answer.words(tool) for tool in pattern.tools], to), 6),
        Part(f"{spent} tokens" if pattern.tokens is not None else "", 3),
        Part(f"first {ago(to, pattern.first_at)}" if pattern.sessions > 1 else "", 5),
        Part(f"last {ago(to, pattern.last_at)}"),
        Part(terminal.plain(names.get(place, place)), 1),
    ]
    told = fitted(to, parts, INDENT)
    first, _, rest = told.partition(" · ")
    return to.style(first, *_TRENDS[pattern.trend][1]) + to.style(f" · {rest}", "dim")


def _shown_repo(answer: Answer, to: Terminal, repo: str) -> str:
    return answer.words(os.path.basename(repo.rstrip("/")) or repo) if to.is_screen else answer.words(repo)


def _named(words: Sequence[str], to: Terminal) -> str:
    distinct = list(dict.fromkeys(words))
    shown = distinct[:NAMED] if to.is_screen else distinct
    more = len(distinct) - len(shown)
    return ", ".join(shown) + (f" +{more:,}" if more else "")


def ago(to: Terminal, text: str) -> str:
    """For a sentence: "3d ago"; where there is no screen, the time itself."""
    moment = times.parse(text)
    if moment is None:
        return "at some time"
    return format_ago(times.now(), moment) if to.is_screen else times.local(moment)


def fitted(to: Terminal, parts: Sequence[Part], used: int) -> str:
    """The parts on one line; on a narrow screen those that are needed most, as many as fit."""
    if to.width is None:
        return " · ".join(part.text for part in parts if part.text)
    shown = {at: part.text for at, part in enumerate(parts) if part.text and not part.leaves}
    by_need = sorted(
        (at for at, part in enumerate(parts) if part.text and part.leaves), key=lambda at: parts[at].leaves
    )
    for at in by_need:
        for text in (parts[at].text, parts[at].short):
            tried = {**shown, at: text}
            if text and terminal.width_of(_joined(tried)) <= to.width - used:
                shown = tried
                break
    return to.fit(_joined(shown), used)


def _joined(shown: dict[int, str]) -> str:
    return " · ".join(shown[at] for at in sorted(shown))


def wrapped(to: Terminal, text: str, used: int) -> list[str]:
    """A text on at most two lines, broken between words where there is one; whole where there is no screen."""
    if to.width is None:
        return [text]
    room = max(to.width - used, 20)
    lines: list[str] = []
    while len(lines) < SAMPLE_LINES - 1 and terminal.width_of(text) > room:
        head = terminal.cut(text, room + 1).removesuffix("…")
        at = head.rfind(" ")
        head = head[:at] if at > room // 2 else head
        lines.append(head.rstrip())
        text = text[len(head) :].lstrip()
    return [*lines, terminal.cut(text, room)]


def error_object(pattern: Pattern) -> dict[str, Any]:
    return {
        "fingerprint": pattern.fingerprint,
        "name": pattern.name,
        "sample": pattern.sample,
        "sessions": pattern.sessions,
        "occurrences": pattern.occurrences,
        "first_at": pattern.first_at,
        "last_at": pattern.last_at,
        "trend": pattern.trend,
        "tools": list(pattern.tools),
        "flavors": list(pattern.flavors),
        "repos": list(pattern.repos),
        "followed_by": helped_object(pattern.followed_by),
        "recovered_by": helped_object(pattern.went_away_after),
        "evidence": list(pattern.evidence),
        "is_generic": pattern.is_generic,
    }


def helped_object(helped: Helped | None) -> dict[str, Any] | None:
    return None if helped is None else {**dataclasses.asdict(helped), "steps": list(helped.steps)}
