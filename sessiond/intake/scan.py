"""The truth about the agents' files: a stat walk over every root, and when the next one is due.

Hints may be lost; a sweep may not. It reads names and stats and opens no file, so a FIFO cannot hold it up.
What it could not observe is not deleted: below an unreadable directory or an absent root nothing is missing.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})
_REMEMBERED = 200_000  # answers per flavor: beyond any real home, and a few dozen MB at the very most


@dataclass(frozen=True, slots=True)
class Root:
    """One folder to watch below one agent's home; both may be absent."""

    flavor: str
    home: str
    prefix: str  # the folder's path below the home, such as "projects"

    @property
    def folder(self) -> str:
        return os.path.join(self.home, self.prefix) if self.prefix else self.home


@dataclass(frozen=True, slots=True)
class Seen:
    """What a stat says about a file; any difference means: look again."""

    device: int
    inode: int
    size: int
    mtime_ns: int


@dataclass(slots=True)
class Sweep:
    """What one walk saw. A path is the real one, so the same file has the same name through a linked root."""

    files: dict[str, tuple[Root, str, Seen]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)  # directory -> errno name; its subtree was not seen
    absent: list[Root] = field(default_factory=list)
    special: int = 0  # FIFOs, sockets, devices and links passed over although wanted by name
    ahead: int = 0  # files that say they were written tomorrow or later: a clock was wrong
    tomorrow_ns: int = field(default_factory=lambda: time.time_ns() + 86_400 * 10**9)
    ignored: int = 0  # files that no adapter wants by their name: archives, backups, whatever else an agent keeps
    directories: int = 0
    folders: list[str] = field(default_factory=list)  # the real paths of the roots that exist


@dataclass(frozen=True, slots=True)
class Changes:
    new: list[str]
    changed: list[str]
    missing: list[str]
    renumbered: set[tuple[int, int]] = field(default_factory=set)  # (device before, now) of files that are still there

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.missing)


class Remembered:
    """`wants`, asked once per flavor and path: it decides by these alone, and costs about as much as a stat."""

    def __init__(self, wants: Callable[[Root, str], bool]) -> None:
        self._wants = wants
        self._unwanted: dict[str, set[str]] = {}

    def __call__(self, root: Root, below: str) -> bool:
        unwanted = self._unwanted.setdefault(root.flavor, set())
        if below in unwanted:
            return False
        if self._wants(root, below):
            return True
        if len(unwanted) >= _REMEMBERED:
            unwanted.clear()
        unwanted.add(below)
        return False


def sweep(roots: Sequence[Root], wants: Callable[[Root, str], bool], known: Container[str] = frozenset()) -> Sweep:
    """Every regular file below the roots that `wants` takes by its path below the home.

    A root may be a link; below it none is followed. Where two roots meet, the first that wants a file has it.
    """
    found = Sweep()
    for root in roots:
        folder = real(root.folder)
        try:
            is_directory = stat.S_ISDIR(os.stat(folder).st_mode)
        except OSError as error:
            is_directory = False
            if error.errno not in _GONE:
                found.unreadable[folder] = _name(error)
                continue
        if not is_directory:
            found.absent.append(root)
            continue
        found.folders.append(folder)
        _walk(root, folder, found, wants, known)
    return found


def real(folder: str) -> str:
    """Where a folder really is; itself where that cannot be said, as when a link on the way is being turned."""
    try:
        return os.path.realpath(folder)
    except OSError:
        return folder


def _walk(root: Root, folder: str, found: Sweep, wants: Callable[[Root, str], bool], known: Container[str]) -> None:
    waiting = [(folder, root.prefix.replace(os.sep, "/") + "/" if root.prefix else "")]
    while waiting:
        directory, below = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                found.directories += 1
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, f"{below}{entry.name}/"))
                    elif entry.path in known or wants(root, below + entry.name):
                        _look(root, entry, below + entry.name, found)
                    else:
                        found.ignored += 1
        except OSError as error:
            # One that vanished is not there; one that cannot be read, or not to its end, was not seen.
            if error.errno not in _GONE:
                found.unreadable[directory] = _name(error)


