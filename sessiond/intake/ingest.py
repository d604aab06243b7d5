"""inbox -> tail -> adapter -> store, one chunk at a time. No line of it names an agent."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sessiond.intake import rewritten, tail
from sessiond.intake.parse import Wording, parse
from sessiond.intake.scan import Seen
from sessiond.model import Checkpoint, Chunk, Record
from sessiond.store import archive
from sessiond.store.commit import Batch
from sessiond.store.keys import hash_bytes
from sessiond.store.resolve import Place
from sessiond.store.sources import EXCLUDED, FOREIGN, FORGOTTEN, LIVE, Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sessiond.adapters.base import Adapter
    from sessiond.intake.register import Register
    from sessiond.store.writer import Writer


class Taken(NamedTuple):
    more: bool  # the file has more to give
    bytes: int
    size: int  # of the whole file
    left: int = 0  # bytes that wait to be read


NOTHING = Taken(more=False, bytes=0, size=0)


class Ingest:
    """Moves files into the store. `known` says, for every path looked at, what its stat was then."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        register: Register,
        writer: Writer,
        limits: tail.Limits,
        wording: Wording,
        known: dict[str, Seen],
    ) -> None:
        self._adapters = adapters
        self._register = register
        self._writer = writer
        self._limits = limits
        self._wording = wording
        self.known = known
        self._undecided: set[str] = set()

    def take_in(self, path: str, *, urgent: bool = True, whole: bool = False) -> Taken:
        """Move one chunk of one file into the store. OSError: it cannot be read.

        `whole`: compare all that was read of it before, not its first and last bytes alone.
        """
        found = self._register.find(path)
        if found is None:
            self.look_again_when_changed(path)
            links = self._register.links
            is_second_name = path in links and links[path] not in links
            return self.take_in(links[path], urgent=urgent) if is_second_name else NOTHING
        source = found.source
        chunk = self._read(source, whole=whole)
        if source.id is None and not source.in_flight and _inode(chunk.checkpoint) != _inode(source.checkpoint):
            self._register.drop(path)  # another file than the one whose head was judged: look at this one's
            return Taken(more=True, bytes=0, size=chunk.size)
        if self._has_new_name(source, chunk, urgent=urgent):
            return self.take_in(path, urgent=urgent)
        self.known[path] = Seen(chunk.checkpoint.device, chunk.checkpoint.inode, chunk.size, chunk.mtime_ns)
        left = max(0, chunk.size - chunk.checkpoint.offset) if chunk.more else 0
        taken = Taken(chunk.more, chunk.checkpoint.offset - chunk.start, chunk.size, left)
        if self._is_nothing_new(source, chunk):
            if not found.is_back:
                return taken
            chunk = replace(chunk, lines=[])  # it is back as it was: a rewritten file is not read a second time
        carry = dict(source.seed) if chunk.restarted else source.carry
        parsed: list[tuple[Place, list[Record]]] = []
        rejects = list(chunk.rejects)
        if source.state == LIVE:
            parsed, rejects, carry = parse(self._adapters[source.flavor], chunk, carry, self._wording)
            if found.facts:
                stated: list[Record] = [each for fact in found.facts for each in self._wording.facts(fact)]
                parsed.insert(0, (Place(chunk.start, 0), stated))
        frames = archive.frames_of(chunk) if source.state == LIVE else []
        repaired = sum(line.repaired for line in chunk.lines)
        light = replace(chunk, data=b"", lines=[])  # up to 8 MiB may wait for the writer: the raw bytes need not
        self._writer.submit(
            Batch(source, light, parsed, rejects, carry, frames, len(chunk.lines), repaired), urgent=urgent
        )
        source.checkpoint, source.carry = chunk.checkpoint, carry
        source.size, source.mtime_ns = chunk.size, chunk.mtime_ns
        source.pending_bytes, source.pending_hash = chunk.pending_bytes, hash_bytes(chunk.pending)
        if self._undecided and source.role == "sidecar":
            self._look_again_beside(path)
        return taken

    def lost(self, path: str) -> bool:
        """It is not there. True when it had been: the next sweep finds it missing, for `known` still has it."""
        self._register.drop(path)
        return path in self.known

    def forget(self, path: str) -> None:
        """What was read of this file did not get stored: begin again from what the store says."""
        self._register.drop(path)
        self._look_again(path)

    def _look_again(self, path: str) -> None:
        if path in self.known:  # still known, or it would not be missed when it goes
            self.known[path] = Seen(self.known[path].device, 0, 0, 0)

    def leave_alone(self, path: str) -> None:
        """Its session was forgotten: nothing of it is remembered, and nothing more is read."""
        self._register.leave_alone(path)
        self.known.pop(path, None)

    @property
    def links(self) -> dict[str, str]:
        """Second names of files, and the name that each is read under."""
        return dict(self._register.links)

    def _has_new_name(self, source: Source, chunk: Chunk, *, urgent: bool) -> bool:
        """Another file took this one's place, which lies beside it under a new name: there it keeps its cursor."""
        path, inode = source.path, source.checkpoint.inode
        if not chunk.restarted or _inode(chunk.checkpoint) == _inode(source.checkpoint):
            return False
        with os.scandir(os.path.dirname(path)) as entries:
            names = [entry.path for entry in entries if entry.inode() == inode and entry.path != path]
        for name in names:
            if self._register.is_wanted(name) and not self._register.has_source(name):
                with suppress(OSError):  # what keeps that one from being read is no matter of this one
                    self.take_in(name, urgent=urgent)
        return source.path != path

    def _read(self, source: Source, *, whole: bool) -> Chunk:
        depth = source.below.count("/")
        if source.state in (EXCLUDED, FOREIGN, FORGOTTEN):
            return _pass_over(source, depth)
        if source.reader == "snapshot":
            return rewritten.read(source.path, depth, source.checkpoint, self._limits)
        is_packed = source.reader == "zstd"
        return tail.read(source.path, depth, source.checkpoint, self._limits, compressed=is_packed, whole=whole)

    def _is_nothing_new(self, source: Source, chunk: Chunk) -> bool:
        if source.id is None and not source.in_flight:
            return False
        if source.reader == "snapshot" and source.state == LIVE:
            return rewritten.is_unchanged(chunk, source.checkpoint)
        at = chunk.checkpoint
        before = (
            source.checkpoint.device,
            source.checkpoint.inode,
            source.checkpoint.offset,
            source.pending_bytes,
            source.pending_hash,
        )
        now = (at.device, at.inode, at.offset, chunk.pending_bytes, hash_bytes(chunk.pending))
        return not chunk.restarted and now == before

    def look_again_when_changed(self, path: str) -> None:
        """Nothing can be said of this file yet, or it is a second name of another: the next change tells."""
        if path in self._register.awaiting:
            self.known.pop(path, None)  # another file's change tells: every sweep asks again
            return
        stat = os.lstat(path)
        self.known[path] = Seen(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        self._undecided.add(path)

    def _look_again_beside(self, path: str) -> None:
        """What this file says may be what others of its folder waited for."""
        for other in [each for each in self._undecided if os.path.dirname(each) == os.path.dirname(path)]:
            self._look_again(other)
            self._undecided.discard(other)

    def gone(self, path: str) -> None:
        """This file is not there any more; those that were passed over because of it are looked at again."""
        self._register.drop(path)
        self.known.pop(path, None)
        for other in self._undecided:
            self._look_again(other)
        self._undecided.clear()


def _inode(checkpoint: Checkpoint) -> tuple[int, int]:
    return checkpoint.device, checkpoint.inode


def _pass_over(source: Source, depth: int) -> Chunk:
    """Of a file that is not to be read only the size is noted. One that nobody claimed counts as not read at all."""
    _, stat = tail.head(source.path, depth)
    offset = source.checkpoint.offset if source.state == FOREIGN else stat.st_size
    return Chunk(
        start=source.checkpoint.offset,
        data=b"",
        lines=[],
        checkpoint=Checkpoint(device=stat.st_dev, inode=stat.st_ino, offset=offset),
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
    )
