"""How a session stands after each event: what was last asked and answered, and the state it would end in.

Only one chain counts. Side-chain events do until the first event of the main chain comes; what they said is dropped
then, so the order in which a parent's and a sub-agent's file are read makes no difference.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from sessiond.model import Kind
from sessiond.passes._digest_calls import is_by_person
from sessiond.passes._digest_reports import FAILED
from sessiond.passes._digest_state import SAID_CHARS

if TYPE_CHECKING:
    from sessiond.model import Step
    from sessiond.passes._digest_calls import Settled
    from sessiond.passes._digest_state import Digest
    from sessiond.passes._digest_words import Keeper

# Where an agent marks its turns at both ends, adapters put it so.
_TURN_STARTED = "turn started"
_TURN_STOPPED = "turn ended: "
_PULL_REQUEST = "pull request "


class State(StrEnum):
    """What the last event that matters was."""

    NOTHING = "nothing"
    PROMPT = "prompt"
    WORK = "work"  # a call, or the result of one
    ANSWER = "answer"
    COMPLETED = "completed"  # the agent itself marks the turn as ended
    ERROR = "error"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"  # neither by a person nor well


class Ending:
    def __init__(self, digest: Digest, keep: Keeper) -> None:
        self._digest = digest
        self._memory = digest.fold
        self._keep = keep

    def begins(self, step: Step) -> bool:
        """Whether this event is one of the chain that counts; to be asked once for each, before anything else."""
        if step.is_sidechain:
            return not self._memory.has_main
        if not self._memory.has_main:
            self._memory.has_main = True
            self._forget()
        return True

    def _forget(self) -> None:
        digest, memory = self._digest, self._memory
        digest.first_prompt = digest.last_prompt = digest.last_answer = None
        memory.state, memory.state_seq = State.NOTHING.value, 0
        memory.prompt_seq = memory.answer_seq = memory.completed_seq = memory.failed_test_seq = 0
        memory.is_turn_open = False

    def goes_on(self, step: Step, settled: Settled | None, *, is_call: bool) -> None:
        """Take in an event of the chain that counts; `settled` is what the event made of a call."""
        kind = step.kind
        if settled is not None and settled.test == FAILED:
            self._memory.failed_test_seq = step.seq
        if is_call or kind is Kind.TOOL_RESULT:
            self._is(State.WORK, step)
        elif kind is Kind.USER_MSG:
            self._asked(step)
        elif kind is Kind.HUMAN_INTERVENTION:
            self._intervened(step)
        elif kind is Kind.ASSISTANT_MSG:
            self._answered(step)
        else:
            self._ended(step)

    def _is(self, state: State, step: Step) -> None:
        self._memory.state, self._memory.state_seq = state.value, step.seq

    def _asked(self, step: Step) -> None:
        self._is(State.PROMPT, step)
        self._memory.prompt_seq = step.seq
        if not step.is_turn and not step.is_sidechain:
            return  # put in by the client or another agent
        said = self._keep.text(step.detail or step.summary, SAID_CHARS)
        if said.strip():
            self._digest.last_prompt = said
            if self._digest.first_prompt is None:
                self._digest.first_prompt = said

    def _intervened(self, step: Step) -> None:
        if not is_by_person(step):
            return
        if step.is_turn:
            self._asked(step)
        else:
            self._is(State.INTERRUPTED, step)
            self._memory.is_turn_open = False

    def _answered(self, step: Step) -> None:
        said = self._keep.text(step.detail or step.summary, SAID_CHARS)
        if not said.strip():
            return
        self._is(State.ANSWER, step)
        self._memory.answer_seq = step.seq
        self._digest.last_answer = said

    def _ended(self, step: Step) -> None:
        memory, kind = self._memory, step.kind
        if kind is Kind.COMPLETION:
            memory.is_turn_open = False
            # Some mark the end of a turn that an error ended, too; no answer came of it.
            if memory.state != State.ERROR:
                self._is(State.COMPLETED, step)
                memory.completed_seq = step.seq
        elif kind is Kind.ERROR:
            # What fails after a turn has ended, such as a hook, does not undo what came of the turn.
            if memory.state != State.COMPLETED or memory.is_turn_open:
                self._is(State.ERROR, step)
            memory.is_turn_open = False
        elif kind is Kind.LIFECYCLE and step.summary == _TURN_STARTED:
            memory.is_turn_open = True
        elif kind is Kind.LIFECYCLE and step.summary.startswith(_TURN_STOPPED):
            self._is(State.STOPPED, step)
            memory.is_turn_open = False


def tells_pull_request(step: Step) -> bool:
    """A record that the session has a pull request now, whoever opened it."""
    return step.kind is Kind.LIFECYCLE and step.summary.startswith(_PULL_REQUEST)
