"""The lines of a session's files once more, from the archive, in the order in which they were stored."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from sessiond.adapters.base import Reader
from sessiond.intake import archived
from sessiond.intake.parse import parse
from sessiond.model import START, Carry, Chunk, Event, Line, Link, Record, Reject
from sessiond.store.keys import hash_of
from sessiond.store.resolve import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import apsw

    from sessiond.adapters.base import Adapter
    from sessiond.intake.parse import Wording
    from sessiond.store.recorded import Recorded
    from sessiond.store.sources import Source

HEAD_LINES = 1000  # among which the first time of a file is looked for


class Told(NamedTuple):
    """What one line says, and where it stands in the recorded order."""

    order: tuple[int, int]
    generation_id: int
    place: Place
    records: Sequence[Record]
    seq: int | None  # of its first event, before
    rejects: Sequence[Reject] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """How the lines of one session are read."""

    row: int
    uid: str
    adapter: Adapter
    wording: Wording
    longest: int
    recorded: Recorded

    def parse(self, line: Line, carry: Carry) -> tuple[list[tuple[Place, list[Record]]], list[Reject], Carry]:
        chunk = Chunk(start=line.offset, data=b"", lines=[line], checkpoint=START, size=0, mtime_ns=0)
        return parse(self.adapter, chunk, carry, self.wording)

    def recorded_seq(
        self, source: Source, generation_id: int, place: Place, records: Sequence[Record]
    ) -> tuple[int | None, bool]:
        """The seq that the first event of a line had, and whether it was this file that made it.

        By its name first: a record that was found again in newer content, or in another file, has moved there since.
        """
        first = next((record for record in records if isinstance(record, Event)), None)
        if first is None:
            return None, False
        named = None if first.key is None else self.recorded.named(self.row, hash_of(first.key, self.uid))
        if named is not None:
            return named[0], named[1] == source.id
        here = self.recorded.at_place(generation_id, place.offset)
        return here, here is not None


class File:
    """The lines of one source, generation by generation, in their order; each stands no earlier than the one before."""

    def __init__(self, reading: Reading, db: apsw.Connection, source: Source, generations: Sequence[int]) -> None:
        self.source = source
        self.carry: Carry = dict(source.seed)
        self._reading = reading
        self._db = db
        self.generations = generations
        recorded = reading.recorded
        first = recorded.first_of(reading.row, source.id or 0)
        if first is None and generations:
            first = recorded.after(generations[0])
        self.order = (first or 0, 0)
        self._told = self._all()

    def next(self) -> Told | None:
        told = next(self._told, None)
        if told is not None:
            self.order = told.order
        return told

    def first_time(self) -> list[tuple[Place, Sequence[Record]]]:
        """What its first lines say, for the time in them; it is not remembered."""
        found: list[tuple[Place, Sequence[Record]]] = []
        carry: Carry = dict(self.source.seed)
        for each in islice(self._lines(self.generations[0]), HEAD_LINES) if self.generations else ():
            if isinstance(each, Line):
                parsed, _, carry = self._reading.parse(each, carry)
                found += parsed
                if any(isinstance(each, Event | Link) and each.ts for _, records in parsed for each in records):
                    break
        return found

    def _all(self) -> Iterator[Told]:
        order = self.order
        for number, generation_id in enumerate(self.generations):
            self.carry = dict(self.source.seed)
            if number:  # that it began is told too: the one before it is superseded from then on
                order = max(order, (self._begun(generation_id, order[0]), 0))
                yield Told(order, generation_id, Place(0, 0), (), None)
            for each in self._lines(generation_id):
                if isinstance(each, Reject):
                    yield Told(order, generation_id, Place(each.offset, each.length), (), None, [each])
                    continue
                parsed, rejects, self.carry = self._reading.parse(each, self.carry)
                for place, records in parsed:
                    seq, is_its_own = self._reading.recorded_seq(self.source, generation_id, place, records)
                    if seq is not None:
                        order = max(order, (seq, int(not is_its_own)))
                    yield Told(order, generation_id, place, records, seq)
                if rejects:
                    yield Told(order, generation_id, Place(each.offset, each.length), (), None, rejects)

    def _begun(self, generation_id: int, beyond: int) -> int:
        """Before its first event that was new, and before any content that was begun later."""
        recorded = self._reading.recorded
        return min(recorded.first_beyond(generation_id, beyond), recorded.after(generation_id))

    def _lines(self, generation_id: int) -> Iterator[Line | Reject]:
        if self.source.reader == Reader.SNAPSHOT:
            return archived.whole(self._db, generation_id)
        return archived.lines(self._db, generation_id, self._reading.longest)


def in_order(files: Sequence[File]) -> Iterator[tuple[File, Told]]:
    """The lines of all files as they were stored. A file is opened when its turn comes: there may be thousands."""
    waiting: list[tuple[tuple[int, int], int, int, int, Told | None]] = []
    for number, file in enumerate(files):
        heappush(waiting, (file.order, 0, 0, number, None))
    while waiting:
        *_, number, told = heappop(waiting)
        file = files[number]
        if told is not None:
            yield file, told
        told = file.next()
        if told is not None:
            heappush(waiting, (told.order, told.generation_id, told.place.offset, number, told))
