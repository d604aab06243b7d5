"""Paths waiting to be read, each at most once, in two lanes: what happens now goes before history."""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from enum import IntEnum


class Lane(IntEnum):
    LIVE = 0  # changed since start: first in, first out, a chunk each
    BACKFILL = 1  # history: newest first, one file to its end before the next


class Inbox:
    """Hands out one path at a time. A path that is put while it is being read is read once more afterwards.

    Whoever takes a path gives it back with `put_back` (it has more to give) or `done`. Safe from any thread;
    memory grows with the number of distinct paths and nothing else.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._woken = False
        self._live: OrderedDict[str, None] = OrderedDict()
        self._backfill: dict[str, int] = {}  # path -> mtime_ns
        self._newest: list[tuple[int, str]] = []  # heap over _backfill; entries that disagree with it are stale
        self._begun: list[str] = []  # backfill paths that gave a chunk and have more: the last one goes first
        self._taken: dict[str, _Taken] = {}

    def put(self, path: str, lane: Lane, mtime_ns: int = 0) -> None:
        """Something may be new in `path`. Waiting in BACKFILL it can become LIVE, never the reverse."""
        with self._changed:
            taken = self._taken.get(path)
            if taken is None:
                self._queue(path, lane, mtime_ns)
                self._changed.notify()
            else:
                taken.again = lane if taken.again is None else min(taken.again, lane)
                taken.mtime_ns = max(taken.mtime_ns, mtime_ns)

    def take(self, timeout: float | None = None) -> tuple[str, Lane] | None:
        """The next path and its lane; None when `timeout` seconds passed without one or `wake` was called."""
        with self._changed:
            self._changed.wait_for(lambda: self._live or self._backfill or self._woken, timeout)
            self._woken = False
            if self._live:
                path, _ = self._live.popitem(last=False)
                self._taken[path] = _Taken(Lane.LIVE)
                return path, Lane.LIVE
            if self._backfill:
                path, mtime_ns = self._pop_backfill()
                self._taken[path] = _Taken(Lane.BACKFILL, mtime_ns)
                return path, Lane.BACKFILL
            return None

    def put_back(self, path: str) -> None:
        """The file has more to give: to the end of the live lane, or first of the backfill lane."""
        with self._changed:
            taken = self._taken.pop(path)
            lane = taken.lane if taken.again is None else min(taken.again, taken.lane)
            self._queue(path, lane, taken.mtime_ns)
            if lane is Lane.BACKFILL:
                self._begun.append(path)
            self._changed.notify()

    def done(self, path: str) -> None:
        """The file was read to its end, as far as it went when that was looked at."""
        with self._changed:
            taken = self._taken.pop(path)
            if taken.again is not None:
                self._queue(path, taken.again, taken.mtime_ns)
                self._changed.notify()

    def wake(self) -> None:
        """Let the `take` that waits now, or else the next one, return without a path if there is none."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def waiting(self, lane: Lane) -> int:
        return len(self._live if lane is Lane.LIVE else self._backfill)

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is being read."""
        with self._changed:
            return not (self._live or self._backfill or self._taken)

    def _queue(self, path: str, lane: Lane, mtime_ns: int) -> None:
        if path in self._live:
            return
        if lane is Lane.LIVE:
            self._backfill.pop(path, None)
            if path in self._begun:
                self._begun.remove(path)
            self._live[path] = None
        elif path not in self._backfill or self._backfill[path] < mtime_ns:
            self._backfill[path] = mtime_ns
            heapq.heappush(self._newest, (-mtime_ns, path))
            self._drop_stale()

    def _pop_backfill(self) -> tuple[str, int]:
        if self._begun:
            path = self._begun.pop()
            return path, self._backfill.pop(path)
        while True:
            negative, path = heapq.heappop(self._newest)
            if self._backfill.get(path) == -negative:
                return path, self._backfill.pop(path)

    def _drop_stale(self) -> None:
        if len(self._newest) > 64 + 2 * len(self._backfill):
            self._newest = [(-mtime_ns, path) for path, mtime_ns in self._backfill.items()]
            heapq.heapify(self._newest)


class _Taken:
    """What is known of a path while it is being read."""

    __slots__ = ("again", "lane", "mtime_ns")

    def __init__(self, lane: Lane, mtime_ns: int = 0) -> None:
        self.lane = lane
        self.mtime_ns = mtime_ns
        self.again: Lane | None = None
