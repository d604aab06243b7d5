"""mycode's messages: a prompt or results, an answer with its calls, a compaction, a rewind; and what each spent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sessiond.adapters._mycode_usage import usage_of
from sessiond.adapters.base import time_of
from sessiond.adapters.commands import is_test_command
from sessiond.adapters.wording import clip, first_line, media_note, one_line, searchable, task_ref_in
from sessiond.model import Event, Fact, Key, Kind, Link, Role, Unknown, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry, Line, Record

_NAME_LIMIT = 200
_EXIT_CODE = re.compile(r"\[exit code: (-?\d{1,10})\]\s*\Z")
_CANCELLED = "error: cancelled"
_DENIED = "error: permission denied by user"
_MEDIA = ("image", "document")
# Where a call's input says best what it does, best first; the search index has the rest.
_TELLING = ("command", "path", "pattern", "query", "url", "description", "name", "prompt")


@dataclass(frozen=True, slots=True)
class Message:
    """One record: its blocks, its meta, and a name that no other record of the session has."""

    role: str
    blocks: list[Any]
    meta: dict[str, Any]
    name: str
    ts: str | None

    def key(self, block: int) -> Key:
        return session_key(f"{self.name}:{block}")


def parse_message(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:
    number = carry["records"] = carry.get("records", 0) + 1
    role, content, meta = record.get("role"), record.get("content"), _mapping(record.get("meta"))
    handler = _HANDLERS.get(role) if isinstance(role, str) else None
    if handler is None:
        return [Unknown(role[:_NAME_LIMIT] if isinstance(role, str) and role else "(no role)")]
    ts = time_of(meta.get("created_at"))
    # Lines without a time may be equal and yet two answers; with one, a line is found again wherever it stands.
    name = blake2b(line.data, digest_size=12).hexdigest() + (f":{number}" if ts is None else "")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return handler(Message(str(role), blocks if isinstance(blocks, list) else [], meta, name, ts), carry)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _call_key(call_id: Any) -> Key | None:
    """An id may come again later in the session: this name always leads to the newest call that has it."""
    return session_key(f"call:{call_id[:_NAME_LIMIT]}") if isinstance(call_id, str) and call_id else None


def _unknown(message: Message, block: Any) -> list[Record]:
    name = _string(_mapping(block).get("type"))
    return [Unknown(f"{message.role}/{name}"[:_NAME_LIMIT])] if name else []


# --- user -----------------------------------------------------------------------------------------


def _user(message: Message, carry: Carry) -> list[Record]:
    """What a person said is one event, however many blocks it has; each result, and each job that ended, is one."""
    said: list[dict[str, Any]] = []
    others: list[Record] = []
    for block in message.blocks:
        name = _mapping(block).get("type")
        if name == "tool_result":
            others.append(_result(message, block))
        elif name == "text" and isinstance(job := _mapping(block.get("meta")).get("job"), dict):
            others.append(_job(message, block, job))
        elif name in _MEDIA or (name == "text" and isinstance(block.get("text"), str)):
            said.append(block)
        else:
            others += _unknown(message, block)
    if not said:
        return others
    prompt = _prompt(message, said)
    return [prompt, *_first_prompt(prompt, carry), *others]


def _prompt(message: Message, blocks: list[dict[str, Any]]) -> Event:
    words, files = [], []
    for block in blocks:
        meta, text = _mapping(block.get("meta")), block.get("text")
        if block["type"] in _MEDIA:
            files.append(_media(block))
        elif meta.get("attachment") or meta.get("skill_snapshot"):
            files.append(f"{_string(meta.get('path')) or 'attachment'}\n{clip(text or '')}")
        else:
            words.append(clip(text or ""))
    is_made_up = message.meta.get("synthetic") is True
    kind = Kind.HUMAN_INTERVENTION if message.meta.get("steer") is True else Kind.USER_MSG
    return Event(
        kind=Kind.LIFECYCLE if is_made_up else kind,
        ts=message.ts,
        role=Role.SYSTEM if is_made_up else Role.USER,
        summary=one_line(" ".join(words)) or one_line(", ".join(one_line(each, 80) for each in files)),
        text=clip("\n".join(words + files)),
        is_turn=not is_made_up,
    )


def _media(block: dict[str, Any]) -> str:
    note = media_note({"type": block["type"], "data": block.get("data"), "mimeType": block.get("mime_type")})
    name = _string(block.get("name"))
    return f"{one_line(name)} ({note})" if name else note


def _first_prompt(prompt: Event, carry: Carry) -> list[Record]:
    if "prompted" in carry or not prompt.is_turn:
        return []
    carry["prompted"] = True
    ref = task_ref_in(prompt.text)
    title = [Fact("title", prompt.summary, 9, first=True)] if prompt.summary else []
    return [*title, *([Fact("task_ref", ref, 5, first=True)] if ref else ())]


def _result(message: Message, block: dict[str, Any]) -> Event:
    """One result. What mycode writes for a call that a crash cut off is a result like any other, and a failed one."""
    output = next((block[name] for name in ("output", "model_text", "display_text") if name in block), None)
    text = clip(output) if isinstance(output, str) else searchable(output)
    shown = _string(block.get("display_text")) or text
    parent_key = _call_key(block.get("tool_use_id"))
    is_error = block.get("is_error") is True
    if is_error and (text.strip() in (_CANCELLED, _DENIED) or text.endswith("\n" + _CANCELLED)):
        return Event(
            kind=Kind.HUMAN_INTERVENTION,
            parent_key=parent_key,
            ts=message.ts,
            role=Role.USER,
            summary=one_line(text[-100:].rpartition("error: ")[2]),
            text=text,
        )
    code = _EXIT_CODE.search(text, max(0, len(text) - 100))
    failed_with = f"exit code {int(code[1])}: " if code is not None and int(code[1]) else ""
    summary = first_line(_EXIT_CODE.sub("", shown) if len(shown) < 1_000 else shown)
    return Event(
        kind=Kind.TOOL_RESULT,
        parent_key=parent_key,
        ts=message.ts,
        role=Role.TOOL,
        summary=f"{failed_with}{summary or '(no output)'}",
        text=text,
        is_error=is_error or bool(failed_with),
    )


def _job(message: Message, block: dict[str, Any], job: dict[str, Any]) -> Event:
    """A command in the background ended: mycode says so in the user's name."""
    text, code = _string(block.get("text")) or "", job.get("exit_code")
    return Event(
        kind=Kind.LIFECYCLE,
        parent_key=_call_key(job.get("tool_use_id")),
        ts=message.ts,
        role=Role.SYSTEM,
        tool=(_string(job.get("name")) or "")[:_NAME_LIMIT] or None,
        summary=first_line(text) or "background command ended",
        text=clip(text),
        is_error=isinstance(code, int) and code != 0,
    )


