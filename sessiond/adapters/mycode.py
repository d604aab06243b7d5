"""mycode: a message per line in sessions/<id>/messages.jsonl, what the session is about in meta.json beside it.

`_mycode_messages` makes events of messages, `_mycode_replay` says which of them are still seen after a rewind or a
compaction; this module says whose file is whose and what meta.json tells.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters import _mycode_replay
from sessiond.adapters._mycode_messages import parse_message
from sessiond.adapters.base import Claim, NeedMore, Reader, count_of, decode, time_of
from sessiond.model import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sessiond.model import Carry, Line, Record, Session

_LOG, _META = "messages.jsonl", "meta.json"
_NEW_CHAT = "New chat"  # what a session is called before its first prompt, and again after it was cleared
_VALUE_LIMIT = 4_096


class Mycode:
    """A session is a folder. A store that a program of the SDK's users chose has no `sessions` above its folders."""

    flavor = "mycode"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        named = env.get("MYCODE_HOME", "").strip()
        if not named:
            return [user_home / ".mycode"]
        return [user_home / named[2:] if named.startswith("~/") else Path(named)]

    def folders(self, home: Path) -> Sequence[Path]:
        # Any other name may be a home or a store of the SDK: only what lies in it tells, and `wants` takes both.
        return [home / "sessions"] if home.name.startswith(".mycode") else [home]

    def wants(self, path: PurePosixPath) -> bool:
        if path.name not in (_LOG, _META):
            return False
        parts = path.parts
        return len(parts) == 2 or (len(parts) == 3 and parts[0] == "sessions")

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        if not self.wants(path):
            return None
        session_id, name = path.parts[-2:]
        if len(path.parts) == 2 and not _is_ours(name, head):
            return None
        if name == _META:
            return Claim(session_id, _META, Reader.SNAPSHOT, "sidecar", seed={"file": _META})
        return Claim(
            session_id,
            _LOG,
            cwd_may_come=False,
            cwd_beside=_META,
            timeless=_is_timeless(head),
        )

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        record = decode(line)
        return _about(record) if carry.get("file") == _META else parse_message(record, line, carry)

    def visible(self, records: Iterable[tuple[int, Mapping[str, Any]]]) -> set[int]:
        return _mycode_replay.visible(records)

    def resume(self, session: Session) -> Sequence[str] | None:
        path = session.source_path
        if path is not None and Path(path).parent.parent.name != "sessions":
            return None  # a store of somebody's own program: mycode does not look there
        return ["mycode", "--session", session.native_session_id]


def _is_ours(name: str, head: Sequence[bytes]) -> bool:
    """In a folder of any name, files called like ours may be somebody else's."""
    if name == _META:
        if not head:
            raise NeedMore
        return b'"updated_at"' in b"\n".join(head)
    first = _first_record(head)
    if first is None:
        raise NeedMore
    return isinstance(first.get("role"), str)


def _is_timeless(head: Sequence[bytes]) -> bool:
    """Before about 0.17 only a rewind says when it happened."""
    first = _first_record(head)
    if first is None:
        return False
    meta = first.get("meta")
    return first.get("role") == "rewind" or not (isinstance(meta, dict) and meta.get("created_at"))


def _first_record(head: Sequence[bytes]) -> dict[str, Any] | None:
    for data in head:
        try:
            record = orjson.loads(data)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            return record
    return None


def _about(meta: dict[str, Any]) -> list[Record]:
    """meta.json, each time it is rewritten. Its model goes stale after a switch: answers name their own."""
    found: list[Record] = []
    title, version = meta.get("title"), meta.get("message_format_version")
    if isinstance(title, str) and title.strip() and title != _NEW_CHAT:
        found += [Fact("title", title[:_VALUE_LIMIT], 1), Fact("task_ref", title[:_VALUE_LIMIT].strip(), 8)]
    for name, rank in (("cwd", 0), ("model", 5)):
        if isinstance(value := meta.get(name), str) and 0 < len(value) <= _VALUE_LIMIT:
            found.append(Fact(name, value, rank))
    for name, field in (("started_at", "created_at"), ("ended_at", "updated_at")):
        if (ts := time_of(meta.get(field))) is not None:
            found.append(Fact(name, ts))
    if (number := count_of(version)) is not None:
        found.append(Fact("format", str(number)))
    return found


ADAPTER = Mycode()
