"""pi sessions from the raw lines, by formats/write-behaviour.md and the policy of design.md section 2.

A failed call that a `context_edit` takes back was tried again: a retry. One that stays is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tally import Event, Session, is_test_command, read, utc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EDITS = {"edit", "write"}


def sessions(root: Path, home: str, paths: list[str]) -> dict[str, Session]:
    found = {}
    for path in paths:
        source = read(root, path)
        records = [record for _, record in source.records]
        session = Session("pi:" + records[0]["id"], sources=[source], cwd=records[0]["cwd"])
        taken_back = {r["targetId"] for r in records if r["type"] == "context_edit" and r["replacement"] is None}
        for record in records:
            if record["type"] != "message":
                continue
            message = record["message"]
            events = list(events_of(message, is_retried=record["id"] in taken_back))
            for event in events:
                event.ts = utc(record["timestamp"])
            session.events += events
            if message["role"] == "assistant" and any(message["usage"][n] for n in ("input", "output")):
                spent = message["usage"]
                numbers = {
                    "input_tokens": spent["input"],
                    "output_tokens": spent["output"],
                    "cache_read_tokens": spent["cacheRead"],
                    "cache_write_tokens": spent["cacheWrite"],
                }
                session.raise_usage(record["id"], numbers)
        session.retries = sum(event.kind == "retry" for event in session.events)
        found[session.uid] = session
    return found


def events_of(message: dict[str, Any], *, is_retried: bool) -> Iterator[Event]:
    match message["role"]:
        case "user":
            yield Event("user_msg", is_turn=True)
        case "toolResult":
            yield Event("tool_result", is_error=message["isError"], answers=message["toolCallId"])
        case "assistant":
            for block in message["content"]:
                yield block_event(block)
            if message["stopReason"] == "error":
                yield Event("retry" if is_retried else "error")
            elif message["stopReason"] == "stop":
                yield Event("completion")


def block_event(block: dict[str, Any]) -> Event:
    if block["type"] != "toolCall":
        return Event({"text": "assistant_msg", "thinking": "thinking"}[block["type"]])
    kind = "edit" if block["name"] in EDITS else "tool_call"
    if block["name"] == "bash" and is_test_command(block["arguments"]["command"]):
        kind = "test_run"
    return Event(kind, call=block["id"])
