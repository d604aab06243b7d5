"""Passes on time whatever the wall clock does, one at a time whoever asks, and none lost to a failure."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import CancelledError
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import apscheduler.executors.base
import apscheduler.schedulers.base
import pytest

from sessiond.errors import Busy
from sessiond.log.light import structlog
from sessiond.model import parse_utc
from sessiond.passes.schedule import Schedule

SOON = timedelta(milliseconds=30)
LATER = timedelta(hours=1)
DEADLINE = 10.0


class Clock:
    """The wall clock, ahead of the real one by `ahead`; APScheduler reads it as well (`everywhere`)."""

    def __init__(self, ahead: timedelta = timedelta(0), zone=UTC) -> None:
        self.ahead = ahead
        self.zone = zone

    def __call__(self) -> datetime:
        return (datetime.now(UTC) + self.ahead).astimezone(self.zone)

    def everywhere(self, monkeypatch) -> Clock:
        clock = self

        class Shifted(datetime):
            @classmethod
            def now(cls, tz=None):
                return (datetime.now(UTC) + clock.ahead).astimezone(tz)

        monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Shifted)
        monkeypatch.setattr(apscheduler.executors.base, "datetime", Shifted)
        return self


class ByHand:
    """Both clocks, moved by the test alone."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 3, 1, tzinfo=UTC)
        self.seconds = 1000.0

    def clock(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def pass_by(self, **span) -> None:
        self.wall += timedelta(**span)
        self.seconds += timedelta(**span).total_seconds()

    def jump(self, **span) -> None:
        self.wall += timedelta(**span)


class Told:
    """A pass that counts its runs, and what the schedule's owner was told."""

    def __init__(self) -> None:
        self.runs = 0
        self.failures: list[tuple[str, str]] = []
        self.successes: list[str] = []
        self._changed = threading.Condition()

    def run(self) -> str:
        self._count("runs")
        return f"run {self.runs}"

    def on_failure(self, name: str, error: Exception) -> None:
        self._note(self.failures, (name, str(error)))

    def on_success(self, name: str) -> None:
        self._note(self.successes, name)

    def _count(self, field: str) -> None:
        with self._changed:
            setattr(self, field, getattr(self, field) + 1)
            self._changed.notify_all()

    def _note(self, where: list, what: object) -> None:
        with self._changed:
            where.append(what)
            self._changed.notify_all()

    def wait(self, condition) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE)

    def wait_for_runs(self, more: int) -> None:
        wanted = self.runs + more
        self.wait(lambda: self.runs >= wanted)


