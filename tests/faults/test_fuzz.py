"""Issue 5, adversarial input: whatever bytes come, nothing crashes, and every line costs a bounded time.

Four doors are fuzzed: the reader of files, every adapter, the configuration, the socket's requests. `make test` tries a few
thousand cases; the long variants try a hundred thousand lines over all adapters and print how many it was.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sessiond.adapters import adapters
from sessiond.adapters.base import Adapter, NeedMore, Reader
from sessiond.config import load as configuration
from sessiond.config.docs import known_keys
from sessiond.config.settings import Config
from sessiond.errors import BadRecord, ConfigError
from sessiond.intake import tail
from sessiond.intake.parse import Wording
from sessiond.mask import Masker
from sessiond.model import START, Carry, Line
from sessiond.serve import protocol
from sessiond.serve.dispatch import Dispatcher
from sessiond.store.archive import zstd
from sessiond.testing import Sample, faults_of, samples_of
from tests.adapters.harness import SAMPLES
from tests.mask.test_cost import slowness

SLOWEST_SECONDS = 1.0  # of one line of a few kilobytes; a thousand times what the slowest takes
GROWTH_KIB = 80 * 1024
WORDING = Wording(Masker().mask)

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64 - 1, -(2**63), 1.5, -0.0, 1e308, "", " ", "\n", "\0", "x" * 5_000,
    "\u2028\x85", "\x1b[2J", "💣", "é" * 300, "../../../etc/passwd", "/", "~", "%s", "2026-01-02T03:04:05.678Z", "9999-99-99",
    "0001-01-01T00:00:00Z", "1e999", "-1", "true", "null", "{}", "[]", '{"a": 1}', [], {}, [[]], [{}], [None] * 50, {"": {}},
    {"type": "text", "text": 1}, [["a", 1], {"b": None}], {"type": None}, ["x"] * 200, {str(n): n for n in range(50)},
)  # fmt: skip
BYTES = (
    b"", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\u", b"\\ud800",
    b"\\u0000", b"\r", b"\t", b"1e999", b"NaN", b"\xef\xbb\xbf", b"null", b"-", b"0" * 30, b"\xe2\x80\xa8",
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) within a JSON value."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        for key in list(each) if isinstance(each, dict) else range(len(each)):
            yield each, key
            if isinstance(each[key], dict | list):
                waiting.append(each[key])


def another_record(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """The same record with a few of its values, keys or parts changed for ones that do not belong there."""
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        return other_bytes(data, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        found = list(places(record)) if isinstance(record, dict | list) else []
        if not found:
            break
        container, key = chance.choice(found)
        what = chance.random()
        if what < 0.15:
            del container[key]
        elif what < 0.3 and isinstance(container, dict):
            container[chance.choice(("", "type", "id", "content", "\u2028", "x" * 300))] = container.pop(key)
        elif what < 0.4:
            with suppress(orjson.JSONDecodeError):
                donor = orjson.loads(chance.choice(others))
                container[key] = chance.choice([part[at] for part, at in places(donor)] or [None])
        elif what < 0.45:
            container[key] = [container[key]]
        elif what < 0.5 and isinstance(container[key], str):
            container[key] *= chance.choice((2, 50))
        else:
            container[key] = copy.deepcopy(chance.choice(VALUES))  # it may be changed in turn
    return json.dumps(record, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")[:200_000]


def other_bytes(data: bytes, chance: random.Random) -> bytes:
    """The same bytes, a few of them flipped, cut out, doubled or put in; never a newline."""
    made = bytearray(data[:100_000])
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        at = chance.randrange(len(made) + 1)
        what = chance.random()
        if what < 0.3 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif what < 0.5:
            del made[at : at + chance.choice((1, 2, 10, 500))]
        elif what < 0.6:
            made[at:at] = made[at : at + chance.choice((1, 5, 50))]
        elif what < 0.65:
            del made[at:]
        else:
            made[at:at] = chance.choice(BYTES)
    return bytes(made).replace(b"\n", b" ")


def mutated(sample: Sample, chance: random.Random, others: list[bytes]) -> list[bytes]:
    """The sample's lines in a new order, some of them changed."""
    lines = [line.data for line in sample.lines]
    chance.shuffle(lines)
    kept = [lines[0], *lines] if sample.claim.reader is Reader.SNAPSHOT else lines[:40]
    changes = (
        lambda line: line,
        lambda line: other_bytes(line, chance),
        lambda line: another_record(line, chance, others),
    )
    return [chance.choices(changes, (1, 4, 6))[0](line) for line in kept]


