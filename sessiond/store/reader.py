"""Every SELECT that answers a person: sessions, events, exact records, changes. Returns model types, never rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessiond import model
from sessiond.errors import SessiondError, UsageError
from sessiond.model import Cost, Kind, Outcome, Role, Session, SessionEvent, State
from sessiond.store import archive
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import apsw


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions: several values of one field mean OR, several fields mean AND. Times as the store writes them."""

    agents: Sequence[str] = ()
    repos: Sequence[str] = ()  # a path, or its last part
    branches: Sequence[str] = ()
    models: Sequence[str] = ()
    outcomes: Sequence[str] = ()
    states: Sequence[str] = ()
    since: str | None = None
    until: str | None = None
    file: str | None = None  # sessions that edited this path
    changed_since: int | None = None
    active_since: str | None = None  # active since then...
    at_work_since: str | None = None  # ...or since then, with a call that has no result yet
    everything: bool = False  # sub-agents and sessions without events too
    limit: int | None = None


_SESSION = """
SELECT v.session_uid, v.flavor, v.native_session_id, v.repo, v.domain, v.cwd, v.git_branch, v.model,
       v.started_at, v.ended_at, v.outcome, v.outcome_basis, v.outcome_reason, v.task_ref, v.title, v.parent_uid,
       v.is_sidechain, v.discovered_at, v.ingested_at, v.analyzed_at, v.evicted_at, v.source_gone_at, v.pinned,
       v.events, v.revision,
       iif(EXISTS (SELECT 1 FROM _fact WHERE session_id = s.id AND name = 'turns_unknown'), NULL, s.turns),
       s.retries, u.input_tokens, u.output_tokens, u.cache_read, u.cache_write, u.duration_ms, f.path, f.bytes
  FROM _session AS s
  JOIN sessions AS v ON v.session_uid = s.uid
  LEFT JOIN LATERAL_USAGE AS u ON u.session_id = s.id
  LEFT JOIN LATERAL_FILES AS f ON f.session_id = s.id
"""
# SQLite has no LATERAL: the sums of the sessions asked for are made by a subquery over just those.
_USAGE = """
(SELECT session_id, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
        sum(cache_read_tokens) AS cache_read, sum(cache_write_tokens) AS cache_write, sum(duration_ms) AS duration_ms
   FROM _usage WHERE session_id IN (SELECT id FROM wanted) GROUP BY session_id)
"""
_FILES = """
(SELECT session_id, sum(size) AS bytes, path, min((role <> 'main') * (1 << 60) + id)  -- path: of that very row
   FROM _source WHERE session_id IN (SELECT id FROM wanted) AND role <> 'sidecar' GROUP BY session_id)
"""


def sessions(db: apsw.Connection, wanted: Wanted) -> list[Session]:
    """Newest activity first; with `changed_since`, in the order of their changes."""
    where, bound = _conditions(wanted)
    order = "s.revision" if wanted.changed_since is not None else "s.active_at DESC, s.id DESC"
    query = f"""
    WITH wanted AS (SELECT s.id FROM _session AS s WHERE {where} ORDER BY {order} LIMIT :limit)
    {_SESSION.replace("LATERAL_USAGE", _USAGE).replace("LATERAL_FILES", _FILES)}
     WHERE s.id IN (SELECT id FROM wanted) ORDER BY {order}
    """
    return [_session(row) for row in rows(db, query, bound)]


def session(db: apsw.Connection, uid: str) -> Session:
    """One session by its exact uid."""
    query = f"""
    WITH wanted AS (SELECT id FROM _session WHERE uid = :uid)
    {_SESSION.replace("LATERAL_USAGE", _USAGE).replace("LATERAL_FILES", _FILES)} WHERE s.uid = :uid
    """
    for row in rows(db, query, {"uid": uid}):
        return _session(row)
    raise SessiondError(f"there is no session {uid}", hint="sessiond sessions lists them")


def resolve_uid(db: apsw.Connection, text: str) -> str:
    """The one session that a person means: an exact uid, or a prefix of it, with or without the agent's name."""
    query = "SELECT uid FROM _session WHERE uid = :text OR native_id = :text ORDER BY uid <> :text LIMIT 2"
    exact = [str(row[0]) for row in rows(db, query, {"text": text})]
    if len(exact) == 1 or text in exact:
        return exact[0]
    query = """
    SELECT uid FROM _session
     WHERE substr(uid, 1, length(:text)) = :text OR substr(native_id, 1, length(:text)) = :text
     ORDER BY active_at DESC, id DESC LIMIT 6
    """
    found = [row[0] for row in rows(db, query, {"text": text})] if text else []
    if not found:
        raise SessiondError(f"there is no session {text!r}", hint="sessiond sessions lists them")
    if len(found) > 1:
        more = ", …" if len(found) > 5 else ""
        raise UsageError(f"{text!r} could be {', '.join(found[:5])}{more}", hint="give more of it")
    return str(found[0])


