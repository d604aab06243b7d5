r"""(path, checkpoint) -> the complete new lines, bounded in size. A pure reader: it remembers nothing itself.

A last line without its newline waits for the next read: the agent is still writing it. Lines end at b"\\n" only
(str.splitlines() also cuts at U+2028, legal in JSON). A line longer than the limit is passed piece by piece, its bytes
handed over for the archive as they stream. A run of NUL bytes, as a crash or a stale writer leaves it, is one reject,
and ends the line that stands before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sessiond.intake import identity, pieces
from sessiond.intake.content import Compressed, Content, Plain
from sessiond.intake.opened import opened
from sessiond.model import START, Checkpoint, Chunk, Line, Reject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PENDING_BYTES = 64 * 2**10
HEAD_BYTES = 64 * 2**10
LONG_HEAD_BYTES = 8 * 2**20
NUL_RUN_BYTES = 256 * 2**20  # how much of a run of NULs one chunk may pass


@dataclass(frozen=True, slots=True)
class Limits:
    line: int = 8 * 2**20
    archive_line: int = 2**30
    chunk: int = 2**20


def read(
    path: str, depth: int, checkpoint: Checkpoint, limits: Limits, *, compressed: bool = False, whole: bool = False
) -> Chunk:
    """The next chunk after the checkpoint, or the first of a new generation if the file is no longer the same.

    With `whole` every byte that was read before is compared, not the first and last alone.
    """
    with opened(path, depth) as fd:
        stat = os.fstat(fd)
        content: Content = Compressed(fd, stat) if compressed else Plain(fd, stat.st_size)
        restarted = identity.why_new(content, stat, checkpoint, whole=whole)
        if restarted:
            checkpoint = START
        return replace(_Reading(content, stat, checkpoint, limits).chunk(), restarted=restarted)


def head(path: str, depth: int, *, compressed: bool = False) -> tuple[Sequence[bytes], os.stat_result]:
    """The first complete lines (<= 64 KiB), for an adapter to tell whose file it is."""
    with opened(path, depth) as fd:
        stat = os.fstat(fd)
        content: Content = Compressed(fd, stat) if compressed else Plain(fd, stat.st_size)
        data = content.read_at(0, HEAD_BYTES)
        if b"\n" not in data and len(data) == HEAD_BYTES:
            data = content.read_at(0, LONG_HEAD_BYTES)  # one long first line: it is all there is to tell by
            end = data.find(b"\n") + 1
            data = data[:end] if end else data
    *complete, rest = data.split(b"\n")
    return ([rest] if not complete and len(data) == LONG_HEAD_BYTES else complete), stat


class _Reading:
    """One read of one file."""

    def __init__(self, content: Content, stat: os.stat_result, checkpoint: Checkpoint, limits: Limits) -> None:
        self._content = content
        self._stat = stat
        self._at = checkpoint
        self._limits = limits

    def chunk(self) -> Chunk:
        data = self._content.read_at(self._at.offset, self._limits.chunk)
        if self._at.skipped:
            return self._go_on_skipping(data)
        if data.startswith(b"\0"):
            return self._pass_nul_run(data)
        end = data.rfind(b"\n") + 1 or max(0, data.find(b"\0"))
        if not end and len(data) == self._limits.chunk:
            data = self._content.read_at(self._at.offset, max(self._limits.line, self._limits.chunk) + 1)
            end = data.find(b"\n") + 1 or max(0, data.find(b"\0"))
            if not end and len(data) > self._limits.line:
                return self._begin_skipping(data[: self._limits.chunk])
            data = data[:end] if end else data  # this one line is the chunk; what follows it comes next
        if not end and len(data) > self._limits.line:  # where chunks are larger than lines may be
            return self._begin_skipping(data)
        return self._lines(data, end)

    # --- complete lines -------------------------------------------------------------------------

    def _lines(self, data: bytes, end: int) -> Chunk:
        lines: list[Line] = []
        rejects: list[Reject] = []
        blank = 0
        for start, raw in self._records(data[:end], rejects):
            if not raw or raw.isspace():
                blank += 1
            elif len(raw) > self._limits.line:
                hash_ = identity.running(0, raw).to_bytes(8, "big")
                rejects.append(Reject(start, len(raw), "too_long", hash_))
            elif raw.endswith(b"\r"):
                lines.append(Line(start, raw[:-1], ending=1))
            else:
                lines.append(Line(start, raw))
        consumed, rest = data[:end], data[end:]
        # NULs do not wait for a newline: they are passed by the next read.
        at_end = self._is_end(self._at.offset + len(data)) and b"\0" not in rest
        return self._made(
            consumed,
            lines=lines,
            rejects=rejects,
            blank_lines=blank,
            more=not at_end,
            pending=rest[:PENDING_BYTES] if at_end else b"",
            pending_bytes=len(rest) if at_end else 0,
        )

    def _records(self, data: bytes, rejects: list[Reject]) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of each line; runs of NULs go to the rejects."""
        at = self._at.offset
        has_nuls = b"\0" in data
        *lines, rest = data.split(b"\n")
        for raw in (*lines, rest) if rest else lines:
            if not has_nuls or b"\0" not in raw:
                yield at, raw
            else:
                for start, piece in pieces.texts_and_runs(raw, at):
                    if piece.startswith(b"\0"):
                        rejects.append(Reject(start, len(piece), "nul"))
                    else:
                        yield start, piece
                if raw.endswith(b"\0"):
                    yield at + len(raw), b""
            at += len(raw) + 1

    def _is_end(self, offset: int) -> bool:
        """A file that grew since it was opened hints again; one that shrank is found out by the next read."""
        if self._content.size is None:
            return not self._content.read_at(offset, 1)
        return offset >= self._content.size

    # --- a line too long to keep ----------------------------------------------------------------

    def _begin_skipping(self, data: bytes) -> Chunk:
        hash_ = identity.running(0, data).to_bytes(8, "big")
        return self._made(data, more=True, skipped=len(data), skipped_hash=hash_)

    def _go_on_skipping(self, data: bytes) -> Chunk:
        found = pieces.first_end(data)
        piece = data if found < 0 else data[:found]
        before = int.from_bytes(self._at.skipped_hash, "big")
        hash_ = identity.running(before, piece).to_bytes(8, "big")
        length = self._at.skipped + len(piece)
        keep = length <= self._limits.archive_line
        if found < 0:
            more = not self._is_end(self._at.offset + len(data))
            return self._made(data, more=more, keep=keep, skipped=length, skipped_hash=hash_)
        reject = Reject(self._at.offset - self._at.skipped, length, "too_long", hash_)
        if data.startswith(b"\0"):
            return self._pass_nul_run(data, ended=[reject])
        end = found + 1 if data.startswith(b"\n", found) else found
        return self._made(data[:end], rejects=[reject], more=True, keep=keep)

    # --- NULs -----------------------------------------------------------------------------------

    def _pass_nul_run(self, data: bytes, ended: Sequence[Reject] = ()) -> Chunk:
        """`ended` is the line that this run is the end of, if that was being passed."""
        length = len(data) - len(data.lstrip(b"\0"))
        if length == len(data):
            length = self._nul_run_length(length)
        at = replace(self._at, skipped=0, skipped_hash=b"")
        for done in range(0, length, self._limits.chunk):
            at = identity.advanced(at, self._content, self._stat, bytes(min(self._limits.chunk, length - done)))
        more = not self._is_end(at.offset)
        return self._made_at(at, b"", zeros=length, rejects=[*ended, Reject(self._at.offset, length, "nul")], more=more)

    def _nul_run_length(self, length: int) -> int:
        while length < NUL_RUN_BYTES:
            if isinstance(self._content, Plain):  # jump over a hole instead of reading it
                hole = self._content.next_data(self._at.offset + length) - self._at.offset - length
                length += max(0, min(hole, NUL_RUN_BYTES - length))
            data = self._content.read_at(self._at.offset + length, self._limits.chunk)
            zeros = len(data) - len(data.lstrip(b"\0"))
            length += zeros
            if zeros < self._limits.chunk:
                break
        return length

    # --- the result -----------------------------------------------------------------------------

    def _made(
        self,
        consumed: bytes,
        *,
        lines: list[Line] | None = None,
        rejects: list[Reject] | None = None,
        more: bool = False,
        keep: bool = True,
        skipped: int = 0,
        skipped_hash: bytes = b"",
        pending: bytes = b"",
        pending_bytes: int = 0,
        blank_lines: int = 0,
    ) -> Chunk:
        at = identity.advanced(self._at, self._content, self._stat, consumed)
        at = replace(at, skipped=skipped, skipped_hash=skipped_hash)
        chunk = self._made_at(at, consumed if keep else b"", dropped=0 if keep else len(consumed), more=more)
        return replace(
            chunk,
            lines=lines or [],
            rejects=rejects or [],
            pending=pending,
            pending_bytes=pending_bytes,
            blank_lines=blank_lines,
        )

    def _made_at(
        self,
        at: Checkpoint,
        data: bytes,
        *,
        zeros: int = 0,
        dropped: int = 0,
        rejects: list[Reject] | None = None,
        more: bool = False,
    ) -> Chunk:
        return Chunk(
            start=self._at.offset,
            data=data,
            lines=[],
            checkpoint=at,
            size=self._stat.st_size,
            mtime_ns=self._stat.st_mtime_ns,
            rejects=rejects or [],
            more=more,
            zeros=zeros,
            dropped=dropped,
        )
