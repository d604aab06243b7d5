"""The native watch: the kernel's events over all roots.

What watchdog does not tell is found here and mended: a root that was replaced, a thread that died, a full
kernel queue, a directory without a watch.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sessiond.errors import SessiondError
from sessiond.intake.watching import mounts, observer as watchdog
from sessiond.intake.watching.coverage import Coverage, limit_advice
from sessiond.intake.watching.health import Mode, WatchedRoot, WatchHealth, polled
from sessiond.log.light import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from watchdog.observers.api import BaseObserver, ObservedWatch

    from sessiond.intake.scan import Root

RETRY_SECONDS = (30.0, 600.0)  # between attempts to build the watch anew: the first pause, and the longest

log = structlog.get_logger()


class NativeWatch:
    """One recursive watch per root that exists; roots may come, go and be replaced. See `watch.Watch`."""

    def __init__(self, on_hint: Callable[[str], None], on_trouble: Callable[[str], None], *, may_poll: bool) -> None:
        self._on_trouble = on_trouble
        self._may_poll = may_poll
        self._handler = watchdog.Handler(on_hint, on_trouble, self._directory_changed)
        self._observer: BaseObserver | None = None
        self._targets: list[_Target] = []
        self._problems: dict[str, str] = {}
        self._overflows = 0
        self._lost_events = False
        self._new_directories = False
        self._coverage = Coverage()
        self._retry = _Retry()

    @property
    def health(self) -> WatchHealth:
        is_native = self._observer is not None
        roots = tuple(target.health(is_native=is_native) for target in self._targets)
        mode: Mode = "native" if is_native else "poll"
        return WatchHealth(mode, roots, dict(self._problems), self._overflows, is_stale=self._lost_events)

    def start(self, roots: Sequence[Root]) -> None:
        """Watch the roots. SessiondError when the system gives no watch and polling was not allowed."""
        self.stop()
        watchdog.calm()
        self._targets = [_Target(folder) for folder in dict.fromkeys(root.folder for root in roots)]
        self._coverage, self._retry = Coverage(), _Retry()
        self._open()
        if self._observer is None and not self._may_poll:
            why = self._problems["watch_unavailable"]
            self.stop()
            raise SessiondError(f"no native watch: {why}", hint='or poll: watch.mode = "auto"')

    def stop(self) -> None:
        self._close()
        self._targets, self._problems = [], {}

    def check(self, now: float) -> list[str]:
        if not self._targets:
            return []
        reasons = self._check_observer(now) or self._check_roots()
        reasons += self._check_coverage(now)
        for reason in reasons:
            self._on_trouble(reason)
        return reasons

    # Called from watchdog's threads.

    def _overflowed(self) -> None:
        self._overflows += 1
        self._lost_events = True
        self._on_trouble("overflow")

    def _directory_changed(self) -> None:
        # watchdog looks into a new directory by itself; the sweep is for what fell between its steps.
        self._new_directories = True
        self._on_trouble("directory_changed")

    # The observer: watchdog's threads and, on Linux, one inotify instance.

    def _open(self) -> None:
        try:
            observer = watchdog.new_observer(self._overflowed)
            observer.start()
        except (OSError, RuntimeError, ImportError) as error:
            self._problems["watch_unavailable"] = watchdog.why_unavailable(error)
            return
        self._problems.pop("watch_unavailable", None)
        self._observer = observer
        self._lost_events = False
        for target in self._targets:
            self._arm(observer, target, _Place.of(target.folder))

    def _close(self) -> None:
        observer, self._observer = self._observer, None
        for target in self._targets:
            target.place = target.watch = None
        if observer is not None:
            # What is broken may fail to stop in any way; that must not keep us from starting anew.
            with contextlib.suppress(Exception):
                observer.stop()
            observer.join(5)

    def _rebuild(self, now: float) -> list[str]:
        self._retry.later(now)
        self._close()
        self._open()
        return [] if self._observer is None else ["watch_restarted"]

    def _check_observer(self, now: float) -> list[str]:
        reasons = []
        if self._observer is not None and not watchdog.is_alive(self._observer):
            self._close()
            self._problems["watch_unavailable"] = "its threads ended; it is started again"
            reasons = ["watch_stopped"]
        # Lost events may have been those of new or renamed directories: the watches are stale.
        if (self._observer is None or self._lost_events) and now >= self._retry.due:
            if self._lost_events:
                log.warning("watch_overflowed", overflows=self._overflows)
            reasons += self._rebuild(now)
        return reasons

    # The roots.

    def _check_roots(self) -> list[str]:
        observer = self._observer
        if observer is None:
            return []
        # An emitter ends when its root is deleted, and stays ended when the root is made again.
        alive = {emitter.watch for emitter in observer.emitters if emitter.is_alive()}
        changed = False
        for target in self._targets:
            place = _Place.of(target.folder)
            if place != target.place or (target.watch is not None and target.watch not in alive):
                self._arm(observer, target, place)
                changed = True
        return ["root_changed"] if changed else []

    def _arm(self, observer: BaseObserver, target: _Target, place: _Place | None) -> None:
        if target.watch is not None:
            with contextlib.suppress(KeyError):  # it was shared with a root that led to the same folder
                observer.unschedule(target.watch)
        target.place, target.watch, target.polled = place, None, ""
        if place is None:
            return
        self._new_directories = True
        kind = mounts.file_system(place.real) if self._may_poll else None
        if mounts.is_remote(kind):
            target.polled = f"polled: {kind} does not tell what others write"
            return
        try:
            target.watch = observer.schedule(self._handler, place.real, recursive=True, event_filter=watchdog.EVENTS)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                target.place = None  # gone again: the next check looks anew
            target.refused = error.strerror or type(error).__name__

    # Coverage: a watch for each directory (Linux).

    def _check_coverage(self, now: float) -> list[str]:
        if not self._is_short(now):
            return []
        if self._is_limited() and "watch_limit" not in self._problems:
            self._retry.later(now)  # trying again at once would meet the same limit
        reasons = self._rebuild(now) if now >= self._retry.due else []
        if reasons:
            self._compare(now)
        return reasons + self._name_shortage()

    def _is_short(self, now: float) -> bool:
        new_directories, self._new_directories = self._new_directories, False
        if self._observer is None or not self._coverage.is_due(now, new_directories=new_directories):
            return False
        was_short = self._coverage.missing > 0
        self._compare(now)
        if not self._coverage.missing:
            self._name_shortage()
            return False
        if not was_short and not self._is_limited():
            self._coverage.again_soon(now)
            return False
        return True

    def _compare(self, now: float) -> None:
        reader = getattr(self._observer, "reader", None)
        if reader is not None:
            folders = [t.place.real for t in self._targets if t.place is not None and not t.polled]
            self._coverage.compare(now, folders, reader.watched_inodes)

    def _is_limited(self) -> bool:
        reader = getattr(self._observer, "reader", None)
        return reader is not None and bool(reader.limit_reached)

    def _name_shortage(self) -> list[str]:
        """Say in `problems` how coverage stands; the reason for a sweep, if it got worse."""
        missing, total = self._coverage.missing, self._coverage.total
        name = "watch_limit" if self._is_limited() else "watch_incomplete"
        known = name in self._problems
        self._problems.pop("watch_limit", None)
        self._problems.pop("watch_incomplete", None)
        if not missing:
            return []
        advice = limit_advice() if self._is_limited() else "the rest is seen by sweeps alone"
        self._problems[name] = f"{total - missing}/{total} directories watched; {advice}"
        return [] if known else [name]


class _Place(NamedTuple):
    """Where a root really is. The same path with another inode is another folder, and so is the reverse."""

    real: str
    device: int
    inode: int

    @classmethod
    def of(cls, folder: str) -> _Place | None:
        try:
            facts = os.stat(folder)
        except OSError:
            return None
        return cls(os.path.realpath(folder), facts.st_dev, facts.st_ino) if stat.S_ISDIR(facts.st_mode) else None


@dataclass(slots=True)
class _Target:
    folder: str
    place: _Place | None = None
    watch: ObservedWatch | None = None
    polled: str = ""  # why it is left to sweeps on purpose
    refused: str = ""  # why there is no watch

    def health(self, *, is_native: bool) -> WatchedRoot:
        if not is_native:
            return polled(self.folder, "polled: no native watch")
        if self.place is None:
            return WatchedRoot(self.folder, "absent")
        if self.watch is None:
            return WatchedRoot(self.folder, "unwatched", self.polled or self.refused)
        return WatchedRoot(self.folder, "watched")


class _Retry:
    """Spaces the attempts to build the watch anew, ever further; a long quiet time forgets them."""

    def __init__(self) -> None:
        self.due = float("-inf")
        self._pause = RETRY_SECONDS[0]

    def later(self, now: float) -> None:
        if now > self.due + RETRY_SECONDS[1]:
            self._pause = RETRY_SECONDS[0]
        self.due = now + self._pause
        self._pause = min(2 * self._pause, RETRY_SECONDS[1])
