"""An adapter's samples, and a reader that may be stopped anywhere.

Samples lie in a folder that stands for the agent's home, made up, in the agent's own layout, so that `wants` and
`claims` see the paths they will meet. Beside a sample `X` an `X.expected.json` may say what it means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import orjson

from sessiond.adapters.base import NeedMore, Reader
from sessiond.errors import BadRecord
from sessiond.model import Carry, Line, Record

if TYPE_CHECKING:
    from pathlib import Path

    from sessiond.adapters.base import Adapter, Claim

EXPECTED = ".expected.json"
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Sample:
    """One file of an agent, by its path below the home."""

    path: PurePosixPath
    data: bytes
    claim: Claim
    file: Path

    @property
    def lines(self) -> list[Line]:
        """Its complete lines as tail or snapshot would hand them over."""
        if self.claim.reader is Reader.SNAPSHOT:
            return [Line(0, self.data)] if self.data.strip() else []
        return complete_lines(self.data)

    @property
    def carry(self) -> Carry:
        return dict(self.claim.seed)

    @property
    def expected(self) -> Path:
        return self.file.with_name(self.file.name + EXPECTED)


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
    """Split on newline bytes alone, blank lines left out; what follows the last newline is no line yet."""
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
    if not isinstance(back, dict):
        raise TypeError("carry is not a dict any more")
    return back
