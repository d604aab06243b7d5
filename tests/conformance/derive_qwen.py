"""Qwen Code sessions from the raw lines, by formats/write-behaviour.md and the policy of design.md section 2.

What was spent is read from the `api_response` lines alone: they tell of every call once, a sub-agent's and a side
job's too. (The `assistant` lines repeat the same numbers; side jobs have none.)
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tally import Event, Session, is_test_command, read, utc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EDITS = {"edit", "write_file"}


def sessions(root: Path, home: str, paths: list[str]) -> dict[str, Session]:
    found: dict[str, Session] = {}
    for path in sorted(paths, key=lambda p: ("/subagents/" in p, p)):
        name = PurePosixPath(path)
        in_subagent = "subagents" in name.parts
        if in_subagent and name.name.endswith(".meta.json"):
            found["qwen:" + name.parent.name].sidecars += 1
        if name.suffix != ".jsonl":
            continue
        uid = "qwen:" + (name.parent.name if in_subagent else name.stem)
        session = found.setdefault(uid, Session(uid))
        source = read(root, path)
        session.sources.append(source)
        for _, record in source.records:
            session.cwd = session.cwd or record["cwd"]
            events = list(events_of(record))
            for event in events:
                event.ts = utc(record["timestamp"])
                event.sidechain = in_subagent
                event.is_turn = event.is_turn and not in_subagent
            session.events += events
            count_usage(session, record)
    return found


def ui_event(record: dict[str, Any]) -> dict[str, Any]:
    return record["systemPayload"]["uiEvent"] if record.get("subtype") == "ui_telemetry" else {}


def count_usage(session: Session, record: dict[str, Any]) -> None:
    told = ui_event(record)
    if told.get("event.name") != "qwen-code.api_response":
        return
    cached = told["cached_content_token_count"]
    numbers = {
        "input_tokens": told["input_token_count"] - cached,
        "output_tokens": told["output_token_count"],  # thinking included: input + output is the total
        "cache_read_tokens": cached,
    }
    assert told["input_token_count"] + told["output_token_count"] == told["total_token_count"]
    session.raise_usage(told["response_id"], numbers)


def events_of(record: dict[str, Any]) -> Iterator[Event]:
    parts = record.get("message", {}).get("parts", [])
    match record["type"]:
        case "user":
            yield Event("user_msg", is_turn=True)
        case "assistant":
            for part in parts:
                yield part_event(part)
        case "tool_result":
            for part in parts:
                answer = part["functionResponse"]
                shown = record["toolCallResult"].get("resultDisplay")
                code = shown.get("exitCode") if isinstance(shown, dict) else None
                yield Event("tool_result", is_error="error" in answer["response"] or bool(code), answers=answer["id"])
        case "system" if ui_event(record).get("event.name") == "qwen-code.api_error":
            yield Event("error")


def part_event(part: dict[str, Any]) -> Event:
    if "functionCall" not in part:
        return Event("thinking" if part.get("thought") else "assistant_msg")
    call = part["functionCall"]
    kind = "edit" if call["name"] in EDITS else "tool_call"
    if call["name"] == "run_shell_command" and is_test_command(call["args"]["command"]):
        kind = "test_run"
    return Event(kind, call=call["id"])
