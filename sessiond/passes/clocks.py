"""The wall clock held against the monotonic one: has it jumped, and may it be trusted to tell how old a session is?"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sessiond.log.light import structlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

JUMP_SECONDS = 5.0
DOUBTFUL_SECONDS = 86_400.0

log = structlog.get_logger()


class Clocks:
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

    @property
    def ahead_seconds(self) -> float:
        """How far the wall clock is ahead of the time last trusted; 0 while it is not doubted, or is behind."""
        with self._lock:
            return max(0.0, self._offset - self._trusted) if self.is_doubtful else 0.0

    def _read(self) -> tuple[float, float]:
        now = self._monotonic()
        # timestamp(): the difference of two local times is an hour off where summer time ends.
        return now, self._wall().timestamp() - now