# --- assistant ------------------------------------------------------------------------------------


def _assistant(message: Message, carry: Carry) -> list[Record]:
    records: list[Record] = []
    events: list[Event] = []
    has_calls = False
    for at, block in enumerate(message.blocks):
        event = _block(message, at, block)
        if event is None:
            records += _unknown(message, block)
            continue
        events.append(event)
        records.append(event)
        if block["type"] == "tool_use":
            has_calls = True
            if (alias := _call_key(block.get("id"))) is not None:
                records.append(Link(alias, event.key, message.ts))
    ending = _ending(message, has_calls=has_calls, last=events[-1].key if events else None)
    if ending is not None:
        records.append(ending)
        events.append(ending)
    return [*records, *_spent(message, events[0].key if events else None), *_model(message, carry)]


def _block(message: Message, at: int, block: Any) -> Event | None:
    name, text = _mapping(block).get("type"), _mapping(block).get("text")
    if name == "tool_use":
        return _call(message, at, block)
    if name == "thinking":
        words = _string(text) or ""
        summary = one_line(words) or "(thinking, not shown)"
        return Event(
            Kind.THINKING, message.key(at), ts=message.ts, role=Role.ASSISTANT, summary=summary, text=clip(words)
        )
    if name == "text" and isinstance(text, str):
        return Event(
            Kind.ASSISTANT_MSG,
            message.key(at),
            ts=message.ts,
            role=Role.ASSISTANT,
            summary=one_line(text),
            text=clip(text),
        )
    return None


