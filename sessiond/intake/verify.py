"""Is what was archived what the agents' files say? Reads both, writes nothing.

Only what was taken in is compared, so a file that is being appended to is as good as any other. One that was replaced
and is not taken in yet is named as such: its old content is in the archive, and the new one will be.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sessiond.adapters.base import Reader
from sessiond.intake import identity
from sessiond.intake.content import Compressed, Content, Plain
from sessiond.intake.opened import opened
from sessiond.store import sources, verify
from sessiond.store.sources import LIVE
from sessiond.store.verify import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import apsw

    from sessiond.store.sources import Source


class Compared(NamedTuple):
    """One file: what was found, and how much of it was read."""

    findings: Sequence[Finding]
    bytes: int


def session(
    db: apsw.Connection, row: int, uid: str, tell: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[Source, Compared]]:
    """The files of a session that are there, each compared; `tell` hears of every piece that was read."""
    for source in sources.of_session(db, row):
        if source.state == LIVE and source.generation_id is not None:
            yield source, _compare(db, source, uid, tell)


def _compare(db: apsw.Connection, source: Source, uid: str, tell: Callable[[int], None]) -> Compared:
    try:
        with _content(source) as (content, stat):
            if source.reader == Reader.SNAPSHOT and not _is_as_it_was(source, stat):
                return _noted(uid, source, "changed since", "sessiond ingest takes it in")
            size, offset = _first_difference(db, source, content, tell)
            if offset is None or _has_moved_on(db, source):
                return Compared((), size)
            return Compared([_difference(content, stat, source, uid, offset)], size)
    except FileNotFoundError:
        return _noted(uid, source, "not there any more, and not yet noticed", "nothing: it is kept in the archive")
    except OSError as error:
        return _noted(uid, source, f"cannot be read: {error.strerror or type(error).__name__}", "ls -l shows why")


@contextmanager
def _content(source: Source) -> Iterator[tuple[Content, os.stat_result]]:
    with opened(source.path, source.below.count("/")) as fd:
        stat = os.fstat(fd)
        yield (Compressed(fd, stat) if source.reader == Reader.ZSTD else Plain(fd, stat.st_size)), stat


def _is_as_it_was(source: Source, stat: os.stat_result) -> bool:
    return (stat.st_size, sources.storable(stat.st_mtime_ns)) == (source.size, source.mtime_ns)


def _first_difference(
    db: apsw.Connection, source: Source, content: Content, tell: Callable[[int], None]
) -> tuple[int, int | None]:
    """How much was compared, and where the file says something else."""
    compared = 0
    start = verify.evicted_to(db, source)
    try:
        for span in verify.spans(db, source.generation_id or 0, start, source.checkpoint.offset):
            if span.data is None:
                continue
            found = content.read_at(span.start, len(span.data))
            compared += len(found)
            tell(len(found))
            if found != span.data:
                return compared, span.start + _alike(found, span.data)
    except verify.Damaged:
        pass  # named where the archive itself is looked at
    return compared, None


def _alike(a: bytes, b: bytes) -> int:
    """How many bytes two pieces have in common, from their beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def _has_moved_on(db: apsw.Connection, source: Source) -> bool:
    """Intake has seen another content of it meanwhile, or a rewritten file's next version."""
    now = sources.by_path(db, source.path)
    if now is None or now.state != LIVE:
        return True
    return (now.generation_id, now.checkpoint.head) != (source.generation_id, source.checkpoint.head)


def _difference(content: Content, stat: os.stat_result, source: Source, uid: str, offset: int) -> Finding:
    is_rewritten = source.reader == Reader.SNAPSHOT
    why = None if is_rewritten else identity.why_new(content, stat, source.checkpoint)
    if why is not None:
        return Finding(f"differs: {why} since, not yet taken in", "sessiond ingest", uid, source.path, offset)
    fix = "one of the two was changed in place; sessiond restore writes the archived bytes for you to compare"
    return Finding("differs from the archive", fix, uid, source.path, offset)


def _noted(uid: str, source: Source, what: str, fix: str) -> Compared:
    return Compared([Finding(what, fix, uid, source.path, is_problem=False)], 0)
