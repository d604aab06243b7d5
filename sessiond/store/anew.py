"""A session as if none of its lines had been read yet, its bytes and cursors kept: what `reindex` begins from.

What cannot be derived again stays: when it was discovered and stored, whether it is pinned, its lineage, the working
directory that only its path tells, and the rejects of the reader.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import orjson

from sessiond.store import evict, session_row, sources
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from sessiond.model import Carry
    from sessiond.store.recorded import Recorded
    from sessiond.store.session_row import SessionRow
    from sessiond.store.sources import Source

PATH_RANK = 8  # of what intake itself states about a session, from its path
UNINDEXED = 10_000  # events that one entry of the outbox names


class Kept(NamedTuple):
    """What a session was before, as far as it is needed afterwards."""

    next_seq: int
    started_at: str | None
    ended_at: str | None
    place: dict[str, tuple[int, str]]  # cwd, repo and domain: rank and value
    closed: list[tuple[str, int]]  # when its generations were closed


_GENERATIONS = "SELECT g.id FROM _generation AS g JOIN _source AS f ON f.id = g.source_id WHERE f.session_id = :id"
_CLEAR = (
    "DELETE FROM _usage WHERE session_id = :id",
    "DELETE FROM _file WHERE session_id = :id",
    "DELETE FROM _waiting WHERE session_id = :id",
    f"DELETE FROM _line_count WHERE generation_id IN ({_GENERATIONS})",
    # Of the reader's own rejects only those go whose line would be taken now.
    f"""
    DELETE FROM _reject WHERE generation_id IN ({_GENERATIONS})
       AND reason NOT IN ('nul', 'unterminated') AND NOT (reason = 'too_long' AND length > :longest)
    """,
    "DELETE FROM _fact WHERE session_id = :id AND NOT (rank = :path_rank AND name IN ('cwd', 'repo', 'domain'))",
    """
    UPDATE _session SET (cwd, repo, domain) =
           ((SELECT value FROM _fact WHERE session_id = :id AND name = 'cwd'),
            (SELECT value FROM _fact WHERE session_id = :id AND name = 'repo'),
            (SELECT value FROM _fact WHERE session_id = :id AND name = 'domain')),
           title = NULL, git_branch = NULL, model = NULL, task_ref = NULL, parent = NULL,
           outcome = 'unknown', outcome_basis = NULL, outcome_reason = NULL, outcome_due_at = NULL, digested_seq = 0
     WHERE id = :id
    """,
    "UPDATE _source SET first_ts = NULL WHERE session_id = :id",
    f"UPDATE _generation SET closed_at = NULL WHERE id IN ({_GENERATIONS})",  # each is open until it is left again
    "DELETE FROM _digest WHERE session_id = :id",
    "DELETE FROM _occurrence WHERE session_id = :id",
    "DELETE FROM _signal WHERE session_id = :id",
)
_SOME_EVENTS = """
DELETE FROM _event WHERE id IN (SELECT id FROM _event WHERE session_id = ? ORDER BY seq LIMIT ?) RETURNING id
"""


def clear(db: apsw.Connection, row: int, recorded: Recorded, longest: int) -> tuple[SessionRow, Kept]:
    """Take back all that was derived; the row as it is then, and what must be remembered of it."""
    session = session_row.load(db, row)
    facts = rows(
        db,
        "SELECT name, rank, value FROM _fact WHERE session_id = ? AND name IN ('cwd', 'repo', 'domain') ORDER BY name",
        (row,),
    )
    closed = f"SELECT closed_at, id FROM _generation WHERE closed_at IS NOT NULL AND id IN ({_GENERATIONS}) ORDER BY id"
    kept = Kept(
        session.next_seq,
        session.started_at,
        session.ended_at,
        {name: (rank, text) for name, rank, text in facts},
        [(at, id_) for at, id_ in rows(db, closed, {"id": row})],
    )
    recorded.note_places(db, row)
    while ids := [id_ for (id_,) in rows(db, _SOME_EVENTS, (row, UNINDEXED))]:
        evict.unindex(db, ids)
    evict.unindex(db, [], forgotten=[row])  # what the index over digests says of it
    delete = "DELETE FROM _key WHERE hash = ? AND session_id = ?"
    db.executemany(delete, ((hash_, row) for (hash_,) in recorded.hashes(row)))
    for statement in _CLEAR:
        db.execute(statement, {"id": row, "longest": longest, "path_rank": PATH_RANK})
    session = session_row.load(db, row)
    session.next_seq, session.events, session.turns, session.retries = 1, 0, 0, 0
    session.started_at = session.ended_at = session.fork_hash = session.fork_offset = None
    return session, kept


_FINISH = """
UPDATE _session SET refold = 0, analyzed_at = NULL, digested_seq = 0 WHERE id = ?
"""


def finish(db: apsw.Connection, session: SessionRow, kept: Kept, now: str) -> None:
    """Save the row: its numbers are new, it is to be digested from its first event, and no seq is given twice."""
    db.executemany("UPDATE _generation SET closed_at = ? WHERE id = ?", kept.closed)
    session.next_seq = max(session.next_seq, kept.next_seq)
    session.has_news = False  # they are the same old events: when they were stored stays what it is
    session.altered()
    session_row.save(db, session, now)
    db.execute(_FINISH, (session.id,))


_CARRY = """
UPDATE _source SET carry = :carry, adapter_version = :version
 WHERE id = :id AND read_offset <= ifnull((SELECT max(stop) FROM _frame WHERE generation_id = :generation), 0)
