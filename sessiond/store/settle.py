"""Rows that were read from a damaged store become a store that fits together: nothing points at what is not there.

Sessions whose files are all still there, and hold all that the store does, are read again from their beginning: where
one page is damaged others may be wrong without being unreadable, and no check is as good as the file. All their rows go
first, so nothing can come twice. Of the others (evicted, superseded, gone) what could be read is kept. Where a piece of
one is missing it is made anew from its archived bytes if those are whole; or, if some of its files are there, those are
read again, and what is stored already is known by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from sessiond.store import mend, sources
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set as AbstractSet

    import apsw

    from sessiond.store.sources import Source

# What no session is made of.
APART = {"_meta", "_counter", "_pass", "_unknown", "_loss", "_tombstone", "_outbox"}
OF_SESSION = ("_event", "_key", "_usage", "_waiting", "_file", "_occurrence", "_signal", "_leaving", "_digest", "_fact")
OF_GENERATION = ("_frame", "_reject", "_line_count")


@dataclass(slots=True)
class Settled:
    """What became of the sessions that were not whole, by their uids."""

    read_again: list[str] = field(default_factory=list)
    partly_read_again: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)  # all their bytes are there: the rest is to be made of them anew
    damaged: list[str] = field(default_factory=list)  # what could be read is all there is
    orphans: int = 0  # rows that nothing leads to any more


def settle(
    db: apsw.Connection, lossy: AbstractSet[str], is_there: Callable[[Source], bool], known: mend.Known, now: str
) -> Settled:
    """In the caller's transaction, foreign keys off. `lossy` are the tables of which rows were lost."""
    settled = Settled()
    mend.drop_contradicted(db, known)
    revived = mend.revive_sessions(db, known.uids, now)
    doubtful = revived | mend.stand_in_for_sources(db, known.paths, now) | mend.stand_in_for_generations(db, now)
    settled.orphans = _remove_orphans(db)
    gaps = _generations_with_gaps(db)
    doubtful |= _incomplete(db, gaps, check_names="_key" in lossy)
    unsure = _held_by_files(db)
    again, partly = _decide(db, doubtful, unsure, is_there, names_are_whole="_key" not in lossy)
    kept = [row for row in sorted(doubtful) if row not in again]
    left = (doubtful | unsure if lossy - APART else doubtful) - set(again) - partly.keys()
    derived = {row for row in left if _is_archived(db, row, gaps)}
    settled.read_again = _uids(db, again)
    settled.partly_read_again = _uids(db, [row for row in kept if row in partly])
    settled.derived = _uids(db, sorted(derived))
    settled.damaged = _uids(db, [row for row in kept if row not in partly and row not in derived])
    mend.keep_what_is_there(db, kept, sorted(gaps), now)
    mend.begin_anew(db, [source for row in kept for source in partly.get(row, ())], kept, now)
    _forget_rows(db, again)
    settled.orphans += _remove_orphans(db)
    return settled


def _decide(
    db: apsw.Connection,
    doubtful: AbstractSet[int],
    unsure: AbstractSet[int],
    is_there: Callable[[Source], bool],
    *,
    names_are_whole: bool,
) -> tuple[list[int], dict[int, list[int]]]:
    """Sessions that are read again whole; and of others the sources that are read again."""
    again: list[int] = []
    partly: dict[int, list[int]] = {}
    for row in sorted(doubtful | unsure):
        files = sources.of_session(db, row)
        there = [source for source in files if is_there(source)]
        if files and len(there) == len(files):
            again.append(row)
        elif row in doubtful and there and names_are_whole:  # without names every record would be a new one
            partly[row] = [source.id for source in there if source.id is not None]
    return again, partly


_COUNTED = """
SELECT s.id FROM _session AS s
 WHERE s.events - s.evicted_events <> (SELECT count(*) FROM _event AS e WHERE e.session_id = s.id)
   AND NOT EXISTS (SELECT 1 FROM _leaving AS l WHERE l.session_id = s.id)
UNION SELECT s.id FROM _session AS s
 WHERE s.digested_seq > 0 AND NOT EXISTS (SELECT 1 FROM _digest AS d WHERE d.session_id = s.id)
UNION SELECT f.session_id FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
 WHERE f.session_id IS NOT NULL AND g.id IN (SELECT value FROM json_each(:gaps))
"""
_NAMELESS = """
SELECT DISTINCT e.session_id FROM _event AS e
 WHERE NOT EXISTS (SELECT 1 FROM temp.named AS n WHERE n.session_id = e.session_id AND n.seq = e.seq)
"""


def _incomplete(db: apsw.Connection, gaps: AbstractSet[int], *, check_names: bool) -> set[int]:
    """Sessions that have fewer events, bytes or digests than they say, or events without a name."""
    found = {row for (row,) in rows(db, _COUNTED, {"gaps": _listed(gaps)})}
    if check_names:
        db.execute("CREATE TEMP TABLE named (session_id, seq, PRIMARY KEY (session_id, seq)) WITHOUT ROWID")
        db.execute("INSERT OR IGNORE INTO named SELECT session_id, seq FROM _key WHERE seq IS NOT NULL")
        found |= {row for (row,) in rows(db, _NAMELESS)}
        db.execute("DROP TABLE temp.named")
    return found


