"""Hints that a file may have changed. They may be late, doubled or lost: the sweep decides what is true.

A watch names in `health` what is not as it should be; `check` mends it and says what calls for a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from sessiond.intake.watching.health import WatchedRoot, WatchHealth, polled
from sessiond.intake.watching.native import NativeWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sessiond.intake.scan import Root

__all__ = ["NativeWatch", "PollWatch", "Watch", "WatchHealth", "WatchedRoot", "make_watch"]


class Watch(Protocol):
    """`start`, `check` and `stop` belong to one thread; `health` may be asked by any."""

    def start(self, roots: Sequence[Root]) -> None:
        """Watch only these roots. Watch first, sweep then: an overlap is harmless, a gap loses lines."""

    def stop(self) -> None: ...

    def check(self, now: float) -> list[str]:
        """Mend what broke; the reasons for a sweep at once. Meant for once a second, with monotonic time."""

    @property
    def health(self) -> WatchHealth: ...


def make_watch(
    mode: Literal["auto", "native", "poll"], on_hint: Callable[[str], None], on_trouble: Callable[[str], None]
) -> Watch:
    """`on_hint` is told the real path of a file to look at, `on_trouble` a fixed word: why to sweep at once.

    Both are called from other threads and must not block. What `check` returns went to `on_trouble` as well.
    `auto` polls where there is no native watch and says so; `native` raises SessiondError at `start` instead.
    """
    if mode == "poll":
        return PollWatch()
    return NativeWatch(on_hint, on_trouble, may_poll=mode == "auto")


class PollWatch:
    """No thread and no hints: the ingest loop sweeps every `poll_interval`."""

    def __init__(self) -> None:
        self._folders: list[str] = []

    def start(self, roots: Sequence[Root]) -> None:
        self._folders = list(dict.fromkeys(root.folder for root in roots))

    def stop(self) -> None:
        self._folders = []

    def check(self, now: float) -> list[str]:  # noqa: ARG002 - the protocol's
        return []

    @property
    def health(self) -> WatchHealth:
        return WatchHealth("poll", tuple(polled(folder, "polled") for folder in self._folders), {})