def _call(message: Message, at: int, block: dict[str, Any]) -> Event:
    name, given = (_string(block.get("name")) or "")[:_NAME_LIMIT], _mapping(block.get("input"))
    path = _string(given.get("path"))
    kind = Kind.TOOL_CALL
    if name in ("edit", "write"):
        kind = Kind.EDIT
    elif name == "bash" and is_test_command(_string(given.get("command")) or ""):
        kind = Kind.TEST_RUN
    telling = next((words for field in _TELLING if (words := _string(given.get(field)))), None)
    return Event(
        kind=kind,
        key=message.key(at),
        ts=message.ts,
        role=Role.ASSISTANT,
        tool=name or None,
        summary=one_line(telling or searchable(block.get("input"))) or one_line(name),
        text=searchable(block.get("input")),
        files=(path,) if kind is Kind.EDIT and path else (),
    )


def _ending(message: Message, *, has_calls: bool, last: Key | None) -> Event | None:
    """How the turn ended, where this message ends it."""
    key, meta = message.key(len(message.blocks)), message.meta
    if meta.get("stop_reason") == "error":
        words = searchable(meta.get("error")) or "the provider failed"
        summary = first_line(words) or "the provider failed"
        return Event(Kind.ERROR, key, last, message.ts, Role.SYSTEM, summary=summary, text=clip(words), is_error=True)
    if meta.get("stop_reason") == "cancelled" or _was_cut_short(meta):
        return Event(Kind.HUMAN_INTERVENTION, key, last, message.ts, Role.USER, summary="answer cancelled")
    if has_calls:
        return None
    return Event(Kind.COMPLETION, key, last, message.ts, Role.ASSISTANT, summary="turn ended")


def _was_cut_short(meta: dict[str, Any]) -> bool:
    """Versions before `cancelled` was written keep what had come of a stopped answer, with nothing of its end."""
    said = {"stop_reason", "provider_message_id", "usage", "total_tokens"}
    return "context_window" in meta and said.isdisjoint(meta)


def _spent(message: Message, event_key: Key | None) -> list[Record]:
    key = session_key(f"usage:{message.name}")
    usage = usage_of(message.meta.get("usage"), key, event_key, message.ts, _string(message.meta.get("model")))
    return [] if usage is None else [usage]


def _model(message: Message, carry: Carry) -> list[Record]:
    model = message.meta.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= _NAME_LIMIT or model == carry.get("model"):
        return []
    carry["model"] = model
    return [Fact("model", model, 1)]


# --- markers --------------------------------------------------------------------------------------


def _compact(message: Message, carry: Carry) -> list[Record]:  # noqa: ARG001 - a handler as the others
    words = [text for block in message.blocks if (text := _string(_mapping(block).get("text")))]
    trigger = message.meta.get("trigger")
    event = Event(
        kind=Kind.LIFECYCLE,
        key=message.key(0),
        ts=message.ts,
        role=Role.SYSTEM,
        summary=f"compacted ({one_line(trigger, 20)})" if isinstance(trigger, str) else "compacted",
        text=clip("\n".join(clip(each) for each in words)),
    )
    return [event, *_spent(message, event.key)]


def _rewind(message: Message, carry: Carry) -> list[Record]:  # noqa: ARG001 - a handler as the others
    to = message.meta.get("rewind_to")
    summary = f"rewound to message {to}" if isinstance(to, int) else "rewound"
    return [Event(Kind.HUMAN_INTERVENTION, ts=message.ts, role=Role.USER, summary=summary)]


_HANDLERS = {"user": _user, "assistant": _assistant, "compact": _compact, "rewind": _rewind}
