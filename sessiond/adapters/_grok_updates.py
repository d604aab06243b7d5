"""updates.jsonl: every update that Grok sent to its screen, and so all that happened in a session, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._grok_reading import Reading, call_key, ident, mapping, result_key, string, whole
from sessiond.adapters._grok_tools import blocks_text, read_call, read_result
from sessiond.adapters._grok_usage import turn_usage
from sessiond.adapters.base import count_of, text_of
from sessiond.adapters.wording import first_line, one_line, searchable, task_ref_in
from sessiond.model import Carry, Key, Kind, Link, Patch, Record, Role, Unknown, session_key

if TYPE_CHECKING:
    from collections.abc import Callable

_SAID = 4_000  # of a prompt in several parts: what the search index would keep of it, and more
_TERMINAL = frozenset({"completed", "failed", "cancelled"})
_FAILED_TURNS = frozenset({"error", "interrupted", "refusal", "max_tokens", "max_turn_requests", "max_turns"})
_LONG_TAIL = frozenset(
    {
        *("compaction_checkpoint", "auto_compact_started", "auto_compact_completed", "auto_compact_failed"),
        *("auto_compact_cancelled", "auto_recovery_started", "task_backgrounded", "task_completed"),
        *("background_tasks", "hook_execution", "goal_updated", "workflow_updated", "session_recap"),
        *("available_commands_update", "current_mode_update"),
    }
)


def parse_update(record: dict[str, Any], carry: Carry) -> list[Record]:
    reading = Reading(record, carry)
    name = string(reading.body.get("sessionUpdate"))
    if name is None:
        reading.records.append(Unknown("(no update)"))
        return reading.records
    if name != "user_message_chunk":
        carry.pop("index", None)  # the next prompt is no part of the last one
        carry.pop("said", None)
    handler = _HANDLERS.get(name)
    if handler is not None:
        handler(reading)
        return reading.records
    _lifecycle(reading, name.replace("_", " "))
    if name not in _LONG_TAIL:
        reading.records.append(Unknown(name[:80]))
    return reading.records


# --- what was said ----------------------------------------------------------------------------------


def _user(reading: Reading) -> None:
    carry, text = reading.carry, blocks_text(reading.body.get("content"))
    meta = mapping(reading.body.get("_meta"))
    reading.fact("model", meta.get("modelId"))
    index = whole(meta.get("promptIndex"))
    if index is None and "indexed" in carry:
        carry.pop("index", None)
        reading.event(Kind.HUMAN_INTERVENTION, Role.USER, text, text, is_turn=True)
        return
    if index is not None and carry.get("index") == index and "prompt" in carry:
        _more_of_a_prompt(reading, text)
        return
    carry.pop("prompt", None)
    key = reading.event(Kind.USER_MSG, Role.USER, text, text, is_turn=True)
    carry["prompt"] = key
    if index is not None:
        reading.link(session_key(f"prompt:{index}"), key)
        carry["indexed"], carry["index"], carry["said"] = True, index, text[:_SAID]
    reading.fact("title", one_line(text), 9, first=True)
    if "fact:task_ref" not in carry and (ref := task_ref_in(text)):
        reading.fact("task_ref", ref, 5, first=True)


def _more_of_a_prompt(reading: Reading, text: str) -> None:
    """A prompt of several blocks, an image beside the words: one event."""
    said = f"{reading.carry.get('said', '')}\n{text}".strip()
    reading.carry["said"] = said[:_SAID]
    prompt = Key(reading.carry["prompt"])
    reading.link(reading.key, prompt)
    reading.records.append(Patch(prompt, summary=one_line(said), text=said))


def _assistant(reading: Reading) -> None:
    text = blocks_text(reading.body.get("content"))
    reading.event(Kind.ASSISTANT_MSG, Role.ASSISTANT, text, text)


def _thought(reading: Reading) -> None:
    text = blocks_text(reading.body.get("content"))
    reading.event(Kind.THINKING, Role.ASSISTANT, text, text)


def _plan(reading: Reading) -> None:
    entries = reading.body.get("entries")
    steps = [
        f"[{text_of(entry.get('status')) or '?'}] {text_of(entry.get('content'))}"
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
    ]
    maker = reading.carry.get("planner")
    summary = "plan: " + "; ".join(steps)
    reading.event(Kind.DECISION, Role.ASSISTANT, summary, "\n".join(steps), parent=Key(maker) if maker else None)


# --- calls ------------------------------------------------------------------------------------------


def _call(reading: Reading) -> None:
    body = reading.body
    call_id = ident(body.get("toolCallId"))
    tool = mapping(mapping(body.get("_meta")).get("x.ai/tool"))
    call = read_call(
        string(tool.get("name")) or string(body.get("title")),
        string(tool.get("kind")) or string(body.get("kind")),
        body.get("rawInput"),
    )
    key = reading.event(call.kind, Role.ASSISTANT, call.summary, call.text, tool=call.tool, files=call.files)
    if tool.get("kind") == "plan":
        reading.carry["planner"] = key
    if call_id is None:
        return
    reading.link(call_key(call_id), key)
    reading.forget("done", call_id)
    if not tool:
        reading.remember("bare", call_id)
    status = string(body.get("status"))
    if status in _TERMINAL:
        _result(reading, call_id, status, part=":result")


def _call_update(reading: Reading) -> None:
    status, call_id = string(reading.body.get("status")), ident(reading.body.get("toolCallId"))
    if status in _TERMINAL:
        _result(reading, call_id, status)
    elif call_id is not None and reading.forget("bare", call_id):
        _enrich(reading, call_id)


def _enrich(reading: Reading, call_id: str) -> None:
    """The call itself did not say what its tool does; this does."""
    body = reading.body
    tool = mapping(mapping(body.get("_meta")).get("x.ai/tool"))
    call = read_call(
        string(tool.get("name")),
        string(tool.get("kind")) or string(body.get("kind")),
        body.get("rawInput"),
    )
    if call.kind is not Kind.TOOL_CALL:
        reading.records.append(Patch(call_key(call_id), kind=call.kind, tool=call.tool))


def _result(reading: Reading, call_id: str | None, status: str, part: str = "") -> None:
    result = read_result(status, reading.body.get("content"), reading.body.get("rawOutput"))
    if call_id is None:
        reading.event(result.kind, Role.TOOL, result.summary, result.text, is_error=result.is_error, part=part)
        return
    if reading.remembers("done", call_id):  # written again: one event for each result
        reading.records.append(Link(reading.key, call_key(call_id), reading.ts))
        return
    key = reading.event(
        result.kind,
        Role.TOOL,
        result.summary,
        result.text,
        parent=call_key(call_id),
        is_error=result.is_error,
        part=part,
    )
    reading.remember("done", call_id)
    reading.forget("bare", call_id)
    reading.link(result_key(call_id, reading.ts), key)


# --- turns ------------------------------------------------------------------------------------------


def _turn_completed(reading: Reading) -> None:
    body = reading.body
    reason, said = text_of(body.get("stop_reason")), text_of(body.get("agent_result"))
    if reason == "end_turn":
        took = count_of(body.get("elapsed_ms"))
        summary = "turn completed" if took is None else f"turn completed in {took / 1000:.1f} s"
        reading.event(Kind.COMPLETION, Role.ASSISTANT, summary)
    elif reason == "cancelled":
        why = string(mapping(reading.meta.get("cancellationContext")).get("reason"))
        why = why or string(reading.meta.get("cancellationCategory"))
        summary = f"turn cancelled: {why}" if why else "turn cancelled"
        reading.event(Kind.HUMAN_INTERVENTION, Role.USER, summary, said)
    elif reason in _FAILED_TURNS:
        reading.event(Kind.ERROR, Role.SYSTEM, first_line(said) or f"turn ended: {reason}", said, is_error=True)
    else:
        reading.event(Kind.LIFECYCLE, Role.SYSTEM, f"turn ended: {reason or 'no reason given'}", said)
    turn_usage(reading)


def _retry(reading: Reading) -> None:
    body = reading.body
    reason = text_of(body.get("reason")) or text_of(body.get("message"))
    state = text_of(body.get("type"))
    if state == "retrying":
        attempt, of = whole(body.get("attempt")), whole(body.get("max_retries"))
        summary = f"retry {attempt} of {of}: {first_line(reason)}" if attempt and of else f"retry: {first_line(reason)}"
        reading.event(Kind.RETRY, Role.SYSTEM, summary, reason)
    elif state in ("exhausted", "failed"):
        summary = first_line(reason) or f"request {state}"
        reading.event(Kind.ERROR, Role.SYSTEM, summary, reason, is_error=True)
    else:
        _lifecycle(reading, f"retry state: {state}")


def _recovery_exhausted(reading: Reading) -> None:
    text = searchable(_told(reading.body))
    reading.event(Kind.ERROR, Role.SYSTEM, f"auto recovery exhausted: {one_line(text)}", text, is_error=True)


def _rewind(reading: Reading) -> None:
    target = whole(reading.body.get("target_prompt_index"))
    if target is None:
        reading.event(Kind.HUMAN_INTERVENTION, Role.USER, "rewound")
        return
    parent = session_key(f"prompt:{target}")
    reading.event(Kind.HUMAN_INTERVENTION, Role.USER, f"rewound to before prompt {target + 1}", parent=parent)


# --- the rest ---------------------------------------------------------------------------------------


def _spawned(reading: Reading) -> None:
    sort = text_of(reading.body.get("subagent_type")) or "sub-agent"
    task = text_of(reading.body.get("description"))
    reading.event(Kind.LIFECYCLE, Role.AGENT, f"sub-agent started ({sort}): {task}", searchable(_told(reading.body)))


def _finished(reading: Reading) -> None:
    status = text_of(reading.body.get("status"))
    said = text_of(reading.body.get("error")) or text_of(reading.body.get("output"))
    failed = bool(reading.body.get("error")) or status in ("failed", "error")
    summary = f"sub-agent {status or 'finished'}: {first_line(said)}"
    reading.event(Kind.LIFECYCLE, Role.AGENT, summary, said, is_error=failed)


def _model(reading: Reading) -> None:
    body = reading.body
    names = ("model_id", "modelId", "new_model_id", "newModelId", "new_model", "model", "to")
    model = next((found for name in names if (found := string(body.get(name)))), None)
    reading.fact("model", model)
    _lifecycle(reading, f"model changed to {model}" if model else "model changed")


def _lifecycle(reading: Reading, summary: str) -> None:
    name = text_of(reading.body.get("sessionUpdate"))
    failed = name.endswith("_failed") or bool(reading.body.get("error"))
    reading.event(Kind.LIFECYCLE, Role.SYSTEM, summary, searchable(_told(reading.body)), is_error=failed)


def _told(body: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in body.items() if name not in ("sessionUpdate", "_meta")}


_HANDLERS: dict[str, Callable[[Reading], None]] = {
    "user_message_chunk": _user,
    "agent_message_chunk": _assistant,
    "agent_thought_chunk": _thought,
    "tool_call": _call,
    "tool_call_update": _call_update,
    "plan": _plan,
    "turn_completed": _turn_completed,
    "retry_state": _retry,
    "auto_recovery_exhausted": _recovery_exhausted,
    "rewind_marker": _rewind,
    "subagent_spawned": _spawned,
    "subagent_finished": _finished,
    "model_changed": _model,
    "model_auto_switched": _model,
}
