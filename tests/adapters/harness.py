"""What every adapter's tests share: its samples, a reader that may be stopped anywhere, and what a record must be.

Samples lie in `samples/<flavor>/<path below the agent's home>`, made up, in the agent's own layout, so that
`wants` and `claims` see the paths they will meet. Beside a sample `X` an `X.expected.json` may say what it means:

    [{"line": 1, "records": [{"event": "user_msg", "key": "g:u1#0", "summary": "hello", "is_turn": true}]}]

One entry for each line that emits something, with all its records in order. The first field of a record names its
type (and, for an event, the kind; for a fact or unknown, the name); the others are compared as they stand. A flag
(`is_...`) that is not named must be false; any other field that is not named is not looked at.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, get_args

import orjson

from sessiond.adapters.base import NeedMore, Reader
from sessiond.errors import BadRecord
from sessiond.model import Carry, Event, Fact, Kind, Line, Link, Patch, Record, Role, Unknown, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sessiond.adapters.base import Adapter, Claim

SAMPLES = Path(__file__).parent / "samples"
SHARED_FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
EXPECTED = ".expected.json"
HEAD_BYTES = 64 * 1024
MAX_CARRY_BYTES = 64 * 1024
RECORD_TYPES = get_args(Record)


@dataclass(frozen=True)
class Sample:
    """One file of an agent, by its path below the home."""

    path: PurePosixPath
    data: bytes
    claim: Claim | None
    file: Path

    @property
    def lines(self) -> list[Line]:
        """Its complete lines as tail or snapshot would hand them over."""
        if self.claim is not None and self.claim.reader is Reader.SNAPSHOT:
            return [Line(0, self.data)] if self.data.strip() else []
        return complete_lines(self.data)

    @property
    def carry(self) -> Carry:
        return dict(self.claim.seed) if self.claim is not None else {}


@dataclass
class Reading:
    """What came of reading lines: the records of each, why others were rejected, and what is remembered."""

    records: list[tuple[int, list[Record]]] = field(default_factory=list)
    rejects: list[tuple[int, str]] = field(default_factory=list)
    carry: Carry = field(default_factory=dict)


def samples_of(adapter: Adapter, root: Path) -> list[Sample]:
    """Every file below `root`, taken as the agent's home, that the adapter wants."""
    found = []
    for file in sorted(each for each in root.rglob("*") if each.is_file()):
        path = PurePosixPath(file.relative_to(root).as_posix())
        if file.name.endswith(EXPECTED) or not adapter.wants(path):
            continue
        data = file.read_bytes()
        try:
            claim = adapter.claims(path, head_of(data))
        except NeedMore:
            continue
        if claim is not None and claim.reader is not Reader.ZSTD:
            found.append(Sample(path, data, claim, file))
    return found


def head_of(data: bytes) -> list[bytes]:
    """The first complete lines, as ingest shows them to `claims`; a file without a newline is one line."""
    head = data[:HEAD_BYTES]
    if b"\n" not in data:
        return [head] if head else []
    return head[: head.rfind(b"\n") + 1].split(b"\n")[:-1]


def complete_lines(data: bytes) -> list[Line]:
    """Split on b"\\n" alone, blank lines left out; what follows the last newline is no line yet."""
    lines, offset = [], 0
    for raw in data.split(b"\n")[:-1]:
        if raw.strip():
            lines.append(Line(offset, raw))
        offset += len(raw) + 1
    return lines


def read(adapter: Adapter, lines: list[Line], carry: Carry) -> Reading:
    """Parse lines one after the other; a rejected one leaves the carry as it was, as ingest does."""
    reading = Reading(carry=carry)
    for line in lines:
        before = dict(reading.carry)
        try:
            records = adapter.parse(line, reading.carry)
        except BadRecord as error:
            reading.carry = before
            reading.rejects.append((line.offset, error.reason))
        else:
            reading.records.append((line.offset, records))
    return reading


def saved(carry: Carry) -> Carry:
    """The carry as it comes back from the store."""
    back = orjson.loads(orjson.dumps(carry))
    assert isinstance(back, dict)
    return back


