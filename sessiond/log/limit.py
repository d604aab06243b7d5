"""The same event again and again is worth saying a few times."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class RateLimit:
    """For each key `burst` in `per_seconds`; says with the next one how many were held back."""

    MAX_KEYS = 1000

    def __init__(self, burst: int = 20, per_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._per_seconds, self._clock = burst, per_seconds, clock
        self._windows: dict[Any, list[float]] = {}  # key -> [began, let through, held back]
        self._lock = threading.Lock()

    def allow(self, key: Any) -> int | None:
        """How many were held back before this one; None: hold this one back too."""
        now = self._clock()
        with self._lock:
            window = self._windows.get(key)
            if window is None or now - window[0] >= self._per_seconds:
                held = int(window[2]) if window else 0
                self._windows.pop(key, None)
                if len(self._windows) >= self.MAX_KEYS:
                    del self._windows[next(iter(self._windows))]
                self._windows[key] = [now, 1, 0]
                return held
            if window[1] < self._burst:
                window[1] += 1
                return 0
            window[2] += 1
            return None
