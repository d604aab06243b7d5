"""What an agent's adapter is: no I/O, no clock, and it never looks anything up.

An adapter says where an agent's files lie (`homes`, `folders`, `wants`), whose session a file is (`claims`), what
a line means (`parse`), and how a person goes on with a session (`resume`). It names records by `Key`s; the store
resolves them. What it must remember between lines of one file goes into `carry`, which is saved with the offset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import orjson

from sessiond.errors import BadRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
    from pathlib import Path, PurePosixPath

    from sessiond.model import Carry, Line, Record, Session

MAX_COUNT = 2**53  # what JSON numbers keep exact; a token count beyond it is nonsense


class Reader(StrEnum):
    TAIL = "tail"  # appended lines
    ZSTD = "zstd"  # the same, compressed; offsets are those of the decompressed bytes
    SNAPSHOT = "snapshot"  # a file rewritten whole: one line, its latest version


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose file this is. `member` names the file within its session, whatever path or compression it has now."""

    session_id: str
    member: str
    reader: Reader = Reader.TAIL
    role: str = "main"  # main | subagent | part (of a session that is spread over files) | sidecar | stand_in
    cwd: str | None = None
    cwd_in_records: bool = False  # True: `parse` states it as well, and `cwd` is for the privacy rules alone
    cwd_may_come: bool = True  # False: the format never says, so privacy rules look at the path
    cwd_beside: str | None = None  # but a file of this name in the same folder says it, where there is one
    cwd_file: str | None = None  # in place of `cwd`: a file, from this one's folder, that holds it and nothing else
    stands_in_for: str | None = None  # a file beside it: this one is read only where that one is not, nor ever was
    is_sidechain: bool = False  # of the session as a whole: it is a sub-agent of its parent
    timeless: bool = False  # records carry no times of their own: the file's mtime is the last activity
    seed: Mapping[str, str] = field(default_factory=dict)  # what `carry` begins with: what only the path says


class NeedMore(Exception):
    """From `claims`: the file may be ours, but its first lines must say whose session it is. Ask again later."""


class Adapter(Protocol):
    @property
    def flavor(self) -> str: ...

    @property
    def version(self) -> int:
        """Raised when `parse` changes what it emits, so that `reindex` knows what to derive again."""

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        """The agent's own folders, most likely first; they need not exist."""

    def folders(self, home: Path) -> Sequence[Path]:
        """The folders below `home` to watch; the home itself only where the files lie right in it."""

    def wants(self, path: PurePosixPath) -> bool:
        """By its path below the home alone: could this file be ours? Called for every file of every sweep."""

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        """Whose file it is, by its path below the home and its first complete lines (<= 64 KiB); None: not ours.

        Raises NeedMore where only lines that are not there yet can tell.
        """

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        """What one line means. Raises BadRecord for a line that cannot be used."""

    def resume(self, session: Session) -> Sequence[str] | None:
        """The command that goes on with this session."""


@runtime_checkable
class Replaying(Protocol):
    """An adapter whose agent takes back or sums up what it wrote: not all of a session is seen when it is resumed."""

    def visible(self, records: Iterable[tuple[int, Mapping[str, Any]]]) -> AbstractSet[int]:
        """Of the main file's (offset, record) in order: the offsets of those that a resumed agent would see."""


def visible_offsets(adapter: object, lines: Iterable[Line]) -> AbstractSet[int] | None:
    """Where the records begin that the agent would see if it were resumed now; None: all, nothing is taken back."""
    return adapter.visible(_decoded(lines)) if isinstance(adapter, Replaying) else None


def _decoded(lines: Iterable[Line]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line in lines:
        try:
            yield line.offset, decode(line)
        except BadRecord:
            continue  # the agent cannot read it either


# --- helpers that every adapter shares ------------------------------------------------------------

# A surrogate escape that is not one half of a proper pair; orjson refuses it, and so does SQLite.
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_BOM = b"\xef\xbb\xbf"


def decode(line: Line) -> dict[str, Any]:
    """The JSON object on a line, by one strict parser. BadRecord if it is none, even after one repair.

    Duplicate keys: the last wins. A byte order mark is tolerated at the start of the file only.
    """
    data = line.data
    if line.offset == 0 and data.startswith(_BOM):
        data = data[len(_BOM) :]
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _decode_repaired(line, data)
    if not isinstance(value, dict):
        raise BadRecord("not_object")
    return value


def _decode_repaired(line: Line, data: bytes) -> Any:
    if b"\0" in data:
        raise BadRecord("nul")
    mended = data.decode("utf-8", "replace").encode()
    is_utf8 = mended == data
    mended = _LONE_SURROGATE.sub(lambda m: m[1] + (m[2] or rb"\ufffd"), mended)
    if mended == data:
        raise BadRecord(_why_not_json(data))
    try:
        value = orjson.loads(mended)
    except orjson.JSONDecodeError:
        raise BadRecord("not_json" if is_utf8 else "utf8") from None
    line.repaired = True
    return value


def _why_not_json(data: bytes) -> str:
    # orjson stops at 1024 levels; only a line with that many brackets can be too deep rather than broken.
    deep = data.count(b"[") + data.count(b"{") > 1000
    return "depth" if deep else "not_json"


def text_of(value: Any) -> str:
    """A JSON value as text: strings as they are, "" for null, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # an integer beyond 64 bits
        return str(value)


def string_of(value: Any) -> str | None:
    """A non-empty string, or None."""
    return value if isinstance(value, str) and value else None


def mapping_of(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one: old, new and foreign writers put other things in its place."""
    return value if isinstance(value, dict) else {}


def count_of(value: Any) -> int | None:
    """A token count, or None where there is none that makes sense (missing, negative, absurd)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_COUNT else None


def time_of(value: Any) -> str | None:
    """An ISO-8601 time in the store's own writing (UTC, milliseconds), or None. A time without a zone is UTC."""
    if not isinstance(value, str):
        return None
    if len(value) == 24 and value[23] == "Z" and value[19] == "." and value[10] == "T":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return None
        return value  # how both Claude Code and Codex write it: nothing to do
    try:
        moment = datetime.fromisoformat(_shorten_fraction(value))
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if moment.year >= 1000 else None


def local_time_of(value: Any) -> str | None:
    """Like `time_of`, for agents that write local times without a zone: such a time is in this machine's zone.

    The zone is the one ambient fact that an adapter knows: whoever wrote the file wrote it here.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(_shorten_fraction(value)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if moment.year >= 1000 else None


def _shorten_fraction(value: str) -> str:
    # Nanoseconds are legal in RFC 3339; before 3.13 fromisoformat() takes at most six digits.
    return re.sub(r"(\.\d{6})\d+", r"\1", value, count=1)
