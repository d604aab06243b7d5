"""The full-text index itself: its tables, what goes in and out, how a query is asked, how room is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import orjson

from sessiond.store import archive, connect
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

VERSION = 3
MERGED_PAGES = 200  # of the index that are merged at a time: some 20 ms
VACUUMED_PAGES = 500
STEP_BYTES = 64 * 1024  # of text
# What a step of so much text takes for its WAL, the merging of older parts that it brings about included, and then
# again in the database: 3 MiB of each was the most that text without any repetition came to.
STEP_ROOM_BYTES = 6 * 2**20

_SCHEMA = """
CREATE TABLE _position (
    id INTEGER PRIMARY KEY CHECK (id = 1), store_id TEXT NOT NULL, position INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE fts USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = "unicode61 remove_diacritics 2"
);
CREATE VIRTUAL TABLE digests USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = "unicode61 remove_diacritics 2"
);
"""
TABLES = ("fts", "digests")


def apply_entry(db: apsw.Connection, data: bytes) -> None:
    """Take in what one commit of the store added and removed. Doing so twice comes to the same."""
    for statement, bound in _changes(data):
        db.execute(statement, bound)


def apply_in_small_steps(db: apsw.Connection, data: bytes, has_room: Callable[[], bool]) -> bool:
    """The same on a disk that is all but full: each step takes STEP_ROOM_BYTES at most, and what it leaves in the WAL
    is given back before the next. False where there is no room to go on; it is then begun anew.
    """
    changes = _changes(data)
    while step := list(_up_to(changes, STEP_BYTES)):
        if not has_room():
            return False
        with connect.transaction(db):
            for statement, bound in step:
                db.execute(statement, bound)
        connect.truncate_wal(db)
    return True


_Change = tuple[str, tuple[object, ...]]


def _changes(data: bytes) -> Iterator[_Change]:
    entry = orjson.loads(archive.decompress(data))
    for event_id in entry["remove"]:
        yield "DELETE FROM fts WHERE rowid = ?", (event_id,)
    for event_id, text in entry["add"]:
        yield "INSERT OR REPLACE INTO fts (rowid, text) VALUES (?, ?)", (event_id, text)
    for session, text in entry.get("digests", ()):
        yield "INSERT OR REPLACE INTO digests (rowid, text) VALUES (?, ?)", (session, text)
    for session in entry.get("forgotten", ()):
        yield "DELETE FROM digests WHERE rowid = ?", (session,)


def _up_to(changes: Iterator[_Change], limit_bytes: int) -> Iterator[_Change]:
    size = 0
    for statement, bound in changes:
        yield statement, bound
        size += 64 + sum(len(each) for each in bound if isinstance(each, str))
        if size >= limit_bytes:
            return


def open_index(path: Path) -> apsw.Connection:
    db = connect.open_writer(path, cache_kib=8192)
    found = db.pragma("user_version")
    if found not in (0, VERSION):
        db.close()
        raise apsw.CorruptError("another version")
    if found == 0:
        with connect.transaction(db):
            db.execute(_SCHEMA)
            for table in TABLES:
                # By itself it would rewrite a large part of the index in one transaction, whenever a tenth of that
                # part was removed: what was evicted is merged away in steps instead.
                db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('deletemerge', 0)")
            db.pragma("user_version", VERSION)
    return db


def check(db: apsw.Connection) -> None:
    """CorruptError where a page or the index in it is damaged. Reads all of it: some 2 s for a million events."""
    for table in TABLES:
        db.execute(f"SELECT 1 FROM {table} LIMIT 0")
    for (told,) in rows(db, "PRAGMA quick_check(1)"):
        if told != "ok":
            raise apsw.CorruptError(told)


def matches(db: apsw.Connection, query: str, newest: int, table: str = "fts") -> list[tuple[int, float]]:
    """(event id, rank) of the newest matches, best first; of `digests`: (session, rank)."""
    sql = f"""
    SELECT rowid, rank
      FROM (SELECT rowid, rank FROM {table} WHERE {table} MATCH :query ORDER BY rowid DESC LIMIT :newest)
     ORDER BY rank, rowid DESC
    """
    return [(row[0], row[1]) for row in rows(db, sql, {"query": query, "newest": newest})]


def quoted(query: str) -> str:
    """What a person typed, as a query that FTS5 cannot misread: words all of which must occur, `"a phrase"` as one,
    `word*` (three letters or more) as a prefix.
    """
    terms: list[str] = []
    for number, part in enumerate(query.replace("\0", " ").split('"')):
        if number % 2:
            terms += [f'"{part}"'] if part.strip() else []
            continue
        for word in part.split():
            stem = word.rstrip("*")
            if stem:
                terms.append(f'"{stem}"' + ("*" if word.endswith("*") and len(stem) >= 3 else ""))
    return " ".join(terms)


def merge_to_the_end(db: apsw.Connection, table: str, is_stopping: Callable[[], bool]) -> None:
    # A negative number makes all parts of the index one level, so that the calls after it merge every one of them.
    pages = -MERGED_PAGES
    while not is_stopping():
        before = db.total_changes()
        with connect.transaction(db):
            db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
        if db.total_changes() - before < 2:  # SQLite's own mark for: nothing was left to merge
            return
        pages = MERGED_PAGES


def give_back(db: apsw.Connection, is_stopping: Callable[[], bool] = lambda: False) -> None:
    """Return free pages and the WAL to the file system."""
    while value(db, "PRAGMA freelist_count") and not is_stopping():
        with connect.transaction(db):
            db.execute(f"PRAGMA incremental_vacuum({VACUUMED_PAGES})").fetchall()
    connect.truncate_wal(db)
