"""What a damaged store still holds is brought into a new one, ids and all; then it is settled, verified and reported.

A store of an older schema is read as what it is, and the steps to this one are taken afterwards.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from sessiond.errors import SessiondError
from sessiond.model import Kind, Role
from sessiond.store import archive, mend, migrations, pieces, settle
from sessiond.store.connect import rows, transaction, value
from sessiond.store.pages import Pages

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sessiond.store.pieces import Table
    from sessiond.store.sources import Source

# What the new store makes anew: its index, its name, and how far its index has come.
NOT_TAKEN = {"_outbox"}
OWN_NAMES = {"_meta": {"store_id", "revision", "salvaged"}, "_counter": {"search_trimmed"}}
KINDS = {
    "_session": "sessions",
    "_source": "files",
    "_digest": "digests",
    "_event": "events",
    "_frame": "archived pieces",
    "_usage": "usage rows",
    "_key": "names",
    "_file": "edited files",
    "_occurrence": "errors",
    "_tombstone": "forgotten",
    "_loss": "data-loss reports",
}
ROWS_BETWEEN_TICKS = 20_000
TO_DERIVE = "to_derive"
NAMED = 100  # sessions that a report names
TIER_1 = {"_event", "_frame", "_reject", "_line_count"}


class NothingToRead(Exception):
    """No page of it is a database's."""


def salvage(
    aside: Path,
    db: apsw.Connection,
    *,
    is_there: Callable[[Source], bool],
    now: str,
    tick: Callable[[], None],
    leave_out: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Fill a new, empty database from a damaged one, which is only read; what was saved and what was lost.

    `leave_out`: tables for which there is no room.
    """
    with Pages(aside) as found:
        if found.count < 1:
            raise NothingToRead
        version = pieces.version(found)
        tables = pieces.tables(found, version)
        with transaction(db):
            migrations.take_steps(db, 0, version)
            for table in tables.values():
                if table.name not in NOT_TAKEN | leave_out:
                    _copy(db, found, table, tick)
            _raise_revision(db, found, tables["_meta"])
            migrations.take_steps(db, version)
            known = _known(found, version, tables)
            lossy = {table.name for table in tables.values() if _is_lossy(table)} | leave_out
            settled = settle.settle(db, lossy, is_there, known, now)
            if settled.derived:
                db.execute(
                    "INSERT OR REPLACE INTO _meta VALUES (?, ?)", (TO_DERIVE, orjson.dumps(settled.derived).decode())
                )
    _verify(db)
    return {
        "is_whole": not lossy,
        "kinds": {word: _tally(db, tables.get(name)) for name, word in KINDS.items()},
        "read_again": len(settled.read_again),
        "derived": len(settled.derived),
        "partly_read_again": settled.partly_read_again[:NAMED],
        "damaged": settled.damaged[:NAMED],
        "orphans": settled.orphans,
    }


def _copy(db: apsw.Connection, found: Pages, table: Table, tick: Callable[[], None]) -> None:
    marks = ", ".join("?" * len(table.columns))
    insert = f"INSERT OR IGNORE INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"
    sound, own = _SOUND.get(table.name), OWN_NAMES.get(table.name, set())
    tick()
    for number, row in enumerate(pieces.read(found, table), 1):
        if number % ROWS_BETWEEN_TICKS == 0:
            tick()
        if row[0] in own:
            continue
        try:
            if sound is None or sound(dict(zip(table.columns, row, strict=True))):
                db.execute(insert, row)
                table.read += db.changes()
                continue
        except (apsw.ConstraintError, apsw.MismatchError, zstd.ZstdError, ValueError, TypeError):
            pass
        table.lost += 1


def _is_sound_frame(row: dict[str, Any]) -> bool:
    if row["codec"] != archive.ZSTD:
        return str(row["codec"]) in (archive.ZEROS, archive.DROPPED)
    size: int = row["stop"] - row["start"]
    return len(archive.decompress(row["data"])) == size


def _is_json(*texts: str | bytes | None) -> bool:
    return all(isinstance(orjson.loads(text), dict) for text in texts if text is not None)


# What SQLite takes for a row may still have been written over: what can be told is looked at.
_SOUND: dict[str, Callable[[dict[str, Any]], bool]] = {
    "_frame": _is_sound_frame,
    "_digest": lambda row: _is_json(row["data"], row.get("base")),
    "_source": lambda row: _is_json(row["carry"], row["seed"]),
    "_session": lambda row: row["uid"] == f"{row['flavor']}:{row['native_id']}",
    "_event": lambda row: row["kind"] in set(Kind) and (row["role"] is None or row["role"] in set(Role)),
}


def _raise_revision(db: apsw.Connection, found: Pages, meta: Table) -> None:
    """Whoever follows the counter must not miss what comes now."""
    told = [int(text) for name, text in pieces.read(found, meta) if name == "revision" and str(text).isdigit()]
    newest = value(db, "SELECT max(revision) FROM _session") or 0
    db.execute("UPDATE _meta SET value = ? WHERE name = 'revision'", (str(max([newest, *told])),))


def _known(found: Pages, version: int, tables: dict[str, Table]) -> mend.Known:
    """What the unique indexes say, as far as they are whole themselves."""
    known = mend.Known()
    if _is_lossy(tables["_session"]):
        index = pieces.names(found, version, "_session", "uid")
        uids = {row: uid for uid, row in pieces.read(found, index) if isinstance(uid, str) and isinstance(row, int)}
        known.uids = uids if index.is_whole else {}
    if _is_lossy(tables["_source"]):
        index = pieces.names(found, version, "_source", "path")
        paths = {
            row: path for path, row in pieces.read(found, index) if isinstance(path, bytes) and isinstance(row, int)
        }
        known.paths = paths if index.is_whole else {}
    return known


def _is_lossy(table: Table) -> bool:
    return not table.is_whole or table.lost > 0


def _verify(db: apsw.Connection) -> None:
    wrong = rows(db, "PRAGMA foreign_key_check")
    told = value(db, "PRAGMA integrity_check(1)")
    if wrong or told != "ok":
        raise SessiondError("what was salvaged does not fit together")


def _tally(db: apsw.Connection, table: Table | None) -> dict[str, int]:
    if table is None:
        return {"kept": 0, "lost": 0, "lost_pages": 0}
    kept = int(value(db, f"SELECT count(*) FROM {table.name}"))
    return {"kept": kept, "lost": table.lost, "lost_pages": table.lost_pages}
