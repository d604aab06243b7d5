"""Codex sessions from the raw lines, by formats/codex.md and the policy of design.md section 2."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tally import Event, Session, Source, is_test_command, read, utc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Payload = dict[str, Any]

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<skill>",
    "<recommended_plugins>",
    "<codex_internal_context",
    "<goal_context>",
    "You are `/root`",
)
SHELLS = {"shell", "exec_command", "shell_command", "container.exec"}
CHOICES = {"update_plan", "request_user_input", "request_permissions"}
CALLS = {"function_call", "custom_tool_call", "local_shell_call"}
OTHER_CALLS = {"web_search_call", "tool_search_call", "image_generation_call"}
OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
LIFECYCLE_EVENTS = {
    "task_started",
    "turn_started",
    "entered_review_mode",
    "exited_review_mode",
    "thread_settings_applied",
    "thread_goal_updated",
    "thread_name_updated",
    "sub_agent_activity",
}
ITEM_KINDS = {"UserMessage": "user_msg", "Plan": "decision", "HookPrompt": "lifecycle"}
FAILED_TEXT = re.compile(r"^(?:failed in sandbox|execution error)", re.MULTILINE)
ABORTED_TEXT = re.compile(r"^aborted by user", re.MULTILINE)
EXIT_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d+)", re.MULTILINE)
NUMBERS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")


class Rollout:
    """One file: its records as (time, type, payload), whatever the era, and what is true of it as a whole."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records = list(unwrap(source))
        self.meta: Payload = next((p for _, t, p in self.records if t == "session_meta"), {})
        named = UUID.search(PurePosixPath(source.path).name)
        self.id = named[0] if named else self.meta.get("id") or PurePosixPath(source.path).stem
        spawn = self.meta.get("source")
        self.is_subagent = isinstance(spawn, dict) and "subagent" in spawn
        self.parent = self.meta.get("forked_from_id") or self.meta.get("parent_thread_id")
        kinds = {(t, p.get("type"), p.get("item", {}).get("type")) for _, t, p in self.records}
        self.prompts_as_events = bool(
            kinds & {("event_msg", "user_message", None), ("event_msg", "item_completed", "UserMessage")}
        )
        self.answers_as_items = any(p.get("role") == "assistant" for _, t, p in self.records if t == "response_item")
        self.thoughts_as_items = ("response_item", "reasoning", None) in kinds
        self.failed_calls = set(failed_calls(self.records))


def unwrap(source: Source) -> Iterator[tuple[str | None, str, Payload]]:
    flat_time: str | None = None
    for number, record in source.records:
        if isinstance(record.get("payload"), dict):
            yield utc(record.get("timestamp")), record["type"], record["payload"]
        elif number == 1 and "id" in record and "timestamp" in record:
            flat_time = utc(record["timestamp"])
            yield flat_time, "session_meta", record
        elif record.get("type"):  # the flat era: bare response items, no times of their own
            yield flat_time, "response_item", record


def sessions(root: Path, home: str, paths: list[str]) -> dict[str, Session]:
    rollouts = [Rollout(read(root, path)) for path in sorted(paths)]
    lineages = lineages_of(rollouts)
    found: dict[str, Session] = {}
    for rollout in sorted(rollouts, key=first_time_and_id):
        session = Session("codex:" + rollout.id, first_time_and_id(rollout)[0], [rollout.source])
        assert session.uid not in found, "one file per session in these homes"
        found[session.uid] = session
        note_facts(session, rollout)
        session.events = list(events_of(rollout))
    spent: set[Any] = set()
    for rollout in sorted(rollouts, key=first_time_and_id):  # the rightful owner first: the others replay
        count_usage(found["codex:" + rollout.id], rollout, lineages[rollout.id], spent)
    return found


def first_time_and_id(rollout: Rollout) -> tuple[str, str]:
    return (next((time for time, _, _ in rollout.records if time), "9999"), rollout.id)


def lineages_of(rollouts: list[Rollout]) -> dict[str, str]:
    """id -> the name of its family: ids joined by fork or parent, whether the parent's file is there or not."""
    parents = {rollout.id: rollout.parent for rollout in rollouts}

    def eldest(name: str) -> str:
        while parents.get(name):
            name = parents[name]
        return name

    return {rollout.id: eldest(rollout.id) for rollout in rollouts}


