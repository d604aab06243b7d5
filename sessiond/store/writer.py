"""Every write. One thread owns the only read-write connection of the store; everyone else hands it work.

Ingest goes first: batches are written in the order they come, as many as are waiting in one transaction (up to 4 MiB
or 50 ms), so a single append is committed at once and a backfill is not held up by a sync for every chunk. Calls of
the passes run in between, each in a transaction of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from sessiond.errors import Busy, SessiondError
from sessiond.store import connect, migrations
from sessiond.store.commit import Batch, Counts, commit_chunk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH_BYTES = 4 * 2**20
REST_SECONDS = 5.0  # after so long without work, memory is given back
BATCH_SECONDS = 0.050
QUEUED_BYTES = 8 * 2**20  # intake waits when this much is read but not written

T = TypeVar("T")


@dataclass(slots=True)
class _Call:
    run: Callable[[apsw.Connection], Any]
    future: Future[Any]
    is_atomic: bool


class Writer:
    """`submit` hands over a batch and returns when there is room; `call` runs a short piece of work and waits for it.

    `on_commit(batches)`, `on_failure(batch, error)` and `on_damage(error)` are called from the writer's thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_commit: Callable[[list[Batch]], None] = lambda _: None,
        on_failure: Callable[[Batch, Exception], None] = lambda _, __: None,
        on_damage: Callable[[Exception], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = path
        self._db = connect.open_writer(path)
        try:
            migrations.migrate(self._db, path)
        except BaseException:
            self._db.close()
            raise
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._on_damage = on_damage
        self._inode = os.stat(path).st_ino
        self._is_refusing = False
        self._now = now
        self._urgent: deque[Batch] = deque()
        self._batches: deque[Batch] = deque()
        self._calls: deque[_Call] = deque()
        self._queued_bytes = 0
        self._batch_bytes = BATCH_BYTES
        self._has_room: Callable[[], bool] = lambda: True
        self._busy = False
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what was handed over, then close. The last connection leaves no WAL behind."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._db.close()

    def limit(self, *, batch_bytes: int, has_room: Callable[[], bool]) -> None:
        """Smaller transactions, and none of ingest's while there is no room: on a full disk even deleting fails."""
        self._batch_bytes = min(BATCH_BYTES, batch_bytes)
        self._has_room = has_room

    def refuse(self) -> None:
        """Write nothing more: the store is damaged, and whatever is added now may be lost with it."""
        self._is_refusing = True

    def submit(self, batch: Batch, *, urgent: bool = True) -> None:
        """Urgent ones (live files) are written before those that are not (history)."""
        with self._changed:
            self._changed.wait_for(lambda: self._queued_bytes < QUEUED_BYTES or self._stopping)
            if not batch.source.in_flight:  # else it stays in the queue it is in: the order of a file is kept
                batch.source.is_urgent = urgent
            batch.source.in_flight += 1
            (self._urgent if batch.source.is_urgent else self._batches).append(batch)
            self._queued_bytes += batch.size
            self._changed.notify_all()

    def call(self, run: Callable[[apsw.Connection], T]) -> T:
        """Run this in a transaction of its own, on the writer's thread."""
        return self._ask(run, is_atomic=True)

    def maintain(self, run: Callable[[apsw.Connection], T]) -> T:
        """The same outside of any transaction, for what must not be in one: a checkpoint, a pragma."""
        return self._ask(run, is_atomic=False)

    def _ask(self, run: Callable[[apsw.Connection], T], *, is_atomic: bool) -> T:
        future: Future[T] = Future()
        with self._changed:
            self._calls.append(_Call(run, future, is_atomic))
            self._changed.notify_all()
        return future.result()

    def drain(self) -> None:
        """Returns when everything handed over before is committed (or has failed)."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._urgent or self._batches or self._calls or self._busy))

    @property
    def queued_bytes(self) -> int:
        """Handed over and not yet committed."""
        return self._queued_bytes

    @property
    def queued(self) -> int:
        return len(self._urgent) + len(self._batches)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if not self._changed.wait_for(self._is_wanted, REST_SECONDS):
                    connect.rest(self._db)
                    self._changed.wait_for(self._is_wanted)
                if not (self._urgent or self._batches or self._calls):
                    return
                self._busy = True
            if self._urgent or self._batches:
                self._write_waiting()
            if self._calls:
                self._answer(self._calls.popleft())

    def _is_wanted(self) -> bool:
        return bool(self._urgent or self._batches or self._calls or self._stopping)

    def _write_waiting(self) -> None:
        taken: list[Batch] = []
        try:
            if not self._has_room():
                raise apsw.FullError("the room that is left is for making more")
            self._write(taken, self._take_while_there_is_room(taken))
        except Exception as error:  # noqa: BLE001 - told below, batch by batch
            self._on_damage(error)
            if not taken:  # the transaction did not even begin: nothing that waits can be written now
                with self._changed:
                    taken += [*self._urgent, *self._batches]
                    self._urgent.clear()
                    self._batches.clear()
            self._write_one_by_one(taken, error)

    def _take_while_there_is_room(self, taken: list[Batch]) -> Callable[[], Batch | None]:
        deadline = time.monotonic() + BATCH_SECONDS
        size = 0

        def take() -> Batch | None:
            nonlocal size
            with self._changed:
                queue = self._urgent or self._batches
                if not queue or (taken and (size >= self._batch_bytes or time.monotonic() > deadline)):
                    return None
                batch = queue.popleft()
                size += batch.size
                taken.append(batch)
                return batch

        return take

    def _write(self, taken: list[Batch], take: Callable[[], Batch | None]) -> None:
        self._check_fitness()
        counts = Counts()
        with connect.transaction(self._db):
            while (batch := take()) is not None:
                commit_chunk(self._db, batch, counts, self._now())
            counts.save(self._db)
        self._committed(taken)

    def _write_one_by_one(self, taken: list[Batch], error: Exception) -> None:
        """One bad batch must not take the others of its transaction with it."""
        for batch in reversed(taken):
            batch.roll_back()
        for batch in taken:
            try:
                if isinstance(error, apsw.FullError | apsw.IOError | apsw.BusyError):  # of the store, not of a batch
                    raise error
                one = iter([batch])
                self._write([batch], lambda one=one: next(one, None))  # type: ignore[misc]
            except Exception as failure:  # noqa: BLE001 - its source stays where it was
                batch.roll_back()
                batch.source.is_broken = True
                self._release([batch])
                self._on_failure(batch, failure)

    def _committed(self, batches: list[Batch]) -> None:
        self._release(batches)
        self._on_commit(batches)

    def _release(self, batches: list[Batch]) -> None:
        with self._changed:
            for batch in batches:
                batch.source.in_flight -= 1
                self._queued_bytes -= batch.size
            self._changed.notify_all()

    def _answer(self, call: _Call) -> None:
        try:
            self._check_fitness()
            with connect.transaction(self._db) if call.is_atomic else nullcontext():
                result = call.run(self._db)
        except Exception as error:  # noqa: BLE001 - the caller's to handle
            self._on_damage(error)
            call.future.set_exception(error)
        else:
            call.future.set_result(result)

    def _check_fitness(self) -> None:
        """What is written into a damaged or a removed file is lost: whoever reads the sources must not pass it over."""
        if self._is_refusing:
            raise SessiondError("the store is damaged", hint="restart the daemon: it is set aside and made again")
        try:
            is_there = os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise Busy("the store was removed", hint="restart the daemon: a new one is made from the agents' files")
