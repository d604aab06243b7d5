"""Sessions joined by fork or parent ids, the parent present or not. One that is in no row is its own root.

A fork of a fork may be read before the session in the middle: then two lineages that already hold the same records
become one, and what stands twice is settled as if it had been read in the right order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.store import session_row
from sessiond.store.connect import rows, value
from sessiond.store.keys import root_of, scope_of

if TYPE_CHECKING:
    import apsw

_TWICE = """
SELECT k.hash, k.session_id, k.seq, ifnull(f.first_ts, '~'), s.native_id,
       o.session_id, o.seq, ifnull(g.first_ts, '~'), t.native_id
  FROM _key AS k JOIN _session AS s ON s.id = k.session_id JOIN _source AS f ON f.id = k.source_id
  JOIN _key AS o ON o.hash = k.hash AND o.scope = :root
  JOIN _session AS t ON t.id = o.session_id JOIN _source AS g ON g.id = o.source_id
 WHERE k.scope = :other AND k.scope <> 0
 ORDER BY k.hash
"""
_SPENT_TWICE = """
SELECT u.hash, u.session_id, ifnull(f.first_ts, '~'), s.native_id, o.session_id, ifnull(g.first_ts, '~'), t.native_id
  FROM _usage AS u JOIN _session AS s ON s.id = u.session_id JOIN _source AS f ON f.id = u.source_id
  JOIN _usage AS o ON o.hash = u.hash AND o.scope = :root
  JOIN _session AS t ON t.id = o.session_id JOIN _source AS g ON g.id = o.source_id
 WHERE u.scope = :other AND u.scope <> 0
 ORDER BY u.hash
"""
_KEEP_HIGHEST = """
UPDATE _usage AS u
   SET input_tokens = max(ifnull(u.input_tokens, o.input_tokens), ifnull(o.input_tokens, u.input_tokens)),
       output_tokens = max(ifnull(u.output_tokens, o.output_tokens), ifnull(o.output_tokens, u.output_tokens)),
       cache_read_tokens = max(ifnull(u.cache_read_tokens, o.cache_read_tokens),
                               ifnull(o.cache_read_tokens, u.cache_read_tokens)),
       cache_write_tokens = max(ifnull(u.cache_write_tokens, o.cache_write_tokens),
                                ifnull(o.cache_write_tokens, u.cache_write_tokens)),
       reasoning_tokens = max(ifnull(u.reasoning_tokens, o.reasoning_tokens),
                              ifnull(o.reasoning_tokens, u.reasoning_tokens)),
       duration_ms = max(ifnull(u.duration_ms, o.duration_ms), ifnull(o.duration_ms, u.duration_ms))
  FROM _usage AS o
 WHERE u.hash = :hash AND u.scope = :kept AND o.hash = :hash AND o.scope = :dropped
"""
_RECOUNT = """
UPDATE _session
   SET (events, turns, retries, started_at, ended_at) =
       (SELECT count(*), ifnull(sum(is_turn), 0), ifnull(sum(kind = 'retry'), 0), min(ts), max(ts)
          FROM _event WHERE session_id = :id)
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
    scopes = {"root": scope_of(root), "other": scope_of(other)}
    gone = _settle(db, scopes)
    db.execute("UPDATE _lineage SET root = ? WHERE root = ?", (root, other))
    db.execute("UPDATE _key SET scope = :root WHERE scope = :other AND scope <> 0", scopes)
    db.execute("UPDATE _usage SET scope = :root WHERE scope = :other AND scope <> 0", scopes)
    return gone


def _settle(db: apsw.Connection, scopes: dict[str, int]) -> list[int]:
    root, other = scopes["root"], scopes["other"]
    gone: list[int] = []
    losers: set[int] = set()
    for hash_, a, a_seq, a_ts, a_id, b, b_seq, b_ts, b_id in rows(db, _TWICE, scopes):
        loser, seq, scope = (b, b_seq, root) if (a_ts, a_id) < (b_ts, b_id) else (a, a_seq, other)
        if _is_evicted(db, loser):  # frozen: what it has it keeps
            scope, seq = (other, None) if scope == root else (root, None)
        else:
            losers.add(loser)
        db.execute("DELETE FROM _key WHERE hash = ? AND scope = ?", (hash_, scope))
        if seq is not None:
            gone += _remove_event(db, loser, seq)
    for hash_, a, a_ts, a_id, b, b_ts, b_id in rows(db, _SPENT_TWICE, scopes):
        loser, kept, dropped = (b, other, root) if (a_ts, a_id) < (b_ts, b_id) else (a, root, other)
        if _is_evicted(db, loser):
            kept, dropped = dropped, kept
        else:
            losers.add(loser)
        db.execute(_KEEP_HIGHEST, {"hash": hash_, "kept": kept, "dropped": dropped})
        db.execute("DELETE FROM _usage WHERE hash = ? AND scope = ?", (hash_, dropped))
    for loser in sorted(losers):
        db.execute(_RECOUNT, {"id": loser})
        session_row.touch(db, loser)
    return gone


def _remove_event(db: apsw.Connection, row: int, seq: int) -> list[int]:
    removed = rows(db, "DELETE FROM _event WHERE session_id = ? AND seq = ? RETURNING id", (row, seq))
    if removed:
        db.execute("DELETE FROM _file WHERE session_id = ? AND seq = ?", (row, seq))
        db.execute("UPDATE _event SET parent_seq = NULL WHERE session_id = ? AND parent_seq = ?", (row, seq))
    return [id_ for (id_,) in removed]


def _is_evicted(db: apsw.Connection, row: int) -> bool:
    query = "SELECT evicted_seq > 0 FROM _session WHERE id = ?"
    return bool(value(db, query, (row,)))
