"""Sessions that a person wants to keep whatever the watermarks say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.errors import SessiondError
from sessiond.store.connect import rows
from sessiond.store.session_row import next_revision

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from sessiond.store.writer import Writer

# A session and the sub-agents that are sessions of their own: without them it could not be restored whole.
FAMILY = """
WITH RECURSIVE family (id, uid) AS (
    SELECT id, uid FROM _session WHERE uid = :uid
    UNION
    SELECT c.id, c.uid FROM _session AS c JOIN family AS f ON c.parent = f.uid WHERE c.is_sidechain
)
"""
_PIN = f"""
{FAMILY} UPDATE _session SET pinned = :pinned, revision = :revision
 WHERE id IN (SELECT id FROM family) AND pinned <> :pinned
RETURNING uid
"""


def set_pinned(writer: Writer, uids: Sequence[str], *, pinned: bool) -> dict[str, Any]:
    """Keep these sessions, sub-agents included, or no longer; all of them or, where one is unknown, none."""
    return writer.call(lambda db: _set_pinned(db, uids, pinned=pinned))


def _set_pinned(db: apsw.Connection, uids: Sequence[str], *, pinned: bool) -> dict[str, Any]:
    changed: list[str] = []
    unchanged: list[str] = []
    evicted: list[str] = []
    for uid in dict.fromkeys(uids):
        found = rows(db, "SELECT evicted_seq FROM _session WHERE uid = ?", (uid,))
        if not found:
            raise SessiondError(f"there is no session {uid}", hint="sessiond sessions lists them")
        bound = {"uid": uid, "pinned": pinned, "revision": next_revision(db)}
        touched = sorted(each for (each,) in rows(db, _PIN, bound))
        changed += touched
        unchanged += [] if uid in touched else [uid]
        evicted += [uid] if found[0][0] else []
    return {"pinned": pinned, "changed": changed, "unchanged": unchanged, "evicted": evicted}