class Gate:
    """A pass that says when it has begun, and goes on when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def run(self) -> str:
        self.begun.release()
        assert self.go_on.acquire(timeout=DEADLINE)
        return "done"

    def has_begun(self) -> bool:
        return self.begun.acquire(timeout=DEADLINE)


class Alone:
    """Fails whoever is in it together with another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.overlaps = 0
        self.entered = 0

    def run(self) -> str:
        if not self._lock.acquire(blocking=False):
            self.overlaps += 1
            return "overlapped"
        try:
            self.entered += 1
            time.sleep(0.002)  # stay in it long enough to be met
        finally:
            self._lock.release()
        return "alone"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def make(told):
    """A schedule that is stopped at the end; what its library complains of fails the test."""
    made: list[Schedule] = []
    complaints: list[str] = []

    class Complaints(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(record.getMessage())

    handler = Complaints(logging.WARNING)
    logging.getLogger("apscheduler").addHandler(handler)

    def make(*clocks, **options) -> Schedule:
        made.append(Schedule(*clocks, on_failure=told.on_failure, on_success=told.on_success, **options))
        return made[-1]

    yield make
    try:
        stopped = [schedule.stop(DEADLINE) for schedule in made]
        assert all(stopped)
        assert complaints == []
    finally:
        logging.getLogger("apscheduler").removeHandler(handler)


def until(condition) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# --- on time, whatever the wall clock does ---


@pytest.mark.fault(72)
@pytest.mark.fault(73)
@pytest.mark.parametrize(
    "jump",
    [timedelta(hours=-1), timedelta(days=60), timedelta(days=3650), timedelta(days=-3650)],
    ids=["-1h", "+60d", "+10y", "-10y"],
)
def test_a_set_clock_neither_delays_nor_repeats_a_run(make, told, monkeypatch, jump):
    clock = Clock().everywhere(monkeypatch)
    rare = Told()
    schedule = make(clock)
    schedule.add("often", SOON, told.run)
    schedule.add("rarely", LATER, rare.run)
    schedule.start()
    told.wait_for_runs(2)
    tracemalloc.start()
    cpu, began, runs = time.process_time(), time.monotonic(), told.runs

    clock.ahead += jump
    told.wait_for_runs(10)  # without a tick: being on time does not hang on it

    took = time.monotonic() - began
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told.runs - runs <= took / SOON.total_seconds() + 1  # nothing was caught up with
    assert rare.runs == 0
    assert time.process_time() - cpu < 1.0
    assert memory < 2_000_000
    schedule.tick()
    due_in = parse_utc(schedule.report()["rarely"]["next_at"]) - clock()
    assert timedelta(minutes=59) < due_in <= LATER


@pytest.mark.fault(73)
@pytest.mark.fault(75)
def test_a_run_much_too_late_is_one_run(make, told):
    times = ByHand()
    schedule = make(times.clock, times.monotonic)
    schedule.add("late", LATER, told.run)
    schedule.start()

    times.pass_by(days=3650)
    schedule.set_interval("late", LATER)  # has the loop look again
    told.wait(lambda: told.successes)

    schedule.request("after", lambda: None).result(DEADLINE)
    assert told.runs == 1
    assert parse_utc(schedule.report()["late"]["next_at"]) == times.wall + LATER


@pytest.mark.fault(72)
def test_a_jump_makes_the_loop_look_again(make, told):
    """Some builds of Python wait by the wall clock; the tick ends such a wait."""
    times = ByHand()
    schedule = make(times.clock, times.monotonic)
    schedule.add("one", LATER, told.run)
    schedule.start()
    schedule.request("settled", lambda: None).result(DEADLINE)

    times.pass_by(hours=1)
    times.jump(hours=-5)
    schedule.tick()

    told.wait(lambda: told.runs == 1)


@pytest.mark.fault(74)
@pytest.mark.parametrize(
    "change",
    [datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)],
    ids=["fold", "gap"],
)
def test_the_days_on_which_summer_time_ends_and_begins(make, told, monkeypatch, change):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        zone = ZoneInfo("Europe/Berlin")
        clock = Clock(change - datetime.now(UTC) - timedelta(seconds=0.5), zone).everywhere(monkeypatch)
        assert clock().utcoffset() != (clock() + timedelta(days=1)).utcoffset()
        schedule = make(clock)
        schedule.add("often", SOON, told.run)
        schedule.add("rarely", LATER, Told().run)
        with structlog.testing.capture_logs() as logs:
            schedule.start()
            next_at = parse_utc(schedule.report()["rarely"]["next_at"])
            told.wait(lambda: told.runs > 3 and clock().astimezone(UTC) > change)
            schedule.tick()
            told.wait_for_runs(5)
        assert logs == []  # no jump was seen
        assert abs(next_at - change - LATER) < timedelta(seconds=1)
        assert abs(parse_utc(schedule.report()["rarely"]["next_at"]) - next_at) < timedelta(seconds=0.5)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_clock_beyond_all_dates_is_outlived(make, told, monkeypatch):
    clock = Clock().everywhere(monkeypatch)
    schedule = make()
    schedule.add("often", SOON, told.run)
    schedule.start()
    told.wait_for_runs(1)

    with structlog.testing.capture_logs() as logs:
        clock.ahead = timedelta.max  # now() itself raises
        until(lambda: logs)
        clock.ahead = timedelta(0)
        told.wait_for_runs(2)

    assert {line["event"] for line in logs} == {"schedule_failed"}