def faults_of(record: Record) -> Iterator[str]:
    """What is wrong with a record, if anything; the store relies on all of it."""
    if not isinstance(record, RECORD_TYPES):
        yield f"{type(record).__name__} is no Record"
        return
    for name in ("key", "parent_key", "event_key", "once"):
        key = getattr(record, name, None)
        if key is not None and (not isinstance(key, str) or key[:2] not in ("g:", "s:", "l:") or len(key) < 3):
            yield f"{name} {key!r} is malformed"
    if isinstance(record, Link | Patch | Usage) and record.key is None:
        yield f"{type(record).__name__} without a key"
    if isinstance(record, Event):
        yield from _event_faults(record)
    if isinstance(record, Usage):
        numbers = (getattr(record, f.name) for f in dataclasses.fields(record) if f.name.endswith(("_tokens", "_ms")))
        if any(n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 0) for n in numbers):
            yield "a count that is no natural number"
    if isinstance(record, Fact) and not (isinstance(record.value, str) and record.value and record.name):
        yield f"fact {record.name!r} without a value"
    if isinstance(record, Unknown) and not (record.name and len(record.name) <= 200):
        yield "an unknown type without a name, or with a boundless one"


def _event_faults(event: Event) -> Iterator[str]:
    if not isinstance(event.kind, Kind) or not (event.role is None or isinstance(event.role, Role)):
        yield f"kind {event.kind!r}, role {event.role!r}"
    if not isinstance(event.summary, str) or "\n" in event.summary:
        yield f"summary is not one line: {event.summary[:80]!r}"
    if not isinstance(event.text, str) or not (event.tool is None or isinstance(event.tool, str)):
        yield "text or tool is no string"
    if event.ts is not None and not (len(event.ts) == 24 and event.ts.endswith("Z")):
        yield f"ts {event.ts!r} is not in the store's writing"
    if not all(isinstance(file, str) and file for file in event.files):
        yield "files holds something else than paths"


def faults_in(reading: Reading) -> list[str]:
    found = [f"at {at}: {fault}" for at, records in reading.records for r in records for fault in faults_of(r)]
    if len(orjson.dumps(reading.carry)) > MAX_CARRY_BYTES:
        found.append("carry is not bounded")
    return found


def differences(sample: Sample, expected: list[dict[str, Any]], reading: Reading) -> list[str]:
    """How a reading differs from what is expected of it, in words."""
    number = {line.offset: at for at, line in enumerate(sample.lines, 1)}
    got = {number[offset]: records for offset, records in reading.records if records}
    wanted = {entry["line"]: entry["records"] for entry in expected}
    found = [f"line {at}: emits {got[at]}, nothing expected" for at in sorted(got.keys() - wanted.keys())]
    for at, entries in sorted(wanted.items()):
        records = got.get(at, [])
        if [_label(entry) for entry in entries] != [_name(record) for record in records]:
            found.append(f"line {at}: {[_name(r) for r in records]} instead of {[_label(e) for e in entries]}")
            continue
        found += [f"line {at}: {each}" for e, r in zip(entries, records, strict=True) for each in _compare(e, r)]
    return found


def _label(entry: dict[str, Any]) -> str:
    kind, name = next(iter(entry.items()))
    return f"{kind} {name}"


def _name(record: Record) -> str:
    kind = type(record).__name__.lower()
    if isinstance(record, Event):
        return f"{kind} {record.kind}"
    return f"{kind} {record.name if isinstance(record, Fact | Unknown) else record.key}"


def _compare(entry: dict[str, Any], record: Record) -> Iterator[str]:
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    first = next(iter(entry))
    for name, value in fields.items():
        shown = list(value) if isinstance(value, tuple) else value
        if name in entry and name != first and shown != entry[name]:
            yield f"{_label(entry)}: {name} is {shown!r} instead of {entry[name]!r}"
        if name.startswith("is_") and name not in entry and value:
            yield f"{_label(entry)}: {name} is set"
    for name in entry.keys() - fields.keys() - {first}:
        yield f"{_label(entry)}: there is no field {name!r}"
