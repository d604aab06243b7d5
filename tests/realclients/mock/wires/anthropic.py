"""Anthropic Messages, as Claude Code speaks it."""

from __future__ import annotations

import json

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

SAYS_CACHE_WRITES = True
_EMPTY: dict[type, Json] = {Text: {"text": ""}, Thought: {"thinking": "", "signature": ""}, Calling: {"input": {}}}
_KINDS = {400: "invalid_request_error", 429: "rate_limit_error", 500: "api_error"}


def read(body: Json, _path: str) -> Asked:
    turns = [
        Turn(each["role"], text_of(each.get("content")), _has_result(each.get("content"))) for each in body["messages"]
    ]
    tools = [Tool(each["name"], each.get("input_schema") or {}) for each in body.get("tools") or []]
    forced = (body.get("tool_choice") or {}).get("name")
    return Asked(str(body.get("model")), turns, tools, bool(body.get("stream")), forced)


def _has_result(content: object) -> bool:
    return isinstance(content, list) and any(each.get("type") == "tool_result" for each in content)


def whole(reply: Reply) -> Json:
    return {
        "id": f"msg_mock{reply.number:06d}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [_block(block) for block in reply.blocks],
        "stop_reason": "tool_use" if reply.has_calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.tokens.input,
            "cache_creation_input_tokens": reply.tokens.cache_write,
            "cache_read_input_tokens": reply.tokens.cache_read,
            "output_tokens": reply.tokens.output,
        },
    }


def _block(block: Text | Thought | Calling) -> Json:
    if isinstance(block, Thought):
        return {"type": "thinking", "thinking": block.text, "signature": "bW9jaw=="}
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    return {"type": "tool_use", "id": f"toolu_{block.id}", "name": block.tool.name, "input": block.arguments}


def stream(reply: Reply) -> Frames:
    message = whole(reply)
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield _frame({"type": "message_start", "message": start})
    for index, block in enumerate(reply.blocks):
        yield from _stream_block(index, block)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _frame({"type": "message_delta", "delta": ending, "usage": message["usage"]})
    yield _frame({"type": "message_stop"})


def _stream_block(index: int, block: Text | Thought | Calling) -> Frames:
    empty = {**_block(block), **_EMPTY[type(block)]}
    yield _frame({"type": "content_block_start", "index": index, "content_block": empty})
    for delta in _deltas(block):
        if isinstance(delta, Pause):
            yield delta
        else:
            yield _frame({"type": "content_block_delta", "index": index, "delta": delta})
    yield _frame({"type": "content_block_stop", "index": index})


def _deltas(block: Text | Thought | Calling) -> list[Json | Pause]:
    if isinstance(block, Text):
        return [p if isinstance(p, Pause) else {"type": "text_delta", "text": p} for p in spoken(block)]
    if isinstance(block, Thought):
        parts: list[Json | Pause] = [{"type": "thinking_delta", "thinking": part} for part in pieces(block.text)]
        return [*parts, {"type": "signature_delta", "signature": "bW9jaw=="}]
    return [{"type": "input_json_delta", "partial_json": part} for part in pieces(json.dumps(block.arguments))]


def _frame(data: Json) -> Frame:
    return Frame(data, data["type"])


def error(status: int, message: str) -> Json:
    return {"type": "error", "error": {"type": _KINDS[status], "message": message}, "request_id": "req_mock"}
