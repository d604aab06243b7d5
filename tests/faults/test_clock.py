"""Rows 50 and 72 to 74: a machine that slept, and a clock that was set. The clocks here are the test's own."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from lab import Lab, append, until, user_line
from passes.test_evict import MIB, write_session
from sessiond.daemon import Daemon
from sessiond.intake.scan import ClockGap
from sessiond.intake.watching.observer import Handler
from sessiond.log.light import structlog
from sessiond.model import parse_utc
from sessiond.passes.schedule import Schedule


class Clock:
    """Both clocks of a machine, from now on moved by the test alone."""

    def __init__(self) -> None:
        self.begun = datetime.now(UTC)
        self.seconds = 0.0
        self.ahead = timedelta(0)

    def wall(self) -> datetime:
        return self.begun + self.ahead + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def schedule(self) -> Schedule:
        return Schedule(self.wall, self.monotonic, on_failure=lambda *_: None, on_success=lambda _: None)

    def rules(self, upkeep, schedule: Schedule) -> None:
        """Upkeep takes its time from this clock, and its doubt from the schedule, as the daemon puts them together."""
        upkeep._now = self.wall
        upkeep._is_clock_doubtful = lambda: schedule.clock_doubtful
        upkeep._clock_ahead = lambda: schedule.clock_ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- row 50: the machine slept --------------------------------------------------------------------


class Slept(ClockGap):
    """The loop's own look at the clocks, on a machine that sleeps when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep_seconds = 0.0
        self.looks = 0
        self.was_gap = False

    def check(self, monotonic: float, wall: float) -> bool:
        is_gap = super().check(monotonic, wall + self.asleep_seconds)
        self.looks += 1
        self.was_gap |= is_gap
        return is_gap

    def look_again(self) -> None:
        wanted = self.looks + 2  # the first may be under way with the old time
        until(lambda: self.looks >= wanted, what="two more looks at the clocks")


@pytest.mark.fault(50)
@pytest.mark.parametrize("mode", ["native", "poll"])
def test_what_was_written_while_the_machine_slept_is_found_when_it_wakes(lab: Lab, monkeypatch, mode):
    lab.write_config('[watch]\nscan_interval = "1h"\npoll_interval = "1h"\n')  # nothing but the gap can bring a sweep
    monkeypatch.setattr(Handler, "dispatch", lambda *_: None)  # the events of that time are lost
    session = lab.claude_file()
    append(session, user_line(0))
    pipeline = lab.pipeline(mode)
    clocks = pipeline.loop._clock_gap = Slept()
    try:
        pipeline.start()
        until(lambda: len(lab.sessions()) == 1, what="the first line")
        clocks.look_again()
        append(session, user_line(1))
        swept_at = pipeline.loop.last_sweep.at
        clocks.asleep_seconds += 58
        clocks.look_again()
        assert (pipeline.loop.last_sweep.at, clocks.was_gap) == (swept_at, False), "a minute is no sleep"

        clocks.asleep_seconds += 3600

        until(lambda: len(lab.events("claude:s1")) == 2, what="the line written meanwhile")
        assert pipeline.loop.last_sweep.at > swept_at
    finally:
        pipeline.stop()


# --- row 72: set back -----------------------------------------------------------------------------


@pytest.mark.fault(72)
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_clock_set_back_does_not_keep_sessions_waiting_for_their_digest(lab: Lab, clock, by_hand):
    """Seen from an hour before, what was just stored comes from the future: it must not wait for that to come."""
    append(lab.claude_file(), user_line(0))
    lab.ingest()
    with lab.upkeep() as upkeep:
        clock.rules(upkeep, clock.schedule())
        assert upkeep.analyze().sessions == 0, "it is not quiet yet"
        clock.ahead = timedelta(hours=-1)
        assert upkeep.analyze(everything=by_hand).sessions == 1
        assert upkeep.analyze(everything=by_hand).sessions == 0, "once"
    assert lab.sessions()["claude:s1"].analyzed_at


# --- row 73: set forward --------------------------------------------------------------------------

OVER = '[retention]\nsoft_cap = "2MiB"\nhard_cap = "900MiB"\nmin_age = "24h"\nkeep_free = "1MiB"\n'


