"""The analyze pass: the new events of quiet sessions are folded into their digests, and their outcome is told.

An append costs the append: only events after the digest's last one are read. A change of what was already folded
(a late patch, a new generation, another owner) folds the session again, from its beginning or, where that has left,
from what was kept of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sessiond.model import Outcome, parse_utc, utc
from sessiond.passes.digest import Digest, finish, fold
from sessiond.passes.fingerprint import Fingerprint, fingerprint
from sessiond.passes.outcome import Verdict, verdict
from sessiond.store import connect, digests
from sessiond.store.digests import Distilled, Due
from sessiond.store.merge import merge_frames
from sessiond.store.session_row import BEYOND_REFOLD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime, timedelta
    from pathlib import Path

    import apsw

    from sessiond.store.writer import Writer

SAVED = 50  # digests in one transaction: some 20 ms
LOST_PART = "something changed in events that had been evicted; the digest tells them as they were"


@dataclass(frozen=True, slots=True)
class Pace:
    """When a session is due, from [analyze]."""

    quiet_after: timedelta
    max_delay: timedelta
    outcome_after: timedelta


@dataclass(slots=True)
class Analyzed:
    """What a pass came to."""

    sessions: int = 0
    events: int = 0
    refolded: int = 0
    overtaken: int = 0  # changed while they were folded: the next pass takes them
    frames_merged: int = 0
    failed: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def words(self) -> str:
        told = f"{self.sessions} sessions, {self.events} events" if self.sessions else "nothing to do"
        return told + (f", {len(self.failed)} failed" if self.failed else "")


class Analyzer:
    """Folds what is due. One at a time: the schedule sees to that."""

    def __init__(
        self,
        store: Path,
        writer: Writer,
        *,
        mask: Callable[[str], str],
        on_failure: Callable[[str, Exception], None] = lambda _, __: None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._mask = mask
        self._on_failure = on_failure

    def run(
        self, pace: Pace, now: datetime, *, everything: bool = False, is_stopping: Callable[[], bool] = lambda: False
    ) -> Analyzed:
        """Digest what is due; `everything`: all that is behind, quiet or not."""
        report = Analyzed()
        db = connect.open_reader(self._store)
        try:
            waiting: list[Distilled] = []
            for due in _due(db, pace, now, everything=everything):
                if is_stopping():
                    break
                distilled = self._try(db, due, pace, now, report)
                waiting += [] if distilled is None else [distilled]
                if len(waiting) >= SAVED:
                    self._save(db, waiting, pace, now, report)
                    waiting = []
            self._save(db, waiting, pace, now, report)
        finally:
            db.close()
        return report

    def _try(self, db: apsw.Connection, due: Due, pace: Pace, now: datetime, report: Analyzed) -> Distilled | None:
        try:
            return self._distil(db, due, pace, now, report)
        except Exception as error:  # noqa: BLE001 - one session that cannot be folded must not keep the others
            report.failed.append(due.uid)
            self._on_failure(due.uid, error)
            return None

    def _distil(self, db: apsw.Connection, due: Due, pace: Pace, now: datetime, report: Analyzed) -> Distilled:
        digest, after = _begin(db, due)
        before = digest.to_dict()["error_snippets"]
        for some in digests.steps(db, due.row, after, due.last_seq):
            digest = fold(digest, some, fingerprint=_fingerprint, mask=self._mask)
            report.events += len(some)
        quiet_at = parse_utc(due.active_at) + pace.outcome_after
        found = _verdict(due, digest, is_quiet=quiet_at <= now)
        is_told = found.outcome is not Outcome.UNKNOWN or (quiet_at <= now and due.pid is None)
        look_again_at = max(quiet_at, now + pace.outcome_after) if quiet_at <= now else quiet_at
        partial = LOST_PART if due.refold == BEYOND_REFOLD else digest.partial
        digest = finish(
            digest,
            title=due.title,
            models=digests.models(db, due.row),
            outcome=found,
            partial=partial,
        )
        report.sessions += 1
        report.refolded += bool(due.refold)
        data = digest.to_dict()
        return Distilled(
            due=due,
            digest=data,
            outcome=found.outcome,
            basis=found.basis,
            reason=found.reason,
            outcome_due_at=None if is_told else utc(look_again_at),
            has_new_errors=bool(due.refold) or data["error_snippets"] != before,
        )

    def _save(self, db: apsw.Connection, some: list[Distilled], pace: Pace, now: datetime, report: Analyzed) -> None:
        if not some:
            return
        saved = self._writer.call(lambda writer_db: [digests.save(writer_db, each, utc(now)) for each in some])
        report.overtaken += saved.count(False)
        quiet_before = utc(now - pace.outcome_after)
        for each, is_saved in zip(some, saved, strict=True):
            if is_saved:
                # By when it was stored: what is being read right now goes on, however old its times are.
                is_final = (each.due.stored_at or "") <= quiet_before
                report.frames_merged += merge_frames(db, self._writer, each.due.row, is_final=is_final)


def _verdict(due: Due, digest: Digest, *, is_quiet: bool) -> Verdict:
    stated = None if due.stated is None else Verdict(Outcome(due.stated[0]), "stated", due.stated[1])
    is_open = stated is not None and stated.outcome is Outcome.UNKNOWN
    if is_open and is_quiet and due.pid is not None and not _is_alive(due.pid):
        return Verdict(
            Outcome.ABANDONED, "terminal", f"its process ({due.pid}) is gone, and it never said how it ended"
        )
    return verdict(digest, stated=stated, is_quiet=is_quiet, is_sub_agent=due.is_sidechain)


def _is_alive(pid: str) -> bool:
    """Of a process of this machine: the agents' files lie here. One that cannot be told counts as alive."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


def _fingerprint(text: str, tool: str | None) -> Fingerprint | None:
    return fingerprint(text, tool=tool)


def _due(db: apsw.Connection, pace: Pace, now: datetime, *, everything: bool) -> Iterator[Due]:
    found = digests.due(
        db,
        quiet_before=utc(now if everything else now - pace.quiet_after),
        waiting_since=utc(now - pace.max_delay),
        beyond=utc(now if everything else now + pace.max_delay),
        now=utc(now),
    )
    for row in found:
        # As it is now: a pass over many sessions takes a while, and they go on meanwhile.
        fresh = digests.one(db, row)
        if fresh is not None:
            yield fresh


def _begin(db: apsw.Connection, due: Due) -> tuple[Digest, int]:
    """What to fold onto, and after which event to begin."""
    current, base = digests.stored(db, due.row)
    if due.refold and due.evicted_seq:
        kept = base or current
        return (Digest.from_dict(kept), due.evicted_seq) if kept is not None else (Digest(), due.evicted_seq)
    if due.refold or current is None:
        return Digest(), due.evicted_seq
    return Digest.from_dict(current), due.digested_seq
