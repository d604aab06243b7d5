"""From the records of one file to rows: who owns them, whose children they are, what is still to come.

The rules (design section 3): a record found in several sessions belongs to the session whose file begins first
(first record's time, then native id), in whatever order files are read; in the others it is a replay, which makes no
event and no cost. When the rightful owner comes later, the event changes hands, until the loser was evicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import orjson

from sessiond.model import Role
from sessiond.store import session_row
from sessiond.store.connect import rows, value
from sessiond.store.keys import Named, Names, hash_bytes, hash_of, scope_of
from sessiond.store.usage import UsageRows

if TYPE_CHECKING:
    import apsw

    from sessiond.model import Event, Key, Link, Patch, Usage
    from sessiond.store.session_row import SessionRow
    from sessiond.store.sources import Source

NEVER = "~"  # sorts after every time: a file without one gives way


class Place(NamedTuple):
    """Where a record stands in its file; `hash` is that of its bytes, where a record has no name of its own."""

    offset: int
    length: int
    hash: int | None = None


@dataclass(slots=True)
class Tally:
    """What one chunk came to, for the counters and the search index."""

    events: int = 0
    replays: int = 0
    index: list[tuple[int, str]] = field(default_factory=list)  # event id, its text
    unindex: list[int] = field(default_factory=list)


class Resolver:
    """Resolves the records of one source, inside one transaction. Other sessions it touches are saved by `close`."""

    def __init__(self, db: apsw.Connection, source: Source, session: SessionRow, root: str) -> None:
        if source.id is None or source.generation_id is None:
            raise ValueError("a source is stored before its records are")
        self._db = db
        self._source = source
        self._source_id = source.id
        self._generation_id = source.generation_id
        self._session = session
        self._names = Names(db, root)
        self._usage = UsageRows(db, session.id, root, self._beats)
        self._losers: dict[int, tuple[SessionRow, list[int]]] = {}
        self._orders: dict[int, tuple[str, str]] = {}
        self._counted = (-1, "")  # offset of the last keyless line, and its name
        self.tally = Tally()

    # --- records --------------------------------------------------------------------------------

    def event(self, place: Place, block: int, event: Event) -> None:
        hash_ = self._hash(event.key) if event.key else self._keyless_hash(place, block)
        scope = self._names.scope(event.key) if event.key else 0
        named = self._names.find(hash_)
        mine = Named(hash_, self._session.id, self._source_id, self._session.next_seq, None, scope)
        if named is None:
            self._insert(place, block, event, mine)
        elif named.session_row == self._session.id:
            self._seen_again(place, block, named)
        elif self._beats(named.source_id, named.session_row) and self._take_from(named):
            self._insert(place, block, event, mine)
        else:
            self._replay(place, hash_)

    def link(self, place: Place, link: Link) -> None:
        hash_ = self._hash(link.key)
        target = self._hash(link.parent_key) if link.parent_key else None
        if target == hash_:
            return
        named = self._names.find(hash_)
        if named is not None and named.session_row != self._session.id:
            if not self._beats(named.source_id, named.session_row):
                self._replay(place, hash_, counted=False)
                return
            self._names.remove(named)
            named = None
        if named is None or named.seq is None:
            self._names.add(Named(hash_, self._session.id, self._source_id, None, target, self._names.scope(link.key)))
            self._arrived(hash_)

    def patch(self, patch: Patch) -> None:
        hash_ = self._hash(patch.key)
        fields = {name: getattr(patch, name) for name in _PATCHED if getattr(patch, name) is not None}
        named, missing = self._names.follow(hash_)
        if missing is not None:
            self._wait(missing, None, fields)
        elif named is not None and named.seq is not None and named.session_row == self._session.id:
            self._apply_patch(named.seq, fields)

    def usage(self, usage: Usage) -> None:
        if usage.once is not None:
            hash_ = self._hash(usage.once)
            if self._names.find(hash_) is not None:
                return
            self._names.add(Named(hash_, self._session.id, self._source_id, None, None))
        seq = self._seq_of(usage.event_key)
        for row in self._usage.raise_to(self._hash(usage.key), usage, self._source_id, seq):
            if row == self._session.id:
                self._session.is_changed = True
            else:
                self._loser(row)

    def belongs_to(self, root: str) -> None:
        """The session was joined to a lineage: names are looked up there from now on."""
        self._names.root = self._usage.root = scope_of(root)

    def close(self, now: str) -> None:
        """Leave every session that lost events as if it had never had them."""
        for loser, seqs in self._losers.values():
            if seqs:
                self._db.execute(_ORPHAN, (loser.id, orjson.dumps(seqs).decode()))
                session_row.recompute_times(self._db, loser)
                loser.altered()
            session_row.save(self._db, loser, now)

    # --- one event ------------------------------------------------------------------------------

    def _insert(self, place: Place, block: int, event: Event, named: Named) -> None:
        session = self._session
        if session.is_sidechain:
            event = _aside(event)
        parent_seq, missing = self._parent(event.parent_key)
        session.next_seq += 1
        self._db.execute(
            _INSERT_EVENT,
            (
                session.id,
                named.seq,
                self._generation_id,
                place.offset,
                place.length,
                block,
                event.ts,
                event.kind,
                event.role,
                event.tool,
                event.summary,
                parent_seq,
                event.is_sidechain,
                event.is_error,
                event.is_turn,
                event.detail,
            ),
        )
        event_id = self._db.last_insert_rowid()
        self._names.add(named)
        if missing is not None:
            self._wait(missing, named.seq, None)
        for path in event.files:
            self._db.execute(_EDITED, (session.id, named.seq, path))
        session.count(event.kind, 1, is_turn=event.is_turn)
        session.cover(event.ts)
        session.has_news = True
        self.tally.events += 1
        if event.text:
            self.tally.index.append((event_id, event.text))
        self._arrived(named.hash)

    def _seen_again(self, place: Place, block: int, named: Named) -> None:
        """A record re-seen in a new generation is moved there; one in another live file of the session stays."""
        if named.seq is None:
            return
        bound = {
            "session": self._session.id,
            "seq": named.seq,
            "generation": self._generation_id,
            "start": place.offset,
            "length": place.length,
            "block": block,
            "source": self._source_id,
        }
        self._db.execute(_MOVE_EVENT, bound)
        if self._db.changes():
            self._session.altered(named.seq)

    def _take_from(self, named: Named) -> bool:
        """Take the event away from the session that has it; False where that is frozen."""
        loser, seqs = self._loser(named.session_row)
        if loser.evicted_seq:
            return False
        if named.seq is not None:
            gone = rows(self._db, _DELETE_EVENT, (loser.id, named.seq))
            if not gone:
                return False
            ((event_id, start, kind, is_turn),) = gone
            self.tally.unindex.append(event_id)
            loser.count(kind, -1, is_turn=bool(is_turn))
            loser.mark_fork(named.hash, start)
            seqs.append(named.seq)
            self._db.execute("DELETE FROM _file WHERE session_id = ? AND seq = ?", (loser.id, named.seq))
        self._names.remove(named)
        return True

    def _replay(self, place: Place, hash_: int, *, counted: bool = True) -> None:
        self.tally.replays += counted
        if self._source.role == "main":
            self._session.mark_fork(hash_, place.offset)

    # --- names ----------------------------------------------------------------------------------

    def _hash(self, key: Key) -> int:
        return hash_of(key, self._session.uid)

    def _keyless_hash(self, place: Place, block: int) -> int:
        """A record without a name is known by its bytes and by how many equal lines came before it."""
        if self._counted[0] != place.offset:
            number = value(self._db, _COUNT_LINE, (self._generation_id, place.hash))
            self._counted = (place.offset, f"{self._source_id}\0{place.hash}\0{number}")
        return hash_bytes(f"{self._counted[1]}\0{block}".encode())

    def _parent(self, key: Key | None) -> tuple[int | None, int | None]:
        """The parent's seq, or the name to wait for. A parent in another session is no parent here."""
        if key is None:
            return None, None
        named, missing = self._names.follow(self._hash(key))
        if named is None or named.session_row != self._session.id:
            return None, missing
        return named.seq, None

    def _seq_of(self, key: Key | None) -> int | None:
        return self._parent(key)[0]

    def _wait(self, hash_: int, seq: int | None, fields: dict[str, object] | None) -> None:
        patch = None if fields is None else orjson.dumps(fields).decode()
        self._db.execute(
            "INSERT INTO _waiting (hash, session_id, seq, patch) VALUES (?, ?, ?, ?)",
            (hash_, self._session.id, seq, patch),
        )

    def _arrived(self, hash_: int) -> None:
        """A name is known now: whoever waited for it in this session goes on from here."""
        query = "DELETE FROM _waiting WHERE hash = ? AND session_id = ? RETURNING seq, patch"
        for seq, patch in rows(self._db, query, (hash_, self._session.id)):
            named, missing = self._names.follow(hash_)
            if missing is not None:
                self._wait(missing, seq, None if patch is None else orjson.loads(patch))
            elif named is None or named.seq is None or named.session_row != self._session.id:
                continue
            elif patch is not None:
                self._apply_patch(named.seq, orjson.loads(patch))
            elif seq != named.seq:
                self._db.execute(
                    "UPDATE _event SET parent_seq = ? WHERE session_id = ? AND seq = ?",
                    (named.seq, self._session.id, seq),
                )
                self._session.altered(seq)

    def _apply_patch(self, seq: int, fields: dict[str, object]) -> None:
        fields = dict(fields)
        text, detail = fields.pop("text", None), fields.pop("detail", None)
        if isinstance(ts := fields.get("ts"), str):
            self._session.cover(ts)
        if "kind" in fields:
            query = "SELECT kind FROM _event WHERE session_id = ? AND seq = ?"
            for (old,) in rows(self._db, query, (self._session.id, seq)):
                self._session.retries += (fields["kind"] == "retry") - (old == "retry")
        for name, new in fields.items():
            query = f"UPDATE _event SET {name} = ? WHERE session_id = ? AND seq = ?"
            self._db.execute(query, (new, self._session.id, seq))
        if text is not None:
            query = "SELECT id FROM _event WHERE session_id = ? AND seq = ?"
            for (event_id,) in rows(self._db, query, (self._session.id, seq)):
                self.tally.unindex.append(event_id)
                self.tally.index.append((event_id, str(text)))
            self._db.execute(_DETAIL, (detail, self._session.id, seq))
        self._session.altered(seq)

    # --- owners ---------------------------------------------------------------------------------

    def _beats(self, source_id: int, owner_row: int) -> bool:
        mine = (self._source.first_ts or NEVER, self._session.native_id)
        return mine < self._order(source_id, owner_row)

    def _order(self, source_id: int, owner_row: int) -> tuple[str, str]:
        if source_id not in self._orders:
            query = """
            SELECT ifnull(f.first_ts, :never), s.native_id FROM _source AS f JOIN _session AS s ON s.id = :owner
             WHERE f.id = :source
            """
            bound = {"never": NEVER, "owner": owner_row, "source": source_id}
            first_ts, native_id = rows(self._db, query, bound)[0]
            self._orders[source_id] = (first_ts, native_id)
        return self._orders[source_id]

    def _loser(self, row: int) -> tuple[SessionRow, list[int]]:
        if row not in self._losers:
            self._losers[row] = (session_row.load(self._db, row), [])
        return self._losers[row]


