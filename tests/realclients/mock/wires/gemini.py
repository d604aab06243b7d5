"""Gemini's generateContent."""

from __future__ import annotations

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
    spoken,
    text_of,
)

SAYS_CACHE_WRITES = False


def read(body: Json, path: str) -> Asked:
    declared = [d for each in body.get("tools") or [] for d in each.get("functionDeclarations") or []]
    tools = [Tool(d["name"], d.get("parametersJsonSchema") or d.get("parameters") or {}) for d in declared]
    model = path.rpartition("/")[2].partition(":")[0]
    return Asked(model, [_turn(each) for each in body.get("contents") or []], tools, "stream" in path)


def _turn(content: Json) -> Turn:
    parts = content.get("parts") or []
    role = "assistant" if content.get("role") == "model" else "user"
    return Turn(role, text_of(parts), any("functionResponse" in part for part in parts))


def whole(reply: Reply) -> Json:
    return _answer(reply, [_part(block) for block in reply.blocks], is_last=True)


def stream(reply: Reply) -> Frames:
    for block in reply.blocks:
        if not isinstance(block, Text):
            yield Frame(_answer(reply, [_part(block)], is_last=False))
            continue
        for said in spoken(block):
            yield said if isinstance(said, Pause) else Frame(_answer(reply, [{"text": said}], is_last=False))
    yield Frame(_answer(reply, [{"text": ""}], is_last=True))


def _part(block: Text | Thought | Calling) -> Json:
    if isinstance(block, Thought):
        return {"text": f"**Thinking** {block.text}", "thought": True}
    if isinstance(block, Text):
        return {"text": block.text}
    return {"functionCall": {"id": f"call_{block.id}", "name": block.tool.name, "args": block.arguments}}


def _answer(reply: Reply, parts: list[Json], *, is_last: bool) -> Json:
    candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
    answer = {"candidates": [candidate], "modelVersion": reply.model, "responseId": f"gem_mock{reply.number:06d}"}
    if not is_last:
        return answer
    candidate["finishReason"] = "STOP"
    tokens = reply.tokens
    asked = tokens.input + tokens.cache_read
    usage = {
        "promptTokenCount": asked,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "cachedContentTokenCount": tokens.cache_read,
        "totalTokenCount": asked + tokens.output,
    }
    return {**answer, "usageMetadata": usage}


def error(status: int, message: str) -> Json:
    kinds = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
    return {"error": {"code": status, "message": message, "status": kinds[status]}}
