"""The thread that keeps the full-text index up: a database of its own that follows the store by position.

The store's transaction writes what is to be indexed or removed into its outbox; one thread applies it here together
with the position it has reached. So the index is never ahead, a kill at any point loses nothing, and an index that is
damaged, foreign or too far behind is simply made again from the archive.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import apsw

from sessiond.store import connect, fts
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from sessiond.store.writer import Writer

RETRY_SECONDS = 1.0
REBUILT = 2000  # events that a rebuild takes in by one transaction
ROUND_BYTES = 2**18  # of them, compressed: the WAL must hold what becomes of them
ROUND = 64  # outbox entries (one per chunk) taken in by one transaction


class SearchIndex:
    """The index and the thread that keeps it up. `rebuild` yields (event id, text) of everything in the store."""

    def __init__(
        self,
        path: Path,
        store: Path,
        writer: Writer,
        *,
        rebuild: Callable[[apsw.Connection], Iterable[tuple[int, str]]],
        digests: Callable[[apsw.Connection], Iterable[tuple[int, str]]] = lambda _: (),
        on_trouble: Callable[[str, str | None], None] = lambda _, __: None,
        wal_limit: int = connect.WAL_LIMIT_BYTES,
    ) -> None:
        self._path = path
        self._store_path = store
        self._writer = writer
        self._rebuild = {"fts": rebuild, "digests": digests}
        self._asked: deque[Callable[[apsw.Connection], None]] = deque()
        self._on_trouble = on_trouble
        self._wal_limit = wal_limit
        self._news = threading.Event()
        self._stopping = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="search", daemon=True)
        self.position = 0
        self._reached_position = _Position()
        self.is_failing = False  # the last try did not succeed

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

    def catch_up_now(self, timeout: float) -> bool:
        """True once all that is committed now is in the index; False if that takes longer than `timeout` seconds."""
        with connect.reading(self._store_path) as db:
            _, newest = _outbox_range(db)
        self.wake()
        return self._reached_position.wait_for(newest, timeout)

    def shrink(self, timeout: float) -> bool:
        """Give back the room of what was removed, in small steps on the index's own thread; True when it is done.

        A removed entry is only a mark until the parts of the index that hold it are merged, its words included.
        """
        done = threading.Event()
        is_shrunk = False

        def run(db: apsw.Connection) -> None:
            nonlocal is_shrunk
            try:
                for table in fts.TABLES:
                    fts.merge_to_the_end(db, table, lambda: self._stopping or not self._has_room())
                fts.give_back(db, lambda: self._stopping)
                is_shrunk = self._has_room()
            finally:  # a full disk: whoever waits must not wait for what will not come
                done.set()

        self.ask(run)
        return done.wait(timeout) and is_shrunk

    def _has_room(self) -> bool:
        """Who follows goes last: the room that is left on a full disk is for letting sessions go."""
        return shutil.disk_usage(self._path.parent).free >= self._wal_limit // 2

    def ask(self, run: Callable[[apsw.Connection], None]) -> None:
        """Have this done on the index's own thread and connection, between two entries."""
        self._asked.append(run)
        self.wake()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        store = connect.open_reader(self._store_path)
        try:
            while not self._stopping:
                try:
                    self._follow(store)
                except Exception as error:  # noqa: BLE001 - the thread's outer edge: it must go on, and say so
                    self.is_failing = True
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
        connect.limit_wal(db, self._wal_limit)
        try:
            while not self._stopping:
                self._news.clear()
                while not self._stopping and self._has_room() and self.catch_up(db, store):
                    pass
                while self._asked and not self._stopping:
                    self._asked.popleft()(db)
                if self._has_room():
                    self._news.wait()
                else:  # what a transaction that found no room left in the WAL is room, too
                    connect.truncate_wal(db)
                    self._stopped.wait(RETRY_SECONDS)
        finally:
            db.close()

    def _opened(self, store: apsw.Connection) -> apsw.Connection:
        store_id = _store_id(store)
        try:
            db = fts.open_index(self._path)
            found = rows(db, "SELECT store_id, position FROM _position")
            trimmed, newest = _outbox_range(store)
            if found and found[0][0] == store_id and trimmed <= found[0][1] <= newest:
                self.position = found[0][1]
                self._reached_position.set(self.position)
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
        db = fts.open_index(self._path)
        # The position first: what is committed from now on is in the outbox after it, and applying it is idempotent.
        _, newest = _outbox_range(store)
        for table, rebuild in self._rebuild.items():
            texts = iter(rebuild(store))
            while entries := list(islice(texts, REBUILT)):
                with connect.transaction(db):
                    db.executemany(f"INSERT OR REPLACE INTO {table} (rowid, text) VALUES (?, ?)", entries)
                if self._stopping:
                    return db  # without a position: the next start makes it again
        with connect.transaction(db):
            db.execute("INSERT INTO _position VALUES (1, ?, ?)", (store_id, newest))
        self._reached(newest)
        self._on_trouble("search_index", None)
        return db

    def _reached(self, position: int) -> None:
        self.position = position
        self._reached_position.set(position)
        self.is_failing = False
        with suppress(apsw.Error):  # the store is full or busy: the next round trims what this one could not
            self._writer.call(lambda writer_db: _trim(writer_db, position))

    def catch_up(self, db: apsw.Connection, store: apsw.Connection) -> bool:
        """Take in the next entries of the outbox; False when there are none."""
        query = "SELECT position, data FROM _outbox WHERE position > ? ORDER BY position LIMIT ?"
        entries, size = [], 0
        for position, data in store.execute(query, (self.position, ROUND)):
            entries.append((position, data))
            size += len(data)
            if size >= ROUND_BYTES:
                break
        if not entries:
            return False
        with connect.transaction(db):
            for _, data in entries:
                fts.apply_entry(db, data)
            db.execute("UPDATE _position SET position = ?", (entries[-1][0],))
        self._reached(entries[-1][0])
        return True


class _Position:
    """How far the index has come, to be waited for."""

    def __init__(self) -> None:
        self._at = 0
        self._changed = threading.Condition()

    def set(self, position: int) -> None:
        with self._changed:
            self._at = position
            self._changed.notify_all()

    def wait_for(self, position: int, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._at >= position, timeout)


def _is_damage(error: Exception) -> bool:
    """Is it the index that is at fault, and not the disk or another program?"""
    around = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError,
              apsw.NoMemError, apsw.PermissionsError, apsw.AuthError, apsw.InterruptError)  # fmt: skip
    return isinstance(error, apsw.Error) and not isinstance(error, around)


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
