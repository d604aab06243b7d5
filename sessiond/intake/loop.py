"""The ingest loop: one thread that sweeps when it is time, takes paths from the inbox and moves them into the store.

Watch first, then sweep: an overlap is harmless, a gap loses lines. The sign of life for the service manager comes from
here, so that it means something.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import apsw

from sessiond.intake import scan
from sessiond.intake.inbox import Inbox, Lane
from sessiond.intake.progress import History, LastSweep, Ticket
from sessiond.intake.recheck import Recheck
from sessiond.intake.unseen import Unseen
from sessiond.store import gone
from sessiond.store.tombstones import Forgotten

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from sessiond.intake.ingest import Ingest
    from sessiond.intake.scan import Pace, Root, Seen
    from sessiond.intake.watch import Watch
    from sessiond.store.writer import Writer
    from sessiond.trouble import Troubles

TICK_SECONDS = 0.5  # new homes are found by it, and people watch
RETRY_SECONDS = 5.0
FAILED_SECONDS = 3600.0  # until a file that made intake fail is tried again unchanged
LIVE_SECONDS = 60.0  # a file that was written so shortly before the start is no history
PAUSES = ("user", "hard_cap", "keep_free", "store_full")  # of several reasons, the first here is the one told


class IntakeLoop:
    """Owns the watch, the inbox and the reading. `start`, `stop`; everything else may be asked from any thread."""

    def __init__(
        self,
        roots: Sequence[Root],
        wants: Callable[[Root, str], bool],
        ingest: Ingest,
        writer: Writer,
        make_watch: Callable[[Callable[[str], None], Callable[[str], None]], Watch],
        pace: Pace,
        troubles: Troubles,
        *,
        beat: Callable[[], None] = lambda: None,
        has_room: Callable[[], bool] = lambda: True,
        suspect: Callable[[Exception], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        log: Any = None,
    ) -> None:
        self.roots = roots
        self._wants = scan.Remembered(wants)
        self._ingest = ingest
        self._writer = writer
        self._pace = pace
        self._troubles = troubles
        self._beat = beat
        self._has_room = has_room
        self._suspect = suspect  # told of what made intake fail: the store may be damaged
        self._now = now
        self._log = log
        self.inbox = Inbox()
        self.watch = make_watch(self._hint, self._trouble)
        self.history = History()
        self.last_sweep = LastSweep()
        self.vanished = 0
        self._pauses: dict[str, datetime | None] = {}  # why nothing is read, and until when; None: until `resume`
        self._folders = [(scan.real(root.folder) + os.sep, root) for root in roots]
        self._waiting: dict[str, float] = {}  # live paths, since when they wait
        self._backfilling: dict[str, Seen] = {}  # history that waits for its turn, as it was when it was found
        self._failed: deque[tuple[str, Exception]] = deque()
        self._retry: dict[str, float] = {}
        self._resume_at = 0.0  # when the store was full: the next try
        self._failing: set[str] = set()  # files that made intake fail; "": something else did
        self._unstored: dict[str, int] = {}  # files of which the writer could not store what was read -> bytes
        self._unseen = Unseen(troubles)
        self._behind: dict[str, int] = {}  # live files that had more to give than one chunk -> bytes
        self._tickets: list[Ticket] = []
        self._clock_gap = scan.ClockGap()
        self._next_tick = 0.0
        self._recheck = Recheck(time.monotonic())
        self._stopping = False
        self._going = threading.Event()
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        """Watching has begun when this returns; the first sweep follows."""
        self.watch.start(self.roots)
        self._thread.start()

    def stop(self) -> None:
        """Finish the chunk under way, no more."""
        self._stopping = True
        self._going.set()
        self.inbox.wake()
        if self._thread.ident is not None:
            self._thread.join()
        self.watch.stop()

    def ask(self) -> Ticket:
        """Sweep now; the ticket is stored when all that was found then is."""
        ticket = Ticket()
        self._tickets.append(ticket)
        self._pace.hurry("asked")
        self.inbox.wake()
        return ticket

    def adopt(self, tickets: list[Ticket]) -> None:
        """Go on with the promises of the loop before this one."""
        for ticket in tickets:
            ticket.waiting = None
            self._tickets.append(ticket)
        if tickets:
            self._pace.hurry("asked")

    @property
    def open_tickets(self) -> list[Ticket]:
        return list(self._tickets)

    def pause(self, name: str, until: datetime | None = None) -> None:
        """Begin reading nothing more, for this reason and until then. Cursors stay where they are."""
        self._pauses[name] = until
        self._going.clear()

    def resume(self, name: str) -> None:
        """This reason is over; reading goes on where there is no other."""
        self._pauses.pop(name, None)
        if not self._pauses:
            self._going.set()

    @property
    def pauses(self) -> dict[str, datetime | None]:
        return dict(self._pauses)

    @property
    def paused_by(self) -> str | None:
        names = list(self._pauses)
        return min(names, key=lambda name: (PAUSES.index(name) if name in PAUSES else len(PAUSES), name), default=None)

    @property
    def is_reading(self) -> bool:
        """A chunk is under way: a pause that began meanwhile holds after it."""
        return self._reading != ""

    @property
    def lag_seconds(self) -> float:
        """How long the live file that waits longest has been waiting."""
        oldest = min(list(self._waiting.values()), default=None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    @property
    def lag_bytes(self) -> int:
        """What is known to be written and not yet stored: not read, on its way, or to be read again."""
        unread = {**self._unstored, **self._behind, **self.history.left}
        return sum(unread.values()) + self._writer.queued_bytes

    @property
    def links(self) -> dict[str, str]:
        return self._ingest.links

    @property
    def next_sweep_in(self) -> float:
        return self._pace.wait(time.monotonic())

    # --- hints, from the watch's threads --------------------------------------------------------

    def _hint(self, path: str) -> None:
        for folder, root in self._folders:
            if path.startswith(folder):
                below = f"{root.prefix}/{path[len(folder) :]}" if root.prefix else path[len(folder) :]
                if self._wants(root, below):
                    self._pace.hinted()
                    self._put(path, Lane.LIVE)
                return

    def _trouble(self, word: str) -> None:
        self._pace.hurry(word)
        self.inbox.wake()

    def failed(self, path: str, size: int, error: Exception) -> None:
        """The writer could not store what was read of this file."""
        self._failed.append((path, error))
        if isinstance(error, Forgotten):
            return  # as it should be
        self._unstored[path] = self._unstored.get(path, 0) + size
        self._name_trouble(error)  # at once: whoever asked must not be told that all is well
        self.inbox.wake()

    def leave_alone(self, paths: Iterable[str]) -> None:
        """The sessions of these files were forgotten. The loop's own thread drops what it knows of them."""
        self._failed.extend((path, Forgotten()) for path in paths)

    # --- the loop -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - the loop's outer edge: it must go on, and say so
                self._suspect(error)
                self._failing.add(self._reading)
                self._troubles.report("intake", f"{type(error).__name__}: it goes on with the next file")
                if self._log is not None:
                    self._log.exception("intake_failed")
                time.sleep(0.1)  # whatever it is, do not spin on it

    _reading = ""

    def _turn(self) -> None:
        self._reading = ""
        self._beat()
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK_SECONDS
            self._tick(now)
        if self._pace.due(now) and self.paused_by is None:
            self._sweep()
        if self.paused_by is None and not self._has_room():
            self.pause("keep_free")  # whoever makes room ends it
        if self.paused_by is not None:
            self._going.wait(TICK_SECONDS)
            return
        taken = self.inbox.take(timeout=max(0.0, min(self._next_tick - now, self._pace.wait(now))))
        if taken is not None:
            self._reading = taken[0]
            if not self._pauses:  # asked once more after `_reading` is set: whoever pauses looks at that
                self._read(*taken)
            else:
                self.inbox.put_back(taken[0])
            self._reading = ""

    def _tick(self, now: float) -> None:
        for _ in range(len(self._failed)):
            self._give_up(*self._failed.popleft(), now)
        for reason in self.watch.check(now):
            self._pace.hurry(reason)
        if self._clock_gap.check(now, self._now().timestamp()):
            self._pace.hurry("clock_gap")
        for path in [path for path, at in self._retry.items() if at <= now]:
            del self._retry[path]
            self._put(path, Lane.LIVE)
        for name, until in self.pauses.items():
            if (until is not None and until <= self._now()) or (name == "store_full" and now >= self._resume_at):
                self.resume(name)
        self._report_health()

    def _report_health(self) -> None:
        health = self.watch.health
        for name in ("watch_limit", "watch_incomplete", "watch_unavailable"):
            if name not in health.problems:
                self._troubles.report(name, None)
        for name, problem in health.problems.items():
            self._troubles.report(name, problem)
        if not self._failing:
            self._troubles.report("intake", None)
        self._unseen.report()

    # --- sweeping -------------------------------------------------------------------------------

    def _sweep(self) -> None:
        began = time.monotonic()
        self._pace.begin(began)
        tickets = [ticket for ticket in self._tickets if ticket.waiting is None]
        found = scan.sweep(self.roots, self._wants, self._ingest.known)
        changes = scan.changes(self._ingest.known, found)
        self._unseen.swept(found)
        self._folders = [(scan.real(root.folder) + os.sep, root) for root in self.roots]
        is_first = self.last_sweep.at is None
        for path in (*changes.new, *changes.changed):
            if not self._unseen.is_resting(path, began):
                self._queue(path, found.files[path][2], is_first=is_first)
        for path in self._recheck.due(began, found.files):
            self.inbox.put(path, Lane.BACKFILL)
        if changes.missing:
            self._mark_gone(changes.missing, changes.renumbered)
        for ticket in tickets:
            ticket.waiting = {*self._waiting, *self.history.left}
            self._settle(ticket)
        self._failing = {path for path in self._failing if path in found.files}
        ended = time.monotonic()
        self._pace.finish(ended, changed=bool(changes), watched=self.watch.health.is_complete)
        if found.ahead > self.last_sweep.ahead and self._log is not None:
            self._log.warning("future_mtime_seen", files=found.ahead)
        seen = (len(found.files), found.special, found.ignored, found.ahead)
        self.last_sweep = LastSweep(self._now(), ended - began, *seen)

    def _queue(self, path: str, seen: Seen, *, is_first: bool) -> None:
        if self._backfilling.get(path) == seen:
            return  # found by an earlier sweep, unchanged since: its turn comes
        if not is_first or seen.mtime_ns / 1e9 > self._now().timestamp() - LIVE_SECONDS:
            self._put(path, Lane.LIVE)
            return
        known = self._ingest.known.get(path)
        if known is not None:
            self._recheck.note(path)
        size = seen.size - (known.size if known is not None and known.size <= seen.size else 0)
        if not self.history.total_bytes:
            self.history.began = time.monotonic()
        self.history.total_bytes += size
        self.history.left[path] = size
        self._backfilling[path] = seen
        self.inbox.put(path, Lane.BACKFILL, seen.mtime_ns)

    def _put(self, path: str, lane: Lane) -> None:
        self._waiting.setdefault(path, time.monotonic())
        self._recheck.note(path)
        self.inbox.put(path, lane)

    def _mark_gone(self, paths: list[str], renumbered: Container[tuple[int, int]] = ()) -> None:
        lost = self._unseen.gone_of(paths, self._ingest.known, renumbered, time.monotonic())
        if not lost:
            return
        now = self._now()
        self._writer.drain()  # a chunk of it that is written after would say that it is there
        self._writer.call(lambda db: gone.mark_gone(db, lost, now))
        for path in lost:
            self._ingest.gone(path)
            self._unstored.pop(path, None)

    # --- reading --------------------------------------------------------------------------------

    def _read(self, path: str, lane: Lane) -> None:
        try:
            whole = self._recheck.is_doubted(path)
            taken = self._ingest.take_in(path, urgent=lane is Lane.LIVE, whole=whole)
        except OSError as error:
            try:
                self._cannot_read(path, error)
            finally:
                self._done(path)
            return
        except Exception:
            self._retry[path] = time.monotonic() + FAILED_SECONDS
            self._ingest.forget(path)
            with suppress(OSError):
                self._ingest.look_again_when_changed(path)
            self._done(path)
            raise
        self._unseen.was_read(path)
        self._failing.discard(path)
        self._progress(path, taken.bytes, lane)
        if taken.more:
            self._behind[path] = taken.left
            self.inbox.put_back(path)
        else:
            self._done(path)

    def _done(self, path: str) -> None:
        self._waiting.pop(path, None)
        self._behind.pop(path, None)
        self._backfilling.pop(path, None)
        self.history.done_bytes += self.history.left.pop(path, 0)
        if self.history.total_bytes and not self.history.left and self.history.ended is None:
            self.history.ended = time.monotonic()
        self.inbox.done(path)
        for ticket in list(self._tickets):
            if ticket.waiting is not None:
                ticket.waiting.discard(path)
                self._settle(ticket)

    def _settle(self, ticket: Ticket) -> None:
        if not ticket.waiting and ticket in self._tickets:
            self._writer.drain()
            busy = {path for path, error in self._failed if isinstance(error, apsw.BusyError)}
            if busy:
                ticket.waiting = busy  # read again in a moment; whatever else failed is named in the answer
                return
            self._tickets.remove(ticket)
            ticket.is_stored = True

    def _progress(self, path: str, size: int, lane: Lane) -> None:
        left = self.history.left.get(path)
        if left is not None:
            step = min(size, left)
            self.history.left[path] = left - step
            self.history.done_bytes += step
            if lane is Lane.BACKFILL and path in self._ingest.known:
                self.history.reached_ns = self._ingest.known[path].mtime_ns

    def _cannot_read(self, path: str, error: OSError) -> None:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            self._unseen.is_missing(path)
            if not self._ingest.lost(path):
                self.vanished += 1
            elif any(path.startswith(folder) and os.path.isdir(folder) for folder, _ in self._folders):
                self._mark_gone([path])  # its place was seen without it; below a root that is absent nothing is gone
            return
        self._ingest.forget(path)
        if self._unseen.failed(path, error, time.monotonic()):
            self._retry[path] = time.monotonic() + RETRY_SECONDS

    def _give_up(self, path: str, error: Exception, now: float) -> None:
        if isinstance(error, Forgotten):
            self._ingest.leave_alone(path)
            return
        self._ingest.forget(path)
        self._retry[path] = now + RETRY_SECONDS
        if isinstance(error, apsw.FullError):
            self._resume_at = now + RETRY_SECONDS
            self.pause("store_full")

    def _name_trouble(self, error: Exception) -> None:
        if isinstance(error, apsw.FullError):
            self._troubles.report("store_full", "the disk is full: nothing more is taken in", "make room; it resumes")
        elif isinstance(error, apsw.BusyError):
            self._troubles.report("store_busy", "another program holds the store locked", "close it; it resumes")
        else:
            self._troubles.report("store_write", f"{type(error).__name__} while storing", "sessiond doctor")

    def stored(self, paths: Iterable[str]) -> None:
        """A commit went through: what kept the store from being written is over; a file that it refuses is not."""
        for path in paths:
            self._unstored.pop(path, None)
        for name in ("store_full", "store_busy", *(() if self._unstored else ("store_write",))):
            self._troubles.report(name, None)
