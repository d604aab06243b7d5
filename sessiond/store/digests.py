"""Digests and what they are folded from: which sessions are due, their events as steps, and the one write at the end.

A digest is JSON to the store (docs/digest.md); what it says is the passes' business.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.model import Kind, Role, Step
from sessiond.store import archive
from sessiond.store.connect import rows, value
from sessiond.store.session_row import next_revision

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import apsw

STEPS = 2000  # read at a time: memory does not grow with the session


@dataclass(frozen=True, slots=True)
class Due:
    """A session that is to be digested, as it was when it was looked at."""

    row: int
    uid: str
    title: str | None
    active_at: str
    stored_at: str | None  # when its newest event came in
    is_sidechain: bool
    last_seq: int
    digested_seq: int
    evicted_seq: int
    refold: int  # see session_row
    alterations: int
    revision: int
    stated: tuple[str, str | None] | None  # outcome and reason, where the agent says so itself
    pid: str | None  # of the process that runs it, where the agent says so


@dataclass(frozen=True, slots=True)
class Distilled:
    """What a pass made of a session."""

    due: Due
    digest: dict[str, Any]
    outcome: str
    basis: str | None
    reason: str | None
    outcome_due_at: str | None
    has_new_errors: bool


_DUE = """
SELECT s.id, s.uid, s.title, s.active_at, s.stored_at, s.is_sidechain, s.next_seq - 1, s.digested_seq,
       s.evicted_seq, s.refold, s.alterations, s.revision,
       (SELECT value FROM _fact WHERE session_id = s.id AND name = 'outcome'),
       (SELECT value FROM _fact WHERE session_id = s.id AND name = 'outcome_reason'),
       (SELECT nullif(value, 'none') FROM _fact WHERE session_id = s.id AND name = 'running_pid')
  FROM _session AS s
"""


def due(db: apsw.Connection, *, quiet_before: str, waiting_since: str, beyond: str, now: str) -> list[int]:
    """The rows of sessions that nothing was stored of since `quiet_before`, that wait since `waiting_since`, or whose
    outcome can be told now; those that wait longest first. One stored after `beyond`, which is still to come, does not
    wait for it: the clock was set back.
    """
    query = """
    SELECT s.id FROM _session AS s WHERE s.id IN (
        SELECT id FROM _session WHERE stale_since IS NOT NULL
           AND (ifnull(stored_at, discovered_at) <= :quiet_before OR ifnull(stored_at, discovered_at) > :beyond
                OR stale_since <= :waiting_since)
        UNION SELECT id FROM _session WHERE outcome_due_at <= :now)
     ORDER BY ifnull(s.stale_since, s.outcome_due_at), s.id
    """
    bound = {"quiet_before": quiet_before, "waiting_since": waiting_since, "beyond": beyond, "now": now}
    return [row for (row,) in rows(db, query, bound)]


def one(db: apsw.Connection, row: int) -> Due | None:
    """This session as it is now, due or not."""
    for found in rows(db, f"{_DUE} WHERE s.id = ?", (row,)):
        return _due(found)
    return None


def _due(row: tuple[Any, ...]) -> Due:
    id_, uid, title, active_at, stored_at, is_side, *numbers, outcome, reason, pid = row
    last_seq, digested_seq, evicted_seq, refold, alterations, revision = numbers
    return Due(
        row=id_,
        uid=uid,
        title=title,
        active_at=active_at,
        stored_at=stored_at,
        is_sidechain=bool(is_side),
        last_seq=last_seq,
        digested_seq=digested_seq,
        evicted_seq=evicted_seq,
        refold=refold,
        alterations=alterations,
        revision=revision,
        stated=None if outcome is None else (outcome, reason),
        pid=pid,
    )


def stored(db: apsw.Connection, row: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The digest of a session, and that of its evicted part: what its events that are still here are folded onto."""
    for data, base in rows(db, "SELECT data, base FROM _digest WHERE session_id = ?", (row,)):
        return orjson.loads(data), None if base is None else orjson.loads(base)
    return None, None


