"""What the mock served: the truth that the store is held against."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from realclients.mock.scripts import Place
from realclients.mock.wires.shape import Tokens


@dataclass(frozen=True)
class ServedCall:
    action: str
    tool: str
    is_edit: bool
    is_test: bool
    is_failing: bool


@dataclass
class Served:
    """One request and its answer. An aside is what the client asks for itself: a title, what to remember."""

    number: int
    place: Place | None
    texts: int = 0
    thoughts: int = 0
    calls: list[ServedCall] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)
    status: int = 200
    is_aside: bool = False
    is_finished: bool = False  # sent to its end


class Ledger:
    """Handler threads add to it, the runner reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: list[Served] = []
        self._requests = 0
        self._refusals: dict[tuple[int, int], int] = {}
        self.refused: list[str] = []  # what asked for the outside
        self.strange: list[str] = []  # what the mock does not speak
        self.stalled = threading.Event()

    def next_number(self) -> int:
        with self._lock:
            self._requests += 1
            return self._requests

    def add(self, served: Served) -> None:
        with self._lock:
            self._served.append(served)

    def refuses_again(self, place: Place, times: int) -> bool:
        with self._lock:
            key = place.number, place.step
            self._refusals[key] = self._refusals.get(key, 0) + 1
            return self._refusals[key] <= times

    def of(self, numbers: set[int]) -> list[Served]:
        """Everything that was served to these prompts."""
        with self._lock:
            return [each for each in self._served if each.place is not None and each.place.number in numbers]
