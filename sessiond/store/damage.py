"""Is the store damaged? A check at the start, bounded in time, and a mark for what is found out while it is in use.

The mark is a small file beside the store. It says why, and, once the store is being set aside, under which name: so
that a kill at any moment leaves a job that the next start finishes.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import apsw

from sessiond.errors import SessiondError
from sessiond.store import connect, migrations, tombstones
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLEAN_SECONDS = 1.0
BRIEF_SECONDS = 0.05  # for a command that somebody waits for
UNCLEAN_SECONDS = 10.0  # after a stop that was none: a WAL was left behind
STEPS_BETWEEN_LOOKS = 10_000


@dataclass(frozen=True, slots=True)
class Mark:
    reason: str
    inode: int  # of the store that it speaks of: another one in its place is not meant
    aside: str | None = None  # the name it is being moved to


def is_damage(error: BaseException) -> bool:
    """Whether this may come of a file that is not what it was when it was written. Of a text that is none SQLite itself
    says nothing: it hands it over.
    """
    return isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError)


def find(store: Path, search: Path, seconds: float = CLEAN_SECONDS) -> str | None:
    """What is wrong with the store, in a few words; None where nothing was found in the time that there is for it:
    these seconds, or more after a stop that was none.
    """
    mark = read_mark(store)
    if mark is not None and (mark.aside is not None or mark.inode == _inode(store)):
        return mark.reason
    size, wal = _size(store), _size(store.with_name(store.name + "-wal"))
    if not size:  # SQLite takes it for a new one, and throws the WAL away
        was_there = wal > 0 or search.exists() or tombstones.copy_path(store).exists()
        return None if not was_there else ("it is empty" if store.exists() else "it is gone")
    return check(store, UNCLEAN_SECONDS if wal else seconds)


def check(store: Path, seconds: float, *, is_suspect: bool = False) -> str | None:
    """What SQLite itself finds within that time. Nothing is written, whatever it is. `is_suspect`: somebody could not
    read it, so that every text is looked at as well.
    """
    try:
        db = connect.open_reader(store)
    except apsw.Error as error:
        return type(error).__name__ if is_damage(error) else None
    except SessiondError:  # not readable: whoever opens it for writing says so
        return None
    deadline = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
    try:
        if _is_other_schema(db):
            return "its schema is not what its version says"
        told = value(db, "PRAGMA quick_check(1)")
        if told == "ok":
            _read_texts(db, None if is_suspect else READ_AT_START)
        return None if told == "ok" else str(told).replace("\n", " ")
    except apsw.InterruptError:
        return None
    except apsw.Error as error:
        return type(error).__name__ if is_damage(error) else None
    except UnicodeDecodeError:
        return "a text in it is none"
    finally:
        db.close()


# Without these nothing can be started. Of text SQLite does not say whether it is any.
READ_AT_START = ("_meta", "_source", "_session")
WITHOUT_TEXT = ("_frame", "_outbox", "_key", "_line_count")


def _read_texts(db: apsw.Connection, tables: Sequence[str] | None) -> None:
    """UnicodeDecodeError where one is none. Of all tables, if none is named."""
    there = [name for (name,) in rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '_*'")]
    for table in tables or [name for name in there if name not in WITHOUT_TEXT]:
        for _ in db.execute(f"SELECT * FROM {table}"):
            pass


_SCHEMA = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"


def _is_other_schema(db: apsw.Connection) -> bool:
    """A version that does not go with the tables that are there; one of a program to come is not judged here."""
    version = migrations.version(db)
    if version > migrations.VERSION:
        return not migrations.may_be_newer(version)
    there = {name: _words(sql) for name, sql in rows(db, _SCHEMA)}
    with migrations.template(version or None) as template:
        expected = {name: _words(sql) for name, sql in rows(template, _SCHEMA)}
    if not version:
        return bool(there.keys() & expected.keys())
    return any(there.get(name) != sql for name, sql in expected.items())


def _words(sql: str) -> str:
    return " ".join(sql.split())


# --- the mark -----------------------------------------------------------------------------------


def mark(store: Path, reason: str, aside: str | None = None) -> Mark:
    """Have the next start set this store aside; on the disk when this returns."""
    made = Mark(reason, _inode(store), aside)
    path = _mark_path(store)
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, json.dumps(asdict(made)).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    new.replace(path)
    sync_folder(store.parent)
    return made


def read_mark(store: Path) -> Mark | None:
    with suppress(FileNotFoundError, ValueError, TypeError):
        return Mark(**json.loads(_mark_path(store).read_bytes()))
    return None


def clear_mark(store: Path) -> None:
    _mark_path(store).unlink(missing_ok=True)
    sync_folder(store.parent)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _mark_path(store: Path) -> Path:
    return store.with_name(store.name + ".is-damaged")


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _size(path: Path) -> int:
    """0 also where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
