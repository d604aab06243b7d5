"""Grok's files, made up line by line: what the tests of forks, sub-agents and stand-ins write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

START_MS = 1_795_000_000_000
PARENT = "5a000000-0000-4000-8000-000000000001"
CHILD = "01a40000-0000-7000-8000-000000000002"
GROUP = "%2Fhome%2Fada%2Fkite"


def folder(lab: Lab, session: str = PARENT, group: str = GROUP) -> Path:
    path = lab.grok / "sessions" / group / session
    path.mkdir(parents=True, exist_ok=True)
    return path


def update(name: str, number: int, session: str = PARENT, *, writer: str | None = None, **fields: Any) -> bytes:
    """One line of updates.jsonl; the `number` is that of the event and its second."""
    at = START_MS + number * 1000
    writer = writer or session
    written = at // 1000 if writer == session else START_MS // 1000 + 10_000  # a copy has the time of the fork
    body = {"sessionUpdate": name, **fields}
    meta = {"eventId": f"{writer}-{number}", "agentTimestampMs": at}
    params = {"sessionId": session, "update": body, "_meta": meta}
    return json.dumps({"timestamp": written, "method": "session/update", "params": params}).encode() + b"\n"


def prompt(text: str, number: int, session: str = PARENT, index: int = 0, **fields: Any) -> bytes:
    meta = {"modelId": "grok-5", "promptIndex": index}
    content = {"type": "text", "text": text}
    return update("user_message_chunk", number, session, content=content, _meta=meta, **fields)


def answer(text: str, number: int, session: str = PARENT, **fields: Any) -> bytes:
    return update("agent_message_chunk", number, session, content={"type": "text", "text": text}, **fields)


def call(number: int, call_id: str = "call_0", session: str = PARENT, **fields: Any) -> bytes:
    tool = {"x.ai/tool": {"name": "read_file", "kind": "read"}}
    given = {"target_file": "a.py"}
    return update("tool_call", number, session, toolCallId=call_id, rawInput=given, _meta=tool, **fields)


def result(number: int, call_id: str = "call_0", session: str = PARENT, **fields: Any) -> bytes:
    return update("tool_call_update", number, session, toolCallId=call_id, status="completed", **fields)


def turn(
    number: int, session: str = PARENT, *, spent: int | None = None, reason: str = "end_turn", **fields: Any
) -> bytes:
    usage = {} if spent is None else {"usage": {"inputTokens": spent, "outputTokens": 1}}
    made_by = fields.get("writer", session)
    return update(
        "turn_completed", number, session, prompt_id=f"{made_by}-{number}", stop_reason=reason, **usage, **fields
    )


def summary(session: str = PARENT, cwd: str = "/home/ada/kite", **fields: Any) -> str:
    return json.dumps({"info": {"id": session, "cwd": cwd}, **fields}, indent=2)


def meta(parent: str = PARENT, child: str = CHILD) -> str:
    return json.dumps({"parent_session_id": parent, "child_session_id": child, "description": "count"}, indent=2)
