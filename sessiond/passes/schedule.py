"""When each pass runs, and never two at once. One lane for scheduled passes and those asked for by hand.

APScheduler keeps the jobs and the thread, but it reckons by the wall clock: set back an hour, it runs nothing for an
hour; set forward, it works through every run it believes it missed. So what is due is decided here, by the monotonic
clock alone (`lane`), and the wall clock serves only to show times and to be watched for jumps.
Only the daemon imports this module: APScheduler takes its time to load.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sessiond.errors import Busy
from sessiond.log.light import structlog
from sessiond.model import utc
from sessiond.passes.clocks import Clocks
from sessiond.passes.lane import DueStore, Every, Lane, MonotonicScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_SECONDS = 10.0

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
        self._clocks = Clocks(clock, monotonic, confirm_after.total_seconds())
        self._lane = Lane(self._take, self._release)
        self._scheduler = MonotonicScheduler(
            self._seconds_left,
            timezone=UTC,
            executors={"default": self._lane},
            jobstores={"default": DueStore(self._due)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def add(self, name: str, interval: timedelta, run: Callable[[], str]) -> None:
        """`run` gives one line for `status`. The first run comes an interval after the start; `hurry` for sooner."""
        one = _Pass(name, _positive(interval), run, self._monotonic())
        with self._lock:
            if name in self._passes:
                raise ValueError(f"there is a pass {name} already")
            self._passes[name] = one
        self._scheduler.add_job(partial(self._run_pass, one), Every(lambda: one.interval), id=name, name=name)

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

    @property
    def clock_ahead(self) -> timedelta:
        """How much of a session's age may be the jump of a doubtful clock; nothing while it is trusted."""
        self.tick()
        return timedelta(seconds=self._clocks.ahead_seconds)

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


def _positive(interval: timedelta) -> timedelta:
    if interval <= timedelta(0):
        raise ValueError(f"a pass cannot run every {interval}")
    return interval


def _closed() -> Busy:
    return Busy("the daemon is starting or stopping", hint="ask again in a moment")
