"""mycode sessions from the raw lines, by formats/mycode.md and the policy of design.md section 2.

Run it: `python tests/conformance/derive_mycode.py` (`--check` writes nothing and exits 1 on a difference).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from derive import FIXTURES, HERE, below
from tally import Event, Session, is_test_command, read, totals, utc

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_CODE = re.compile(r"\[exit code: (-?[0-9]+)\]\s*$")
TIMELESS = "no record has a time: meta.json's updated_at, or the file's mtime where that is later"


def homes() -> dict[str, dict[str, str]]:
    named = {"mycode": "mycode/.mycode", "mycode 0.21": "mycode/.mycode-0.21", "real/mycode": "real/mycode"}
    return {name: {path: path.removeprefix(folder + "/") for path in below(folder)} for name, folder in named.items()}


def sessions(root: Path, paths: list[str]) -> dict[str, Session]:
    found: dict[str, Session] = {}
    for path in sorted(paths):
        uid = "mycode:" + PurePosixPath(path).parent.name
        session = found.setdefault(uid, Session(uid))
        if path.endswith("/meta.json"):
            session.sidecars += 1
            meta = json.loads((root / path).read_bytes())
            session.cwd = meta["cwd"]
            session.title = None if meta["title"] == "New chat" else meta["title"]
            session.stated["meta"] = {name: meta.get(name) for name in ("created_at", "updated_at", "model")}
        else:
            session.sources.append(read(root, path))
    for session in found.values():
        for number, record in session.sources[0].records:
            add(session, number, record)
        close(session)
    return found


def add(session: Session, number: int, record: dict[str, Any]) -> None:
    meta = record.get("meta", {})
    events = list(events_of(record, meta))
    for event in events:
        event.ts = utc(meta.get("created_at"))
    session.events += events
    if isinstance(meta.get("usage"), dict):
        session.raise_usage(number, spent(meta["usage"]))
    if record["role"] == "assistant":
        session.stated["model"] = meta["model"]


def close(session: Session) -> None:
    """Times and model, which the page takes from meta.json where the records say nothing."""
    meta = session.stated.pop("meta")
    stamps = [event.ts for event in session.events if event.ts]
    session.stated.setdefault("model", meta["model"])
    session.stated["started_at"] = min([utc(meta["created_at"]), *stamps])
    session.stated["ended_at"] = max([utc(meta["updated_at"]), *stamps])
    session.stated["timeless"] = bool(session.events) and session.events[0].ts is None


def events_of(record: dict[str, Any], meta: dict[str, Any]) -> Iterator[Event]:
    match record["role"]:
        case "user":
            yield from user_events(record["content"], meta)
        case "assistant":
            yield from assistant_events(record["content"], meta)
        case "compact":
            yield Event("lifecycle")
        case "rewind":
            yield Event("human_intervention")


def user_events(blocks: list[dict[str, Any]], meta: dict[str, Any]) -> Iterator[Event]:
    if any(block["type"] in ("text", "image", "document") for block in blocks):
        yield Event("human_intervention" if meta.get("steer") else "user_msg", is_turn=True)
    for block in blocks:
        if block["type"] == "tool_result":
            text = block.get("output", block.get("model_text"))
            code = EXIT_CODE.search(text)
            failed = bool(block["is_error"]) or (code is not None and code[1] != "0")
            yield Event("tool_result", is_error=failed, answers=block["tool_use_id"])


def assistant_events(blocks: list[dict[str, Any]], meta: dict[str, Any]) -> Iterator[Event]:
    for block in blocks:
        match block["type"]:
            case "thinking":
                yield Event("thinking")
            case "text":
                yield Event("assistant_msg")
            case "tool_use":
                yield Event(call_kind(block), call=block["id"])
    if not any(block["type"] == "tool_use" for block in blocks):
        ends = {"error": "error", "cancelled": "human_intervention"}
        yield Event(ends.get(meta.get("stop_reason"), "completion"))


def call_kind(block: dict[str, Any]) -> str:
    if block["name"] in ("edit", "write"):
        return "edit"
    return "test_run" if block["name"] == "bash" and is_test_command(block["input"]["command"]) else "tool_call"


def spent(usage: dict[str, Any]) -> dict[str, int | None]:
    """Input is what no cache had; the page's table says which shapes count the cache within it."""
    if "prompt_tokens" in usage:
        read_, written = usage["prompt_tokens_details"]["cached_tokens"], None
        given, answered = usage["prompt_tokens"] - read_, usage["completion_tokens"]
    elif "total_tokens" in usage:
        read_, written = usage.get("cache_read_tokens"), usage.get("cache_write_tokens")
        given, answered = usage["input_tokens"] - (read_ or 0) - (written or 0), usage["output_tokens"]
    else:
        read_, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
        given, answered = usage["input_tokens"], usage["output_tokens"]
    return {
        "input_tokens": given,
        "output_tokens": answered,
        "cache_read_tokens": read_,
        "cache_write_tokens": written,
    }


def unsettled(report: dict[str, Any]) -> dict[str, Any]:
    return {"ended_at": {"also": None, "why": TIMELESS}} if report["timeless"] else {}


def main() -> int:
    result = {}
    for name, files in homes().items():
        reports = {uid: session.report() for uid, session in sessions(FIXTURES, list(files)).items()}
        for report in reports.values():
            report["unsettled"] = unsettled(report)
        result[name] = {"files": files, "sessions": reports, "totals": totals(reports)}
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    path = HERE / "expected_mycode.json"
    if path.exists() and path.read_text() == text:
        return 0
    if "--check" in sys.argv:
        return 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
