"""When each pass runs, and never two at once. One lane for scheduled passes and those asked for by hand.

APScheduler keeps the jobs and the thread, but it reckons by the wall clock: set back an hour, it runs nothing for an
hour; set forward, it works through every run it believes it missed. So what is due is decided here, by the monotonic
clock alone (`_Store`, `_Scheduler`), and the wall clock serves only to show times and to be watched for jumps.
Only the daemon imports this module: APScheduler takes its time to load.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from apscheduler.executors.base import BaseExecutor  # type: ignore[import-untyped]
from apscheduler.jobstores.memory import MemoryJobStore  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]
from apscheduler.triggers.base import BaseTrigger  # type: ignore[import-untyped]

from sessiond.errors import Busy
from sessiond.log.light import structlog
from sessiond.model import utc

if TYPE_CHECKING:
    from collections.abc import Callable

JUMP_SECONDS = 5.0
DOUBTFUL_SECONDS = 86_400.0
STOP_SECONDS = 10.0
_SHORTEST_WAIT = 0.05  # should a due job not be taken after all, the loop must not spin on it
_LONGEST_WAIT = 3600.0
_RETRY_SECONDS = 1.0

log = structlog.get_logger()


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Schedule:
    """Runs each pass an interval after its last run ended, one at a time. Every method is safe from any thread.

    A pass that fails is counted and told of, and its next run happens. However late a run is, it is one run.
    """

    def __init__(
        self,
        clock: Callable[[], datetime] = _utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        on_failure: Callable[[str, Exception], None],
        on_success: Callable[[str], None],
        confirm_after: timedelta = timedelta(minutes=10),
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._on_failure = on_failure
        self._on_success = on_success
        self._lock = threading.Lock()  # never held while APScheduler is called: it calls back with its own lock held
        self._passes: dict[str, _Pass] = {}
        self._running: tuple[str, datetime] | None = None
        self._is_open = False
        self.stopping = threading.Event()
        self._clocks = _Clocks(clock, monotonic, confirm_after.total_seconds())
        self._lane = _Lane(self._take, self._release)
        self._scheduler = _Scheduler(
            self._seconds_left,
            timezone=UTC,
            executors={"default": self._lane},
            jobstores={"default": _Store(self._due)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def add(self, name: str, interval: timedelta, run: Callable[[], str]) -> None:
        """`run` gives one line for `status`. The first run comes an interval after the start; `hurry` for sooner."""
        one = _Pass(name, _positive(interval), run, self._monotonic())
        with self._lock:
            if name in self._passes:
                raise ValueError(f"there is a pass {name} already")
            self._passes[name] = one
        self._scheduler.add_job(partial(self._run_pass, one), _Every(one), id=name, name=name)

    def start(self) -> None:
        with self._lock:
            self._is_open = True
            for one in self._passes.values():
                one.since = self._monotonic()
        self._scheduler.start()

    def stop(self, within_seconds: float = STOP_SECONDS) -> bool:
        """Nothing new begins; the present run may end. False: it did not in time, and is left behind.

        A pass that takes long should look at `stopping` now and then.
        """
        with self._lock:
            was_open, self._is_open = self._is_open, False
            self.stopping.set()
        if was_open:
            self._scheduler.shutdown(wait=False)
        if self._lane.join(within_seconds):
            return True
        log.warning("pass_left_behind", name=self._running and self._running[0])
        return False

    def tick(self) -> None:
        """Once a second: notices a wall clock that was set, and has what is left of each interval reckoned anew."""
        if self._clocks.look():
            # Some builds of Python time a lock's wait by the wall clock: set back, that wait would not end.
            self._wake()

    @property
    def clock_doubtful(self) -> bool:
        """Whether the wall clock has jumped by more than a day and not yet gone steadily for `confirm_after` since.

        It looks at the clocks itself: a jump since the last tick counts. Read `now` first, then ask.
        """
        self.tick()
        return self._clocks.is_doubtful

    def hurry(self, name: str) -> None:
        """One run that begins after this call, as soon as the lane is free; asking again before it begins adds none."""
        with self._lock:
            self._passes[name].is_hurried = True
        self._wake()

    def request(self, name: str, run: Callable[[], Any]) -> Future[Any]:
        """Something by hand, in its turn. The asker is told how it ended; `report` only shows it as running."""
        future: Future[Any] = Future()
        with self._lock:  # so that nothing enters the lane behind its end
            if not self._is_open:
                raise _closed()
            self._lane.put(partial(self._run_request, name, run, future))
        return future

    def set_interval(self, name: str, interval: timedelta) -> None:
        """Counts from where the present interval began, so that many reloads do not put a run off for ever."""
        with self._lock:
            self._passes[name].interval = _positive(interval)
        self._wake()

    def report(self) -> dict[str, dict[str, Any]]:
        with self._lock:
            now, monotonic = self._clock().astimezone(UTC), self._monotonic()
            running, since = self._running or (None, None)
            return {
                name: {
                    "last_at": utc(one.last_at) if one.last_at else None,
                    "last_result": one.last_result,
                    "next_at": None
                    if name == running or not self._is_open
                    else utc(now + timedelta(seconds=max(one.due - monotonic, 0.0))),
                    "running_since": utc(since) if since is not None and name == running else None,
                    "runs": one.runs,
                    "failures": one.failures,
                    "took_ms": one.took_ms,
                }
                for name, one in self._passes.items()
            }

    # --- in the lane ----------------------------------------------------------------------------

    def _run_pass(self, one: _Pass) -> None:
        if not self._begin(one.name):
            return
        began = self._monotonic()
        failure: Exception | None = None
        try:
            result = one.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next run happens
            failure, result = error, f"failed: {type(error).__name__}"
        with self._lock:
            self._running = None
            one.runs += 1
            one.failures += failure is not None
            one.last_at, one.last_result = self._clock(), result
            one.took_ms = round((self._monotonic() - began) * 1000)
        self._tell(one.name, failure)

    def _run_request(self, name: str, run: Callable[[], Any], future: Future[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if not self._begin(name, by_hand=True):
            future.set_exception(_closed())
            return
        try:
            result = run()
        except BaseException as error:  # noqa: BLE001 - the asker waits for it, and the lane must go on
            self._end()
            future.set_exception(error)
        else:
            self._end()  # first: who has the answer must not find it still running
            future.set_result(result)

    def _begin(self, name: str, *, by_hand: bool = False) -> bool:
        with self._lock:
            if self.stopping.is_set():
                return False
            self._running = (name, self._clock())
            if not by_hand:
                self._passes[name].is_hurried = False  # whoever asks from now on wants another run
            return True

    def _end(self) -> None:
        with self._lock:
            self._running = None

    def _tell(self, name: str, failure: Exception | None) -> None:
        try:
            if failure is None:
                self._on_success(name)
            else:
                self._on_failure(name, failure)
        except Exception:
            log.exception("pass_report_failed", name=name)

    # --- what APScheduler asks ------------------------------------------------------------------

    def _due(self) -> list[str]:
        with self._lock:
            now = self._monotonic()
            waiting = [one for one in self._passes.values() if not one.is_taken and one.due <= now]
            return [one.name for one in sorted(waiting, key=lambda one: one.due)]

    def _seconds_left(self) -> float | None:
        """Until the next is due; None when all are in the lane: the end of one wakes the loop."""
        with self._lock:
            waiting = [one.due for one in self._passes.values() if not one.is_taken]
            return min(waiting) - self._monotonic() if waiting else None

    def _take(self, name: str) -> None:
        with self._lock:
            self._passes[name].is_taken = True

    def _release(self, name: str) -> None:
        with self._lock:
            one = self._passes[name]
            one.is_taken, one.since = False, self._monotonic()
        self._wake()

    def _wake(self) -> None:
        if self._scheduler.running:
            self._scheduler.wakeup()


@dataclass(slots=True)
class _Pass:
    name: str
    interval: timedelta
    run: Callable[[], str]
    since: float  # by the monotonic clock: from where its interval counts
    is_hurried: bool = False
    is_taken: bool = False  # waits in the lane, or runs
    last_at: datetime | None = None
    last_result: str | None = None
    runs: int = 0
    failures: int = 0
    took_ms: int | None = None

    @property
    def due(self) -> float:
        return float("-inf") if self.is_hurried else self.since + self.interval.total_seconds()


class _Clocks:
    """Holds the wall clock against the monotonic one."""

    def __init__(self, wall: Callable[[], datetime], monotonic: Callable[[], float], confirm_seconds: float) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._confirm_seconds = confirm_seconds
        self._lock = threading.Lock()
        self._steady_since, self._offset = self._read()
        self._trusted = self._offset
        self.is_doubtful = False

    def look(self) -> bool:
        """Whether the wall clock has jumped since the last look."""
        with self._lock:
            now, offset = self._read()
            jump, self._offset = offset - self._offset, offset
            if abs(jump) > JUMP_SECONDS:
                self._steady_since = now
                log.warning("clock_jumped", seconds=round(jump))
            # Against the time last trusted, not the last look: two jumps of 20 hours are one of 40.
            if abs(offset - self._trusted) > DOUBTFUL_SECONDS:
                self.is_doubtful = True
            if now - self._steady_since >= self._confirm_seconds:
                self._trusted, self.is_doubtful = offset, False
            return abs(jump) > JUMP_SECONDS

    def _read(self) -> tuple[float, float]:
        now = self._monotonic()
        # timestamp(): the difference of two local times is an hour off where summer time ends.
        return now, self._wall().timestamp() - now


class _Every(BaseTrigger):  # type: ignore[misc]
    """Always an interval from now, whatever was missed: there is never a second run to catch up with."""

    def __init__(self, one: _Pass) -> None:
        self._one = one

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:  # noqa: ARG002
        return now + self._one.interval


class _Store(MemoryJobStore):  # type: ignore[misc]
    """Has due what the monotonic clock says, whatever time APScheduler believes it is."""

    def __init__(self, due: Callable[[], list[str]]) -> None:
        super().__init__()
        self._due = due

    def get_due_jobs(self, now: datetime) -> list[Any]:
        jobs = [self.lookup_job(name) for name in self._due()]
        due = [job for job in jobs if job is not None]  # one just being added comes a moment later
        for job in due:
            job.next_run_time = now  # else APScheduler, by its own reckoning, might find nothing to run
        return due


class _Scheduler(BackgroundScheduler):  # type: ignore[misc]
    def __init__(self, seconds_left: Callable[[], float | None], **options: Any) -> None:
        super().__init__(**options)
        self._seconds_left = seconds_left

    def _process_jobs(self) -> float | None:
        """Take what is due; how long to wait then, by the monotonic clock instead of the wall clock."""
        try:
            super()._process_jobs()
        except Exception:
            log.exception("schedule_failed")  # a date beyond the year 9999; the thread must live to see a better one
            return _RETRY_SECONDS
        left = self._seconds_left()
        return None if left is None else min(max(left, _SHORTEST_WAIT), _LONGEST_WAIT)


class _Lane(BaseExecutor):  # type: ignore[misc]
    """One thread, one thing at a time, in the order of asking. A stuck pass cannot keep the process: daemon thread."""

    def __init__(self, take: Callable[[str], None], release: Callable[[str], None]) -> None:
        super().__init__()
        self._take = take
        self._release = release
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="passes", daemon=True)

    def start(self, scheduler: Any, alias: str) -> None:
        super().start(scheduler, alias)
        self._thread.start()

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - APScheduler's; `join` waits, within a bound
        self._work.put(None)

    def join(self, seconds: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def put(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:  # noqa: ARG002
        self._take(job.id)
        self.put(partial(self._run, job))

    def _run(self, job: Any) -> None:
        job.func()
        self._run_job_success(job.id, [])  # before it may be due again, else APScheduler finds it still running
        self._release(job.id)

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _positive(interval: timedelta) -> timedelta:
    if interval <= timedelta(0):
        raise ValueError(f"a pass cannot run every {interval}")
    return interval


def _closed() -> Busy:
    return Busy("the daemon is starting or stopping", hint="ask again in a moment")