# --- a clock to be doubted ---


@pytest.mark.fault(73)
@pytest.mark.parametrize("span", [{"days": 60}, {"days": -60}, {"hours": 25}])
def test_a_jump_of_more_than_a_day_is_doubted_until_a_second_look(make, span):
    times = ByHand()
    schedule = make(times.clock, times.monotonic)

    times.jump(**span)
    assert schedule.clock_doubtful  # asked before any tick has seen it
    for _ in range(599):
        times.pass_by(seconds=1)
        schedule.tick()
        assert schedule.clock_doubtful
    times.pass_by(seconds=1)
    assert not schedule.clock_doubtful


def test_a_second_jump_starts_the_second_look_again(make):
    times = ByHand()
    schedule = make(times.clock, times.monotonic, confirm_after=timedelta(minutes=2))
    times.jump(days=60)
    schedule.tick()
    times.pass_by(seconds=119)
    schedule.tick()

    times.jump(days=-60)  # back where it was: right again, or wrong once more

    assert schedule.clock_doubtful
    times.pass_by(seconds=119)
    assert schedule.clock_doubtful
    times.pass_by(seconds=1)
    assert not schedule.clock_doubtful


def test_jumps_add_up_until_the_clock_has_gone_steadily(make):
    times = ByHand()
    schedule = make(times.clock, times.monotonic)
    times.jump(hours=20)
    assert not schedule.clock_doubtful
    times.pass_by(minutes=10)
    schedule.tick()

    times.jump(hours=20)
    assert not schedule.clock_doubtful  # the first was confirmed
    times.pass_by(minutes=1)
    times.jump(hours=20)
    assert schedule.clock_doubtful


@pytest.mark.parametrize("span", [{"seconds": 4}, {"hours": 23}, {"hours": -23}])
def test_smaller_jumps_are_not_doubted(make, span):
    times = ByHand()
    schedule = make(times.clock, times.monotonic)
    with structlog.testing.capture_logs() as logs:
        times.jump(**span)
        schedule.tick()
        times.pass_by(seconds=1)
        schedule.tick()
    assert not schedule.clock_doubtful
    assert [line["event"] for line in logs] == ([] if span == {"seconds": 4} else ["clock_jumped"])


def test_a_clock_that_is_slewed_is_followed(make):
    """Little by little it may go any way: only what it does at once is held against it."""
    times = ByHand()
    schedule = make(times.clock, times.monotonic)
    for _ in range(1000):
        times.pass_by(hours=8)
        times.jump(seconds=4)
        schedule.tick()
    times.jump(hours=23)
    assert not schedule.clock_doubtful


# --- slow, failing, hurried ---


@pytest.mark.fault(75)
def test_a_pass_slower_than_its_interval_never_meets_itself(make, told):
    alone = Alone()

    def slow() -> str:
        time.sleep(4 * SOON.total_seconds())
        return alone.run() + told.run()

    schedule = make()
    schedule.add("slow", SOON, slow)
    other = Told()
    schedule.add("other", SOON, other.run)
    schedule.start()

    told.wait_for_runs(4)

    assert alone.overlaps == 0
    assert other.runs >= 3  # it leaves room for the others


def test_the_interval_counts_from_the_end_of_a_run(make, told):
    times, gate = ByHand(), Gate()
    schedule = make(times.clock, times.monotonic)
    schedule.add("one", LATER, gate.run)
    schedule.start()
    schedule.hurry("one")
    assert gate.has_begun()
    report = schedule.report()["one"]
    assert (report["running_since"], report["next_at"]) == ("2026-03-01T00:00:00.000Z", None)

    times.pass_by(hours=3)
    gate.go_on.release()
    told.wait(lambda: told.successes)
    until(lambda: schedule.report()["one"]["next_at"] == "2026-03-01T04:00:00.000Z")

    assert schedule.report()["one"] == {
        "last_at": "2026-03-01T03:00:00.000Z",
        "last_result": "done",
        "next_at": "2026-03-01T04:00:00.000Z",
        "running_since": None,
        "runs": 1,
        "failures": 0,
        "took_ms": 3 * 3600 * 1000,
    }


