"""The unused parts of a database's pages, filled with zeros in the file.

`secure_delete` zeroes what a row leaves behind where it was deleted. But when SQLite moves rows from page to page, the
old page may keep a copy in the room between its directory and its rows. Nothing reads it, and no SQL reaches it:
after a session was forgotten its words could still be there. So that room is zeroed in the file itself, by whoever
owns the connection that writes, while the WAL is empty and nothing of the file is in that connection's memory.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from sessiond.store import connect
from sessiond.store.connect import value

if TYPE_CHECKING:
    from pathlib import Path

    import apsw

PAGES = 2000  # looked at by one step: some 20 ms
TREE_PAGES = {2: 12, 5: 12, 10: 8, 13: 8}  # kind of page -> length of its header
ROOT, TREE = 1, 5  # what the pointer map says of such pages
MAX_PAGES = 0x02000000  # beyond it the first byte of an overflow page could be taken for a kind of page
FIRST_HEADER = 100  # of the whole file, before that of its first page

# Closing a descriptor would drop every lock that SQLite holds on that file in this process, so each stays open.
_descriptors: dict[tuple[int, int], int] = {}


def wipe_some(db: apsw.Connection, path: Path, first: int = 1, count: int = PAGES) -> int | None:
    """Clean so many pages; the first of the next, 0 at the end, or None where a reader is in the way of beginning.

    On the thread of the one connection that writes to this database, and outside of any transaction.
    """
    pages, size = int(value(db, "PRAGMA page_count")), int(value(db, "PRAGMA page_size"))
    if pages >= MAX_PAGES or not value(db, "PRAGMA auto_vacuum"):
        return 0
    if not connect.truncate_wal(db):
        return None
    db.execute("PRAGMA shrink_memory")  # a page from memory, changed and written again, would bring it all back
    fd = _open(path)
    last = min(pages, first + count - 1)
    data = os.pread(fd, (last - first + 1) * size, (first - 1) * size)
    is_tree = _PointerMap(fd, size).is_tree
    for number in range(first, first + len(data) // size):
        at = (number - first) * size
        page = data[at : at + size]
        if page[FIRST_HEADER if number == 1 else 0] in TREE_PAGES and is_tree(number):
            for start, stop in dirty_parts(page, FIRST_HEADER if number == 1 else 0):
                os.pwrite(fd, bytes(stop - start), (number - 1) * size + start)
    os.fsync(fd)
    return last + 1 if last < pages else 0


def wipe_all(db: apsw.Connection, path: Path) -> bool:
    """The same for the whole file at once; False where a reader is in the way."""
    at: int | None = 1
    while at:
        at = wipe_some(db, path, at)
    return at == 0


def dirty_parts(page: bytes, header: int) -> list[tuple[int, int]]:
    """Where a page of a tree has anything in its unused room: before its rows, and in the blocks freed between them."""
    free, cells, content = struct.unpack_from(">HHH", page, header + 1)
    start = header + TREE_PAGES[page[header]] + 2 * cells
    content = content or 65536
    if not start <= content <= len(page):
        return []
    found = [(start, content)]
    while content <= free <= len(page) - 4:
        follows, length = struct.unpack_from(">HH", page, free)
        if length < 4 or free + length > len(page):
            break
        found.append((free + 4, free + length))
        if follows <= free:
            break
        free = follows
    return [(a, b) for a, b in found if page.count(0, a, b) != b - a]


class _PointerMap:
    """What each page is, as the file itself has it: a page of rows must not be guessed by its first byte."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._usable = size - os.pread(fd, 1, 20)[0]
        self._per_map = self._usable // 5 + 1
        self._kept: tuple[int, bytes] = (0, b"")

    def is_tree(self, number: int) -> bool:
        if number == 1:
            return True
        lock_page = 2**30 // self._size + 1
        place = (number - 2) // self._per_map * self._per_map + 2
        place += place == lock_page
        if number in (place, lock_page):
            return False
        if self._kept[0] != place:
            self._kept = (place, os.pread(self._fd, self._size, (place - 1) * self._size))
        return self._kept[1][5 * (number - place - 1)] in (ROOT, TREE)


def _open(path: Path) -> int:
    for name, fd in list(_descriptors.items()):
        if not os.fstat(fd).st_nlink:  # set aside since: nobody has it open any more, and it must not keep its room
            os.close(_descriptors.pop(name))
    stat = os.stat(path)
    name = (stat.st_dev, stat.st_ino)
    if name not in _descriptors:
        _descriptors[name] = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    return _descriptors[name]
