"""What a record must be for the store to rely on it, and how records differ from what is written beside a sample.

    [{"line": 1, "records": [{"event": "user_msg", "key": "g:u1#0", "summary": "hello", "is_turn": true}]}]

One entry for each line that emits something, with all its records in order. The first field of a record names its
type (and, for an event, the kind; for a fact or unknown, the name; for the others, the key); the other fields are
compared as they stand. A flag (`is_...`) that is not named must be false; any other field that is not named is not
looked at.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args

import orjson

from sessiond.model import Event, Fact, Kind, Link, Patch, Record, Role, Unknown, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sessiond.testing.samples import Reading, Sample

MAX_CARRY_BYTES = 64 * 1024
MAX_TEXT_CHARS = 20_100  # wording.clip() and its mark of what was left out
RECORD_TYPES = get_args(Record)


def faults_of(record: Any) -> Iterator[str]:
    """What is wrong with a record, if anything; the store relies on all of it."""
    if not isinstance(record, RECORD_TYPES):
        yield f"{type(record).__name__} is no Record"
        return
    for name in ("key", "parent_key", "event_key", "once"):
        key = getattr(record, name, None)
        if key is not None and (not isinstance(key, str) or key[:2] not in ("g:", "s:", "l:") or len(key) < 3):
            yield f"{name} {key!r} is malformed"
    if isinstance(record, Link | Patch | Usage) and not getattr(record, "key", None):
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


def _event_faults(event: Any) -> Iterator[str]:
    if not isinstance(event.kind, Kind) or not (event.role is None or isinstance(event.role, Role)):
        yield f"kind {event.kind!r}, role {event.role!r}"
    if not isinstance(event.summary, str) or "\n" in event.summary:
        yield f"summary is not one line: {str(event.summary)[:80]!r}"
    if not isinstance(event.text, str) or not (event.tool is None or isinstance(event.tool, str)):
        yield "text or tool is no string"
    elif len(event.text) > MAX_TEXT_CHARS:
        yield f"text of {len(event.text)} characters: clip it"
    if event.ts is not None and not (isinstance(event.ts, str) and len(event.ts) == 24 and event.ts.endswith("Z")):
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
