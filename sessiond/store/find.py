"""Asking the index: ranked hits, each with the place of the match. Snippets come from the archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from sessiond.errors import UsageError
from sessiond.store import archive, digests, fts, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import apsw

    from sessiond.model import SessionEvent

NEWEST = 2000  # matches that are ranked: a common word is looked for in what happened lately
AROUND = 70  # characters of a snippet on either side of the match


@dataclass(frozen=True, slots=True)
class Hit:
    session_uid: str
    event: SessionEvent | None  # None: its events have left, and the digest says it
    snippet: str
    marks: tuple[tuple[int, int], ...]  # where in the snippet the words stand


def find(
    db: apsw.Connection,
    index: apsw.Connection,
    query: str,
    *,
    limit: int | None,
    accept: Callable[[SessionEvent], bool],
    mask: Callable[[str], str],
) -> list[Hit]:
    """The best of the newest matches."""
    asked = fts.quoted(query)
    if not asked:
        raise UsageError("there is nothing to search for", hint='give a word, or "a phrase"')
    hits: list[Hit] = []
    words = _words(query)
    for event_id, _ in fts.matches(index, asked, NEWEST):
        if limit is not None and len(hits) >= limit:
            break
        found = reader.events_by_id(db, [event_id]).values()
        hits += [_hit(db, event, words, mask) for event in found if accept(event)]
    return hits


def find_evicted(
    db: apsw.Connection,
    index: apsw.Connection,
    query: str,
    *,
    limit: int | None,
    accept: Callable[[str], bool],
    mask: Callable[[str], str],
) -> list[Hit]:
    """The best matches among digests of sessions whose events have left. `accept` is asked with the session's uid."""
    hits: list[Hit] = []
    words = _words(query)
    for row, _ in fts.matches(index, fts.quoted(query), NEWEST, "digests"):
        if limit is not None and len(hits) >= limit:
            break
        for uid in digests.evicted_uid(db, row):
            if accept(uid):
                told = digests.search_text(digests.by_uid(db, uid) or {}).split("\n")
                best = max(told, key=lambda text: sum(word in text.casefold() for word in words), default="")
                hits.append(Hit(uid, None, *_snippet(" ".join(mask(best).split()), words)))
    return hits


def _words(query: str) -> list[str]:
    return [word for word in (part.strip('*"') for part in query.casefold().split()) if word]


def _hit(db: apsw.Connection, event: SessionEvent, words: list[str], mask: Callable[[str], str]) -> Hit:
    try:
        texts = list(archive.strings(orjson.loads(reader.payload(db, event))))
    except (archive.Missing, orjson.JSONDecodeError):
        texts = []
    best = max(texts, key=lambda text: sum(word in text.casefold() for word in words), default="")
    if not any(word in best.casefold() for word in words):
        best = event.summary
    # Masked before it is cut: half a secret at the edge of a snippet would not be recognised any more.
    at = min((found for word in words if (found := best.casefold().find(word)) >= 0), default=0)
    around = mask(best[max(0, at - 2000) : at + 2000])
    return Hit(event.session_uid, event, *_snippet(" ".join(around.split()), words))


def _snippet(text: str, words: list[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    folded = text.casefold() if len(text.casefold()) == len(text) else text.lower()
    at = min((found for word in words if (found := folded.find(word)) >= 0), default=0)
    start, stop = max(0, at - AROUND), min(len(text), at + 2 * AROUND)
    snippet = ("…" if start else "") + text[start:stop] + ("…" if stop < len(text) else "")
    folded = snippet.casefold() if len(snippet.casefold()) == len(snippet) else snippet.lower()
    marks = sorted({(found, found + len(word)) for word in words for found in _all(folded, word)})
    return snippet, tuple(marks)


def _all(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))
