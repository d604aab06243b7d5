"""The way of a log line out of the process. A reader that is slow, stuck or gone costs lines, never time.

A thread of its own does the writing: stderr may be a pipe or a terminal shared with others, so neither may it be
made non-blocking nor can anyone promise that a write will not block.
"""

from __future__ import annotations

import fcntl
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WAITING_BYTES = 2**20
_BATCH_BYTES = 2**16


class Sink:
    """Takes lines at once and writes them in order; when too many wait, the newest are dropped and counted."""

    def __init__(self, stream: TextIO | None, notice: Callable[[int], bytes] = lambda _: b"") -> None:
        self._stream = stream
        self._fd = _own_copy(stream)
        self._notice = notice  # what to write about lines that were dropped, once writing works again
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._in_flight = 0
        self._untold = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    @property
    def fd(self) -> int | None:
        return self._fd

    def put(self, line: bytes) -> None:
        """Never blocks and never raises."""
        with self._changed:
            if self._closed or self._stream is None or self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self._drop(1)
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                # A daemon thread: one that is stuck in a write must not keep the process from ending.
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until all is written, but no longer than this; True if it is."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._waiting or self._in_flight:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return not (self._waiting or self._in_flight)
        return True

    def close(self, timeout: float) -> None:
        """Write what can be written in this time and let go of the stream."""
        is_idle = self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and is_idle:
            self._thread.join(timeout)
            if self._fd is not None and not self._thread.is_alive():
                os.close(self._fd)

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self._untold += lines

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                lines, told = self._take(), self._untold
                self._untold = 0
            try:
                self._write((self._notice(told) if told else b"") + b"".join(lines))
            except (OSError, ValueError):  # the reader is gone, the disk is full, the stream was closed
                with self._changed:
                    self._drop(len(lines))
                    self._untold += told
            with self._changed:
                self._in_flight = 0
                self._changed.notify_all()

    def _take(self) -> list[bytes]:
        lines: list[bytes] = []
        size = 0
        while self._waiting and size < _BATCH_BYTES:
            size += len(self._waiting[0])
            lines.append(self._waiting.popleft())
        self._waiting_bytes -= size
        self._in_flight = len(lines)
        return lines

    def _write(self, data: bytes) -> None:
        if self._fd is None:
            if self._stream is not None:
                self._stream.write(data.decode("utf-8", "replace"))
                self._stream.flush()
            return
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # someone else made it non-blocking
                select.select([], [self._fd], [], 1.0)


def _own_copy(stream: TextIO | None) -> int | None:
    """A descriptor of our own: if stderr is closed later, its number may come to mean the database."""
    if stream is None:
        return None
    try:
        return fcntl.fcntl(stream.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
    except (OSError, ValueError, AttributeError):  # no file behind it
        return None
