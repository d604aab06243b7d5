"""chat_history.jsonl: what is sent to the model. Read only where updates.jsonl is missing: it has no times and no
usage, and it shrinks when a conversation is rewound or compacted.

Version 1 has a `type` per row, version 0 the `role` messages of the OpenAI API. Rows have no ids; but for calls they
are known by their bytes, so a rewrite that repeats them finds them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._grok_reading import ident, mapping, string
from sessiond.adapters._grok_tools import Call, blocks_text, read_arguments, read_call, read_plain_result
from sessiond.adapters.base import text_of
from sessiond.adapters.wording import clip, one_line, task_ref_in
from sessiond.model import Event, Fact, Key, Kind, Record, Role, Unknown, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry

_QUERY, _QUERY_END = "<user_query>", "</user_query>"
_STEER = "interjection"


def parse_chat(record: dict[str, Any], carry: Carry) -> list[Record]:
    sort = record.get("type") if isinstance(record.get("type"), str) else record.get("role")
    if sort == "system":
        return []
    if sort == "user":
        return _user(record, carry)
    if sort == "assistant":
        return _assistant(record, carry)
    if sort == "reasoning":
        return _thinking(blocks_text(record.get("summary")))
    if sort in ("tool_result", "tool"):
        return [_result(record)]
    if sort == "backend_tool_call":
        return [_backend_call(mapping(record.get("kind")))]
    return [Unknown(f"chat:{text_of(sort)[:60] or '(no type)'}")]


def _user(record: dict[str, Any], carry: Carry) -> list[Record]:
    text = blocks_text(record.get("content"))
    reason = record.get("synthetic_reason")
    query = _query(text)
    if query is not None:
        text = query
    if reason == _STEER:
        return [_event(Kind.HUMAN_INTERVENTION, Role.USER, text, is_turn=True)]
    is_context = query is None and "prompt_index" not in record and text.startswith("<")
    if reason is not None or is_context:
        return [_event(Kind.LIFECYCLE, Role.SYSTEM, text, summary=f"{text_of(reason) or 'context'}: {text[:1000]}")]
    found: list[Record] = [_event(Kind.USER_MSG, Role.USER, text, is_turn=True)]
    if "prompted" not in carry and (title := one_line(text)):
        carry["prompted"] = True
        found.append(Fact("title", title, 9, first=True))
        if ref := task_ref_in(text):
            found.append(Fact("task_ref", ref, 5, first=True))
    return found


def _query(text: str) -> str | None:
    """What the person typed, out of what Grok wraps around it."""
    query, closing, _ = text.partition(_QUERY)[2].partition(_QUERY_END)
    return query.removeprefix("\n").removesuffix("\n") if closing else None


def _assistant(record: dict[str, Any], carry: Carry) -> list[Record]:
    found = _thinking(text_of(record.get("reasoning_content")))
    text = blocks_text(record.get("content"))
    if text:
        found.append(_event(Kind.ASSISTANT_MSG, Role.ASSISTANT, text))
    calls = record.get("tool_calls")
    found += [_call(each) for each in (calls if isinstance(calls, list) else []) if isinstance(each, dict)]
    model = ident(record.get("model_id"))
    if model is not None and carry.get("model") != model:
        carry["model"] = model
        found.append(Fact("model", model))
    return found


def _call(call: dict[str, Any]) -> Event:
    function = mapping(call.get("function")) or call
    read = read_call(string(function.get("name")), None, read_arguments(function.get("arguments")))
    return _call_event(read, call.get("id"))


def _backend_call(call: dict[str, Any]) -> Event:
    return _call_event(read_call(string(call.get("tool_type")), "search", call.get("action")), call.get("id"))


def _call_event(call: Call, call_id: Any) -> Event:
    return Event(
        kind=call.kind,
        key=_call_key(call_id),
        role=Role.ASSISTANT,
        tool=call.tool,
        summary=one_line(call.summary),
        text=clip(call.text),
        files=call.files,
    )


def _result(record: dict[str, Any]) -> Event:
    result = read_plain_result(blocks_text(record.get("content")))
    return Event(
        kind=result.kind,
        parent_key=_call_key(record.get("tool_call_id")),
        role=Role.TOOL,
        summary=one_line(result.summary),
        text=result.text,
        is_error=result.is_error,
    )


def _call_key(call_id: Any) -> Key | None:
    name = ident(call_id)
    return session_key("chat-call:" + name) if name else None


def _thinking(text: str) -> list[Record]:
    return [_event(Kind.THINKING, Role.ASSISTANT, text)] if text else []


def _event(kind: Kind, role: Role, text: str, *, summary: str | None = None, is_turn: bool = False) -> Event:
    said = text if summary is None else summary
    return Event(kind=kind, role=role, summary=one_line(said), text=clip(text), is_turn=is_turn)
