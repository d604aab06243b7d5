"""The nouns. Everything else speaks in these; this module imports nothing of ours.

Four groups, in the order a byte meets them:
- what a reader hands over: `Line`, `Chunk`, `Checkpoint`
- what an adapter makes of a line: `Event`, `Link`, `Patch`, `Usage`, `Fact`, `Unknown` (together: `Record`)
- what people and tools are shown: `Session`, `SessionEvent`, `Cost` (stable field names, JSON and back)
- what a digest is made of: `Step`
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NewType, Self

SCHEMA_VERSION = 1

# The flavors that exist are those of the registered adapters, plus those a store already holds.
FLAVORS: set[str] = set()


class Kind(StrEnum):
    USER_MSG = "user_msg"
    ASSISTANT_MSG = "assistant_msg"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    ERROR = "error"
    TEST_RUN = "test_run"
    EDIT = "edit"
    RETRY = "retry"
    HUMAN_INTERVENTION = "human_intervention"
    DECISION = "decision"
    LIFECYCLE = "lifecycle"
    COMPLETION = "completion"


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"
    AGENT = "agent"


class Outcome(StrEnum):
    SUCCESS = "success"
    FAIL = "fail"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


class State(StrEnum):
    """The furthest watermark that still holds."""

    DISCOVERED = "discovered"
    INGESTED = "ingested"
    ANALYZED = "analyzed"
    EVICTED = "evicted"


# --- what a reader hands over -------------------------------------------------------------------


@dataclass(slots=True)
class Line:
    """One complete line, without its newline. `offset` is where it begins in the (decompressed) file."""

    offset: int
    data: bytes
    ending: int = 0  # bytes of a carriage return that belong to the record but not to its JSON
    repaired: bool = False  # set by decode(): the bytes were no valid UTF-8 and were mended for parsing

    @property
    def length(self) -> int:
        return len(self.data) + self.ending


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a file was read, and what must still be true of it for that to mean anything.

    `offset` is after the last newline that was taken in (or inside a line too long to keep: then `skipped`
    says how much of that line lies before it). `head` and `marker` hash the first <= 1024 bytes and the
    <= 256 bytes before `offset`; `checksum` covers every byte before it.
    """

    device: int = 0
    inode: int = 0
    offset: int = 0
    head: bytes = b""
    head_bytes: int = 0
    marker: bytes = b""
    checksum: int = 0
    skipped: int = 0  # bytes of an overlong line already passed
    skipped_hash: bytes = b""  # running hash of those bytes


START = Checkpoint()


@dataclass(frozen=True, slots=True)
class Reject:
    """A stretch of bytes that made no record: where, how long, why. The bytes themselves are in the archive."""

    offset: int
    length: int
    reason: str
    hash: bytes = b""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one file from `start` to `checkpoint.offset`, cut into complete lines.

    `data` holds those bytes as they were read, blank lines and line ends included; it is empty where only their
    length is kept (`zeros`: a run of NUL bytes; `dropped`: part of a line beyond limits.archive_line).
    """

    start: int
    data: bytes
    lines: list[Line]
    checkpoint: Checkpoint
    size: int  # of the file when it was read
    mtime_ns: int
    rejects: list[Reject] = field(default_factory=list)
    restarted: str | None = None  # why this is a new generation, e.g. "truncated"; None: it goes on
    more: bool = False  # the file has more complete lines to give right now
    pending: bytes = b""  # the unfinished last line, <= 64 KiB of it
    pending_bytes: int = 0
    blank_lines: int = 0
    zeros: int = 0
    dropped: int = 0
    snapshot: bool = False  # the whole of a rewritten file: replaces what was archived of it


# --- what an adapter makes of a line --------------------------------------------------------------

Key = NewType("Key", str)
"""A record's name, scope first: made by the three functions below, hashed and resolved by the store alone."""


def global_key(name: str) -> Key:
    """A record's own uuid: the same record wherever it is found."""
    return Key("g:" + name)


def session_key(name: str) -> Key:
    """Unique within its session only: call ids, counters."""
    return Key("s:" + name)


def lineage_key(name: str) -> Key:
    """The same record in every session joined to this one by fork or parent ids."""
    return Key("l:" + name)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. Without a key it is known by its line's hash and count among equal lines.

    `summary` and `text` may be of any length: ingest masks and cuts the one, the search index cuts the other.
    `detail` is ingest's to fill in, from the text: see `Step`.
    """

    kind: Kind
    key: Key | None = None
    parent_key: Key | None = None
    ts: str | None = None
    role: Role | None = None
    tool: str | None = None
    summary: str = ""
    text: str = ""
    is_sidechain: bool = False
    is_error: bool = False
    is_turn: bool = False  # a person said it: counts in Cost.turns
    files: tuple[str, ...] = ()  # paths that this event edited
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """Another name for, or a skipped record on the way to, the event named by `parent_key`."""

    key: Key
    parent_key: Key | None
    ts: str | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Facts about an event that are written apart from it, before or after it."""

    key: Key
    kind: Kind | None = None
    ts: str | None = None
    role: Role | None = None
    tool: str | None = None
    summary: str | None = None
    text: str | None = None
    is_error: bool | None = None
    detail: str | None = None  # ingest's to fill in


