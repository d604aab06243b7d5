"""One chunk of one file becomes rows: bytes, events, names, usage, facts and cursor, in the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from sessiond.model import Carry, Chunk, Event, Fact, Link, Patch, Record, Reject, Unknown, Usage, moment, utc
from sessiond.store import archive, facts, gone, relief, session_row, sources, tombstones
from sessiond.store.connect import value
from sessiond.store.keys import root_of
from sessiond.store.resolve import Place, Resolver, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import apsw

    from sessiond.store.archive import Frame
    from sessiond.store.session_row import SessionRow
    from sessiond.store.sources import Source

    Parsed = Sequence[tuple[Place, Sequence[Record]]]


@dataclass(slots=True)
class Batch:
    """What intake made of one chunk: ready to be written, nothing left to compute, and no raw bytes left in it."""

    source: Source
    chunk: Chunk
    parsed: Parsed
    rejects: Sequence[Reject]
    carry: Carry
    frames: Sequence[Frame]
    lines: int = 0
    repaired: int = 0
    _before: tuple[int | None, int | None, int | None, str | None] | None = None

    def roll_forward(self) -> None:
        source = self.source
        self._before = (source.id, source.session_row, source.generation_id, source.first_ts)

    def roll_back(self) -> None:
        """After a rollback, ids that were given inside the transaction name nothing, or somebody else."""
        if self._before is not None:
            source = self.source
            source.id, source.session_row, source.generation_id, source.first_ts = self._before

    @property
    def size(self) -> int:
        return self.chunk.checkpoint.offset - self.chunk.start + 512


@dataclass(slots=True)
class Counts:
    """What a transaction adds to the counters of `status`."""

    lines: int = 0
    events: int = 0
    replays: int = 0
    repaired: int = 0
    rejected: int = 0
    blank_lines: int = 0
    generations: int = 0
    truncated: int = 0
    unknown: dict[tuple[str, str], int] = field(default_factory=dict)

    def save(self, db: apsw.Connection) -> None:
        upsert = "INSERT INTO _counter VALUES (?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
        for name in ("lines", "events", "replays", "repaired", "rejected", "blank_lines", "generations", "truncated"):
            if getattr(self, name):
                db.execute(upsert, (name, getattr(self, name)))
        upsert = "INSERT INTO _unknown VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET records = records + excluded.records"
        for (flavor, name), records in self.unknown.items():
            db.execute(upsert, (flavor, name, records))


def commit_chunk(db: apsw.Connection, batch: Batch, counts: Counts, now: datetime) -> None:
    """Write one batch. Reading the same chunk again would add nothing: every row here has a name or a place."""
    source, at = batch.source, utc(now)
    if source.is_broken:
        raise sources.Gap(f"source {source.id}: a chunk before this one was not stored")
    tombstones.refuse(db, source, batch.parsed)
    batch.roll_forward()
    taken_back = _place_source(db, batch, counts, at)
    rejected = _write_bytes(db, batch)
    if source.session_row is None:  # excluded or foreign: only path and cursor are kept
        sources.advance(db, source, batch.chunk, batch.carry)
        return
    session = session_row.load(db, source.session_row)
    session.has_source = True
    if batch.chunk.restarted:
        session.altered()  # what is not found again in the new content is superseded
    note_first_ts(db, source, batch.parsed)
    tally = write_records(db, source, session, batch.parsed, counts, at)
    tally.unindex += taken_back
    if source.is_timeless and tally.events:
        session.cover(utc(moment(batch.chunk.mtime_ns)))
    if session.is_changed or tally.events:
        session_row.save(db, session, at)
    else:
        _no_longer_gone(db, session)
    write_outbox(db, tally)
    sources.advance(db, source, batch.chunk, batch.carry)
    counts.lines += batch.lines
    counts.events += tally.events
    counts.replays += tally.replays
    counts.repaired += batch.repaired
    counts.rejected += rejected
    counts.blank_lines += batch.chunk.blank_lines


def _no_longer_gone(db: apsw.Connection, session: SessionRow) -> None:
    if value(db, "SELECT source_gone_at FROM _session WHERE id = ?", (session.id,)) is not None:
        query = "UPDATE _session SET source_gone_at = NULL, revision = ? WHERE id = ?"
        db.execute(query, (session_row.next_revision(db), session.id))


def _place_source(db: apsw.Connection, batch: Batch, counts: Counts, at: str) -> list[int]:
    """Give it the ids of its rows. Returns the events that a file took along which stood in for this one."""
    source, chunk = batch.source, batch.chunk
    taken_back: list[int] = []
    if source.session_row is None and source.session_id:
        source.session_row = session_row.find_or_make(db, source, at)
        if source.role == "main":
            taken_back = relief.relieve(db, source.session_row)
    if source.id is None:
        source.id = sources.insert(db, source, at)
    if chunk.restarted and source.session_row is not None:
        gone.archive_tail(db, source.id)
    if source.generation_id is None or chunk.restarted:
        source.generation_id = _next_generation(db, source.id, chunk.restarted, at)
        counts.generations += chunk.restarted is not None
        counts.truncated += chunk.restarted == "truncated"
    return taken_back


def _next_generation(db: apsw.Connection, source_id: int, reason: str | None, at: str) -> int:
    close = "UPDATE _generation SET closed_at = ? WHERE source_id = ? AND closed_at IS NULL"
    db.execute(close, (at, source_id))
    made = value(
        db,
        "INSERT INTO _generation (source_id, number, opened_at, reason)"
        " SELECT :source, ifnull(max(number), 0) + 1, :at, :reason FROM _generation WHERE source_id = :source"
        " RETURNING id",
        {"source": source_id, "at": at, "reason": reason},
    )
    return int(made)


def _write_bytes(db: apsw.Connection, batch: Batch) -> int:
    """Frames and rejects; returns how many of these are new. What the archive held from here on was provisional: a tail
    that was archived as unterminated when its file went away, or the version before this one of a rewritten file.
    """
    generation, start = batch.source.generation_id, 0 if batch.chunk.snapshot else batch.chunk.start
    db.execute("DELETE FROM _frame WHERE generation_id = ? AND start >= ?", (generation, start))
    db.execute("DELETE FROM _reject WHERE generation_id = ? AND start >= ?", (generation, start))
    # Such a tail may have been evicted: what is read in its place is there.
    db.execute(
        "UPDATE _generation SET evicted_to = :at WHERE id = :id AND evicted_to > :at", {"at": start, "id": generation}
    )
    if batch.source.session_row is None:
        return 0
    insert = "INSERT INTO _frame (generation_id, start, stop, codec, data) VALUES (?, ?, ?, ?, ?)"
    for frame in batch.frames:
        db.execute(insert, (generation, *frame))
    longer = "UPDATE _reject SET length = length + ? WHERE generation_id = ? AND reason = 'nul' AND start + length = ?"
    insert = "INSERT OR REPLACE INTO _reject VALUES (?, ?, ?, ?, ?)"
    rejected = 0
    for reject in batch.rejects:
        if reject.reason == "nul":  # one record per run, in however many pieces it was read
            db.execute(longer, (reject.length, generation, reject.offset))
            if db.changes():
                continue
        db.execute(insert, (generation, reject.offset, reject.length, reject.reason, reject.hash))
        rejected += 1
    return rejected


def note_first_ts(db: apsw.Connection, source: Source, parsed: Parsed) -> None:
    """When a file begins is the time of its first record that has one."""
    if source.first_ts is None:
        source.first_ts = next((ts for _, records in parsed for ts in map(_ts, records) if ts), None)
        if source.first_ts is not None:  # the owner rule reads it from the table
            db.execute("UPDATE _source SET first_ts = ? WHERE id = ?", (source.first_ts, source.id))


def write_records(
    db: apsw.Connection, source: Source, session: SessionRow, parsed: Parsed, counts: Counts, at: str
) -> Tally:
    """Events, names, usage and facts of these lines, as `session` will be saved; also when they are derived anew."""
    resolver = Resolver(db, source, session, root_of(db, session.uid))
    for place, records in parsed:
        block = 0
        for record in records:
            if isinstance(record, Event):
                resolver.event(place, block, record)
                block += 1
            elif isinstance(record, Link):
                resolver.link(place, record)
            elif isinstance(record, Usage):
                resolver.usage(record)
            elif isinstance(record, Patch):
                resolver.patch(record)
            elif isinstance(record, Fact):
                facts.apply(db, session, source.flavor, record, resolver.tally)
                if record.name == "parent":
                    resolver.belongs_to(root_of(db, session.uid))
            elif isinstance(record, Unknown):
                name = (source.flavor, record.name[:80])
                counts.unknown[name] = counts.unknown.get(name, 0) + 1
    resolver.close(at)
    return resolver.tally


def write_outbox(db: apsw.Connection, tally: Tally) -> None:
    """What the search index must take in, or forget, is part of the same transaction; the index follows."""
    if tally.index or tally.unindex:
        data = orjson.dumps({"remove": tally.unindex, "add": tally.index})
        db.execute("INSERT INTO _outbox (data) VALUES (?)", (archive.compress(data),))


def _ts(record: Record) -> str | None:
    return record.ts if isinstance(record, Event | Link) else None
