"""A source went away. Its rows stay; only the unfinished tail, which nobody will finish now, moves to the archive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sessiond.model import utc
from sessiond.store import archive
from sessiond.store.connect import rows
from sessiond.store.session_row import next_revision

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import apsw

_MARK = """
UPDATE _source SET state = 'gone', gone_at = :now WHERE path = :path AND state IN ('live', 'excluded')
RETURNING id, session_id
"""
_SESSION = """
UPDATE _session SET source_gone_at = :now, revision = :revision
 WHERE id = :id AND NOT EXISTS (SELECT 1 FROM _source WHERE session_id = :id AND state = 'live'
                                  AND role IN ('main', 'stand_in'))
"""


def mark_gone(db: apsw.Connection, paths: Sequence[str], now: datetime) -> int:
    """Mark these sources gone; how many were not already. The cursor stays: a file that comes back goes on there."""
    marked = 0
    for path in paths:
        bound = {"now": utc(now), "path": os.fsencode(path)}
        for source_id, session_id in rows(db, _MARK, bound):
            marked += 1
            if session_id is not None:
                archive_tail(db, source_id)
                db.execute(_SESSION, {"now": utc(now), "id": session_id, "revision": next_revision(db)})
    return marked


def archive_tail(db: apsw.Connection, source_id: int) -> None:
    """The unfinished last line of the content that ends here; not where it was archived before, and evicted."""
    query = """
    SELECT f.generation_id, f.read_offset, f.pending FROM _source AS f JOIN _generation AS g ON g.id = f.generation_id
     WHERE f.id = ? AND f.pending <> x'' AND g.evicted_to <= f.read_offset
    """
    for generation_id, offset, pending in rows(db, query, (source_id,)):
        _archive(db, generation_id, offset, pending)


def _archive(db: apsw.Connection, generation_id: int, offset: int, pending: bytes) -> None:
    frame = (generation_id, offset, offset + len(pending), archive.ZSTD, archive.compress(pending))
    db.execute("INSERT OR IGNORE INTO _frame (generation_id, start, stop, codec, data) VALUES (?, ?, ?, ?, ?)", frame)
    reject = (generation_id, offset, len(pending), "unterminated", b"")
    db.execute("INSERT OR REPLACE INTO _reject VALUES (?, ?, ?, ?, ?)", reject)
