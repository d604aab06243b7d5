"""Claude Code sessions from the raw lines, by formats/claude.md and the policy of design.md section 2."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tally import Event, Session, Source, is_test_command, read, utc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EDITS = {"Edit", "Write", "MultiEdit", "NotebookEdit"}
CHOICES = {"ExitPlanMode", "AskUserQuestion"}
LOCAL_COMMANDS = {"/clear", "/compact", "/exit", "/model", "/resume"}
DENIALS = (
    "The user doesn't want to proceed",
    "The user doesn't want to take this action",
    "Permission prompt was aborted",
)
LOCAL_OUTPUT = (
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "Caveat: The messages below",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",
)
LIFECYCLE_TYPES = {"pr-link", "frame-link", "worktree-state", "relocated"}
SYSTEM_ERRORS = {"error", "api_refusal", "model_refusal_fallback"}
HOOK_ERRORS = {"hook_blocking_error", "hook_non_blocking_error"}
USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}


def sessions(root: Path, home: str, paths: list[str]) -> dict[str, Session]:
    """Every session of one home. Main files come first, so that the first cwd is the main file's."""
    found: dict[str, Session] = {}
    for path in sorted(paths, key=lambda p: (is_subagent(PurePosixPath(p)), p)):
        name = PurePosixPath(path)
        if name.name.endswith(".meta.json"):
            found[session_of(name, None)].sidecars += 1
        if name.suffix != ".jsonl" or name.name == "journal.jsonl":
            continue
        source = read(root, path)
        uid = session_of(name, source)
        found.setdefault(uid, Session(uid)).sources.append(source)
    for session in found.values():
        note_facts(session)
    owners = owners_of_records(found)
    for session in found.values():
        emit(session, owners)
    return found


def is_subagent(path: PurePosixPath) -> bool:
    return path.name.startswith("agent-")


def session_of(path: PurePosixPath, source: Source | None) -> str:
    if not is_subagent(path):
        return "claude:" + path.stem
    if "subagents" in path.parts:
        return "claude:" + path.parts[path.parts.index("subagents") - 1]
    assert source is not None
    return "claude:" + source.records[0][1]["sessionId"]


def note_facts(session: Session) -> None:
    records = [record for source in session.sources for _, record in source.records]
    session.first_time = next((t for t in (utc(r.get("timestamp")) for r in records) if t), "9999")
    session.cwd = next((r["cwd"] for r in records if isinstance(r.get("cwd"), str)), None)
    for kind, key in (("ai-title", "aiTitle"), ("custom-title", "customTitle")):  # a person's own title wins
        for record in records:
            if record.get("type") == kind:
                session.title = {"source": kind, "value": record[key]}


def owners_of_records(found: dict[str, Session]) -> dict[str, Session]:
    """uuid -> the session with the smaller (first record's time, native id)."""
    owners: dict[str, Session] = {}
    for session in sorted(found.values(), key=lambda s: s.rank):
        for source in session.sources:
            for _, record in source.records:
                if record.get("uuid"):
                    owners.setdefault(record["uuid"], session)
    return owners


def emit(session: Session, owners: dict[str, Session]) -> None:
    emitted: set[str] = set()  # uuids that made events already: the same record written again
    completed: set[str] = set()
    for source in session.sources:
        modes: dict[str, Any] = {}
        waiting_for_request = 0  # API error messages that no later request has followed yet
        for number, record in source.records:
            uuid = record.get("uuid")
            owner = owners[uuid] if uuid else session
            if owner is not session:
                session.replays += 1
                session.parent_uid = owner.uid
                continue
            count_usage(session, source, number, record)
            if record.get("isApiErrorMessage"):
                waiting_for_request += 1
            elif record.get("type") == "assistant" and not is_synthetic(record):
                session.retries += waiting_for_request
                waiting_for_request = 0
            if uuid in emitted:
                continue
            events = list(events_of(record, modes, completed))
            for event in events:
                event.ts = utc(record.get("timestamp"))
                event.sidechain = bool(record.get("isSidechain")) or is_subagent(PurePosixPath(source.path))
                event.is_turn = event.is_turn and not event.sidechain
            session.events += events
            session.retries += record.get("subtype") == "api_error"
            if uuid and events:
                emitted.add(uuid)


def count_usage(session: Session, source: Source, number: int, record: dict[str, Any]) -> None:
    message = record.get("message")
    if record.get("type") != "assistant" or not isinstance(message, dict) or not isinstance(message.get("usage"), dict):
        return
    key = (message["id"], record.get("requestId")) if message.get("id") else record.get("uuid") or (source.path, number)
    session.raise_usage(key, {ours: message["usage"].get(theirs) for theirs, ours in USAGE.items()})


