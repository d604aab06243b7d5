"""The watermark policy as a list: which sessions would go, in which order, by which rule, for how many bytes.

Only reads. A dry run prints it, a run carries out exactly it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sessiond.model import utc
from sessiond.store import evict, space

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    import apsw

    from sessiond.config.retention import Caps
    from sessiond.paths import Paths
    from sessiond.store.evict import Candidate, Weights
    from sessiond.store.space import Usage

# What an estimate is counted as. Pages are shared at their edges: a plan that hoped for all of it would need a second
# round for the last percent, and then more would go than it named.
COUNTED = 0.9
ANY_AGE = "~"


@dataclass(frozen=True, slots=True)
class Policy:
    """[retention], in bytes and times."""

    caps: Caps
    min_age: timedelta
    max_age: timedelta | None
    on_overflow: str
    distilled_cap: int


@dataclass(frozen=True, slots=True)
class Planned:
    row: int
    uid: str
    active_at: str
    rule: str  # backstop, budget, overflow
    what: str  # session, superseded
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "session_uid": self.uid,
            "last_activity": self.active_at,
            "rule": self.rule,
            "what": self.what,
            "bytes": self.bytes,
        }


@dataclass(slots=True)
class Plan:
    usage: Usage
    need: int  # bytes that must go
    items: list[Planned] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.items)

    @property
    def counted(self) -> float:
        return self.bytes * COUNTED

    @property
    def rows(self) -> set[tuple[int, str]]:
        return {(each.row, each.what) for each in self.items}


def make(
    db: apsw.Connection, paths: Paths, policy: Policy, now: datetime, *, is_clock_doubtful: bool, any_age: bool = False
) -> Plan:
    """Rules 1 and 2. `any_age` is rule 3's second try: sessions younger than min_age may go too."""
    usage = space.measure(db, paths)
    plan = Plan(usage, needed(usage, policy.caps))
    weights = evict.weights(db, usage.index) if plan.need or policy.max_age is not None else None
    if weights is None:
        return plan
    if policy.max_age is not None and not is_clock_doubtful:
        before = utc(now - policy.max_age)
        old = evict.oldest(db, active_before=before, discovered_before=before)
        plan.items += [_planned(db, weights, each, "backstop") for each in old]
    if plan.need:
        _add_budget(db, plan, weights, utc(now - policy.min_age), any_age=any_age)
    return plan


def needed(usage: Usage, caps: Caps) -> int:
    """How many bytes must be let go: from above soft_cap down to low_water, and whatever keep_free lacks."""
    room = lacking(usage, caps)
    if usage.held <= caps.soft_cap and not room:
        return 0
    # With some more than is lacking: a disk that is filled to its last byte again would need the next pass at once.
    return max(0, usage.held - caps.low_water, room + space.reserve(caps.soft_cap) if room else 0)


def lacking(usage: Usage, caps: Caps) -> int:
    """How much less than keep_free there is besides the room that is needed to work in: a ballast that was given up
    must come back, and WALs within their limit are no slack, or a full disk would pass for one with room.
    """
    reserve = space.reserve(caps.soft_cap)
    to_work_in = max(0, reserve - usage.ballast) + min(usage.wals, 2 * reserve) + usage.index_need
    return max(0, space.least_free(caps.keep_free, reserve) + to_work_in - usage.free - usage.slack)


def lacking_now(usage: Usage, caps: Caps) -> int:
    """The same without what could still be given back: what ingest would run into next."""
    reserve = space.reserve(caps.soft_cap)
    to_work_in = max(0, reserve - usage.ballast) + usage.index_need
    return max(0, space.least_free(caps.keep_free, reserve) + to_work_in - usage.free)


def _add_budget(db: apsw.Connection, plan: Plan, weights: Weights, active_before: str, *, any_age: bool) -> None:
    rule = "overflow" if any_age else "budget"
    taken = {row for row, what in plan.rows if what == "session"}
    older = (each for each in evict.superseded(db) if each.row not in taken)
    _add(plan, (_planned(db, weights, each, rule, "superseded") for each in older))
    old = evict.oldest(db, active_before=ANY_AGE if any_age else active_before)
    _add(plan, (_planned(db, weights, each, rule) for each in old if each.row not in taken))


def _add(plan: Plan, more: Iterable[Planned]) -> None:
    """Until it is enough; the next is weighed only then."""
    if plan.counted >= plan.need:
        return
    for each in more:
        if each.bytes:
            plan.items.append(each)
        if plan.counted >= plan.need:
            return


def _planned(db: apsw.Connection, weights: Weights, each: Candidate, rule: str, what: str = "session") -> Planned:
    size = weights.of(db, each.row, only_superseded=what == "superseded")
    return Planned(each.row, each.uid, each.active_at, rule, what, size)
