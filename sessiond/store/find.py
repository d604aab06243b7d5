"""Asking the index: ranked hits, each with the place of the match. Snippets come from the archive.

An index that is missing, damaged or being made again answers as far as it can, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import apsw
import orjson

from sessiond.errors import SessiondError, UsageError
from sessiond.store import archive, connect, digests, fts, reader
from sessiond.store.connect import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Self

    from sessiond.model import SessionEvent

NEWEST = 2000  # matches that are ranked: a common word is looked for in what happened lately
AROUND = 70  # characters of a snippet on either side of the match
DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.IOError)
MISSING = "there is no search index yet: nothing can be found before the daemon has made it"
UNFINISHED = "the search index is being made again: only what is in it so far was searched"


@dataclass(frozen=True, slots=True)
class Hit:
    session_uid: str
    event: SessionEvent | None  # None: its events have left, and the digest says it
    snippet: str
    marks: tuple[tuple[int, int], ...]  # where in the snippet the words stand


class Unreadable(Exception):
    """The index cannot be asked: it is damaged, or there is nothing in it yet."""

    def __init__(self, cause: apsw.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Index:
    """The index as far as it can be asked now. `notice` is what must be said with its answers; None: nothing."""

    def __init__(self, path: Path) -> None:
        self.notice: str | None = None
        self.is_damaged = False
        self._db: apsw.Connection | None = None
        try:
            self._db = connect.open_reader(path)
            if value(self._db, "SELECT count(*) FROM _position") == 0:
                self.notice = UNFINISHED
        except DAMAGE as error:
            self._name(error)
        except SessiondError:
            if path.exists():
                raise
            self.notice = MISSING

    def ask(self, question: Callable[[apsw.Connection], list[Hit]]) -> list[Hit]:
        """The hits; none where the index cannot be read."""
        if self._db is None:
            return []
        try:
            return question(self._db)
        except Unreadable as error:
            self._name(error.cause)
            return []

    def _name(self, error: apsw.Error) -> None:
        self.is_damaged = True
        self.notice = UNFINISHED  # a table that is not there is not made yet; an I/O error: its file was just removed
        if not isinstance(error, apsw.SQLError | apsw.IOError):
            name = type(error).__name__
            self.notice = f"the search index is damaged ({name}): not all was searched; the daemon makes it again"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._db is not None:
            self._db.close()


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
    for event_id, _ in _matches(index, asked):
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
    for row, _ in _matches(index, fts.quoted(query), "digests"):
        if limit is not None and len(hits) >= limit:
            break
        for uid in digests.evicted_uid(db, row):
            if accept(uid):
                told = digests.search_text(digests.by_uid(db, uid) or {}).split("\n")
                best = max(told, key=lambda text: sum(word in text.casefold() for word in words), default="")
                hits.append(Hit(uid, None, *_snippet(" ".join(mask(best).split()), words)))
    return hits


def _matches(index: apsw.Connection, asked: str, table: str = "fts") -> list[tuple[int, float]]:
    try:
        return fts.matches(index, asked, NEWEST, table)
    except DAMAGE as error:
        raise Unreadable(error) from error


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