class Tried:
    """What came of it, in numbers."""

    def __init__(self) -> None:
        self.lines = 0
        self.records = 0
        self.rejects: Counter[str] = Counter()
        self.slowest = 0.0

    def one(self, adapter: Adapter, data: bytes, carry: Carry) -> Carry:
        """Parse a line as ingest does; the carry after it. Only BadRecord may come out of it."""
        trial, began = dict(carry), time.process_time()
        self.lines += 1
        try:
            records = adapter.parse(Line(self.lines, data), trial)
        except BadRecord as error:
            self.rejects[error.reason] += 1
            return carry
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}, for {data!r}") from error
        finally:
            self.slowest = max(self.slowest, time.process_time() - began)
        faults = [fault for record in records for fault in faults_of(record)]
        assert not faults, (faults, data)
        self.records += len([each for record in records for each in WORDING.record(record)])
        return trial

    def __str__(self) -> str:
        why = ", ".join(f"{reason} {count}" for reason, count in self.rejects.most_common())
        return f"{self.lines} lines, {self.records} records, rejected: {why}; the slowest {self.slowest * 1000:.1f} ms"


def fuzz_adapter(flavor: str, lines: int, seed: int) -> Tried:
    """So many lines, in files of a sample's length, read as ingest reads them: each line by itself, one carry a file."""
    adapter, chance, tried = adapters()[flavor], random.Random(seed), Tried()
    samples = samples_of(adapter, SAMPLES / flavor)
    others = [line.data for sample in samples for line in sample.lines]
    limit = SLOWEST_SECONDS * slowness()
    while tried.lines < lines:
        sample = chance.choice(samples)
        carry = sample.carry
        with suppress(NeedMore):
            adapter.claims(sample.path, mutated(sample, chance, others)[:5])
        for data in mutated(sample, chance, others):
            carry = tried.one(adapter, data, carry)
            assert tried.slowest < limit, (flavor, data)
        assert len(orjson.dumps(carry)) < 2**16, (flavor, carry)
    return tried


@pytest.mark.parametrize("flavor", sorted(adapters()))
def test_no_line_makes_an_adapter_fail(flavor):
    print(flavor, fuzz_adapter(flavor, 3_000, seed=0))


