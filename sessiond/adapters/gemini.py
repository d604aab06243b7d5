"""Gemini CLI: tmp/<project>/chats/session-<minute>-<short id>.jsonl, older ones a .json that is rewritten whole.

A line is a header, a message, `{"$set": ...}` or `{"$rewindTo": ...}`. `_gemini_messages` has the messages, which are
written again, whole, whenever they change. On resume a `$set` repeats the history without calls and tokens: it adds
nothing and must not overwrite. A session resumed in a later minute leaves a second file with the same header.
A sub-agent has a file and an id of its own, in a folder named after its parent's.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters._gemini_messages import parse_message
from sessiond.adapters._parts import parts_of, text_of_parts
from sessiond.adapters.base import Claim, NeedMore, Reader, decode, mapping_of, string_of, time_of
from sessiond.adapters.wording import clip, one_line
from sessiond.model import Event, Fact, Kind, Role, Unknown, session_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sessiond.model import Carry, Line, Record, Session

_LOGS = (".jsonl", ".json")
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\]{1,200})"')
# The first message is the client's own: where it runs and what lies there.
_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*[^\S\n]*+\n\s*+- ([^\n]{1,4096})")
_IN_JSON = re.compile(rb'\*\*Workspace Directories:\*\*\s*\\n\s*- ((?:[^"\\]|\\[^n]){1,4096})')
_SNAPSHOT = "<state_snapshot>"  # how a compressed history begins


class Gemini:
    flavor = "gemini"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        named = env.get("GEMINI_CLI_HOME", "").strip()  # stands for the user's home, not for ~/.gemini
        return [(Path(named) if named else user_home) / ".gemini"]

    def folders(self, home: Path) -> Sequence[Path]:
        return [home / "tmp"]

    def wants(self, path: PurePosixPath) -> bool:
        parts, name = path.parts, path.name
        if not 4 <= len(parts) <= 5 or parts[0] != "tmp" or parts[2] != "chats":
            return False
        if len(parts) == 5:
            return name.endswith(".jsonl") and not name.startswith(".")
        return name.startswith("session-") and name.endswith(_LOGS)

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        if not self.wants(path):
            return None
        if not head:
            raise NeedMore
        data = b"\n".join(head)
        named = _SESSION_ID.search(data)
        session_id = named[1].decode("utf-8", "replace") if named else path.stem.rpartition("-")[2]
        cwd = _cwd_in(data) or _listed_folder(head[0])
        parent = path.parts[3] if len(path.parts) == 5 else None
        return Claim(
            session_id,
            path.name,
            Reader.SNAPSHOT if path.suffix == ".json" else Reader.TAIL,
            cwd=cwd,
            cwd_file="../" * (len(path.parts) - 3) + ".project_root",
            # It stands in the second line if anywhere; one longer than the head is still to come.
            cwd_may_come=cwd is None and len(head) == 1 and path.suffix != ".json",
            is_sidechain=parent is not None,
            seed={"parent": parent} if parent is not None else {},
        )

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        record = decode(line)
        if string_of(record.get("id")) is not None:
            return parse_message(record, carry)
        if isinstance(record.get("$set"), dict):
            return _set(record["$set"])
        if string_of(record.get("$rewindTo")) is not None:
            return [Event(Kind.LIFECYCLE, role=Role.SYSTEM, summary="rewound")]
        if string_of(record.get("sessionId")) is not None:
            return _header(record, carry)
        return [Unknown(next(iter(record), "(empty)")[:80] or "(no name)")]

    def resume(self, session: Session) -> Sequence[str] | None:
        return None if session.is_sidechain else ["gemini", "--resume", session.native_session_id]


def _cwd_in(data: bytes) -> str | None:
    """The first workspace folder, as the first message names it, inside a JSON string."""
    named = _IN_JSON.search(data)
    if named is None:
        return None
    return named[1].decode("utf-8", "replace").replace('\\"', '"').replace("\\\\", "\\")


def _listed_folder(data: bytes) -> str | None:
    """A sub-agent's header lists the folders it may use."""
    try:
        return _first_folder(mapping_of(orjson.loads(data)))
    except orjson.JSONDecodeError:
        return None


def _first_folder(record: dict[str, Any]) -> str | None:
    directories = record.get("directories")
    first = string_of(directories[0]) if isinstance(directories, list) and directories else None
    return first if first is not None and len(first) <= 4_096 else None


def _header(record: dict[str, Any], carry: Carry) -> list[Record]:
    """The first line, again at each resume; in an old .json the whole session hangs on it."""
    found: list[Record] = []
    if (parent := string_of(carry.get("parent"))) is not None and "joined" not in carry:
        carry["joined"] = True
        found.append(Fact("parent", parent))
    found += _facts(record)
    for message in _listed(record):
        found += _context(message)
        found += parse_message(message, carry)
    return found


def _set(changed: dict[str, Any]) -> list[Record]:
    """What a `$set` tells that no message does: a title, folders, that the history was compressed."""
    found = _facts(changed)
    ts = time_of(changed.get("lastUpdated"))
    for message in _listed(changed):
        found += _context(message)
        name, text = string_of(message.get("id")), text_of_parts(parts_of(message.get("content")))
        if name is not None and _SNAPSHOT in text[:1_000]:
            words = one_line(text.partition(_SNAPSHOT)[2].partition("</")[0])
            key = session_key(f"message:{name}#text")
            found.append(
                Event(Kind.LIFECYCLE, key, None, ts, Role.SYSTEM, None, f"context compressed: {words}", clip(text))
            )
    return found


def _listed(record: dict[str, Any]) -> list[dict[str, Any]]:
    messages = record.get("messages")
    return [mapping_of(message) for message in messages] if isinstance(messages, list) else []


def _facts(record: dict[str, Any]) -> list[Record]:
    found: list[Record] = []
    if title := one_line(string_of(record.get("summary")) or ""):
        found.append(Fact("title", title))
    if (folder := _first_folder(record)) is not None:
        found.append(Fact("cwd", folder, 1, first=True))
    return found


def _context(message: dict[str, Any]) -> list[Record]:
    if message.get("type") != "user":
        return []
    named = _WORKSPACE.search(text_of_parts(parts_of(message.get("content")))[:20_000])
    return [Fact("cwd", named[1].strip(), first=True)] if named and named[1].strip() else []


ADAPTER = Gemini()
