"""Tool results: one event for each, joined to its call; a denied one is a person's doing, not the tool's failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._claude_envelope import Envelope, Json, agent_key, call_key, mapping
from sessiond.adapters.wording import clip, first_line, media_note, one_line, searchable
from sessiond.model import Kind, Link, Role

if TYPE_CHECKING:
    from sessiond.model import Event, Record

INTERRUPTED = "[Request interrupted by user"
# Written after a denial in the place of the tool's result; the person's own words follow STEERING.
_DENIED = (
    "The user doesn't want to",
    "The tool use was rejected",
    "Tool use was rejected",
    "The user rejected",
    "User rejected",
    "Permission prompt was aborted",
    INTERRUPTED,
)
_STEERING = "the user said:"
_STEERING_END = "\n\nNote: The user's next message"


def parse_result(env: Envelope, at: int, block: Json) -> Event:
    text = result_text(block.get("content"))
    also = env.record.get("toolUseResult")
    if not text and isinstance(also, str):
        text = clip(also)
    parent_key = call_key(block.get("tool_use_id"))
    is_error = block.get("is_error") is True
    if is_error and (text.startswith(_DENIED) or env.record.get("toolDenialKind") == "user-rejected"):
        return _denial(env, at, text, block)
    summary = first_line(text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>"))
    return env.event(
        Kind.TOOL_RESULT,
        at,
        role=Role.TOOL,
        summary=summary or ("failed without a word" if is_error else "(no output)"),
        text=text,
        is_error=is_error,
        parent_key=parent_key,
    )


def _denial(env: Envelope, at: int, text: str, block: Json) -> Event:
    steering = text[text.find(_STEERING) + len(_STEERING) :] if _STEERING in text else ""
    steering = steering.partition(_STEERING_END)[0].strip()
    return env.event(
        Kind.HUMAN_INTERVENTION,
        at,
        role=Role.USER,
        summary=one_line(steering) or first_line(text) or "tool use denied",
        text=text,
        is_turn=bool(steering) and not env.is_sidechain,
        parent_key=call_key(block.get("tool_use_id")),
    )


def result_text(content: Any) -> str:
    """A tool result's words: a string, or its blocks one below the other, images as a note."""
    if isinstance(content, str):
        return clip(content)
    if not isinstance(content, list):
        return searchable(content)
    parts = []
    for block in content[:1_000]:
        if isinstance(block, dict) and block.get("type") in ("image", "document"):
            parts.append(media_note(block))
        elif isinstance(block, dict) and isinstance(block.get("text"), str):
            parts.append(clip(block["text"]))
        else:
            parts.append(searchable(block))
    return clip("\n".join(parts))


def agent_links(env: Envelope, block: Json) -> list[Record]:
    """The side chain that this call started, by the agent's id that its result names."""
    key = agent_key(mapping(env.record.get("toolUseResult")).get("agentId"))
    parent_key = call_key(block.get("tool_use_id"))
    return [Link(key, parent_key, env.ts)] if key is not None and parent_key is not None else []
