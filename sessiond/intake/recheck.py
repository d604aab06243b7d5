"""Once an hour every file is compared with what was read of it, whatever its stat says.

A writer may keep size and mtime, and one that maps a file into memory changes them when it likes. What did not change
since the last time is compared by its first and last bytes, as on every read; what did, byte by byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SECONDS = 3600.0


class Recheck:
    """Whose turn it is. `note` may be called from any thread; the rest belongs to the loop's."""

    def __init__(self, now: float) -> None:
        self._last = now
        self._changed: set[str] = set()
        self._doubted: set[str] = set()

    def note(self, path: str) -> None:
        """It may have changed: the next time it is compared to its last byte."""
        self._changed.add(path)

    def due(self, now: float, paths: Iterable[str]) -> Iterable[str]:
        """Those of the paths to look at again: all, or most of the time none."""
        if now - self._last < SECONDS:
            return ()
        self._last = now
        self._doubted, self._changed = self._changed, set()
        return paths

    def is_doubted(self, path: str) -> bool:
        """Whether to compare it to its last byte now; asked once."""
        is_doubted = path in self._doubted
        self._doubted.discard(path)
        return is_doubted
