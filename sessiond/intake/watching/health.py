"""What a watch says about itself, for `status`, `doctor` and the pace of the sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["native", "poll"]


@dataclass(frozen=True, slots=True)
class WatchedRoot:
    folder: str
    state: Literal["watched", "absent", "unwatched"]
    detail: str = ""  # why it is unwatched


@dataclass(frozen=True, slots=True)
class WatchHealth:
    mode: Mode
    roots: tuple[WatchedRoot, ...]
    problems: dict[str, str]  # name -> what is the matter and what to do about it
    overflows: int = 0
    is_stale: bool = False  # events were lost, perhaps of new or renamed directories, and the watches are still the old

    @property
    def is_complete(self) -> bool:
        """Every root that exists is watched whole: sweeps may become rare."""
        is_whole = self.mode == "native" and not self.problems and not self.is_stale
        return is_whole and all(r.state != "unwatched" for r in self.roots)


def polled(folder: str, detail: str) -> WatchedRoot:
    """A root that is seen by sweeps alone."""
    return WatchedRoot(folder, "unwatched", detail) if Path(folder).is_dir() else WatchedRoot(folder, "absent")
