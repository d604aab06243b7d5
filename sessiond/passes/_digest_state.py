"""A digest as it is kept: what docs/digest.md promises, and beside it what the fold must still know of the past.

All of it is plain JSON and bounded, so that a digest is written with its session and goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict, TypeVar

VERSION = 1

TOOLS = 100
FILES = 200
COMMANDS = 100
ERRORS = 50
DECISIONS = 50
OPEN_CALLS = 256
INTERVENTIONS = 20
ACTIONS = 5  # of what was done between an error and its end
EVIDENCE = 5  # seqs that stand for a signal

LINE_CHARS = 200
SAMPLE_CHARS = 300
SAID_CHARS = 1000
PATH_CHARS = 1000
NAME_CHARS = 100


class ToolUse(TypedDict):
    calls: int
    errors: int


class FileEdits(TypedDict):
    path: str
    edits: int


class Command(TypedDict):
    command: str
    count: int
    failed: int
    seq: int


class Tests(TypedDict):
    runs: int
    passed: int
    failed: int
    last: str | None
    last_seq: int | None


class Action(TypedDict):
    """A call, in few words."""

    seq: int
    kind: str
    tool: str | None
    summary: str


class Recovery(TypedDict):
    seq: int
    actions: list[Action]


class Snippet(TypedDict):
    fingerprint: str
    sample: str
    count: int
    tool: str | None
    first_seq: int
    last_seq: int
    first_at: str | None
    last_at: str | None
    followed_by: Action | None
    recovered_by: Recovery | None


class Note(TypedDict):
    seq: int
    summary: str


class Interventions(TypedDict):
    count: int
    items: list[Note]


class Signal(TypedDict):
    signal: str
    seqs: list[int]
    detail: str
    fingerprint: str | None


class CallMemory(TypedDict):
    """What is known of an open call besides what is shown of it; at the same place as in `open_calls`."""

    key: str
    ts: str | None
    parent: int | None
    is_side: bool
    files: list[str]
    more_files: int


class RunningTest(TypedDict):
    """A test run that was left to run: another call will bring its report."""

    call: Action
    known: CallMemory


class EarlyResult(TypedDict):
    """A result that was stored before its call."""

    parent: int
    seq: int
    is_failed: bool
    is_denied: bool
    report: str | None
    fingerprint: str | None


class ErrorMemory(TypedDict):
    """What is known of an error besides what is shown of it; at the same place as in `error_snippets`."""

    seqs: list[int]
    key: str | None
    is_test: bool


class Storm(TypedDict):
    what: str
    tool: str | None
    count: int
    seqs: list[int]


@dataclass(slots=True)
class Memory:
    """The private part. The chain is the main one; of a session that is all side chain, that one."""

    # the clock, in milliseconds since 1970
    first_ms: int | None = None
    last_ms: int | None = None
    active_ms: int = 0
    # how the chain stands
    has_main: bool = False
    state: str = "nothing"
    state_seq: int = 0
    prompt_seq: int = 0
    answer_seq: int = 0
    completed_seq: int = 0
    is_turn_open: bool = False
    failed_test_seq: int = 0
    # what was done, on any chain
    last_edit_seq: int = 0
    commit_seq: int = 0
    pull_request_seq: int = 0
    recent: list[Action] = field(default_factory=list)
    has_results: bool = False
    calls: list[CallMemory] = field(default_factory=list)
    running: list[RunningTest] = field(default_factory=list)
    early: list[EarlyResult] = field(default_factory=list)
    # what went wrong
    errors: list[ErrorMemory] = field(default_factory=list)
    unfollowed: list[str] = field(default_factory=list)
    unrecovered: list[str] = field(default_factory=list)
    run_key: str | None = None
    run_seqs: list[int] = field(default_factory=list)
    run_count: int = 0
    run_storm: int | None = None  # the storm of `storms` that this run is
    retries_at: list[list[int | None]] = field(default_factory=list)
    retry_storm: int | None = None  # the storm of `storms` that goes on
    storms: list[Storm] = field(default_factory=list)


@dataclass(slots=True)
class Digest:
    """What is left of a session: small, masked, and good to go on from. Field by field in docs/digest.md."""

    version: int = VERSION
    through_seq: int = 0
    partial: str | None = None
    title: str | None = None
    outcome: str = "unknown"
    outcome_basis: str | None = None
    outcome_reason: str | None = None
    models: list[str] = field(default_factory=list)
    started_at: str | None = None
    ended_at: str | None = None
    duration_s: float | None = None
    active_s: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    tools: dict[str, ToolUse] = field(default_factory=dict)
    tools_more: int = 0
    turns: int = 0
    files: list[FileEdits] = field(default_factory=list)
    files_more: int = 0
    commands: list[Command] = field(default_factory=list)
    commands_more: int = 0
    tests: Tests = field(default_factory=lambda: Tests(runs=0, passed=0, failed=0, last=None, last_seq=None))
    error_snippets: list[Snippet] = field(default_factory=list)
    errors_more: int = 0
    retries: int = 0
    human_interventions: Interventions = field(default_factory=lambda: Interventions(count=0, items=[]))
    decisions: list[Note] = field(default_factory=list)
    decisions_more: int = 0
    open_calls: list[Action] = field(default_factory=list)
    open_calls_more: int = 0
    first_prompt: str | None = None
    last_prompt: str | None = None
    last_answer: str | None = None
    signals: list[Signal] = field(default_factory=list)
    fold: Memory = field(default_factory=Memory)

    def to_dict(self) -> dict[str, Any]:
        return {**_fields(self), "fold": _fields(self.fold)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """The digest that `to_dict` wrote; names that this version does not know are left out.

        A digest of a later version is a ValueError: folding on from it would garble what it means.
        """
        version = value.get("version", VERSION)
        if not isinstance(version, int) or not 1 <= version <= VERSION:
            raise ValueError(f"a digest of version {version!r}; this sessiond knows versions up to {VERSION}")
        memory = Memory(**_known(Memory, value.get("fold") or {}))
        return cls(**{**_known(cls, value), "fold": memory})

    def copy(self) -> Self:
        return type(self)(**_fields(self), fold=Memory(**_fields(self.fold)))


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: _copied(getattr(value, each.name)) for each in dataclasses.fields(value) if each.name != "fold"}


def _known(cls: Any, value: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in dataclasses.fields(cls)}
    return {name: _copied(each) for name, each in value.items() if name in names and name != "fold"}


_T = TypeVar("_T")


def _copied(value: _T) -> _T:
    """Like copy.deepcopy, for JSON alone: many times faster."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [_copied(each) for each in value]  # type: ignore[return-value]
    return value
