"""pi: one append-only file per session, agent/sessions/--<cwd>--/<time>_<id>.jsonl; `id` and `parentId` make a tree.

A forked session is a file of its own that repeats the entries of its path, ids and times included; the header names
the file it came from. An id is eight hex digits, unique in its file alone: entries are named by id and time among the
files of a lineage, and by id within the file. `_pi_messages` makes events of what was said.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters._pi_messages import Entry, parse_message, usage_of
from sessiond.adapters.base import Claim, decode, mapping_of, string_of
from sessiond.adapters.wording import clip, one_line
from sessiond.model import Fact, Key, Kind, Link, Patch, Role, Unknown, session_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sessiond.model import Carry, Line, Record, Session

_LOG = ".jsonl"
_VALUE_LIMIT = 4_096  # a longer path is not one
# They make no event: settings, bookmarks, what extensions keep for themselves.
_SKIPPED = frozenset(
    {
        *("custom", "label", "leaf", "active_tools_change", "configuration_update", "model_change_rejected"),
        *("context_transform", "ephemeral", "service_tier_change"),
    }
)


class Pi:
    flavor = "pi"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        """`~/.pi`, or the folder that stands for its `agent` folder."""
        named = env.get("PI_CODING_AGENT_DIR", "").strip()
        if named.startswith("~/"):
            return [user_home / named[2:]]
        return [Path(named)] if named else [user_home / ".pi"]

    def folders(self, home: Path) -> Sequence[Path]:
        inner = home / "agent" / "sessions"
        return [inner] if home.name == ".pi" else [inner, home / "sessions"]

    def wants(self, path: PurePosixPath) -> bool:
        parts = path.parts[1:] if path.parts[:1] == ("agent",) else path.parts
        if not 2 <= len(parts) <= 3 or parts[0] != "sessions":
            return False
        return path.name.endswith(_LOG) and not path.name.startswith(".")

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        if not self.wants(path):
            return None
        header = _header(head)
        session_id = string_of(header.get("id")) or _id_in(path.name)
        cwd = string_of(header.get("cwd"))
        return Claim(session_id, path.name, cwd=cwd, cwd_may_come=False)  # the header tells, or nothing does

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        record = decode(line)
        name = string_of(record.get("type")) or "(no type)"
        if name == "session":
            return _session(record, carry)
        entry = Entry.of(record, line)
        if name == "message":
            return parse_message(entry, mapping_of(record.get("message")), carry)
        if name in _ENTRIES:
            return _ENTRIES[name](entry, carry)
        if name in _SKIPPED:
            return entry.links()
        return [Unknown(name[:80]), *entry.links()]

    def resume(self, session: Session) -> Sequence[str] | None:
        return ["pi", "--session", session.native_session_id]


def _header(head: Sequence[bytes]) -> dict[str, Any]:
    try:
        first = mapping_of(orjson.loads(head[0])) if head else {}
    except orjson.JSONDecodeError:
        return {}
    return first if first.get("type") == "session" else {}


def _id_in(name: str) -> str:
    """What follows the time in a file's name: <time>_<id>.jsonl."""
    stem = name.removesuffix(_LOG)
    return stem.partition("_")[2] or stem


def _session(record: dict[str, Any], carry: Carry) -> list[Record]:
    """The header: facts alone. Its time says when the file began, which decides whose the repeated entries are."""
    entry = Entry.of(record, None)
    found: list[Record] = [Link(session_key("session"), None, entry.ts)]
    cwd = string_of(record.get("cwd"))
    if cwd is not None and len(cwd) <= _VALUE_LIMIT:
        found.append(Fact("cwd", cwd, first=True))
    parent = string_of(record.get("parentSession")) or string_of(record.get("branchedFrom"))
    if parent is not None and (parent_id := _id_in(parent.replace("\\", "/").rpartition("/")[2])):
        found.append(Fact("parent", parent_id))
    model = string_of(record.get("modelId"))
    if model is not None:
        carry["model"] = model[:200]
        found.append(Fact("model", carry["model"]))
    return found


def _model_change(entry: Entry, carry: Carry) -> list[Record]:
    model = string_of(entry.record.get("modelId")) or string_of(entry.record.get("model"))
    if model is None:
        return entry.links()
    known, carry["model"] = carry.get("model"), model[:200]
    found: list[Record] = [Fact("model", carry["model"])]
    return found + (entry.links() if known in (None, carry["model"]) else _changed(entry, f"model: {model}"))


def _level_change(entry: Entry, carry: Carry) -> list[Record]:
    level = (string_of(entry.record.get("thinkingLevel")) or "none")[:80]
    known, carry["level"] = carry.get("level"), level
    return entry.links() if known in (None, level) else _changed(entry, f"thinking level: {level}")


def _changed(entry: Entry, words: str) -> list[Record]:
    return entry.alone(entry.event(Kind.LIFECYCLE, role=Role.SYSTEM, summary=one_line(words)))


def _context_edit(entry: Entry, carry: Carry) -> list[Record]:
    """The failed call that was taken back is tried again: not an error of the session, a retry."""
    get = entry.record.get
    is_retried = get("replacement") is None and get("targetId") is not None and get("targetId") == carry.get("failed")
    if not is_retried:
        return entry.links()
    return [Patch(Key(carry["failed_key"]), kind=Kind.RETRY, is_error=False), *entry.links()]


def _summarised(entry: Entry, _carry: Carry) -> list[Record]:
    """A compaction, or what was done on a branch that was left: older entries in a few words."""
    what = "context compacted" if entry.record.get("type") == "compaction" else "branch summary"
    text = string_of(entry.record.get("summary")) or ""
    event = entry.event(Kind.LIFECYCLE, role=Role.SYSTEM, summary=f"{what}: {one_line(text)}", text=clip(text))
    spent = usage_of(entry, entry.record.get("usage"), event.key, None)
    return [*entry.alone(event), *([spent] if spent else ())]


def _session_info(entry: Entry, _carry: Carry) -> list[Record]:
    name = one_line(string_of(entry.record.get("name")) or "")
    return [*([Fact("title", name)] if name else ()), *entry.links()]


def _spent(entry: Entry, _carry: Carry) -> list[Record]:
    spent = usage_of(entry, entry.record.get("usage"), None, string_of(entry.record.get("model")))
    return [*([spent] if spent else ()), *entry.links()]


def _custom_message(entry: Entry, carry: Carry) -> list[Record]:
    return parse_message(entry, {**entry.record, "role": "custom"}, carry)


_ENTRIES: dict[str, Callable[[Entry, Carry], list[Record]]] = {
    "model_change": _model_change,
    "thinking_level_change": _level_change,
    "context_edit": _context_edit,
    "compaction": _summarised,
    "branch_summary": _summarised,
    "session_info": _session_info,
    "usage": _spent,
    "custom_message": _custom_message,
}

ADAPTER = Pi()
