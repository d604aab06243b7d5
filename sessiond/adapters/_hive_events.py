"""events.jsonl of queens and workers: the event bus as it was published, one line each.

A line is known by (type, timestamp, seq), so that a file the janitor rewrote says nothing twice: `seq` alone begins
again with every process. A call and its result meet under stream and tool_use_id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._hive_fields import mapping, mappings, read_call, read_result, said, string
from sessiond.adapters.base import count_of, local_time_of, text_of
from sessiond.adapters.wording import clip, first_line, one_line, searchable, task_ref_in
from sessiond.model import Event, Fact, Kind, Link, Outcome, Role, Unknown, Usage, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry, Key, Line, Record

_KINDS = {
    "client_input_received": Kind.USER_MSG,
    "client_output_delta": Kind.ASSISTANT_MSG,
    "llm_text_delta": Kind.ASSISTANT_MSG,  # the same text where nobody listens: a turn writes one of the two
    "client_reasoning": Kind.THINKING,
    "llm_reasoning_delta": Kind.THINKING,
    "tool_call_started": Kind.TOOL_CALL,
    "tool_call_completed": Kind.TOOL_RESULT,
    "node_retry": Kind.RETRY,
    "stream_nudge_sent": Kind.RETRY,
    "execution_resurrected": Kind.RETRY,
    "judge_verdict": Kind.DECISION,
    "client_input_requested": Kind.HUMAN_INTERVENTION,
    "escalation_requested": Kind.HUMAN_INTERVENTION,
    "execution_failed": Kind.ERROR,
    "worker_failed": Kind.ERROR,
    "node_stalled": Kind.ERROR,
    "payment_required": Kind.ERROR,
    "constraint_violation": Kind.ERROR,
    "execution_completed": Kind.COMPLETION,
    "goal_achieved": Kind.COMPLETION,
    "worker_completed": Kind.COMPLETION,
}
# The rest of what the bus is known to carry: all of it lifecycle.
_OTHERS = frozenset(
    """
    execution_started execution_paused execution_resumed state_changed state_conflict goal_progress stream_started
    stream_stopped node_loop_started node_loop_iteration node_loop_completed node_action_plan llm_turn_complete
    client_input_committed client_credential_form_requested colony_suggestion_requested node_internal_output
    node_input_blocked node_tool_doom_loop stream_ttft_exceeded stream_inactive loop_state_changed reminder_injected
    tool_call_replay_detected context_compaction_started context_compacted webhook_received custom worker_colony_loaded
    colony_created credentials_required session_forked queen_phase_changed queen_identity_selected subagent_report
    trigger_available trigger_activated trigger_deactivated trigger_fired trigger_removed trigger_updated
    missed_triggers task_created task_updated task_deleted task_list_reset task_list_reattach_mismatch
    session_snapshot credential_provider_connected credential_provider_disconnected tool_catalog_refreshed
    tools_config_changed crm_changed output_key_set edge_traversed worker_loaded worker_escalation_ticket
    """.split()  # noqa: SIM905 - so many names read better without quotes
)
_SPOKEN = {Kind.USER_MSG, Kind.ASSISTANT_MSG, Kind.THINKING}
_ROLES = {
    Kind.USER_MSG: Role.USER,
    Kind.ASSISTANT_MSG: Role.ASSISTANT,
    Kind.THINKING: Role.ASSISTANT,
    Kind.TOOL_RESULT: Role.TOOL,
}
_SKIPPED = "context_usage_updated"
_WORDS = ("snapshot", "reasoning", "content")  # of what was said, the fullest first
_WHY = ("error", "reason", "feedback", "message", "description", "summary", "action", "activity", "phase", "title")
# How a worker, which has one task, says that it ended.
_ENDS = {"execution_completed": Outcome.SUCCESS, "execution_failed": Outcome.FAIL}
_REPORTS = {
    "success": Outcome.SUCCESS,
    "failed": Outcome.FAIL,
    "timeout": Outcome.ABANDONED,
    "stopped": Outcome.ABANDONED,
}


def bus_event(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:  # noqa: ARG001 - one of many readers
    name = string(record.get("type"), 80)
    if not name:
        return [Unknown("untyped")]
    if name == _SKIPPED:
        return []
    data = mapping(record.get("data"))
    event = _event(name, record, data, carry)
    if event is None:
        return []
    found: list[Record] = [event]
    if name not in _KINDS and name not in _OTHERS:
        found.append(Unknown(name))
    if name == "tool_call_started":
        call_key = _call_key(record, data)
        if call_key is not None and event.key is not None:
            found.append(Link(call_key, event.key, event.ts))
    elif name == "llm_turn_complete":
        found += _usage(event, data)
    elif event.is_turn and "prompted" not in carry:
        carry["prompted"] = True
        found += _first_prompt(event)
    if "worker" in carry:
        found += _stated(name, data)
    return found


def _event(name: str, record: dict[str, Any], data: dict[str, Any], carry: Carry) -> Event | None:
    kind = _KINDS.get(name, Kind.LIFECYCLE)
    if name == "worker_completed" and data.get("success") is False:
        kind = Kind.ERROR
    is_sidechain = "worker" in carry or string(record.get("stream_id")).startswith("worker")
    key, ts = _key(name, record), local_time_of(record.get("timestamp"))
    if name == "tool_call_started":
        does = read_call(data)
        return Event(
            does.kind,
            key,
            ts=ts,
            role=Role.ASSISTANT,
            tool=does.name,
            summary=does.summary,
            text=does.text,
            is_sidechain=is_sidechain,
            files=does.files,
        )
    if name == "tool_call_completed":
        summary, text, failed = read_result(data)
        tool = string(data.get("tool_name"), 80) or None
        parent_key = _call_key(record, data)
        return Event(kind, key, parent_key, ts, Role.TOOL, tool, summary, text, is_sidechain, failed)
    if kind in _SPOKEN:
        text = next((words for at in _WORDS if (words := said(data.get(at))).strip()), "")
        images = count_of(data.get("image_count"))
        if not text and not images:
            return None
        summary = first_line(text) or one_line(text) or f"{images} images"
    else:
        text = searchable(data)
        summary = _summary(name, kind, data)
    return Event(
        kind,
        key,
        ts=ts,
        role=_ROLES.get(kind, Role.SYSTEM),
        summary=summary,
        text=clip(text),
        is_sidechain=is_sidechain,
        is_error=kind is Kind.ERROR,
        is_turn=kind is Kind.USER_MSG and not is_sidechain,
    )


def _key(name: str, record: dict[str, Any]) -> Key | None:
    timestamp, seq = string(record.get("timestamp")), record.get("seq")
    if not timestamp or isinstance(seq, bool) or not isinstance(seq, int):
        return None  # known by its bytes, then
    return session_key(f"event:{name}:{timestamp}:{seq}")


def _call_key(record: dict[str, Any], data: dict[str, Any]) -> Key | None:
    call = string(data.get("tool_use_id"))
    return session_key(f"call:{string(record.get('stream_id'))}:{call}") if call else None


def _summary(name: str, kind: Kind, data: dict[str, Any]) -> str:
    words = name.replace("_", " ")
    if name == "llm_turn_complete":
        return one_line(f"{words}: {string(data.get('model'))} {string(data.get('stop_reason'))}")
    if kind is Kind.HUMAN_INTERVENTION and (asked := mappings(data.get("questions"))):
        return one_line(f"{words}: {text_of(asked[0].get('prompt'))}")
    why = [text for at in _WHY if (text := one_line(text_of(data.get(at))))]
    return one_line(f"{words}: {', '.join(why)}" if why else words)


def _usage(event: Event, data: dict[str, Any]) -> list[Record]:
    """The cached part of the input is told apart from it; it is part of it."""
    if event.key is None:
        return []
    total, output = count_of(data.get("input_tokens")), count_of(data.get("output_tokens"))
    read, written = count_of(data.get("cached_tokens")), count_of(data.get("cache_creation_tokens"))
    if total is None and output is None:
        return []
    return [
        Usage(
            event.key,
            event_key=event.key,
            ts=event.ts,
            model=string(data.get("model")) or None,
            input_tokens=None if total is None else max(0, total - (read or 0) - (written or 0)),
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_tokens=written,
        )
    ]


def _first_prompt(event: Event) -> list[Record]:
    ref = task_ref_in(event.text)
    found: list[Record] = [Fact("title", event.summary, rank=9, first=True)] if event.summary else []
    return [*found, Fact("task_ref", ref, rank=5, first=True)] if ref else found


def _stated(name: str, data: dict[str, Any]) -> list[Record]:
    report = string(data.get("status"), 40)
    outcome = _REPORTS.get(report) if name == "subagent_report" else _ENDS.get(name)
    if outcome is None:
        return []
    reason = one_line(text_of(data.get("error")) or text_of(data.get("summary"))) or name.replace("_", " ")
    return [Fact("outcome", outcome), Fact("outcome_basis", "stated"), Fact("outcome_reason", reason)]
