"""pi's messages: prompts, answers, tool calls and results, a person's own commands, and what each answer cost."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters._calls import NAME_LIMIT, Toolbox
from sessiond.adapters.base import count_of, mapping_of, string_of, time_of
from sessiond.adapters.wording import clip, first_line, media_note, one_line, task_ref_in
from sessiond.model import Event, Fact, Key, Kind, Link, Role, Unknown, Usage, lineage_key, session_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiond.model import Carry, Line, Record

_TOOLS = Toolbox(edits=frozenset({"edit", "write"}), shells=frozenset({"bash"}))
_COUNTS = ("input", "output", "cacheRead", "cacheWrite")


@dataclass(slots=True)
class Entry:
    """One line of the tree, read once; `event` makes the events of its blocks."""

    record: dict[str, Any]
    id: str | None
    ts: str | None
    parent_key: Key | None
    digest: str  # names what an entry without an id (the oldest files) spent

    @classmethod
    def of(cls, record: dict[str, Any], line: Line | None) -> Entry:
        own_id, parent = string_of(record.get("id")), string_of(record.get("parentId"))
        parent_key = _entry_key(parent) if parent is not None and parent != own_id else None
        digest = blake2b(line.data, digest_size=16).hexdigest() if line is not None and own_id is None else ""
        return cls(record, own_id, time_of(record.get("timestamp")), parent_key, digest)

    def key(self, block: int | str) -> Key | None:
        return lineage_key(f"{self.id}@{self.ts}#{block}") if self.id is not None else None

    def event(self, kind: Kind, block: int | str = 0, *, role: Role, summary: str, **fields: Any) -> Event:
        given = {"parent_key": self.parent_key, **fields}
        return Event(kind=kind, key=self.key(block), ts=self.ts, role=role, summary=summary, **given)

    def links(self, last: Event | None = None) -> list[Record]:
        """The entry's own name: for its last event, or for its parent where it made none."""
        if self.id is None or (last is not None and last.key is None):
            return []
        return [Link(_entry_key(self.id), last.key if last is not None else self.parent_key, self.ts)]

    def alone(self, event: Event) -> list[Record]:
        return [event, *self.links(event)]


def _entry_key(name: str) -> Key:
    return session_key("entry:" + name)


def _call_key(call_id: Any) -> Key | None:
    return session_key("call:" + call_id) if isinstance(call_id, str) and call_id else None


def parse_message(entry: Entry, message: dict[str, Any], carry: Carry) -> list[Record]:
    role = string_of(message.get("role")) or "(no role)"
    if role == "system":
        return entry.links()  # the prompt the client was built with: the archive has it
    if role not in _ROLES:
        return [Unknown(f"message/{role[:NAME_LIMIT]}"), *entry.links()]
    return _ROLES[role](entry, message, carry)


def _text_of(content: Any) -> str:
    """Content as text: a string, or its blocks one below the other, images as a note."""
    if isinstance(content, str):
        return clip(content)
    parts = []
    for block in content[:1_000] if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "image":
            parts.append(media_note(block))
        elif isinstance(block.get("text"), str):
            parts.append(clip(block["text"]))
    return clip("\n".join(parts))


def _user(entry: Entry, message: dict[str, Any], carry: Carry) -> list[Record]:
    text = _text_of(message.get("content"))
    event = entry.event(Kind.USER_MSG, role=Role.USER, summary=one_line(text), text=text, is_turn=True)
    found = entry.alone(event)
    if "prompted" not in carry and event.summary:
        carry["prompted"] = True
        found.append(Fact("title", event.summary, 9, first=True))
        if ref := task_ref_in(text):
            found.append(Fact("task_ref", ref, 5, first=True))
    return found


def _assistant(entry: Entry, message: dict[str, Any], carry: Carry) -> list[Record]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    records: list[Record] = []
    events: list[Event] = []
    for at, block in enumerate(blocks):
        made = _block(entry, at, mapping_of(block))
        records += made
        events += [each for each in made if isinstance(each, Event)]
    ending = _ending(entry, message, events[-1] if events else None, carry)
    if ending is not None:
        records.append(ending)
        events.append(ending)
    model = string_of(message.get("model"))
    if model is not None and model != carry.get("model"):
        carry["model"] = model[:200]
        records.append(Fact("model", carry["model"]))
    spent = usage_of(entry, message.get("usage"), events[0].key if events else None, model)
    last = next((each for each in reversed(events) if each is not ending), ending)
    return [*records, *entry.links(last), *([spent] if spent else ())]


def _block(entry: Entry, at: int, block: dict[str, Any]) -> list[Record]:
    name = block.get("type")
    if name == "text" and isinstance(text := block.get("text"), str):
        return [entry.event(Kind.ASSISTANT_MSG, at, role=Role.ASSISTANT, summary=one_line(text), text=clip(text))]
    if name == "thinking":
        text = string_of(block.get("thinking")) or ""
        words = one_line(text) or "(thinking, not shown)"
        return [entry.event(Kind.THINKING, at, role=Role.ASSISTANT, summary=words, text=clip(text))]
    if name == "toolCall":
        return _call(entry, at, block)
    return [Unknown(f"assistant/{name[:NAME_LIMIT]}")] if isinstance(name, str) and name not in ("", "text") else []


