"""The small files of a session: summary.json (what it is), subagents/<id>/meta.json (whose child), events.jsonl (how
calls ended). They make no events: facts about the session, and patches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._grok_reading import ident, mapping, result_key, string
from sessiond.adapters.base import time_of
from sessiond.adapters.wording import one_line, task_ref_in
from sessiond.model import Fact, Kind, Patch, Record

if TYPE_CHECKING:
    from sessiond.model import Carry

SUBAGENT = "subagent"  # session_kind is this, or begins with it
_VALUE_LIMIT = 4_096
_BY_A_PERSON = frozenset({"permission_rejected", "cancelled"})


def parse_summary(record: dict[str, Any], carry: Carry) -> list[Record]:
    """summary.json: its counts are bookkeeping and not looked at; what it says of the session is the last word."""
    info = mapping(record.get("info"))
    branch = record.get("head_branch")
    titles = (record.get("generated_title"), record.get("session_summary"))
    title = next((each for each in titles if isinstance(each, str) and each.strip()), None)
    facts = [
        _fact("cwd", info.get("cwd")),
        _fact("git_branch", branch),
        _fact("model", record.get("current_model_id"), 1),
        _fact("title", None if title is None else one_line(title)),
        _fact("task_ref", task_ref_in(branch) if isinstance(branch, str) else None, 6),
        # What people called the work, if nothing names it better.
        _fact("task_ref", None if title is None else one_line(title), 9),
        _fact("session_kind", record.get("session_kind")),
        _fact("started_at", time_of(record.get("created_at"))),
    ]
    parent = ident(record.get("parent_session_id"))
    if parent is not None and parent != carry.get("session"):
        facts.append(_fact("parent", parent))
    kind = record.get("session_kind")
    if isinstance(kind, str) and kind.startswith(SUBAGENT):
        facts.append(Fact("usage_in_parent", "1"))
    return [fact for fact in facts if fact is not None]


def parse_meta(record: dict[str, Any], carry: Carry) -> list[Record]:
    """meta.json lies with the parent and speaks of the child, whose own files do not name the parent."""
    parent = ident(record.get("parent_session_id")) or string(carry.get("parent"))
    facts = [
        _fact("parent", parent),
        _fact("title", record.get("description"), 2),
        _fact("model", record.get("effective_model_id"), 2),
        Fact("usage_in_parent", "1"),
    ]
    return [fact for fact in facts if fact is not None]


def parse_outcome(record: dict[str, Any], _: Carry) -> list[Record]:
    """events.jsonl knows of some calls that they failed where the result itself does not say so."""
    if record.get("type") != "tool_completed":
        return []
    call_id, outcome = ident(record.get("tool_call_id")), record.get("outcome")
    if call_id is None or not isinstance(outcome, str) or outcome in ("", "success"):
        return []
    kind = Kind.HUMAN_INTERVENTION if outcome in _BY_A_PERSON else None
    return [Patch(result_key(call_id, time_of(record.get("ts"))), kind=kind, is_error=True)]


def _fact(name: str, value: Any, rank: int = 0) -> Fact | None:
    return Fact(name, value, rank) if isinstance(value, str) and 0 < len(value) <= _VALUE_LIMIT else None