def is_uid(db: apsw.Connection, text: str) -> bool:
    """Whether this is the whole uid of a session."""
    return value(db, "SELECT 1 FROM _session WHERE uid = ?", (text,)) is not None


def newest_in(db: apsw.Connection, repo: str) -> str | None:
    """The session of this repository that was active last."""
    query = """
    SELECT uid FROM _session WHERE repo = ? AND events > 0 AND NOT is_sidechain ORDER BY active_at DESC, id DESC LIMIT 1
    """
    found = value(db, query, (repo,))
    return None if found is None else str(found)


def changes(db: apsw.Connection, after: int, limit: int) -> list[tuple[str, int]]:
    """(uid, revision) of every session that changed after this revision, in that order."""
    query = "SELECT uid, revision FROM _session WHERE revision > ? ORDER BY revision LIMIT ?"
    return [(row[0], row[1]) for row in rows(db, query, (after, limit))]


_EVENT = """
SELECT s.uid, e.seq, e.kind, e.ts, e.parent_seq, e.role, coalesce(e.tool, p.tool), e.summary,
       e.generation_id, e.start, e.length,
       (SELECT sum(ifnull(u.input_tokens, 0) + ifnull(u.output_tokens, 0) + ifnull(u.cache_read_tokens, 0)
                   + ifnull(u.cache_write_tokens, 0))
          FROM _usage AS u WHERE u.session_id = e.session_id AND u.seq = e.seq AND u.output_tokens IS NOT NULL),
       e.is_sidechain, e.is_error
  FROM _event AS e
  JOIN _session AS s ON s.id = e.session_id
  JOIN _generation AS g ON g.id = e.generation_id
  LEFT JOIN _event AS p ON e.kind IN ('tool_result', 'human_intervention')
        AND p.session_id = e.session_id AND p.seq = e.parent_seq
"""


def events(
    db: apsw.Connection,
    uid: str,
    *,
    first: int = 0,
    last: int | None = None,
    kinds: Sequence[str] = (),
    limit: int | None = None,
    superseded: bool = False,
) -> Iterator[SessionEvent]:
    """Events of one session in their order; with `limit`, the last so many of them."""
    kind = f"AND e.kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    hidden = "" if superseded else "AND g.closed_at IS NULL"
    query = f"""
    SELECT * FROM ({_EVENT} WHERE s.uid = ? AND e.seq >= ? AND e.seq <= ? {kind} {hidden} ORDER BY e.seq DESC LIMIT ?)
     ORDER BY 2
    """
    bound = (uid, first, 2**62 if last is None else last, *kinds, -1 if limit is None else limit)
    for row in db.execute(query, bound):
        yield _event(row)


def events_by_id(db: apsw.Connection, ids: Sequence[int]) -> dict[int, SessionEvent]:
    """Live events by the id that the search index knows them by."""
    query = f"{_EVENT.replace('SELECT s.uid', 'SELECT e.id, s.uid', 1)} WHERE e.id = ? AND g.closed_at IS NULL"
    return {row[0]: _event(row[1:]) for id_ in ids for row in rows(db, query, (id_,))}


def main_generation(db: apsw.Connection, uid: str) -> int | None:
    """The content of a session's main file as it is now; of several copies, the one that was read furthest."""
    query = """
    SELECT f.generation_id FROM _source AS f JOIN _session AS s ON s.id = f.session_id
     WHERE s.uid = ? AND f.role = 'main' AND f.generation_id IS NOT NULL ORDER BY f.read_offset DESC, f.id LIMIT 1
    """
    found = value(db, query, (uid,))
    return None if found is None else int(found)


def payload(db: apsw.Connection, event: SessionEvent) -> bytes:
    """The exact record that an event was made of. archive.Missing where it was evicted."""
    if event.payload_ref is None:
        raise archive.Missing("this event has no record")
    generation, start, length = (int(part) for part in event.payload_ref.split(":"))
    return archive.read(db, generation, start, length)


def register_flavors(db: apsw.Connection) -> None:
    """A flavor that is in the store is known, also when its adapter is not installed any more."""
    model.FLAVORS.update(row[0] for row in rows(db, "SELECT DISTINCT flavor FROM _session ORDER BY flavor"))