def _aside(event: Event) -> Event:
    """An event of a sub-agent's own session. No person speaks there."""
    role = Role.AGENT if event.is_turn and event.role == Role.USER else event.role
    return replace(event, is_sidechain=True, is_turn=False, role=role)


_PATCHED = ("kind", "ts", "role", "tool", "summary", "text", "is_error", "detail")

_INSERT_EVENT = """
INSERT INTO _event (session_id, seq, generation_id, start, length, block, ts, kind, role, tool, summary, parent_seq,
                    is_sidechain, is_error, is_turn, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_MOVE_EVENT = """
UPDATE _event SET generation_id = :generation, start = :start, length = :length, block = :block
 WHERE session_id = :session AND seq = :seq AND generation_id <> :generation
   AND generation_id IN (SELECT id FROM _generation
                          WHERE id = _event.generation_id AND (source_id = :source OR closed_at IS NOT NULL))
"""
_ORPHAN = """
UPDATE _event SET parent_seq = NULL WHERE session_id = ? AND parent_seq IN (SELECT value FROM json_each(?))
"""
_DETAIL = """
UPDATE _event SET detail = ? WHERE session_id = ? AND seq = ?
   AND (is_error OR is_turn OR kind IN ('error', 'assistant_msg'))
"""
_DELETE_EVENT = "DELETE FROM _event WHERE session_id = ? AND seq = ? RETURNING id, start, kind, is_turn"
_COUNT_LINE = """
INSERT INTO _line_count VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET lines = lines + 1 RETURNING lines
"""
_EDITED = "INSERT OR IGNORE INTO _file (session_id, seq, path) VALUES (?, ?, ?)"
