"""Is this still the file that was read before? And how far: the checkpoint.

A file is the same when device, inode, head hash and the hash just before the cursor all agree. One that was replaced
or moved goes on at the cursor only if it begins with all the bytes read so far, which `checksum` knows.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from sessiond.model import Checkpoint

if TYPE_CHECKING:
    import os

    from sessiond.intake.content import Content

HEAD_BYTES = 1024
MARKER_BYTES = 256
WHOLE_BYTES = 64 * 2**20  # what is compared to its last byte: a tenth of a second, in which nothing else is read
_STEP = 2**20


def why_new(content: Content, stat: os.stat_result, checkpoint: Checkpoint, *, whole: bool = False) -> str | None:
    """Why what lies there now is a new generation; None when reading goes on at the checkpoint.

    An edit in place between head and marker is only seen where all bytes are compared: `whole`.
    """
    if checkpoint.offset == 0:
        return None
    if content.size is not None and content.size < checkpoint.offset:
        return "truncated"
    if _hash(content.read_at(0, checkpoint.head_bytes)) != checkpoint.head:
        return "rewritten"
    start = max(0, checkpoint.offset - MARKER_BYTES)
    before = content.read_at(start, checkpoint.offset - start)
    if len(before) != checkpoint.offset - start or _hash(before) != checkpoint.marker:
        return "rewritten"
    is_same_inode = (stat.st_dev, stat.st_ino) == (checkpoint.device, checkpoint.inode)
    if not is_same_inode and not begins_alike(content, checkpoint):
        return "replaced"
    if whole and is_same_inode and checkpoint.offset <= WHOLE_BYTES and not begins_alike(content, checkpoint):
        return "rewritten"
    return None


def begins_alike(content: Content, checkpoint: Checkpoint) -> bool:
    """True when the content begins with all the bytes that were read before."""
    checksum, at = 0, 0
    while at < checkpoint.offset:
        data = content.read_at(at, min(_STEP, checkpoint.offset - at))
        if not data:
            return False
        checksum = running(checksum, data)
        at += len(data)
    return checksum == checkpoint.checksum


def advanced(checkpoint: Checkpoint, content: Content, stat: os.stat_result, consumed: bytes) -> Checkpoint:
    """The checkpoint after these bytes, which begin where the old one stands."""
    offset = checkpoint.offset + len(consumed)
    head, head_bytes = checkpoint.head, checkpoint.head_bytes
    if head_bytes < HEAD_BYTES and consumed:
        head_bytes = min(HEAD_BYTES, offset)
        head = _hash(consumed[:head_bytes] if checkpoint.offset == 0 else content.read_at(0, head_bytes))
    marker = checkpoint.marker
    if consumed:
        before = consumed[-MARKER_BYTES:]
        if len(before) < min(MARKER_BYTES, offset):
            start = max(0, offset - MARKER_BYTES)
            before = content.read_at(start, offset - start)
        marker = _hash(before)
    return replace(
        checkpoint,
        device=stat.st_dev,
        inode=stat.st_ino,
        offset=offset,
        head=head,
        head_bytes=head_bytes,
        marker=marker,
        checksum=running(checkpoint.checksum, consumed),
    )


def checkpoint_before(content: Content, stat: os.stat_result, offset: int) -> Checkpoint:
    """The checkpoint of a file whose complete lines before `offset` count as read."""
    at, rest = Checkpoint(), b""
    while at.offset + len(rest) < offset:
        data = content.read_at(at.offset + len(rest), min(_STEP, offset - at.offset - len(rest)))
        if not data:
            break
        lines = rest + data
        end = lines.rfind(b"\n") + 1
        if end:
            at = advanced(at, content, stat, lines[:end])
        rest = lines[end:]
    return at


def running(checksum: int, data: bytes) -> int:
    """A 64-bit checksum that does not care how the bytes were cut: CRC-32 and Adler-32, side by side."""
    # Adler-32 begins at 1; kept with its last bit turned, so that 0 is the checksum of nothing.
    crc, adler = checksum >> 32, (checksum & 0xFFFFFFFF) ^ 1
    return zlib.crc32(data, crc) << 32 | (zlib.adler32(data, adler) ^ 1)


def whole_hash(data: bytes) -> bytes:
    return _hash(data)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()
