"""P7 for every answer from the store: may it be old, and why? Asked of the daemon, or told by the lock it left.

Never holds an answer up: a daemon that does not say so at once is itself the news.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sessiond import lock
from sessiond.cli import terminal, times
from sessiond.errors import NotRunning, SessiondError
from sessiond.serve.client import Client
from sessiond.units import format_duration, format_size

if TYPE_CHECKING:
    from sessiond.paths import Paths

PATIENCE_SECONDS = 0.25
LAG_SECONDS = 2.0  # an append is normally stored within a fraction of one


class Freshness(NamedTuple):
    """`as_of`: the answer holds all that was written until then. `warning`: what a person must know; None: nothing."""

    as_of: str | None
    warning: str | None

    @property
    def is_complete(self) -> bool:
        return self.warning is None

    def say(self) -> None:
        if self.warning is not None:
            terminal.say_note(self.warning)


UNSAID = Freshness(None, None)


def look(paths: Paths) -> Freshness:
    """How fresh the store is at this moment."""
    try:
        told = Client(paths.socket, PATIENCE_SECONDS).call("freshness")
    except NotRunning:
        return _without_daemon(paths)
    except SessiondError as error:
        return Freshness(None, f"the daemon does not say how fresh this is: {error.fact}")
    return Freshness(told.get("as_of"), _words(told))


def _words(told: dict[str, Any]) -> str | None:
    facts = []
    if told.get("state") == "paused":
        by = told.get("paused_by")
        facts.append("sessiond is paused" + (" by you" if by == "user" else f" ({by})" if by else ""))
    percent = told.get("history_percent")
    if percent is not None and percent < 100:
        facts.append(f"history is {_floor(percent)} % read")
    if degraded := told.get("degraded"):
        names = ", ".join(each if isinstance(each, str) else str(each.get("name")) for each in degraded)
        facts.append(f"sessiond is degraded ({names})")
    lag_bytes, lag_seconds = told.get("lag_bytes") or 0, told.get("lag_seconds") or 0
    if lag_bytes and lag_seconds > LAG_SECONDS:
        facts.append(f"the newest {format_size(lag_bytes)} are not in yet ({format_duration(lag_seconds)} behind)")
    return "; ".join(facts) + ": this may be incomplete. See: sessiond status" if facts else None


def _floor(percent: float) -> int:
    return min(99, int(percent))  # "100 %" would contradict the sentence it stands in


def _without_daemon(paths: Paths) -> Freshness:
    try:
        holder = lock.read_holder(paths.lock)
        stopped = datetime.fromtimestamp(paths.lock.stat().st_mtime, UTC)
    except (SessiondError, OSError):
        return Freshness(None, "sessiond is not running; this may be old. Start it: sessiond run")
    as_of = times.iso(stopped)
    if holder is None:
        down = times.when(as_of, times.now())
        return Freshness(as_of, f"sessiond is not running (down since {down}); this may be old. Start it: sessiond run")
    who = f" (pid {holder.pid})" if holder.pid else ""
    if holder.socket is None:
        return Freshness(as_of, f"another sessiond command is at work{who}; this may be incomplete")
    return Freshness(None, f"the daemon{who} does not answer; this may be old. See: sessiond status")
