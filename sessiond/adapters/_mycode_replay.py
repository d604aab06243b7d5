"""Which messages mycode would still show the model if the session were resumed now.

Up to 0.7 the last compaction is applied first: its summary stands for all before it as *two* messages (summary and
acknowledgement), and a rewind counts in that list. Later a compaction is *one* message of the list that rewinds
count in, and only what follows the last one that is left goes to the model. Without a compaction both are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def visible(records: Iterable[tuple[int, Mapping[str, Any]]]) -> set[int]:
    """The offsets of those (offset, record) in file order that are left, read as the newest version among them does."""
    before_08: list[int] = []
    since_08: list[int] = []
    compactions: set[int] = set()
    is_old = False
    for offset, record in records:
        role, meta = record.get("role"), record.get("meta")
        meta = meta if isinstance(meta, dict) else {}
        if role == "rewind":
            to = meta.get("rewind_to", 0)
            if isinstance(to, int):
                del before_08[to:], since_08[to:]
            continue
        if role == "compact":
            is_old = "compacted_count" in meta
            before_08 = [offset, offset]
            compactions.add(offset)
        else:
            is_old = is_old and "created_at" not in meta
            before_08.append(offset)
        since_08.append(offset)
    if is_old:
        return set(before_08)
    last = max((at for at, offset in enumerate(since_08) if offset in compactions), default=0)
    return set(since_08[last:])