def is_synthetic(record: dict[str, Any]) -> bool:
    return bool(record.get("isApiErrorMessage")) or record["message"].get("model") == "<synthetic>"


def events_of(record: dict[str, Any], modes: dict[str, Any], completed: set[str]) -> Iterator[Event]:
    match record.get("type"):
        case "user":
            yield from user_events(record)
        case "assistant":
            yield from assistant_events(record, completed)
        case "system":
            yield Event(system_kind(record))
        case "attachment":
            yield from attachment_events(record["attachment"])
        case "permission-mode" | "mode" as kind:
            value = record.get("permissionMode") or record.get("mode")
            if modes.get(kind, value) != value:
                yield Event("decision")
            modes[kind] = value
        case kind if kind in LIFECYCLE_TYPES:
            yield Event("lifecycle")


def blocks_of(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def user_events(record: dict[str, Any]) -> Iterator[Event]:
    if record.get("isCompactSummary"):
        yield Event("lifecycle")
        return
    is_turn = True  # one record is one prompt, however many blocks it has
    for block in blocks_of(record["message"]["content"]):
        if block["type"] == "tool_result":
            yield result_event(block)
            continue
        kind, by_person = text_kind(block.get("text", "")) if not record.get("isMeta") else ("lifecycle", False)
        if kind == "user_msg" and record.get("origin", {}).get("kind", "human") != "human":
            kind, by_person = "lifecycle", False
        yield Event(kind, is_turn=by_person and is_turn)
        is_turn = is_turn and not by_person


def result_event(block: dict[str, Any]) -> Event:
    content = block.get("content") or ""
    text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
    failed = bool(block.get("is_error"))
    denied = failed and (text.startswith(DENIALS) or "was rejected" in text[:120])
    return Event("human_intervention" if denied else "tool_result", is_error=failed, answers=block.get("tool_use_id"))


def text_kind(text: str) -> tuple[str, bool]:
    """The kind of a user's text, and whether a person's turn begins with it."""
    if text.startswith(("[Request interrupted by user", "<bash-input>")):
        return "human_intervention", False
    if text.startswith(LOCAL_OUTPUT):
        return "lifecycle", False
    if "<command-name>" in text and text.startswith("<command-"):
        name = text.partition("<command-name>")[2].partition("<")[0]
        return ("lifecycle", False) if name in LOCAL_COMMANDS else ("user_msg", True)
    return "user_msg", not text.startswith("<teammate-message")


def assistant_events(record: dict[str, Any], completed: set[str]) -> Iterator[Event]:
    message = record["message"]
    for block in blocks_of(message["content"]):
        match block["type"]:
            case _ if record.get("isCompactSummary"):
                yield Event("lifecycle")
            case "text" if is_synthetic(record):
                yield Event("lifecycle" if block["text"] == "No response requested." else "error")
            case "text":
                yield Event("assistant_msg")
                if message.get("stop_reason") == "end_turn" and message["id"] not in completed:
                    completed.add(message["id"])
                    yield Event("completion")
            case "thinking" | "redacted_thinking":
                yield Event("thinking")
            case "tool_use" | "server_tool_use":
                yield Event(call_kind(block), call=block.get("id") or "unnamed")
            case "web_search_tool_result":
                yield Event("tool_result", answers=block.get("tool_use_id"))


def call_kind(block: dict[str, Any]) -> str:
    if block["name"] in EDITS:
        return "edit"
    if block["name"] in CHOICES:
        return "decision"
    if block["name"] == "Bash" and is_test_command(block["input"].get("command", "")):
        return "test_run"
    return "tool_call"


def system_kind(record: dict[str, Any]) -> str:
    if record.get("subtype") == "api_error":
        return "error" if record.get("retryAttempt") == record.get("maxRetries") else "retry"
    return "error" if record.get("subtype") in SYSTEM_ERRORS else "lifecycle"


def attachment_events(attachment: dict[str, Any]) -> Iterator[Event]:
    if attachment["type"] in HOOK_ERRORS:
        yield Event("error")
    if attachment["type"] == "queued_command":
        prompt = blocks_of(attachment["prompt"])
        text = next((block["text"] for block in prompt if block["type"] == "text"), "")
        by_person = (
            attachment.get("commandMode") == "prompt" and attachment.get("origin", {}).get("kind", "human") == "human"
        )
        kind, is_turn = text_kind(text) if by_person else ("lifecycle", False)
        yield Event(kind, is_turn=is_turn)
