"""How far intake is: what was promised to whoever asked, the first reading of old files, the last sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(slots=True)
class Ticket:
    """A promise to someone who asked: everything written before is stored."""

    waiting: set[str] | None = None  # None: its sweep has not begun
    is_stored: bool = False
    position: int | None = None  # what the search index must have reached


@dataclass(slots=True)
class History:
    """How far the first reading of old files has come."""

    total_bytes: int = 0
    done_bytes: int = 0
    reached_ns: int | None = None  # mtime of the file read last: newest come first
    began: float = 0.0
    ended: float | None = None
    left: dict[str, int] = field(default_factory=dict)  # path -> bytes not read yet


@dataclass(slots=True)
class LastSweep:
    at: datetime | None = None
    seconds: float = 0.0
    found: int = 0
    special: int = 0
    ignored: int = 0
    ahead: int = 0
