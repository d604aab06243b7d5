"""Letting sessions go: who may, how much each would free, and deleting in steps that ingest can go between.

A session leaves in two moves. First one short transaction, whose own query says that a digest covers every event,
marks it: from then on its events and bytes up to there count as gone. Then the rows are deleted, some at a time; a
kill in between leaves the mark, and `finish_leaving` goes on. Sources and their cursors, names, usage, edited files and
the digest stay: they are what keeps evicted bytes from coming back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.model import utc
from sessiond.store import archive
from sessiond.store.connect import rows, value
from sessiond.store.session_row import next_revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    import apsw

    from sessiond.store.writer import Writer

EVENTS = 400  # deleted by one transaction
FRAME_BYTES = 2**20  # of frames deleted by one transaction: secure_delete writes as many zeros
ROW_BYTES = 110  # what an event takes besides its words: its row, its place in the index by seq
FRAME_ROW_BYTES = 60
INDEXED_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Candidate:
    row: int
    uid: str
    active_at: str


# The guard of P4, once: analyzed through the last event, and nothing waits to be folded again. Where no event was ever
# made of the bytes there is nothing to be distilled.
COVERED = """
(s.analyzed_at IS NOT NULL OR s.next_seq = 1) AND s.refold = 0 AND s.digested_seq >= s.next_seq - 1
"""
# Bytes count, not events: lines that were rejected, or are copies of another session's, take room too.
_THERE = """
((s.evicted_at IS NULL AND s.events > s.evicted_events)
 OR EXISTS (SELECT 1 FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
              JOIN _frame AS r ON r.generation_id = g.id WHERE f.session_id = s.id))
"""
_OLDEST = f"""
SELECT s.id, s.uid, s.active_at FROM _session AS s
 WHERE {COVERED} AND {_THERE} AND NOT s.pinned AND s.active_at <= :active_before
   AND s.discovered_at <= :discovered_before
 ORDER BY s.active_at, s.id
"""
_UNCOVERED = f"""
SELECT s.id, s.uid, s.active_at FROM _session AS s
 WHERE NOT ({COVERED}) AND {_THERE} AND NOT s.pinned ORDER BY s.active_at, s.id
"""
_SUPERSEDED = f"""
SELECT DISTINCT s.id, s.uid, s.active_at
  FROM _generation AS g JOIN _source AS f ON f.id = g.source_id JOIN _session AS s ON s.id = f.session_id
 WHERE g.closed_at IS NOT NULL AND {COVERED} AND NOT s.pinned
   AND EXISTS (SELECT 1 FROM _frame AS r WHERE r.generation_id = g.id)
 ORDER BY s.active_at, s.id
"""


def oldest(db: apsw.Connection, *, active_before: str, discovered_before: str = "~") -> list[Candidate]:
    """Sessions that may go, the one that was active last longest ago first."""
    bound = {"active_before": active_before, "discovered_before": discovered_before}
    return [Candidate(*row) for row in rows(db, _OLDEST, bound)]


def uncovered(db: apsw.Connection) -> list[Candidate]:
    """Sessions that no digest covers, oldest first: for on_overflow = "evict" alone."""
    return [Candidate(*row) for row in rows(db, _UNCOVERED)]


def superseded(db: apsw.Connection) -> list[Candidate]:
    """Sessions of which an older content is kept besides the present one."""
    return [Candidate(*row) for row in rows(db, _SUPERSEDED)]


# --- how much -----------------------------------------------------------------------------------

_FRAMES_OF = """
SELECT ifnull(sum(length(r.data) + :row), 0)
  FROM _source AS f JOIN _generation AS g ON g.source_id = f.id JOIN _frame AS r ON r.generation_id = g.id
 WHERE f.session_id = :session AND (g.closed_at IS NOT NULL OR NOT :closed)
"""
_EVENTS_OF = """
SELECT ifnull(sum(length(e.summary) + ifnull(length(e.detail), 0) + :row), 0), ifnull(sum(min(e.length, :indexed)), 0)
  FROM _event AS e JOIN _generation AS g ON g.id = e.generation_id
 WHERE e.session_id = :session AND (g.closed_at IS NOT NULL OR NOT :closed)
