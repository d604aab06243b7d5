"""The bytes as they were read: compressed frames in, exact bytes out.

A frame covers [start, stop) of one generation of a file. Frames of a generation neither overlap nor leave gaps, so
a record is found by its offset alone. A run of NUL bytes is a frame without data, and so is the part of a line
that was too long to keep (`dropped`: its length is known, its bytes are not).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sessiond.store.connect import rows

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from sessiond.model import Chunk

FRAME_BYTES = 2**20
ZSTD, ZEROS, DROPPED = "zstd", "zeros", "dropped"

Frame = tuple[int, int, str, bytes]  # start, stop, codec, data


class Missing(LookupError):
    """These bytes are not in the archive: evicted, or never kept."""


def compress(data: bytes) -> bytes:
    return zstd.compress(data, 3)


def decompress(data: bytes) -> bytes:
    return zstd.decompress(data)


def frames_of(chunk: Chunk) -> list[Frame]:
    """A chunk as frames of at most 1 MiB. Pure and slow (it compresses), so it runs outside any transaction."""
    if chunk.zeros:
        return [(chunk.start, chunk.start + chunk.zeros, ZEROS, b"")]
    if chunk.dropped:
        return [(chunk.start, chunk.start + chunk.dropped, DROPPED, b"")]
    return [
        (chunk.start + at, chunk.start + min(at + FRAME_BYTES, len(chunk.data)), ZSTD, compress(part))
        for at in range(0, len(chunk.data), FRAME_BYTES)
        for part in (chunk.data[at : at + FRAME_BYTES],)
    ]


def read(db: apsw.Connection, generation_id: int, start: int, length: int) -> bytes:
    """Exactly these bytes of this generation; Missing if any of them is not there."""
    stop = start + length
    pieces = [data[: stop - at] for at, data in _frames(db, generation_id, start, stop)]
    found = b"".join(pieces)
    if len(found) != length:
        raise Missing(f"bytes {start}..{stop} are not in the archive")
    return found


def stream(db: apsw.Connection, generation_id: int) -> Iterator[tuple[int, bytes]]:
    """The archived bytes of a generation in order, (offset, bytes), a frame at a time."""
    yield from _frames(db, generation_id, 0, None)


def strings(record: Any) -> Iterator[str]:
    """Every string of a JSON value that people might have read."""
    waiting = [record]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


_AT = "SELECT start, stop, codec, data FROM _frame WHERE generation_id = ? AND start <= ? ORDER BY start DESC LIMIT 1"
_AFTER = "SELECT start, stop, codec, data FROM _frame WHERE generation_id = ? AND start > ? ORDER BY start LIMIT 1"


def _frames(db: apsw.Connection, generation_id: int, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """A query a frame: no read transaction stays open while the caller works on one. So frames may be merged
    meanwhile, and the next one may begin before the place that was reached.
    """
    at = start
    while stop is None or at < stop:
        found = [row for row in rows(db, _AT, (generation_id, at)) if row[1] > at]
        found = found or rows(db, _AFTER, (generation_id, at))
        if not found or (stop is not None and found[0][0] >= stop):
            return
        first, end, codec, data = found[0]
        begin = max(first, at)
        if codec == DROPPED:
            raise Missing(f"bytes {begin}..{end} belong to a line that was too long to keep")
        if codec == ZEROS:
            yield from ((offset, bytes(min(FRAME_BYTES, end - offset))) for offset in range(begin, end, FRAME_BYTES))
        else:
            yield begin, decompress(data)[begin - first :]
        at = end
