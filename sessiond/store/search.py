"""The thread that keeps the full-text index up: a database of its own that follows the store by position.

The store's transaction writes what is to be indexed or removed into its outbox; one thread applies it here together
with the position it has reached. So the index is never ahead, a kill at any point loses nothing, and an index that is
damaged, removed, foreign, too far behind or ahead (an older store was put back) is simply made again from the archive.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import deque
from contextlib import ExitStack, suppress
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
REST_LOOKS = 5  # after so many without news, memory is given back
LOOK_SECONDS = 1.0  # how often it is looked whether the file is still the one that was opened
REBUILT = 2000  # events that a rebuild takes in by one transaction
TIGHTLY_REBUILT = 32  # the same on a disk that is all but full
ROUND_BYTES = 2**18  # of them, compressed: the WAL must hold what becomes of them
TIGHT_BYTES = 2**28  # with less than this on the disk, what is taken in by one transaction is a good deal smaller
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
        on_failure: Callable[[Exception], None] = lambda _: None,
        wal_limit: int = connect.WAL_LIMIT_BYTES,
    ) -> None:
        self._path = path
        self._store_path = store
        self._writer = writer
        self._rebuild = {"digests": digests, "fts": rebuild}  # the small one first: it answers for evicted sessions
        self._asked: deque[Callable[[apsw.Connection], None]] = deque()
        self._on_trouble = on_trouble
        self._on_failure = on_failure  # it may be the store that is damaged
        self._wal_limit = wal_limit
        self._news = threading.Event()
        self._stopping = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="search", daemon=True)
        self._judged = threading.Event()
        self._checking: apsw.Connection | None = None
        self.position = 0
        self._reached_position = _Position()
        self.is_failing = False  # the last try did not succeed

    def start(self) -> None:
        """Returns once it is known whether the index fits the store: after the next commit an index that is ahead of a
        store that was put back could no longer be told from one that follows it.
        """
        self._thread.start()
        self._judged.wait()

    def stop(self) -> None:
        self._stopping = True
        self._stopped.set()
        self._news.set()
        if self._thread.ident is not None:
            with suppress(apsw.ConnectionClosedError):
                if self._checking is not None:
                    self._checking.interrupt()  # it is done at the next start
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
                    fts.merge_to_the_end(db, table, lambda: self._stopping or not self.has_room())
                fts.give_back(db, lambda: self._stopping)
                is_shrunk = self.has_room()
            finally:  # a full disk: whoever waits must not wait for what will not come
                done.set()

        self.ask(run)
        return done.wait(timeout) and is_shrunk

    def check(self) -> None:
        """Look at every page, and make the index again if one is damaged."""
        self.ask(self._check)

    def _check(self, _: apsw.Connection) -> None:
        """With a connection of its own: the thread's would look at pages that it remembers."""
        self._checking = connect.open_reader(self._path)
        try:
            fts.check(self._checking)
        finally:
            self._checking.close()
            self._checking = None

    def has_room(self) -> bool:
        """Who follows goes last: the room that is left on a full disk is for letting sessions go."""
        return self._free() >= fts.STEP_ROOM_BYTES

    def _is_tight(self) -> bool:
        """A whole round could take more than is left, and its WAL could then never be moved into the index."""
        return self._free() < TIGHT_BYTES

    def _free(self) -> int:
        return shutil.disk_usage(self._path.parent).free

    def ask(self, run: Callable[[apsw.Connection], None]) -> None:
        """Have this done on the index's own thread and connection, between two entries."""
        self._asked.append(run)
        self.wake()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._judged.set)  # nobody must wait for a thread that has failed
            store = connect.open_reader(self._store_path)
            stack.callback(store.close)
            while not self._stopping:
                try:
                    self._follow(store)
                except Exception as error:  # noqa: BLE001 - the thread's outer edge: it must go on, and say so
                    if not self._stopping:
                        self._mend(error)

    def _mend(self, error: Exception) -> None:
        self.is_failing = True
        self._on_failure(error)
        if isinstance(error, _Removed):
            self._on_trouble("search_index", "the index was removed; it is being made again")
        elif self._is_damage(error):
            self._on_trouble("search_index", f"{type(error).__name__}; it is being made again")
            _remove(self._path)
        else:
            self._on_trouble("search_index", f"{type(error).__name__}; it is tried again")
        self._judged.set()
        self._stopped.wait(RETRY_SECONDS)

    def _is_damage(self, error: Exception) -> bool:
        """Is it the index that is at fault, and not the disk or another program?"""
        if isinstance(error, apsw.ReadOnlyError):  # a flipped byte of the header says so, too
            return os.access(self._path, os.W_OK) and os.access(self._path.parent, os.W_OK)
        return isinstance(error, apsw.Error) and not isinstance(error, AROUND)

    def _follow(self, store: apsw.Connection) -> None:
        db = self._opened(store)
        opened = _inode(self._path)
        connect.limit_wal(db, self._wal_limit)
        idle = 0
        try:
            while not self._stopping:
                self._news.clear()
                if opened is None or _inode(self._path) != opened:
                    raise _Removed
                while not self._stopping and self.has_room() and self.catch_up(db, store):
                    pass
                while self._asked and not self._stopping:
                    self._asked.popleft()(db)
                if self.has_room():
                    idle = 0 if self._news.wait(LOOK_SECONDS) else idle + 1
                    if idle == REST_LOOKS:
                        connect.rest(db)
                        connect.rest(store)
                else:  # what a transaction that found no room left in the WAL is room, too
                    connect.truncate_wal(db)
                    self._stopped.wait(RETRY_SECONDS)
        finally:
            db.close()

    def _opened(self, store: apsw.Connection) -> apsw.Connection:
        try:
            db = fts.open_index(self._path)
            found = rows(db, "SELECT store_id, position FROM _position")
            misfit = _misfit(store, found)
            if misfit is None:
                self.position = found[0][1]
                self._reached_position.set(self.position)
                self._on_trouble("search_index", None)
                self._judged.set()
                self.check()  # the rest of the pages, when there is nothing else to do
                return db
            db.close()
        except apsw.Error as error:
            if not self._is_damage(error):
                raise
            misfit = type(error).__name__
        return self._made_again(store, misfit)

    def _made_again(self, store: apsw.Connection, reason: str) -> apsw.Connection:
        _, newest = _outbox_range(store)
        if newest:  # else there is nothing yet that could be missing in it
            self._on_trouble("search_index", f"rebuilding: {reason}")
        _remove(self._path)
        self.position = 0
        self._reached_position.set(0)
        self._judged.set()
        db = fts.open_index(self._path)
        try:
            self._fill(db, store)
        except BaseException:
            db.close()
            raise
        return db

    def _fill(self, db: apsw.Connection, store: apsw.Connection) -> None:
        # The position first: what is committed from now on is in the outbox after it, and applying it is idempotent.
        _, newest = _outbox_range(store)
        for table, rebuild in self._rebuild.items():
            texts = iter(rebuild(store))
            while entries := list(islice(texts, REBUILT)):
                with connect.transaction(db):
                    db.executemany(f"INSERT OR REPLACE INTO {table} (rowid, text) VALUES (?, ?)", entries)
                if self._stopping:
                    return  # without a position: the next start makes it again
        with connect.transaction(db):
            db.execute("INSERT INTO _position VALUES (1, ?, ?)", (_store_id(store), newest))
        self._reached(newest)
        self._on_trouble("search_index", None)

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
        if self._is_tight():
            return self._take_in_slowly(db, *entries[0])
        with connect.transaction(db):
            for _, data in entries:
                fts.apply_entry(db, data)
            db.execute("UPDATE _position SET position = ?", (entries[-1][0],))
        self._reached(entries[-1][0])
        return True

    def _take_in_slowly(self, db: apsw.Connection, position: int, data: bytes) -> bool:
        if not fts.apply_in_small_steps(db, data, lambda: self.has_room() and not self._stopping):
            return False
        with connect.transaction(db):
            db.execute("UPDATE _position SET position = ?", (position,))
        self._reached(position)
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


class _Removed(Exception):
    """The file that is open is not the one that readers find."""


# What happens around the index and says nothing about it.
AROUND = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.NoMemError,
          apsw.PermissionsError, apsw.AuthError, apsw.InterruptError)  # fmt: skip


def _misfit(store: apsw.Connection, found: list[tuple[str, int]]) -> str | None:
    """Why an index of which this was found cannot follow the store; None: it can."""
    trimmed, newest = _outbox_range(store)
    if not found:
        return "it was missing, or never finished"
    store_id, position = found[0]
    if store_id != _store_id(store):
        return "it is of another store"
    if position > newest:
        return "it is ahead of the store"
    return "it is too far behind the store" if position < trimmed else None


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


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _remove(path: Path) -> None:
    """For good: an index that was ahead of the store must not come back with the power."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
