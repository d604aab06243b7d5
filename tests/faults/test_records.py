"""Rows 9 to 15 of the fault matrix: lines that are whole but not what was expected, and files that are not."""

from __future__ import annotations

import gzip
import json
import shutil

import orjson
import pytest
from hypothesis import HealthCheck, assume, example, given, settings, strategies as st

from lab import Lab, append, until, user_line
from sessiond.adapters import adapters
from sessiond.adapters.base import decode
from sessiond.errors import BadRecord
from sessiond.model import Line
from sessiond.store import counts
from sessiond.store.archive import zstd
from sessiond.store.connect import rows
from sessiond.testing import samples_of
from tests.adapters.harness import SAMPLES

BATCH = 1000


def reason(data: bytes, offset: int = 1) -> str:
    """Why the one parser rejects a line; "" where it does not."""
    try:
        decode(Line(offset, data))
    except BadRecord as error:
        return error.reason
    return ""


def summaries(lab, uid: str = "claude:s1") -> list[str]:
    return [event.summary for event in lab.events(uid)]


@pytest.mark.fault(9)
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": NaN}', "not_json"),
        (b'{"a": Infinity}', "not_json"),
        (b'{"a": -Infinity}', "not_json"),
        (b'{"a": 1e999}', "not_json"),
        (b'\xef\xbb\xbf{"a": 1}', "not_json"),
        (b"\xfe\xff\x00{", "nul"),
        (b"{'a': 1}", "not_json"),
        (b'{"a": 1,}', "not_json"),
        (b'{"a": 1} x', "not_json"),
        (b'{"a": 1}{"a": 2}', "not_json"),
        (b'{"a": 01}', "not_json"),
        (b'{"a": +1}', "not_json"),
        (b'{"a": .5}', "not_json"),
        (b'{"a": "\t"}', "not_json"),
        (b'{"a": "\\x"}', "not_json"),
        (b"{a: 1}", "not_json"),
        (b'// {"a": 1}', "not_json"),
        (b"[1]", "not_object"),
        (b'"text"', "not_object"),
        (b"17", "not_object"),
        (b"null", "not_object"),
        (b'{"a": 1}\xff', "utf8"),
    ],
)
def test_what_is_no_json_object_is_rejected_with_its_reason(data, expected):
    assert reason(data) == expected


@pytest.mark.fault(9)
def test_a_byte_order_mark_is_tolerated_where_a_file_begins_and_nowhere_else(lab):
    path = lab.claude_file()
    path.write_bytes(b"\xef\xbb\xbf" + user_line(0) + b"\xef\xbb\xbf" + user_line(1) + user_line(2))
    lab.ingest()
    assert len(summaries(lab)) == 2
    assert [why for *_, why in lab.rejects()] == ["not_json"]
    assert lab.archived(path) == path.read_bytes()


def _refuse(name: str) -> None:
    raise ValueError(name)


def stdlib_says(data: bytes) -> bool:
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


json_text = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
).map(lambda value: json.dumps({"k": value}, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@st.composite
def nearly_json(draw) -> bytes:
    """JSON with a few bytes taken out, put in or turned into others."""
    data = bytearray(draw(json_text))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b'"', b"\\", b",", b"]", b"}", b"{", b"0", b"e", b"-", b" ", b"NaN", b"\xef\xbb\xbf"])
            | st.binary(max_size=2)
        )
    return bytes(data)


@pytest.mark.fault(9)
@settings(max_examples=600, deadline=None)
@given(nearly_json())
@example(b'{"k": "\\ud800"}')
@example(b'{"k": 1e400}')
def test_the_parser_takes_what_the_standard_library_takes_and_nothing_else(data):
    """But for what is repaired, and numbers beyond a double: those it refuses, never mistakes."""
    assume(b"\n" not in data)
    line = Line(1, data)
    try:
        record = decode(line)
    except BadRecord:
        taken = stdlib_says(data)
        assert not taken or b"e" in data.lower() or max(map(len, data.split(b'"'))) > 300
        return
    if not line.repaired:
        assert stdlib_says(data)
        expected = json.loads(data)
        assert json.dumps(record, sort_keys=True) == json.dumps(expected, sort_keys=True) or _has_large_number(expected)


def _has_large_number(value) -> bool:
    text = json.dumps(value)
    return any(len(digits) > 15 for digits in "".join(c if c.isdigit() else " " for c in text).split())


@pytest.mark.fault(10)
def test_of_a_key_that_stands_twice_the_last_counts_and_the_bytes_are_kept(lab):
    assert decode(Line(1, b'{"a": 1, "a": 2, "b": {"c": 1, "c": []}}')) == {"a": 2, "b": {"c": []}}
    path = lab.claude_file()
    twice = user_line(0, "the last").replace(b'"message"', b'"message": {"content": "the first"}, "message"')
    path.write_bytes(twice)
    lab.ingest()
    assert summaries(lab) == ["the last"]
    assert lab.archived(path) == twice
    assert lab.cli("events", "s1", "--payload").stdout.encode() == twice