def note_facts(session: Session, rollout: Rollout) -> None:
    session.parent_uid = "codex:" + rollout.parent if rollout.parent else None
    session.cwd = rollout.meta.get("cwd") or cwd_in_context(rollout)
    for _, kind, payload in rollout.records:
        if kind == "event_msg" and payload.get("type") == "thread_name_updated":
            session.title = {"source": "thread_name", "value": payload["thread_name"]}
    session.stated = {
        "meta_timestamp": utc(rollout.meta.get("timestamp")),
        "last_record_at": max((time for time, _, _ in rollout.records if time), default=None),
    }


def cwd_in_context(rollout: Rollout) -> str | None:
    for _, kind, payload in rollout.records:
        if kind == "response_item" and payload.get("role") == "user":
            text = text_of(payload)
            if text.startswith("<environment_context>"):
                found = re.search(r"<cwd>(.*?)</cwd>|Current working directory: (.*)", text)
                return (found[1] or found[2]) if found else None
    return None


def count_usage(session: Session, rollout: Rollout, lineage: str, spent: set[Any]) -> None:
    records = [payload for _, kind, payload in rollout.records if kind == "token_usage_record"]
    for payload in records:
        if payload["response_id"] not in spent:
            spent.add(payload["response_id"])
            session.raise_usage(payload["response_id"], parts(payload["usage"]))
    if records:  # token_count only repeats them, and lacks those of a killed turn
        return
    history: tuple[Any, ...] = ()
    for _, kind, payload in rollout.records:
        info = payload.get("info") if kind == "event_msg" and payload.get("type") == "token_count" else None
        if not info:
            continue
        vector = tuple(info["total_token_usage"].get(name, 0) for name in NUMBERS)
        if vector in history:
            continue
        history += (vector,)
        if (lineage, history) not in spent:
            spent.add((lineage, history))
            session.raise_usage(history, parts(info["last_token_usage"]))


def parts(usage: Payload) -> dict[str, int | None]:
    cached, written = usage.get("cached_input_tokens", 0), usage.get("cache_write_input_tokens")
    return {
        "input_tokens": usage.get("input_tokens", 0) - cached - (written or 0),
        "output_tokens": usage.get("output_tokens", 0),
        "cache_read_tokens": cached,
        "cache_write_tokens": written,
    }


def events_of(rollout: Rollout) -> Iterator[Event]:
    seen_meta = False
    context: Payload | None = None
    compacted_at = {time for time, kind, _ in rollout.records if kind == "compacted"}
    for time, kind, payload in rollout.records:
        event: Event | None = None
        if kind == "session_meta":
            event = None if seen_meta else Event("lifecycle")
            seen_meta = True
        elif kind == "turn_context":
            event = context_event(payload, context, rollout.meta)
            context = payload
        elif kind == "compacted":
            event = Event("lifecycle")
        elif kind == "inter_agent_communication":
            event = Event("assistant_msg")
        elif kind == "response_item":
            event = item_event(payload, rollout)
        elif kind == "event_msg" and not (payload["type"] == "context_compacted" and time in compacted_at):
            event = message_event(payload, rollout)
        if event:
            event.ts, event.sidechain = time, rollout.is_subagent
            event.is_turn = event.is_turn and not rollout.is_subagent
            yield event


def context_event(now: Payload, before: Payload | None, meta: Payload) -> Event | None:
    """The first context only names the model; later ones are a decision when a policy changed."""
    if before and any(now.get(name) != before.get(name) for name in ("approval_policy", "sandbox_policy")):
        return Event("decision")
    earlier = before or {"cwd": meta.get("cwd")}
    changed = any(now.get(name) and now.get(name) != earlier.get(name) for name in ("model", "cwd"))
    return Event("lifecycle") if changed else None


def text_of(payload: Payload) -> str:
    return "".join(part.get("text") or "" for part in payload.get("content") or [])


