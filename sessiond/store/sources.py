"""A source: one file of one session, and how far it was read. Rows of `_source` in, `Source` out, and back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.model import START, Carry, Checkpoint, Chunk
from sessiond.store.connect import rows, value
from sessiond.store.keys import hash_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import apsw

LIVE, GONE, EXCLUDED, FOREIGN, FORGOTTEN = "live", "gone", "excluded", "foreign", "forgotten"
# Stands for the mtime of a file that was not read to its end: after a restart the sweep must find that it changed.
UNREAD = -(2**63)


@dataclass(slots=True)
class Source:
    """Intake advances `checkpoint`, `carry` and the stat facts as it reads; the writer alone fills in the ids.

    `in_flight` counts chunks that were read but are not committed yet: until it is 0, what the store says of this
    file is behind what is said here.
    """

    flavor: str
    home: str
    path: str
    below: str  # the path below the home
    session_id: str = ""  # native
    member: str = ""
    role: str = "main"
    reader: str = "tail"
    state: str = LIVE
    is_sidechain: bool = False
    is_timeless: bool = False
    adapter_version: int = 0
    seed: Mapping[str, str] = field(default_factory=dict)  # what the carry begins with
    checkpoint: Checkpoint = START
    carry: Carry = field(default_factory=dict)
    size: int = 0
    mtime_ns: int = 0
    pending_bytes: int = 0
    pending_hash: int = hash_bytes(b"")  # of the unfinished line: it may be written anew at the same length
    id: int | None = None
    session_row: int | None = None
    generation_id: int | None = None
    first_ts: str | None = None
    in_flight: int = 0
    is_urgent: bool = False  # which of the writer's queues its chunks in flight are in
    is_broken: bool = False  # a chunk of it was not stored: none that was read after it may be

    @property
    def uid(self) -> str:
        return f"{self.flavor}:{self.session_id}"


_COLUMNS = """
       s.id, s.flavor, s.home, s.path, s.below, n.native_id, s.member, s.role, s.reader, s.state,
       n.is_sidechain, s.is_timeless, s.adapter_version, s.device, s.inode, s.read_offset, s.head, s.head_bytes,
       s.marker, s.checksum, s.skipped, s.skipped_hash, s.carry, s.size, s.mtime_ns, s.pending_bytes, s.pending,
       s.session_id, s.generation_id, s.first_ts, s.seed
  FROM _source AS s LEFT JOIN _session AS n ON n.id = s.session_id
"""


def by_path(db: apsw.Connection, path: str) -> Source | None:
    return _one(db, "WHERE s.path = :path", {"path": os.fsencode(path)})


def by_inode(db: apsw.Connection, device: int, inode: int) -> list[Source]:
    bound = {"device": signed(device), "inode": signed(inode)}
    return _all(db, "WHERE s.inode = :inode AND s.device = :device ORDER BY s.id", bound)


def by_member(db: apsw.Connection, uid: str, member: str) -> list[Source]:
    """The files that were ever this part of this session."""
    where = "WHERE n.uid = :uid AND s.member = :member ORDER BY s.id"
    return _all(db, where, {"uid": uid, "member": member})


def of_session(db: apsw.Connection, session_row: int) -> list[Source]:
    return _all(db, "WHERE s.session_id = :id ORDER BY s.role <> 'main', s.below, s.id", {"id": session_row})


def known_files(db: apsw.Connection) -> Iterator[tuple[str, int, int, int, int, str]]:
    """(path, device, inode, size, mtime_ns, state) of every file ever seen, for the sweep to compare with."""
    query = "SELECT path, device, inode, size, mtime_ns, state FROM _source ORDER BY id"
    for path, device, inode, size, mtime_ns, state in rows(db, query):
        yield os.fsdecode(path), unsigned(device), unsigned(inode), size, mtime_ns, state


_INSERT = """
INSERT INTO _source (session_id, flavor, home, path, below, member, role, reader, state, is_timeless,
                     discovered_at, adapter_version, device, inode, size, mtime_ns, seed, carry)
VALUES (:session, :flavor, :home, :path, :below, :member, :role, :reader, :state, :timeless, :now, :version,
        :device, :inode, :size, :mtime, :seed, :seed)
