"""The second reader, for files that are rewritten whole (a state.json): same chunk type, one line, latest version."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from sessiond.intake import identity
from sessiond.intake.content import Plain
from sessiond.intake.opened import opened
from sessiond.model import Checkpoint, Chunk, Line, Reject

if TYPE_CHECKING:
    from sessiond.intake.tail import Limits


def read(path: str, depth: int, checkpoint: Checkpoint, limits: Limits) -> Chunk:
    """The file as it is now, as one line; no line when it is what was read before.

    A version caught half-written is read like any other: it will be no JSON, be rejected, and be replaced by the next.
    """
    with opened(path, depth) as fd:
        stat = os.fstat(fd)
        data = Plain(fd, stat.st_size).read_at(0, limits.line + 1)
    hash_ = identity.whole_hash(data)
    at = replace(checkpoint, device=stat.st_dev, inode=stat.st_ino, offset=len(data), head=hash_, head_bytes=len(data))
    chunk = Chunk(
        start=0,
        data=b"",
        lines=[],
        checkpoint=at,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        snapshot=True,
    )
    if len(data) > limits.line:
        return replace(chunk, rejects=[Reject(0, stat.st_size, "too_long", hash_)], dropped=len(data))
    if not data.strip(b"\0 \t\r\n"):
        return replace(chunk, data=data)
    return replace(chunk, data=data, lines=[Line(0, data)])


def is_unchanged(chunk: Chunk, checkpoint: Checkpoint) -> bool:
    """True when this version is the one that was read before: there is nothing to store but the stat facts."""
    return (chunk.checkpoint.head, chunk.checkpoint.offset) == (checkpoint.head, checkpoint.offset)
