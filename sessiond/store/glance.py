"""Small questions about sessions for people's eyes: short names, what was edited, what was said last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.model import Kind
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

SHORTEST = 8


def files(db: apsw.Connection, uid: str) -> list[tuple[str, int]]:
    """(path, edits) of what a session edited, most edited first."""
    query = "SELECT path, edits FROM files WHERE session_uid = ? ORDER BY edits DESC, path"
    return [(path, edits) for path, edits in rows(db, query, (uid,))]


def kinds(db: apsw.Connection, uid: str) -> dict[str, int]:
    """How many events of each kind; the most frequent first."""
    query = """
    SELECT kind, count(*) FROM events WHERE session_uid = ? AND NOT is_superseded GROUP BY kind ORDER BY 2 DESC, 1
    """
    return dict(rows(db, query, (uid,)))


def errors(db: apsw.Connection, uid: str) -> int:
    """How many of its events are errors."""
    query = """
    SELECT count(*) FROM events WHERE session_uid = ? AND (is_error OR kind = 'error') AND NOT is_superseded
    """
    return int(value(db, query, (uid,)) or 0)


def last_words(db: apsw.Connection, uid: str) -> tuple[str | None, str | None]:
    """What was asked last and what was answered last, as their summaries."""
    return _last(db, uid, Kind.USER_MSG), _last(db, uid, Kind.ASSISTANT_MSG)


def _last(db: apsw.Connection, uid: str, kind: Kind) -> str | None:
    query = """
    SELECT summary FROM events
     WHERE session_uid = ? AND kind = ? AND summary <> '' AND NOT is_sidechain AND NOT is_superseded
     ORDER BY seq DESC LIMIT 1
    """
    found = value(db, query, (uid, kind.value))
    return None if found is None else str(found)


def seq_range(db: apsw.Connection, uid: str) -> tuple[int, int] | None:
    """The first and the last event there is."""
    query = "SELECT min(seq), max(seq) FROM events WHERE session_uid = ?"
    for first, last in rows(db, query, (uid,)):
        return None if first is None else (first, last)
    return None


def evicted(db: apsw.Connection, uid: str) -> tuple[int, str | None] | None:
    """(seq, when) up to which the events of a session have left."""
    for seq, at in rows(db, "SELECT evicted_seq, evicted_at FROM _session WHERE uid = ? AND evicted_seq > 0", (uid,)):
        return seq, at
    return None


def models(db: apsw.Connection) -> list[str]:
    """Every model that a session names as its own."""
    query = "SELECT DISTINCT model FROM sessions WHERE model IS NOT NULL ORDER BY model"
    return [row[0] for row in rows(db, query)]


def flavors(db: apsw.Connection) -> list[str]:
    return [row[0] for row in rows(db, "SELECT DISTINCT flavor FROM sessions ORDER BY flavor")]


def short_names(db: apsw.Connection, uids: Sequence[str]) -> dict[str, str]:
    """For each uid the shortest beginning of its native id that names it alone, of eight letters or more."""
    known = flavors(db)
    return {uid: _short(db, uid, known) for uid in uids}


def _short(db: apsw.Connection, uid: str, known: Sequence[str]) -> str:
    native = uid.partition(":")[2]
    for length in range(SHORTEST, len(native)):
        if sum(_beginning_with(db, f"{flavor}:{native[:length]}") for flavor in known) == 1:
            return native[:length]
    return native if sum(_beginning_with(db, f"{flavor}:{native}") for flavor in known) == 1 else uid


def _beginning_with(db: apsw.Connection, prefix: str) -> int:
    # A range, not substr() = :prefix, for the index on the uid.
    query = "SELECT count(*) FROM (SELECT 1 FROM _session WHERE uid >= ? AND uid < ? LIMIT 2)"
    return int(value(db, query, (prefix, prefix + "\U0010ffff")))