"""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a session's letting go would free. `index_share` is bytes of the index per indexed character."""

    index_share: float

    def of(self, db: apsw.Connection, row: int, *, only_superseded: bool = False) -> int:
        frames = value(db, _FRAMES_OF, {"session": row, "closed": only_superseded, "row": FRAME_ROW_BYTES})
        bound = {"session": row, "closed": only_superseded, "row": ROW_BYTES, "indexed": INDEXED_CHARS}
        ((events, indexed),) = rows(db, _EVENTS_OF, bound)
        return int(frames + events + indexed * self.index_share)


def weights(db: apsw.Connection, index_bytes: int) -> Weights:
    indexed = value(db, "SELECT sum(min(length, ?)) FROM _event", (INDEXED_CHARS,)) or 0
    return Weights(index_bytes / indexed if indexed else 0.0)


_HOLDERS = f"""
SELECT iif(s.pinned, 'pinned', iif({COVERED}, 'young', 'not distilled')), count(DISTINCT s.id), sum(length(r.data))
  FROM _session AS s JOIN _source AS f ON f.session_id = s.id JOIN _generation AS g ON g.source_id = f.id
  JOIN _frame AS r ON r.generation_id = g.id
 GROUP BY 1 ORDER BY 1
"""


def holders(db: apsw.Connection, held: int) -> list[dict[str, Any]]:
    """Who holds the bytes that could not be let go."""
    found = [{"what": what, "sessions": sessions, "bytes": size} for what, sessions, size in rows(db, _HOLDERS)]
    rest = held - sum(each["bytes"] for each in found)
    return [*found, {"what": "digests, names, events and indexes", "sessions": None, "bytes": max(0, rest)}]


def distilled_bytes(db: apsw.Connection) -> int:
    """What is never evicted: the store without its free pages, frames and events."""
    pages = int(value(db, "PRAGMA page_count")) - int(value(db, "PRAGMA freelist_count"))
    frames = value(db, "SELECT ifnull(sum(length(data)), 0) FROM _frame")
    query = "SELECT ifnull(sum(length(summary) + ifnull(length(detail), 0) + ?), 0) FROM _event"
    return max(0, pages * int(value(db, "PRAGMA page_size")) - int(frames) - int(value(db, query, (ROW_BYTES,))))


# --- letting go ---------------------------------------------------------------------------------

_MARK = f"""
UPDATE _session AS s SET evicted_at = :now, evicted_seq = s.digested_seq, evicted_events = s.events,
       revision = :revision
 WHERE s.id = :id AND {COVERED} AND {_THERE} AND NOT s.pinned AND s.active_at <= :active_before
"""
_MARK_LOST = f"""
UPDATE _session AS s SET evicted_at = :now, evicted_seq = s.next_seq - 1, evicted_events = s.events, refold = 2,
       stale_since = ifnull(s.stale_since, :now), alterations = s.alterations + 1, revision = :revision
 WHERE s.id = :id AND {_THERE} AND NOT s.pinned
RETURNING digested_seq + 1, next_seq - 1
"""
_GENERATIONS = """
UPDATE _generation
   SET evicted_to = ifnull((SELECT max(stop) FROM _frame WHERE generation_id = _generation.id), evicted_to)
 WHERE source_id IN (SELECT id FROM _source WHERE session_id = :id AND reader <> 'snapshot')
"""
_LEAVE = """
INSERT OR REPLACE INTO _leaving (session_id, through_seq, through_frame)
SELECT :id, s.evicted_seq,
       ifnull((SELECT max(r.id) FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
                 JOIN _frame AS r ON r.generation_id = g.id WHERE f.session_id = :id), 0)
  FROM _session AS s WHERE s.id = :id
"""


def let_go(
    writer: Writer,
    row: int,
    now: datetime,
    *,
    active_before: str,
    after_each: Callable[[], None] = lambda: None,
) -> bool:
    """Evict a session; False where it may not go (any more): it came to life, was pinned, or lost its cover."""

    def mark(db: apsw.Connection) -> bool:
        bound = {"id": row, "now": utc(now), "active_before": active_before, "revision": next_revision(db)}
        db.execute(_MARK, bound)
        if not db.changes():
            return False
        db.execute("UPDATE _digest SET base = data WHERE session_id = ?", (row,))
        _mark_rows(db, row)
        return True

    if not writer.call(mark):
        return False
    finish_leaving(writer, row, after_each)
    return True