@pytest.mark.fault(75)
def test_a_failure_is_counted_and_the_next_run_happens(make, told):
    def fail_twice() -> str:
        told.run()
        if told.runs <= 2:
            raise OSError(28, "No space left on device")
        return "well again"

    schedule = make()
    schedule.add("evict", SOON, fail_twice)
    schedule.start()

    told.wait(lambda: len(told.failures) == 2)
    told.wait(lambda: told.successes)

    assert told.failures[0] == ("evict", "[Errno 28] No space left on device")
    assert told.successes[0] == "evict"
    report = schedule.report()["evict"]
    assert (report["failures"], report["last_result"]) == (2, "well again")
    assert report["runs"] >= 3


def test_a_failed_run_shows_as_such(make, told):
    def fail() -> str:
        raise OSError("words of somebody")

    schedule = make()
    schedule.add("analyze", LATER, fail)
    schedule.start()
    schedule.hurry("analyze")
    told.wait(lambda: told.failures)

    report = schedule.report()["analyze"]
    assert (report["last_result"], report["runs"], report["failures"]) == ("failed: OSError", 1, 1)
    assert report["last_at"] is not None


def test_an_owner_that_fails_when_told_does_not_stop_the_passes(told):
    def fail(*_: object) -> None:
        raise OSError("cannot write it down")

    schedule = Schedule(on_failure=fail, on_success=fail)
    schedule.add("often", SOON, told.run)
    with structlog.testing.capture_logs() as logs:
        schedule.start()
        told.wait_for_runs(3)
        assert schedule.stop()
    assert {line["event"] for line in logs} == {"pass_report_failed"}


def test_a_pass_waits_an_interval_unless_hurried(make, told):
    schedule, other = make(), Told()
    schedule.add("waits", LATER, other.run)
    schedule.add("hurried", LATER, told.run)
    schedule.hurry("hurried")  # before the start
    schedule.start()
    told.wait(lambda: len(told.successes) == 1)

    schedule.hurry("hurried")
    told.wait(lambda: len(told.successes) == 2)

    assert (other.runs, told.runs) == (0, 2)


def test_a_pass_hurried_while_it_runs_runs_once_more(make, told):
    schedule, gate = make(), Gate()
    schedule.add("evict", LATER, gate.run)
    schedule.start()
    schedule.hurry("evict")
    assert gate.has_begun()

    for _ in range(5):
        schedule.hurry("evict")
    gate.go_on.release()
    assert gate.has_begun()
    gate.go_on.release()
    told.wait(lambda: len(told.successes) == 2)

    schedule.request("after", lambda: None).result(DEADLINE)
    assert schedule.report()["evict"]["runs"] == 2
    assert parse_utc(schedule.report()["evict"]["next_at"]) > datetime.now(UTC) + LATER / 2


def test_a_pass_hurried_while_it_waits_its_turn_runs_once(make, told):
    schedule, gate = make(), Gate()
    schedule.add("evict", LATER, told.run)
    schedule.start()
    held = schedule.request("long", gate.run)
    assert gate.has_begun()

    for _ in range(5):
        schedule.hurry("evict")
    until(lambda: schedule._passes["evict"].is_taken)
    schedule.hurry("evict")
    gate.go_on.release()
    held.result(DEADLINE)
    told.wait(lambda: told.successes)

    schedule.request("after", lambda: None).result(DEADLINE)
    assert told.runs == 1


def test_hurrying_a_pass_that_is_not_there_is_an_error(make):
    schedule = make()
    with pytest.raises(KeyError):
        schedule.hurry("evcit")


# --- one lane ---


