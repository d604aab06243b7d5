"""Stand-ins for rows that a damaged store has lost, made from what other rows and indexes still say about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import apsw


@dataclass(slots=True)
class Known:
    """What the unique indexes say: uids of sessions and paths of files, by their rows."""

    uids: dict[int, str] = field(default_factory=dict)
    paths: dict[int, bytes] = field(default_factory=dict)


def drop_contradicted(db: apsw.Connection, known: Known) -> None:
    """Rows of which the index says otherwise were written over: what stands in them is not to be trusted."""
    for table, column, told in (("_session", "uid", known.uids), ("_source", "path", known.paths)):
        ids = {name: row for row, name in told.items()}
        for row, name in rows(db, f"SELECT id, {column} FROM {table} ORDER BY id"):
            if told.get(row, name) != name or ids.get(name, row) != row:
                db.execute(f"DELETE FROM {table} WHERE id = ?", (row,))


_SESSION = """
INSERT OR IGNORE INTO _session (id, uid, flavor, native_id, discovered_at, stored_at, ingested_at, stale_since)
VALUES (:id, :uid, :flavor, :native, :now, :now, :now, :now)
"""
_STATED = ("title", "cwd", "repo", "domain", "git_branch", "model", "task_ref")
_FILL = f"""
UPDATE _session
   SET ({", ".join(_STATED)}) =
       ({", ".join(f"(SELECT value FROM _fact WHERE session_id = :id AND name = '{name}')" for name in _STATED)}),
       parent = (SELECT :flavor || ':' || value FROM _fact WHERE session_id = :id AND name = 'parent'),
       (events, turns, retries, started_at, ended_at) =
       (SELECT count(*), ifnull(sum(is_turn), 0), ifnull(sum(kind = 'retry'), 0), min(ts), max(ts)
          FROM _event WHERE session_id = :id),
       (digested_seq, evicted_seq, analyzed_at, outcome, outcome_basis, outcome_reason) =
       (SELECT ifnull(max(data ->> 'through_seq'), 0), ifnull(max(base ->> 'through_seq'), 0),
               iif(count(*), :now, NULL), ifnull(max(data ->> 'outcome'), 'unknown'),
               max(data ->> 'outcome_basis'), max(data ->> 'outcome_reason')
          FROM _digest WHERE session_id = :id),
       source_gone_at = (SELECT iif(sum(state = 'live'), NULL, max(gone_at)) FROM _source WHERE session_id = :id),
       is_sidechain = EXISTS (SELECT 1 FROM _event WHERE session_id = :id)
                      AND NOT EXISTS (SELECT 1 FROM _event WHERE session_id = :id AND NOT is_sidechain)
 WHERE id = :id
"""
_NEXT_SEQ = """
UPDATE _session
   SET next_seq = 1 + max(digested_seq, ifnull(:named, 0),
                          ifnull((SELECT max(seq) FROM _event WHERE session_id = :id), 0),
                          ifnull((SELECT max(seq) FROM _usage WHERE session_id = :id), 0)),
       evicted_at = iif(evicted_seq > 0 AND events = 0, :now, NULL)
 WHERE id = :id
"""


def revive_sessions(db: apsw.Connection, uids: dict[int, str], now: str) -> set[int]:
    """Rows for sessions that only the index of uids still knows, filled with what their facts and events say."""
    there = {row for (row,) in rows(db, "SELECT id FROM _session")}
    lost = {row: uid for row, uid in uids.items() if row not in there and ":" in uid}
    if not lost:
        return set()
    named = dict(rows(db, "SELECT session_id, max(seq) FROM _key GROUP BY session_id"))
    for row, uid in lost.items():
        flavor, _, native = uid.partition(":")
        bound: dict[str, Any] = {"id": row, "uid": uid, "flavor": flavor, "native": native, "now": now}
        db.execute(_SESSION, bound)
        db.execute(_FILL, bound)
        db.execute(_NEXT_SEQ, {**bound, "named": named.get(row)})
    return set(lost)


_DANGLING = """
SELECT source_id, max(session_id) FROM (
    SELECT source_id, session_id FROM _key UNION ALL SELECT source_id, session_id FROM _usage
    UNION ALL SELECT g.source_id, e.session_id FROM _generation AS g JOIN _event AS e ON e.generation_id = g.id)
 WHERE source_id NOT IN (SELECT id FROM _source) AND session_id IN (SELECT id FROM _session)
 GROUP BY source_id ORDER BY source_id
"""
_SOURCE = """
INSERT OR IGNORE INTO _source (id, session_id, flavor, home, path, below, member, role, reader, state, discovered_at,
                               gone_at, is_restorable)
SELECT :id, id, flavor, :home, :path, :below, '', 'main', 'tail', 'gone', :now, :now, 0
  FROM _session WHERE id = :session
