"""Bytes as the file system counts them: what the store takes, what it could give back at once, and giving it back.

The ballast is a file of real blocks that is given up when the disk is full: deleting rows needs room in the WAL first.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessiond.store import connect, fts
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import apsw

    from sessiond.paths import Paths
    from sessiond.store.search import SearchIndex
    from sessiond.store.writer import Writer

LARGEST_RESERVE = 16 * 2**20
RESERVE_SHARE = 64  # of soft_cap: as much for the ballast, and as much for each WAL
VACUUMED_PAGES = 200  # given back by one transaction of the writer: some 10 ms
INDEX_SECONDS = 600.0
CHECKPOINT_TRIES = 20


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used now. `slack` needs no eviction to be given back: free pages, the WALs, and what a database has
    cut off but a reader still keeps in its file.
    """

    used: int
    slack: int
    free: int  # on the file system, for others too
    index: int  # the part of `used` that is the search index
    wals: int  # the part of `slack` that is needed again as soon as something is written
    ballast: int
    index_need: int  # room without which the search index cannot take in what waits for it

    @property
    def held(self) -> int:
        return self.used - self.slack


def measure(db: apsw.Connection, paths: Paths) -> Usage:
    """As `du` sees it, and how much of that is slack."""
    index = blocks(paths.search)
    with suppress(Exception):  # an index that cannot be opened now is measured with its free pages
        search = connect.open_reader(paths.search)
        try:
            index = _pages_in_use(search)
        finally:
            search.close()
    # By pages, not by the size of the file: it shrinks only once no reader is in the way, and a plan made meanwhile
    # would let go again what was let go already.
    ballast = blocks(ballast_path(paths))
    wals, beside = (sum(blocks(f"{base}{end}") for base in (paths.store, paths.search)) for end in ("-wal", "-shm"))
    used = total(paths)
    slack = max(0, used - _pages_in_use(db) - index - ballast - beside)
    is_index_behind = bool(value(db, "SELECT EXISTS (SELECT 1 FROM _outbox)"))
    index_need = fts.STEP_ROOM_BYTES if is_index_behind else 0
    return Usage(used, slack, free(paths), index, wals, ballast, index_need)


def total(paths: Paths) -> int:
    """Everything of ours on that disk: both databases, their WALs, the ballast."""
    files = (f"{base}{suffix}" for base in (paths.store, paths.search) for suffix in ("", "-wal", "-shm"))
    return sum(map(blocks, files)) + blocks(ballast_path(paths))


def set_aside(paths: Paths) -> list[tuple[Path, int]]:
    """Damaged stores that were kept, and what each takes with its WAL. They are nobody's to delete but the user's, and
    so do not count against any cap.
    """
    found = sorted(paths.store.parent.glob(f"{paths.store.name}.damaged-*"))
    stores = [path for path in found if not path.name.endswith(("-wal", "-shm"))]
    return [(path, sum(blocks(f"{path}{suffix}") for suffix in ("", "-wal", "-shm"))) for path in stores]


def wal_bytes(paths: Paths) -> int:
    """What both WALs take."""
    return sum(blocks(f"{base}-wal") for base in (paths.store, paths.search))


def free(paths: Paths) -> int:
    """What is left on that disk, for anybody."""
    return shutil.disk_usage(paths.store.parent).free


def blocks(path: str | os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0


def _pages_in_use(db: apsw.Connection) -> int:
    pages = int(value(db, "PRAGMA page_count")) - int(value(db, "PRAGMA freelist_count"))
    return pages * int(value(db, "PRAGMA page_size"))


def reserve(soft_cap: int) -> int:
    """The size of the ballast, and the most a WAL may keep."""
    return min(LARGEST_RESERVE, soft_cap // RESERVE_SHARE)


def least_free(keep_free: int, reserve_bytes: int) -> int:
    """With less than this nothing more is taken in: keep_free, and what a transaction and its checkpoint need."""
    return keep_free + reserve_bytes


# --- giving back --------------------------------------------------------------------------------


def give_back(writer: Writer, search: SearchIndex, is_stopping: Callable[[], bool] = lambda: False) -> bool:
    """Return what was deleted to the file system, in steps that ingest can go between. False: a reader is in the way,
    or the index is still at it. The store first: on a full disk it is what the index is shrunk in.
    """
    give_back_store(writer, is_stopping)
    is_shrunk = search.shrink(INDEX_SECONDS)
    return give_back_store(writer, is_stopping) and is_shrunk


def give_back_store(writer: Writer, is_stopping: Callable[[], bool] = lambda: False) -> bool:
    """The same for the store alone."""
    left, before = writer.call(_vacuum_some), None
    while left and left != before and not is_stopping():  # a database that cannot be vacuumed must not keep us for ever
        left, before = writer.call(_vacuum_some), left
    return any(writer.maintain(connect.truncate_wal) for _ in range(CHECKPOINT_TRIES))


def _vacuum_some(db: apsw.Connection) -> int:
    rows(db, f"PRAGMA incremental_vacuum({VACUUMED_PAGES})")
    return int(value(db, "PRAGMA freelist_count"))


# --- ballast ------------------------------------------------------------------------------------


def ballast_path(paths: Paths) -> Path:
    return paths.store.with_name(paths.store.name + ".ballast")


def keep_ballast(paths: Paths, size: int, keep_free: int) -> bool:
    """Have a ballast of this size where there is room for it besides `keep_free`; False where there is none."""
    path = ballast_path(paths)
    present = blocks(path)
    if abs(present - size) < 4096:
        return True
    drop_ballast(paths)
    if shutil.disk_usage(path.parent).free < size + min(keep_free, size):
        return False
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:  # macOS: blocks that were written are there
            for at in range(0, size, 2**16):
                os.write(fd, os.urandom(min(2**16, size - at)))
    except OSError:
        drop_ballast(paths)
        return False
    finally:
        os.close(fd)
    return True


def drop_ballast(paths: Paths) -> None:
    ballast_path(paths).unlink(missing_ok=True)
