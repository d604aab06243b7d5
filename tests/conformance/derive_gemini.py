"""Gemini CLI sessions from the raw lines, by formats/write-behaviour.md and the policy of design.md section 2.

Messages by id, the last line of each wins; `$set` lines repeat the history in a poorer form and add nothing to it.
Files belong to the session that their header names, so a second file with the same id is part of the first's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tally import Event, Session, is_test_command, read, utc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EDITS = {"replace", "write_file"}
EXIT_CODE = re.compile(r"^Exit Code: (-?\d+)$", re.MULTILINE)


def sessions(root: Path, home: str, paths: list[str]) -> dict[str, Session]:
    found: dict[str, Session] = {}
    messages: dict[str, dict[str, dict[str, Any]]] = {}
    for path in paths:
        source = read(root, path)
        uid = "gemini:" + source.records[0][1]["sessionId"]
        found.setdefault(uid, Session(uid)).sources.append(source)
        by_id = messages.setdefault(uid, {})
        for _, record in source.records:
            if "id" in record:
                by_id[record["id"]] = record
    for uid, by_id in messages.items():
        for message in by_id.values():
            emit(found[uid], message)
    return found


def emit(session: Session, message: dict[str, Any]) -> None:
    events = list(events_of(message))
    for event in events:
        event.ts = event.ts or utc(message["timestamp"])
    session.events += events
    spent = message.get("tokens")
    if spent:
        assert spent["total"] == spent["input"] + spent["output"] + spent["thoughts"] + spent["tool"]
        numbers = {
            "input_tokens": spent["input"] - spent["cached"] + spent["tool"],
            "output_tokens": spent["output"] + spent["thoughts"],
            "cache_read_tokens": spent["cached"],
        }
        session.raise_usage(message["id"], numbers)


def events_of(message: dict[str, Any]) -> Iterator[Event]:
    if message["type"] == "user":
        if not any("functionResponse" in part for part in message["content"]):  # those repeat toolCalls[].result
            yield Event("user_msg", is_turn=True)
        return
    if message["thoughts"]:
        yield Event("thinking")  # one train of thought, in however many pieces it streamed
    if message["content"]:
        yield Event("assistant_msg")
    for call in message.get("toolCalls", []):
        yield Event(kind_of(call), call=call["id"])
        yield Event("tool_result", utc(call["timestamp"]), is_error=has_failed(call), answers=call["id"])


def kind_of(call: dict[str, Any]) -> str:
    if call["name"] == "run_shell_command" and is_test_command(call["args"]["command"]):
        return "test_run"
    return "edit" if call["name"] in EDITS else "tool_call"


def has_failed(call: dict[str, Any]) -> bool:
    """The client's own mark, or the exit code in the output: a command that fails is `success` to Gemini CLI."""
    output = call["result"][0]["functionResponse"]["response"].get("output", "")
    codes = EXIT_CODE.findall(output)
    return call["status"] == "error" or bool(codes and int(codes[-1]))
