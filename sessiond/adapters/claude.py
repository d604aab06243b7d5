"""Claude Code: a JSON line per content block in projects/<slug>/<session>.jsonl, sub-agents in files beside.

`_claude_user`, `_claude_assistant` and `_claude_system` make events of records; this module says whose file
is whose, sends each record to its part, and picks up on the way what records say about the session.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import orjson

from sessiond.adapters._claude_assistant import parse_assistant
from sessiond.adapters._claude_envelope import NAME_LIMIT, Envelope, agent_key, call_key, mapping, string
from sessiond.adapters._claude_system import (
    changed,
    parse_attachment,
    parse_frame_link,
    parse_last_prompt,
    parse_mode,
    parse_pr_link,
    parse_relocation,
    parse_system,
    parse_title,
)
from sessiond.adapters._claude_user import parse_user
from sessiond.adapters.base import Claim, NeedMore, Reader, decode
from sessiond.adapters.wording import task_ref_in
from sessiond.model import Event, Fact, Kind, Link, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeGuard

    from sessiond.model import Carry, Line, Record, Session

_META = ".meta.json"
_LOG = ".jsonl"
_VALUE_LIMIT = 4_096  # a longer path or branch is not one

# They make no event; those that have a uuid stay links in the chain.
_SKIPPED = frozenset(
    {
        *("progress", "queue-operation", "file-history-snapshot", "file-history-delta", "summary"),
        *("bridge-session", "atis-latch", "api-request", "api-request-shape", "api-request-blob"),
        *("tools-used", "cost-state"),
    }
)
_RECORDS = {"user": parse_user, "system": parse_system, "attachment": parse_attachment}
_SESSION_RECORDS = {
    "ai-title": parse_title,
    "custom-title": parse_title,
    "agent-name": parse_title,
    "last-prompt": parse_last_prompt,
    "pr-link": parse_pr_link,
    "frame-link": parse_frame_link,
    "permission-mode": parse_mode,
    "mode": parse_mode,
    "worktree-state": parse_relocation,
    "relocated": parse_relocation,
}


class Claude:
    """A file belongs to the session its path names: the stem, or the folder above `subagents`, not `sessionId`."""

    flavor = "claude"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        named = [each.strip() for each in env.get("CLAUDE_CONFIG_DIR", "").split(",")]
        homes = [user_home / each[2:] if each.startswith("~/") else Path(each) for each in named if each]
        return homes or [user_home / ".claude", user_home / ".config" / "claude"]

    def folders(self, home: Path) -> Sequence[Path]:
        return [home / "projects"]

    def wants(self, path: PurePosixPath) -> bool:
        name = path.name
        if not name.endswith((_LOG, _META)) or name.startswith("."):
            return False
        parts = path.parts
        if len(parts) < 3 or parts[0] != "projects":
            return False
        if len(parts) == 3:
            return name.endswith(_LOG) and name not in ("journal.jsonl", _LOG)
        return len(parts) > 4 and parts[3] == "subagents" and name.startswith("agent-")

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        if not self.wants(path):
            return None
        parts, name = path.parts, path.name
        member = "/".join(parts[2:])  # less the slug: a session may move to another one
        if len(parts) > 3:
            session_id = parts[2]
        elif name.startswith("agent-"):
            session_id = _first(head, "sessionId") or ""
            if not session_id:
                raise NeedMore
        else:
            return Claim(name.removesuffix(_LOG), member, cwd=_first(head, "cwd"), cwd_in_records=True)
        if name.endswith(_META):
            seed = {"agent": _agent_id(name.removesuffix(_META))}
            return Claim(session_id, member, Reader.SNAPSHOT, "sidecar", cwd_may_come=False, seed=seed)
        seed = {"agent": _agent_id(name.removesuffix(_LOG))}
        return Claim(session_id, member, role="subagent", cwd=_first(head, "cwd"), cwd_in_records=True, seed=seed)

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        record = decode(line)
        name = string(record.get("type"))
        if name is None:
            return _sidecar(record, carry) if "agentType" in record else [Unknown("(no type)")]
        env = Envelope.of(record, carry)
        if env.ts is not None:
            carry["ts"] = env.ts
        if name == "assistant":
            records = parse_assistant(env, line)
        elif name in _RECORDS:
            records = _RECORDS[name](env)
        elif name in _SESSION_RECORDS:
            return _SESSION_RECORDS[name](env, carry)
        elif name in _SKIPPED:
            return env.links()
        else:
            return [Unknown(name[:NAME_LIMIT]), *env.links()]
        return records + _facts(env, records, carry)

    def resume(self, session: Session) -> Sequence[str] | None:
        return ["claude", "--resume", session.native_session_id]


def _agent_id(stem: str) -> str:
    return stem.removeprefix("agent-")


def _first(head: Sequence[bytes], name: str) -> str | None:
    """The first value of a field in these lines. The slug in a path cannot be decoded; `cwd` can be read."""
    mark = b'"%s"' % name.encode()
    for data in head:
        if mark not in data:
            continue
        try:
            value = mapping(orjson.loads(data)).get(name)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, str) and value:
            return value
    return None


def _sidecar(record: dict[str, Any], carry: Carry) -> list[Record]:
    """agent-<id>.meta.json: which call started the agent, told before the call's result can tell it."""
    key, parent_key = agent_key(carry.get("agent")), call_key(record.get("toolUseId"))
    return [Link(key, parent_key)] if key is not None and parent_key is not None else []


def _facts(env: Envelope, records: list[Record], carry: Carry) -> list[Record]:
    """What a record says about the session besides its events; each fact only where it changed."""
    get, known = env.record.get, carry.get
    # A side chain may have a worktree of its own: it is heard only where the main chain says nothing.
    side, rank = ("side_", 5) if env.is_sidechain else ("", 0)
    found: list[Record] = []
    cwd, branch, version = get("cwd"), get("gitBranch"), get("version")
    if cwd != known(side + "cwd") and _is_value(cwd):
        if side + "cwd" not in carry:
            found.append(Fact("cwd", cwd, rank, first=True))
        found += changed(carry, side + "cwd", Fact("last_cwd", cwd, rank))
    if branch != known(side + "branch") and _is_value(branch):
        found += changed(carry, side + "branch", Fact("git_branch", branch, rank))
        if not side and (ref := task_ref_in(branch)):
            found.append(Fact("task_ref", ref, 6))
    if version != known("version") and not side and _is_value(version):
        found += changed(carry, "version", Fact("version", version))
    if "prompted" not in carry:
        found += _first_prompt(records, carry)
    return found


def _is_value(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _VALUE_LIMIT


def _first_prompt(records: list[Record], carry: Carry) -> list[Record]:
    prompt = next((each for each in records if isinstance(each, Event) and _is_prompt(each)), None)
    if prompt is None:
        return []
    carry["prompted"] = True
    ref = task_ref_in(prompt.text)
    title = [Fact("title", prompt.summary, 9, first=True)] if prompt.summary else []
    return [*title, *([Fact("task_ref", ref, 5, first=True)] if ref else ())]


def _is_prompt(event: Event) -> bool:
    return event.is_turn and event.kind is Kind.USER_MSG


ADAPTER = Claude()
