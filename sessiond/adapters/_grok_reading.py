"""One line of updates.jsonl being read: its envelope, its name, and what the file said before it.

**Names.** `eventId` is the id of the session that wrote the line, and a counter. The counter begins anew with every
process, so the time of the event belongs to the name: `<eventId>@<milliseconds>`. A fork copies its parent's lines with
another `sessionId` and `timestamp`, but eventId and `agentTimestampMs` stay, so a copy has the name of its original
wherever it is found. Lines of the oldest versions have neither; they are known by their number in the file.

**Owners.** A copied line keeps the time of its original, so by the owner rule the ids would decide, and a user may
choose those. What a fork's file begins with is therefore a link with the time at which it was copied: later than its
parent's first record, whatever the ids are.

**Carry** holds short strings, numbers and flags, never a list or a dict: undoing a line is copying it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters.base import count_of
from sessiond.adapters.wording import clip, one_line
from sessiond.model import Carry, Event, Fact, Key, Kind, Link, Record, Role, global_key, session_key

if TYPE_CHECKING:
    from collections.abc import Iterable

ID_LIMIT = 200  # a longer id is none
_LATEST_MS = 253_402_300_800_000  # the year 10000
_RECENT_IDS = 32


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def ident(value: Any) -> str | None:
    """An id, or None where there is none that could be one."""
    return value if isinstance(value, str) and 0 < len(value) <= ID_LIMIT else None


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def time_of_ms(milliseconds: int | None) -> str | None:
    """Milliseconds since 1970 in the store's writing."""
    if milliseconds is None or milliseconds >= _LATEST_MS:
        return None
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def call_key(call_id: str) -> Key:
    return session_key("call:" + call_id)


def result_key(call_id: str, ts: str | None) -> Key:
    """What updates.jsonl and events.jsonl both know of a result. Some models begin to count their calls anew with
    every answer, so the id alone would not do; both files write the same millisecond.
    """
    return session_key(f"result:{call_id}@{ts}")


class Reading:
    """The line at hand: `carry` is what came before, `records` what it gives."""

    __slots__ = ("body", "carry", "key", "meta", "records", "ts")

    def __init__(self, record: dict[str, Any], carry: Carry) -> None:
        params = mapping(record.get("params")) or record  # the oldest lines have no envelope
        self.body = mapping(params.get("update"))
        self.meta = mapping(params.get("_meta"))
        self.carry = carry
        self.records: list[Record] = []
        seconds = count_of(record.get("timestamp"))
        milliseconds = count_of(self.meta.get("agentTimestampMs"))
        written_ms = None if seconds is None else seconds * 1000
        self.ts = time_of_ms(milliseconds if milliseconds is not None else written_ms)
        event_id = ident(self.meta.get("eventId"))
        if event_id is None:
            carry["unnamed"] = number = carry.get("unnamed", 0) + 1
            self.key = session_key(f"unnamed:{number}")
            return
        said = str(milliseconds) if milliseconds is not None else _digest(self.body)
        self.key = global_key(f"{event_id}@{said}")
        writer = event_id.rpartition("-")[0]
        if writer and writer != carry.get("session"):
            self._inherited(writer, written_ms)

    def _inherited(self, writer: str, written_ms: int | None) -> None:
        """Another session wrote this line first: that one is the parent, or the parent's."""
        if "parent" not in self.carry and written_ms is not None:
            # Somewhere within that second: its end, or a fork made in its parent's first second would go before it.
            self.records.append(Link(session_key("forked"), None, time_of_ms(written_ms + 999)))
        if self.carry.get("parent") != writer:
            self.carry["parent"] = writer
            self.records.append(Fact("parent", writer, 2))

    # --- records ----------------------------------------------------------------------------------

    def event(
        self,
        kind: Kind,
        role: Role,
        summary: str,
        text: str = "",
        *,
        tool: str | None = None,
        parent: Key | None = None,
        is_error: bool = False,
        is_turn: bool = False,
        files: Iterable[str] = (),
        part: str = "",
    ) -> Key:
        """Add an event; it belongs to the prompt before it where nothing else is said. `part`: not the first one."""
        key = Key(self.key + part)
        prompt = self.carry.get("prompt")
        self.records.append(
            Event(
                kind=kind,
                key=key,
                parent_key=parent or (Key(prompt) if prompt else None),
                ts=self.ts,
                role=role,
                tool=tool,
                summary=one_line(summary),
                text=clip(text),
                is_error=is_error,
                is_turn=is_turn,
                files=tuple(files),
            )
        )
        return key

    def link(self, name: Key, key: Key) -> None:
        self.records.append(Link(name, key, self.ts))

    def fact(self, name: str, value: Any, rank: int = 0, *, first: bool = False) -> None:
        """Say it once for as long as it stays the same."""
        slot = f"fact:{name}"
        if not isinstance(value, str) or not value or len(value) > 4_000:
            return
        if self.carry.get(slot) == value or (first and slot in self.carry):
            return
        self.carry[slot] = True if first else value
        self.records.append(Fact(name, value, rank, first))

    # --- ids that are remembered for a while --------------------------------------------------------

    def remember(self, slot: str, call_id: str) -> None:
        known = [each for each in str(self.carry.get(slot, "")).split("\n") if each and each != call_id]
        self.carry[slot] = "\n".join([*known, call_id.replace("\n", " ")][-_RECENT_IDS:])

    def forget(self, slot: str, call_id: str) -> bool:
        """Whether this id was remembered; it is not any more."""
        known = str(self.carry.get(slot, "")).split("\n")
        if call_id not in known:
            return False
        self.carry[slot] = "\n".join(each for each in known if each != call_id)
        return True

    def remembers(self, slot: str, call_id: str) -> bool:
        return call_id in str(self.carry.get(slot, "")).split("\n")


def _digest(body: dict[str, Any]) -> str:
    try:
        data = orjson.dumps(body)
    except TypeError:  # an integer beyond 64 bits
        data = repr(body).encode("utf-8", "replace")
    return blake2b(data, digest_size=9).hexdigest()
