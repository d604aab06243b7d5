"""Does the store hold together? Frames without overlaps and holes, events whose records are there, sound databases.

Only reads, each question in one statement: whatever else goes on, an answer is about one state of the store. What the
agents' files say to it is asked by `intake/verify.py`.
"""

from __future__ import annotations

import os
import sys
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import apsw
import orjson

from sessiond.store import archive, connect
from sessiond.store.connect import rows, value

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sessiond.store.sources import Source

END = 2**63 - 1
NAMED = 20  # events that are named for a session: where many are lost, they are lost together


class Finding(NamedTuple):
    """Something that is not as it should be; with `is_problem` False, only something to know."""

    what: str
    fix: str
    uid: str | None = None
    path: str | None = None
    offset: int | None = None
    is_problem: bool = True


class Span(NamedTuple):
    """A stretch of a generation as it is archived. `data` is None where only its length is known."""

    start: int
    stop: int
    data: bytes | None


def sessions(db: apsw.Connection, uids: Sequence[str] | None) -> list[tuple[int, str]]:
    """(row, uid) of these sessions, or of all."""
    query = (
        "SELECT id, uid FROM _session WHERE :uids IS NULL OR uid IN (SELECT value FROM json_each(:uids)) ORDER BY id"
    )
    wanted = None if uids is None else orjson.dumps(list(uids)).decode()
    return [(row, uid) for row, uid in rows(db, query, {"uids": wanted})]


# --- frames and events --------------------------------------------------------------------------

_FRAMES = """
SELECT g.id, f.path, g.evicted_to, iif(g.id = f.generation_id, f.read_offset, 0), r.start, r.stop
  FROM _source AS f JOIN _generation AS g ON g.source_id = f.id LEFT JOIN _frame AS r ON r.generation_id = g.id
 WHERE f.session_id = :row AND f.reader <> 'snapshot'
   AND NOT EXISTS (SELECT 1 FROM _leaving WHERE session_id = :row)
 ORDER BY g.id, r.start
"""
RESTORE = "what the file itself holds is safe while it is there; sessiond restore --partial writes the rest"


def frames(db: apsw.Connection, row: int, uid: str) -> Iterator[Finding]:
    """Where the frames of a session overlap, or leave out what no eviction took."""
    for (generation_id, path), some in groupby(rows(db, _FRAMES, {"row": row}), key=lambda each: each[:2]):
        name = os.fsdecode(path)
        for start, stop, is_overlap in _faults(list(some)):
            if is_overlap:
                yield Finding(f"bytes {start}..{stop} are archived twice", "report this", uid, name, start)
            elif _has_events(db, row, generation_id, start, stop):
                yield Finding(f"bytes {start}..{stop} are not in the archive", RESTORE, uid, name, start)
            else:
                what = f"bytes {start}..{stop} were never archived"
                fix = "as it should be where a privacy rule held while they were written"
                yield Finding(what, fix, uid, name, start, is_problem=False)


def _faults(some: list[tuple[int, bytes, int, int, int | None, int | None]]) -> Iterator[tuple[int, int, bool]]:
    """(start, stop, is it an overlap) of one generation."""
    _, _, at, read, _, _ = some[0]
    for *_, start, stop in some:
        if start is None or stop is None or stop <= at:
            continue
        if start < at:
            yield start, at, True
        elif start > at:
            yield at, start, False
        at = stop
    if at < read:
        yield at, read, False


def _has_events(db: apsw.Connection, row: int, generation_id: int, start: int, stop: int) -> bool:
    query = """
    SELECT 1 FROM _event WHERE session_id = ? AND generation_id = ? AND start + length > ? AND start < ? LIMIT 1
    """
    return value(db, query, (row, generation_id, start, stop)) is not None


_LOST = """
SELECT e.seq, f.path, e.start
  FROM _event AS e JOIN _generation AS g ON g.id = e.generation_id JOIN _source AS f ON f.id = g.source_id
 WHERE e.session_id = :row AND f.reader <> 'snapshot' AND e.start >= g.evicted_to
   AND NOT EXISTS (SELECT 1 FROM _leaving WHERE session_id = :row)
   AND (ifnull((SELECT r.stop FROM _frame AS r WHERE r.generation_id = e.generation_id AND r.start <= e.start
                 ORDER BY r.start DESC LIMIT 1), 0) <= e.start
     OR ifnull((SELECT r.stop FROM _frame AS r WHERE r.generation_id = e.generation_id
                   AND r.start < e.start + e.length ORDER BY r.start DESC LIMIT 1), 0) < e.start + e.length)
 ORDER BY e.seq LIMIT :limit
"""


