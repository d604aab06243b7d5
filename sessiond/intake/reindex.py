"""Events derived anew from the archive, in the order in which they were stored: after a change of schema or adapter.

A session is one transaction: its rows are those of before, or those of now. Its files need not be there any more. What
Tier 1 does not hold in full is left alone: a session with an evicted part, one whose rewritten files had other versions
before, one whose bytes are damaged. An adapter that has not changed gives back the very same rows, seq included.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from sessiond.adapters.base import Reader
from sessiond.intake.retold import File, Reading, Told, in_order
from sessiond.model import Event, Record, Reject, utc
from sessiond.store import anew, commit, verify
from sessiond.store.connect import rows, value
from sessiond.store.recorded import Recorded
from sessiond.store.resolve import Place, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sessiond.adapters.base import Adapter
    from sessiond.intake.parse import Wording
    from sessiond.store.anew import Kept
    from sessiond.store.session_row import SessionRow
    from sessiond.store.writer import Writer

TOGETHER = 500  # lines that are resolved, and texts that are indexed, by one step


@dataclass(slots=True)
class Report:
    sessions: int = 0  # derived anew
    events: int = 0
    changed: int = 0  # sessions that are not what they were
    skipped_evicted: int = 0
    skipped_agents: int = 0  # no adapter is installed for these
    skipped_rewritten: int = 0  # made of versions of a file that are not kept
    skipped_damaged: int = 0
    failed: list[str] = field(default_factory=list)
    left: int = 0  # not reached: it was told to stop


def reindex(
    writer: Writer,
    db: apsw.Connection,
    adapters: Mapping[str, Adapter],
    wording: Wording,
    longest: int,
    uids: Sequence[str] | None,
    now: datetime,
    *,
    is_stopping: Callable[[], bool] = lambda: False,
    on_failure: Callable[[str, Exception], None] = lambda _, __: None,
) -> dict[str, Any]:
    """Derive these sessions anew, with their forks and sub-agents, or all; says what came of it.

    Intake must be at rest from before until it has forgotten its sources: it would go on with what their lines meant.
    """
    report = Report()
    chosen = anew.choose(db, uids)
    before = {row: anew.fingerprint(db, row) for row, _, _ in chosen}
    recorded = Recorded(db, [row for row, _, _ in chosen])
    try:
        for number, (row, uid, flavor) in enumerate(chosen):
            if is_stopping():
                report.left = len(chosen) - number
                break
            if flavor not in adapters:
                report.skipped_agents += 1
                continue
            one = _Session(Reading(row, uid, adapters[flavor], wording, longest, recorded), utc(now))
            try:
                _count(report, writer.call(one.derive))
            except _OlderVersions:
                report.skipped_rewritten += 1
            except apsw.Error:  # of the store: the next session would fare no better
                raise
            except Exception as error:  # noqa: BLE001 - its rows are as they were; the others can go on
                report.failed.append(uid)
                on_failure(uid, error)
    finally:
        recorded.close()
    # Only now: a copy that is derived after its owner may raise what the owner spent.
    report.changed = sum(anew.fingerprint(db, row) != told for row, told in before.items())
    return asdict(report)


class _OlderVersions(Exception):
    """The archived version of a rewritten file does not tell all that is known from it."""


class _Skipped(NamedTuple):
    why: str  # a field of the report


def _count(report: Report, derived: int | _Skipped) -> None:
    if isinstance(derived, _Skipped):
        setattr(report, derived.why, getattr(report, derived.why) + 1)
    else:
        report.sessions += 1
        report.events += derived


class _Session:
    """One session, in one transaction."""

    def __init__(self, reading: Reading, now: str) -> None:
        self._reading = reading
        self._row = reading.row
        self._now = now

    def derive(self, db: apsw.Connection) -> int | _Skipped:
        """How many events there are now, or why it was left as it is."""
        if anew.is_evicted(db, self._row):
            return _Skipped("skipped_evicted")
        if anew.has_older_versions(db, self._row):
            return _Skipped("skipped_rewritten")
        if verify.lost_events(db, self._row):
            return _Skipped("skipped_damaged")
        session, kept = anew.clear(db, self._row, self._reading.recorded, self._reading.longest)
        found = anew.live_sources(db, self._row)
        for source, _ in found:
            source.generation_id = source.first_ts = None
        files = [File(self._reading, db, source, generations) for source, generations in found]
        writing = _Writing(db, session, kept, self._now)
        for file, told in in_order(files):
            writing.take(file, told)
        writing.end()
        self._check_versions(db, files)
        self._end(db, session, kept, files)
        return writing.events

    def _check_versions(self, db: apsw.Connection, files: Sequence[File]) -> None:
        rewritten = [file.source.id or 0 for file in files if file.source.reader == Reader.SNAPSHOT]
        for hash_ in self._reading.recorded.events_of(self._row, rewritten):
            if value(db, "SELECT 1 FROM _key WHERE hash = ?", (hash_,)) is None:
                raise _OlderVersions

    def _end(self, db: apsw.Connection, session: SessionRow, kept: Kept, files: Sequence[File]) -> None:
        if any(file.source.is_timeless or file.source.reader == Reader.SNAPSHOT for file in files):
            session.cover(kept.started_at)  # the times of files that are gone, and of versions that are
            session.cover(kept.ended_at)
        anew.finish(db, session, kept, self._now)
        for file in files:
            if file.generations:
                anew.save_carry(db, file.source, file.generations[-1], file.carry, self._reading.adapter.version)
        query = "SELECT rank, value FROM _fact WHERE session_id = ? AND name = 'cwd'"
        for rank, cwd in rows(db, query, (self._row,)):
            if kept.place.get("cwd") == (rank, cwd) and not os.path.isdir(cwd):
                anew.put_back_place(db, self._row, kept)


class _Writing:
    """Hands lines to the resolver, some at a time: neighbours of one file, as a chunk would have brought them."""

    def __init__(self, db: apsw.Connection, session: SessionRow, kept: Kept, now: str) -> None:
        self._db = db
        self._session = session
        self._closed = {id_: at for at, id_ in kept.closed}
        self._now = now
        self._file: File | None = None
        self._lines: list[tuple[Place, Sequence[Record]]] = []
        self._ahead = 0  # events that are not written yet
        self._is_sure = True  # each of them is known to have had the seq that it will be given
        self._tally = Tally()
        self._counts = commit.Counts()  # these lines were counted when they were read
        self.events = 0

    def take(self, file: File, told: Told) -> None:
        if file is not self._file or told.generation_id != file.source.generation_id or len(self._lines) >= TOGETHER:
            self._flush()
            self._turn_to(file, told.generation_id)
        for reject in told.rejects:
            self._reject(told.generation_id, reject)
        if not told.records:
            return
        if told.seq is not None and (told.seq > self._session.next_seq + self._ahead or not self._is_sure):
            self._flush()
            self._session.next_seq = max(self._session.next_seq, told.seq)  # events before it went to their owners
        events = sum(isinstance(record, Event) for record in told.records)
        self._ahead += events
        self._is_sure = self._is_sure and (told.seq is not None or not events)
        self._lines.append((told.place, told.records))

    def end(self) -> None:
        self._flush()
        commit.write_outbox(self._db, self._tally)

    def _turn_to(self, file: File, generation_id: int) -> None:
        source = file.source
        if source.generation_id is None:
            commit.note_first_ts(self._db, source, file.first_time())
        elif source.generation_id != generation_id:
            closed_at = self._closed[source.generation_id]
            self._db.execute("UPDATE _generation SET closed_at = ? WHERE id = ?", (closed_at, source.generation_id))
        self._file, source.generation_id = file, generation_id

    def _flush(self) -> None:
        if self._file is not None and self._lines:
            source = self._file.source
            commit.note_first_ts(self._db, source, self._lines)
            tally = commit.write_records(self._db, source, self._session, self._lines, self._counts, self._now)
            self.events += tally.events
            self._tally.index += tally.index
            self._tally.unindex += tally.unindex
        self._lines, self._ahead, self._is_sure = [], 0, True
        if len(self._tally.index) >= TOGETHER:
            commit.write_outbox(self._db, self._tally)
            self._tally = Tally()

    def _reject(self, generation_id: int, reject: Reject) -> None:
        """Unless it is on record already: what the reader itself rejected stayed there."""
        covered = """
        SELECT 1 FROM _reject WHERE generation_id = ? AND start <= ? AND start + length > ? AND reason = ?
        """
        at = (generation_id, reject.offset, reject.offset, reject.reason)
        if value(self._db, covered, at) is None:
            insert = "INSERT OR REPLACE INTO _reject VALUES (?, ?, ?, ?, ?)"
            self._db.execute(insert, (generation_id, reject.offset, reject.length, reject.reason, reject.hash))
