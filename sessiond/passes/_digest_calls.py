"""Calls in the fold: a call is open until its result comes, and only then is it known what it was worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessiond.model import Kind, Role
from sessiond.passes._digest_counts import Counts
from sessiond.passes._digest_reports import FAILED, NONE, PASSED, RUNNING, read_report, told_by
from sessiond.passes._digest_state import NAME_CHARS, OPEN_CALLS, TOOLS, Action, CallMemory, EarlyResult, RunningTest
from sessiond.passes._digest_words import call_key, commits, is_shell, moment, opens_pull_request

if TYPE_CHECKING:
    from sessiond.model import Step
    from sessiond.passes._digest_errors import Errors
    from sessiond.passes._digest_state import Digest
    from sessiond.passes._digest_words import Keeper

_CALLS = frozenset({Kind.TOOL_CALL, Kind.EDIT, Kind.TEST_RUN, Kind.DECISION})
_ENDINGS = frozenset({Kind.COMPLETION, Kind.ERROR, Kind.LIFECYCLE})
_EARLY = 64
_RUNNING = 5
_NOTHING_COMMITTED = ("nothing to commit", "nothing added to commit", "no changes added to commit")
# What a person ran beside the agent, as adapters put it: neither an interruption nor the end of a call.
_OWN_COMMANDS = ("! ", "ran ")


def is_call(step: Step) -> bool:
    """A decision without a tool (a plan, a verdict, another mode) is only a record of it: no result will come."""
    return step.kind in _CALLS and (step.kind is not Kind.DECISION or step.tool is not None)


def is_by_person(step: Step) -> bool:
    """Whether an intervention is a person's, and meant for the agent: it may also be the agent that asks for one."""
    if step.kind is not Kind.HUMAN_INTERVENTION or step.role is Role.SYSTEM:
        return False
    return step.is_turn or not step.summary.startswith(_OWN_COMMANDS)


@dataclass(frozen=True, slots=True)
class Settled:
    """A call that is over."""

    tool: str | None = None
    key: str | None = None
    test: str | None = None  # PASSED or FAILED, where it was a test run that came to an end


