"""How long a client's write takes to be in the store: looks at the files and at the store's cursors, side by side.

The clock starts at the file's own mtime and stops when a reader of the store finds the bytes committed. Both looks
are a few milliseconds apart, so the numbers are upper bounds.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lab import Lab, until
from sessiond.adapters.base import Adapter
from sessiond.store import archive
from sessiond.store.connect import open_reader, rows

LOOK_SECONDS = 0.005
WALK_SECONDS = 0.05  # new files are looked for less often than known ones
QUIET_SECONDS = 0.4  # longer than the flush timer of the laziest client

_CURSORS = "SELECT path, read_offset + pending_bytes, mtime_ns, reader, state, generation_id FROM _source"


@dataclass(frozen=True)
class Write:
    path: str
    size: int
    mtime_ns: int


class Cursor(NamedTuple):
    """How far the store has a file."""

    offset: int
    mtime_ns: int
    reader: str
    state: str
    generation_id: int | None


@dataclass(frozen=True)
class Stored:
    """A write that was seen to be in the store, and how long that took."""

    write: Write
    seconds: float
    is_in_new_home: bool  # written before anything of this agent was stored: its folders had to be found first


class Visibility:
    """A thread that notes every write to the files of one agent, and when the store had it."""

    def __init__(self, lab: Lab, adapter: Adapter) -> None:
        self._homes = list(adapter.homes(lab.env, lab.user_home))
        self._adapter = adapter
        self._db = open_reader(lab.paths.store)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="visibility", daemon=True)
        self._known: dict[str, tuple[int, int]] = {}
        self._waiting: list[Write] = []
        self._changed_at = time.monotonic()
        self._late: list[Write] = []  # not waited for any more
        self._first_stored_ns: int | None = None
        self.stored: list[Stored] = []

    def __enter__(self) -> Visibility:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._db.close()

    def settle(self, seconds: float = 4.0) -> None:
        """Wait until nothing is written any more and all of it is stored; what is not by then is late."""
        self._changed_at = time.monotonic()
        with contextlib.suppress(AssertionError):
            until(lambda: not self._waiting and time.monotonic() - self._changed_at > QUIET_SECONDS, seconds)
        late, self._waiting = self._waiting, []
        self._late += late

    def take_late(self) -> list[str]:
        """The files of which something is still not stored. A file may come late, but not never: an adapter may need
        more of it to say whose it is.
        """
        missing = {write.path for write in self._late if os.path.exists(write.path) and not self._is_stored(write)}
        self._late.clear()
        return sorted(missing)

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """What is written in here is not the client's: it is waited for, and not counted."""
        counted = len(self.stored)
        yield
        self.settle()
        del self.stored[counted:]

    def _watch(self) -> None:
        walked_at, paths = 0.0, set[str]()
        while not self._stop.wait(LOOK_SECONDS):
            if time.monotonic() - walked_at > WALK_SECONDS:
                walked_at, paths = time.monotonic(), set(self._walk())
            self._look(paths)
            if self._waiting:
                self._compare()

    def _walk(self) -> Iterator[str]:
        for home in self._homes:
            for folder in self._adapter.folders(home):
                for parent, _, names in os.walk(folder):
                    for name in names:
                        path = Path(parent, name)
                        if self._adapter.wants(PurePosixPath(path.relative_to(home))):
                            yield str(path)

    def _look(self, paths: set[str]) -> None:
        for path in paths:
            try:
                found = os.stat(path)
            except FileNotFoundError:
                continue
            now = found.st_size, found.st_mtime_ns
            if now != self._known.get(path) and found.st_size:
                self._known[path] = now
                self._waiting.append(Write(path, *now))
                self._changed_at = time.monotonic()

    def _compare(self) -> None:
        cursors = self._cursors()
        now = time.time_ns()
        done = [write for write in self._waiting if self._is_stored(write, cursors)]
        if done and self._first_stored_ns is None:
            self._first_stored_ns = now
        for write in done:
            if cursors[write.path].state != "foreign":
                is_new = write.mtime_ns < (self._first_stored_ns or 0)
                self.stored.append(Stored(write, (now - write.mtime_ns) / 1e9, is_new))
        self._waiting = [write for write in self._waiting if write not in done]

    def _cursors(self) -> dict[str, Cursor]:
        return {os.fsdecode(path): Cursor(*rest) for path, *rest in rows(self._db, _CURSORS)}

    def _is_stored(self, write: Write, cursors: dict[str, Cursor] | None = None) -> bool:
        cursor = (self._cursors() if cursors is None else cursors).get(write.path)
        if cursor is None:
            return False
        if cursor.reader == "snapshot":
            return cursor.mtime_ns >= write.mtime_ns or self._is_unchanged(write, cursor)
        return cursor.offset >= write.size or cursor.state == "foreign"

    def _is_unchanged(self, write: Write, cursor: Cursor) -> bool:
        """A file rewritten whole with what it held before is no news to the store."""
        if cursor.generation_id is None or not os.path.exists(write.path):
            return False
        kept = b"".join(data for _, data in archive.stream(self._db, cursor.generation_id))
        return kept == Path(write.path).read_bytes()
