"""The contract of every adapter, over its samples: whole, cut anywhere, twice, with junk, and with broken records.

At this level there is no store: what is compared are the lists of emitted records.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters.base import Reader
from sessiond.errors import BadRecord
from sessiond.model import Line
from sessiond.testing.faults import differences, faults_in, faults_of
from sessiond.testing.samples import EXPECTED, complete_lines, head_of, read, samples_of, saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sessiond.adapters.base import Adapter
    from sessiond.testing.samples import Sample

MUTATIONS = 60  # per sample line
JUNK = (
    *(b"not json", b"[1, 2]", b"null", b'"text"', b"17", b'{"type": "user"', b"\xff\xfe", b"{}}", b"\x00" * 8),
    b"{'a': 1}",
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**60, 1.5, "", "x", "\u2028", [], {}, [None], ["x"], {"type": "text"}, [[]]),
    {"x": {"y": []}},
)


@dataclass(frozen=True)
class Check:
    """One thing to hold, ready to be called; it raises AssertionError where it does not."""

    name: str
    run: Callable[[], None]

    def __call__(self) -> None:
        self.run()

    def __str__(self) -> str:
        return self.name


def contract(adapter: Adapter, samples: Path) -> list[Check]:
    """Everything that must hold of this adapter and of each of its samples, below a folder like the agent's home."""
    checks = [
        Check(f"{adapter.flavor}:{_words(each)}", lambda each=each: each(adapter, samples))  # type: ignore[misc]
        for each in (_brings_samples_with_what_is_expected, _claims_only_what_it_wants, _keeps_below_its_homes)
    ]
    for sample in samples_of(adapter, samples):
        for each in _OF_A_SAMPLE:
            name = f"{adapter.flavor}:{_words(each)}:{sample.path.name}"
            checks.append(Check(name, lambda each=each, sample=sample: each(adapter, sample)))  # type: ignore[misc]
    return checks