RETURNING id
"""


def insert(db: apsw.Connection, source: Source, now: str) -> int:
    bound = {
        "session": source.session_row,
        "flavor": source.flavor,
        "home": os.fsencode(source.home),
        "path": os.fsencode(source.path),
        "below": os.fsencode(source.below),
        "member": source.member,
        "role": source.role,
        "reader": source.reader,
        "state": source.state,
        "timeless": source.is_timeless,
        "now": now,
        "version": source.adapter_version,
        "device": signed(source.checkpoint.device),
        "inode": signed(source.checkpoint.inode),
        "size": source.size,
        "mtime": storable(source.mtime_ns),
        "seed": orjson.dumps(dict(source.seed)),
    }
    return int(value(db, _INSERT, bound))


_ADVANCE = """
UPDATE _source
   SET session_id = :session, home = :home, path = :path, below = :below, member = :member, role = :role,
       reader = :reader, state = :state, is_timeless = :timeless, gone_at = NULL,
       generation_id = :generation, device = :device, inode = :inode, size = :size, mtime_ns = :mtime,
       read_offset = :offset, head = :head, head_bytes = :head_bytes, marker = :marker, checksum = :checksum,
       skipped = :skipped, skipped_hash = :skipped_hash, pending = :pending, pending_bytes = :pending_bytes,
       carry = :carry, adapter_version = :version, first_ts = :first_ts,
       is_restorable = (is_restorable OR :is_new_content) AND :restorable
 WHERE id = :id AND (read_offset = :start OR :is_new_content OR state = 'excluded' OR session_id IS NULL)
"""


class Gap(RuntimeError):
    """A chunk that does not begin where the last one of its file ended. Nothing of it may be stored."""


def advance(db: apsw.Connection, source: Source, chunk: Chunk, carry: Carry) -> None:
    """The cursor after this chunk. In the same transaction as its rows: that is what exactly once rests on."""
    at = chunk.checkpoint
    bound = {
        "id": source.id,
        "session": source.session_row,
        "member": source.member,
        "role": source.role,
        "timeless": source.is_timeless,
        "home": os.fsencode(source.home),
        "path": os.fsencode(source.path),
        "below": os.fsencode(source.below),
        "reader": source.reader,
        "state": source.state,
        "generation": source.generation_id,
        "device": signed(at.device),
        "inode": signed(at.inode),
        "size": chunk.size,
        "mtime": UNREAD if chunk.more else storable(chunk.mtime_ns),
        "offset": at.offset,
        "head": at.head,
        "head_bytes": at.head_bytes,
        "marker": at.marker,
        "checksum": signed(at.checksum),
        "skipped": at.skipped,
        "skipped_hash": at.skipped_hash,
        "pending": chunk.pending,
        "pending_bytes": chunk.pending_bytes,
        "carry": orjson.dumps(carry),
        "version": source.adapter_version,
        "first_ts": source.first_ts,
        "restorable": not chunk.dropped,
        "start": chunk.start,
        "is_new_content": chunk.snapshot or chunk.restarted is not None,
    }
    db.execute(_ADVANCE, bound)
    if not db.changes():
        raise Gap(f"source {source.id} was not read up to {chunk.start}")


def storable(nanoseconds: int) -> int:
    """A file may carry any time; SQLite's integers end in the year 2262."""
    return max(UNREAD + 1, min(nanoseconds, 2**63 - 1))


def signed(value: int) -> int:
    """Inode and device numbers are unsigned 64-bit; SQLite's integers are signed."""
    return value - 2**64 if value >= 2**63 else value


def unsigned(value: int) -> int:
    return value + 2**64 if value < 0 else value


def _one(db: apsw.Connection, where: str, bound: dict[str, Any]) -> Source | None:
    found = _all(db, where, bound)
    return found[0] if found else None


def _all(db: apsw.Connection, where: str, bound: dict[str, Any]) -> list[Source]:
    return [_from_row(row) for row in rows(db, f"SELECT {_COLUMNS} {where}", bound)]


def _from_row(row: tuple[Any, ...]) -> Source:
    (id_, flavor, home, path, below, native, member, role, reader, state, sidechain, timeless, version, device,
     inode, offset, head, head_bytes, marker, checksum, skipped, skipped_hash, carry, size, mtime_ns, pending_bytes,
     pending, session_row, generation_id, first_ts, seed) = row  # fmt: skip
    return Source(
        flavor=flavor,
        home=os.fsdecode(home),
        path=os.fsdecode(path),
        below=os.fsdecode(below),
        session_id=native or "",
        member=member,
        role=role,
        reader=reader,
        state=state,
        is_sidechain=bool(sidechain),
        is_timeless=bool(timeless),
        adapter_version=version,
        checkpoint=Checkpoint(
            device=unsigned(device),
            inode=unsigned(inode),
            offset=offset,
            head=head,
            head_bytes=head_bytes,
            marker=marker,
            checksum=unsigned(checksum),
            skipped=skipped,
            skipped_hash=skipped_hash,
        ),
        carry=orjson.loads(carry),
        size=size,
        mtime_ns=mtime_ns,
        pending_bytes=pending_bytes,
        pending_hash=hash_bytes(pending),
        id=id_,
        session_row=session_row,
        generation_id=generation_id,
        first_ts=first_ts,
        seed=orjson.loads(seed),
    )
