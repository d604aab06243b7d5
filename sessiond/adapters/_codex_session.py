"""What a thread is: whose, where, from which parent, under which model and policy (`session_meta`, `turn_context`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._codex_text import without_userinfo
from sessiond.adapters._codex_usage import enter_review
from sessiond.adapters.base import text_of, time_of
from sessiond.adapters.wording import task_ref_in
from sessiond.model import Kind, session_key

if TYPE_CHECKING:
    from sessiond.adapters._codex_reading import Reading

_INTERNALS = {"guardian", "memory_consolidation", "compact"}
_BEGUN = {"turn", "model", "last", "vector", "ui"}  # what the carry knows once anything happened


def is_side(meta: dict[str, Any]) -> bool:
    """Whether the thread was started by an agent (or by Codex itself) and not by a person."""
    source = meta.get("source")
    if isinstance(source, dict):
        return bool(source.get("subagent") or source.get("internal"))
    return meta.get("thread_source") == "subagent"


def _is_internal(meta: dict[str, Any]) -> bool:
    source = meta.get("source")
    if not isinstance(source, dict):
        return meta.get("thread_source") == "memory_consolidation"
    what = source.get("subagent")
    if isinstance(what, dict):
        what = what.get("other")
    return bool(source.get("internal")) or (isinstance(what, str) and what in _INTERNALS)


def session_meta(meta: dict[str, Any], reading: Reading) -> None:
    """The first one says whose file this is; any later one is its parent's, copied, or its own again after a resume."""
    if "id" in reading.carry:
        _another_meta(meta, reading)
        return
    carry = reading.carry
    own_id = text_of(meta.get("id"))[:200]
    carry["id"], carry["side"] = own_id, is_side(meta)
    source = meta.get("source")
    what = source.get("subagent") if isinstance(source, dict) else None
    if carry["side"] and not meta.get("forked_from_id"):
        carry["seed"] = carry["chain"] = own_id
    if what == "review":
        carry["reviewer"] = True
        enter_review(reading)
    start = meta.get("subagent_history_start_ordinal")
    if isinstance(start, int) and not isinstance(start, bool):
        carry["own_from"] = start
    path = meta.get("agent_path") or _spawn(what).get("agent_path")
    if isinstance(path, str) and path:
        carry["agent_path"] = path[:200]
    if isinstance(meta.get("cwd"), str):
        carry["cwd"] = meta["cwd"][:1000]
    _own_facts(meta, what, reading)
    version, by = text_of(meta.get("cli_version")), what if isinstance(what, str) else source
    words = f"session started: codex {version} {by if isinstance(by, str) else 'sub-agent' if what else ''}"
    reading.event(Kind.LIFECYCLE, session_key("meta"), summary=words)
    carry.pop("last")  # it is before the first turn, not of it


def _own_facts(meta: dict[str, Any], what: Any, reading: Reading) -> None:
    reading.fact("started_at", time_of(meta.get("timestamp")), first=True)
    reading.fact("cwd", meta.get("cwd"), first=True)
    reading.fact("version", meta.get("cli_version"))
    parent = meta.get("parent_thread_id") or _spawn(what).get("parent_thread_id")
    forked = meta.get("forked_from_id")
    reading.fact("parent", parent or forked)
    if parent and forked != parent:
        reading.fact("parent", forked, rank=1)
    if forked:
        reading.carry["replays"] = True
    if _is_internal(meta):
        reading.fact("internal", "1")
    _git_facts(meta.get("git"), reading)


def _git_facts(git: Any, reading: Reading) -> None:
    if not isinstance(git, dict):
        return
    branch, url = git.get("branch"), git.get("repository_url")
    reading.fact("git_branch", branch)
    if isinstance(branch, str):
        reading.fact("task_ref", task_ref_in(branch), rank=6, first=True)
    if isinstance(url, str):
        reading.fact("repository_url", without_userinfo(url))


def _spawn(what: Any) -> dict[str, Any]:
    spawn = what.get("thread_spawn") if isinstance(what, dict) else None
    return spawn if isinstance(spawn, dict) else {}


def _another_meta(meta: dict[str, Any], reading: Reading) -> None:
    carry = reading.carry
    other = text_of(meta.get("id"))[:200]
    if not other or other == carry["id"]:
        return
    if not _BEGUN.isdisjoint(carry) and not carry.get("replays"):
        return  # a copy stands at the beginning
    if not carry.get("replays"):  # it repeats its parent after all: named from here on as the parent names
        carry["replays"] = True
        carry.pop("seed", None)
        carry.pop("chain", None)
        if "parent=0" not in carry:
            reading.fact("parent", other, rank=2, first=True)
    if is_side(meta):
        carry["nested"] = min(other, carry.get("nested", other))


def turn_context(context: dict[str, Any], reading: Reading) -> None:
    """One per request or per turn, the same again and again: only what it changes is worth telling."""
    reading.enter_turn(context.get("turn_id"))
    carry = reading.carry
    sandbox = context.get("sandbox_policy")
    sandbox = sandbox.get("type") or sandbox.get("mode") if isinstance(sandbox, dict) else sandbox
    policy = " ".join(filter(None, (text_of(context.get("approval_policy")), text_of(sandbox))))
    now = {"model": text_of(context.get("model")), "cwd": text_of(context.get("cwd")), "policy": policy}
    changes = []
    for name, value in now.items():
        if value and (before := carry.get(name)) != value:
            carry[name] = value[:1000]
            if before is not None:
                changes.append(f"{name} {before} -> {value}")
            elif name != "policy":  # what it begins with was no one's decision
                changes.append(f"{name} {value}")
    reading.fact("model", now["model"])
    reading.fact("last_cwd", now["cwd"])
    if changes:
        is_policy = changes[-1].startswith("policy ")
        kind = Kind.DECISION if is_policy else Kind.LIFECYCLE
        reading.event(kind, reading.key("x", *now.values()), summary="; ".join(changes))