def check_adapter(adapter: Adapter, samples: Path) -> None:
    """The whole contract at once; raises AssertionError with everything that does not hold."""
    wrong = []
    for check in contract(adapter, samples):
        try:
            check()
        except AssertionError as error:
            wrong.append(f"{check}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises, it is told with the rest
            wrong.append(f"{check}: {type(error).__name__}: {error}")
    _expect("\n".join(wrong), not wrong)


def check_files(adapter: Adapter, home: Path) -> int:
    """Real files below a copy of an agent's home are read without a fault; returns how many there were."""
    samples = samples_of(adapter, home)
    for sample in samples:
        reading = read(adapter, sample.lines, sample.carry)
        faults = faults_in(reading)
        _expect(f"{sample.path}: {faults[:5]}", not faults)
        _expect(f"{sample.path}: read twice", read(adapter, sample.lines, sample.carry).records == reading.records)
        middle = len(sample.lines) // 2
        first = read(adapter, sample.lines[:middle], sample.carry)
        second = read(adapter, sample.lines[middle:], saved(first.carry))
        _expect(f"{sample.path}: read in two parts", first.records + second.records == reading.records)
    return len(samples)


def _expect(what: str, holds: bool) -> None:
    if not holds:
        raise AssertionError(what)


def _words(check: Callable[..., None]) -> str:
    return check.__name__.strip("_")


# --- of the adapter -------------------------------------------------------------------------------


def _brings_samples_with_what_is_expected(adapter: Adapter, samples: Path) -> None:
    _expect(f"no file below {samples} is wanted and claimed by the adapter", bool(samples_of(adapter, samples)))
    _expect(f"no *{EXPECTED} below {samples}", any(samples.rglob("*" + EXPECTED)))
    for expected in samples.rglob("*" + EXPECTED):
        beside = expected.with_name(expected.name.removesuffix(EXPECTED))
        claimed = {sample.file for sample in samples_of(adapter, samples)}
        _expect(f"{expected} stands beside no sample that the adapter claims", beside in claimed)


def _claims_only_what_it_wants(adapter: Adapter, samples: Path) -> None:
    for sample in samples_of(adapter, samples):
        strange = sample.path.with_name(sample.path.name + ".bak")
        _expect(f"{strange} is wanted", not adapter.wants(strange))
        _expect(f"{strange} is claimed", adapter.claims(strange, head_of(sample.data)) is None)


def _keeps_below_its_homes(adapter: Adapter, samples: Path) -> None:
    """The folders to watch lie below the home, never the home itself, and samples lie in them.

    An agent without a home of its own (its files lie where the configuration says) may watch that place itself.
    """
    for home in adapter.homes({}, Path("/home/nobody")):
        _expect(f"{home} is watched itself, or a folder outside of it", _are_below(adapter, home))
    watched = list(adapter.folders(samples))
    for sample in samples_of(adapter, samples):
        is_watched = any(folder in sample.file.parents for folder in watched)
        _expect(f"{sample.path} lies in none of the folders that are watched", is_watched)


def _are_below(adapter: Adapter, home: Path) -> bool:
    return all(home in folder.parents for folder in adapter.folders(home))


# --- of each sample -------------------------------------------------------------------------------


def _means_what_is_written_beside_it(adapter: Adapter, sample: Sample) -> None:
    if not sample.expected.exists():
        return
    reading = read(adapter, sample.lines, sample.carry)
    found = differences(sample, orjson.loads(sample.expected.read_bytes()), reading)
    _expect("\n".join(found), not found)


def _is_well_formed(adapter: Adapter, sample: Sample) -> None:
    faults = faults_in(read(adapter, sample.lines, sample.carry))
    _expect(f"{faults}", not faults)


def _may_be_cut_at_any_byte(adapter: Adapter, sample: Sample) -> None:
    if sample.claim.reader is Reader.SNAPSHOT:
        return  # a rewritten file is read whole
    whole = read(adapter, complete_lines(sample.data), sample.carry)
    seen = set()
    for cut in range(len(sample.data) + 1):
        before = complete_lines(sample.data[:cut])
        if len(before) in seen:
            continue  # the same lines on both sides: an unfinished line waits, so it is parsed once and whole
        seen.add(len(before))
        first = read(adapter, before, sample.carry)
        rest = complete_lines(sample.data)[len(before) :]
        second = read(adapter, rest, saved(first.carry))
        at = f"cut at byte {cut}: "
        _expect(at + "other records", first.records + second.records == whole.records)
        _expect(at + "other rejects", first.rejects + second.rejects == whole.rejects)
        _expect(at + "another carry", saved(second.carry) == saved(whole.carry))


def _may_be_restarted_between_any_two_lines(adapter: Adapter, sample: Sample) -> None:
    carry, records = sample.carry, []
    for line in sample.lines:
        kept, was = dict(carry), copy.deepcopy(carry)
        reading = read(adapter, [line], carry)
        _expect(f"at {line.offset}: a value of the carry was changed in place, not replaced", kept == was)
        carry = saved(reading.carry)
        records += reading.records
    _expect("other records than without", records == read(adapter, sample.lines, sample.carry).records)


def _is_the_same_twice(adapter: Adapter, sample: Sample) -> None:
    once, again = (read(adapter, sample.lines, sample.carry) for _ in range(2))
    _expect("other records or keys", once.records == again.records)
    _expect("another carry", once.carry == again.carry)


def _rejects_junk_and_forgets_it(adapter: Adapter, sample: Sample) -> None:
    clean = read(adapter, sample.lines, sample.carry)
    carry, kept = sample.carry, []
    for line in sample.lines:
        for junk in JUNK:
            before = copy.deepcopy(carry)
            _expect(f"{junk!r} is taken", _rejects(adapter, Line(line.offset + 1, junk), carry))
            _expect(f"{junk!r} leaves a trace in the carry", carry == before)
        reading = read(adapter, [line], carry)
        carry = reading.carry
        kept += reading.records
    _expect("other records than without junk", kept == clean.records)


def _rejects(adapter: Adapter, line: Line, carry: dict[str, Any]) -> bool:
    try:
        adapter.parse(line, carry)
    except BadRecord:
        return True
    return False


def _bears_anything_in_any_place(adapter: Adapter, sample: Sample) -> None:
    """Values of the wrong type wherever a sample has a right one: no exception but BadRecord, no bad record."""
    rng = random.Random(sample.path.name)  # noqa: S311 - the same values every time, not secrets
    for line in sample.lines:
        try:
            record = orjson.loads(line.data)
        except orjson.JSONDecodeError:
            continue
        for _ in range(MUTATIONS):
            broken = _broken(record, rng)
            carry = sample.carry
            try:
                records = adapter.parse(Line(line.offset, orjson.dumps(broken)), carry)
            except BadRecord:
                continue
            except Exception as error:
                raise AssertionError(f"{type(error).__name__}: {error}, for {broken}") from error
            faults = [fault for each in records for fault in faults_of(each)]
            _expect(f"{faults}, for {broken}", not faults)
            saved(carry)


def _broken(record: Any, rng: random.Random) -> Any:
    broken = copy.deepcopy(record)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(_places(broken))
        if not places:
            break
        container, at = rng.choice(places)
        if isinstance(container, dict) and rng.random() < 0.2:
            del container[at]
        else:
            container[at] = copy.deepcopy(rng.choice(VALUES))
    return broken


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) within a JSON value."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        for key in list(each) if isinstance(each, dict) else list(range(len(each))):
            yield each, key
            if isinstance(each[key], dict | list):
                waiting.append(each[key])


_OF_A_SAMPLE = (
    _means_what_is_written_beside_it,
    _is_well_formed,
    _may_be_cut_at_any_byte,
    _may_be_restarted_between_any_two_lines,
    _is_the_same_twice,
    _rejects_junk_and_forgets_it,
    _bears_anything_in_any_place,
)
