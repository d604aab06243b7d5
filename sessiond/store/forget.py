"""Forgetting sessions: deleted from every table, index and copy of ours, and never taken in again.

First one short transaction buries them: tombstones, and on record which rows are to go. From then on they are
forgotten, whatever happens; a kill leaves the record, and `resume_forgetting` goes on. Then their rows are deleted,
some at a time, the index forgets their words, and what both databases had in unused room is overwritten.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.errors import SessiondError
from sessiond.store import connect, deletion, space, tombstones, wipe
from sessiond.store.connect import rows, value
from sessiond.store.pinned import FAMILY
from sessiond.store.session_row import next_revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import apsw

    from sessiond.paths import Paths
    from sessiond.store.search import SearchIndex
    from sessiond.store.writer import Writer

INDEX_SECONDS = 600.0
WIPE_TRIES = 50  # of a tenth of a second each: a reader of ours is done within one

_MARK = "SELECT value FROM _meta WHERE name = 'forgetting'"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would go: the sessions asked for and their sub-agents. `kin` stay, and may repeat what these say."""

    uids: list[str]
    bytes: dict[str, int]  # uid -> what the archive holds of it, compressed
    kin: list[str]


_SIZE = f"""
{FAMILY} SELECT f.uid, ifnull(sum(length(r.data)), 0)
  FROM family AS f LEFT JOIN _source AS o ON o.session_id = f.id LEFT JOIN _generation AS g ON g.source_id = o.id
  LEFT JOIN _frame AS r ON r.generation_id = g.id
 GROUP BY f.id ORDER BY f.uid <> :uid, f.id
"""


def plan(db: apsw.Connection, uids: Sequence[str]) -> Plan:
    """What forgetting these sessions would take with it."""
    sizes: dict[str, int] = {}
    for uid in uids:
        sizes |= dict(rows(db, _SIZE, {"uid": uid}))
    return Plan(list(sizes), sizes, _kin(db, set(sizes)))


def active_before(db: apsw.Connection, moment: str) -> set[str]:
    """Sessions whose last activity lies before then."""
    return {uid for (uid,) in rows(db, "SELECT uid FROM _session WHERE active_at < ?", (moment,))}


def places(db: apsw.Connection) -> Iterator[tuple[str, list[str]]]:
    """Each session and where it was at work; where it never said, the paths of its files."""
    query = "SELECT id, uid, cwd, repo FROM _session ORDER BY id"
    for row, uid, cwd, repo in rows(db, query):
        known = [place for place in (cwd, repo) if place is not None]
        files = () if known else rows(db, "SELECT path FROM _source WHERE session_id = ? ORDER BY id", (row,))
        yield uid, known or [os.fsdecode(path) for (path,) in files]


def pinned_among(db: apsw.Connection, uids: Sequence[str]) -> set[str]:
    return {uid for (uid,) in rows(db, "SELECT uid FROM _session WHERE pinned")}.intersection(uids)


def _kin(db: apsw.Connection, uids: set[str]) -> list[str]:
    """Sessions joined to these by forks, in either direction: their files repeat what was said before the fork."""
    joined: dict[str, set[str]] = {}
    for uid, parent in rows(db, "SELECT session_uid, parent_uid FROM sessions WHERE NOT is_sidechain ORDER BY 1"):
        if parent is not None:
            joined.setdefault(uid, set()).add(parent)
            joined.setdefault(parent, set()).add(uid)
    found, waiting = set(uids), list(uids)
    while waiting:
        new = joined.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    stored = "SELECT 1 FROM _session WHERE uid = ?"
    return sorted(uid for uid in found - uids if value(db, stored, (uid,)))


