"""The contract of every adapter, over its samples: whole, cut anywhere, twice, with junk, and with broken records.

At this level there is no store: what is compared are the lists of emitted records.
"""

from __future__ import annotations

import copy
import random

import orjson
import pytest

from sessiond.adapters import adapters
from sessiond.adapters.base import Reader
from sessiond.errors import BadRecord
from sessiond.model import Line
from tests.adapters.harness import (
    EXPECTED,
    SAMPLES,
    SHARED_FIXTURES,
    Sample,
    complete_lines,
    differences,
    faults_in,
    faults_of,
    head_of,
    read,
    samples_of,
    saved,
)

JUNK = [
    b"not json",
    b"[1, 2]",
    b"null",
    b'"text"',
    b"17",
    b'{"type": "user"',
    b"\xff\xfe",
    b"{}}",
    b"\x00" * 8,
    b"{'a': 1}",
]
VALUES = [
    None,
    True,
    0,
    -1,
    2**60,
    1.5,
    "",
    "x",
    "\u2028",
    [],
    {},
    [None],
    ["x"],
    {"type": "text"},
    [[]],
    {"x": {"y": []}},
]
MUTATIONS = 60  # per sample line

every_adapter = pytest.mark.parametrize("flavor", sorted(adapters()))


def _samples() -> list:
    found = [
        (flavor, sample) for flavor, adapter in adapters().items() for sample in samples_of(adapter, SAMPLES / flavor)
    ]
    return [pytest.param(flavor, sample, id=f"{flavor}:{sample.path.name}") for flavor, sample in found]


every_sample = pytest.mark.parametrize(("flavor", "sample"), _samples())


@every_adapter
def test_an_adapter_brings_samples_with_what_is_expected_of_them(flavor):
    samples = samples_of(adapters()[flavor], SAMPLES / flavor)
    assert samples, f"no file below tests/adapters/samples/{flavor} is wanted and claimed by the adapter"
    assert any((SAMPLES / flavor).rglob("*" + EXPECTED)), f"no *{EXPECTED} below samples/{flavor}"


@every_sample
def test_a_sample_means_what_is_written_beside_it(flavor, sample: Sample):
    expected = sample.file.with_name(sample.file.name + EXPECTED)
    if not expected.exists():
        pytest.skip("nothing is written beside it")
    reading = read(adapters()[flavor], sample.lines, sample.carry)
    assert differences(sample, orjson.loads(expected.read_bytes()), reading) == []


@every_sample
def test_every_record_of_a_sample_is_well_formed(flavor, sample: Sample):
    assert faults_in(read(adapters()[flavor], sample.lines, sample.carry)) == []


@every_sample
def test_a_sample_cut_at_any_byte_gives_the_same_records(flavor, sample: Sample):
    adapter = adapters()[flavor]
    if sample.claim.reader is Reader.SNAPSHOT:
        pytest.skip("a rewritten file is read whole")
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
        assert first.records + second.records == whole.records
        assert first.rejects + second.rejects == whole.rejects
        assert saved(second.carry) == saved(whole.carry)


@every_sample
def test_a_restart_between_any_two_lines_changes_nothing(flavor, sample: Sample):
    adapter, carry, records = adapters()[flavor], sample.carry, []
    for line in sample.lines:
        reading = read(adapter, [line], carry)
        carry = saved(reading.carry)
        records += reading.records
    assert records == read(adapter, sample.lines, sample.carry).records


@every_sample
def test_reading_twice_gives_the_same_records_and_keys(flavor, sample: Sample):
    adapter = adapters()[flavor]
    once, again = (read(adapter, sample.lines, sample.carry) for _ in range(2))
    assert once.records == again.records
    assert once.carry == again.carry


@every_sample
def test_junk_between_the_lines_is_rejected_and_forgotten(flavor, sample: Sample):
    adapter = adapters()[flavor]
    clean = read(adapter, sample.lines, sample.carry)
    carry, kept = sample.carry, []
    for line in sample.lines:
        for junk in JUNK:
            before = copy.deepcopy(carry)
            with pytest.raises(BadRecord):
                adapter.parse(Line(line.offset + 1, junk), carry)
            assert carry == before
        reading = read(adapter, [line], carry)
        carry = reading.carry
        kept += reading.records
    assert kept == clean.records


@every_sample
def test_a_record_with_anything_in_any_place_breaks_nothing(flavor, sample: Sample):
    """Values of the wrong type wherever a sample has a right one: no exception but BadRecord, no bad record."""
    adapter, rng = adapters()[flavor], random.Random(sample.path.name)
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
            assert [fault for each in records for fault in faults_of(each)] == [], broken
            saved(carry)


def _broken(record, rng: random.Random):
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


def _places(value):
    """Every (container, key) within a JSON value."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else list(range(len(each)))
        for key in keys:
            yield each, key
            if isinstance(each[key], dict | list):
                waiting.append(each[key])


@every_adapter
@pytest.mark.parametrize("tree", ["", "real"])
def test_real_files_are_read_without_a_fault(flavor, tree):
    root = SHARED_FIXTURES / tree / flavor
    if not root.is_dir():
        pytest.skip(f"no fixtures at ../shared/fixtures/{tree}")
    adapter = adapters()[flavor]
    for sample in samples_of(adapter, root):
        reading = read(adapter, sample.lines, sample.carry)
        assert faults_in(reading) == [], sample.path
        assert read(adapter, sample.lines, sample.carry).records == reading.records, sample.path
        middle = len(sample.lines) // 2
        first = read(adapter, sample.lines[:middle], sample.carry)
        second = read(adapter, sample.lines[middle:], saved(first.carry))
        assert first.records + second.records == reading.records, sample.path


@every_adapter
def test_what_an_adapter_does_not_want_it_does_not_claim(flavor):
    adapter = adapters()[flavor]
    for sample in samples_of(adapter, SAMPLES / flavor):
        strange = sample.path.with_name(sample.path.name + ".bak")
        assert not adapter.wants(strange)
        assert adapter.claims(strange, head_of(sample.data)) is None
