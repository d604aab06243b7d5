"""Aden Hive: sessions spread over folders below agents, queens and colonies; which file says what is in its name.

*Graph runs* (agents): state.json, rewritten whole, is a snapshot whose changes become events; beside it lie logs that
grow (runs, tool_logs, details) and one file per message, of which only what a person said is an event. *Queens and
workers*: one events.jsonl, the event bus as it was published. A session is known by its folder's name alone: the same
folder may stand in two trees while Hive migrates, and its records are named alike in both.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sessiond.adapters._hive_events import bus_event
from sessiond.adapters._hive_logs import finished_node, message_part, step
from sessiond.adapters._hive_state import log_summary, run_line, session_state
from sessiond.adapters.base import Claim, Reader, decode
from sessiond.model import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sessiond.model import Carry, Line, Record, Session

_TREES = ("agents", "queens", "colonies")
_SESSION = "session_"
_PART = re.compile(r"\d{1,20}\.json")
_OLD_RUN = re.compile(r"\d{8}T\d{6}_[0-9a-f]{8}")

_GRAPH_FILES = {
    "state.json": "state",
    "runs.jsonl": "runs",
    "logs/tool_logs.jsonl": "steps",
    "logs/details.jsonl": "nodes",
    "logs/summary.json": "summary",
}
_OLD_FILES = {"tool_logs.jsonl": "steps", "details.jsonl": "nodes", "summary.json": "summary"}
_REWRITTEN = {"state", "summary", "part"}
_TIMELESS = {"steps", "nodes", "part"}


class Hive:
    """Reads graph runs, queens and workers of every layout since the first."""

    flavor = "hive"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        home = env.get("HIVE_HOME")
        return [Path(home)] if home else [user_home / ".hive"]

    def folders(self, home: Path) -> Sequence[Path]:
        return [home / tree for tree in _TREES]

    def wants(self, path: PurePosixPath) -> bool:
        return _place(path) is not None

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:  # noqa: ARG002 - the path says it all
        place = _place(path)
        if place is None:
            return None
        at, seed = place
        file = seed["file"]
        is_main = file in ("state", "events") or ("old" in seed and file == "steps")
        return Claim(
            session_id=path.parts[at],
            member="/".join(path.parts[at + 1 :]),
            reader=Reader.SNAPSHOT if file in _REWRITTEN else Reader.TAIL,
            role="main" if is_main else "part",
            cwd_may_come=False,
            is_sidechain="worker" in seed,
            timeless=file in _TIMELESS,
            seed=seed,
        )

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        record = decode(line)
        file = carry.get("file", "")
        found = _READERS[file](record, line, carry)
        if "begun" not in carry:
            carry["begun"] = True
            found = _said_by_the_path(carry) + found
        return found

    def resume(self, session: Session) -> Sequence[str] | None:  # noqa: ARG002 - the protocol's
        """There is none: a run goes on from inside Hive."""
        return None


# --- whose file it is -----------------------------------------------------------------------------


def _place(path: PurePosixPath) -> tuple[int, dict[str, str]] | None:
    """Which part of the path names the session, and what the path says besides; None: not ours."""
    parts = path.parts
    if len(parts) < 4 or any(part.startswith(".") for part in parts):
        return None
    if parts[-1] == "events.jsonl":
        return _bus_place(parts)
    if parts[0] != "agents":
        return None
    if parts[2] == "sessions":
        below = "/".join(parts[4:])
        file = _GRAPH_FILES.get(below)
        if file is None and len(parts) == 7 and below.startswith("conversations/parts/") and _PART.fullmatch(parts[6]):
            file = "part"
        return None if file is None else (3, {"file": file, "agent": parts[1]})
    at = 4 if parts[2:4] == ("runtime_logs", "runs") else 3 if parts[2] == "runs" else 0
    if at and len(parts) == at + 2 and _OLD_RUN.fullmatch(parts[at]) and parts[-1] in _OLD_FILES:
        return at, {"file": _OLD_FILES[parts[-1]], "agent": parts[1], "old": "1"}
    return None


def _bus_place(parts: tuple[str, ...]) -> tuple[int, dict[str, str]] | None:
    match parts[:-1]:
        case ("queens", queen, "sessions", session) | ("agents", "queens", queen, "sessions", session):
            seed = {"queen": queen}
        case ("colonies", colony, "queens", queen, "sessions", session):
            seed = {"queen": queen, "colony": colony}
        case ("colonies", colony, "queen", session):
            seed = {"colony": colony}
        case ("colonies", colony, "workers", _):
            return 3, {"file": "events", "colony": colony, "worker": "1"}
        case _:
            return None
    return (len(parts) - 2, {"file": "events", **seed}) if session.startswith(_SESSION) else None


def _said_by_the_path(carry: Carry) -> list[Record]:
    found: list[Record] = [Fact(name, carry[name]) for name in ("agent", "queen", "colony") if carry.get(name)]
    if carry.get("file") != "events":
        found.append(Fact("turns_unknown", "1"))  # of what a graph run was told, no count is kept
    return found


_READERS: dict[str, Callable[[dict[str, Any], Line, Carry], list[Record]]] = {
    "state": session_state,
    "summary": log_summary,
    "runs": run_line,
    "steps": step,
    "nodes": finished_node,
    "part": message_part,
    "events": bus_event,
}

ADAPTER = Hive()