def by_uid(db: apsw.Connection, uid: str) -> dict[str, Any] | None:
    """The digest of a session as other programs see it."""
    found = value(db, "SELECT digest FROM digests WHERE session_uid = ?", (uid,))
    return None if found is None else dict(orjson.loads(found))


def models(db: apsw.Connection, row: int) -> list[str]:
    """The models that a session used, by name. As fast for a long session as for a short one: from one name the index
    leads straight to the next.
    """
    query = """
    WITH RECURSIVE used (model) AS (
        SELECT min(model) FROM _usage WHERE session_id = :row
        UNION ALL
        SELECT (SELECT min(model) FROM _usage WHERE session_id = :row AND model > used.model)
          FROM used WHERE model IS NOT NULL)
    SELECT model FROM used WHERE model IS NOT NULL ORDER BY model LIMIT 20
    """
    found = [str(model) for (model,) in rows(db, query, {"row": row})]
    if not found:
        found = [model for (model,) in rows(db, "SELECT model FROM _session WHERE id = ?", (row,)) if model]
    return found


_STEPS = """
SELECT e.seq, e.kind, e.ts, e.role, e.tool, e.summary, e.detail, e.parent_seq, e.is_sidechain, e.is_error, e.is_turn,
       e.generation_id, e.start, e.length
  FROM _event AS e JOIN _generation AS g ON g.id = e.generation_id
 WHERE e.session_id = ? AND e.seq > ? AND e.seq <= ? AND g.closed_at IS NULL
 ORDER BY e.seq LIMIT ?
"""
_EDITED = "SELECT seq, path FROM _file WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq, path"


def steps(db: apsw.Connection, row: int, after: int, through: int) -> Iterator[list[Step]]:
    """The events of a session after one and through another, some at a time; superseded ones are left out."""
    while True:
        found = rows(db, _STEPS, (row, after, through, STEPS))
        if not found:
            return
        last = found[-1][0]
        edited = rows(db, _EDITED, (row, after, last))
        files = {seq: tuple(path for _, path in some) for seq, some in groupby(edited, key=lambda each: each[0])}
        yield [_step(db, each, files) for each in found]
        after = last


def _step(db: apsw.Connection, row: tuple[Any, ...], files: dict[int, tuple[str, ...]]) -> Step:
    seq, kind, ts, role, tool, summary, detail, parent, sidechain, error, turn, generation, start, length = row
    if detail is None and error and kind == Kind.TOOL_RESULT:
        detail = _told_apart(db, generation, start, length)
    return Step(
        seq=seq,
        kind=Kind(kind),
        ts=ts,
        role=None if role is None else Role(role),
        tool=tool,
        summary=summary,
        detail=detail,
        parent_seq=parent,
        is_sidechain=bool(sidechain),
        is_error=bool(error),
        is_turn=bool(turn),
        files=files.get(seq, ()),
    )


def _told_apart(db: apsw.Connection, generation: int, start: int, length: int) -> str | None:
    """The longest words of a result that turned out to be an error after it was stored, by another record."""
    try:
        record = orjson.loads(archive.read(db, generation, start, length))
    except (archive.Missing, orjson.JSONDecodeError):
        return None
    longest = max(archive.strings(record), key=len, default="")
    return longest if len(longest) <= 2000 else f"{longest[:1200]}\n...\n{longest[-800:]}"


_SAVE = """
UPDATE _session
   SET digested_seq = :through, refold = 0, analyzed_at = iif(next_seq - 1 = :through, :now, NULL),
       stale_since = iif(revision = :seen, NULL, stale_since),
       outcome = :outcome, outcome_basis = :basis, outcome_reason = :reason, outcome_due_at = :due_at,
       revision = :revision
 WHERE id = :id AND alterations = :alterations AND evicted_seq = :evicted_seq
"""