_BYTES = """
SELECT g.id, g.evicted_to, iif(f.generation_id = g.id AND f.reader <> 'snapshot', f.read_offset, 0)
  FROM _generation AS g JOIN _source AS f ON f.id = g.source_id WHERE f.session_id IS NOT NULL ORDER BY g.id
"""


def _generations_with_gaps(db: apsw.Connection) -> set[int]:
    """Generations whose bytes are not all there, from where they were evicted to, to where they were read to."""
    reached: dict[int, int] = {}
    wanted: dict[int, int] = {}
    for generation, evicted_to, read_to in db.execute(_BYTES):
        reached[generation], wanted[generation] = evicted_to, read_to
    gaps = set()
    for generation, start, stop in db.execute("SELECT generation_id, start, stop FROM _frame ORDER BY 1, 2"):
        if generation in reached and stop > reached[generation]:
            if start > reached[generation]:
                gaps.add(generation)
            reached[generation] = stop
    return gaps | {generation for generation, read_to in wanted.items() if reached[generation] < read_to}


_HELD_BY_FILES = """
SELECT s.id FROM _session AS s
 WHERE s.evicted_seq = 0
   AND NOT EXISTS (SELECT 1 FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
                    WHERE f.session_id = s.id AND (g.closed_at IS NOT NULL OR g.evicted_to > 0))
"""


def _held_by_files(db: apsw.Connection) -> set[int]:
    """Sessions that the store holds nothing of which their files do not."""
    return {row for (row,) in rows(db, _HELD_BY_FILES)}


_ARCHIVED = """
SELECT s.evicted_seq = 0 AND count(*) > 0 AND sum(g.evicted_to) = 0 AND min(f.is_restorable)
       AND sum(g.id IN (SELECT value FROM json_each(:gaps))) = 0
  FROM _session AS s JOIN _source AS f ON f.session_id = s.id JOIN _generation AS g ON g.source_id = f.id
 WHERE s.id = :id
"""


def _is_archived(db: apsw.Connection, row: int, gaps: AbstractSet[int]) -> bool:
    """Whether the archive has every byte that was ever read of it."""
    return bool(value(db, _ARCHIVED, {"id": row, "gaps": _listed(gaps)}))


_FRESH = """
INSERT OR REPLACE INTO _session (id, uid, flavor, native_id, is_sidechain, discovered_at, pinned, revision)
SELECT id, uid, flavor, native_id, is_sidechain, discovered_at, pinned, revision FROM _session WHERE id = ?
"""


def _forget_rows(db: apsw.Connection, again: Iterable[int]) -> None:
    """These sessions as if nothing of them had been read; when they were found and that they are pinned stays."""
    listed = _listed(again)
    chosen = "IN (SELECT value FROM json_each(:ids))"
    generations = f"SELECT id FROM _generation WHERE source_id IN (SELECT id FROM _source WHERE session_id {chosen})"
    for table in OF_GENERATION:
        db.execute(f"DELETE FROM {table} WHERE generation_id IN ({generations})", {"ids": listed})
    db.execute(f"DELETE FROM _generation WHERE id IN ({generations})", {"ids": listed})
    for table in (*OF_SESSION, "_source"):
        db.execute(f"DELETE FROM {table} WHERE session_id {chosen}", {"ids": listed})
    db.executemany(_FRESH, [(row,) for row in again])


_ORPHANS = (
    "DELETE FROM _source WHERE session_id IS NOT NULL AND session_id NOT IN (SELECT id FROM _session)",
    "DELETE FROM _generation WHERE source_id NOT IN (SELECT id FROM _source)",
    *(f"DELETE FROM {table} WHERE generation_id NOT IN (SELECT id FROM _generation)" for table in OF_GENERATION),
    *(f"DELETE FROM {table} WHERE session_id NOT IN (SELECT id FROM _session)" for table in (*OF_SESSION, "_loss")),
    "DELETE FROM _event WHERE generation_id NOT IN (SELECT id FROM _generation)",
    "DELETE FROM _key WHERE source_id NOT IN (SELECT id FROM _source)",
    "DELETE FROM _usage WHERE source_id NOT IN (SELECT id FROM _source)",
)


def _remove_orphans(db: apsw.Connection) -> int:
    removed = 0
    for statement in _ORPHANS:
        db.execute(statement)
        removed += db.changes()
    db.execute("UPDATE _source SET generation_id = NULL WHERE generation_id NOT IN (SELECT id FROM _generation)")
    return removed


def _uids(db: apsw.Connection, ids: Iterable[int]) -> list[str]:
    return [str(value(db, "SELECT uid FROM _session WHERE id = ?", (row,))) for row in ids]


def _listed(ids: Iterable[int]) -> str:
    return orjson.dumps(sorted(ids)).decode()
