"""The evict pass: carries out the plan, measures, and says what could not be reached and who holds it.

Rules in order: backstop (max_age), budget (soft_cap, keep_free), overflow (hard_cap). Nothing leaves that no digest
covers, but for on_overflow = "evict", and then it is on record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import apsw

from sessiond.model import utc
from sessiond.passes import plan as planning
from sessiond.store import connect, evict, space
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sessiond.passes.plan import Plan, Planned, Policy
    from sessiond.paths import Paths
    from sessiond.store.search import SearchIndex
    from sessiond.store.writer import Writer

ROUNDS = 5  # a plan's estimate was never off by so much; a pass must end
INDEX_SECONDS = 60


@dataclass(slots=True)
class Evicted:
    """What a pass came to. `rounds` has one entry per plan that was carried out."""

    used_before: int = 0
    used_after: int = 0
    free_after: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # evicted though no digest covered them
    unreachable: dict[str, Any] | None = None
    is_space_back: bool = True

    @property
    def sessions(self) -> list[str]:
        return [uid for each in self.rounds for uid in each["evicted"]] + self.lost

    def to_dict(self) -> dict[str, Any]:
        return {
            "dry_run": False,
            "used_before": self.used_before,
            "used_after": self.used_after,
            "free_after": self.free_after,
            "rounds": self.rounds,
            "evicted": self.sessions,
            "lost": self.lost,
            "unreachable": self.unreachable,
        }

    def words(self) -> str:
        if not self.sessions:
            told = "nothing to do"
        else:
            told = f"{len(self.sessions)} sessions, {format_size(max(0, self.used_before - self.used_after))} freed"
        return told + (f"; {format_size(self.unreachable['bytes'])} over" if self.unreachable else "")


class Evictor:
    """Carries out the policy. `pause` and `resume` take the name of a reason; `analyze` digests all there is."""

    def __init__(
        self,
        paths: Paths,
        writer: Writer,
        search: SearchIndex,
        *,
        analyze: Callable[[], object],
        pause: Callable[[str], None],
        resume: Callable[[str], None],
    ) -> None:
        self._paths = paths
        self._writer = writer
        self._search = search
        self._analyze = analyze
        self._pause = pause
        self._resume = resume
        self._is_stopping: Callable[[], bool] = lambda: False
        self._reserve = 0
        self._is_ballast_gone = False

    def dry_run(self, policy: Policy, now: datetime, *, is_clock_doubtful: bool) -> dict[str, Any]:
        """What a run would do now. Nothing is changed."""
        with connect.reading(self._paths.store) as db:
            plan = planning.make(db, self._paths, policy, now, is_clock_doubtful=is_clock_doubtful)
            if plan.usage.held - plan.bytes > policy.caps.hard_cap:
                plan = planning.make(db, self._paths, policy, now, is_clock_doubtful=is_clock_doubtful, any_age=True)
        return {
            "dry_run": True,
            "used": plan.usage.used,
            "slack": plan.usage.slack,
            "need": plan.need,
            "bytes": plan.bytes,
            "plan": [each.to_dict() for each in plan.items],
        }

    def run(
        self,
        policy: Policy,
        now: datetime,
        *,
        is_clock_doubtful: bool,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> Evicted:
        self._is_stopping = is_stopping
        self._reserve = space.reserve(policy.caps.soft_cap)
        self._make_room_to_work()
        self._finish_what_was_begun()
        report = Evicted(used_before=space.total(self._paths))
        self._rounds(policy, now, report, is_clock_doubtful=is_clock_doubtful, any_age=False)
        if self._usage().held > policy.caps.hard_cap and not is_stopping():
            self._overflow(policy, now, report, is_clock_doubtful=is_clock_doubtful)
        elif self._is_room_lacking(policy) and not is_stopping():
            self._analyze()  # what was just read is all there is to let go
            self._rounds(policy, now, report, is_clock_doubtful=is_clock_doubtful, any_age=False)
        usage = self._usage()
        if not report.sessions and (usage.slack > self._reserve or planning.lacking_now(usage, policy.caps)):
            self._give_back(report)
        self._close(policy, report)
        return report

    # --- rounds ---------------------------------------------------------------------------------

    def _rounds(
        self, policy: Policy, now: datetime, report: Evicted, *, is_clock_doubtful: bool, any_age: bool
    ) -> None:
        for _ in range(ROUNDS):
            if self._is_stopping():
                return
            self._make_room_to_work()
            with connect.reading(self._paths.store) as db:
                plan = planning.make(db, self._paths, policy, now, is_clock_doubtful=is_clock_doubtful, any_age=any_age)
            if not plan.items:
                return
            done = self._carry_out(plan, policy, now, any_age=any_age)
            before = space.total(self._paths)
            self._give_back(report)
            after = space.total(self._paths)
            report.rounds.append(
                {"need": plan.need, "bytes": plan.bytes, "freed": max(0, before - after), "evicted": done}
            )
            if not done:
                return

    def _carry_out(self, plan: Plan, policy: Policy, now: datetime, *, any_age: bool) -> list[str]:
        """Exactly this list; a session that came to life since the plan was made is left out by the guard."""
        done = []
        before = planning.ANY_AGE if any_age else utc(now - policy.min_age)
        before_backstop = before if policy.max_age is None else utc(now - policy.max_age)
        for each in plan.items:
            if self._is_stopping():
                break
            try:
                is_gone = self._let_go(each, now, before_backstop if each.rule == "backstop" else before)
            except apsw.FullError:  # one that was begun is gone on with when there is room again
                self._make_room_to_work()
                continue
            if is_gone:
                done.append(each.uid)
        return done

    def _let_go(self, each: Planned, now: datetime, active_before: str) -> bool:
        if each.what == "superseded":
            return evict.let_go_superseded(self._writer, each.row, self._after_each)
        return evict.let_go(self._writer, each.row, now, active_before=active_before, after_each=self._after_each)

    def _after_each(self) -> None:
        """With a disk that is all but full the WAL must not grow: what is deleted goes into the database at once."""
        if self._is_tight():
            self._writer.maintain(connect.truncate_wal)

    def _overflow(self, policy: Policy, now: datetime, report: Evicted, *, is_clock_doubtful: bool) -> None:
        self._analyze()
        self._rounds(policy, now, report, is_clock_doubtful=is_clock_doubtful, any_age=True)
        if policy.on_overflow == "evict":
            self._let_go_uncovered(policy, now, report)

    def _let_go_uncovered(self, policy: Policy, now: datetime, report: Evicted) -> None:
        """Oldest first, one by one and measured each time: as little as possible is lost."""
        while self._usage().held > policy.caps.hard_cap and not self._is_stopping():
            with connect.reading(self._paths.store) as db:
                found = evict.uncovered(db)[:1]
                weights = evict.weights(db, 0)
                sizes = [weights.of(db, each.row) for each in found]
            if not found or not evict.let_go_uncovered(
                self._writer, found[0].row, sizes[0], now, after_each=self._after_each
            ):
                return
            report.lost.append(found[0].uid)
            self._give_back(report)

    # --- room -----------------------------------------------------------------------------------

    def _finish_what_was_begun(self) -> None:
        """A kill may have come between a session's mark and the end of its rows."""
        with connect.reading(self._paths.store) as db:
            begun = evict.leaving(db)
        for row in begun:
            evict.finish_leaving(self._writer, row, self._after_each)

    def _is_room_lacking(self, policy: Policy) -> bool:
        usage = self._usage()
        return planning.lacking(usage, policy.caps) + planning.lacking_now(usage, policy.caps) > 0

    def _is_tight(self) -> bool:
        return space.free(self._paths) < self._reserve

    def _make_room_to_work(self) -> None:
        """On a full disk even a DELETE fails: it goes through the WAL. The ballast is what it goes into then."""
        if not self._is_tight():
            return
        if space.free(self._paths) < self._reserve // 2:
            self._pause("keep_free")  # ingest would take all of that room
            space.drop_ballast(self._paths)
            self._is_ballast_gone = True
        self._writer.maintain(connect.truncate_wal)

    def _give_back(self, report: Evicted) -> None:
        """The store's part first: it is the room in which the index takes in what is to be removed."""
        space.give_back_store(self._writer, self._is_stopping)
        if self._is_ballast_gone:
            self._is_ballast_gone = not space.keep_ballast(self._paths, self._reserve, 0)
        if self._is_ballast_gone or not self._does_index_follow():  # it has not even heard of what is to be removed
            report.is_space_back = False
            return
        report.is_space_back = space.give_back(self._writer, self._search, self._is_stopping)

    def _does_index_follow(self) -> bool:
        """Not for long on a full disk: it cannot go on before there is room."""
        for _ in range(INDEX_SECONDS):
            if self._search.catch_up_now(1.0):
                return True
            if not self._search.has_room() or self._search.is_failing or self._is_stopping():
                return False
        return False

    def _usage(self) -> space.Usage:
        with connect.reading(self._paths.store) as db:
            return space.measure(db, self._paths)

    def _close(self, policy: Policy, report: Evicted) -> None:
        """Measure, pause or go on, and name what is over."""
        caps = policy.caps
        space.keep_ballast(self._paths, space.reserve(caps.soft_cap), caps.keep_free)
        usage = self._usage()
        report.used_after, report.free_after = usage.used, usage.free
        need = planning.needed(usage, caps)
        if need:
            with connect.reading(self._paths.store) as db:
                report.unreachable = {"bytes": need, "held_by": evict.holders(db, usage.held)}
        is_over = usage.held > caps.hard_cap or (usage.used > caps.hard_cap and not report.is_space_back)
        for name, is_so in (("hard_cap", is_over), ("keep_free", planning.lacking_now(usage, caps) > 0)):
            (self._pause if is_so else self._resume)(name)