def let_go_uncovered(
    writer: Writer, row: int, size: int, now: datetime, after_each: Callable[[], None] = lambda: None
) -> bool:
    """Evict a session that no digest covers. What was lost is on record until somebody says that he has read it."""

    def mark(db: apsw.Connection) -> bool:
        bound = {"id": row, "now": utc(now), "revision": next_revision(db)}
        for first, last in rows(db, _MARK_LOST, bound):
            insert = "INSERT INTO _loss (at, session_id, first_seq, last_seq, bytes, reason) VALUES (?, ?, ?, ?, ?, ?)"
            db.execute(insert, (utc(now), row, first, last, size, "hard_cap was reached before it was distilled"))
            db.execute("UPDATE _digest SET base = data WHERE session_id = ?", (row,))
            count = "INSERT INTO _counter VALUES ('data_loss', 1) ON CONFLICT DO UPDATE SET value = value + 1"
            db.execute(count)
            _mark_rows(db, row)
            return True
        return False

    if not writer.call(mark):
        return False
    finish_leaving(writer, row, after_each)
    return True


def _mark_rows(db: apsw.Connection, row: int) -> None:
    db.execute(_GENERATIONS, {"id": row})
    db.execute(_LEAVE, {"id": row})


def leaving(db: apsw.Connection) -> list[int]:
    """Sessions that were marked, and not deleted to the end: somebody stopped half-way."""
    return [row for (row,) in rows(db, "SELECT session_id FROM _leaving ORDER BY session_id")]


_SOME_FRAMES = """
SELECT r.id, length(r.data) FROM _leaving AS l JOIN _source AS f ON f.session_id = l.session_id
  JOIN _generation AS g ON g.source_id = f.id JOIN _frame AS r ON r.generation_id = g.id
 WHERE l.session_id = ? AND r.id <= l.through_frame ORDER BY r.id LIMIT 200
"""
_SOME_EVENTS = """
DELETE FROM _event WHERE id IN (
    SELECT e.id FROM _leaving AS l JOIN _event AS e ON e.session_id = l.session_id AND e.seq <= l.through_seq
     WHERE l.session_id = ? ORDER BY e.seq LIMIT ?)
RETURNING id
"""
_REJECTS = """
DELETE FROM _reject WHERE generation_id IN (SELECT g.id FROM _generation AS g JOIN _source AS f ON f.id = g.source_id
                                             WHERE f.session_id = :id)
   AND start < (SELECT evicted_to FROM _generation WHERE id = generation_id)
"""
# Of a content that goes on, how often each line came must stay known: it is the name of lines that have none.
_LINE_COUNTS = """
DELETE FROM _line_count WHERE generation_id IN (
    SELECT g.id FROM _generation AS g JOIN _source AS f ON f.id = g.source_id
     WHERE f.session_id = ? AND g.closed_at IS NOT NULL)
"""


def finish_leaving(writer: Writer, row: int, after_each: Callable[[], None] = lambda: None) -> None:
    """Delete the rows of a marked session, some at a time; the session may go on meanwhile."""
    while writer.call(lambda db: _delete_frames(db, row)):
        after_each()
    while writer.call(lambda db: _delete_events(db, row)):
        after_each()

    def end(db: apsw.Connection) -> None:
        db.execute(_REJECTS, {"id": row})
        db.execute(_LINE_COUNTS, (row,))
        db.execute("DELETE FROM _leaving WHERE session_id = ?", (row,))

    writer.call(end)


def _delete_frames(db: apsw.Connection, row: int) -> bool:
    taken, size = [], 0
    for id_, length in rows(db, _SOME_FRAMES, (row,)):
        taken.append((id_,))
        size += length
        if size >= FRAME_BYTES:
            break
    db.executemany("DELETE FROM _frame WHERE id = ?", taken)
    if not rows(db, _SOME_FRAMES, (row,)):
        # Ids of frames are given again once the newest is gone: none that comes now may be taken for one of these.
        db.execute("UPDATE _leaving SET through_frame = 0 WHERE session_id = ?", (row,))
    return bool(taken)


