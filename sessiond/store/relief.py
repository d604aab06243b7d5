"""A file was read in place of another, and now that one is here: the session becomes what it would be had the real
file come first. The stand-in counts as not read at all from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.store.connect import rows
from sessiond.store.session_row import touch

if TYPE_CHECKING:
    import apsw

_STAND_INS = "SELECT id FROM _source WHERE session_id = ? AND role = 'stand_in' ORDER BY id"
_OF_ITS_GENERATIONS = "generation_id IN (SELECT id FROM _generation WHERE source_id = :source)"
_RELEASE = """
UPDATE _source
   SET state = 'foreign', session_id = NULL, generation_id = NULL, read_offset = 0, head = x'', head_bytes = 0,
       marker = x'', checksum = 0, skipped = 0, skipped_hash = x'', pending = x'', pending_bytes = 0, carry = x'7b7d',
       first_ts = NULL
 WHERE id = :source
"""
# Nothing but stand-ins made events so far: the real file's first chunk is yet to be written.
_BEGIN_ANEW = """
UPDATE _session SET events = 0, turns = 0, retries = 0, started_at = NULL, ended_at = NULL WHERE id = :session
"""


def relieve(db: apsw.Connection, session_row: int) -> list[int]:
    """Take back what stand-ins gave to this session; returns the ids of their events, for the index to forget."""
    gone: list[int] = []
    for (source_id,) in rows(db, _STAND_INS, (session_row,)):
        bound = {"source": source_id}
        query = f"DELETE FROM _event WHERE session_id = :session AND {_OF_ITS_GENERATIONS} RETURNING id, seq"
        removed = rows(db, query, {**bound, "session": session_row})
        gone += [event_id for event_id, _ in removed]
        db.executemany("DELETE FROM _waiting WHERE session_id = ? AND seq = ?", [(session_row, s) for _, s in removed])
        for table in ("_frame", "_reject", "_line_count"):
            db.execute(f"DELETE FROM {table} WHERE {_OF_ITS_GENERATIONS}", bound)
        for table in ("_generation", "_key", "_usage"):
            db.execute(f"DELETE FROM {table} WHERE source_id = :source", bound)
        db.execute(_RELEASE, bound)
        db.execute("DELETE FROM _file WHERE session_id = ?", (session_row,))
        db.execute(_BEGIN_ANEW, {"session": session_row})
        touch(db, session_row)
    return gone
