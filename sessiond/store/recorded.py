"""What the order of a session's events was before they are derived anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from sessiond.store import connect
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = 20_000  # read at a time: no read of the store lasts long
NOWHERE = 2**62  # sorts after every seq

_RECORDED = """
CREATE TABLE name (
    session_id INTEGER, hash INTEGER, source_id INTEGER, seq INTEGER, PRIMARY KEY (session_id, hash)
) WITHOUT ROWID;
CREATE INDEX name_source ON name (session_id, source_id, seq);
CREATE TABLE place (
    generation_id INTEGER, start INTEGER, seq INTEGER, PRIMARY KEY (generation_id, start)
) WITHOUT ROWID;
"""
_KEYS = """
SELECT hash, scope, session_id, hash, source_id, seq FROM _key WHERE (hash, scope) > (?, ?) ORDER BY hash, scope LIMIT ?
"""


class Recorded:
    """The order in which sessions were stored, by the names and places of their events.

    Too much for memory, and of no use afterwards: it is in a private database of its own, which has no name.
    """

    def __init__(self, db: apsw.Connection, session_rows: Sequence[int]) -> None:
        self._db = apsw.Connection("")
        self._db.execute(_RECORDED)
        wanted = set(session_rows)
        at = (-(2**63), -(2**63))
        while some := rows(db, _KEYS, (*at, KEYS)):
            at = some[-1][:2]
            with connect.transaction(self._db):
                names = (row[2:] for row in some if row[2] in wanted)
                self._db.executemany("INSERT OR IGNORE INTO name VALUES (?, ?, ?, ?)", names)

    def close(self) -> None:
        self._db.close()

    def hashes(self, row: int) -> list[tuple[int]]:
        return rows(self._db, "SELECT hash FROM name WHERE session_id = ?", (row,))

    def events_of(self, row: int, source_ids: Sequence[int]) -> list[int]:
        """The names of events that were made by these sources."""
        query = "SELECT hash FROM name WHERE session_id = ? AND seq IS NOT NULL AND source_id = ? ORDER BY hash"
        return [hash_ for source_id in source_ids for (hash_,) in rows(self._db, query, (row, source_id))]

    def note_places(self, db: apsw.Connection, row: int) -> None:
        """Before its events are deleted: where each stands."""
        self._db.execute("DELETE FROM place")
        query = "SELECT generation_id, start, min(seq) FROM _event WHERE session_id = ? GROUP BY 1, 2"
        self._db.executemany("INSERT INTO place VALUES (?, ?, ?)", db.execute(query, (row,)))

    def at_place(self, generation_id: int, start: int) -> int | None:
        found = value(self._db, "SELECT seq FROM place WHERE generation_id = ? AND start = ?", (generation_id, start))
        return None if found is None else int(found)

    def first_of(self, row: int, source_id: int) -> int | None:
        """The first event that this source made, wherever it stands by now."""
        query = "SELECT min(seq) FROM name WHERE session_id = ? AND source_id = ?"
        found = value(self._db, query, (row, source_id))
        return None if found is None else int(found)

    def first_beyond(self, generation_id: int, seq: int) -> int:
        """The first event of a generation that came after this one."""
        query = "SELECT min(seq) FROM place WHERE generation_id = ? AND seq > ?"
        found = value(self._db, query, (generation_id, seq))
        return NOWHERE if found is None else int(found)

    def after(self, generation_id: int) -> int:
        """The first event of the next generation that was begun after this one and has any."""
        query = """
        SELECT min(seq) FROM place WHERE generation_id =
               (SELECT generation_id FROM place WHERE generation_id > ? ORDER BY generation_id LIMIT 1)
        """
        found = value(self._db, query, (generation_id,))
        return NOWHERE if found is None else int(found)

    def named(self, row: int, hash_: int) -> tuple[int | None, int] | None:
        """The seq of the event of this name, and the source that made it."""
        query = "SELECT seq, source_id FROM name WHERE session_id = ? AND hash = ?"
        for seq, source_id in rows(self._db, query, (row, hash_)):
            return seq, source_id
        return None
