"""watchdog's inotify observer, with lost events, refused watches and the watches there are made known.

Linux only. It stands on what watchdog 7.1 lets one replace: the `InotifyFD` and the observer.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.observers.api import BaseObserver
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.inotify_c import InotifyFD
from watchdog.observers.inotify_move_event_grouper import InotifyMoveEventGrouper

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.inotify_c import CallbackId, InotifyEvent, Mask, WatchCallback, WatchDescriptor

# A move whose other end has not come yet would hold up every later event of its root for half a second, and
# agents replace files by rename many times per prompt. Without the wait such a move is a deletion and a
# creation: the same two hints.
InotifyMoveEventGrouper.delay = 0.0


class Reader(InotifyFD):
    """The thread that reads the kernel's queue."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        super().__init__()
        os.set_inheritable(self._inotify_fd, False)  # watchdog opens it without IN_CLOEXEC
        self._on_overflow = on_overflow
        self.limit_reached = False

    def watched_inodes(self) -> list[int]:
        """The inode of every directory the kernel watches for us; empty where /proc cannot be read."""
        try:
            lines = Path(f"/proc/self/fdinfo/{self._inotify_fd}").read_text().splitlines()
        except OSError:
            return []
        found = [line.split(" ino:", 1)[1].split(" ", 1)[0] for line in lines if line.startswith("inotify wd:")]
        return [int(inode, 16) for inode in found]

    def add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
        try:
            watch = super().add_callback(path, mask, callback, id_)
        except OSError as error:
            # watchdog passes over this for all but the root of a tree, so it has to be noted here.
            self.limit_reached = self.limit_reached or error.errno == errno.ENOSPC
            raise
        if watch == -1:  # EACCES, which watchdog takes for a success
            self.remove_callbacks([(watch, id_)])
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return watch

    def handle_event(self, event: InotifyEvent) -> None:
        if event.is_queue_overflow:
            # Not passed on: watchdog would remove and add every watch from this very thread, and with more
            # directories than fit the queue, the notices of their removal overflow it again, without end.
            self._on_overflow()
        else:
            super().handle_event(event)


class InotifyObserver(BaseObserver):
    """Like watchdog's own, with our reader. OSError when the kernel gives no inotify instance."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        self.reader = Reader(on_overflow)
        self.reader.start()
        super().__init__(InotifyEmitter, inotify_fd=self.reader)

    def on_thread_stop(self) -> None:
        super().on_thread_stop()
        self.reader.stop()
        self.reader.join()
