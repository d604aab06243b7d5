"""OpenAI Responses, as Codex speaks it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from realclients.mock.wires.shape import (
    Asked,
    Calling,
    Frame,
    Frames,
    Json,
    Pause,
    Reply,
    Text,
    Thought,
    Tool,
    Turn,
    pieces,
    spoken,
    text_of,
)

SAYS_CACHE_WRITES = False


def read(body: Json, _path: str) -> Asked:
    items = body.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    choice = body.get("tool_choice")
    forced = choice.get("name") if isinstance(choice, dict) else None
    turns = [turn for item in items if (turn := _turn(item))]
    return Asked(str(body.get("model")), turns, list(_tools(body.get("tools"))), bool(body.get("stream")), forced)


def _turn(item: Json) -> Turn | None:
    kind = item.get("type") or "message"
    if kind == "message":
        return Turn(item["role"], text_of(item.get("content")))
    if kind.endswith("_output"):
        return Turn("user", json.dumps(item.get("output")), is_result=True)
    return Turn("assistant", "") if kind == "reasoning" or kind.endswith("_call") else None


def _tools(offered: Any, namespace: str | None = None) -> Iterator[Tool]:
    for each in offered or []:
        if each.get("type") == "namespace":
            yield from _tools(each.get("tools"), each.get("name"))
        elif each.get("name"):
            yield Tool(each["name"], each.get("parameters") or {}, each.get("type") == "custom", namespace)


def whole(reply: Reply) -> Json:
    asked = reply.tokens.input + reply.tokens.cache_read
    return {
        "id": f"resp_mock{reply.number:06d}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": reply.model,
        "output": [_item(reply.number, at, block) for at, block in enumerate(reply.blocks)],
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tools": [],
        "tool_choice": "auto",
        "metadata": {},
        "usage": {
            "input_tokens": asked,
            "input_tokens_details": {"cached_tokens": reply.tokens.cache_read},
            "output_tokens": reply.tokens.output,
            "output_tokens_details": {"reasoning_tokens": reply.tokens.reasoning},
            "total_tokens": asked + reply.tokens.output,
        },
    }


def _item(number: int, at: int, block: Text | Thought | Calling) -> Json:
    if isinstance(block, Thought):
        summary = [{"type": "summary_text", "text": block.text}]
        return {"id": f"rs_mock{number}_{at}", "type": "reasoning", "encrypted_content": "bW9jaw==", "summary": summary}
    if isinstance(block, Text):
        content = [{"type": "output_text", "text": block.text, "annotations": []}]
        ids = {"id": f"msg_mock{number}_{at}", "type": "message", "role": "assistant"}
        return {**ids, "status": "completed", "content": content}
    named = {"status": "completed", "call_id": f"call_{block.id}", "name": block.tool.name}
    if block.freeform is not None:
        return {"id": f"ctc_{block.id}", "type": "custom_tool_call", **named, "input": block.freeform}
    space = {"namespace": block.tool.namespace} if block.tool.namespace else {}
    arguments = json.dumps(block.arguments)
    return {"id": f"fc_{block.id}", "type": "function_call", **named, "arguments": arguments, **space}


def stream(reply: Reply) -> Frames:
    done = whole(reply)
    numbers = count(1)

    def frame(name: str, **fields: Any) -> Frame:
        return Frame({"type": name, "sequence_number": next(numbers), **fields}, name)

    yield frame("response.created", response={**done, "status": "in_progress", "output": [], "usage": None})
    for at, (item, block) in enumerate(zip(done["output"], reply.blocks, strict=True)):
        yield frame("response.output_item.added", output_index=at, item=_begun(item))
        for step in _steps(item, block):
            if isinstance(step, Pause):
                yield step
            else:
                name, fields = step
                yield frame(f"response.{name}", output_index=at, item_id=item["id"], **fields)
        yield frame("response.output_item.done", output_index=at, item=item)
    yield frame("response.completed", response=done)


def _begun(item: Json) -> Json:
    empty = {"summary": [], "content": [], "arguments": "", "input": "", "status": "in_progress"}
    return {name: empty.get(name, value) for name, value in item.items()}


def _steps(item: Json, block: Text | Thought | Calling) -> Iterator[Pause | tuple[str, Json]]:
    if isinstance(block, Thought):
        part = item["summary"][0]
        yield "reasoning_summary_part.added", {"summary_index": 0, "part": {**part, "text": ""}}
        for piece in pieces(block.text):
            yield "reasoning_summary_text.delta", {"summary_index": 0, "delta": piece}
        yield "reasoning_summary_text.done", {"summary_index": 0, "text": block.text}
        yield "reasoning_summary_part.done", {"summary_index": 0, "part": part}
    elif isinstance(block, Text):
        part = item["content"][0]
        yield "content_part.added", {"content_index": 0, "part": {**part, "text": ""}}
        for said in spoken(block):
            yield said if isinstance(said, Pause) else ("output_text.delta", {"content_index": 0, "delta": said})
        yield "output_text.done", {"content_index": 0, "text": block.text}
        yield "content_part.done", {"content_index": 0, "part": part}
    else:
        name, field = (
            ("custom_tool_call_input", "input") if "input" in item else ("function_call_arguments", "arguments")
        )
        for piece in pieces(item[field]):
            yield f"{name}.delta", {"delta": piece}
        yield f"{name}.done", {field: item[field]}


def error(status: int, message: str) -> Json:
    kind = "rate_limit_exceeded" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "code": kind, "param": None}}