def lost_events(db: apsw.Connection, row: int, limit: int = 1) -> list[tuple[int, bytes, int]]:
    """(seq, path, offset) of events whose record is not in the archive though nothing evicted it."""
    return [(seq, path, start) for seq, path, start in rows(db, _LOST, {"row": row, "limit": limit})]


def events(db: apsw.Connection, row: int, uid: str) -> Iterator[Finding]:
    for seq, path, start in lost_events(db, row, NAMED):
        yield Finding(f"the record of event {seq} is not in the archive", RESTORE, uid, os.fsdecode(path), start)


# --- what was read of a file --------------------------------------------------------------------

_HERE = """
SELECT start, stop, codec, data FROM _frame WHERE generation_id = :generation AND start <= :at AND stop > :at
 ORDER BY start DESC LIMIT 1
"""
_LATER = """
SELECT start, stop, codec, data FROM _frame WHERE generation_id = :generation AND start > :at ORDER BY start LIMIT 1
"""


class Damaged(ValueError):
    """A frame does not hold the bytes that it says; `offset` is where it begins."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the frame at {offset} cannot be read")
        self.offset = offset


def _opened(start: int, stop: int, data: bytes) -> bytes:
    try:
        opened = archive.decompress(data)
    except zstd.ZstdError:
        raise Damaged(start) from None
    if len(opened) != stop - start:
        raise Damaged(start)
    return opened


def spans(db: apsw.Connection, generation_id: int, at: int, stop: int) -> Iterator[Span]:
    """What the archive holds between these offsets, in pieces of at most 1 MiB. Damaged where it cannot be read.

    Asked for by offset each time: frames may be merged while this is read, and evicted.
    """
    while at < stop:
        bound = {"generation": generation_id, "at": at}
        found = rows(db, _HERE, bound) or rows(db, _LATER, bound)
        if not found or found[0][0] >= stop:
            return
        start, end, codec, data = found[0]
        at = max(at, start)
        end = min(end, stop)
        if codec == archive.ZSTD:
            yield Span(at, end, _opened(start, found[0][1], data)[at - start : end - start])
        elif codec == archive.DROPPED:
            yield Span(at, end, None)
        else:
            for piece in range(at, end, archive.FRAME_BYTES):
                last = min(piece + archive.FRAME_BYTES, end)
                yield Span(piece, last, bytes(last - piece))
        at = end


_GENERATIONS = """
SELECT g.id, f.path, g.evicted_to FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
 WHERE f.session_id = ? ORDER BY g.id
"""


def readable(db: apsw.Connection, row: int, uid: str, tell: Callable[[int], None]) -> Iterator[Finding]:
    """The first frame of each generation that cannot be read, also of files that are gone."""
    for generation_id, path, at in rows(db, _GENERATIONS, (row,)):
        try:
            for span in spans(db, generation_id, at, END):
                tell(span.stop - span.start)
        except Damaged as error:
            yield Finding(str(error), RESTORE, uid, os.fsdecode(path), error.offset)


def evicted_to(db: apsw.Connection, source: Source) -> int:
    return int(value(db, "SELECT evicted_to FROM _generation WHERE id = ?", (source.generation_id,)) or 0)


# --- the databases themselves -------------------------------------------------------------------


def database(path: Path) -> Iterator[Finding]:
    """What SQLite finds wrong with a database, table by table: no read lasts longer than it must."""
    fix = "restart the daemon: what is damaged is set aside and made anew from the files that are there"
    if not path.exists():
        return
    try:
        db = connect.open_reader(path)
    except apsw.Error as error:
        yield Finding(f"cannot be read: {type(error).__name__}", fix, path=str(path))
        return
    try:
        for (table,) in rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"):
            quoted = str(table).replace('"', '""')
            for (told,) in rows(db, f'PRAGMA quick_check("{quoted}")'):
                if told != "ok":
                    yield Finding(f"{table}: {told}", fix, path=str(path))
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield Finding(f"is damaged: {error}", fix, path=str(path))
    finally:
        db.close()
