"""What is asked of each client. The first prompt of a scenario starts a session, the others go on with it."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    script: str  # of mock/scripts.py
    kill: signal.Signals | None = None  # in the middle of its tool call or its answer


@dataclass(frozen=True)
class Scenario:
    name: str
    asks: tuple[Ask, ...]
    shows: str
    is_resumed: bool = False  # its files are deleted and restored, and the client goes on once more


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("tools", (Ask("tools"),), "thinking, answers, calls, an edit; restored", is_resumed=True),
        Scenario("fail", (Ask("plain"), Ask("fail")), "failing tools and a failing test, in a resumed session"),
        Scenario("task", (Ask("task"),), "a sub-agent; restored with it", is_resumed=True),
        Scenario("retry", (Ask("retry"), Ask("plain")), "an API error that goes away, then a resume"),
        Scenario("fatal", (Ask("fatal"), Ask("plain")), "an API error that stays, then a resume"),
        Scenario("kill", (Ask("hang", signal.SIGKILL), Ask("plain")), "kill -9 in a tool call, then a resume"),
        Scenario("cut", (Ask("stall", signal.SIGTERM), Ask("plain")), "SIGTERM in an answer, then a resume"),
    )
}
