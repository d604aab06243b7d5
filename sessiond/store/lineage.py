"""Sessions joined by fork or parent ids, the parent present or not. One that is in no row is its own root.

A fork of a fork may be read before the session in the middle: then two lineages that already hold the same records
become one, and what stands twice is settled as if it had been read in the right order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.store import session_row
from sessiond.store.connect import rows, value
from sessiond.store.keys import root_of

if TYPE_CHECKING:
    import apsw

_TWICE = """
SELECT k.hash, k.session_id, k.seq, ifnull(f.first_ts, '~'), s.native_id,
       o.session_id, o.seq, ifnull(g.first_ts, '~'), t.native_id
  FROM _key AS k
  JOIN _session AS s ON s.id = k.session_id JOIN _lineage AS l ON l.uid = s.uid JOIN _source AS f ON f.id = k.source_id
  JOIN _key AS o ON o.hash = k.hash AND o.session_id <> k.session_id AND o.is_lineage
  JOIN _session AS t ON t.id = o.session_id JOIN _lineage AS m ON m.uid = t.uid JOIN _source AS g ON g.id = o.source_id
 WHERE k.is_lineage AND l.root = :root AND m.root = :other
 ORDER BY k.hash
"""
_SPENT_TWICE = """
SELECT u.hash, u.session_id, ifnull(f.first_ts, '~'), s.native_id, o.session_id, ifnull(g.first_ts, '~'), t.native_id
  FROM _usage AS u
  JOIN _session AS s ON s.id = u.session_id JOIN _lineage AS l ON l.uid = s.uid JOIN _source AS f ON f.id = u.source_id
  JOIN _usage AS o ON o.hash = u.hash AND o.session_id <> u.session_id AND o.is_lineage
  JOIN _session AS t ON t.id = o.session_id JOIN _lineage AS m ON m.uid = t.uid JOIN _source AS g ON g.id = o.source_id
 WHERE u.is_lineage AND l.root = :root AND m.root = :other
 ORDER BY u.hash
"""
_KEEP_HIGHEST = """
UPDATE _usage AS u
   SET input_tokens = max(ifnull(u.input_tokens, o.input_tokens), ifnull(o.input_tokens, u.input_tokens)),
       output_tokens = max(ifnull(u.output_tokens, o.output_tokens), ifnull(o.output_tokens, u.output_tokens)),
       duration_ms = max(ifnull(u.duration_ms, o.duration_ms), ifnull(o.duration_ms, u.duration_ms))
  FROM _usage AS o
 WHERE u.hash = :hash AND u.session_id = :winner AND o.hash = :hash AND o.session_id = :loser
"""
_RECOUNT = """
UPDATE _session
   SET (events, turns, retries, started_at, ended_at) =
       (SELECT count(*), ifnull(sum(is_turn), 0), ifnull(sum(kind = 'retry'), 0), min(ts), max(ts)
          FROM _event WHERE session_id = :id),
       refold = 1, analyzed_at = NULL, revision = :revision
 WHERE id = :id
"""


def join(db: apsw.Connection, uid: str, parent: str) -> list[int]:
    """From now on these two are of one lineage, and so is everyone who is of either.

    Returns the ids of events that stood twice and are gone, for the search index to forget.
    """
    root, other = root_of(db, parent), root_of(db, uid)
    for member, its_root in ((parent, root), (uid, other)):
        db.execute("INSERT OR IGNORE INTO _lineage VALUES (?, ?)", (member, its_root))
    if root == other:
        return []
    gone = _settle(db, root, other)
    db.execute("UPDATE _lineage SET root = ? WHERE root = ?", (root, other))
    return gone


def _settle(db: apsw.Connection, root: str, other: str) -> list[int]:
    bound = {"root": root, "other": other}
    gone: list[int] = []
    losers: set[int] = set()
    for hash_, a, a_seq, a_ts, a_id, b, b_seq, b_ts, b_id in rows(db, _TWICE, bound):
        loser, seq = (b, b_seq) if (a_ts, a_id) < (b_ts, b_id) else (a, a_seq)
        if _is_evicted(db, loser):
            continue
        losers.add(loser)
        db.execute("DELETE FROM _key WHERE hash = ? AND session_id = ?", (hash_, loser))
        if seq is not None:
            gone += _remove_event(db, loser, seq, hash_)
    for hash_, a, a_ts, a_id, b, b_ts, b_id in rows(db, _SPENT_TWICE, bound):
        winner, loser = (a, b) if (a_ts, a_id) < (b_ts, b_id) else (b, a)
        if _is_evicted(db, loser):
            continue
        losers.add(loser)
        db.execute(_KEEP_HIGHEST, {"hash": hash_, "winner": winner, "loser": loser})
        db.execute("DELETE FROM _usage WHERE hash = ? AND session_id = ?", (hash_, loser))
    for loser in sorted(losers):
        db.execute(_RECOUNT, {"id": loser, "revision": session_row.next_revision(db)})
    return gone


def _remove_event(db: apsw.Connection, row: int, seq: int, hash_: int) -> list[int]:
    query = "DELETE FROM _event WHERE session_id = ? AND seq = ? RETURNING id, start"
    removed = rows(db, query, (row, seq))
    for _, start in removed:
        db.execute("UPDATE _event SET parent_seq = NULL WHERE session_id = ? AND parent_seq = ?", (row, seq))
        mark = "UPDATE _session SET fork_hash = ?, fork_offset = ? WHERE id = ? AND ifnull(fork_offset, -1) <= ?"
        db.execute(mark, (hash_, start, row, start))
    return [id_ for id_, _ in removed]


def _is_evicted(db: apsw.Connection, row: int) -> bool:
    query = "SELECT evicted_at IS NOT NULL FROM _session WHERE id = ?"
    return bool(value(db, query, (row,)))
