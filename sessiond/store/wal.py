"""A reader that stays in a transaction keeps the WAL from being emptied, and it grows with all that is written: that is
seen here, and who it is.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sessiond.errors import SessiondError
from sessiond.store import connect, space
from sessiond.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

    import apsw

    from sessiond.paths import Paths
    from sessiond.store.search import SearchIndex
    from sessiond.store.writer import Writer

TRY_SECONDS = 5.0  # emptying it may hold the writer up for a tenth of a second
NAMED = 3
MIB = 2**20


class WalWatch:
    """`look` as often as you like: it tries to empty a WAL that is too large, and says why where it cannot."""

    def __init__(self, paths: Paths, writer: Writer, search: SearchIndex) -> None:
        self._paths = paths
        self._writer = writer
        self._search = search
        self._tried = -TRY_SECONDS
        self._told: str | None = None

    def look(self, limit_bytes: int) -> str | None:
        """What is in the way, in words; None where no WAL is larger than it may become (`limit_bytes`, its usual
        limit, and what one transaction and the checkpoint after it add).
        """
        if not self._too_large(limit_bytes):
            self._told = None
        elif time.monotonic() - self._tried >= TRY_SECONDS:
            with suppress(SessiondError):  # a store that was removed is looked after elsewhere
                self._writer.maintain(connect.truncate_wal)
            self._search.ask(_empty)
            self._tried = time.monotonic()
            self._told = self._in_the_way(limit_bytes)
        return self._told

    def _too_large(self, limit_bytes: int) -> list[Path]:
        most = 2 * limit_bytes + MIB
        return [base for base in (self._paths.store, self._paths.search) if space.blocks(f"{base}-wal") > most]

    def _in_the_way(self, limit_bytes: int) -> str | None:
        for base in self._too_large(limit_bytes):
            readers = readers_of(base)
            who = ", ".join(readers[:NAMED]) or "a program"
            size = format_size(space.blocks(f"{base}-wal"))
            return f"{base.name}-wal has grown to {size}: {who} keeps {base.name} open in a long read"
        return None


def _empty(db: apsw.Connection) -> None:
    connect.truncate_wal(db)


def readers_of(path: Path) -> list[str]:
    """Other programs that have this database open, as "name (pid 7)", as far as this user may know."""
    others = [pid for pid in _listed("/proc") if pid.isdecimal() and int(pid) != os.getpid()]
    return [f"{_name(pid)} (pid {pid})" for pid in others if _opened_by(pid) & {os.fspath(path), f"{path}-wal"}]


def _opened_by(pid: str) -> set[str | None]:
    return {_target(f"/proc/{pid}/fd/{fd}") for fd in _listed(f"/proc/{pid}/fd")}


def _listed(folder: str) -> list[str]:
    with suppress(OSError):  # gone meanwhile, somebody else's, or no such thing on this system
        return sorted(os.listdir(folder))
    return []


def _target(link: str) -> str | None:
    with suppress(OSError):
        return os.readlink(link)
    return None


def _name(pid: str) -> str:
    with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return "a program"
