"""OpenAI Chat Completions, as Grok, mycode, pi and Qwen can speak it."""

from __future__ import annotations

import json
import time
from typing import TypeVar

from realclients.mock.wires.responses import error
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

__all__ = ["SAYS_CACHE_WRITES", "error", "read", "stream", "whole"]

SAYS_CACHE_WRITES = False
Block = TypeVar("Block", Text, Thought, Calling)


def read(body: Json, _path: str) -> Asked:
    turns = [Turn(each["role"], text_of(each.get("content")), each["role"] == "tool") for each in body["messages"]]
    functions = [each["function"] for each in body.get("tools") or [] if each.get("type") == "function"]
    tools = [Tool(each["name"], each.get("parameters") or {}) for each in functions]
    choice = body.get("tool_choice")
    forced = (choice.get("function") or {}).get("name") if isinstance(choice, dict) else None
    return Asked(str(body.get("model")), turns, tools, bool(body.get("stream")), forced)


def whole(reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": "\n".join(b.text for b in _of(reply, Text)) or None}
    if thoughts := [block.text for block in _of(reply, Thought)]:
        message["reasoning_content"] = "\n".join(thoughts)
    if reply.has_calls:
        message["tool_calls"] = [_call(block) for block in _of(reply, Calling)]
    choice = {"index": 0, "message": message, "finish_reason": _ending(reply)}
    return {**_head(reply), "object": "chat.completion", "choices": [choice], "usage": _usage(reply)}


def stream(reply: Reply) -> Frames:
    yield _chunk(reply, {"role": "assistant", "content": ""})
    for thought in _of(reply, Thought):
        for piece in pieces(thought.text):
            yield _chunk(reply, {"reasoning_content": piece})
    for text in _of(reply, Text):
        for said in spoken(text):
            yield said if isinstance(said, Pause) else _chunk(reply, {"content": said})
    for index, block in enumerate(_of(reply, Calling)):
        call = _call(block)
        arguments = call["function"]["arguments"]
        yield _chunk(
            reply, {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        )
        for piece in pieces(arguments):
            yield _chunk(reply, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk(reply, {}, _ending(reply))
    yield Frame({**_head(reply), "object": "chat.completion.chunk", "choices": [], "usage": _usage(reply)})
    yield Frame("[DONE]")


def _of(reply: Reply, kind: type[Block]) -> list[Block]:
    return [block for block in reply.blocks if isinstance(block, kind)]


def _head(reply: Reply) -> Json:
    return {"id": f"chatcmpl-mock{reply.number:06d}", "created": int(time.time()), "model": reply.model}


def _chunk(reply: Reply, delta: Json, ending: str | None = None) -> Frame:
    choice = {"index": 0, "delta": delta, "finish_reason": ending}
    return Frame({**_head(reply), "object": "chat.completion.chunk", "choices": [choice]})


def _call(block: Calling) -> Json:
    function = {"name": block.tool.name, "arguments": json.dumps(block.arguments)}
    return {"id": f"call_{block.id}", "type": "function", "function": function}


def _ending(reply: Reply) -> str:
    return "tool_calls" if reply.has_calls else "stop"


def _usage(reply: Reply) -> Json:
    asked = reply.tokens.input + reply.tokens.cache_read
    return {
        "prompt_tokens": asked,
        "completion_tokens": reply.tokens.output,
        "total_tokens": asked + reply.tokens.output,
        "prompt_tokens_details": {"cached_tokens": reply.tokens.cache_read},
        "completion_tokens_details": {"reasoning_tokens": reply.tokens.reasoning},
    }
