"""System records, attachments, and the records without a uuid that say something about the session itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._claude_envelope import NAME_LIMIT, Envelope, Json, mapping, string
from sessiond.adapters._claude_user import parse_queued_command
from sessiond.adapters.base import count_of
from sessiond.adapters.wording import clip, first_line, one_line, searchable
from sessiond.model import Event, Fact, Kind, Role, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry, Record

_FAILURES = frozenset({"error", "api_refusal", "model_refusal_fallback"})


def parse_system(env: Envelope) -> list[Record]:
    record = env.record
    subtype = string(record.get("subtype")) or ""
    if subtype == "api_error":
        return env.alone(_api_error(env))
    if subtype in _FAILURES:
        said = (record.get("apiRefusalExplanation"), record.get("content"), record.get("error"))
        text = clip("\n".join(filter(None, map(searchable, said))))
        summary = first_line(text) or subtype
        return env.alone(env.event(Kind.ERROR, role=Role.SYSTEM, summary=summary, text=text, is_error=True))
    event = env.event(
        Kind.LIFECYCLE,
        role=Role.SYSTEM,
        summary=_system_summary(record, subtype),
        text=searchable([record.get("content"), record.get("hookErrors")]),
        is_error=bool(record.get("hookErrors")),
    )
    return env.alone(event)


def _system_summary(record: Json, subtype: str) -> str:
    if subtype == "compact_boundary":
        details = mapping(record.get("compactMetadata"))
        tokens = count_of(details.get("preTokens"))
        trigger = string(details.get("trigger")) or "unknown trigger"
        return one_line(f"compacted ({trigger})" + (f" at {tokens} tokens" if tokens is not None else ""))
    duration = count_of(record.get("durationMs"))
    if subtype == "turn_duration" and duration is not None:
        return f"turn took {duration / 1000:.1f} s"
    if subtype == "stop_hook_summary":
        errors = record.get("hookErrors")
        failed = len(errors) if isinstance(errors, list) else 0
        return f"{count_of(record.get('hookCount')) or 0} stop hooks ran" + (f", {failed} failed" if failed else "")
    return one_line(string(record.get("content")) or "") or one_line(subtype, NAME_LIMIT) or "system"


def _api_error(env: Envelope) -> Event:
    """A failed request: a retry, or the error that it ends in when there are no attempts left."""
    record = env.record
    attempt, most = count_of(record.get("retryAttempt")), count_of(record.get("maxRetries"))
    is_final = attempt is not None and most is not None and attempt >= most > 0
    error = record.get("error")
    status = mapping(error).get("status")
    what = f"API error {status}" if isinstance(status, int) and status else "API error"
    text = searchable(error)
    summary = f"{what}, attempt {attempt or 0} of {most or 0}"
    if reason := _reason(error):
        summary = f"{summary}: {reason}"
    kind = Kind.ERROR if is_final else Kind.RETRY
    return env.event(kind, role=Role.SYSTEM, summary=summary, text=text, is_error=is_final)


def _reason(error: Any) -> str:
    """The innermost message of an error that is wrapped in itself a few times."""
    found = ""
    for _ in range(4):
        if isinstance(error, str):
            return first_line(error)
        error = mapping(error)
        found = string(error.get("message")) or string(error.get("formatted")) or found
        error = error.get("error") or error.get("cause")
    return first_line(found)


def parse_attachment(env: Envelope) -> list[Record]:
    attachment = mapping(env.record.get("attachment"))
    name = attachment.get("type")
    if name == "queued_command":
        return parse_queued_command(env, attachment)
    if isinstance(name, str) and name.startswith("hook_") and "error" in name:
        hook = one_line(string(attachment.get("hookName")) or "hook", NAME_LIMIT)
        said = (attachment.get("blockingError"), attachment.get("stderr"), attachment.get("stdout"))
        text = clip("\n".join(filter(None, map(searchable, said))))
        summary = f"{hook}: {first_line(text) or name}"
        return env.alone(env.event(Kind.ERROR, role=Role.SYSTEM, summary=summary, text=text, is_error=True))
    return env.links()


# --- records about the session: no uuid, often no time ----------------------------------------------


def parse_title(env: Envelope, carry: Carry) -> list[Record]:
    """What a person called the session, what the model did, what the agent is called: in this order."""
    for rank, name in enumerate(("customTitle", "aiTitle", "agentName")):
        if title := one_line(string(env.record.get(name)) or ""):
            return changed(carry, name, Fact("title", title, rank))
    return []


def parse_last_prompt(env: Envelope, carry: Carry) -> list[Record]:
    prompt = one_line(string(env.record.get("lastPrompt")) or "")
    return changed(carry, "lastPrompt", Fact("last_prompt", prompt)) if prompt else []


def parse_pr_link(env: Envelope, carry: Carry) -> list[Record]:
    record = env.record
    number = record.get("prNumber")
    repository = string(record.get("prRepository")) or ""
    url = one_line(string(record.get("prUrl")) or "")
    url = url or (one_line(f"{repository}#{number}") if isinstance(number, int) else "")
    if not url:
        return []
    fact = changed(carry, "pr", Fact("task_ref", url))
    # The client writes it again at every start; the link happened once.
    return [*fact, _note(env, carry, f"pull request {url}", name="pr:" + url)] if fact else []


def parse_frame_link(env: Envelope, carry: Carry) -> list[Record]:
    url = string(env.record.get("frameUrl")) or string(env.record.get("path"))
    title = string(env.record.get("title")) or "artifact"
    return [_note(env, carry, one_line(f"{title}: {url}"), name="frame:" + url)] if url else []


def parse_mode(env: Envelope, carry: Carry) -> list[Record]:
    """A person changed how much the agent may do; how it was at the start is no decision."""
    field = "permissionMode" if env.record.get("type") == "permission-mode" else "mode"
    value = (string(env.record.get(field)) or "")[:NAME_LIMIT]
    before = carry.get(field)
    if not value or value == before:
        return []
    carry[field] = value
    if before is None:
        return []
    label = "permission mode" if field == "permissionMode" else "mode"
    return [_note(env, carry, one_line(f"{label}: {before} -> {value}"), kind=Kind.DECISION, role=Role.USER)]


def parse_relocation(env: Envelope, carry: Carry) -> list[Record]:
    cwd = string(env.record.get("relocatedCwd"))
    if cwd is not None:
        return [_note(env, carry, one_line(f"moved to {cwd}"))]
    worktree = mapping(env.record.get("worktreeSession"))
    path = string(worktree.get("worktreePath"))
    if path is None:
        return [_note(env, carry, "left the worktree")]
    branch = string(worktree.get("worktreeBranch"))
    return [_note(env, carry, one_line(f"in worktree {path}" + (f" on {branch}" if branch else "")))]


def _note(
    env: Envelope,
    carry: Carry,
    summary: str,
    *,
    name: str | None = None,
    kind: Kind = Kind.LIFECYCLE,
    role: Role = Role.SYSTEM,
) -> Event:
    return Event(
        kind=kind,
        key=session_key(name) if name else None,
        ts=env.ts or carry.get("ts"),  # those without a time happened when the record before them did
        role=role,
        summary=summary,
        text=summary,
        is_sidechain=env.is_sidechain,
    )


def changed(carry: Carry, name: str, fact: Fact) -> list[Record]:
    """The fact, unless it is what this file said last: a long file repeats it on every line."""
    if carry.get(name) == fact.value:
        return []
    carry[name] = fact.value
    return [fact]
