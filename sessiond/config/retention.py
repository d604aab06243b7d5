"""`[retention]`: how much disk sessiond may use, as written and in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator

from sessiond.config.types import LowWater, MaxAge, Percent, RoomOrAuto, Section, Size, SizeOrAuto, Span
from sessiond.errors import ConfigError
from sessiond.units import format_size, write_size

GIB = 2**30
LARGEST_AUTO_CAP = 4 * GIB
LARGEST_AUTO_ROOM = 2 * GIB


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of [retention] in bytes, for one file system."""

    soft_cap: int
    low_water: int
    hard_cap: int
    keep_free: int


class Retention(Section):
    """How much disk sessiond may use. Only raw bytes are evicted, and only after they were distilled."""

    soft_cap: SizeOrAuto = Field(
        default=None,
        description='Above this the oldest sessions go. "auto" is 4GiB, or 10% of the disk if that is less.',
    )
    low_water: LowWater = Field(
        default=Percent(80), description="Eviction stops below this: a share of soft_cap, or a size."
    )
    hard_cap: SizeOrAuto = Field(
        default=None,
        description="Above this sessions go even when younger than min_age; then on_overflow "
        'decides. "auto" is one and a half times soft_cap.',
    )
    max_age: MaxAge = Field(
        default=None,
        description='Distilled sessions idle for this long go even when there is room, such as "90d".',
    )
    min_age: Span = Field(
        default=timedelta(hours=24),
        description='Sessions active within this time are kept if at all possible; "0s" for none.',
    )
    keep_free: RoomOrAuto = Field(
        default=None,
        description='Room on the disk to leave for others. "auto" is 2GiB, or 5% of the disk if that is less.',
    )
    distilled_cap: Size = Field(
        default=GIB,
        description="Digests and other distilled data are never evicted; above this size you are warned.",
    )
    on_overflow: Literal["pause", "evict"] = Field(
        default="pause",
        description="When hard_cap is reached and nothing may go: stop reading until there is room (nothing is lost "
        "while the agents keep their files), or evict the oldest undistilled sessions and report the loss.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        # What "auto" comes to is known only with the disk, so caps() looks again then.
        soft = LARGEST_AUTO_CAP if self.soft_cap is None else self.soft_cap
        low = self.low_water if isinstance(self.low_water, int) else 0
        hard = soft if self.hard_cap is None or self.soft_cap is None else self.hard_cap
        self._check_order(soft, low, hard)
        return self

    def caps(self, disk_bytes: int) -> Caps:
        """The limits on a disk of this size. ConfigError where "auto" does not fit what is set beside it."""
        soft = min(LARGEST_AUTO_CAP, disk_bytes // 10) if self.soft_cap is None else self.soft_cap
        low = self.low_water if isinstance(self.low_water, int) else self.low_water.of(soft)
        hard = soft * 3 // 2 if self.hard_cap is None else self.hard_cap
        free = min(LARGEST_AUTO_ROOM, disk_bytes // 20) if self.keep_free is None else self.keep_free
        try:
            self._check_order(soft, low, hard)
        except ValueError as error:
            fact, _, hint = str(error).partition("; ")
            raise ConfigError(fact, hint=hint) from None
        return Caps(soft_cap=soft, low_water=low, hard_cap=hard, keep_free=free)

    def _check_order(self, soft: int, low: int, hard: int) -> None:
        shown = write_size(soft) if self.soft_cap is not None else f"{format_size(soft)} on this disk"
        if low >= soft:
            raise ValueError(
                f"retention.low_water is {write_size(low)} and retention.soft_cap is {shown}; "
                "low_water must be the smaller one"
            )
        if hard < soft:
            raise ValueError(
                f"retention.hard_cap is {write_size(hard)} and retention.soft_cap is {shown}; "
                "soft_cap must not be the larger one"
            )