def item_event(payload: Payload, rollout: Rollout) -> Event | None:
    kind = payload.get("type")
    if kind == "message" and payload["role"] == "assistant":
        return Event("assistant_msg")
    if kind == "message" and payload["role"] == "user" and not rollout.prompts_as_events:
        text = text_of(payload)
        if text.startswith("<user_shell_command>"):
            return Event("human_intervention")
        return None if text.startswith(INJECTED) else Event("user_msg", is_turn=True)
    if kind == "agent_message":
        return Event("assistant_msg")
    if kind == "reasoning":
        return Event("thinking")
    if kind in CALLS:
        return Event(call_kind(payload), call=payload.get("call_id") or payload.get("id") or "unnamed")
    if kind in OTHER_CALLS:
        return Event("tool_call", call=payload.get("call_id") or payload.get("id") or "unnamed")
    return output_event(payload, rollout) if kind in OUTPUTS else None


def call_kind(payload: Payload) -> str:
    name, command = payload.get("name"), command_of(payload)
    if name == "apply_patch" or command.startswith("apply_patch") or "\napply_patch <<" in command:
        return "edit"
    if name in CHOICES:
        return "decision"
    is_shell = name in SHELLS or payload["type"] == "local_shell_call"
    return "test_run" if is_shell and is_test_command(command) else "tool_call"


def command_of(payload: Payload) -> str:
    given = payload.get("arguments") or payload.get("input") or payload.get("action") or ""
    try:
        given = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return ""
    command = given.get("command") or given.get("cmd") or "" if isinstance(given, dict) else ""
    if isinstance(command, list):  # ["bash", "-lc", SCRIPT], or ["apply_patch", PATCH]
        command = command[-1] if command[1:2] in (["-lc"], ["-c"]) else " ".join(command)
    return str(command)


def output_event(payload: Payload, rollout: Rollout) -> Event:
    output = payload.get("output")
    text = output if isinstance(output, str) else json.dumps(output)
    aborted = ABORTED_TEXT.search(text[:400]) is not None
    failed = payload.get("call_id") in rollout.failed_calls or is_failure(text)
    return Event("human_intervention" if aborted else "tool_result", is_error=failed, answers=payload.get("call_id"))


def is_failure(text: str) -> bool:
    try:
        stated = json.loads(text)
        return bool(stated["metadata"]["exit_code"])
    except (ValueError, KeyError, TypeError):
        pass
    code = EXIT_CODE.search(text[:400])
    return bool(code and int(code[1])) or FAILED_TEXT.search(text[:400]) is not None


def failed_calls(records: list[tuple[str | None, str, Payload]]) -> Iterator[str]:
    """The call ids that a UI event says failed: it enriches the result, before or after it."""
    for _, kind, payload in records:
        if kind != "event_msg":
            continue
        item = payload.get("item", {})
        ended_badly = payload["type"] == "exec_command_end" and payload.get("exit_code")
        refused = payload["type"] == "patch_apply_end" and payload.get("success") is False
        broken = payload["type"] == "mcp_tool_call_end" and "Err" in payload["result"]
        if ended_badly or refused or broken:
            yield payload["call_id"]
        if item.get("status") == "failed" or item.get("exit_code"):
            yield item["id"]


def message_event(payload: Payload, rollout: Rollout) -> Event | None:
    kind = payload["type"]
    if kind == "user_message":
        return Event("user_msg", is_turn=True)
    if kind == "item_completed":
        mapped = ITEM_KINDS.get(payload["item"]["type"])
        return Event(mapped, is_turn=mapped == "user_msg") if mapped else None
    if kind == "agent_message":
        return None if rollout.answers_as_items else Event("assistant_msg")
    if kind.startswith("agent_reasoning"):
        return None if rollout.thoughts_as_items else Event("thinking")
    if kind in ("task_complete", "turn_complete"):
        return Event("error" if payload.get("error") else "completion")
    if kind == "turn_aborted":
        by_person = payload.get("reason") in ("interrupted", "replaced")
        return Event("human_intervention" if by_person else "lifecycle")
    fixed = {
        "thread_rolled_back": "human_intervention",
        "error": "error",
        "stream_error": "retry",
        "guardian_assessment": "decision",
    }
    if kind in fixed:
        return Event(fixed[kind])
    is_collab = kind.startswith("collab_") and kind.endswith("_end")
    return Event("lifecycle") if kind in LIFECYCLE_EVENTS or is_collab or kind == "context_compacted" else None