def test_never_two_at_once_whoever_asks(make):
    schedule, alone = make(), Alone()
    for name in ("analyze", "evict", "merge"):
        schedule.add(name, timedelta(milliseconds=5), alone.run)
    schedule.start()
    futures: list = []

    def pester(name: str) -> None:
        for _ in range(10):
            schedule.hurry(name)
            futures.append(schedule.request(name, alone.run))
            schedule.tick()
            schedule.report()

    askers = [threading.Thread(target=pester, args=(name,)) for name in ("analyze", "evict", "merge") * 4]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(DEADLINE)

    assert {future.result(DEADLINE) for future in futures} == {"alone"}
    assert len(futures) == 120
    until(lambda: all(one["runs"] for one in schedule.report().values()))
    assert alone.overlaps == 0


def test_a_request_gives_its_asker_what_it_gave(make, told):
    schedule, gate = make(), Gate()
    schedule.add("analyze", LATER, told.run)
    schedule.start()

    answer = schedule.request("analyze", gate.run)
    assert gate.has_begun()
    assert schedule.report()["analyze"]["running_since"] is not None
    gate.go_on.release()

    assert answer.result(DEADLINE) == "done"
    report = schedule.report()["analyze"]
    assert (report["running_since"], report["runs"], report["last_at"]) == (None, 0, None)


def test_a_request_that_fails_fails_for_its_asker_alone(make, told):
    schedule = make()
    schedule.start()

    def leave() -> None:
        sys.exit(3)

    with pytest.raises(ZeroDivisionError):
        schedule.request("verify", lambda: 1 / 0).result(DEADLINE)
    with pytest.raises(SystemExit):
        schedule.request("verify", leave).result(DEADLINE)
    assert schedule.request("verify", lambda: {"ok": True}).result(DEADLINE) == {"ok": True}
    assert told.failures == []


def test_a_request_that_its_asker_gave_up_is_not_begun(make, told):
    schedule, gate = make(), Gate()
    schedule.start()
    held = schedule.request("long", gate.run)
    assert gate.has_begun()

    given_up = schedule.request("analyze", told.run)
    assert given_up.cancel()
    gate.go_on.release()
    held.result(DEADLINE)
    schedule.request("after", lambda: None).result(DEADLINE)

    assert told.runs == 0
    with pytest.raises(CancelledError):
        given_up.result()


# --- intervals ---


def test_a_new_interval_counts_from_where_the_old_one_began(make, told):
    times = ByHand()
    schedule = make(times.clock, times.monotonic)
    schedule.add("evict", LATER, told.run)
    schedule.start()
    times.pass_by(minutes=20)

    schedule.set_interval("evict", timedelta(minutes=30))
    assert schedule.report()["evict"]["next_at"] == "2026-03-01T00:30:00.000Z"
    assert told.runs == 0
    schedule.set_interval("evict", timedelta(minutes=15))

    told.wait(lambda: told.runs == 1)


def test_an_hour_long_wait_is_cut_short_by_a_new_interval(make, told):
    schedule = make()
    schedule.add("evict", LATER, told.run)
    schedule.start()
    schedule.set_interval("evict", SOON)
    told.wait_for_runs(3)


def test_the_first_interval_counts_from_the_start(make, told):
    times = ByHand()
    schedule = make(times.clock, times.monotonic)
    schedule.add("evict", LATER, told.run)
    assert schedule.report()["evict"]["next_at"] is None
    times.pass_by(minutes=20)  # the rest of the daemon is being put together

    schedule.start()

    assert schedule.report()["evict"]["next_at"] == "2026-03-01T01:20:00.000Z"


def test_a_pass_may_be_added_while_running(make, told):
    schedule = make()
    schedule.start()
    schedule.add("late", SOON, told.run)
    told.wait_for_runs(2)


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=-1)])
def test_an_interval_of_nothing_is_refused(make, told, interval):
    schedule = make()
    with pytest.raises(ValueError, match="cannot run every"):
        schedule.add("evict", interval, told.run)
    schedule.add("evict", LATER, told.run)
    with pytest.raises(ValueError, match="cannot run every"):
        schedule.set_interval("evict", interval)
    with pytest.raises(ValueError, match="already"):
        schedule.add("evict", LATER, told.run)


