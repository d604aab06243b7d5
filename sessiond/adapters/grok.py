"""Grok Build (`grok`, by xAI): a folder per session below sessions/<working directory>/, with a dozen files.

Read are `updates.jsonl` (all that happened: `_grok_updates`), `summary.json`, `subagents/<id>/meta.json` and
`events.jsonl` (what the session is, whose child, how its calls ended: `_grok_session`), and `chat_history.jsonl` where
updates.jsonl is missing (`_grok_chat`). The rest is derived from these, or state of the program.

A sub-agent is a session of its own beside its parent, and none of its own files names the parent; the parent keeps a
meta.json about it. That file is therefore taken as a file of the child.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import orjson

from sessiond.adapters._grok_chat import parse_chat
from sessiond.adapters._grok_session import SUBAGENT, parse_meta, parse_outcome, parse_summary
from sessiond.adapters._grok_updates import parse_update
from sessiond.adapters.base import Claim, NeedMore, Reader, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sessiond.model import Carry, Line, Record, Session

_UPDATES, _EVENTS, _SUMMARY, _CHAT, _META = (
    "updates.jsonl",
    "events.jsonl",
    "summary.json",
    "chat_history.jsonl",
    "meta.json",
)
_OF_A_SESSION = frozenset({_UPDATES, _EVENTS, _SUMMARY, _CHAT})
_PARSE: dict[str, Callable[[dict[str, Any], Carry], list[Record]]] = {
    _UPDATES: parse_update,
    _EVENTS: parse_outcome,
    _SUMMARY: parse_summary,
    _CHAT: parse_chat,
    _META: parse_meta,
}
# Most of events.jsonl: one line per streamed chunk.
_PHASE = re.compile(rb'\{"ts":"[^"\\]*","type":"phase_changed","phase":"\w*"\}')
_ANSWERED = re.compile(rb'"(?:type|role)"\s*:\s*"assistant"')


class Grok:
    """A session is known by its folder's name: it may move below another working directory."""

    flavor = "grok"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        home = env.get("GROK_HOME")
        return [Path(home)] if home else [user_home / ".grok"]

    def folders(self, home: Path) -> Sequence[Path]:
        return [home / "sessions"]

    def wants(self, path: PurePosixPath) -> bool:
        parts = path.parts
        if len(parts) == 4:
            return parts[0] == "sessions" and parts[3] in _OF_A_SESSION
        return len(parts) == 6 and parts[0] == "sessions" and parts[3] == "subagents" and parts[5] == _META

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        if not self.wants(path):
            return None
        parts, name = path.parts, path.name
        cwd = _decoded(parts[1])
        cwd_file = "../.cwd" if cwd is None else None
        seed = {"file": name, "session": parts[2]}
        if name == _UPDATES:
            return Claim(parts[2], name, cwd=cwd, cwd_file=cwd_file, cwd_may_come=False, seed=seed)
        if name == _CHAT:
            return _claim_chat(parts[2], head, cwd, cwd_file, seed)
        if name == _EVENTS:
            role = "sidecar"
            return Claim(parts[2], name, role=role, cwd=cwd, cwd_file=cwd_file, cwd_may_come=False, seed=seed)
        if name == _META:
            return Claim(
                parts[4],
                name,
                Reader.SNAPSHOT,
                "sidecar",
                cwd=_field(head, "child_cwd") or cwd,
                cwd_file="../../../.cwd",
                cwd_may_come=False,
                is_sidechain=True,
                seed={"file": name, "session": parts[4], "parent": parts[2]},
            )
        return Claim(
            parts[2],
            name,
            Reader.SNAPSHOT,
            "sidecar",
            cwd=_field(head, "cwd") or cwd,
            cwd_file=cwd_file,
            cwd_may_come=False,
            is_sidechain=(_field(head, "session_kind") or "").startswith(SUBAGENT),
            seed=seed,
        )

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        name = carry.get("file")
        if name == _EVENTS and _PHASE.fullmatch(line.data):
            return []
        return _PARSE.get(name or "", parse_update)(decode(line), carry)

    def resume(self, session: Session) -> Sequence[str] | None:
        return ["grok", "--resume", session.native_session_id]


def _claim_chat(
    session_id: str, head: Sequence[bytes], cwd: str | None, cwd_file: str | None, seed: Mapping[str, str]
) -> Claim:
    """Grok writes the prompt here first and to updates.jsonl a moment later: only a history with an answer in it can
    be said to have no updates.jsonl.
    """
    if not any(_ANSWERED.search(line) for line in head):
        raise NeedMore
    return Claim(
        session_id,
        _CHAT,
        cwd=cwd,
        cwd_file=cwd_file,
        cwd_may_come=False,
        timeless=True,
        stands_in_for=_UPDATES,
        seed=seed,
    )


def _decoded(group: str) -> str | None:
    """The working directory in a folder's name; None where it was too long for one, and a file `.cwd` has it."""
    if "%" not in group:
        return None
    try:
        return unquote(group, errors="strict") or None
    except UnicodeDecodeError:
        return None


def _field(head: Sequence[bytes], name: str) -> str | None:
    """The first string of this name in a JSON file of which only the beginning is there."""
    found = re.search(rb'"%s"\s*:\s*("(?:[^"\\]|\\.)*")' % name.encode(), b"\n".join(head))
    if found is None:
        return None
    try:
        value = orjson.loads(found[1])
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, str) and value else None


ADAPTER = Grok()
