"""skill logs from the raw lines, by formats/skill.md and the policy of design.md section 2.

Run it: `python tests/conformance/derive_skill.py` (`--check` writes nothing and exits 1 on a difference).
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from derive import FIXTURES, HERE, below
from tally import Event, Session, read, totals, utc

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "skill/brain/sessions"
ENDINGS = {"ok": "completion", "pass": "completion", "error": "error", "fail": "error"}
OUTCOMES = {"completion": "success", "error": "fail"}


def homes() -> dict[str, dict[str, str]]:
    return {"skill": {path: path.removeprefix(FOLDER + "/") for path in below(FOLDER)}}


def sessions(root: Path, paths: list[str]) -> dict[str, Session]:
    found: dict[str, Session] = {}
    for path in sorted(paths):
        session = Session("skill:" + PurePosixPath(path).stem, sources=[read(root, path)])
        found[session.uid] = session
        for _, entry in session.sources[0].records:
            session.events += events_of(entry)
        state(session, [entry for _, entry in session.sources[0].records])
    return found


def events_of(entry: dict[str, Any]) -> Iterator[Event]:
    ts = utc(entry["timestamp"])
    ts = None if ts is None or ts.startswith(("1-", "0001")) else ts
    yield Event("tool_call", ts=ts, call="the line")
    for attempt in entry.get("attempts", ()):
        if attempt["attempt"] > 1:
            yield Event("retry", ts=ts)
        if attempt.get("runner_output"):
            yield Event("test_run", ts=ts, is_error=not attempt["verified"])
    if entry.get("file_path"):
        yield Event("edit", ts=ts)
    yield Event(ENDINGS.get(entry["final_status"], "lifecycle"), ts=ts)


def state(session: Session, entries: list[dict[str, Any]]) -> None:
    stamps = sorted(event.ts for event in session.events if event.ts)
    begun = [began(entry) for entry in entries if not entry["timestamp"].startswith("0001")]
    models = [entry["model_used"] for entry in entries if "model_used" in entry]
    spent = [entry["duration_ms"] for entry in entries if "duration_ms" in entry]
    session.retries = sum(event.kind == "retry" for event in session.events)
    session.cwd = next((entry["project_root"] for entry in reversed(entries) if "project_root" in entry), None)
    session.stated = {
        "started_at": min(begun, default=None),
        "ended_at": max(stamps, default=None),
        "model": ([name for name in models if name != "self"] or models or [None])[-1],
        "outcome": OUTCOMES.get(ENDINGS.get(entries[-1]["final_status"], ""), "unknown"),
        "wall_clock_s": sum(spent) / 1000 if spent else None,
        "turns": None,
        "task_ref": session.uid.partition(":")[2],
    }


def began(entry: dict[str, Any]) -> str | None:
    moment = datetime.fromisoformat(utc(entry["timestamp"])) - timedelta(milliseconds=entry.get("duration_ms", 0))
    return utc(moment.isoformat())


def unsettled(report: dict[str, Any]) -> dict[str, Any]:
    if report["wall_clock_s"] is not None:
        return {}
    return {"wall_clock_s": {"also": [0.0], "why": "no duration is written: unknown, or last minus first"}}


def main() -> int:
    result = {}
    for name, files in homes().items():
        reports = {uid: session.report() for uid, session in sessions(FIXTURES, list(files)).items()}
        for report in reports.values():
            report["unsettled"] = unsettled(report)
        result[name] = {"files": files, "sessions": reports, "totals": totals(reports)}
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    path = HERE / "expected_skill.json"
    if path.exists() and path.read_text() == text:
        return 0
    if "--check" in sys.argv:
        return 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
