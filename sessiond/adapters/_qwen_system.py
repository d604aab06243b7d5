"""Qwen's `system` records: telemetry (what calls cost, which failed), titles, commands, how a turn ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._parts import agent_name
from sessiond.adapters._qwen_usage import of_telemetry
from sessiond.adapters.base import mapping_of, string_of
from sessiond.adapters.wording import clip, first_line, one_line
from sessiond.model import Event, Fact, Key, Kind, Patch, Role, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiond.adapters._qwen_records import Envelope
    from sessiond.model import Carry, Record

_SKIPPED = frozenset(
    {
        *("attribution_snapshot", "at_command", "file_history_snapshot", "user_text_elements", "session_notes"),
        *("session_source", "session_execution_engine", "omni_recall", "session_approval_mode", "agent_bootstrap"),
        *("agent_launch_prompt", "agent_retry", "agent_session_ready", "session_artifact_event", "goal_state"),
        *("session_artifact_snapshot", "session_sources_snapshot", "branch_checkpoint", "goal_turn_end"),
    }
)


def parse_system(env: Envelope, carry: Carry) -> list[Record]:
    subtype = string_of(env.record.get("subtype")) or "(none)"
    if subtype in _SUBTYPES:
        return _SUBTYPES[subtype](env, carry)
    if subtype in _SKIPPED:
        return env.links()
    return [Unknown(f"system/{subtype[:80]}"), *env.links()]


def _telemetry(env: Envelope, carry: Carry) -> list[Record]:
    told = mapping_of(env.payload.get("uiEvent"))
    name = (string_of(told.get("event.name")) or "").rpartition(".")[2]
    if name == "api_response":
        spent = of_telemetry(told, env.uuid, env.ts, carry)
        return [*_retried(told, carry), *([spent] if spent else ()), *env.links()]
    if name == "api_error":
        return [*_retried(told, carry), *_failed(env, told, carry)]
    return env.links()  # tool calls: their own records tell them


def _failed(env: Envelope, told: dict[str, Any], carry: Carry) -> list[Record]:
    said = string_of(told.get("error_message")) or string_of(told.get("error_type")) or "API error"
    is_side = env.is_sidechain or agent_name(told.get("subagent_id")) is not None
    event = env.event(
        Kind.ERROR,
        role=Role.SYSTEM,
        summary=first_line(said) or "API error",
        text=clip(said),
        is_error=True,
        is_sidechain=is_side,
    )
    prompt = string_of(told.get("prompt_id"))
    if prompt is not None and event.key is not None and len(prompt) + len(event.key) <= 400:  # carried: bounded
        carry["failed"], carry["failed_key"] = prompt, event.key
    return env.alone(event)


def _retried(told: dict[str, Any], carry: Carry) -> list[Record]:
    """The same prompt is at the model again: what failed before was a retry, not the end of the turn."""
    if "failed" not in carry or carry["failed"] != told.get("prompt_id"):
        return []
    carry.pop("failed")
    return [Patch(Key(carry.pop("failed_key")), kind=Kind.RETRY, is_error=False)]


def _title(env: Envelope, _carry: Carry) -> list[Record]:
    title = one_line(string_of(env.payload.get("customTitle")) or "")
    rank = 1 if env.payload.get("titleSource") == "auto" else 0  # a person's own title wins
    return [*([Fact("title", title, rank)] if title else ()), *env.links()]


def _parent(env: Envelope, _carry: Carry) -> list[Record]:
    parent = string_of(env.payload.get("parentSessionId"))
    return [*([Fact("parent", parent[:200])] if parent is not None else ()), *env.links()]


def _model(env: Envelope, _carry: Carry) -> list[Record]:
    model = string_of(env.payload.get("modelId"))
    return [*([Fact("model", model[:200])] if model is not None else ()), *env.links()]


def _command(env: Envelope, _carry: Carry) -> list[Record]:
    """A slash command that the client carried out by itself; one for the model has a prompt of its own."""
    payload = env.payload
    command = one_line(string_of(payload.get("rawCommand")) or "")
    if payload.get("phase") != "invocation" or payload.get("sentToModel") is True or not command:
        return env.links()
    return env.alone(env.event(Kind.LIFECYCLE, role=Role.USER, summary=command, text=command))


def _noted(words: str) -> Callable[[Envelope, Carry], list[Record]]:
    def parse(env: Envelope, _carry: Carry) -> list[Record]:
        return env.alone(env.event(Kind.LIFECYCLE, role=Role.SYSTEM, summary=words))

    return parse


def _injected(env: Envelope, _carry: Carry) -> list[Record]:
    words = one_line(string_of(env.payload.get("displayText")) or "") or "notification"
    return env.alone(env.event(Kind.LIFECYCLE, role=Role.SYSTEM, summary=words, text=words))


def _turn_result(env: Envelope, carry: Carry) -> list[Record]:
    state = env.payload.get("state")
    event: Event | None = None
    if state == "completed":
        event = env.event(Kind.COMPLETION, role=Role.ASSISTANT, summary="turn ended")
    elif state == "cancelled":
        event = env.event(Kind.HUMAN_INTERVENTION, role=Role.USER, summary="turn cancelled")
    elif state == "error" and "failed" not in carry:  # else the call that failed was told already
        said = string_of(mapping_of(env.payload.get("error")).get("message")) or "turn failed"
        event = env.event(Kind.ERROR, role=Role.SYSTEM, summary=first_line(said), text=clip(said), is_error=True)
    return env.alone(event) if event is not None else env.links()


_SUBTYPES: dict[str, Callable[[Envelope, Carry], list[Record]]] = {
    "ui_telemetry": _telemetry,
    "custom_title": _title,
    "parent_session": _parent,
    "session_model": _model,
    "slash_command": _command,
    "chat_compression": _noted("context compressed"),
    "rewind": _noted("rewound"),
    "notification": _injected,
    "turn_result": _turn_result,
}