@dataclass(frozen=True, slots=True)
class Usage:
    """What one response spent. The store keeps one row per key with the maximum of each number.

    `event_key` names the event that shows the sum. `once`, where given, is a session key: a second Usage with the
    same `once` in the session is ignored whatever its key.
    """

    key: Key
    once: Key | None = None
    event_key: Key | None = None
    ts: str | None = None
    model: str | None = None
    input_tokens: int | None = None  # uncached
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None  # part of output_tokens
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """Something about the session. The smallest rank wins; among equals the last one, or the first (`first`).

    Names the store knows: title, cwd, git_branch, model, task_ref, parent (a native id: joins the lineages),
    outcome, outcome_basis, outcome_reason, started_at and ended_at (besides what the events say), active_at (a time
    that the session spans: it widens both), turns_unknown (any value: nobody's turns can be told from this agent's
    records), running_pid (the process at work on it, "none" once the agent says that it stopped: one that is gone
    without a word left the session behind), usage_in_parent (its parent's usage contains its own, so that no total may
    count both). Any other name is kept as it is.
    """

    name: str
    value: str
    rank: int = 0
    first: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A record of a type that the adapter does not know: kept in the archive and counted by name."""

    name: str


Record = Event | Link | Patch | Usage | Fact | Unknown
Carry = dict[str, Any]
"""What an adapter remembers between the lines of one file: JSON values, bounded in size."""


# --- what people and tools are shown --------------------------------------------------------------


def utc(value: datetime) -> str:
    """The one way a time is written: ISO-8601, UTC, milliseconds."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def moment(nanoseconds: int) -> datetime:
    """When a file says it was written. It may say anything; years here have four digits."""
    return datetime.fromtimestamp(max(-30_000_000_000, min(nanoseconds / 1e9, 253_402_300_799)), UTC)


def parse_utc(value: str) -> datetime:
    return datetime.fromisoformat(value)


@dataclass(frozen=True, slots=True)
class Cost:
    """Unknown is null, not 0."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    wall_clock_s: float | None = None
    turns: int | None = None
    retries: int | None = None


class _Json:
    """JSON with sorted keys, and back; unknown fields are left out on the way back."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError(f"{cls.__name__} is written as a JSON object")
        return cls.from_dict(value)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: each for name, each in value.items() if name in known})


@dataclass(frozen=True, slots=True)
class Session(_Json):
    session_uid: str
    flavor: str
    native_session_id: str
    repo: str | None = None
    domain: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    model: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    outcome: Outcome = Outcome.UNKNOWN
    outcome_basis: str | None = None
    outcome_reason: str | None = None
    cost: Cost = field(default_factory=Cost)
    task_ref: str | None = None
    source_path: str | None = None
    source_bytes: int | None = None
    schema_version: int = SCHEMA_VERSION
    discovered_at: str | None = None
    ingested_at: str | None = None
    analyzed_at: str | None = None
    evicted_at: str | None = None
    title: str | None = None
    parent_uid: str | None = None
    is_sidechain: bool = False
    state: State = State.DISCOVERED
    source_gone_at: str | None = None
    pinned: bool = False
    last_event_at: str | None = None
    revision: int = 0
    events: int = 0

    def __post_init__(self) -> None:
        _check_uid(self.session_uid, self.flavor)

    @property
    def is_evictable(self) -> bool:
        """Analyzed through its last event, and not evicted."""
        return self.state is State.ANALYZED

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        value = dict(value)
        if "outcome" in value:
            value["outcome"] = Outcome(value["outcome"])
        if "state" in value:
            value["state"] = State(value["state"])
        if isinstance(value.get("cost"), dict):
            known = {f.name for f in dataclasses.fields(Cost)}
            value["cost"] = Cost(**{k: v for k, v in value["cost"].items() if k in known})
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{name: each for name, each in value.items() if name in known})


@dataclass(frozen=True, slots=True)
class SessionEvent(_Json):
    session_uid: str
    seq: int
    kind: Kind
    ts: str | None = None
    parent_seq: int | None = None
    role: Role | None = None
    tool: str | None = None
    summary: str = ""
    payload_ref: str | None = None
    tokens: int | None = None
    is_sidechain: bool = False
    is_error: bool = False

    def __post_init__(self) -> None:
        _check_uid(self.session_uid, self.session_uid.partition(":")[0])

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        known = {f.name for f in dataclasses.fields(cls)}
        value = {name: each for name, each in value.items() if name in known}
        value["kind"] = Kind(value["kind"])
        if value.get("role") is not None:
            value["role"] = Role(value["role"])
        return cls(**value)


@dataclass(frozen=True, slots=True)
class Step:
    """One event as a digest takes it: what happened, in a session's order, masked.

    `detail` is more of the event's text than `summary` holds, where a digest may need it: of errors, of what people
    asked and agents answered, and of results that look like a test's report.
    """

    seq: int
    kind: Kind
    ts: str | None = None
    role: Role | None = None
    tool: str | None = None
    summary: str = ""
    detail: str | None = None
    parent_seq: int | None = None
    is_sidechain: bool = False
    is_error: bool = False
    is_turn: bool = False
    files: tuple[str, ...] = ()


def _check_uid(uid: str, flavor: str) -> None:
    if flavor not in FLAVORS:
        # By name and only when needed: the nouns must not depend on the adapters that are spelled in them.
        importlib.import_module("sessiond.adapters").register_flavors()
    if flavor not in FLAVORS:
        raise ValueError(f"unknown flavor {flavor!r}; known are {', '.join(sorted(FLAVORS)) or 'none'}")
    if not uid.startswith(flavor + ":"):
        raise ValueError(f"session_uid {uid!r} does not begin with {flavor + ':'!r}")
