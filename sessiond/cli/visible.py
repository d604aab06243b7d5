"""What an agent would see of a session if it were resumed now: not what it took back, nor what a summary stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.adapters import adapters
from sessiond.adapters.base import visible_offsets
from sessiond.errors import SessiondError
from sessiond.intake import rederive
from sessiond.store import reader
from sessiond.store.connect import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import apsw

    from sessiond.model import Line, SessionEvent

LONGEST_LINE = 8 * 2**20


def visible_events(db: apsw.Connection, uid: str, events: Iterable[SessionEvent]) -> Iterator[SessionEvent]:
    """Those of the session's events that a resumed agent would see; all of them where the agent only ever appends."""
    generation = reader.main_generation(db, uid)
    offsets = visible_offsets(adapters().get(uid.partition(":")[0]), _records(db, uid, generation))
    for event in events:
        place = (event.payload_ref or "::").split(":")
        if offsets is None or (place[0] == str(generation) and int(place[1]) in offsets):
            yield event


def _records(db: apsw.Connection, uid: str, generation: int | None) -> Iterator[Line]:
    begins_at = value(db, "SELECT min(start) FROM _frame WHERE generation_id = ?", (generation,))
    if begins_at:
        # Rewinds count from the first record: without it nothing can be told.
        raise SessiondError(
            f"the beginning of {uid} is no longer in the archive", hint="sessiond events shows the rest"
        )
    if begins_at is not None and generation is not None:
        for lines in rederive.lines(db, generation, LONGEST_LINE, is_snapshot=False):
            yield from lines
