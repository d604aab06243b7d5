"""Everything that hangs on a session, deleted in steps that ingest can go between. In an order in which whatever is
left half-way still fits together: names first (they lead others to its events), its own row last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from sessiond.store import connect, evict
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import apsw

    from sessiond.store.writer import Writer

ROWS = 400  # deleted by one transaction
FRAME_BYTES = 2**20  # of frames: secure_delete writes as many zeros
NAMES_READ = 20_000  # looked at by one query, outside of the writer
# table -> what names one of its rows
OF_SESSION = {
    "_usage": "hash, scope",
    "_waiting": "id",
    "_file": "session_id, seq, path",
    "_occurrence": "fingerprint, session_id, tool",
    "_signal": "session_id, place",
    "_loss": "id",
    "_leaving": "session_id",
    "_digest": "session_id",
    "_fact": "session_id, name",
}
OF_GENERATION = {"_line_count": "generation_id, hash", "_reject": "generation_id, start"}
_GENERATIONS = """
SELECT g.id FROM _source AS f JOIN _generation AS g ON g.source_id = f.id WHERE f.session_id = ? ORDER BY g.id
"""


def delete_names(writer: Writer, store: Path, sessions: Sequence[int]) -> None:
    """The names of all these sessions' records. They stand in the order of their hashes, so every one is looked at."""
    db = connect.open_reader(store)
    try:
        for some in _names(db, sessions):
            for at in range(0, len(some), ROWS):
                few = some[at : at + ROWS]
                writer.call(lambda writer_db, few=few: _delete_names(writer_db, few))  # type: ignore[misc]
    finally:
        db.close()


def _names(db: apsw.Connection, sessions: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """(hash, scope) of theirs. A query looks at a bounded stretch: no read transaction is long."""
    bound = {"sessions": orjson.dumps(list(sessions)).decode(), "after": -(2**63), "some": NAMES_READ}
    while sessions:
        last = value(db, "SELECT hash FROM _key WHERE hash >= :after ORDER BY hash LIMIT 1 OFFSET :some", bound)
        bound["last"] = 2**63 - 1 if last is None else last
        query = """
        SELECT hash, scope FROM _key WHERE hash >= :after AND hash <= :last
           AND session_id IN (SELECT value FROM json_each(:sessions)) ORDER BY hash, scope
        """
        yield [(hash_, scope) for hash_, scope in rows(db, query, bound)]
        if last is None:
            return
        bound["after"] = last


def _delete_names(db: apsw.Connection, names: Sequence[tuple[int, int]]) -> None:
    db.executemany("DELETE FROM _key WHERE hash = ? AND scope = ?", names)


def delete_rows(writer: Writer, session: int) -> None:
    """All but the rows that others point to: those go at once, with the session's own."""
    for table, key in OF_SESSION.items():
        while writer.call(lambda db, t=table, k=key: _delete_some(db, t, k, "session_id", session)):  # type: ignore[misc]
            pass
    while writer.call(lambda db: _delete_events(db, session)):
        pass
    for (generation,) in writer.call(lambda db: rows(db, _GENERATIONS, (session,))):
        while writer.call(lambda db, g=generation: _delete_frames(db, g)):  # type: ignore[misc]
            pass
        for table, key in OF_GENERATION.items():
            while writer.call(
                lambda db, t=table, k=key, g=generation: _delete_some(db, t, k, "generation_id", g)  # type: ignore[misc]
            ):
                pass


def _delete_some(db: apsw.Connection, table: str, key: str, column: str, of: int) -> bool:
    db.execute(
        f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {column} = ? LIMIT ?)", (of, ROWS)
    )
    return db.changes() > 0


def _delete_events(db: apsw.Connection, session: int) -> bool:
    query = "DELETE FROM _event WHERE id IN (SELECT id FROM _event WHERE session_id = ? LIMIT ?) RETURNING id"
    return bool(evict.unindex(db, [id_ for (id_,) in rows(db, query, (session, ROWS))]))


def _delete_frames(db: apsw.Connection, generation: int) -> bool:
    taken, size = [], 0
    query = "SELECT id, length(data) FROM _frame WHERE generation_id = ? ORDER BY start LIMIT ?"
    for id_, length in rows(db, query, (generation, ROWS)):
        taken.append((id_,))
        size += length
        if size >= FRAME_BYTES:
            break
    db.executemany("DELETE FROM _frame WHERE id = ?", taken)
    return bool(taken)


# Its files; and those that nobody claimed, or that gave way to another, in a folder named after it: a path tells too.
FILES = """
SELECT id FROM _source WHERE session_id = :id
UNION
SELECT o.id FROM _source AS o JOIN _session AS s ON s.id = :id
 WHERE o.session_id IS NULL AND o.flavor = s.flavor AND length(s.native_id) >= 8
   AND instr(o.path, CAST(s.native_id AS BLOB)) > 0
"""


def delete_session(db: apsw.Connection, session: int) -> None:
    """The last of it: files, their contents' rows, the session itself; and its digest in the index."""
    bound = {"id": session}
    db.execute(f"DELETE FROM _generation WHERE source_id IN ({FILES})", bound)
    db.execute(f"DELETE FROM _source WHERE id IN ({FILES})", bound)
    db.execute("DELETE FROM _lineage WHERE uid = (SELECT uid FROM _session WHERE id = :id)", bound)
    db.execute(
        "DELETE FROM _pass WHERE EXISTS (SELECT 1 FROM _session WHERE id = :id AND instr(report, uid) > 0)", bound
    )
    db.execute("DELETE FROM _session WHERE id = :id", bound)
    evict.unindex(db, [], forgotten=[session])