def _delete_events(db: apsw.Connection, row: int) -> bool:
    return bool(unindex(db, [id_ for (id_,) in rows(db, _SOME_EVENTS, (row, EVENTS))]))


def unindex(db: apsw.Connection, ids: list[int], **more: Any) -> list[int]:
    """Have the search index forget these events."""
    if ids or more:
        data = orjson.dumps({"remove": ids, "add": [], **more})
        db.execute("INSERT INTO _outbox (data) VALUES (?)", (archive.compress(data),))
    return ids


# --- superseded contents ------------------------------------------------------------------------

_OLD_GENERATIONS = f"""
SELECT g.id FROM _session AS s JOIN _source AS f ON f.session_id = s.id JOIN _generation AS g ON g.source_id = f.id
 WHERE s.id = ? AND g.closed_at IS NOT NULL AND {COVERED} AND NOT s.pinned ORDER BY g.id
"""
_OLD_FRAMES = "SELECT id, length(data) FROM _frame WHERE generation_id = ? ORDER BY id LIMIT 200"
_OLD_EVENTS = """
DELETE FROM _event WHERE id IN (SELECT id FROM _event WHERE session_id = ? AND generation_id = ? ORDER BY seq LIMIT ?)
RETURNING id, seq
"""


def let_go_superseded(writer: Writer, row: int, after_each: Callable[[], None] = lambda: None) -> bool:
    """Evict the older contents of a session's files. The guard is asked before every step."""
    is_any = False
    while writer.call(lambda db: _delete_superseded(db, row)):
        is_any = True
        after_each()
    return is_any


def _delete_superseded(db: apsw.Connection, row: int) -> bool:
    """Some of it; False when there is nothing left. The names of those events go too: such a record, should it ever
    be seen again, is a new one, for no digest speaks of it.
    """
    for (generation,) in rows(db, _OLD_GENERATIONS, (row,)):
        taken, size = [], 0
        for id_, length in rows(db, _OLD_FRAMES, (generation,)):
            taken.append((id_,))
            size += length
            if size >= FRAME_BYTES:
                break
        if taken:
            to = "UPDATE _generation SET evicted_to = (SELECT max(stop) FROM _frame WHERE id = ?) WHERE id = ?"
            db.execute(to, (taken[-1][0], generation))
            db.executemany("DELETE FROM _frame WHERE id = ?", taken)
            return True
        gone = rows(db, _OLD_EVENTS, (row, generation, EVENTS))
        if gone:
            _forget_names(db, row, [seq for _, seq in gone])
            unindex(db, [id_ for id_, _ in gone])
            update = """
            UPDATE _session SET events = events - :gone, revision = :revision WHERE id = :id
            """
            db.execute(update, {"gone": len(gone), "revision": next_revision(db), "id": row})
            return True
        db.execute("DELETE FROM _line_count WHERE generation_id = ?", (generation,))
        db.execute("DELETE FROM _reject WHERE generation_id = ?", (generation,))
    return False


def _forget_names(db: apsw.Connection, row: int, seqs: list[int]) -> None:
    query = """
    DELETE FROM _key WHERE session_id = ? AND seq IN (SELECT value FROM json_each(?))
       AND source_id IN (SELECT id FROM _source WHERE session_id = ?)
    """
    db.execute(query, (row, orjson.dumps(seqs).decode(), row))


# --- what was lost ------------------------------------------------------------------------------


def losses(db: apsw.Connection) -> Iterator[dict[str, Any]]:
    """Data-loss reports that nobody has acknowledged yet."""
    query = """
    SELECT l.id, l.at, s.uid, l.first_seq, l.last_seq, l.bytes, l.reason
      FROM _loss AS l JOIN _session AS s ON s.id = l.session_id WHERE l.acknowledged_at IS NULL ORDER BY l.id
    """
    names = ("id", "at", "session_uid", "first_seq", "last_seq", "bytes", "reason")
    for row in rows(db, query):
        yield dict(zip(names, row, strict=True))


def acknowledge(db: apsw.Connection, now: datetime) -> int:
    """Somebody has read the reports. They stay on record."""
    db.execute("UPDATE _loss SET acknowledged_at = ? WHERE acknowledged_at IS NULL", (utc(now),))
    return db.changes()
