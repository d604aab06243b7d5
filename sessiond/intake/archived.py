"""The lines of an archived generation, cut as they were when its file was read: what `reindex` reads, not files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.intake import identity, pieces
from sessiond.model import Line, Reject
from sessiond.store import archive
from sessiond.store.connect import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

_NEXT = "SELECT start, stop, codec, data FROM _frame WHERE generation_id = ? AND start >= ? ORDER BY start LIMIT 1"
TOO_LONG = "too_long"


def lines(db: apsw.Connection, generation_id: int, longest: int) -> Iterator[Line | Reject]:
    """Its complete lines in order; one that is longer than `longest` comes as a reject. Blank ones are left out.

    The caller's transaction keeps the frames what they are. Memory holds a frame, or a line and a frame.
    """
    cutter = _Cutter(longest)
    at = 0
    while found := rows(db, _NEXT, (generation_id, at)):
        start, at, codec, data = found[0]
        if codec == archive.ZSTD:
            yield from cutter.cut(start, archive.decompress(data))
        elif codec == archive.DROPPED:
            cutter.lose()  # the rest of that line is no line; its reject is on record
        else:
            yield from cutter.cut(start, b"\0")  # a run of them, however long, does no more than one: it ends a line


def whole(db: apsw.Connection, generation_id: int) -> Iterator[Line]:
    """A rewritten file: its latest version is one line, unless there is nothing in it."""
    try:
        data = b"".join(piece for _, piece in archive.stream(db, generation_id))
    except archive.Missing:  # it was too long to keep
        return
    if data.strip(b"\0 \t\r\n"):
        yield Line(0, data)


class _Cutter:
    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""
        self._at = 0  # where the rest begins
        self._passed: Reject | None = None  # the line that is being passed, as far as it was seen
        self._is_lost = False

    def lose(self) -> None:
        self._rest, self._passed, self._is_lost = b"", None, True

    def cut(self, start: int, data: bytes) -> Iterator[Line | Reject]:
        if start != self._at + len(self._rest) and not self._is_lost:
            self._rest, self._passed = b"", None  # after a gap, and behind NULs, a line begins
        if not self._rest:
            self._at = start
        if self._passed is not None or self._is_lost:
            end = pieces.first_end(data)
            yield from self._pass(data[:end] if end >= 0 else data, is_end=end >= 0)
            if end < 0:
                self._at = start + len(data)
                return
            self._at, data = start + end, data[end:]
        data = self._rest + data
        end = pieces.after_last_end(data)
        yield from self._lines(data[:end])
        self._rest = data[end:]
        self._at += end
        if len(self._rest) > self._longest:
            self._passed = Reject(self._at, 0, TOO_LONG, identity.running(0, b"").to_bytes(8, "big"))
            piece, self._rest = self._rest, b""
            yield from self._pass(piece, is_end=False)
            self._at += len(piece)

    def _pass(self, piece: bytes, *, is_end: bool) -> Iterator[Reject]:
        if self._passed is not None:
            before = self._passed
            hash_ = identity.running(int.from_bytes(before.hash, "big"), piece).to_bytes(8, "big")
            self._passed = Reject(before.offset, before.length + len(piece), TOO_LONG, hash_)
        if is_end:
            if self._passed is not None:
                yield self._passed
            self._passed, self._is_lost = None, False

    def _lines(self, data: bytes) -> Iterator[Line | Reject]:
        for start, text in pieces.texts(data, self._at):
            if text.isspace():
                continue
            if len(text) > self._longest:
                yield Reject(start, len(text), TOO_LONG, identity.running(0, text).to_bytes(8, "big"))
            else:
                yield Line(start, text.removesuffix(b"\r"), ending=text.endswith(b"\r"))
