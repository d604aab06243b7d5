"""Names and whom they lead to: the one table through which parents, patches and replays are found.

A name is kept as a 64-bit hash. A row either is an event (`seq`) or leads to another name (`target`): a record that
made no event leads to its nearest ancestor, an alias to its event. Following names rather than numbers keeps a
chain right when the event at its end changes hands.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    import apsw

    from sessiond.model import Key

MAX_HOPS = 64  # a name leads to its end in one or two steps; a loop in an agent's file must end too


class Named(NamedTuple):
    hash: int
    session_row: int
    source_id: int
    seq: int | None
    target: int | None
    scope: int = 0  # of a lineage name: the hash of its root; else 0


def hash_of(key: Key, uid: str) -> int:
    """A session's own names differ from those of every other session; global and lineage names do not."""
    text = f"{uid}\0{key}" if key[0] == "s" else key
    return hash_bytes(text.encode("utf-8", "replace"))


def hash_bytes(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def scope_of(root: str) -> int:
    """Where the names of a lineage stand, by the uid of its root."""
    return hash_bytes(root.encode("utf-8", "replace")) or 1


class Names:
    """The table as one session sees it: its own rows, global ones, and those of its lineage."""

    def __init__(self, db: apsw.Connection, root: str) -> None:
        self._db = db
        self.root = scope_of(root)

    def scope(self, key: Key) -> int:
        return self.root if key[0] == "l" else 0

    def find(self, hash_: int) -> Named | None:
        query = "SELECT hash, session_id, source_id, seq, target, scope FROM _key WHERE hash = ? AND scope IN (0, ?)"
        for row in rows(self._db, query, (hash_, self.root)):
            return Named(*row)
        return None

    def add(self, named: Named) -> None:
        self._db.execute("INSERT OR REPLACE INTO _key VALUES (?, ?, ?, ?, ?, ?)", named)

    def remove(self, named: Named) -> None:
        self._db.execute("DELETE FROM _key WHERE hash = ? AND scope = ?", (named.hash, named.scope))

    def follow(self, hash_: int) -> tuple[Named | None, int | None]:
        """The event that a name leads to, and the name that it broke off at where it has not come yet."""
        for _ in range(MAX_HOPS):
            named = self.find(hash_)
            if named is None:
                return None, hash_
            if named.seq is not None or named.target is None:
                return named, None
            hash_ = named.target
        return None, None


def root_of(db: apsw.Connection, uid: str) -> str:
    return value(db, "SELECT root FROM _lineage WHERE uid = ?", (uid,)) or uid
