"""UI events (`event_msg`): what a person typed, how turns begin and end, and what Codex did on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._codex_items import assistant_message, prompt, thought
from sessiond.adapters._codex_reading import Reading, digest
from sessiond.adapters._codex_results import EVENT_RESULTS, ITEM_RESULTS
from sessiond.adapters._codex_text import content_text, prompt_of, spoken
from sessiond.adapters._codex_usage import enter_review, leave_review, token_count, turn_duration
from sessiond.adapters.base import count_of, text_of
from sessiond.model import Kind, Role, Unknown, parse_utc

if TYPE_CHECKING:
    from collections.abc import Callable

_LIFECYCLE = {
    "thread_settings_applied",
    "thread_goal_updated",
    "thread_goal_cleared",
    "sub_agent_activity",
    "collab_agent_spawn_end",
    "collab_agent_interaction_end",
    "collab_waiting_end",
    "collab_close_end",
    "collab_resume_end",
    "undo_completed",
}
# Mirrors of items, progress, and what is not worth a line: known, and left out.
_SKIPPED = {
    "warning",
    "web_search_begin",
    "web_search_end",
    "view_image_tool_call",
    "image_generation_begin",
    "image_generation_end",
    "dynamic_tool_call_request",
    "agent_reasoning_section_break",
    "exec_command_begin",
    "patch_apply_begin",
    "mcp_tool_call_begin",
    "collab_agent_spawn_begin",
    "collab_agent_interaction_begin",
    "collab_waiting_begin",
    "collab_close_begin",
    "background_event",
    "plan_update",
    "turn_diff",
    "item_started",
}
_INJECTED = {"environment_context", "user_instructions"}  # user_message.kind in 2025
_ITEMS = {  # item_completed: each of these also stands in the file as a response item or an event of its own
    "AgentMessage",
    "Reasoning",
    "CollabAgentToolCall",
    "WebSearch",
    "ImageView",
    "ImageGeneration",
    "Extension",
    "ContextCompaction",
    "EnteredReviewMode",
    "ExitedReviewMode",
    "SubAgentActivity",
    "Sleep",
}
_PERSON_ABORTS = {"interrupted", "replaced"}
_COMPACTION_SECONDS = 10


def event_msg(payload: dict[str, Any], reading: Reading) -> None:
    kind = text_of(payload.get("type"))
    handler = _HANDLERS.get(kind)
    if handler is not None:
        handler(payload, reading)
    elif kind in _LIFECYCLE:
        _lifecycle(payload, reading)
    elif kind not in _SKIPPED:
        reading.records.append(Unknown(f"event_msg/{kind[:80]}"))


# --- prompts and words ----------------------------------------------------------------------------


def _user_message(payload: dict[str, Any], reading: Reading) -> None:
    kind = payload.get("kind")
    if isinstance(kind, str) and kind in _INJECTED:
        return
    said = text_of(payload.get("message"))
    asked = prompt_of(said)
    if not asked and not said.strip() and (payload.get("images") or payload.get("local_images")):
        asked = "[image]"
    _asked(asked, reading)


def _asked(asked: str, reading: Reading) -> None:
    """The UI says what the person typed; from here on it is asked alone."""
    before = reading.carry.pop("asked", None)
    if not asked:
        return
    reading.carry["ui"] = True
    if before is None or before != digest(spoken(asked)):
        prompt(asked, reading)


def _agent_message(payload: dict[str, Any], reading: Reading) -> None:
    assistant_message(text_of(payload.get("message")), reading, side="y", other="x")


def _agent_reasoning(payload: dict[str, Any], reading: Reading) -> None:
    thought(text_of(payload.get("text")), reading)


# --- turns ----------------------------------------------------------------------------------------


def _started(payload: dict[str, Any], reading: Reading) -> None:
    reading.enter_turn(payload.get("turn_id"))
    reading.event(Kind.LIFECYCLE, reading.key("s", "started"), summary="turn started")


def _complete(payload: dict[str, Any], reading: Reading) -> None:
    turn_duration(payload, reading)
    error = payload.get("error")
    if error:
        _failure(error, reading, Kind.ERROR, "turn failed")
        return
    took = count_of(payload.get("duration_ms"))
    summary = "turn completed" if took is None else f"turn completed in {took / 1000:.1f} s"
    reading.event(
        Kind.COMPLETION, reading.key("o", text_of(payload.get("turn_id"))), role=Role.ASSISTANT, summary=summary
    )


def _aborted(payload: dict[str, Any], reading: Reading) -> None:
    leave_review(reading)
    reason = text_of(payload.get("reason"))
    by_person = reason in _PERSON_ABORTS
    reading.event(
        Kind.HUMAN_INTERVENTION if by_person else Kind.LIFECYCLE,
        reading.key("q", "aborted", text_of(payload.get("turn_id")), reason),
        role=Role.USER if by_person else Role.SYSTEM,
        summary=f"turn {reason}" if by_person else f"turn ended: {reason or 'aborted'}",
    )


def _rolled_back(payload: dict[str, Any], reading: Reading) -> None:
    turns = count_of(payload.get("num_turns"))
    summary = f"rolled back {turns} turns" if turns != 1 else "rolled back 1 turn"
    reading.event(Kind.HUMAN_INTERVENTION, reading.key("v", "rolled_back", str(turns)), role=Role.USER, summary=summary)


def _failure(error: Any, reading: Reading, kind: Kind, fallback: str) -> None:
    said = error.get("message") if isinstance(error, dict) else error
    text = text_of(said) or text_of(error)
    reading.event(kind, reading.key("z", fallback, text), summary=text or fallback, text=text, is_error=True)


def _error(payload: dict[str, Any], reading: Reading) -> None:
    _failure(payload, reading, Kind.ERROR, "error")


def _stream_error(payload: dict[str, Any], reading: Reading) -> None:
    _failure(payload, reading, Kind.RETRY, "stream error, tried again")


def _entered_review(payload: dict[str, Any], reading: Reading) -> None:
    enter_review(reading)
    hint = text_of(payload.get("user_facing_hint") or payload.get("prompt"))
    key = reading.key("w", "entered", hint)
    reading.event(Kind.LIFECYCLE, key, summary=f"review started: {hint}" if hint else "review started")


def _exited_review(payload: dict[str, Any], reading: Reading) -> None:
    leave_review(reading)
    output = payload.get("review_output")
    output = output if isinstance(output, dict) else {}
    listed = output.get("findings")
    findings = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    said = [text_of(output.get("overall_explanation"))]
    said += [f"{text_of(each.get('title'))}\n{text_of(each.get('body'))}" for each in findings]
    text = "\n\n".join(filter(None, said))
    summary = f"review ended: {len(findings)} findings"
    reading.event(Kind.LIFECYCLE, reading.key("w", "exited", text), summary=summary, text=text)


def _renamed(payload: dict[str, Any], reading: Reading) -> None:
    name = text_of(payload.get("thread_name"))
    if not reading.is_replay():
        reading.fact("title", name)
    reading.event(Kind.LIFECYCLE, reading.key("l", "named", name), summary=f"named: {name}", text=name)


def _lifecycle(payload: dict[str, Any], reading: Reading) -> None:
    kind = text_of(payload.get("type"))
    details = payload.get("new_thread_id") or payload.get("agent_thread_id") or payload.get("receiver_thread_id")
    said = payload.get("goal", {}).get("objective") if isinstance(payload.get("goal"), dict) else payload.get("prompt")
    words = [kind.replace("_", " "), text_of(details), text_of(said)]
    key = reading.key("l", text_of(payload))
    reading.event(Kind.LIFECYCLE, key, summary=" ".join(filter(None, words)), text=text_of(said))


def _guardian(payload: dict[str, Any], reading: Reading) -> None:
    status = text_of(payload.get("status"))
    if status == "in_progress":  # the same assessment comes again with its answer
        return
    action = payload.get("action")
    what = action.get("command") or action.get("tool_name") or action.get("type") if isinstance(action, dict) else ""
    text = text_of(payload.get("rationale"))
    key = reading.key("j", text_of(payload.get("id")), status, text_of(action))
    summary = f"guardian {status}: {text_of(what)}"
    reading.event(Kind.DECISION, key, role=Role.AGENT, summary=summary, text=text)


def _context_compacted(_payload: dict[str, Any], reading: Reading) -> None:
    compacted(reading, "context", "whole", "")


def compacted(reading: Reading, side: str, other: str, identity: str) -> None:
    """One compaction is written as two records, seconds apart: the first of them is the event."""
    carry = reading.carry
    before = carry.pop(f"compacted_{other}", None)
    if before is not None and _seconds_between(before, reading.ts) <= _COMPACTION_SECONDS:
        return
    carry[f"compacted_{side}"] = reading.ts or ""
    reading.event(
        Kind.LIFECYCLE, reading.key("i", "compacted", identity if side == "whole" else ""), summary="context compacted"
    )


def _seconds_between(before: str, after: str | None) -> float:
    if not before or not after:
        return 0
    return abs((parse_utc(after) - parse_utc(before)).total_seconds())


# --- what newer clients write instead of the events above -----------------------------------------


def _item_completed(payload: dict[str, Any], reading: Reading) -> None:
    item = payload.get("item")
    item = item if isinstance(item, dict) else {}
    kind = text_of(item.get("type"))
    if kind == "UserMessage":
        _asked(prompt_of(content_text(item.get("content"))), reading)
    elif kind in ITEM_RESULTS:
        ITEM_RESULTS[kind](item, reading)
    elif kind == "Plan":
        text = text_of(item.get("text"))
        summary = f"plan: {text}"
        reading.event(Kind.DECISION, reading.key("y", text), role=Role.ASSISTANT, summary=summary, text=text)
    elif kind == "HookPrompt":
        text = text_of(item.get("text")) or content_text(item.get("fragments"))
        reading.event(Kind.LIFECYCLE, reading.key("g", text), summary=f"hook: {text}", text=text)
    elif kind not in _ITEMS:
        reading.records.append(Unknown(f"item_completed/{kind[:80]}"))


_HANDLERS: dict[str, Callable[[dict[str, Any], Reading], None]] = {
    "user_message": _user_message,
    "agent_message": _agent_message,
    "agent_reasoning": _agent_reasoning,
    "agent_reasoning_raw_content": _agent_reasoning,
    "token_count": token_count,
    "task_started": _started,
    "turn_started": _started,
    "task_complete": _complete,
    "turn_complete": _complete,
    "turn_aborted": _aborted,
    "thread_rolled_back": _rolled_back,
    "thread_name_updated": _renamed,
    "entered_review_mode": _entered_review,
    "exited_review_mode": _exited_review,
    "error": _error,
    "stream_error": _stream_error,
    "guardian_assessment": _guardian,
    "context_compacted": _context_compacted,
    "item_completed": _item_completed,
    **EVENT_RESULTS,
}