DEEP = 100_000


@pytest.mark.fault(11)
@pytest.mark.parametrize(
    "data",
    [
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        user_line(900, "@").replace(b'"@"', b"[" * DEEP + b"]" * DEEP)[:-1],
        user_line(900, "@").replace(b'"@"', b'{"a":' * 2000 + b"1" + b"}" * 2000)[:-1],
    ],
    ids=["open", "arrays", "objects", "within", "two thousand"],
)
def test_what_is_nested_too_deeply_is_one_reject_and_its_neighbours_are_read(lab, data):
    path = lab.claude_file()
    path.write_bytes(user_line(0, "before") + data + b"\n" + user_line(1, "after"))
    assert lab.ingest()["rejected"] == 1
    assert summaries(lab) == ["before", "after"]
    assert [(length, why) for _, length, why in lab.rejects()] == [(len(data), "depth")]
    assert lab.archived(path) == path.read_bytes()


def with_content(content: bytes, **fields) -> bytes:
    return user_line(5000, "@", uuid="odd", **fields).replace(b'"@"', content)


ODD = {
    "5000 digits": (with_content(b"1" + b"0" * 5000), "not_json"),
    "an exponent": (with_content(b"1e5000"), "not_json"),
    "NaN": (with_content(b"NaN"), "not_json"),
    "a control character": (with_content(b'"\x01"'), "not_json"),
    "bytes": (b"\xff\xfe\xfd\n", "utf8"),
    "depth": (with_content(b"[" * 3000 + b"]" * 3000), "depth"),
    "a list": (b"[1, 2]\n", "not_object"),
    "half": (b'{"type": "user"\n', "not_json"),
}
KEPT = {
    "a lone surrogate": (with_content(rb'"a\ud800b"'), "a\ufffdb"),
    "the wrong half": (with_content(rb'"a\udfff\ud83d"'), "a\ufffd\ufffd"),
    "a surrogate in bytes": (with_content(b'"a\xed\xa0\x80b"'), "a\ufffd\ufffd\ufffdb"),
    "2**64 as text": (with_content(b'[{"type": "text", "text": "18446744073709551616"}]'), "18446744073709551616"),
    "NUL, escaped": (with_content(rb'"a\u0000b"'), "a\0b"),
    "2**63 as a time": (with_content(b'"odd"', timestamp=2**63), "odd"),
    "2**64 as a time": (with_content(b'"odd"', timestamp=2**64), "odd"),
    "2**63 as an id": (with_content(b'"odd"', parentUuid=2**63), "odd"),
}


@pytest.mark.fault(12)
@pytest.mark.parametrize("name", [*ODD, *KEPT])
def test_one_odd_line_in_a_batch_costs_no_other(lab, name):
    lines = [user_line(number, f"n{number}") for number in range(BATCH - 1)]
    odd, meant = {**ODD, **KEPT}[name]
    path = lab.claude_file()
    path.write_bytes(b"".join([*lines[:500], odd, *lines[500:]]))
    assert lab.ingest()["complete"]
    said = summaries(lab)
    if name in ODD:
        assert said == [f"n{number}" for number in range(BATCH - 1)]
        assert [why for *_, why in lab.rejects()] == [meant]
    else:
        assert said == [*(f"n{number}" for number in range(500)), meant, *(f"n{number}" for number in range(500, 999))]
        assert lab.rejects() == []
    assert lab.archived(path) == path.read_bytes()


@pytest.mark.fault(12)
def test_numbers_beyond_what_sqlite_holds_are_no_counts(lab):
    usage = {
        "input_tokens": 2**63,
        "output_tokens": 7,
        "cache_read_input_tokens": 2**64,
        "cache_creation_input_tokens": -1,
    }
    message = {
        "id": "m1",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "usage": usage,
    }
    lab.claude_file().write_bytes(user_line(0) + user_line(1, type="assistant", message=message) + user_line(2))
    assert lab.ingest()["complete"]
    assert summaries(lab) == ["hello", "hi", "hello"]
    cost = lab.sessions()["claude:s1"].cost
    assert (cost.input_tokens, cost.output_tokens) == (None, 7)


