"""A session's row while a transaction works on it: loaded once, changed in memory, saved with a new revision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    import apsw

    from sessiond.store.sources import Source

TO_REFOLD, BEYOND_REFOLD = 1, 2

_LOAD = """
SELECT id, uid, native_id, next_seq, events, turns, retries, started_at, ended_at, fork_hash, fork_offset,
       digested_seq, evicted_seq, refold, alterations, is_sidechain
  FROM _session WHERE id = ?
"""
_SAVE = """
UPDATE _session
   SET next_seq = :next_seq, events = :events, turns = :turns, retries = :retries, started_at = :started_at,
       ended_at = :ended_at, fork_hash = :fork_hash, fork_offset = :fork_offset, refold = :refold,
       alterations = :alterations, stale_since = ifnull(stale_since, :now),
       stored_at = iif(:has_news, :now, stored_at), ingested_at = iif(:has_news, :now, ingested_at),
       analyzed_at = iif(:has_news OR :refold, NULL, analyzed_at), evicted_at = iif(:has_news, NULL, evicted_at),
       outcome = iif(:has_news AND outcome_basis IS NOT 'stated', 'unknown', outcome),
       outcome_reason = iif(:has_news AND outcome_basis IS NOT 'stated', NULL, outcome_reason),
       outcome_basis = iif(:has_news AND outcome_basis IS NOT 'stated', NULL, outcome_basis),
       source_gone_at = iif(:has_source, NULL, source_gone_at), revision = :revision
 WHERE id = :id
"""


_ASIDE = """
UPDATE _event SET is_sidechain = 1, role = iif(is_turn AND role = 'user', 'agent', role), is_turn = 0
 WHERE session_id = ?
"""


@dataclass(slots=True)
class SessionRow:
    id: int
    uid: str
    native_id: str
    next_seq: int
    events: int
    turns: int
    retries: int
    started_at: str | None
    ended_at: str | None
    fork_hash: int | None
    fork_offset: int | None
    digested_seq: int  # its digest speaks through this event
    evicted_seq: int  # events up to this one have left: what they were is frozen
    refold: int  # TO_REFOLD: something that the digest speaks of changed; BEYOND_REFOLD: in the part that has left
    alterations: int  # changes of stored events: a fold that read them before is void
    is_sidechain: int  # all of it: what is said to it is said by an agent
    is_changed: bool = False  # anything that a reader could see
    has_news: bool = False  # new events: the watermarks go back
    has_source: bool = False  # one of its files was read just now

    def count(self, kind: str, by: int, *, is_turn: bool) -> None:
        self.events += by
        self.turns += by * is_turn
        self.retries += by * (kind == "retry")
        self.is_changed = True

    def altered(self, seq: int = 0) -> None:
        """A stored event changed, moved or left; 0: any of them may have."""
        self.alterations += 1
        self.is_changed = True
        if self.evicted_seq and seq <= self.evicted_seq:
            self.refold = BEYOND_REFOLD
        elif seq <= self.digested_seq:
            self.refold = max(self.refold, TO_REFOLD)

    def cover(self, ts: str | None) -> None:
        """Its times are those of its own events."""
        if ts is None:
            return
        self.started_at = ts if self.started_at is None else min(self.started_at, ts)
        self.ended_at = ts if self.ended_at is None else max(self.ended_at, ts)

    def cover_stated(self, name: str, ts: str) -> None:
        """The agent itself says when it began, or was active last: before its first event, or after its last."""
        if name == "started_at":
            self.started_at = ts if self.started_at is None else min(self.started_at, ts)
        else:
            self.ended_at = ts if self.ended_at is None else max(self.ended_at, ts)

    def mark_fork(self, hash_: int, offset: int) -> None:
        """Remember the last record of the file that is somebody else's: its owner is the parent."""
        if self.fork_offset is None or offset >= self.fork_offset:
            self.fork_hash, self.fork_offset = hash_, offset
            self.is_changed = True


def find_or_make(db: apsw.Connection, source: Source, now: str) -> int:
    """The row of this source's session; made, as discovered now, if there is none."""
    found = value(db, "SELECT id FROM _session WHERE uid = ?", (source.uid,))
    if found is not None:
        if source.is_sidechain:
            _make_sidechain(db, int(found))
        return int(found)
    made = value(
        db,
        "INSERT INTO _session (uid, flavor, native_id, is_sidechain, discovered_at, revision)"
        " VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
        (source.uid, source.flavor, source.session_id, source.is_sidechain, now, next_revision(db)),
    )
    return int(made)


def _make_sidechain(db: apsw.Connection, row: int) -> None:
    """It turns out to be a sub-agent: another file of it may say so, after its events were stored."""
    query = "UPDATE _session SET is_sidechain = 1, turns = 0 WHERE id = ? AND NOT is_sidechain"
    db.execute(query, (row,))
    if db.changes():
        db.execute(_ASIDE, (row,))
        touch(db, row)


def load(db: apsw.Connection, row: int) -> SessionRow:
    return SessionRow(*rows(db, _LOAD, (row,))[0])


def save(db: apsw.Connection, session: SessionRow, now: str) -> None:
    bound = {
        "id": session.id,
        "next_seq": session.next_seq,
        "events": session.events,
        "turns": session.turns,
        "retries": session.retries,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "fork_hash": session.fork_hash,
        "fork_offset": session.fork_offset,
        "refold": session.refold,
        "alterations": session.alterations,
        "has_news": session.has_news,
        "has_source": session.has_source,
        "now": now,
        "revision": next_revision(db),
    }
    db.execute(_SAVE, bound)


_TOUCH = """
UPDATE _session
   SET refold = iif(evicted_seq > 0, 2, max(refold, 1)), alterations = alterations + 1, analyzed_at = NULL,
       revision = :revision, stale_since = ifnull(stale_since, stored_at)
 WHERE id = :id
"""


def touch(db: apsw.Connection, row: int) -> None:
    """Stored events of this session changed, and not through its loaded row: it is to be digested again."""
    db.execute(_TOUCH, {"id": row, "revision": next_revision(db)})


def recompute_times(db: apsw.Connection, session: SessionRow) -> None:
    """After events left: what remains says when it began and ended."""
    query = "SELECT min(ts), max(ts) FROM _event WHERE session_id = ?"
    session.started_at, session.ended_at = rows(db, query, (session.id,))[0]
    query = "SELECT name, value FROM _fact WHERE session_id = ? AND name IN ('started_at', 'ended_at') ORDER BY name"
    for name, ts in rows(db, query, (session.id,)):
        session.cover_stated(name, ts)


def next_revision(db: apsw.Connection) -> int:
    """One counter over the whole store: `changes(after)` can never miss a session."""
    query = "UPDATE _meta SET value = CAST(value AS INTEGER) + 1 WHERE name = 'revision' RETURNING value"
    return int(value(db, query))
