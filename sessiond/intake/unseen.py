"""What could not be read, or not even seen. Not seen is not deleted: its cursor stays, `status` names it, and it is
tried again; a file that a mount covers, or whose disk is away, counts as gone only after an hour.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from sessiond.intake.opened import NotRegular
from sessiond.intake.scan import real
from sessiond.intake.watching import mounts

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from sessiond.intake.scan import Seen, Sweep
    from sessiond.trouble import Troubles

    Renumbered = Container[tuple[int, int]]  # devices that got another number: files that are still there tell

HIDDEN_SECONDS = 3600.0
PAUSE_SECONDS = (2.0, 600.0)  # between attempts at a file that the disk fails to give: the first, and the longest
_DENIED = frozenset({errno.EACCES, errno.EPERM})
_SHORT = frozenset({errno.EMFILE, errno.ENFILE})
_LAYERED = frozenset({"overlay", "aufs"})  # there a file may have another device than the folder it is in


class Unseen:
    """Belongs to the ingest loop's thread."""

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._files: dict[str, str] = {}  # path -> errno name
        self._folders: dict[str, str] = {}
        self._hidden: dict[str, float] = {}  # path -> since when, monotonic
        self._pauses: dict[str, tuple[float, float]] = {}  # path -> (not before, the pause after that)
        self._is_short = False  # of file descriptors

    def failed(self, path: str, error: OSError, now: float) -> bool:
        """This file could not be read. True: for want of descriptors, so that it is worth another try very soon."""
        if error.errno in _SHORT:
            self._is_short = True
            self._troubles.report("descriptors", "no file descriptor is free", "raise LimitNOFILE, or ulimit -n")
            return True
        if isinstance(error, NotRegular) or error.errno == errno.ELOOP:
            return False  # never ours to read; the sweep counts it
        self._files[path] = errno.errorcode.get(error.errno or 0, "EIO")
        if error.errno not in _DENIED:  # a permission is granted at any time, a bad disk only gets worse
            pause = self._pauses.get(path, (0.0, PAUSE_SECONDS[0]))[1]
            self._pauses[path] = (now + pause, min(2 * pause, PAUSE_SECONDS[1]))
        return False

    def was_read(self, path: str) -> None:
        self._files.pop(path, None)
        self._pauses.pop(path, None)
        if self._is_short:
            self._is_short = False
            self._troubles.report("descriptors", None)

    def is_missing(self, path: str) -> None:
        """There is nothing to be read in this place."""
        self._files.pop(path, None)
        self._pauses.pop(path, None)

    def is_resting(self, path: str, now: float) -> bool:
        """It failed a while ago, and it is too soon to try again."""
        return path in self._pauses and now < self._pauses[path][0]

    def swept(self, found: Sweep) -> None:
        """What a sweep saw of all this."""
        self._folders = found.unreadable
        for path in [path for path in self._files if not os.path.lexists(path)]:
            self.is_missing(path)
        for path in [path for path in self._hidden if path in found.files]:
            del self._hidden[path]

    def gone_of(self, paths: Iterable[str], known: Mapping[str, Seen], renumbered: Renumbered, now: float) -> list[str]:
        """Those of the missing files that are gone, and not only hidden by another file system in their place."""
        layered: dict[int, bool] = {}
        gone: list[str] = []
        for path in paths:
            is_hidden = _is_hidden(path, known.get(path), renumbered, layered)
            if is_hidden and now - self._hidden.setdefault(path, now) < HIDDEN_SECONDS:
                continue
            self._hidden.pop(path, None)
            if not _is_back(path):
                gone.append(path)
        return gone

    def report(self) -> None:
        unreadable = {**self._folders, **self._files}
        some = ", ".join(sorted(set(unreadable.values())))
        first = next(iter(unreadable), "")
        detail = f"{len(unreadable)} not readable ({some}), such as {first}" if first else None
        is_denied = set(unreadable.values()) <= {"EACCES", "EPERM"}
        fix = "let this user read them: ls -ld shows owner and mode" if is_denied else "the system's log may say more"
        self._troubles.report("unreadable", detail, fix)
        first = next(iter(self._hidden), "")
        count = len(self._hidden)
        detail = f"another file system is where {count} files were, such as {first}" if first else None
        self._troubles.report("hidden", detail, "mount theirs again; without it they count as gone after an hour")


def _is_back(path: str) -> bool:
    """It came meanwhile. A pipe of its name is no file, and through a link it is another place."""
    try:
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
    folder = os.path.dirname(path)
    return is_file and real(folder) == folder


def _is_hidden(path: str, before: Seen | None, renumbered: Renumbered, layered: dict[int, bool]) -> bool:
    folder, there = _nearest_folder(path)
    if before is None or before.device == there or (before.device, there) in renumbered:
        return False
    if there not in layered:
        kind = mounts.file_system(folder) or ""
        layered[there] = kind in _LAYERED or kind.startswith("fuse")
    return not layered[there]


def _nearest_folder(path: str) -> tuple[str, int]:
    """The folder that a file was in, or what is left of the way there, and the device it is on."""
    while True:
        path = os.path.dirname(path)
        try:
            return path, os.stat(path).st_dev
        except OSError:
            if path == os.sep:
                raise
