"""The full-text index: what goes in, how a query is asked. A database of its own that follows the store by position.

The store's transaction writes what is to be indexed or removed into its outbox; one thread applies it here together
with the position it has reached. So the index is never ahead, a kill at any point loses nothing, and an index that is
damaged, foreign or too far behind is simply made again from the archive.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import apsw
import orjson

from sessiond.store import archive, connect
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from sessiond.store.writer import Writer

RETRY_SECONDS = 1.0
REBUILT = 2000  # events that a rebuild takes in by one transaction
ROUND = 64  # outbox entries (one per chunk) taken in by one transaction
VERSION = 1

_SCHEMA = """
CREATE TABLE _position (
    id INTEGER PRIMARY KEY CHECK (id = 1), store_id TEXT NOT NULL, position INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE fts USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = "unicode61 remove_diacritics 2"
);
"""


class SearchIndex:
    """The index and the thread that keeps it up. `rebuild` yields (event id, text) of everything in the store."""

    def __init__(
        self,
        path: Path,
        store: Path,
        writer: Writer,
        *,
        rebuild: Callable[[apsw.Connection], Iterable[tuple[int, str]]],
        on_trouble: Callable[[str, str | None], None] = lambda _, __: None,
    ) -> None:
        self._path = path
        self._store_path = store
        self._writer = writer
        self._rebuild = rebuild
        self._on_trouble = on_trouble
        self._news = threading.Event()
        self._stopping = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="search", daemon=True)
        self.position = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._stopped.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Something was committed."""
        self._news.set()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        store = connect.open_reader(self._store_path)
        try:
            while not self._stopping:
                try:
                    self._follow(store)
                except Exception as error:  # noqa: BLE001 - the thread's outer edge: it must go on, and say so
                    if _is_damage(error):
                        self._on_trouble("search_index", f"{type(error).__name__}; it is being made again")
                        _set_aside(self._path)
                    else:
                        self._on_trouble("search_index", f"{type(error).__name__}; it is tried again")
                    self._stopped.wait(RETRY_SECONDS)
        finally:
            store.close()

    def _follow(self, store: apsw.Connection) -> None:
        db = self._opened(store)
        try:
            while not self._stopping:
                self._news.clear()
                while not self._stopping and self.catch_up(db, store):
                    pass
                self._news.wait()
        finally:
            db.close()

    def _opened(self, store: apsw.Connection) -> apsw.Connection:
        store_id = _store_id(store)
        try:
            db = open_index(self._path)
            found = rows(db, "SELECT store_id, position FROM _position")
            trimmed, newest = _outbox_range(store)
            if found and found[0][0] == store_id and trimmed <= found[0][1] <= newest:
                self.position = found[0][1]
                self._on_trouble("search_index", None)
                return db
            reason = "it is new" if not found else "it does not fit the store"
            db.close()
        except apsw.Error as error:
            if not _is_damage(error):
                raise
            reason = type(error).__name__
        return self._made_again(store, store_id, reason)

    def _made_again(self, store: apsw.Connection, store_id: str, reason: str) -> apsw.Connection:
        if reason != "it is new":
            self._on_trouble("search_index", f"rebuilding: {reason}")
        _set_aside(self._path)
        db = open_index(self._path)
        # The position first: what is committed from now on is in the outbox after it, and applying it is idempotent.
        _, newest = _outbox_range(store)
        texts = iter(self._rebuild(store))
        while entries := list(islice(texts, REBUILT)):
            with connect.transaction(db):
                db.executemany("INSERT OR REPLACE INTO fts (rowid, text) VALUES (?, ?)", entries)
            if self._stopping:
                return db  # without a position: the next start makes it again
        with connect.transaction(db):
            db.execute("INSERT INTO _position VALUES (1, ?, ?)", (store_id, newest))
        self._reached(newest)
        self._on_trouble("search_index", None)
        return db

    def _reached(self, position: int) -> None:
        self.position = position
        with suppress(apsw.Error):  # the store is full or busy: the next round trims what this one could not
            self._writer.call(lambda writer_db: _trim(writer_db, position))

    def catch_up(self, db: apsw.Connection, store: apsw.Connection) -> bool:
        """Take in the next entries of the outbox; False when there are none."""
        query = "SELECT position, data FROM _outbox WHERE position > ? ORDER BY position LIMIT ?"
        entries = rows(store, query, (self.position, ROUND))
        if not entries:
            return False
        with connect.transaction(db):
            for _, data in entries:
                apply_entry(db, data)
            db.execute("UPDATE _position SET position = ?", (entries[-1][0],))
        self._reached(entries[-1][0])
        return True


def _is_damage(error: Exception) -> bool:
    """Is it the index that is at fault, and not the disk or another program?"""
    around = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError,
              apsw.NoMemError, apsw.PermissionsError, apsw.AuthError, apsw.InterruptError)  # fmt: skip
    return isinstance(error, apsw.Error) and not isinstance(error, around)


def apply_entry(db: apsw.Connection, data: bytes) -> None:
    entry = orjson.loads(archive.decompress(data))
    for event_id in entry["remove"]:
        db.execute("DELETE FROM fts WHERE rowid = ?", (event_id,))
    for event_id, text in entry["add"]:
        db.execute("INSERT OR REPLACE INTO fts (rowid, text) VALUES (?, ?)", (event_id, text))


def open_index(path: Path) -> apsw.Connection:
    db = connect.open_writer(path, cache_kib=8192)
    found = db.pragma("user_version")
    if found not in (0, VERSION):
        db.close()
        raise apsw.CorruptError("another version")
    if found == 0:
        with connect.transaction(db):
            db.execute(_SCHEMA)
            db.pragma("user_version", VERSION)
    return db


def matches(db: apsw.Connection, query: str, newest: int) -> list[tuple[int, float]]:
    """(event id, rank) of the newest matches, best first."""
    sql = """
    SELECT rowid, rank FROM (SELECT rowid, rank FROM fts WHERE fts MATCH :query ORDER BY rowid DESC LIMIT :newest)
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


def _outbox_range(store: apsw.Connection) -> tuple[int, int]:
    """Positions up to the first are no longer in the outbox; the second is the newest ever given."""
    trimmed = value(store, "SELECT value FROM _counter WHERE name = 'search_trimmed'")
    newest = value(store, "SELECT seq FROM sqlite_sequence WHERE name = '_outbox'")
    return trimmed or 0, newest or 0


def _store_id(store: apsw.Connection) -> str:
    return str(value(store, "SELECT value FROM _meta WHERE name = 'store_id'"))


def _trim(db: apsw.Connection, position: int) -> None:
    db.execute("DELETE FROM _outbox WHERE position <= ?", (position,))
    db.execute("INSERT OR REPLACE INTO _counter VALUES ('search_trimmed', ?)", (position,))


def _set_aside(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
