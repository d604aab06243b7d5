"""Events out of the archive once more: what the search index is made of when it has to be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from sessiond.intake import pieces
from sessiond.model import Carry, Event, Line, Patch
from sessiond.store import archive
from sessiond.store.connect import rows
from sessiond.store.keys import Names, hash_of, root_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import apsw

    from sessiond.adapters.base import Adapter
    from sessiond.intake.parse import Wording

_GENERATIONS = """
SELECT g.id, f.flavor, f.reader, f.seed, s.id, s.uid
  FROM _generation AS g JOIN _source AS f ON f.id = g.source_id JOIN _session AS s ON s.id = f.session_id
 WHERE EXISTS (SELECT 1 FROM _frame AS r WHERE r.generation_id = g.id)
 ORDER BY g.id
"""
_EVENTS = """
SELECT id, start, block FROM _event
 WHERE session_id = ? AND generation_id = ? AND start >= ? AND start < ? ORDER BY start, block
"""


def texts(
    db: apsw.Connection, adapters: Mapping[str, Adapter], wording: Wording, longest: int
) -> Iterator[tuple[int, str]]:
    """(event id, text) of every event whose record is in the archive."""
    for generation_id, flavor, reader, seed, session_row, uid in rows(db, _GENERATIONS):
        if flavor in adapters:
            is_snapshot = reader == "snapshot"
            names = Names(db, root_of(db, uid))
            one = _Generation(db, adapters[flavor], wording, names, session_row, generation_id, uid)
            yield from one.texts(orjson.loads(seed), longest, is_snapshot=is_snapshot)


class _Generation:
    def __init__(
        self,
        db: apsw.Connection,
        adapter: Adapter,
        wording: Wording,
        names: Names,
        session_row: int,
        generation_id: int,
        uid: str,
    ) -> None:
        self._db = db
        self._adapter = adapter
        self._wording = wording
        self._names = names
        self._session_row = session_row
        self._generation_id = generation_id
        self._uid = uid

    def texts(self, carry: Carry, longest: int, *, is_snapshot: bool) -> Iterator[tuple[int, str]]:
        for some in lines(self._db, self._generation_id, longest, is_snapshot=is_snapshot):
            stop = some[-1].offset + 1
            bound = (self._session_row, self._generation_id, some[0].offset, stop)
            ids = {(start, block): id_ for id_, start, block in rows(self._db, _EVENTS, bound)}
            for line in some:
                carry = yield from self._line(line, carry, ids)

    def _line(
        self, line: Line, carry: Carry, ids: dict[tuple[int, int], int]
    ) -> Generator[tuple[int, str], None, Carry]:
        """Yields what the line says, and returns the carry after it."""
        trial = dict(carry)
        try:
            records = self._adapter.parse(line, trial)
        except Exception:  # noqa: BLE001 - it was rejected when it was read, and is again
            return carry
        block = 0
        for record in records:
            if isinstance(record, Event):
                event_id = ids.get((line.offset, block))
                block += 1
                if event_id is not None and record.text:
                    yield event_id, self._wording.indexed(record.text)
            elif isinstance(record, Patch) and record.text is not None:
                yield from self._patched(record)
        return trial

    def _patched(self, patch: Patch) -> Iterator[tuple[int, str]]:
        named, _ = self._names.follow(hash_of(patch.key, self._uid))
        if named is not None and named.session_row == self._session_row:
            query = "SELECT id FROM _event WHERE session_id = ? AND seq = ?"
            for (event_id,) in rows(self._db, query, (self._session_row, named.seq)):
                yield event_id, self._wording.indexed(patch.text or "")


def lines(db: apsw.Connection, generation_id: int, longest: int, *, is_snapshot: bool) -> Iterator[list[Line]]:
    """The complete lines of a generation, a frame's worth at a time; those too long to parse are left out."""
    rest, at = b"", 0
    try:
        for start, data in archive.stream(db, generation_id):
            if not rest:
                at = start
            rest += data
            if is_snapshot:
                continue
            end = pieces.after_last_end(rest)
            some = _cut(rest[:end], at, longest)
            if some:
                yield some
            rest, at = rest[end:], at + end
            if len(rest) > longest:
                rest = rest[-1:]  # inside a line that is too long: only its end matters, and no parse of it succeeds
                at = start + len(data) - 1
    except archive.Missing:
        return
    if is_snapshot and rest:
        yield [Line(0, rest)]


def _cut(data: bytes, at: int, longest: int) -> list[Line]:
    return [
        Line(start, text.removesuffix(b"\r"), ending=text.endswith(b"\r"))
        for start, text in pieces.texts(data, at)
        if not text.isspace() and len(text) <= longest
    ]
