"""A damaged database as its pages lie there, WAL included; opened for reading only, so that it stays as it was found.

SQLite itself reads the rows, from any page that one names as the root of a table: the first page, where a database
says what it holds, is lent to it. So neither a damaged header nor a damaged schema is in the way, no index is looked
at, and a leaf whose way down from the root is broken is read as a small table of its own.
"""

from __future__ import annotations

import itertools
import os
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import apsw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"SQLite format 3\0"
USUAL_SIZE = 4096
INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
_ROOT, _TREE = 1, 5  # what the pointer map says of a page that belongs to a tree
_LOCK_BYTE = 2**30
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WAL_MAGIC = (0x377F0682, 0x377F0683)  # checksums in little and in big endian
_numbers = itertools.count()


class Pages:
    """Every page as the last commit that can be read left it. A context manager: it holds descriptors."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._wal_fd = -1
        self._wal: dict[int, int] = {}
        self._lent = b""
        head = os.pread(self._fd, 100, 0)
        self.size = _page_size(head) or USUAL_SIZE
        self.count = os.fstat(self._fd).st_size // self.size
        with suppress(FileNotFoundError):
            self._wal_fd = os.open(path.with_name(path.name + "-wal"), os.O_RDONLY | os.O_CLOEXEC)
            self._read_wal(has_header=head.startswith(MAGIC))
        self._children: dict[int, list[int]] | None = None
        self._vfs = _Vfs(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._vfs.unregister()
        for fd in (self._fd, self._wal_fd):
            if fd >= 0:
                os.close(fd)

    def read(self, number: int) -> bytes:
        """A page; what the file does not have reads as zeros."""
        at = self._wal.get(number)
        fd, at = (self._fd, (number - 1) * self.size) if at is None else (self._wal_fd, at)
        return os.pread(fd, self.size, at).ljust(self.size, b"\0")

    @property
    def version(self) -> int | None:
        """Of the schema, where the header can be read."""
        first = self.read(1)
        return int.from_bytes(first[60:64], "big") if first.startswith(MAGIC) else None

    # --- the trees ------------------------------------------------------------------------------

    def tree(self, root: int) -> list[int]:
        """The pages of a table, its root first, as the pointer map knows them: it names the parent of every page."""
        if self._children is None:
            self._children = self._map_children()
        found, seen = [root], {root}
        for parent in found:
            new = [page for page in self._children.get(parent, ()) if page not in seen]
            found += new
            seen.update(new)
        return found

    def is_root(self, number: int) -> bool:
        place = self._map_page(number)
        entry = self.read(place)[5 * (number - place - 1) :][:1]
        return number > place and entry == bytes([_ROOT])

    def _map_children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        place, entries = 0, b""
        for number in range(3, self.count + 1):
            if self._map_page(number) != place:
                place = self._map_page(number)
                entries = self.read(place)
            at = 5 * (number - place - 1)
            if number > place and entries[at] == _TREE:
                children.setdefault(int.from_bytes(entries[at + 1 : at + 5], "big"), []).append(number)
        return children

    def _map_page(self, number: int) -> int:
        per_map = self.size // 5 + 1
        place = (number - 2) // per_map * per_map + 2
        return place + (place == _LOCK_BYTE // self.size + 1)

    # --- lending a first page -------------------------------------------------------------------

    @contextmanager
    def as_table(self, create: str, root: int) -> Iterator[apsw.Connection]:
        """A database of this one table `t`, whose tree begins at that page."""
        self._lent = _first_page(create, root, self.size, self.count)
        db = apsw.Connection("salvage", flags=apsw.SQLITE_OPEN_READONLY, vfs=self._vfs.vfs_name)
        try:
            db.execute("PRAGMA temp_store = MEMORY")
            yield db
        finally:
            db.close()

    @contextmanager
    def as_found(self) -> Iterator[apsw.Connection]:
        """The database by its own first page; only told that it has neither WAL nor pointer map."""
        first = bytearray(self.read(1))
        first[18:20], first[52:56], first[64:68] = b"\1\1", bytes(4), bytes(4)
        self._lent = bytes(first)
        db = apsw.Connection("salvage", flags=apsw.SQLITE_OPEN_READONLY, vfs=self._vfs.vfs_name)
        try:
            yield db
        finally:
            db.close()

    def for_sqlite(self, offset: int, length: int) -> bytes:
        number, within = offset // self.size + 1, offset % self.size
        page = self._lent if number == 1 else self.read(number)
        return page[within : within + length]

    # --- the WAL --------------------------------------------------------------------------------

    def _read_wal(self, *, has_header: bool) -> None:
        """Where the newest committed copy of each page lies. As SQLite does it: the first bad checksum is the end."""
        header = os.pread(self._wal_fd, _WAL_HEADER, 0)
        if len(header) < _WAL_HEADER:
            return
        magic, _, size, _, salts, sums = struct.unpack(">IIII8s8s", header)
        order = ">" if magic == _WAL_MAGIC[1] else "<"
        running = _checksum(header[:24], (0, 0), order)
        if magic not in _WAL_MAGIC or sums != struct.pack(">II", *running):
            return
        if has_header and size != self.size:
            return
        self.size = size
        pending: dict[int, int] = {}
        at = _WAL_HEADER
        while len(frame := os.pread(self._wal_fd, _FRAME_HEADER + size, at)) == _FRAME_HEADER + size:
            number, commit, its_salts, sums = struct.unpack(">II8s8s", frame[:_FRAME_HEADER])
            running = _checksum(frame[_FRAME_HEADER:], _checksum(frame[:8], running, order), order)
            if its_salts != salts or sums != struct.pack(">II", *running):
                break
            pending[number] = at + _FRAME_HEADER
            if commit:
                self._wal.update(pending)
                self.count = commit
                pending.clear()
            at += len(frame)


class _Vfs(apsw.VFS):
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.vfs_name = f"sessiond-salvage-{next(_numbers)}"
        super().__init__(self.vfs_name, "")

    def xOpen(self, _name: Any, flags: list[int]) -> Any:  # noqa: N802 - SQLite's own names
        flags[1] = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
        return _File(self._pages)

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, _name: str, _flags: int) -> bool:  # noqa: N802 - there is no journal
        return False


class _File:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return self._pages.for_sqlite(offset, amount)

    def xFileSize(self) -> int:  # noqa: N802
        return self._pages.count * self._pages.size

    def xClose(self) -> None: ...  # noqa: N802
    def xLock(self, _level: int) -> None: ...  # noqa: N802
    def xUnlock(self, _level: int) -> None: ...  # noqa: N802
    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, _op: int, _ptr: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0


def _page_size(head: bytes) -> int | None:
    if not head.startswith(MAGIC):
        return None
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else size
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else None


def _first_page(create: str, root: int, size: int, count: int) -> bytes:
    with apsw.Connection(":memory:") as db:
        db.execute(f"PRAGMA page_size = {size}")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_schema VALUES ('table', 't', 't', ?, ?)", (root, create))
        page = bytearray(db.serialize("main")[:size])
    db.close()
    page[28:32] = struct.pack(">I", count)
    return bytes(page)


def _checksum(data: bytes, running: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = running
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for a, b in zip(words[::2], words[1::2], strict=True):
        first = (first + a + second) & 0xFFFFFFFF
        second = (second + b + first) & 0xFFFFFFFF
    return first, second
