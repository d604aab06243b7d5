"""The part of the status page that tells of keeping and letting go: passes, pauses, and what was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.cli import times
from sessiond.cli.terminal import plain
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sessiond.cli.terminal import Terminal

    Status = Mapping[str, Any]

LOSSES_SHOWN = 5  # on a screen; --json has more
NOTHING_DONE = "nothing to do"
BY_USER = "user"
_REASONS = {
    "hard_cap": "hard cap reached",
    "keep_free": "too little disk left",
    "store_full": "the disk is full",
    "reindex": "reindex at work",
}


def paused_words(status: Status) -> str:
    """As in "is paused by you until 15:10"; a reason that is not known here is named as the daemon names it."""
    by = status.get("paused_by")
    if not by:
        return "is paused"
    if by != BY_USER:
        return f"is paused ({plain(_REASONS.get(str(by), str(by)))})"
    until = times.parse(status.get("paused_until"))
    return "is paused by you" + (f" until {times.local(until)}" if until is not None else ": sessiond unpause")


def pass_facts(status: Status, now: datetime) -> list[str]:
    """Each pass: when it ran last, and what it did, where it did anything. A scan always does the same."""
    facts = []
    for name, each in (status.get("passes") or {}).items():
        told = _pass_words(each or {}, now, is_scan=name == "scan")
        if told:
            facts.append(f"{plain(name)} {told}")
    return facts


def _pass_words(each: Mapping[str, Any], now: datetime, *, is_scan: bool) -> str:
    if each.get("running_since"):
        return f"at work for {times.since(each['running_since'], now)}"
    if not each.get("last_at"):
        return times.when(each.get("next_at"), now)
    result = plain(str(each.get("last_result") or "")).removeprefix(f"{NOTHING_DONE}; ")
    when = times.when(each["last_at"], now)
    if is_scan:
        return when
    if result in ("", NOTHING_DONE):
        return f"{when}; {times.when(each['did_at'], now)}: {plain(str(each['did']))}" if each.get("did") else when
    return f"{when}: {result}"


def loss_lines(to: Terminal, status: Status, now: datetime) -> list[str]:
    """What was evicted though no digest covered it, each with what is gone; until somebody acknowledges it."""
    losses = list(status.get("data_loss") or ())
    shown = losses[:LOSSES_SHOWN] if to.is_screen else losses
    lines = []
    for each in shown:
        when = times.when(each.get("at"), now, absolute=not to.is_screen)
        events = f"events {each.get('first_seq') or 0:,} to {each.get('last_seq') or 0:,}"
        # The reason is that of the report above them; only a file or a pipe has room for it again.
        why = "" if to.is_screen else f": {plain(str(each.get('reason')))}"
        lines.append(plain(str(each.get("session_uid"))))
        lines.append(f"  {events}, {format_size(each.get('bytes') or 0)}, {when}{why}")
    if len(losses) > len(shown):
        lines.append(f"and {len(losses) - len(shown):,} more (--json lists them)")
    return lines
