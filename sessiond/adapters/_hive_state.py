"""How a graph run stands: state.json, rewritten whole, the lines of runs.jsonl, and the summary of the logs.

A change of status is written twice, as the new state.json and as a line of runs.jsonl, in either order. Both name it
`status:<status>#<n>`, the n-th time that the session came to be so: whichever comes first makes the event, and the
line, which knows more, has the last word on it by a patch. A version of state.json that nobody saw is not missed where
the line is there. A state is known by status, run and start: what else is rewritten changes facts, and makes no event.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sessiond.adapters._hive_fields import digest, key_of, mapping, mappings, string
from sessiond.adapters.base import MAX_COUNT, count_of, local_time_of, text_of, time_of
from sessiond.adapters.wording import clip, one_line, searchable
from sessiond.model import Event, Fact, Kind, Outcome, Patch, Role, Unknown, Usage, session_key, utc

if TYPE_CHECKING:
    from sessiond.model import Carry, Key, Line, Record

_OUTCOMES = {"completed": Outcome.SUCCESS, "failed": Outcome.FAIL, "cancelled": Outcome.ABANDONED}
_RUNS = {
    "run_started": (Kind.LIFECYCLE, "active"),
    "run_paused": (Kind.LIFECYCLE, "paused"),
    "run_completed": (Kind.COMPLETION, "completed"),
    "run_failed": (Kind.ERROR, "failed"),
    "run_cancelled": (Kind.HUMAN_INTERVENTION, "cancelled"),
}
_STATUSES = {*_OUTCOMES, "active", "paused"}
_SUMMARIES = {"success": Outcome.SUCCESS, "degraded": Outcome.SUCCESS, "failure": Outcome.FAIL}
# Counters that begin again when a session is resumed: fact -> field of `progress`.
_COUNTERS = {"retries": "total_retries", "steps": "steps_executed", "total_tokens": "total_tokens"}
_LAST = 1_000_000  # a rank after every other


# --- state.json -------------------------------------------------------------------------------------


def session_state(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:  # noqa: ARG001 - one of many readers
    times = mapping(record.get("timestamps"))
    started = local_time_of(times.get("started_at"))
    # `updated_at` of a finished session may be that of a conversion, months later.
    ended = times.get("completed_at") or times.get("paused_at_time") or times.get("updated_at")
    when = local_time_of(ended) or started
    found: list[Record] = [Fact("active_at", at) for at in (started, when) if at]
    status = _status(record)
    if status:
        found += _status_change(record, status, when, carry)
        found += _standing(record, status)
    found += [_decision(each, when) for each in mappings(record.get("decisions"))]
    found += [_problem(each, when) for each in mappings(record.get("problems"))]
    found += _facts(record, carry)
    duration = count_of(record.get("duration_ms"))
    if duration and times.get("completed_at"):
        key = session_key("duration:" + string(times.get("started_at")))
        found.append(Usage(key, ts=when, duration_ms=duration))
    return found


def _status(record: dict[str, Any]) -> str:
    status = string(record.get("status"), 40)
    if status:
        return status
    success = mapping(record.get("result")).get("success")
    return "" if success is None else "completed" if success is True else "failed"


def _status_change(record: dict[str, Any], status: str, when: str | None, carry: Carry) -> list[Record]:
    """The event of this status, told again for as long as it lasts: so it is always the first of its file."""
    started = string(mapping(record.get("timestamps")).get("started_at"))
    state = digest(status, string(record.get("current_run_id")), started)
    is_new = carry.get("state") != state
    if is_new:
        carry["state"] = state
        _count(status, carry)
    key = _status_key(status, carry)
    result = mapping(record.get("result"))
    words = record.get("input_data") if status == "active" else [result.get("error"), result.get("output")]
    text = searchable(words)
    summary = one_line(f"status {_reason(record, status)}")
    event = Event(Kind.LIFECYCLE, key, ts=when, role=Role.SYSTEM, summary=summary, text=text)
    return [event, Patch(key, text=text)] if text and is_new else [event]


def _count(status: str, carry: Carry) -> None:
    if status in _STATUSES:  # of a status that is not known only the first is told: the carry stays small
        carry["n:" + status] = carry.get("n:" + status, 0) + 1


def _status_key(status: str, carry: Carry) -> Key:
    return session_key(f"status:{status}#{carry.get('n:' + status, 1)}")


def _reason(record: dict[str, Any], status: str) -> str:
    """How it stands, in words: `failed: Max retries exceeded`."""
    result, progress = mapping(record.get("result")), mapping(record.get("progress"))
    error = one_line(text_of(result.get("error")))
    if error and status != "completed":
        return f"{status}: {error}"
    if status == "paused" and (node := string(progress.get("paused_at"))):
        return f"paused at {one_line(node)}"
    quality = string(progress.get("execution_quality"))
    return f"{status}, {one_line(quality)}" if status in _OUTCOMES and quality not in ("", "clean") else status


def _standing(record: dict[str, Any], status: str) -> list[Record]:
    """Said with every version: a session that is resumed is open again."""
    found: list[Record] = [
        Fact("status", status),
        Fact("outcome", _OUTCOMES.get(status, Outcome.UNKNOWN)),
        Fact("outcome_basis", "stated"),
        Fact("outcome_reason", _reason(record, status)),
    ]
    pid = count_of(record.get("pid"))
    if pid:
        found.append(Fact("running_pid", str(pid) if status == "active" else "none"))
    quality = string(mapping(record.get("progress")).get("execution_quality"))
    if quality and status != "active":  # while it runs this is only what it begins with
        found.append(Fact("execution_quality", quality))
    return found


def _decision(decision: dict[str, Any], when: str | None) -> Event:
    chosen, why = text_of(decision.get("chosen_option_id")), text_of(decision.get("reasoning"))
    intent = text_of(decision.get("intent")) or "decision"
    summary = f"{intent}: {chosen}" if chosen else intent
    return Event(
        Kind.DECISION,
        session_key(key_of("decision", decision, "id")),
        ts=local_time_of(decision.get("timestamp")) or when,
        role=Role.AGENT,
        summary=one_line(f"{summary} ({why})" if why else summary),
        text=searchable(decision),
    )


def _problem(problem: dict[str, Any], when: str | None) -> Event:
    severity, words = text_of(problem.get("severity")), text_of(problem.get("description"))
    return Event(
        Kind.ERROR,
        session_key(key_of("problem", problem, "id")),
        ts=local_time_of(problem.get("timestamp")) or when,
        role=Role.SYSTEM,
        summary=one_line(f"{severity}: {words}" if severity else words) or "problem",
        text=searchable(problem),
        is_error=True,
    )


def _facts(record: dict[str, Any], carry: Carry) -> list[Record]:
    found: list[Record] = []
    goal, run = string(record.get("goal_id")), string(record.get("current_run_id"))
    if goal or run:
        found.append(Fact("task_ref", goal or run, rank=0 if goal else 5))
    pid = count_of(record.get("pid"))
    if pid:
        found.append(Fact("pid", str(pid)))
    flags = ((name, record.get(name)) for name in ("is_resumable", "is_resumable_from_checkpoint"))
    found += [Fact(name, "true" if value else "false") for name, value in flags if isinstance(value, bool)]
    checkpoint = string(record.get("latest_checkpoint_id"))
    if checkpoint:
        found.append(Fact("checkpoint", checkpoint))
    found += _counters(mapping(record.get("progress")), carry)
    title = one_line(searchable(record.get("input_data"))) or goal
    if title:
        found.append(Fact("title", title, rank=_LAST, first=True))
    return found


def _counters(progress: dict[str, Any], carry: Carry) -> list[Record]:
    """Totals over all runs: a counter that fell began again, and what it had reached is kept."""
    found: list[Record] = []
    for name, field in _COUNTERS.items():
        now = count_of(progress.get(field))
        if now is None:
            continue
        last, before = carry.get("last:" + name, 0), carry.get("before:" + name, 0)
        if now < last:
            before += last
        carry["last:" + name], carry["before:" + name] = now, before
        total = min(before + now, MAX_COUNT)
        found.append(Fact(name, str(total), rank=MAX_COUNT - total))  # the larger number wins
    return found


# --- runs.jsonl and logs/summary.json ---------------------------------------------------------------


def run_line(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:  # noqa: ARG001 - one of many readers
    name = string(record.get("event"), 80)
    if name not in _RUNS:
        return [Unknown(name or "untyped")]
    kind, status = _RUNS[name]
    _count(status, carry)
    key = _status_key(status, carry)
    ts = _epoch(record.get("created_at")) or local_time_of(record.get("timestamp"))
    run, error = string(record.get("run_id")), text_of(record.get("error"))
    words = name.replace("_", " ")
    summary = one_line(f"{words}: {error}" if error else f"{words} {run}")
    failed = kind is Kind.ERROR
    event = Event(kind, key, ts=ts, role=Role.SYSTEM, summary=summary, text=clip(error), is_error=failed)
    return [event, Patch(key, kind=kind, ts=ts, summary=summary, is_error=failed)]


def _epoch(value: Any) -> str | None:
    """Seconds since 1970 need no zone."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e11:
        return None
    return utc(datetime.fromtimestamp(value, UTC))


