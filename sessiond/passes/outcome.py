"""How a session ended: what the agent states, else what is evident, else the state in which it was left. Pure.

A terminal state is told by the last event that matters. A failing test outlives the answer that follows it; an open
call, an interruption or a prompt without an answer leaves even good work unfinished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessiond.model import Outcome
from sessiond.passes._digest_ending import State
from sessiond.passes._digest_reports import PASSED

if TYPE_CHECKING:
    from sessiond.passes._digest_state import Digest

STATED = "stated"
EVIDENCE = "evidence"
TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    basis: str | None
    reason: str | None


def verdict(digest: Digest, *, stated: Verdict | None, is_quiet: bool, is_sub_agent: bool = False) -> Verdict:
    """The outcome, its basis and its reason; of a session that is not quiet yet only what the agent itself states.

    `is_sub_agent`: the session is one, so that its side chain is all there ever is of it.
    """
    if stated is not None:
        return stated
    if not is_quiet:
        return Verdict(Outcome.UNKNOWN, None, "still going on")
    state = State(digest.fold.state)
    if state is State.NOTHING:
        return Verdict(Outcome.UNKNOWN, None, "nothing was ever asked")
    if not digest.fold.has_main and not is_sub_agent:
        return Verdict(Outcome.UNKNOWN, None, "only what its sub-agents did is here")
    if state is State.ERROR:
        return _terminal(Outcome.FAIL, "ended on an error")
    left = _left_unfinished(digest, state)
    if left is not None:
        return _terminal(Outcome.ABANDONED, left)
    return _in_the_middle(digest) if state is State.WORK else _after_a_turn(digest, state)


def _terminal(outcome: Outcome, reason: str) -> Verdict:
    return Verdict(outcome, TERMINAL, reason)


def _left_unfinished(digest: Digest, state: State) -> str | None:
    memory = digest.fold
    if state is State.PROMPT:
        return "the last prompt was not answered" if memory.answer_seq else "the prompt was never answered"
    if state is State.INTERRUPTED:
        return "interrupted by a person"
    if state is State.STOPPED:
        return "the turn was stopped before its end"
    if state is State.WORK:
        return _open_call(digest)
    return None


def _open_call(digest: Digest) -> str | None:
    """A call of this turn that never came back. After an answer the agent has moved on from what is still open."""
    memory = digest.fold
    since = max(memory.prompt_seq, memory.answer_seq)
    calls = zip(digest.open_calls, memory.calls, strict=True)
    tools = [call["tool"] for call, known in calls if call["seq"] > since and known["is_side"] != memory.has_main]
    return f"a call was left open ({tools[-1] or 'unnamed'})" if tools else None


def _in_the_middle(digest: Digest) -> Verdict:
    """The last result came back, and no answer followed. Then only what this turn has shown counts."""
    memory = digest.fold
    if memory.failed_test_seq > memory.prompt_seq:
        return _terminal(Outcome.FAIL, "ended on a failing test run")
    if memory.completed_seq > memory.prompt_seq:  # the agent had marked the turn as ended; what it began then came back
        return _after_a_turn(digest, State.COMPLETED)
    evidence = _evidence(digest, since=memory.prompt_seq)
    if evidence:
        return Verdict(Outcome.SUCCESS, EVIDENCE, "; ".join(evidence))
    return _terminal(Outcome.ABANDONED, "ended without an answer")


def _after_a_turn(digest: Digest, state: State) -> Verdict:
    memory = digest.fold
    if memory.failed_test_seq:
        return _terminal(Outcome.FAIL, "the last test run failed, and none has passed since")
    if memory.is_turn_open:
        return _terminal(Outcome.ABANDONED, "the turn never came to its end")
    is_answered = state is State.ANSWER or memory.answer_seq > memory.prompt_seq
    ending = "ended on an answer" if is_answered else "the turn came to its end"
    evidence = _evidence(digest, since=0)
    return Verdict(Outcome.SUCCESS, EVIDENCE if evidence else TERMINAL, "; ".join([ending, *evidence]))


def _evidence(digest: Digest, *, since: int) -> list[str]:
    """What shows that the work is good: a passing test after the last edit, a commit, a pull request."""
    memory, tests = digest.fold, digest.tests
    tested = tests["last_seq"] if tests["last"] == PASSED and tests["last_seq"] is not None else 0
    found = []
    if tested > max(memory.last_edit_seq, since):
        found.append("tests passed after the last edit" if memory.last_edit_seq else "tests passed")
    if memory.commit_seq > since:
        found.append("committed")
    if memory.pull_request_seq > since:
        found.append("a pull request was opened")
    return found
