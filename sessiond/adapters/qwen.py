"""Qwen Code: projects/<slug>/chats/<session>.jsonl, a tree by `uuid` and `parentUuid`, sub-agents in files beside.

Each call of the model is told twice: by an `assistant` line and by a `system`/`ui_telemetry` line. `_qwen_usage` sees
to it that it counts once; `_qwen_records` makes events. A sub-agent (subagents/<session>/agent-<id>.jsonl) shares its
parent's session id and is part of it; its .meta.json tells which call started it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters._parts import call_key
from sessiond.adapters._qwen_records import Envelope, agent_key, parse_assistant, parse_result, parse_user
from sessiond.adapters._qwen_system import parse_system
from sessiond.adapters.base import Claim, Reader, decode, mapping_of, string_of
from sessiond.adapters.wording import task_ref_in
from sessiond.model import Event, Fact, Kind, Link, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeGuard

    from sessiond.model import Carry, Line, Record, Session

_LOG, _META = ".jsonl", ".meta.json"
_VALUE_LIMIT = 4_096  # a longer path or branch is not one
_RECORDS = {
    "user": parse_user,
    "assistant": parse_assistant,
    "tool_result": parse_result,
    "system": parse_system,
}


class Qwen:
    flavor = "qwen"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        named = env.get("QWEN_RUNTIME_DIR", "").strip() or env.get("QWEN_HOME", "").strip()
        if named.startswith("~/"):
            return [user_home / named[2:]]
        return [Path(named)] if named else [user_home / ".qwen"]

    def folders(self, home: Path) -> Sequence[Path]:
        return [home / "projects"]

    def wants(self, path: PurePosixPath) -> bool:
        parts, name = path.parts, path.name
        if not 4 <= len(parts) <= 5 or parts[0] != "projects" or name.startswith("."):
            return False
        if len(parts) == 4:
            return parts[2] == "chats" and name.endswith(_LOG)
        return parts[2] == "subagents" and name.startswith("agent-") and name.endswith((_LOG, _META))

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        if not self.wants(path):
            return None
        parts, name = path.parts, path.name
        member = "/".join(parts[2:])  # less the slug: a session may move to another one
        if len(parts) == 4:
            return Claim(name.removesuffix(_LOG), member, cwd=_cwd_in(head))
        if name.endswith(_META):
            seed = {"agent": _agent_id(name.removesuffix(_META))}
            return Claim(parts[3], member, Reader.SNAPSHOT, "sidecar", cwd_may_come=False, seed=seed)
        seed = {"agent": _agent_id(name.removesuffix(_LOG))}
        return Claim(parts[3], member, role="subagent", cwd=_cwd_in(head), seed=seed)

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        record = decode(line)
        name = string_of(record.get("type"))
        if name is None:
            return _sidecar(record, carry) if "agentId" in record else [Unknown("(no type)")]
        env = Envelope.of(record, carry)
        if name not in _RECORDS:
            return [Unknown(name[:80]), *env.links()]
        records = _RECORDS[name](env, carry)
        return records + _facts(env, records, carry)

    def resume(self, session: Session) -> Sequence[str] | None:
        return ["qwen", "--resume", session.native_session_id]


def _agent_id(stem: str) -> str:
    return stem.removeprefix("agent-")


def _cwd_in(head: Sequence[bytes]) -> str | None:
    """The first line tells; the slug in a path cannot be decoded."""
    for data in head[:3]:
        try:
            value = mapping_of(orjson.loads(data)).get("cwd")
        except orjson.JSONDecodeError:
            continue
        if _is_value(value):
            return value
    return None


def _sidecar(record: dict[str, Any], carry: Carry) -> list[Record]:
    key = agent_key(record.get("agentId")) or agent_key(carry.get("agent"))
    parent_key = call_key(record.get("toolUseId"))
    return [Link(key, parent_key)] if key is not None and parent_key is not None else []


def _facts(env: Envelope, records: list[Record], carry: Carry) -> list[Record]:
    """What a record says about the session besides its events; each fact only where it changed."""
    get = env.record.get
    rank = 5 if env.is_sidechain else 0
    found: list[Record] = []
    if "cwd" not in carry and _is_value(cwd := get("cwd")):
        carry["cwd"] = cwd
        found.append(Fact("cwd", cwd, rank, first=True))
    if _is_value(branch := get("gitBranch")) and branch != carry.get("branch"):
        carry["branch"] = branch
        found.append(Fact("git_branch", branch, rank))
    forked_from = string_of(mapping_of(get("forkedFrom")).get("sessionId"))
    if forked_from is not None and "forked" not in carry:
        carry["forked"] = True
        found.append(Fact("parent", forked_from[:200]))
    return found + ([] if "prompted" in carry else _first_prompt(records, carry))


def _first_prompt(records: list[Record], carry: Carry) -> list[Record]:
    for each in records:
        if isinstance(each, Event) and each.kind is Kind.USER_MSG and each.is_turn and each.summary:
            carry["prompted"] = True
            ref = task_ref_in(each.text)
            title = Fact("title", each.summary, 9, first=True)
            return [title, *([Fact("task_ref", ref, 5, first=True)] if ref else ())]
    return []


def _is_value(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _VALUE_LIMIT


ADAPTER = Qwen()