def evicted(upkeep) -> list[str]:
    planned = [each["session_uid"] for each in upkeep.do("evict", {"dry_run": True})["plan"]]
    done = upkeep.do("evict", {})["evicted"]
    assert done == planned, "a dry run says what the run does"
    return done


@pytest.mark.fault(73)
@pytest.mark.parametrize("days", [2, 60, 3650])
def test_a_clock_set_forward_makes_no_session_old_enough_to_go_until_a_second_look(lab, clock, days):
    lab.write_config(OVER)
    write_session(lab, "young", 4 * MIB, timedelta(hours=1))
    lab.ingest()
    lab.analyze()
    schedule = clock.schedule()
    with lab.upkeep() as upkeep:
        clock.rules(upkeep, schedule)
        assert evicted(upkeep) == [], "it is protected by min_age"
        clock.ahead = timedelta(days=days)
        assert evicted(upkeep) == [], "and still is: it was the clock that aged, not the session"
        clock.seconds += 599
        assert evicted(upkeep) == []
        clock.seconds += 1
        assert not schedule.clock_doubtful
        assert evicted(upkeep) == ["claude:young"], "the new time was confirmed"


@pytest.mark.fault(73)
def test_what_was_old_before_the_jump_may_still_make_room(lab, clock):
    lab.write_config(OVER)
    write_session(lab, "old", 2 * MIB, timedelta(days=3))
    write_session(lab, "young", 4 * MIB, timedelta(hours=1))
    lab.ingest()
    lab.analyze()
    with lab.upkeep() as upkeep:
        clock.rules(upkeep, clock.schedule())
        clock.ahead = timedelta(days=60)
        assert evicted(upkeep) == ["claude:old"]


@pytest.mark.fault(73)
def test_a_clock_set_back_by_days_makes_nothing_old_either(lab, clock):
    lab.write_config(OVER)
    write_session(lab, "young", 4 * MIB, timedelta(hours=1))
    lab.ingest()
    lab.analyze()
    with lab.upkeep() as upkeep:
        clock.rules(upkeep, clock.schedule())
        clock.ahead = timedelta(days=-60)
        assert evicted(upkeep) == []


@pytest.mark.fault(73)
def test_a_doubtful_clock_is_named_with_what_comes_of_it(clock):
    daemon = Daemon(None)
    daemon.schedule = clock.schedule()
    daemon._name_clock()
    assert daemon.troubles.listing() == []

    clock.ahead = timedelta(days=2)
    daemon._name_clock()
    (told,) = daemon.troubles.listing()
    assert told["name"] == "clock"
    assert "jumped by more than a day" in told["detail"]
    assert told["fix"]

    clock.seconds += 600
    daemon._name_clock()
    assert daemon.troubles.listing() == []


# --- row 74: another time zone --------------------------------------------------------------------


@pytest.mark.fault(74)
def test_a_traveller_who_changes_the_time_zone_changes_no_schedule(monkeypatch):
    zone = timezone(timedelta(hours=-11))
    ran = threading.Semaphore(0)
    schedule = Schedule(lambda: datetime.now(zone), on_failure=lambda *_: None, on_success=lambda _: None)
    schedule.add("often", timedelta(milliseconds=20), lambda: ran.release() or "ran")
    schedule.add("rarely", timedelta(hours=1), lambda: "ran")
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    try:
        with structlog.testing.capture_logs() as logs:
            schedule.start()
            next_at = parse_utc(schedule.report()["rarely"]["next_at"])
            assert ran.acquire(timeout=10)
            time.tzset()  # 14 hours east of Greenwich, from 11 hours west of it
            zone = timezone(timedelta(hours=14))
            schedule.tick()
            for _ in range(5):
                assert ran.acquire(timeout=10)
        assert logs == [], "no jump was seen"
        assert not schedule.clock_doubtful
        assert abs(parse_utc(schedule.report()["rarely"]["next_at"]) - next_at) < timedelta(seconds=1)
        assert abs(next_at - datetime.now(UTC) - timedelta(hours=1)) < timedelta(seconds=30)
    finally:
        schedule.stop()
        monkeypatch.undo()
        time.tzset()