"""


def stand_in_for_sources(db: apsw.Connection, paths: dict[int, bytes], now: str) -> set[int]:
    """Rows for files that names and events still speak of. With its path, a file that is there is found again."""
    touched = set()
    homes = [
        home for (home,) in rows(db, "SELECT DISTINCT home FROM _source WHERE home <> x'' ORDER BY length(home) DESC")
    ]
    for source, session in rows(db, _DANGLING):
        path = paths.get(source, b"lost file %d" % source)
        home = next((each for each in homes if path.startswith(each + b"/")), path.rpartition(b"/")[0])
        below = path[len(home) + 1 :] if home else path
        db.execute(_SOURCE, {"id": source, "session": session, "home": home, "path": path, "below": below, "now": now})
        touched.add(session)
    return touched


_CURRENT = """
INSERT OR IGNORE INTO _generation (id, source_id, number, opened_at, evicted_to)
SELECT f.generation_id, f.id, 1 + ifnull((SELECT max(number) FROM _generation WHERE source_id = f.id), 0), :now,
       ifnull((SELECT min(start) FROM _frame WHERE generation_id = f.generation_id), f.read_offset)
  FROM _source AS f WHERE f.generation_id NOT IN (SELECT id FROM _generation)
RETURNING source_id
"""
_FORMER = """
SELECT DISTINCT e.generation_id, f.id, f.session_id FROM _event AS e
  JOIN _source AS f ON f.id = (SELECT id FROM _source WHERE session_id = e.session_id
                                ORDER BY role <> 'main', id LIMIT 1)
 WHERE e.generation_id NOT IN (SELECT id FROM _generation)
 ORDER BY e.generation_id
"""
_CLOSED = """
INSERT OR IGNORE INTO _generation (id, source_id, number, opened_at, closed_at)
SELECT :id, :source, 1 + ifnull(max(number), 0), :now, iif(:is_current, NULL, :now)
  FROM _generation WHERE source_id = :source
"""


def stand_in_for_generations(db: apsw.Connection, now: str) -> set[int]:
    """Rows for contents that a file or an event still names: an event without one would not be seen."""
    of = "SELECT session_id FROM _source WHERE id = ? AND session_id IS NOT NULL"
    touched = {row for (source,) in rows(db, _CURRENT, {"now": now}) for (row,) in rows(db, of, (source,))}
    for generation, source, session in rows(db, _FORMER):
        has_current = value(db, "SELECT generation_id FROM _source WHERE id = ?", (source,)) is not None
        db.execute(_CLOSED, {"id": generation, "source": source, "now": now, "is_current": not has_current})
        if not has_current:
            db.execute("UPDATE _source SET generation_id = ? WHERE id = ?", (generation, source))
        touched.add(session)
    return touched


_COUNT_AGAIN = """
UPDATE _session AS s
   SET events = evicted_events + (SELECT count(*) FROM _event WHERE session_id = s.id)
 WHERE id = ?
"""
_NO_DIGEST = """
UPDATE _session AS s
   SET digested_seq = 0, analyzed_at = NULL, stale_since = ifnull(stale_since, :now),
       refold = iif(evicted_seq > 0, 2, 1), alterations = alterations + 1
 WHERE id = :id AND NOT EXISTS (SELECT 1 FROM _digest WHERE session_id = s.id)
"""
_NOT_RESTORABLE = """
UPDATE _source SET is_restorable = 0 WHERE id IN (SELECT source_id FROM _generation WHERE id = ?)
"""


def keep_what_is_there(db: apsw.Connection, sessions: Sequence[int], gaps: Iterable[int], now: str) -> None:
    """Sessions that are not whole say so: they count the events that are left, and are digested where a digest was
    lost. A content with a gap must not be given out as the agent's file.
    """
    db.executemany(_COUNT_AGAIN, [(row,) for row in sessions])
    db.executemany(_NO_DIGEST, [{"id": row, "now": now} for row in sessions])
    db.executemany(_NOT_RESTORABLE, [(generation,) for generation in gaps])


_LEFT_NAMES = """
DELETE FROM _key WHERE seq IS NOT NULL AND session_id IN (SELECT value FROM json_each(?))
   AND seq > (SELECT evicted_seq FROM _session WHERE id = _key.session_id)
   AND NOT EXISTS (SELECT 1 FROM _event AS e WHERE e.session_id = _key.session_id AND e.seq = _key.seq)
"""
_TO_THE_BEGINNING = """
UPDATE _source
   SET generation_id = NULL, size = 0, mtime_ns = 0, read_offset = 0, head = x'', head_bytes = 0, marker = x'',
       checksum = 0, skipped = 0, skipped_hash = x'', pending = x'', pending_bytes = 0, carry = seed, is_restorable = 1
 WHERE id = :id
"""


def begin_anew(db: apsw.Connection, files: Sequence[int], sessions: Sequence[int], now: str) -> None:
    """These files are read from their beginning once more. Events that are there keep their names and are known by
    them; the names of those that were lost go, so that they are made again.
    """
    if not files:
        return
    db.execute(_LEFT_NAMES, (orjson.dumps(list(sessions)).decode(),))
    of_it = "generation_id = (SELECT generation_id FROM _source WHERE id = :id)"
    for source in files:
        bound = {"id": source, "now": now}
        for table in ("_frame", "_reject", "_line_count"):
            db.execute(f"DELETE FROM {table} WHERE {of_it}", bound)
        db.execute("UPDATE _generation SET closed_at = :now WHERE source_id = :id AND closed_at IS NULL", bound)
        db.execute(_TO_THE_BEGINNING, bound)