def log_summary(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:  # noqa: ARG001 - one of many readers
    """Heard where state.json says nothing. Its tokens are those of the steps once more: never counted here."""
    found: list[Record] = []
    status, quality = string(record.get("status"), 40), string(record.get("execution_quality"))
    if status in _SUMMARIES:
        reason = one_line(f"the log's summary says {status}")
        found += [
            Fact("outcome", _SUMMARIES[status], rank=5),
            Fact("outcome_basis", "stated", rank=5),
            Fact("outcome_reason", reason, rank=5),
        ]
    if quality:
        found.append(Fact("execution_quality", quality, rank=5))
    if isinstance(record.get("needs_attention"), bool):
        found.append(Fact("needs_attention", "true" if record["needs_attention"] else "false"))
    if "old" in carry:
        found += _old_run(record)
    return found


def _old_run(record: dict[str, Any]) -> list[Record]:
    """A run of the first layout has no state.json: its summary is all there is."""
    found: list[Record] = []
    started = time_of(record.get("started_at"))
    if started:
        found.append(Fact("active_at", started))
    goal, duration = string(record.get("goal_id")), count_of(record.get("duration_ms"))
    if goal:
        found.append(Fact("task_ref", goal))
    if duration:
        found.append(
            Usage(session_key("duration:" + string(record.get("started_at"))), ts=started, duration_ms=duration)
        )
    return found