def save(db: apsw.Connection, distilled: Distilled, now: str) -> bool:
    """Keep a digest; False, and nothing is written, where the events it was made of have changed meanwhile."""
    due = distilled.due
    bound = {
        "id": due.row,
        "through": due.last_seq,
        "now": now,
        "seen": due.revision,
        "outcome": distilled.outcome,
        "basis": distilled.basis,
        "reason": distilled.reason,
        "due_at": distilled.outcome_due_at,
        "alterations": due.alterations,
        "evicted_seq": due.evicted_seq,
        "revision": next_revision(db),
    }
    db.execute(_SAVE, bound)
    if not db.changes():
        return False
    data = orjson.dumps(distilled.digest, option=orjson.OPT_SORT_KEYS).decode()
    upsert = "INSERT INTO _digest (session_id, data) VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data"
    db.execute(upsert, (due.row, data))
    if distilled.has_new_errors:
        _save_errors(db, due.row, distilled.digest.get("error_snippets", ()))
    _save_signals(db, due, distilled.digest.get("signals", ()))
    entry = orjson.dumps({"remove": [], "add": [], "digests": [[due.row, search_text(distilled.digest)]]})
    db.execute("INSERT INTO _outbox (data) VALUES (?)", (archive.compress(entry),))
    return True


_OCCURRED = """
INSERT INTO _occurrence VALUES (:fingerprint, :session, :tool, :sample, :count, :first_seq, :last_seq, :first_at,
                                :last_at, :followed_by, :recovered_by)
"""


def _save_errors(db: apsw.Connection, row: int, snippets: Sequence[dict[str, Any]]) -> None:
    db.execute("DELETE FROM _occurrence WHERE session_id = ?", (row,))
    for snippet in snippets:
        actions = {name: _json(snippet[name]) for name in ("followed_by", "recovered_by")}
        db.execute(_OCCURRED, {**snippet, **actions, "session": row, "tool": snippet["tool"] or ""})


def _save_signals(db: apsw.Connection, due: Due, signals: Sequence[dict[str, Any]]) -> None:
    """Every time, not only after new errors: the outcome makes signals too."""
    db.execute("DELETE FROM _signal WHERE session_id = ?", (due.row,))
    for place, each in enumerate(signals):
        seq = next(iter(each["seqs"]), due.last_seq)
        bound = (due.row, place, each["signal"], seq, each["detail"], each["fingerprint"])
        db.execute("INSERT INTO _signal VALUES (?, ?, ?, ?, ?, ?)", bound)


def _json(found: Any) -> str | None:
    return None if found is None else orjson.dumps(found).decode()


def search_text(digest: dict[str, Any]) -> str:
    """What an evicted session is found by."""
    parts = [digest.get(name) for name in ("title", "outcome_reason", "first_prompt", "last_prompt", "last_answer")]
    parts += (each["path"] for each in digest.get("files", ()))
    parts += (each["command"] for each in digest.get("commands", ()))
    parts += (each["sample"] for each in digest.get("error_snippets", ()))
    parts += (each["summary"] for each in digest.get("decisions", ()))
    return "\n".join(part for part in parts if part)


def evicted_uid(db: apsw.Connection, row: int) -> list[str]:
    """The session's uid if any of its events have left; nothing else."""
    return [uid for (uid,) in rows(db, "SELECT uid FROM _session WHERE id = ? AND evicted_seq > 0", (row,))]


def texts(db: apsw.Connection) -> Iterator[tuple[int, str]]:
    """(session, what it is found by) of every digest: what the index over them is made of when it is made again."""
    for (row,) in rows(db, "SELECT session_id FROM _digest ORDER BY session_id"):
        found = value(db, "SELECT data FROM _digest WHERE session_id = ?", (row,))
        if found is not None:
            yield row, search_text(orjson.loads(found))
