"""Nothing degrades silently: every degradation has a name, a since-when and a way out, and is logged per change."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessiond.model import utc

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


@dataclass(slots=True)
class Trouble:
    name: str
    detail: str
    fix: str | None
    since: datetime
    count: int = 1


class Troubles:
    """What is wrong right now. Safe from any thread. `say(name, detail)` is told of every beginning and end."""

    def __init__(self, now: Callable[[], datetime], say: Callable[[str, str | None], None]) -> None:
        self._now = now
        self._say = say
        self._lock = threading.Lock()
        self._current: dict[str, Trouble] = {}

    def report(self, name: str, detail: str | None, fix: str | None = None) -> None:
        """This is wrong; or, with no detail, it no longer is."""
        with self._lock:
            known = self._current.get(name)
            if detail is None:
                if self._current.pop(name, None) is None:
                    return
            elif known is not None:
                known.count += 1
                known.detail, known.fix = detail, fix
                return
            else:
                self._current[name] = Trouble(name, detail, fix, self._now())
        self._say(name, detail)

    def listing(self) -> list[dict[str, Any]]:
        with self._lock:
            return [
                {"name": t.name, "since": utc(t.since), "detail": t.detail, "fix": t.fix, "count": t.count}
                for t in sorted(self._current.values(), key=lambda each: each.since)
            ]

    def __bool__(self) -> bool:
        return bool(self._current)
