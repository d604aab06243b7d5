"""Hive sessions from the raw files, by formats/hive.md and the policy of design.md section 2.

Times without a zone are read as if this machine's zone were UTC: the report must not depend on where it is made.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tally import Event, Session, Source, is_test_command, read, utc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERDICTS = {"RETRY": "retry", "ESCALATE": "human_intervention", "ACCEPT": "decision", "CONTINUE": "decision"}
RUNS = {  # a line of runs.jsonl: what it makes, and which status of state.json it says already
    "run_started": ("lifecycle", "active"),
    "run_paused": ("lifecycle", "paused"),
    "run_completed": ("completion", "completed"),
    "run_failed": ("error", "failed"),
    "run_cancelled": ("human_intervention", "cancelled"),
}
EVENTS = {
    "client_input_received": "user_msg",
    "client_output_delta": "assistant_msg",
    "client_reasoning": "thinking",
    "llm_reasoning_delta": "thinking",
    "tool_call_completed": "tool_result",
    "node_retry": "retry",
    "stream_nudge_sent": "retry",
    "execution_resurrected": "retry",
    "judge_verdict": "decision",
    "client_input_requested": "human_intervention",
    "escalation_requested": "human_intervention",
    "execution_failed": "error",
    "worker_failed": "error",
    "node_stalled": "error",
    "payment_required": "error",
    "constraint_violation": "error",
    "execution_completed": "completion",
    "goal_achieved": "completion",
    "worker_completed": "completion",
}
OUTCOMES = {"completed": "success", "failed": "fail", "cancelled": "abandoned"}


def sessions(root: Path, home: str, paths: list[str]) -> dict[str, Session]:
    found: dict[str, Session] = {}
    states: dict[str, dict[str, Any]] = {}
    for path in sorted(paths):
        name = PurePosixPath(path).name
        if name == "state.json" or name.endswith(".state.json"):
            states[path] = json.loads((root / path).read_bytes())
    for path in sorted(paths):
        place = PurePosixPath(path)
        is_alone = place.name.endswith(".state.json")
        if not is_alone and "sessions" not in place.parts:
            continue
        native = states[path]["session_id"] if is_alone else place.parts[place.parts.index("sessions") + 1]
        source, events = one_file(root, place, states.get(path))
        if source is None:
            continue
        session = found.setdefault("hive:" + native, Session("hive:" + native))
        session.sources.append(source)
        session.events += events(session)
    for path, state in states.items():
        place = PurePosixPath(path)
        is_alone = place.name.endswith(".state.json")
        native = state["session_id"] if is_alone else place.parts[place.parts.index("sessions") + 1]
        add_status(found["hive:" + native], state)
    for session in found.values():
        if not session.stated.pop("_queen", False):
            session.stated["turns"] = None  # who spoke in a graph run is not known
        session.stated.pop("_said", None)
    return found


def one_file(root: Path, place: PurePosixPath, state: dict[str, Any] | None) -> tuple[Source | None, Any]:
    """The file as a source, and what makes its events; (None, None) for a file that says nothing of its own."""
    path = str(place)
    if state is not None:
        return Source(path), lambda _: list(recorded(state))
    is_queen = "queens" in place.parts
    if place.name in ("runs.jsonl", "tool_logs.jsonl", "details.jsonl", "events.jsonl"):
        source = read(root, path)
        maker = {"runs.jsonl": runs, "tool_logs.jsonl": steps, "details.jsonl": nodes, "events.jsonl": bus}[place.name]
        return source, lambda session: [e for _, record in source.records for e in maker(record, session)]
    if place.name == "summary.json" and place.parent.name == "logs":
        return Source(path), lambda _: []
    if place.parent.name == "parts" and not is_queen:
        part = json.loads((root / place).read_bytes())
        said = part["role"] == "user" and part.get("is_client_input")
        return Source(path), lambda _: [Event("user_msg", is_turn=True)] if said else []
    return None, None


def runs(record: dict[str, Any], session: Session) -> Iterator[Event]:
    kind, status = RUNS[record["event"]]
    said = session.stated.setdefault("_said", Counter())
    said[status] += 1
    yield Event(kind, ts=utc(record["timestamp"]), is_error=kind == "error")


def steps(record: dict[str, Any], session: Session) -> Iterator[Event]:
    session.raise_usage(
        ("step", record["span_id"]),
        {"input_tokens": record["input_tokens"], "output_tokens": record["output_tokens"]},
    )
    calls = record["tool_calls"]
    first = utc(calls[0]["start_timestamp"]) if calls else None
    if record["llm_text"]:
        yield Event("assistant_msg", ts=first)
    for number, call in enumerate(calls):
        name = f"{record['span_id']}/{number}"
        yield Event(call_kind(call), ts=utc(call["start_timestamp"]), call=name)
        yield Event("tool_result", is_error=call["is_error"], answers=name)
    if record["verdict"]:
        kind = VERDICTS[record["verdict"]]
        session.retries += kind == "retry"
        yield Event(kind)
    if record["error"]:
        yield Event("error", is_error=True)


def call_kind(call: dict[str, Any]) -> str:
    return "test_run" if is_test_command(str(call["tool_input"].get("command", ""))) else "tool_call"


def nodes(record: dict[str, Any], session: Session) -> Iterator[Event]:
    yield Event("lifecycle" if record["success"] else "error", is_error=not record["success"])


def bus(record: dict[str, Any], session: Session) -> Iterator[Event]:
    kind, data = record["type"], record["data"]
    if kind == "context_usage_updated":
        return
    event = Event(EVENTS.get(kind, "lifecycle"), ts=utc(record["timestamp"]))
    event.sidechain = record["stream_id"].startswith("worker")
    event.is_turn = kind == "client_input_received" and not event.sidechain
    if kind == "tool_call_started":
        event.kind, event.call = call_kind(data), data["tool_use_id"]
    elif kind == "tool_call_completed":
        event.is_error, event.answers = data["is_error"], data["tool_use_id"]
    elif kind == "llm_turn_complete":
        cached, written = data["cached_tokens"], data["cache_creation_tokens"]
        session.raise_usage(
            ("turn", record["timestamp"], record["seq"]),
            {
                "input_tokens": data["input_tokens"] - cached - written,
                "output_tokens": data["output_tokens"],
                "cache_read_tokens": cached,
                "cache_write_tokens": written,
            },
        )
    session.retries += event.kind == "retry"
    session.stated["_queen"] = True
    yield event


def recorded(state: dict[str, Any]) -> Iterator[Event]:
    for _ in state["decisions"]:
        yield Event("decision", ts=utc(state["timestamps"]["updated_at"]))
    for _ in state["problems"]:
        yield Event("error", ts=utc(state["timestamps"]["updated_at"]), is_error=True)


def add_status(session: Session, state: dict[str, Any]) -> None:
    """The status is an event of its own only if no line of runs.jsonl says it; its times count either way."""
    times = state["timestamps"]
    when = utc(times["completed_at"] or times["paused_at_time"] or times["updated_at"])
    if not session.stated.get("_said", {}).get(state["status"]):
        session.events.append(Event("lifecycle", ts=when))
    spanned = sorted(t for t in (utc(times["started_at"]), when, *(e.ts for e in session.events)) if t)
    session.stated["started_at"], session.stated["ended_at"] = spanned[0], spanned[-1]
    session.stated["outcome"] = OUTCOMES.get(state["status"], "unknown")
    session.stated["wall_clock_s"] = state["duration_ms"] / 1000 or None