def _call(entry: Entry, at: int, block: dict[str, Any]) -> list[Record]:
    call = _TOOLS.read(block.get("name"), mapping_of(block.get("arguments")))
    event = entry.event(
        call.kind,
        at,
        role=Role.ASSISTANT,
        tool=call.tool or None,
        summary=call.summary,
        text=call.text,
        files=call.files,
    )
    key = _call_key(block.get("id"))
    return [event, *([Link(key, event.key, entry.ts)] if key is not None and event.key is not None else ())]


def _ending(entry: Entry, message: dict[str, Any], last: Event | None, carry: Carry) -> Event | None:
    """How an answer ended, where the file says more than that tools follow."""
    reason, said = message.get("stopReason"), string_of(message.get("errorMessage")) or ""
    parent = {"parent_key": last.key} if last is not None and last.key is not None else {}
    if reason == "stop":
        return entry.event(Kind.COMPLETION, "end", role=Role.ASSISTANT, summary="turn ended", **parent)
    if reason == "aborted":
        words = one_line(said) or "aborted"
        return entry.event(Kind.HUMAN_INTERVENTION, "end", role=Role.USER, summary=words, text=clip(said), **parent)
    if reason != "error":
        return None
    words = _error_line(said) or "the call failed without a word"
    event = entry.event(Kind.ERROR, "end", role=Role.SYSTEM, summary=words, text=clip(said), is_error=True, **parent)
    if entry.id is not None and event.key is not None and len(event.key) <= 400:  # what is carried is bounded
        carry["failed"], carry["failed_key"] = entry.id, event.key
    return event


def _error_line(said: str) -> str:
    """`429 {"error": {...}}` as a person would put it: 429 rate_limit_error: Rate limit reached."""
    status, _, body = said.partition(" ")
    try:
        error = mapping_of(mapping_of(orjson.loads(body)).get("error"))
    except orjson.JSONDecodeError:
        return first_line(said)
    kind, message = string_of(error.get("type")), string_of(error.get("message"))
    if message is None:
        return first_line(said)
    return one_line(f"{status} {kind}: {message}" if kind else f"{status} {message}")


def _result(entry: Entry, message: dict[str, Any], _carry: Carry) -> list[Record]:
    text = _text_of(message.get("content"))
    is_error = message.get("isError") is True
    event = entry.event(
        Kind.TOOL_RESULT,
        role=Role.TOOL,
        tool=(string_of(message.get("toolName")) or "")[:NAME_LIMIT] or None,
        summary=first_line(text) or ("failed without a word" if is_error else "(no output)"),
        text=text,
        is_error=is_error,
        parent_key=_call_key(message.get("toolCallId")) or entry.parent_key,
    )
    spent = usage_of(entry, message.get("usage"), event.key, None)  # of a tool that asks a model itself
    return [*entry.alone(event), *([spent] if spent else ())]


def _own_command(entry: Entry, message: dict[str, Any], _carry: Carry) -> list[Record]:
    """`!command`: run by the person, beside the agent."""
    command, output = (string_of(message.get(name)) or "" for name in ("command", "output"))
    event = entry.event(
        Kind.HUMAN_INTERVENTION,
        role=Role.USER,
        tool="bash",
        summary=one_line(f"! {command}"),
        text=clip(f"{command}\n{output}"),
        is_error=bool(count_of(message.get("exitCode"))),
    )
    return entry.alone(event)


def _injected(entry: Entry, message: dict[str, Any], _carry: Carry) -> list[Record]:
    """What an extension put in, or an older part of the session in a few words."""
    text = _text_of(message.get("content")) or clip(string_of(message.get("summary")) or "")
    name = string_of(message.get("customType"))
    words = f"{one_line(name, NAME_LIMIT)}: {one_line(text)}" if name else one_line(text)
    return entry.alone(entry.event(Kind.LIFECYCLE, role=Role.SYSTEM, summary=words, text=text))


def usage_of(entry: Entry, spent: Any, event_key: Key | None, model: str | None) -> Usage | None:
    """None where nothing is known: a call that failed is written with zeros throughout."""
    numbers = [count_of(mapping_of(spent).get(name)) for name in _COUNTS]
    if not any(numbers):
        return None
    name = f"{entry.id}@{entry.ts}" if entry.id is not None else entry.digest
    given, answered, cached, written = numbers
    return Usage(
        key=lineage_key("usage:" + name),
        event_key=event_key,
        ts=entry.ts,
        model=model,
        input_tokens=given,
        output_tokens=answered,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=count_of(mapping_of(spent).get("reasoning")),
    )


_ROLES: dict[str, Callable[[Entry, dict[str, Any], Carry], list[Record]]] = {
    "user": _user,
    "assistant": _assistant,
    "toolResult": _result,
    "bashExecution": _own_command,
    "custom": _injected,
    "hookMessage": _injected,
    "compactionSummary": _injected,
    "branchSummary": _injected,
}
