"""Has this error been seen, where, and what made it go away? What `sessiond errors TEXT` asks."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from typing import TYPE_CHECKING, Any

from sessiond.cli import errors_page, seen_page, terminal, times
from sessiond.errors import UsageError
from sessiond.passes import patterns
from sessiond.passes.fingerprint import lookup_ids
from sessiond.passes.patterns import About
from sessiond.store import find, occurrences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessiond.cli.answer import Answer
    from sessiond.passes.fingerprint import Fingerprint
    from sessiond.passes.patterns import Pattern
    from sessiond.store.occurrences import Sighting, Tally
    from sessiond.store.reader import Wanted

HEAD_BYTES, TAIL_BYTES = 48 * 1024, 16 * 1024  # of what is piped in: an error stands at either end
SEARCHED_WORDS = 10
CONTAINING = 5  # errors that are shown for a part of their text


def asked_for(text: tuple[str, ...]) -> str:
    """What was given: the words, or with `-` what is piped in."""
    if text == ("-",):
        return _piped_in()
    asked = " ".join(text)
    if not asked.strip():
        raise UsageError(
            "there is no text to look for", hint="give an error, or pipe it: make 2>&1 | sessiond errors -"
        )
    return asked


def _piped_in() -> str:
    """The beginning and the end of stdin. All of it is read: the command that writes it must not be cut off."""
    head = sys.stdin.buffer.read(HEAD_BYTES)
    tail, is_cut = b"", False
    while more := sys.stdin.buffer.read(TAIL_BYTES):
        is_cut = is_cut or len(tail) + len(more) > TAIL_BYTES
        tail = (tail + more)[-TAIL_BYTES:]
    return (head + (b"\n...\n" if is_cut else b"") + tail).decode(errors="replace")


def look_up(answer: Answer, wanted: Wanted, text: str, limit: int | None, *, as_json: bool) -> None:
    """Print what is known of the error in this text; that it is not, on stderr."""
    # Masked as it was before its fingerprint was taken: what is masked is part of it.
    asked = lookup_ids(answer.masker.mask(text))
    lookup = _Lookup(answer, wanted)
    found = lookup.known(asked) or lookup.containing(asked)
    if as_json:
        answer.print_json([_seen_object(pattern, seen) for pattern, seen in found])
    elif found:
        known = {pattern.fingerprint for pattern, _ in found}
        new = [each.line for each in asked if each.id not in known and not each.is_generic] if len(asked) > 1 else []
        seen_page.print_seen(answer, terminal.stdout(), found, new, limit)
    if not found:
        _say_not_seen(answer, asked)


class _Lookup:
    """Errors by what a person pasted, each with every place where it was seen."""

    def __init__(self, answer: Answer, wanted: Wanted) -> None:
        self._db = answer.db
        self._wanted = wanted
        self._weeks = patterns.weeks(times.now())

    def known(self, asked: Sequence[Fingerprint]) -> list[tuple[Pattern, list[Sighting]]]:
        """Those that were seen. Sessions in which one read just as it does now come first, and say what helped."""
        tallied = {tally.name: tally for tally in self._tallies([each.id for each in asked])}
        return [
            self._as_asked(each, *self._described(tallied[each.id]))
            for each in patterns.telling_first(asked)
            if each.id in tallied
        ]

    def containing(self, asked: Sequence[Fingerprint]) -> list[tuple[Pattern, list[Sighting]]]:
        """A part of an error is another error to its fingerprint: the first few that have its words in them."""
        if not asked:
            return []
        tallies = self._tallies(occurrences.containing(self._db, asked[0].line))
        return [self._described(tally) for tally in tallies[:CONTAINING]]

    def _tallies(self, names: Sequence[str]) -> list[Tally]:
        return occurrences.tallies(self._db, occurrences.ERRORS, self._wanted, self._weeks, names=names)

    def _described(self, tally: Tally) -> tuple[Pattern, list[Sighting]]:
        seen = occurrences.sightings(self._db, occurrences.ERRORS, self._wanted, tally.name)
        return patterns.describe(About.ERROR, tally, seen, self._weeks), seen

    @staticmethod
    def _as_asked(asked: Fingerprint, pattern: Pattern, seen: list[Sighting]) -> tuple[Pattern, list[Sighting]]:
        alike = patterns.went_away_after([each for each in seen if each.sample == asked.line])
        as_asked = dataclasses.replace(
            pattern,
            sample=asked.line,
            is_generic=asked.is_generic,
            went_away_after=alike or pattern.went_away_after,
        )
        return as_asked, sorted(seen, key=lambda each: each.sample != asked.line)


def _seen_object(pattern: Pattern, seen: Sequence[Sighting]) -> dict[str, Any]:
    return {**errors_page.error_object(pattern), "seen_in": [_place_object(each) for each in seen]}


def _place_object(sighting: Sighting) -> dict[str, Any]:
    return {
        "session_uid": sighting.session_uid,
        "flavor": sighting.flavor,
        "repo": sighting.repo,
        "title": sighting.title,
        "tool": sighting.tool,
        "sample": sighting.sample,
        "count": sighting.count,
        "first": f"{sighting.session_uid}#{sighting.first_seq}",
        "last": f"{sighting.session_uid}#{sighting.last_seq}",
        "first_at": sighting.first_at,
        "last_at": sighting.last_at,
        "recovered_by": errors_page.helped_object(patterns.went_away_after([sighting])),
    }


def _say_not_seen(answer: Answer, asked: Sequence[Fingerprint]) -> None:
    if not asked:
        terminal.say_note("there is no error in this text")
        return
    terminal.say_note(f"not seen before: {answer.words(asked[0].line)}")
    if not occurrences.is_distilled(answer.db):
        terminal.say_note(errors_page.NOTHING_DISTILLED)
    if words := _found_elsewhere(answer, asked[0].line):
        terminal.say_note(f"but its words were said or done: sessiond search {shlex.quote(words)}")


def _found_elsewhere(answer: Answer, line: str) -> str | None:
    """What to search for, where a search would find it."""
    bare = (word.strip("\"'`.,:;()[]{}*") for word in answer.words(line).split())
    words = " ".join([word for word in bare if any(map(str.isalnum, word))][:SEARCHED_WORDS])
    if not words:
        return None
    mask = answer.masker.mask
    with find.Index(answer.paths.search) as index:
        hits = index.ask(lambda db: find.find(answer.db, db, words, limit=1, accept=lambda _: True, mask=mask))
    return words if hits else None
