"""How a database is opened: one read-write connection for the writer thread, any number of read-only ones.

WAL with synchronous=FULL: a commit that was acknowledged survives a power cut. There is no mmap, and every
checkpoint is made by the connection that writes (SQLite's WAL-reset bug needs two that do).
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import apsw

from sessiond.errors import Busy, Forbidden, SessiondError
from sessiond.paths import make_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

BUSY_MS = 5000
CHECKPOINT_MS = 100
WAL_LIMIT_BYTES = 16 * 2**20
WAL_RESET_FIXED = (((3, 44, 6), (3, 45)), ((3, 50, 7), (3, 51)), ((3, 51, 3), (4,)))  # from, and before
WAL_RESET_HINT = "update apsw; until then let no other program write to the store while sessiond runs"


def open_writer(path: Path, *, cache_kib: int = 12_288) -> apsw.Connection:
    """The one connection that writes to this database. Creates the file with mode 0600 if there is none."""
    _create_private(path)
    db = _open(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        _set_up(db, cache_kib)
    except apsw.Error:
        db.close()
        raise
    return db


def _set_up(db: apsw.Connection, cache_kib: int) -> None:
    db.set_busy_timeout(BUSY_MS)
    if value(db, "PRAGMA page_count") == 0:
        # It counts only if set before the first table is made, and setting it again would write for nothing.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if value(db, "PRAGMA journal_mode") != "wal":
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA temp_store = MEMORY")
    limit_wal(db, WAL_LIMIT_BYTES)
    db.execute(f"PRAGMA cache_size = -{cache_kib}")


def open_reader(path: Path) -> apsw.Connection:
    """A connection that cannot write, whatever it is asked."""
    if not path.exists():
        raise SessiondError(f"there is no store at {path} yet", hint="start the daemon: sessiond run")
    db = _open(path, apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(BUSY_MS)
    db.execute("PRAGMA query_only = ON")
    db.execute("PRAGMA cache_size = -4096")
    return db


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A reader for a moment: one state of the store, then closed."""
    db = open_reader(path)
    try:
        with snapshot(db):
            yield db
    finally:
        db.close()


@contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    """All of it or nothing. IMMEDIATE: a writer that must wait does so at the start, not half-way."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # a full disk may have rolled back already
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """Several reads that see one state of the store."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def limit_wal(db: apsw.Connection, limit_bytes: int) -> None:
    """What a WAL may keep on disk, and how often it is moved into the database so that it seldom needs more."""
    pages = limit_bytes // int(value(db, "PRAGMA page_size")) // 2
    db.execute(f"PRAGMA journal_size_limit = {limit_bytes}")
    db.execute(f"PRAGMA wal_autocheckpoint = {max(64, min(1000, pages))}")


def rest(db: apsw.Connection) -> None:
    """Give back the memory of a connection that has nothing to do; what comes next reads its pages again."""
    db.execute("PRAGMA shrink_memory")


def truncate_wal(db: apsw.Connection) -> bool:
    """Move the WAL into the database and empty it; False where a reader is in the way or the disk is full.

    Never waits long for a reader.
    """
    db.set_busy_timeout(CHECKPOINT_MS)
    try:
        return not value(db, "PRAGMA wal_checkpoint(TRUNCATE)")
    except apsw.FullError:  # what the WAL adds to the database has no room
        return False
    finally:
        db.set_busy_timeout(BUSY_MS)


def rows(db: apsw.Connection, query: str, bound: Any = ()) -> list[tuple[Any, ...]]:
    return db.execute(query, bound).fetchall()


def value(db: apsw.Connection, query: str, bound: Any = ()) -> Any:
    """The first column of the first row; None where there is none."""
    for row in db.execute(query, bound):
        return row[0]
    return None


def free_name(path: Path, now: datetime) -> Path:
    """Where a damaged database is moved to: a name that says when, and that no other has."""
    name = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%SZ}")
    names = [name, *(name.with_name(f"{name.name}.{number}") for number in range(1, 1000))]
    return next(each for each in names if not any(os.path.lexists(f"{each}{suffix}") for suffix in ("", "-wal")))


def move_aside(path: Path, aside: Path) -> None:
    """Move a database out of the way, with its WAL; what was moved before stays where it is."""
    for suffix in ("", "-wal", "-shm"):
        old, new = path.with_name(path.name + suffix), aside.with_name(aside.name + suffix)
        if not new.exists():
            with suppress(FileNotFoundError):
                old.rename(new)
                new.chmod(0o600)


def wal_reset_bug() -> bool:
    """True when this SQLite still has the bug that two checkpointing writers can trip over."""
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    return not any(first <= version < after for first, after in WAL_RESET_FIXED)


def _create_private(path: Path) -> None:
    try:
        make_folders(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise Forbidden(
            f"cannot write {path}: {error.strerror}", hint="check its owner and that the disk is not read-only"
        ) from None


def _open(path: Path, flags: int) -> apsw.Connection:
    try:
        return apsw.Connection(os.fspath(path), flags=flags)
    except apsw.BusyError as error:
        raise Busy(f"{path} is locked by another program") from error
    except apsw.CantOpenError as error:
        raise Forbidden(f"cannot open {path}", hint="check its owner and permissions") from error
