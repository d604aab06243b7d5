"""The small frames of a quiet session become few large ones, byte for byte the same.

A session that is appended to line by line leaves a frame for every append, and small frames compress badly (4 KiB ones
take 1.8 times the room of 1 MiB ones). Frames are packed from the left into groups of at most 1 MiB of raw bytes. A
group that the next frame does not fit into is final and is written once more, as one frame. The last group of a file
that may still grow is merged by a geometric rule instead: a frame is taken in only when those to its right come to at
least half of it. So every time a byte is written again its frame has grown by half: at most log 1.5 (1 MiB / its first
frame), 17 times for appends of 1 KiB, however often the pass comes by.

Frames are merged into the row of the first one: within a generation ids keep the order of the bytes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from sessiond.store import archive
from sessiond.store.connect import rows, value

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import apsw

    from sessiond.store.writer import Writer

# Of the fixtures' bytes, in 1 MiB frames: level 9 takes 5 % less room than level 3 and four times the time, 5 ms for
# a frame. It is worth that where the frame stays as it is.
FINAL_LEVEL, PASSING_LEVEL = 9, 3


class _Frame(NamedTuple):
    id: int
    start: int
    stop: int
    codec: str

    @property
    def size(self) -> int:
        return self.stop - self.start


# What is being evicted is left alone, and so are rewritten files: they are one version each.
_GENERATIONS = """
SELECT g.id, g.closed_at IS NOT NULL
  FROM _source AS f JOIN _generation AS g ON g.source_id = f.id
 WHERE f.session_id = :session AND f.reader <> 'snapshot'
   AND NOT EXISTS (SELECT 1 FROM _leaving WHERE session_id = :session)
 ORDER BY g.id
"""
# What lies behind the cursor is the unfinished line of a file that went away: if the file comes back it is cut off.
_FRAMES = """
SELECT r.id, r.start, r.stop, r.codec
  FROM _frame AS r JOIN _generation AS g ON g.id = r.generation_id JOIN _source AS f ON f.id = g.source_id
 WHERE r.generation_id = :generation AND r.start >= :start AND r.start < :stop AND r.start >= g.evicted_to
   AND (r.stop <= f.read_offset OR g.closed_at IS NOT NULL)
 ORDER BY r.start
"""
_END = 2**63 - 1


def merge_frames(db: apsw.Connection, writer: Writer, session_row: int, *, is_final: bool) -> int:
    """Merge what can be merged of a session; how many frames there are less of. `is_final`: nothing more is expected.

    Reads and compresses in the caller's thread, a group at a time; the writer only exchanges rows. A group whose frames
    are not what they were when they were read (evicted, cut back, merged by another) is left as it is.
    """
    saved = 0
    for generation_id, is_closed in rows(db, _GENERATIONS, {"session": session_row}):
        frames = _frames(db, generation_id)
        for group, level in _groups(frames, is_final=is_final or bool(is_closed)):
            data = _read(db, group)
            if data is not None:
                merged = zstd.compress(data, level)
                saved += writer.call(
                    lambda to, group=group, merged=merged, generation=generation_id: _replace(  # type: ignore[misc]
                        to, generation, group, merged
                    )
                )
    return saved


def _frames(db: apsw.Connection, generation_id: int, start: int = 0, stop: int = _END) -> list[_Frame]:
    bound = {"generation": generation_id, "start": start, "stop": stop}
    return [_Frame(*row) for row in rows(db, _FRAMES, bound)]


def _groups(frames: Sequence[_Frame], *, is_final: bool) -> Iterator[tuple[list[_Frame], int]]:
    """The frames to be merged, group by group, and how hard to compress each."""
    packed = list(_packed(frames))
    for number, group in enumerate(packed):
        is_last = number == len(packed) - 1
        if not is_last or is_final:
            if len(group) > 1:
                yield group, FINAL_LEVEL
        elif len(grown := _grown(group)) > 1:
            yield grown, PASSING_LEVEL


def _packed(frames: Sequence[_Frame]) -> Iterator[list[_Frame]]:
    """Neighbours that fit into one frame. Runs of zeros, lines too long to keep and gaps stand between neighbours."""
    group: list[_Frame] = []
    for frame in frames:
        is_whole = frame.codec == archive.ZSTD
        if group and (
            not is_whole or frame.start != group[-1].stop or frame.stop - group[0].start > archive.FRAME_BYTES
        ):
            yield group
            group = []
        if is_whole:
            group.append(frame)
    yield group


def _grown(group: Sequence[_Frame]) -> list[_Frame]:
    """The end of a group that is worth being written again, now that so much came after it."""
    taken: list[_Frame] = []
    size = 0
    for frame in reversed(group):
        if taken and 2 * size < frame.size:
            break
        taken.insert(0, frame)
        size += frame.size
    return taken


def _read(db: apsw.Connection, group: Sequence[_Frame]) -> bytes | None:
    """The bytes of these frames; None where one of them has left, or does not hold what it says."""
    pieces: list[bytes] = []
    for frame in group:
        stored = value(db, "SELECT data FROM _frame WHERE id = ? AND start = ?", (frame.id, frame.start))
        if stored is None:
            return None
        try:
            piece = archive.decompress(stored)
        except zstd.ZstdError:
            return None  # damaged: `verify` names it, and nothing here may make it look whole
        if len(piece) != frame.size:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _replace(db: apsw.Connection, generation_id: int, group: Sequence[_Frame], merged: bytes) -> int:
    first, last = group[0], group[-1]
    if _frames(db, generation_id, first.start, last.stop) != list(group):
        return 0
    db.executemany("DELETE FROM _frame WHERE id = ?", [(frame.id,) for frame in group[1:]])
    db.execute("UPDATE _frame SET stop = ?, data = ? WHERE id = ?", (last.stop, merged, first.id))
    return len(group) - 1
