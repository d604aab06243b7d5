"""A disk that may lose its power at any moment. `Recorder` is the VFS under every database of its process and notes what
reaches the disk, and when it was told to be there for good; `images` gives back what a disk could hold after a cut.

What was written since the last sync of a file may be there or not, in any order, and torn at sectors; a file that was made
or removed since the last sync of its folder may be missing, or back.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
BASE = "unix"
JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL

Op = tuple[Any, ...]


class Recorder(apsw.VFS):
    """The default VFS of this process from now on. `ops` is what happened, `note` adds what the program promised."""

    def __init__(self, folder: Path) -> None:
        super().__init__("recorder", base=BASE, makedefault=True)
        self.ops: list[Op] = []
        self._folder = str(folder) + os.sep
        self._live: dict[str, int] = {}  # name -> inode, as the running program sees it
        self._inodes = 0
        self._lock = threading.RLock()
        sys.addaudithook(self._see)

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self.ops))

    def note(self, *promise: Any) -> None:
        with self._lock:
            self.ops.append(("promise", promise))

    def record(self, *op: Any) -> None:
        with self._lock:
            self.ops.append(op)

    def inode_of(self, name: str) -> int:
        with self._lock:
            if name not in self._live:
                self._inodes += 1
                self._live[name] = self._inodes
                self.record("create", name, self._inodes)
            return self._live[name]

    def _gone(self, name: str) -> None:
        with self._lock:
            if self._live.pop(name, None) is not None:
                self.record("delete", name)

    def _see(self, event: str, words: tuple[Any, ...]) -> None:
        """Files that Python removes itself; SQLite's own go through xDelete."""
        if event == "os.remove" and os.fsdecode(words[0]).startswith(self._folder):
            self._gone(os.path.basename(os.fsdecode(words[0])))

    # --- what SQLite calls ----------------------------------------------------------------------

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or not path.startswith(self._folder):
            return PlainFile(BASE, name, flags)
        return _RecordedFile(self, name, flags, os.path.basename(path))

    def xDelete(self, path: str, syncdir: bool) -> None:
        super().xDelete(path, False)
        self._gone(os.path.basename(path))
        if syncdir:
            self.record("sync_folder")


class PlainFile(apsw.VFSFile):
    """A file of the system's own VFS, as SQLite sees it without Python in between."""

    def xLock(self, level: int) -> None:
        try:
            super().xLock(level)
        except apsw.IOError:  # a lock that a read-only connection cannot have: SQLite goes on without, apsw would not
            raise apsw.BusyError("it is read-only") from None


class _RecordedFile(PlainFile):
    def __init__(self, disk: Recorder, name: Any, flags: list[int], base_name: str) -> None:
        self._disk = disk
        self._inode = disk.inode_of(base_name)
        self._owes_folder = bool(flags[0] & JOURNALS)  # SQLite syncs the folder with the first sync of a journal
        super().__init__(BASE, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.record("write", self._inode, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._disk.record("truncate", self._inode, size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._disk.record("sync", self._inode)  # the real one would only take time
        if self._owes_folder:
            self._owes_folder = False
            self._disk.record("sync_folder")


# --- the disk after a cut -----------------------------------------------------------------------


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    waiting: list[Op] = field(default_factory=list)  # writes and truncations that no sync has confirmed

    def sync(self) -> None:
        for op in self.waiting:
            _apply(self.durable, op)
        self.waiting = []

    def after_cut(self, chance: random.Random, manner: str) -> bytes:
        left = bytearray(self.durable)
        pieces = [piece for op in self.waiting for piece in _torn(op)]
        if manner == "torn":
            chance.shuffle(pieces)
        for piece in pieces:
            if manner == "kept" or (manner == "torn" and chance.random() < 0.5):
                _apply(left, piece)
        return bytes(left)


@dataclass
class Image:
    """What the disk holds after a cut, and what had been promised before it."""

    at: int
    manner: str
    files: dict[str, bytes]
    promises: list[tuple[Any, ...]]

    def restore(self, folder: Path) -> None:
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


@dataclass
class _Disk:
    files: dict[int, _File] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    waiting: list[Op] = field(default_factory=list)  # names made and removed since the folder was synced
    promises: list[tuple[Any, ...]] = field(default_factory=list)

    def take(self, op: Op) -> None:
        what = op[0]
        if what == "promise":
            self.promises.append(op[1])
        elif what in ("create", "delete"):
            self.waiting.append(op)
            if what == "create":
                self.files[op[2]] = _File()
        elif what == "sync_folder":
            _rename(self.names, self.waiting)
            self.waiting = []
        elif what == "sync":
            self.files[op[1]].sync()
        else:
            self.files[op[1]].waiting.append((what, *op[2:]))

    def cut(self, at: int, chance: random.Random) -> Image:
        manner = chance.choice(("torn", "torn", "torn", "lost", "kept"))
        names = dict(self.names)
        # A folder's changes reach the disk in order, like a journaling file system's: some first part of them.
        reached = {"torn": chance.randint(0, len(self.waiting)), "lost": 0, "kept": len(self.waiting)}[manner]
        _rename(names, self.waiting[:reached])
        files = {name: self.files[inode].after_cut(chance, manner) for name, inode in sorted(names.items())}
        return Image(at, manner, files, list(self.promises))


def images(ops: Sequence[Op], cuts: Sequence[int], seed: int) -> Iterator[Image]:
    """The disk after each of these cuts; a cut is how many operations had been handed to the disk."""
    chance = random.Random(seed)
    disk, done = _Disk(), 0
    for at in sorted(cuts):
        for op in ops[done:at]:
            disk.take(op)
        done = at
        yield disk.cut(at, chance)


def _rename(names: dict[str, int], ops: Sequence[Op]) -> None:
    for what, name, *inode in ops:
        if what == "create":
            names[name] = inode[0]
        else:
            names.pop(name, None)


def _torn(op: Op) -> Iterator[Op]:
    """A write as the disk makes it: in parts none of which crosses a sector."""
    if op[0] != "write":
        yield op
        return
    _, offset, data = op
    at = 0
    while at < len(data):
        size = min(SECTOR - (offset + at) % SECTOR, len(data) - at)
        yield "write", offset + at, data[at : at + size]
        at += size


def _apply(content: bytearray, op: Op) -> None:
    if op[0] == "truncate":
        del content[op[1] :]
        return
    _, offset, data = op
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data
