"""APScheduler as the schedule uses it: due by the monotonic clock, never catching up, one thing at a time."""

from __future__ import annotations

import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from apscheduler.executors.base import BaseExecutor  # type: ignore[import-untyped]
from apscheduler.jobstores.memory import MemoryJobStore  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]
from apscheduler.triggers.base import BaseTrigger  # type: ignore[import-untyped]

from sessiond.log.light import structlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

_SHORTEST_WAIT = 0.05  # should a due job not be taken after all, the loop must not spin on it
_LONGEST_WAIT = 3600.0
_RETRY_SECONDS = 1.0

log = structlog.get_logger()


class Every(BaseTrigger):  # type: ignore[misc]
    """Always an interval from now, whatever was missed: there is never a second run to catch up with."""

    def __init__(self, interval: Callable[[], timedelta]) -> None:
        self._interval = interval

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:  # noqa: ARG002
        return now + self._interval()


class DueStore(MemoryJobStore):  # type: ignore[misc]
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


class MonotonicScheduler(BackgroundScheduler):  # type: ignore[misc]
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


class Lane(BaseExecutor):  # type: ignore[misc]
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
