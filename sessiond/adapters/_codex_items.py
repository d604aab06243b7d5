"""Response items: what the model saw and said. They are the canonical side of a rollout, in every era.

The human prompt is the one exception: where a file has UI events for prompts, those say what the person typed, and the
item is left out. Before the first of them nobody can know, so an item that looks like a prompt is taken at
once, and the UI event that repeats it is left out instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._codex_calls import CALLS
from sessiond.adapters._codex_reading import Reading, digest
from sessiond.adapters._codex_text import (
    content_text,
    is_enveloped,
    prompt_of,
    shell_command_of,
    spoken,
    working_directory,
)
from sessiond.adapters.base import text_of
from sessiond.adapters.wording import one_line, task_ref_in
from sessiond.model import Kind, Patch, Role, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

_SKIPPED = {"compaction", "context_compaction", "compaction_summary", "compaction_trigger", "ghost_snapshot", "other"}


def response_item(item: dict[str, Any], reading: Reading) -> None:
    kind = text_of(item.get("type"))
    handler = _HANDLERS.get(kind)
    if handler is not None:
        handler(item, reading)
        return
    reading.advance("item", kind, text_of(item.get("id")))
    if kind not in _SKIPPED:
        reading.records.append(Unknown(f"response_item/{kind[:80]}"))


# --- messages -------------------------------------------------------------------------------------


def _message(item: dict[str, Any], reading: Reading) -> None:
    role, content = item.get("role"), item.get("content")
    text = content_text(content)
    reading.advance("message", text_of(role), text)
    if role == "assistant":
        assistant_message(text, reading, side="x", other="y")
    elif role == "user":
        _user_item(item, content, text, reading)


def assistant_message(text: str, reading: Reading, *, side: str, other: str) -> None:
    """An answer, from whichever side of the file says it first."""
    if text.strip() and not reading.mirrored(side, other, "m", text):
        reading.event(Kind.ASSISTANT_MSG, reading.key("m", text), role=Role.ASSISTANT, summary=text, text=text)


def _user_item(item: dict[str, Any], content: Any, text: str, reading: Reading) -> None:
    carry = reading.carry
    if (command := shell_command_of(text)) is not None:
        summary = f"ran {command}" if command else "ran a command"
        key = reading.key("h", text)
        reading.event(Kind.HUMAN_INTERVENTION, key, role=Role.USER, summary=summary, text=text)
        return
    if "cwd=0" not in carry:
        reading.fact("cwd", working_directory(text), rank=1, first=True)
    if carry.get("ui") or _is_injected(item):
        return
    parts = content if isinstance(content, list) else [content]
    asked = "\n".join(filter(None, (prompt_of(content_text([part])) for part in parts)))
    if not asked or (carry.get("wrapped") and is_enveloped(asked)):
        return
    carry["asked"] = digest(spoken(asked))
    prompt(asked, reading)


def _is_injected(item: dict[str, Any]) -> bool:
    """Newer clients say of each part where it is from."""
    passthrough = item.get("internal_chat_message_metadata_passthrough")
    kinds = passthrough.get("content_item_kinds") if isinstance(passthrough, dict) else None
    if not isinstance(kinds, list) or not kinds:
        return False
    return not any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)


def prompt(asked: str, reading: Reading) -> None:
    """A prompt, by a person or, in a sub-agent, by the agent that sent it."""
    if "anchor" not in reading.carry:
        reading.begin_turn()  # nothing else marks where a turn begins
    by_agent = reading.is_agents()
    reading.event(
        Kind.USER_MSG,
        reading.key("p", spoken(asked)),
        role=Role.AGENT if by_agent else Role.USER,
        summary=asked,
        text=asked,
        is_turn=not by_agent,
    )
    if by_agent or not reading.carry.get("side"):  # not what a sub-agent repeats of its parent's person
        if "title=9" not in reading.carry:
            reading.fact("task_ref", task_ref_in(asked), rank=5, first=True)
        reading.fact("title", one_line(asked), rank=9, first=True)


def _agent_message(item: dict[str, Any], reading: Reading) -> None:
    reading.advance("agent_message", text_of(item.get("author")), content_text(item.get("content")))
    _between_agents(item, reading, side="x", other="y")


def inter_agent(item: dict[str, Any], reading: Reading) -> None:
    """The same as a record of its own; it may stand beside the item."""
    _between_agents(item, reading, side="y", other="x")


def _between_agents(item: dict[str, Any], reading: Reading, *, side: str, other: str) -> None:
    """Agents writing to one another: what comes in is asked of this one, what goes out is said by it."""
    author, recipient = text_of(item.get("author")), text_of(item.get("recipient"))
    text = content_text(item.get("content"))
    if reading.mirrored(side, other, "n", f"{author}>{recipient}:{text}"):
        return
    outgoing = author == reading.carry.get("agent_path", "/root")
    reading.event(
        Kind.ASSISTANT_MSG if outgoing else Kind.USER_MSG,
        reading.key("n", author, recipient, text),
        role=Role.AGENT,
        summary=f"{author or '?'} to {recipient or '?'}: {text[:1000]}",
        text=text,
    )


# --- thinking -------------------------------------------------------------------------------------


def _reasoning(item: dict[str, Any], reading: Reading) -> None:
    summary = item.get("summary")
    parts = [content_text([part]) for part in summary] if isinstance(summary, list) else [content_text(summary)]
    parts = [part for part in parts if part]
    encrypted = text_of(item.get("encrypted_content"))
    text = "\n\n".join(parts) or content_text(item.get("content"))
    first = parts[0] if parts else text or encrypted
    reading.advance("reasoning", first)
    carry = reading.carry
    if parts:
        carry["summaries"] = True
        if reading.mirrored("x", "y", "t", first):
            if carry.get("thoughts", "").startswith(first[:100]) and len(parts) > 1:
                reading.records.append(Patch(carry["thought"], text=text))
            return
    shown = text or ("[encrypted]" if encrypted else "[empty]")
    reading.event(Kind.THINKING, reading.key("t", first), role=Role.ASSISTANT, summary=shown, text=text)


def thought(text: str, reading: Reading) -> None:
    """The UI's side of thinking: left out once the file has shown that its items bring their summaries."""
    carry = reading.carry
    if not text.strip() or carry.get("summaries"):
        return
    if carry.get("thought") and carry.get("last") == carry["thought"]:  # a further part of the same thought
        carry["thoughts"] = f"{carry.get('thoughts', '')}\n\n{text}"[:4000]
        reading.records.append(Patch(carry["thought"], text=carry["thoughts"]))
        return
    reading.mirrored("y", "x", "t", text)
    key = reading.key("t", text)
    reading.event(Kind.THINKING, key, role=Role.ASSISTANT, summary=text, text=text)
    carry["thought"], carry["thoughts"] = key, text[:4000]


_HANDLERS: dict[str, Callable[[dict[str, Any], Reading], None]] = {
    "message": _message,
    "agent_message": _agent_message,
    "reasoning": _reasoning,
    **CALLS,
}
