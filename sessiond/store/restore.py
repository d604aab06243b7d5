"""The agent's own files, back from the archive: byte for byte, in the agent's own layout below a folder of choice."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sessiond.errors import Forbidden, SessiondError
from sessiond.paths import make_folders
from sessiond.store import archive
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a session. `missing` is the first range of it that the archive does not hold."""

    below: str  # its path below the agent's home
    size: int
    generation_id: int
    missing: tuple[int, int] | None
    tail: bytes = b""  # of a file that is still there: its unfinished last line

    @property
    def complete(self) -> bool:
        return self.missing is None


_SOURCES = """
WITH RECURSIVE family (id, uid, depth) AS (  -- the session, and the sub-agents that are sessions of their own
    SELECT id, uid, 0 FROM _session WHERE uid = ?
    UNION
    SELECT c.id, c.uid, f.depth + 1 FROM _session AS c JOIN family AS f ON c.parent = f.uid
     WHERE c.is_sidechain AND f.depth < 8
)
SELECT f.id, f.below, f.read_offset, iif(f.state = 'live', f.pending, x''), f.generation_id
  FROM _source AS f JOIN (SELECT id, min(depth) AS depth FROM family GROUP BY id) AS s ON s.id = f.session_id
 ORDER BY s.depth, f.role <> 'main', f.below, f.read_offset DESC, f.id
"""


def plan(db: apsw.Connection, uid: str, *, generation: int | None = None) -> list[Part]:
    """The files of a session as they would be written; `generation` asks for an older content of its main file."""
    parts: dict[str, Part] = {}
    for number, (source_id, path, offset, pending, current) in enumerate(rows(db, _SOURCES, (uid,))):
        below = os.fsdecode(path).removesuffix(".zst")  # the archive holds the decompressed bytes
        if below in parts:
            continue  # a copy of the session's file in another home: the one that was read further stands for both
        if number == 0 and generation is not None:
            parts[below] = _old_part(db, source_id, below, generation)
        else:
            parts[below] = _part(db, below, current, offset, pending)
    if not parts:
        raise SessiondError(f"there is nothing to restore of {uid}", hint="its files were never stored")
    return list(parts.values())


def write(db: apsw.Connection, parts: Sequence[Part], to: Path, *, partial: bool = False) -> list[Path]:
    """Write the files below `to`, private and new; nothing is ever overwritten."""
    targets = [(part, _target(to, part.below)) for part in parts]
    for _, target in targets:
        if os.path.lexists(target):
            raise SessiondError(f"{target} exists already", hint="restore never overwrites: choose an empty folder")
    for part in parts:
        if part.missing and not partial:
            start, stop = part.missing
            raise SessiondError(
                f"bytes {start}..{stop} of {part.below} are no longer in the archive",
                hint="--partial restores what is there",
            )
    for part, target in targets:
        _write(db, part, target)
    return [target for _, target in targets]


def _part(db: apsw.Connection, below: str, generation_id: int, offset: int, pending: bytes) -> Part:
    end = value(db, "SELECT max(stop) FROM _frame WHERE generation_id = ?", (generation_id,)) or 0
    size = max(offset, end)
    missing = _first_gap(db, generation_id, size)
    return Part(below, size + len(pending), generation_id, missing, pending)


def _old_part(db: apsw.Connection, source_id: int, below: str, number: int) -> Part:
    query = "SELECT id FROM _generation WHERE source_id = ? AND number = ?"
    generation_id = value(db, query, (source_id, number))
    if generation_id is None:
        newest = value(db, "SELECT max(number) FROM _generation WHERE source_id = ?", (source_id,))
        raise SessiondError(f"there is no generation {number} of {below}", hint=f"there are 1 to {newest}")
    return _part(db, below, generation_id, 0, b"")


def _first_gap(db: apsw.Connection, generation_id: int, size: int) -> tuple[int, int] | None:
    at = 0
    query = "SELECT start, stop, codec FROM _frame WHERE generation_id = ? ORDER BY start"
    for start, stop, codec in rows(db, query, (generation_id,)):
        if start > at:
            return at, start
        if codec == archive.DROPPED:
            return start, stop
        at = stop
    return (at, size) if at < size else None


def _target(to: Path, below: str) -> Path:
    pure = PurePosixPath(below)
    if pure.is_absolute() or ".." in pure.parts:
        raise SessiondError(f"{below} would be written outside of {to}")
    return to / pure


def _write(db: apsw.Connection, part: Part, target: Path) -> None:
    try:
        make_folders(target.parent)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise Forbidden(f"cannot write {target}: {error.strerror}") from error
    except OSError as error:
        raise SessiondError(f"cannot write {target}: {error.strerror}") from error
    with os.fdopen(fd, "wb") as file:
        for start, stop, codec, data in db.execute(
            "SELECT start, stop, codec, data FROM _frame WHERE generation_id = ? ORDER BY start", (part.generation_id,)
        ):
            file.seek(start)
            if codec == archive.ZSTD:
                file.write(archive.decompress(data))
            elif codec == archive.ZEROS:
                file.truncate(stop)  # a hole, as it most likely was one
        file.seek(0, os.SEEK_END)
        file.write(part.tail)