def _conditions(wanted: Wanted) -> tuple[str, dict[str, Any]]:
    parts = ["1"]
    bound: dict[str, Any] = {"limit": -1 if wanted.limit is None else wanted.limit}

    def any_of(column: str, values: Sequence[str]) -> None:
        if values:
            names = [f":v{len(bound) + number}" for number in range(len(values))]
            bound.update({name[1:]: each for name, each in zip(names, values, strict=True)})
            parts.append(f"{column} IN ({', '.join(names)})")

    any_of("s.flavor", wanted.agents)
    any_of("s.git_branch", wanted.branches)
    any_of("(SELECT v.model FROM sessions AS v WHERE v.session_uid = s.uid)", wanted.models)
    any_of("s.outcome", wanted.outcomes)
    any_of(_STATE, wanted.states)
    for number, repo in enumerate(wanted.repos):
        bound[f"repo{number}"] = repo
    if wanted.repos:
        tests = [_is_path_or_end("s.repo", f":repo{n}") for n in range(len(wanted.repos))]
        parts.append(f"({' OR '.join(tests)})")
    if wanted.since is not None:
        parts.append("s.active_at >= :since")
        bound["since"] = wanted.since
    if wanted.until is not None:
        parts.append("ifnull(s.started_at, s.discovered_at) < :until")
        bound["until"] = wanted.until
    if wanted.file is not None:
        parts.append(f"s.id IN (SELECT session_id FROM _file WHERE {_is_path_or_end('path', ':file')})")
        bound["file"] = wanted.file
    if wanted.active_since is not None:
        parts.append(f"(s.active_at >= :active_since OR (s.active_at >= :at_work_since AND EXISTS ({_OPEN_CALL})))")
        bound.update(active_since=wanted.active_since, at_work_since=wanted.at_work_since or wanted.active_since)
    if wanted.changed_since is not None:
        parts.append("s.revision > :changed_since")
        bound["changed_since"] = wanted.changed_since
    if not wanted.everything and wanted.changed_since is None:
        parts.append("s.events > 0 AND NOT s.is_sidechain")
    return " AND ".join(parts), bound


def _is_path_or_end(column: str, name: str) -> str:
    return f"({column} = {name} OR substr({column}, -length({name}) - 1) = '/' || {name})"


# Among its last events only: a call that was left open long ago says nothing about now.
_OPEN_CALL = """
SELECT 1 FROM _event AS c WHERE c.session_id = s.id AND c.seq > s.next_seq - 200
   AND c.kind IN ('tool_call', 'edit', 'test_run', 'decision')
   AND NOT EXISTS (SELECT 1 FROM _event AS r WHERE r.session_id = s.id AND r.seq > s.next_seq - 200
                      AND r.parent_seq = c.seq AND r.kind IN ('tool_result', 'human_intervention'))
"""
_STATE = """
CASE WHEN s.evicted_at IS NOT NULL THEN 'evicted' WHEN s.analyzed_at IS NOT NULL THEN 'analyzed'
     WHEN s.ingested_at IS NOT NULL THEN 'ingested' ELSE 'discovered' END
"""


def _session(row: tuple[Any, ...]) -> Session:
    (uid, flavor, native, repo, domain, cwd, branch, model_name, started, ended, outcome, basis, reason, task, title,
     parent, sidechain, discovered, ingested, analyzed, evicted, gone, pinned, events_, revision, turns, retries,
     input_, output, cache_read, cache_write, duration_ms, path, size) = row  # fmt: skip
    is_spent = (input_, output, cache_read, cache_write) != (None,) * 4
    cost = Cost(
        input_tokens=input_,
        output_tokens=output,
        cache_tokens=(cache_read or 0) + (cache_write or 0) if is_spent else None,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        wall_clock_s=_wall_clock(duration_ms, started, ended),
        turns=turns,
        retries=retries,
    )
    return Session(
        session_uid=uid,
        flavor=flavor,
        native_session_id=native,
        repo=repo,
        domain=domain,
        cwd=cwd,
        git_branch=branch,
        model=model_name,
        started_at=started,
        ended_at=ended,
        outcome=Outcome(outcome),
        outcome_basis=basis,
        outcome_reason=reason,
        cost=cost,
        task_ref=task,
        source_path=None if path is None else os.fsdecode(path),
        source_bytes=size,
        discovered_at=discovered,
        ingested_at=ingested,
        analyzed_at=analyzed,
        evicted_at=evicted,
        title=title,
        parent_uid=parent,
        is_sidechain=bool(sidechain),
        state=_state(ingested, analyzed, evicted),
        source_gone_at=gone,
        pinned=bool(pinned),
        last_event_at=ended,
        revision=revision,
        events=events_,
    )


def _state(ingested: str | None, analyzed: str | None, evicted: str | None) -> State:
    if evicted is not None:
        return State.EVICTED
    if analyzed is not None:
        return State.ANALYZED
    return State.DISCOVERED if ingested is None else State.INGESTED


def _wall_clock(duration_ms: int | None, started: str | None, ended: str | None) -> float | None:
    if duration_ms is not None:
        return duration_ms / 1000
    if started is None or ended is None:
        return None
    return (model.parse_utc(ended) - model.parse_utc(started)).total_seconds()


def _event(row: Any) -> SessionEvent:
    (uid, seq, kind, ts, parent, role, tool, summary, generation, start, length, tokens, sidechain, error) = row
    return SessionEvent(
        session_uid=uid,
        seq=seq,
        kind=Kind(kind),
        ts=ts,
        parent_seq=parent,
        role=None if role is None else Role(role),
        tool=tool,
        summary=summary,
        payload_ref=f"{generation}:{start}:{length}",
        tokens=tokens,
        is_sidechain=bool(sidechain),
        is_error=bool(error),
    )