"""


def save_carry(db: apsw.Connection, source: Source, generation_id: int, carry: Carry, version: int) -> None:
    """Reading goes on with this, if it was derived from all that was read."""
    bound = {"id": source.id, "generation": generation_id, "carry": orjson.dumps(carry), "version": version}
    db.execute(_CARRY, bound)


def put_back_place(db: apsw.Connection, row: int, kept: Kept) -> None:
    """The repository that a folder belonged to when it was there."""
    for name in ("repo", "domain"):
        if name in kept.place:
            db.execute("INSERT OR REPLACE INTO _fact VALUES (?, ?, ?, ?)", (row, name, *kept.place[name]))
            db.execute(f"UPDATE _session SET {name} = ? WHERE id = ?", (kept.place[name][1], row))


# --- which, and whether -------------------------------------------------------------------------


def choose(db: apsw.Connection, uids: Sequence[str] | None) -> list[tuple[int, str, str]]:
    """(row, uid, flavor) of these sessions, their forks and their sub-agents, or of all; owners before those who copied
    from them, for a copy may raise what its owner spent.
    """
    query = """
    SELECT s.id, s.uid, s.flavor FROM _session AS s
     WHERE :uids IS NULL OR s.uid IN (SELECT value FROM json_each(:uids))
     ORDER BY ifnull((SELECT min(first_ts) FROM _source WHERE session_id = s.id), '~'), s.native_id, s.id
    """
    wanted = None if uids is None else orjson.dumps(_with_children(db, uids)).decode()
    return [(row, uid, flavor) for row, uid, flavor in rows(db, query, {"uids": wanted})]


def _with_children(db: apsw.Connection, uids: Sequence[str]) -> list[str]:
    found = dict.fromkeys(uids)
    parents = list(found)
    while parents:
        query = """
        SELECT session_uid FROM sessions WHERE parent_uid IN (SELECT value FROM json_each(?)) ORDER BY session_uid
        """
        children = [uid for (uid,) in rows(db, query, (orjson.dumps(parents).decode(),))]
        parents = [uid for uid in children if uid not in found]
        found.update(dict.fromkeys(parents))
    return list(found)


_IS_EVICTED = """
SELECT s.evicted_seq > 0 OR EXISTS (
       SELECT 1 FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
        WHERE f.session_id = s.id AND g.evicted_to > 0)
  FROM _session AS s WHERE s.id = ?
"""
# An event of a rewritten file has the length of the version that it was found in.
_OLDER_VERSIONS = """
SELECT 1 FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
  JOIN _event AS e ON e.session_id = f.session_id AND e.generation_id = g.id
 WHERE f.session_id = ? AND f.reader = 'snapshot'
   AND e.length <> ifnull((SELECT max(stop) FROM _frame WHERE generation_id = g.id), -1)
 LIMIT 1
"""


def is_evicted(db: apsw.Connection, row: int) -> bool:
    """Has any part of it left?"""
    return bool(value(db, _IS_EVICTED, (row,)))


def has_older_versions(db: apsw.Connection, row: int) -> bool:
    """Are there events of versions of a rewritten file that came before the archived one?"""
    return value(db, _OLDER_VERSIONS, (row,)) is not None


# As it can be seen: who owns the last copied record, not which of its names; a sum on an event that is there.
_TOLD = (
    """
    SELECT seq, generation_id, start, length, block, ts, kind, role, tool, summary, parent_seq, is_sidechain, is_error,
           is_turn, detail FROM _event WHERE session_id = ? ORDER BY seq
    """,
    """
    SELECT hash, scope, source_id, (SELECT seq FROM _event WHERE session_id = u.session_id AND seq = u.seq), ts, model,
           input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, duration_ms
      FROM _usage AS u WHERE session_id = ? ORDER BY hash, scope
    """,
    "SELECT name, rank, value FROM _fact WHERE session_id = ? ORDER BY name",
    "SELECT seq, path FROM _file WHERE session_id = ? ORDER BY seq, path",
    """
    SELECT s.title, s.cwd, s.repo, s.domain, s.git_branch, s.model, s.task_ref, v.parent_uid, s.started_at, s.ended_at,
           s.events, s.turns, s.retries
      FROM _session AS s JOIN sessions AS v ON v.session_uid = s.uid WHERE s.id = ?
    """,
)


def fingerprint(db: apsw.Connection, row: int) -> bytes:
    """Of all that is derived of a session: the same where nothing has changed."""
    told = blake2b(digest_size=16)
    for query in _TOLD:
        for each in db.execute(query, (row,)):
            told.update(repr(each).encode("utf-8", "backslashreplace"))
    return told.digest()


def live_sources(db: apsw.Connection, row: int) -> list[tuple[Source, list[int]]]:
    """The files of a session, each with its generations in their order."""
    found = []
    for source in sources.of_session(db, row):
        query = "SELECT id FROM _generation WHERE source_id = ? ORDER BY number"
        found.append((source, [id_ for (id_,) in rows(db, query, (source.id,))]))
    return found