# --- stop ---


def test_stop_lets_the_present_run_end_and_begins_no_other(make, told):
    schedule, gate = make(), Gate()
    schedule.add("long", LATER, gate.run)
    schedule.add("next", LATER, told.run)
    schedule.start()
    schedule.hurry("long")
    assert gate.has_begun()
    schedule.hurry("next")
    waiting = schedule.request("verify", told.run)
    stopper = threading.Thread(target=schedule.stop)
    stopper.start()
    assert schedule.stopping.wait(DEADLINE)
    assert stopper.is_alive()

    gate.go_on.release()
    stopper.join(DEADLINE)

    assert not stopper.is_alive()
    assert told.successes == ["long"]
    assert told.runs == 0
    with pytest.raises(Busy):
        waiting.result(DEADLINE)
    with pytest.raises(Busy):
        schedule.request("verify", told.run)
    assert schedule.report()["long"]["next_at"] is None


def test_stop_does_not_wait_for_ever(make, told):
    schedule, gate = make(), Gate()
    schedule.add("stuck", LATER, gate.run)
    schedule.start()
    schedule.hurry("stuck")
    assert gate.has_begun()

    with structlog.testing.capture_logs() as logs:
        assert not schedule.stop(within_seconds=0.05)
    assert [(line["event"], line["name"]) for line in logs] == [("pass_left_behind", "stuck")]

    gate.go_on.release()
    assert schedule.stop(DEADLINE)  # a second stop may wait again


def test_a_pass_may_see_that_it_should_come_to_an_end(make, told):
    schedule = make()
    begun = threading.Event()

    def patient() -> str:
        begun.set()
        return "stopped" if schedule.stopping.wait(DEADLINE) else "not told"

    schedule.add("long", LATER, patient)
    schedule.start()
    schedule.hurry("long")
    assert begun.wait(DEADLINE)
    assert schedule.stop(DEADLINE)
    assert schedule.report()["long"]["last_result"] == "stopped"


def test_no_thread_is_left_and_stop_may_come_before_start(make, told):
    before = set(threading.enumerate())
    assert make().stop()
    schedule = make()
    schedule.add("often", SOON, told.run)
    schedule.start()
    told.wait_for_runs(1)
    assert schedule.stop()
    assert set(threading.enumerate()) <= before
    schedule.hurry("often")  # too late, and no harm
    schedule.tick()


STUCK = """
import threading, sys
from datetime import timedelta
from sessiond.passes.schedule import Schedule
begun = threading.Event()
def stuck():
    begun.set()
    threading.Event().wait()
schedule = Schedule(on_failure=print, on_success=print)
schedule.add("stuck", timedelta(milliseconds=1), stuck)
schedule.start()
begun.wait()
print(schedule.stop(within_seconds=0.01))
"""


def test_a_stuck_pass_does_not_keep_the_process():
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False")


QUIET = """
import json, sys, threading
from datetime import timedelta
from sessiond import log
log.setup("info", "json")
from sessiond.passes.schedule import Schedule
ran = threading.Semaphore(0)
def run():
    ran.release()
    raise OSError("told to the owner")
schedule = Schedule(on_failure=lambda *_: None, on_success=lambda *_: None)
schedule.add("often", timedelta(milliseconds=1), run)
schedule.start()
for _ in range(5):
    ran.acquire()
schedule.stop()
log.flush()
print(json.dumps(sorted(schedule.report()["often"])))
"""


def test_the_library_says_nothing_in_the_log():
    done = subprocess.run(
        [sys.executable, "-c", QUIET], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (0, "")
    fields = ["failures", "last_at", "last_result", "next_at", "running_since", "runs", "took_ms"]
    assert json.loads(done.stdout) == fields
