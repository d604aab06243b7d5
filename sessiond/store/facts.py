"""What agents say about a session, and which sessions belong together.

Facts are ranked: the smallest rank wins, whatever order the files came in; among equals the last one, or the first
where the adapter asks for it. The few that every list shows are columns of `_session` as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.store import lineage

if TYPE_CHECKING:
    import apsw

    from sessiond.model import Fact
    from sessiond.store.resolve import Tally
    from sessiond.store.session_row import SessionRow

_COLUMNS = {
    "title",
    "cwd",
    "repo",
    "domain",
    "git_branch",
    "model",
    "task_ref",
    "outcome",
    "outcome_basis",
    "outcome_reason",
}

_UPSERT = """
INSERT INTO _fact (session_id, name, rank, value) VALUES (:session, :name, :rank, :value)
ON CONFLICT DO UPDATE SET rank = excluded.rank, value = excluded.value
 WHERE excluded.rank < rank OR (excluded.rank = rank AND NOT :first AND excluded.value <> value)
"""


def apply(db: apsw.Connection, session: SessionRow, flavor: str, fact: Fact, tally: Tally) -> None:
    if fact.name == "active_at":
        _widen(session, fact.value)
        return
    bound = {"session": session.id, "name": fact.name, "rank": fact.rank, "value": fact.value, "first": fact.first}
    db.execute(_UPSERT, bound)
    if not db.changes():
        return
    session.is_changed = True
    if fact.name in ("started_at", "ended_at"):
        session.cover_stated(fact.name, fact.value)
    if fact.name in _COLUMNS:
        db.execute(f"UPDATE _session SET {fact.name} = ? WHERE id = ?", (fact.value, session.id))
    elif fact.name == "parent":
        parent = f"{flavor}:{fact.value}"
        if parent != session.uid:
            db.execute("UPDATE _session SET parent = ? WHERE id = ?", (parent, session.id))
            tally.unindex += lineage.join(db, session.uid, parent)


def _widen(session: SessionRow, ts: str) -> None:
    before = session.started_at, session.ended_at
    session.cover(ts)
    session.is_changed |= before != (session.started_at, session.ended_at)
