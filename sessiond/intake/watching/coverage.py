"""Whether every directory has a watch: inotify needs one for each, and watchdog tells of no failure.

Linux only in effect: FSEvents watches a tree as one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

EVERY_SECONDS = 60.0
LAG_SECONDS = 2.0  # a directory made a moment ago: watchdog is on its way to it
MAX_USER_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")


class Coverage:
    """Compares directories with watches: each minute at most, and soon after new directories."""

    def __init__(self) -> None:
        self.missing = 0  # directories without a watch, of `total`
        self.total = 0
        self._due = 0.0
        self._compared = float("-inf")
        self._took = 0.0

    def is_due(self, now: float, *, new_directories: bool) -> bool:
        if new_directories:
            self._due = min(self._due, self._compared + max(5.0, 100 * self._took))
        return now >= self._due

    def again_soon(self, now: float) -> None:
        self._due = now + LAG_SECONDS

    def compare(self, now: float, folders: Sequence[str], watched_inodes: Callable[[], list[int]]) -> None:
        began = time.perf_counter()
        directories = directory_inodes(folders)
        self.total = len(directories)
        # Asked second: a directory made in between has a watch too many, not one too few.
        self.missing = _uncovered(directories, directory_inodes(folders, depth=0), watched_inodes())
        self._took = time.perf_counter() - began
        self._compared = now
        # However large the tree, this takes no more than a thousandth of a core.
        self._due = now + max(EVERY_SECONDS, 1000 * self._took)


def directory_inodes(folders: Iterable[str], depth: int | None = None) -> set[int]:
    """The inode of every directory at and below `folders` that can be read, which is what can be watched."""
    inodes: set[int] = set()
    waiting = list(folders)
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                if depth is None:
                    waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            # Not the entry's own inode: over a mount point that is the covered directory's.
            inodes.add(os.lstat(directory).st_ino)
        except OSError:
            continue  # unreadable or gone: the sweep names it
    return inodes


def _uncovered(directories: set[int], roots: set[int], watched: list[int]) -> int:
    inodes = set(watched)
    if roots <= inodes:
        return len(directories - inodes)
    # Stacked file systems show other inode numbers than those the kernel watches: then only counts compare.
    return max(0, len(directories) - len(watched))


def limit_advice() -> str:
    """How to raise the limit on watches, with a number that suffices."""
    try:
        now = int(MAX_USER_WATCHES.read_text())
    except (OSError, ValueError):
        now = 0
    return f"raise fs.inotify.max_user_watches: sudo sysctl fs.inotify.max_user_watches={max(524_288, 2 * now)}"