@pytest.mark.long
def test_a_hundred_thousand_lines_make_no_adapter_fail():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    each = 120_000 // len(adapters()) + 1
    total, seed = 0, random.randrange(2**32)
    print(f"\n  seed {seed}")
    for flavor in sorted(adapters()):
        tried = fuzz_adapter(flavor, each, seed)
        total += tried.lines
        print(f"  {flavor}: {tried}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"  {total} lines over {len(adapters())} adapters; memory grew by {grown // 1024} MiB")
    assert total >= 100_000
    assert grown < GROWTH_KIB


# --- the reader of files --------------------------------------------------------------------------

LIMITS = tail.Limits(line=60, archive_line=300, chunk=32)
contents = st.lists(
    st.binary(max_size=20)
    | st.sampled_from([b"\n", b"\r\n", b"\0" * 40, b"{}\n", b"x" * 61, b"y" * 400, b"\xff", b" \n"]),
    max_size=15,
).map(b"".join)


def read_to_the_end(path: Path, *, compressed: bool = False) -> bytes:
    """What the archive would hold; the cursor moves with every chunk that says there is more."""
    at, kept = START, b""
    while True:
        chunk = tail.read(str(path), 0, at, LIMITS, compressed=compressed)
        assert chunk.checkpoint.offset >= at.offset
        assert chunk.checkpoint.offset > at.offset or not chunk.more
        assert all(len(line.data) <= LIMITS.line for line in chunk.lines)
        kept += chunk.data + bytes(chunk.zeros) + b"?" * chunk.dropped
        at = chunk.checkpoint
        if not chunk.more:
            return kept


def check_reader(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    kept = read_to_the_end(path)
    assert len(kept) <= len(data)
    assert all(one in (other, ord("?")) for one, other in zip(kept, data, strict=False))
    assert b"\n" not in data[len(kept) :]
    tail.head(str(path), 0)


def check_packed_reader(path: Path, data: bytes, damage: tuple[int, int]) -> None:
    """A damaged .zst is an OSError, as any file that cannot be read; what is whole reads as its plain bytes."""
    packed = bytearray(zstd.compress(data))
    path.write_bytes(packed)
    assert len(read_to_the_end(path, compressed=True)) <= len(data)
    at, value = damage
    packed[at % len(packed)] ^= value
    path.write_bytes(packed)
    with suppress(OSError):
        read_to_the_end(path, compressed=True)


reading = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
reading_long = settings(reading, max_examples=20_000)
damages = st.tuples(st.integers(0, 500), st.integers(1, 255))


@reading
@given(contents, damages)
def test_no_bytes_hold_the_reader_up(tmp_path, data, damage):
    check_reader(tmp_path / "f", data)
    check_packed_reader(tmp_path / "z", data, damage)


@pytest.mark.long
@reading_long
@given(contents, damages)
def test_no_bytes_hold_the_reader_up_in_twenty_thousand_cases(tmp_path, data, damage):
    check_reader(tmp_path / "f", data)
    check_packed_reader(tmp_path / "z", data, damage)


# --- the configuration ----------------------------------------------------------------------------

KEYS = [key.replace("<flavor>", "claude") for key in sorted(known_keys()) if "." in key]
toml_values = st.one_of(
    st.sampled_from(
        [
            '"4GiB"',
            '"45d"',
            '"off"',
            '"auto"',
            '"80%"',
            '""',
            "0",
            "-1",
            "inf",
            "nan",
            "true",
            "[]",
            "{}",
            '"/"',
            "1979-05-27",
        ]
    ),
    st.integers().map(str),
    st.text(max_size=20).map(json.dumps),
    st.lists(st.text(max_size=8), max_size=3).map(json.dumps),
    st.sampled_from(["'(a+)+b'", "['(a|a)*b']", "[['a']]", '"9" * 9']),
)
# What patterns and globs are made of, in any order: most of it is neither.
fragments = st.lists(
    st.sampled_from(
        [
            "a",
            "[",
            "]",
            "(",
            ")",
            "(?",
            "(?P<a>",
            "+",
            "*",
            "**",
            "?",
            "{3}",
            "{9999999999}",
            "\\",
            "\\1",
            "|",
            "/",
            "~",
        ]
    ),
    max_size=6,
).map("".join)
pattern_lines = st.tuples(
    st.sampled_from(["privacy.mask", "privacy.exclude"]), st.lists(fragments, min_size=1, max_size=2).map(json.dumps)
).map(" = ".join)
setting_lines = st.tuples(st.sampled_from(KEYS), toml_values).map(" = ".join) | pattern_lines
noise_lines = st.text(max_size=30) | st.text('abc._-"[]=\n', max_size=12)
toml_files = st.one_of(
    st.lists(setting_lines, max_size=3).map("\n".join),
    st.lists(setting_lines | noise_lines, max_size=6).map("\n".join),
).map(lambda text: text.encode("utf-8", "replace")) | st.binary(max_size=60)


def check_configuration(folder: Path, data: bytes) -> None:
    """A configuration, or an error with a line for each mistake; nothing else, and soon."""
    env = {"HOME": str(folder)}
    file = folder / "c.toml"
    file.write_bytes(data)
    began = time.process_time()
    try:
        loaded = configuration.load(file, env, set(adapters()), system_dir=folder / "none")
    except ConfigError as error:
        assert str(error).strip()
    else:
        assert isinstance(loaded.config, Config)
    assert time.process_time() - began < 5


configuring = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@configuring
@given(toml_files)
def test_no_file_makes_the_configuration_fail(tmp_path, data):
    check_configuration(tmp_path, data)


@pytest.mark.long
@settings(configuring, max_examples=10_000)
@given(toml_files)
def test_no_file_makes_the_configuration_fail_in_ten_thousand_cases(tmp_path, data):
    check_configuration(tmp_path, data)


# --- the socket -----------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
requests = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0") | json_values, "method": st.sampled_from(["echo", "fail", "odd"]) | json_values},
        optional={"id": json_values, "params": json_values | st.dictionaries(st.text(), json_values)},
    ),
).map(lambda request: json.dumps(request).encode())
wires = st.one_of(
    requests, st.binary(max_size=200), st.tuples(requests, st.integers(0, 300)).map(lambda it: it[0][: it[1]])
)


def check_request(dispatcher: Dispatcher, line: bytes) -> None:
    """A line of JSON for every request that wants one, whatever it is; and the dispatcher is there for the next."""
    try:
        request = protocol.decode(line)
    except ValueError:
        return  # answered by the server as a parse error
    for reply in dispatcher.answer(request):
        assert reply is not None
        assert reply.endswith(b"\n")
        told = json.loads(reply)
        assert ("result" in told) != ("error" in told)


def dispatcher() -> Dispatcher:
    methods: dict[str, Any] = {"echo": lambda params: params, "fail": lambda _: 1 / 0, "odd": lambda _: {1, 2}}
    return Dispatcher(
        methods, version="1", on_error=lambda _: None, reply_filter=lambda value: value, is_stopping=lambda: False
    )


asking = settings(max_examples=600, deadline=None)


@asking
@given(wires)
def test_no_request_makes_the_socket_fail(line):
    check_request(dispatcher(), line)


@pytest.mark.long
@settings(asking, max_examples=30_000)
@given(wires)
def test_no_request_makes_the_socket_fail_in_thirty_thousand_cases(line):
    check_request(dispatcher(), line)