FUTURE = {
    "claude": {"type": "hologram", "uuid": "f1", "timestamp": "2031-01-01T00:00:00.000Z", "body": {"v": [1, {}]}},
    "codex": {"timestamp": "2031-01-01T00:00:00.000Z", "type": "hologram", "payload": {"type": "x", "v": [1, {}]}},
    "gemini": {"type": "hologram", "id": "f1", "timestamp": "2031-01-01T00:00:00.000Z", "content": "x"},
    "grok": {
        "timestamp": 1900000000,
        "method": "session/hologram",
        "params": {"update": {"sessionUpdate": "hologram"}},
    },
    "hive": {"type": "hologram", "event": "hologram", "timestamp": "2031-01-01T00:00:00Z"},
    "mycode": {"type": "hologram", "role": "hologram", "content": [{"type": "hologram"}]},
    "pi": {"type": "hologram", "id": "f1", "timestamp": "2031-01-01T00:00:00.000Z"},
    "qwen": {"type": "hologram", "uuid": "f1", "timestamp": "2031-01-01T00:00:00.000Z"},
    "skill": {"type": "hologram", "hologram": {"v": 2}},
}


def unknown_types(lab) -> dict[str, int]:
    with lab.store() as db:
        return counts.sources(db)["unknown_types"]


@pytest.mark.fault(13)
@pytest.mark.parametrize("flavor", sorted(adapters()))
def test_records_of_a_later_version_are_archived_and_counted(lab, flavor):
    home = lab.home_of(flavor)
    lab.write_config(f'[sources.{flavor}]\nroots = ["{home}"]\n')
    shutil.copytree(SAMPLES / flavor, home, ignore=shutil.ignore_patterns("*.expected.json"))
    lab.ingest()
    before, rejected, known = lab.event_rows(), lab.rejects(), sum(unknown_types(lab).values())
    files = [home / sample.path for sample in samples_of(adapters()[flavor], SAMPLES / flavor)]
    files = [file for file in files if file.suffix == ".jsonl"]
    assert files
    for file in files:
        append(file, orjson.dumps(FUTURE[flavor]) + b"\n")
    assert lab.ingest()["complete"]
    new = [row for row in lab.event_rows() if row not in before]
    for file in files:
        assert lab.archived(file) == file.read_bytes()
    assert {row[7] for row in new} <= {"lifecycle"}
    assert sum(unknown_types(lab).values()) - known + len(new) >= len(files)
    assert lab.rejects() == rejected


times = st.sampled_from(
    [
        "2026-01-02T03:04:05.678Z", "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2026-01-01T00:00:00.000Z",
        "2026-01-02T05:04:05+02:00", "0001-01-01T00:00:00Z", "tomorrow", "", None, 17, 2**70, "2026-13-45T99:99:99Z",
    ]
)  # fmt: skip


@pytest.mark.fault(14)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(times | st.datetimes().map(lambda moment: moment.isoformat() + "Z"), min_size=2, max_size=12))
def test_times_are_stored_as_given_and_order_nothing(tmp_path_factory, given_times):
    lab = Lab(tmp_path_factory.mktemp("t"))
    lines = [user_line(number, f"n{number}", timestamp=time) for number, time in enumerate(given_times)]
    lab.claude_file().write_bytes(b"".join(lines))
    assert lab.ingest()["complete"]
    events = lab.events("claude:s1")
    assert [event.summary for event in events] == [f"n{number}" for number in range(len(given_times))]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    for event, time in zip(events, given_times, strict=True):
        if isinstance(time, str) and len(time) == 24 and "1000" <= time < "2026-02":
            assert event.ts == time
    shutil.rmtree(lab.folder)


@pytest.mark.fault(15)
def test_compressed_twins_are_read_only_where_an_agent_writes_them(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    for suffix, pack in ((".gz", gzip.compress), (".zst", zstd.compress), (".1", bytes), (".bak", bytes)):
        path.with_name(path.name + suffix).write_bytes(pack(user_line(0) + user_line(1)))
    name = "rollout-2026-01-02T03-04-05-0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
    line = b'{"timestamp":"2026-01-02T03:04:05.000Z","type":"event_msg","payload":{"type":"user_message","message":"%s"}}\n'
    both = lab.codex_file(name)
    both.write_bytes(line % b"plain")
    both.with_name(both.name + ".zst").write_bytes(zstd.compress(line % b"plain" + line % b"packed"))
    both.with_name(both.name + ".gz").write_bytes(gzip.compress(line % b"plain"))
    alone = lab.codex_file(name.replace("eeee", "ffff"))
    alone.with_name(alone.name + ".zst").write_bytes(zstd.compress(line % b"alone"))
    with lab.daemon():
        lab.ingest_through_daemon()
        assert until(lambda: lab.status()["sources"]["ignored"] == 5)
        assert lab.status()["state"] == "ready"
    assert {uid: summaries(lab, uid) for uid in lab.sessions()} == {
        "claude:s1": ["hello"],
        "codex:0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee": ["plain"],
        "codex:0190aaaa-bbbb-7ccc-8ddd-ffffffffffff": ["alone"],
    }
    with lab.store() as db:
        assert len(rows(db, "SELECT 1 FROM _source")) == 3