def forget(
    writer: Writer,
    search: SearchIndex,
    paths: Paths,
    uids: Sequence[str],
    *,
    leave_alone: Callable[[list[str]], None] = lambda _: None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Delete these sessions from all tiers; when this returns, no file of ours holds a word of them.

    `leave_alone` is told the paths of their files: whoever reads them now must drop what he remembers.
    """
    with connect.reading(paths.store) as db:
        planned = plan(db, uids)
    at = now or datetime.now(UTC)
    files = writer.call(lambda db: _bury(db, uids, at))
    leave_alone([os.fsdecode(path) for path in files])
    report = _finish(writer, search, paths)
    return {
        "forgotten": planned.uids,
        "bytes": sum(planned.bytes.values()),
        "also_held_by": planned.kin,
        **report,
    }


def resume_forgetting(writer: Writer, search: SearchIndex, paths: Paths) -> dict[str, Any] | None:
    """Go on where a kill, or a reader in the way, stopped it; None where nothing is left to be done."""
    with connect.reading(paths.store) as db:
        if value(db, _MARK) is None:
            return None
    return _finish(writer, search, paths)


# --- burying ------------------------------------------------------------------------------------


def _bury(db: apsw.Connection, uids: Sequence[str], now: datetime) -> list[bytes]:
    """The tombstones, and which rows are to go. From here on the sessions are forgotten."""
    buried: dict[int, str] = {}
    for uid in uids:
        found = rows(db, f"{FAMILY} SELECT id, uid FROM family ORDER BY id", {"uid": uid})
        if not found:
            raise SessiondError(f"there is no session {uid}", hint="sessiond sessions lists them")
        buried.update(found)
    query = f"SELECT path FROM _source WHERE id IN ({deletion.FILES}) ORDER BY id"
    files = [path for row in buried for (path,) in rows(db, query, {"id": row})]
    tombstones.bury(db, buried.values(), files, now)
    marked = _marked(db)
    _mark(db, [*marked, *(row for row in buried if row not in marked)])
    next_revision(db)
    return files


def _marked(db: apsw.Connection) -> list[int]:
    found = value(db, _MARK)
    return [] if found is None else list(orjson.loads(found))


def _mark(db: apsw.Connection, marked: list[int]) -> None:
    db.execute("INSERT OR REPLACE INTO _meta VALUES ('forgetting', ?)", (orjson.dumps(marked).decode(),))


def _unmark(db: apsw.Connection) -> None:
    """Unless more was buried meanwhile."""
    db.execute("DELETE FROM _meta WHERE name = 'forgetting' AND value = '[]'")


# --- deleting -----------------------------------------------------------------------------------


def _finish(writer: Writer, search: SearchIndex, paths: Paths) -> dict[str, Any]:
    """All that is marked, to the end. SessiondError where something is in the way: the mark stays then."""
    writer.call(lambda db: tombstones.keep_copy(db, paths.store))
    marked = writer.call(_marked)
    deletion.delete_names(writer, paths.store, marked)
    for row in marked:
        deletion.delete_rows(writer, row)
        writer.call(lambda db, row=row: _end(db, row))  # type: ignore[misc]
    _empty_outbox(writer, search, paths)
    if not space.give_back(writer, search):
        raise _in_the_way()
    _wipe_store(writer, paths)
    _wipe_index(search, paths)
    removed = _remove_copies(paths)
    writer.call(_unmark)
    return {"removed_copies": removed, "damaged_copies": _damaged_copies(paths)}


def _end(db: apsw.Connection, row: int) -> None:
    deletion.delete_session(db, row)
    _mark(db, [each for each in _marked(db) if each != row])


_TRIM = """
INSERT INTO _counter VALUES ('search_trimmed', ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)
"""


def _empty_outbox(writer: Writer, search: SearchIndex, paths: Paths) -> None:
    """Have the index take in everything up to now, and keep none of it: those entries are the words themselves."""
    with connect.reading(paths.store) as db:
        newest = value(db, "SELECT seq FROM sqlite_sequence WHERE name = '_outbox'") or 0
    if not search.catch_up_now(INDEX_SECONDS):
        raise SessiondError(
            "the search index does not follow, so it may still hold words of what was forgotten",
            hint="sessiond status says why; it is finished when the daemon starts again",
        )

    def trim(db: apsw.Connection) -> None:
        db.execute("DELETE FROM _outbox WHERE position <= ?", (newest,))
        db.execute(_TRIM, (newest,))

    writer.call(trim)


def _wipe_store(writer: Writer, paths: Paths) -> None:
    at, tries = 1, 0
    while at:
        reached = writer.maintain(lambda db, at=at: wipe.wipe_some(db, paths.store, at))  # type: ignore[misc]
        tries = tries + 1 if reached is None else 0
        if tries > WIPE_TRIES:
            raise _in_the_way()
        at = at if reached is None else reached


def _wipe_index(search: SearchIndex, paths: Paths) -> None:
    """On the index's own thread: it alone may write there."""
    done = threading.Event()
    is_clean = False

    def run(db: apsw.Connection) -> None:
        nonlocal is_clean
        try:
            is_clean = any(wipe.wipe_all(db, paths.search) for _ in range(WIPE_TRIES))
        finally:
            done.set()

    search.ask(run)
    if not done.wait(INDEX_SECONDS) or not is_clean:
        raise _in_the_way()


def _in_the_way() -> SessiondError:
    return SessiondError(
        "it is deleted, but its words may still be in unused parts of the files: another program reads the store",
        hint="close it; the rest is done with the next sessiond forget, or when the daemon starts again",
    )


# --- copies -------------------------------------------------------------------------------------


def _remove_copies(paths: Paths) -> list[str]:
    """The copies that a change of schema left: they hold what the store held then."""
    found = sorted(paths.store.parent.glob(f"{paths.store.name}.before-schema-*"))
    for path in found:
        path.unlink(missing_ok=True)
    return [str(path) for path in found]


def _damaged_copies(paths: Paths) -> list[str]:
    """Stores that were set aside as damaged: somebody may still want to save something from them."""
    return sorted(map(str, _databases(paths.store.parent, f"{paths.store.name}.damaged-*")))


def _databases(folder: Path, pattern: str) -> list[Path]:
    return [path for path in folder.glob(pattern) if not path.name.endswith(("-wal", "-shm"))]
