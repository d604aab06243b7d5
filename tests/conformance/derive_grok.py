"""Grok sessions from the raw lines, by formats/grok.md and the policy of design.md section 2."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tally import TOKENS, Event, Session, is_test_command, read, total

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Update = dict[str, Any]

TURN_ENDS = {"end_turn": "completion", "error": "error", "cancelled": "human_intervention", "interrupted": "error"}
SAID = {"agent_message_chunk": "assistant_msg", "agent_thought_chunk": "thinking", "plan": "decision"}


def sessions(root: Path, home: str, paths: list[str]) -> dict[str, Session]:
    """One session per folder; `home` is not needed, every path names its session."""
    folders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        parts = PurePosixPath(path).parts
        if "subagents" not in parts and len(parts) > 2 and PurePosixPath(path).name != ".cwd":
            folders[str(PurePosixPath(path).parent)].append(path)
    found = {}
    for folder, files in sorted(folders.items()):
        names = {PurePosixPath(path).name for path in files}
        if "summary.json" in names:
            session = one_session(root, folder, names)
            found[session.uid] = session
    for path in paths:
        if PurePosixPath(path).name == "meta.json":
            meta = json.loads((root / path).read_text())
            child = found[f"grok:{meta['child_session_id']}"]
            child.parent_uid = f"grok:{meta['parent_session_id']}"
            child.sidecars += 1
    return found


def one_session(root: Path, folder: str, names: set[str]) -> Session:
    summary = json.loads((root / folder / "summary.json").read_text())
    session = Session(f"grok:{PurePosixPath(folder).name}")
    session.cwd = summary["info"]["cwd"]
    session.title = summary.get("generated_title") or summary.get("session_summary")
    if summary.get("parent_session_id"):
        session.parent_uid = f"grok:{summary['parent_session_id']}"
    is_child = (summary.get("session_kind") or "").startswith("subagent")
    session.stated["is_sidechain"] = is_child
    session.stated["git_branch"] = summary.get("head_branch")
    session.sidecars = 1 + ("events.jsonl" in names)
    if "updates.jsonl" in names:
        source = read(root, f"{folder}/updates.jsonl")
        session.events = list(updates(session, source.records))
        session.stated["wall_clock_ms"] = sum(session.stated.pop("elapsed", {}).values()) or None
    else:
        source = read(root, f"{folder}/chat_history.jsonl")
        session.events = [event for _, row in source.records for event in chat_row(row)]
    session.sources = [source]
    session.retries = sum(event.kind == "retry" for event in session.events)
    for event in session.events:
        event.sidechain = is_child
        event.is_turn = event.is_turn and not is_child
    return session


def updates(session: Session, records: list[tuple[int, dict[str, Any]]]) -> Iterator[Event]:
    own_id = session.uid.partition(":")[2]
    indexed, last_index = False, None
    elapsed: dict[str, int] = session.stated.setdefault("elapsed", {})
    for _, record in records:
        params = record["params"]
        update, meta = params["update"], params["_meta"]
        name = update["sessionUpdate"]
        index = update.get("_meta", {}).get("promptIndex") if name == "user_message_chunk" else None
        is_more = index is not None and index == last_index
        last_index = index
        steer, indexed = indexed and index is None, indexed or index is not None
        if not meta["eventId"].startswith(own_id + "-"):
            session.replays += 1
            continue
        if name == "turn_completed":
            spend(session, elapsed, update)
        event = None if is_more else event_of(name, update, is_steer=steer)
        if event is not None:
            event.ts = moment(meta["agentTimestampMs"])
            yield event


def event_of(name: str, update: Update, *, is_steer: bool) -> Event | None:
    if name == "user_message_chunk":
        return Event("human_intervention" if is_steer else "user_msg", is_turn=True)
    if name == "tool_call":
        tool = update.get("_meta", {}).get("x.ai/tool", {})
        return Event(call_kind(tool.get("kind"), update.get("rawInput") or {}), call=update["toolCallId"])
    if name == "tool_call_update":
        return result(update) if update.get("status") in ("completed", "failed") else None
    if name == "turn_completed":
        return Event(TURN_ENDS[update["stop_reason"]])
    if name == "retry_state":
        return Event("retry" if update["type"] == "retrying" else "error")
    if name == "rewind_marker":
        return Event("human_intervention")
    return Event(SAID.get(name, "lifecycle"))


def call_kind(sort: str | None, given: dict[str, Any]) -> str:
    if sort in ("edit", "write"):
        return "edit"
    return "test_run" if sort == "execute" and is_test_command(given["command"]) else "tool_call"


def result(update: Update) -> Event:
    code = (update.get("rawOutput") or {}).get("exit_code")
    is_error = update["status"] == "failed" or code not in (None, 0)
    denied = "User rejected the execution" in json.dumps(update.get("content"))
    return Event("human_intervention" if denied else "tool_result", is_error=is_error, answers=update["toolCallId"])


def spend(session: Session, elapsed: dict[str, int], update: Update) -> None:
    if "elapsed_ms" in update:
        elapsed[update["prompt_id"]] = update["elapsed_ms"]
    usage = update.get("usage")
    if usage is None:
        return
    cached, written = usage["cachedReadTokens"], usage["cacheCreationTokens"]
    numbers = (usage["inputTokens"] - cached - written, usage["outputTokens"], cached, written)
    session.usage[update["prompt_id"]] = dict(zip(TOKENS, numbers, strict=True))


def chat_row(row: dict[str, Any]) -> Iterator[Event]:
    sort = row.get("type") or row["role"]
    if sort == "user":
        yield chat_prompt(row)
    elif sort == "assistant":
        if row.get("reasoning_content"):
            yield Event("thinking")
        if row.get("content"):
            yield Event("assistant_msg")
        for call in row.get("tool_calls") or ():
            yield Event("tool_call", call=call["id"])  # only read_file in the fixtures
    elif sort == "reasoning":
        yield Event("thinking")
    elif sort == "backend_tool_call":
        yield Event("tool_call", call=row["kind"]["id"])
    elif sort in ("tool_result", "tool"):
        yield Event("tool_result", answers=row["tool_call_id"])


def chat_prompt(row: dict[str, Any]) -> Event:
    reason = row.get("synthetic_reason")
    if reason == "interjection":
        return Event("human_intervention", is_turn=True)
    return Event("lifecycle") if reason else Event("user_msg", is_turn=True)


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + (
        f"{milliseconds % 1000:03d}Z"
    )


def totals_once(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Tokens over all sessions: a parent's hold those of its sub-agents."""
    return {name: total(r[name] for r in reports.values() if not r["is_sidechain"]) for name in TOKENS}
