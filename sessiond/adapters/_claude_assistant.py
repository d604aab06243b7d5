"""Assistant records: answers, thinking, tool calls, their cost, and errors written in the model's name."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sessiond.adapters._claude_envelope import NAME_LIMIT, Envelope, Json, call_key, mapping, string
from sessiond.adapters._claude_results import INTERRUPTED, result_text
from sessiond.adapters.base import count_of
from sessiond.adapters.commands import is_test_command
from sessiond.adapters.wording import clip, first_line, one_line, searchable
from sessiond.model import Event, Key, Kind, Link, Role, Unknown, Usage, global_key, session_key

if TYPE_CHECKING:
    from sessiond.model import Line, Record

SYNTHETIC = "<synthetic>"
_NO_RESPONSE = "No response requested."
_EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_DECISIONS = frozenset({"ExitPlanMode", "AskUserQuestion"})
_SHELLS = frozenset({"Bash", "PowerShell"})
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
# Where a tool's input says best what it does, best first; the search index has the rest.
_TELLING = (
    *("command", "file_path", "notebook_path", "pattern", "query", "url", "description", "skill", "subject"),
    *("plan", "question", "message", "summary", "path", "prompt", "name", "task_id", "taskId", "bash_id"),
)


def parse_assistant(env: Envelope, line: Line) -> list[Record]:
    message = mapping(env.record.get("message"))
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    is_made_up = message.get("model") == SYNTHETIC or env.record.get("isApiErrorMessage") is True
    records: list[Record] = []
    first: Event | None = None
    last: Event | None = None
    ends_turn = message.get("stop_reason") == "end_turn"
    for at, block in enumerate(blocks):
        event = _made_up(env, at, block) if is_made_up else _block(env, at, block)
        if isinstance(event, Unknown):
            records.append(event)
        elif event is not None:
            first, last = first or event, event
            records += [event, *_call_links(env, block, event)]
            if ends_turn and event.kind is Kind.ASSISTANT_MSG:
                records.append(_completion(env, message, event))
                ends_turn = False
    usage = None if is_made_up else _usage(env, line, message, first.key if first else None)
    return [*records, *env.links(last), *([usage] if usage else ())]


def _block(env: Envelope, at: int, block: Any) -> Event | Unknown | None:
    if isinstance(block, str):
        return _answer(env, at, block)
    if not isinstance(block, dict):
        return None
    name = block.get("type")
    if name == "text":
        return _answer(env, at, block.get("text"))
    if name in ("thinking", "redacted_thinking"):
        return _thinking(env, at, block)
    if name in ("tool_use", "server_tool_use", "mcp_tool_use"):
        return _call(env, at, block)
    if isinstance(name, str) and name.endswith("tool_result"):
        return _server_result(env, at, block)
    return Unknown(f"assistant/{name[:NAME_LIMIT]}") if isinstance(name, str) and name else None


def _answer(env: Envelope, at: int, text: Any) -> Event | None:
    if not isinstance(text, str):
        return None
    if env.record.get("isCompactSummary") is True:
        return env.event(Kind.LIFECYCLE, at, role=Role.SYSTEM, summary="compact summary", text=clip(text))
    return env.event(Kind.ASSISTANT_MSG, at, role=Role.ASSISTANT, summary=one_line(text), text=clip(text))


def _thinking(env: Envelope, at: int, block: Json) -> Event:
    text = string(block.get("thinking")) or ""
    hidden = "(thinking, redacted)" if block.get("type") == "redacted_thinking" else "(thinking, not shown)"
    return env.event(Kind.THINKING, at, role=Role.ASSISTANT, summary=one_line(text) or hidden, text=clip(text))


def _made_up(env: Envelope, at: int, block: Any) -> Event | None:
    """The client's own words in the model's place: an API error, or that there was nothing to answer."""
    text = block if isinstance(block, str) else mapping(block).get("text")
    if not isinstance(text, str):
        return None
    if text.startswith(INTERRUPTED):
        return env.event(Kind.HUMAN_INTERVENTION, at, role=Role.USER, summary=one_line(text), text=text)
    if text.strip() == _NO_RESPONSE:
        return env.event(Kind.LIFECYCLE, at, role=Role.SYSTEM, summary=_NO_RESPONSE)
    status = env.record.get("apiErrorStatus")
    what = [string(env.record.get("error")), str(status) if isinstance(status, int) else None]
    label = " ".join(one_line(each, NAME_LIMIT) for each in what if each)
    summary = f"{label}: {first_line(text)}" if label else first_line(text)
    return env.event(Kind.ERROR, at, role=Role.SYSTEM, summary=summary or "API error", text=clip(text), is_error=True)


def _call(env: Envelope, at: int, block: Json) -> Event:
    name = (string(block.get("name")) or "")[:NAME_LIMIT]
    given = mapping(block.get("input"))
    kind = Kind.TOOL_CALL
    files: tuple[str, ...] = ()
    if name in _EDITS:
        path = string(given.get("file_path")) or string(given.get("notebook_path"))
        kind, files = Kind.EDIT, (path,) if path else ()
    elif name in _DECISIONS:
        kind = Kind.DECISION
    elif name in _SHELLS and is_test_command(string(given.get("command")) or ""):
        kind = Kind.TEST_RUN
    return env.event(
        kind,
        at,
        # Without a uuid the call's own id still names it, so that its result finds it.
        key=call_key(block.get("id")) if env.uuid is None else None,
        role=Role.ASSISTANT,
        tool=name or None,
        summary=_call_summary(name, given),
        text=searchable(block.get("input")),
        files=files,
    )


def _call_summary(name: str, given: Json) -> str:
    if name == "TodoWrite" and isinstance(given.get("todos"), list):
        todos = [mapping(todo) for todo in given["todos"]]
        now = next((todo.get("content") for todo in todos if todo.get("status") == "in_progress"), None)
        done = sum(todo.get("status") == "completed" for todo in todos)
        return f"{done}/{len(todos)} done" + (f", now: {one_line(now)}" if isinstance(now, str) else "")
    if name in ("Task", "Agent", "Workflow") and (description := string(given.get("description"))):
        return one_line(description)
    if name == "AskUserQuestion" and isinstance(given.get("questions"), list):
        asked = (mapping(each).get("question") for each in given["questions"])
        return one_line(" / ".join(each for each in asked if isinstance(each, str)))
    for field in _TELLING:
        if isinstance(value := given.get(field), str) and value and not value.isspace():
            return one_line(value)
    return one_line(searchable(given)) or name


def _call_links(env: Envelope, block: Any, event: Event) -> list[Record]:
    if not isinstance(block, dict) or event.role is not Role.ASSISTANT or event.tool is None:
        return []
    key = call_key(block.get("id"))
    return [Link(key, event.key, env.ts)] if key is not None and event.key not in (None, key) else []


def _server_result(env: Envelope, at: int, block: Json) -> Event:
    content = block.get("content")
    is_error = block.get("is_error") is True or str(mapping(content).get("type")).endswith("_error")
    text = result_text(content)
    return env.event(
        Kind.TOOL_RESULT,
        at,
        role=Role.TOOL,
        summary=first_line(text) or "(no output)",
        text=text,
        is_error=is_error,
        parent_key=call_key(block.get("tool_use_id")),
    )


def _completion(env: Envelope, message: Json, answer: Event) -> Event:
    name = string(message.get("id")) or env.uuid
    return Event(
        kind=Kind.COMPLETION,
        key=global_key(f"completion:{name}") if name else None,
        parent_key=answer.key,
        ts=env.ts,
        role=Role.ASSISTANT,
        summary="turn ended",
        is_sidechain=env.is_sidechain,
    )


def _usage(env: Envelope, line: Line, message: Json, event_key: Key | None) -> Usage | None:
    """What the response cost so far: each of its records repeats it, only the largest numbers are final."""
    spent = message.get("usage")
    if not isinstance(spent, dict):
        return None
    given, answered, read, written = (count_of(spent.get(name)) for name in _COUNTS)
    if given is None and answered is None and read is None and written is None:
        return None
    details = mapping(spent.get("output_tokens_details"))
    return Usage(
        key=_usage_key(env, line, message),
        event_key=event_key,
        ts=env.ts,
        model=string(message.get("model")),
        input_tokens=given,
        output_tokens=answered,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count_of(details.get("thinking_tokens")) or None,  # 0 is written where it is not known
    )


def _usage_key(env: Envelope, line: Line, message: Json) -> Key:
    message_id, request_id = string(message.get("id")), string(env.record.get("requestId"))
    if request_id:
        return global_key(f"usage:{message_id or ''}:{request_id}")
    if message_id or env.uuid:
        return global_key(f"usage:{message_id or env.uuid}")
    return session_key("usage:" + blake2b(line.data, digest_size=16).hexdigest())