def _look(root: Root, entry: os.DirEntry[str], below: str, found: Sweep) -> None:
    if not entry.is_file(follow_symlinks=False):
        found.special += 1
        return
    try:
        facts = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    seen = Seen(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    found.ahead += seen.mtime_ns > found.tomorrow_ns
    found.files.setdefault(entry.path, (root, below, seen))


def changes(known: Mapping[str, Seen], sweep: Sweep) -> Changes:
    """What differs from what is known. `missing` holds only paths whose place was seen without them."""
    new: list[str] = []
    changed: list[str] = []
    renumbered: set[tuple[int, int]] = set()
    files = sweep.files
    for path, (_, _, seen) in files.items():
        before = known.get(path)
        if before is None:
            new.append(path)
        elif before != seen:
            changed.append(path)
            if before.device != seen.device:
                renumbered.add((before.device, seen.device))
    here = len(files) - len(new)
    missing = [] if here == len(known) else [p for p in known if p not in files and _place_was_seen(p, sweep)]
    return Changes(new, changed, missing, renumbered)


def _place_was_seen(path: str, sweep: Sweep) -> bool:
    # Every directory below an existing root was read, or is named unreadable, or is no longer in its parent.
    if not any(path.startswith(folder + os.sep) for folder in sweep.folders):
        return False
    directory = os.path.dirname(path)
    while sweep.unreadable and directory not in sweep.folders:
        if directory in sweep.unreadable:
            return False
        directory = os.path.dirname(directory)
    return directory not in sweep.unreadable


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "EIO")


class Pace:
    """When the next sweep is due: rarely while the watch is whole and nothing happens, at once when asked.

    Time comes in as monotonic seconds. `hinted` and `hurry` may be called from any thread; what arrives while
    a sweep is running counts for the one after it.
    """

    def __init__(self, *, base: float = 30.0, ceiling: float = 300.0, poll: float = 2.0) -> None:
        self._base = base
        self._ceiling = max(base, ceiling)
        self._poll = poll
        self._interval = 0.0
        self._began = 0.0
        self._took = 0.0
        self._ended: float | None = None  # None: the sweep at start is still to come
        self._hinted = self._was_hinted = False
        self._reasons: dict[str, None] = {}
        self._was_hurried = False
        self._lock = threading.Lock()

    def hinted(self) -> None:
        self._hinted = True

    def hurry(self, reason: str) -> None:
        with self._lock:
            self._reasons[reason] = None

    def wait(self, now: float) -> float:
        """Seconds until the next sweep is due; 0 when it is due now."""
        if self._ended is None:
            return 0.0
        interval = min(self._interval, self._base) if self._hinted else self._interval
        if self._reasons:
            # The first call is heard at once; a storm of them (a tree being unpacked) gets a sweep a second. One that
            # took long, such as over a suspend, puts off neither whoever waits for an answer nor what is due anyway.
            is_storm = self._was_hurried and "asked" not in self._reasons
            interval = min(max(1.0, 10 * self._took), interval) if is_storm else 0.0
        return max(0.0, self._ended + interval - now)

    def due(self, now: float) -> bool:
        return self.wait(now) <= 0

    def begin(self, now: float) -> tuple[str, ...]:
        """A sweep begins; returns what it was hurried by."""
        with self._lock:
            reasons, self._reasons = tuple(self._reasons), {}
        self._was_hurried = bool(reasons)
        self._was_hinted, self._hinted = self._hinted, False
        self._began = now
        return reasons

    def finish(self, now: float, *, changed: bool, watched: bool) -> None:
        """The sweep is done. `watched`: the native watch covers every root, so sweeps may become rare."""
        self._ended = now
        self._took = now - self._began
        if not watched:
            # However large the tree, looking at it by the clock takes no more than a twentieth of a core.
            self._interval = max(self._poll, 20 * self._took)
        elif changed or self._was_hinted:
            self._interval = self._base
        else:
            self._interval = max(self._base, min(2 * self._interval, self._ceiling))


class ClockGap:
    """Notices that the machine slept or its clock was set: hints and timers from before mean little then."""

    def __init__(self, limit_seconds: float = 60.0) -> None:
        self._limit = limit_seconds
        self._offset: float | None = None

    def check(self, monotonic: float, wall: float) -> bool:
        before, self._offset = self._offset, wall - monotonic
        return before is not None and abs(self._offset - before) > self._limit