class Calls:
    def __init__(self, digest: Digest, keep: Keeper, errors: Errors) -> None:
        self._digest = digest
        self._memory = digest.fold
        self._keep = keep
        self._errors = errors
        self._counts = Counts(digest, keep)
        self._names: dict[str, str] = {}  # tools come again and again, and masking is not free

    # --- a call -----------------------------------------------------------------------------------

    def opened(self, step: Step) -> Settled | None:
        """Take in a call; what became of it, where that is known already."""
        tool = self._name(step.tool)
        shown = Action(seq=step.seq, kind=step.kind.value, tool=tool, summary=self._keep.line(step.summary))
        files, more_files = self._counts.edited(step.files) if step.files else ([], 0)
        known = CallMemory(
            key=call_key(tool, shown["summary"]),
            ts=moment(step.ts),
            parent=step.parent_seq,
            is_side=step.is_sidechain,
            files=files,
            more_files=more_files,
        )
        self._counts.called(tool)
        if step.kind is Kind.TEST_RUN:
            self._digest.tests["runs"] += 1
        if _is_command(shown):
            self._counts.ran(shown)
        if step.is_error:  # it tells its own result
            is_test = step.kind is Kind.TEST_RUN
            self._errors.happened(step, tool=tool, call_key=known["key"], is_test=is_test)
            return self._settle(shown, known, is_failed=True, report=FAILED, seq=step.seq)
        early = self._early_result(step.seq)
        if early is not None:
            return self._settle_early(shown, known, early)
        if len(self._digest.open_calls) >= OPEN_CALLS:
            # The oldest goes: where so many are open, its result will not come any more.
            del self._digest.open_calls[0], self._memory.calls[0]
            self._digest.open_calls_more += 1
        self._digest.open_calls.append(shown)
        self._memory.calls.append(known)
        return None

    def _name(self, tool: str | None) -> str | None:
        if not tool:
            return None
        name = self._names.get(tool)
        if name is None:
            name = self._keep.line(tool, NAME_CHARS)
            if len(self._names) < TOOLS:
                self._names[tool] = name
        return name

    # --- a result ---------------------------------------------------------------------------------

    def is_about_call(self, step: Step) -> bool:
        """Whether an intervention is aimed at one call: that one was refused, or cut off."""
        parent = step.parent_seq
        return parent is not None and (parent > step.seq or self._place(parent) is not None)

    def closed(self, step: Step) -> Settled:
        """Take in a result, or a person's refusal. One whose call is not known, or not yet, counts by itself."""
        self._memory.has_results = True
        is_denied = step.kind is Kind.HUMAN_INTERVENTION
        at = self._place(step.parent_seq)
        if at is None:
            return self._without_call(step, is_denied=is_denied)
        shown, known = self._digest.open_calls.pop(at), self._memory.calls.pop(at)
        if is_denied:
            self._counts.take_back(known)
            return Settled()
        if self._memory.running and shown["kind"] == Kind.TOOL_CALL and not is_shell(shown["tool"]):
            report = told_by(self._said(step))
            if report is not None:  # the agent looked how its tests were getting on
                running = self._memory.running.pop()
                shown, known = running["call"], running["known"]
        is_test = shown["kind"] == Kind.TEST_RUN
        report = read_report(self._said(step)) if is_test else None
        is_failed = step.is_error or report == FAILED
        if is_failed:
            self._errors.happened(step, tool=shown["tool"], call_key=known["key"], is_test=is_test)
        is_empty_commit = any(words in self._said(step) for words in _NOTHING_COMMITTED)
        return self._settle(
            shown, known, is_failed=is_failed, report=report, seq=step.seq, is_empty_commit=is_empty_commit
        )

    def _place(self, seq: int | None) -> int | None:
        # From the end: a result nearly always belongs to one of the latest calls.
        calls = self._digest.open_calls
        return next((at for at in range(len(calls) - 1, -1, -1) if calls[at]["seq"] == seq), None)

    @staticmethod
    def _said(step: Step) -> str:
        return f"{step.summary}\n{step.detail}" if step.detail else step.summary

    def _without_call(self, step: Step, *, is_denied: bool) -> Settled:
        is_failed = step.is_error and not is_denied
        tool = self._name(step.tool)
        name = self._errors.happened(step, tool=tool) if is_failed else None
        if step.parent_seq is not None and step.parent_seq > step.seq:
            result = EarlyResult(
                parent=step.parent_seq,
                seq=step.seq,
                is_failed=is_failed,
                is_denied=is_denied,
                report=None if is_denied else read_report(self._said(step)),
                fingerprint=name,
            )
            self._memory.early = [*self._memory.early, result][-_EARLY:]
        elif is_failed:
            self._counts.failed(tool)
        return Settled()

    def _early_result(self, seq: int) -> EarlyResult | None:
        early = self._memory.early
        at = next((at for at, each in enumerate(early) if each["parent"] == seq), None)
        return None if at is None else early.pop(at)

    def _settle_early(self, shown: Action, known: CallMemory, early: EarlyResult) -> Settled:
        if early["is_denied"]:
            self._counts.take_back(known)
            return Settled()
        is_test = shown["kind"] == Kind.TEST_RUN
        report = early["report"] if is_test else None
        name = early["fingerprint"]
        if name is not None and self._errors.last_seq(name) == early["seq"]:
            self._errors.belongs_to(name, known["key"], is_test=is_test)
        is_failed = early["is_failed"] or report == FAILED
        return self._settle(shown, known, is_failed=is_failed, report=report, seq=early["seq"])

    # --- what it was worth ------------------------------------------------------------------------

    def _settle(
        self,
        shown: Action,
        known: CallMemory,
        *,
        is_failed: bool,
        report: str | None,
        seq: int,
        is_empty_commit: bool = False,
    ) -> Settled:
        is_test = shown["kind"] == Kind.TEST_RUN
        if is_test and not is_failed and report in (RUNNING, NONE):
            if report == RUNNING:
                self._memory.running = [*self._memory.running, RunningTest(call=shown, known=known)][-_RUNNING:]
            return Settled(shown["tool"], known["key"])
        test = (FAILED if is_failed else PASSED) if is_test else None
        if test is not None:
            self._tested(test, shown["seq"])
        if is_failed:
            self._failed(shown, known, seq)
        else:
            self._went_well(shown, known, test, is_empty_commit=is_empty_commit)
        return Settled(shown["tool"], known["key"], test)

    def _tested(self, test: str, seq: int) -> None:
        tests = self._digest.tests
        if test == PASSED:
            tests["passed"] += 1
            self._memory.failed_test_seq = 0
        else:
            tests["failed"] += 1
        tests["last"], tests["last_seq"] = test, seq

    def _failed(self, shown: Action, known: CallMemory, seq: int) -> None:
        self._counts.failed(shown["tool"])
        if _is_command(shown):
            self._counts.command_failed(shown)
        self._counts.take_back(known)
        self._errors.failed_again(shown["tool"], known["key"], seq)

    def _went_well(self, shown: Action, known: CallMemory, test: str | None, *, is_empty_commit: bool) -> None:
        memory, seq = self._memory, shown["seq"]
        is_work = shown["kind"] in (Kind.EDIT, Kind.TEST_RUN) or _is_command(shown)
        if shown["kind"] == Kind.EDIT:
            memory.last_edit_seq = max(memory.last_edit_seq, seq)
        if _is_command(shown) and commits(shown["summary"]) and not is_empty_commit:
            memory.commit_seq = max(memory.commit_seq, seq)
        if opens_pull_request(shown["tool"], shown["summary"]):
            memory.pull_request_seq = max(memory.pull_request_seq, seq)
        self._errors.succeeded(shown, known["key"], is_work=is_work, is_passed_test=test == PASSED)

    # --- calls that end without a result ------------------------------------------------------------

    def ended(self, step: Step) -> Settled:
        """Settle a call, and those made for it, by the record of its end; says which call that was, if any.

        Logs of finished work write no results: call, tests, edits and end of one piece of work share its time, and all
        name the call as their parent. Where results are written, such a record says nothing of the call.
        """
        at = self._place(step.parent_seq) if step.kind in _ENDINGS and not self._memory.has_results else None
        if at is None or self._memory.calls[at]["ts"] != moment(step.ts):
            return Settled()
        call = Settled(self._digest.open_calls[at]["tool"], self._memory.calls[at]["key"])
        is_failed = step.kind is Kind.ERROR
        ended = [
            place
            for place, each in enumerate(self._memory.calls)
            if place == at or (each["parent"] == step.parent_seq and each["ts"] == moment(step.ts))
        ]
        pairs = [(self._digest.open_calls[place], self._memory.calls[place]) for place in ended]
        for place in reversed(ended):
            del self._digest.open_calls[place], self._memory.calls[place]
        for shown, known in pairs:
            failed = is_failed and shown["seq"] == step.parent_seq
            self._settle(shown, known, is_failed=failed, report=PASSED, seq=step.seq)
        return call


def _is_command(shown: Action) -> bool:
    return shown["kind"] in (Kind.TOOL_CALL, Kind.TEST_RUN) and is_shell(shown["tool"])
