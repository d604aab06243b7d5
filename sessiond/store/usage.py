"""What responses spent: one row per key with the maximum of each number, owned like any other record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.store.connect import rows, value
from sessiond.store.keys import scope_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from sessiond.model import Usage

_NUMBERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "duration_ms",
)

_FIND = """
SELECT session_id, source_id, seq, scope, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
       reasoning_tokens, duration_ms
  FROM _usage WHERE hash = ? AND scope IN (0, ?)
"""
_INSERT = """
INSERT INTO _usage (hash, session_id, source_id, scope, seq, ts, model, input_tokens, output_tokens,
                    cache_read_tokens, cache_write_tokens, reasoning_tokens, duration_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_RAISE = """
UPDATE _usage SET seq = ifnull(seq, :seq), input_tokens = :input_tokens, output_tokens = :output_tokens,
       cache_read_tokens = :cache_read_tokens, cache_write_tokens = :cache_write_tokens,
       reasoning_tokens = :reasoning_tokens, duration_ms = :duration_ms
 WHERE hash = :hash AND scope = :scope
"""
_TAKE = """
UPDATE _usage SET session_id = :session, source_id = :source, seq = :seq, ts = :ts, model = :model
 WHERE hash = :hash AND scope = :scope
"""


class UsageRows:
    """The table as one session sees it."""

    def __init__(self, db: apsw.Connection, session_row: int, root: str, beats: Callable[[int, int], bool]) -> None:
        self._db = db
        self._session_row = session_row
        self.root = scope_of(root)
        self._beats = beats

    def raise_to(self, hash_: int, usage: Usage, source_id: int, seq: int | None) -> set[int]:
        """Have at least these numbers under this key. Returns the sessions whose cost is different now."""
        new = [getattr(usage, name) for name in _NUMBERS]
        found = self._find(hash_)
        if found is None:
            scope = self.root if usage.key[0] == "l" else 0
            head = (hash_, self._session_row, source_id, scope, seq, usage.ts, usage.model)
            self._db.execute(_INSERT, (*head, *new))
            return {self._session_row}
        owner, owner_source, owner_seq, scope, old = found
        highest = [_higher(a, b) for a, b in zip(old, new, strict=True)]
        is_mine = owner == self._session_row
        changed = highest != old or (is_mine and owner_seq is None and seq is not None)
        if changed:
            bound: dict[str, Any] = dict(zip(_NUMBERS, highest, strict=True))
            bound.update(hash=hash_, scope=scope, seq=seq if is_mine else None)
            self._db.execute(_RAISE, bound)
        if is_mine or not self._beats(owner_source, owner) or self._is_frozen(owner):
            return {owner} if changed else set()
        bound = {"session": self._session_row, "source": source_id, "seq": seq, "ts": usage.ts, "model": usage.model}
        self._db.execute(_TAKE, {**bound, "hash": hash_, "scope": scope})
        return {owner, self._session_row}

    def _find(self, hash_: int) -> tuple[int, int, int | None, int, list[int | None]] | None:
        for session_row, source_id, seq, scope, *numbers in rows(self._db, _FIND, (hash_, self.root)):
            return session_row, source_id, seq, scope, numbers
        return None

    def _is_frozen(self, owner: int) -> bool:
        query = "SELECT evicted_seq > 0 FROM _session WHERE id = ?"
        return bool(value(self._db, query, (owner,)))


def _higher(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)
