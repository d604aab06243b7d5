"""The contract that `sessiond.testing` ships: an adapter that breaks any part of it is told so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

import orjson
import pytest

from sessiond.adapters.base import Claim, decode
from sessiond.errors import BadRecord
from sessiond.model import Event, Kind, Line, Link, Usage, session_key
from sessiond.testing import Check, check_adapter, check_files, contract, faults_of

LINES = b'{"id":"a","text":"one"}\n{"id":"b","text":"two"}\n'
EXPECTED = [
    {"line": 1, "records": [{"event": "user_msg", "key": "s:a", "summary": "one"}]},
    {"line": 2, "records": [{"event": "user_msg", "key": "s:b", "summary": "two"}]},
]


class Wren:
    flavor = "wren"
    version = 1

    def homes(self, env, user_home):
        return [user_home / ".wren"]

    def folders(self, home):
        return [home / "songs"]

    def wants(self, path):
        return path.suffix == ".jsonl"

    def claims(self, path, head):
        return Claim(path.stem, path.name) if self.wants(path) else None

    def parse(self, line, carry):
        record = decode(line)
        name, text = record.get("id"), record.get("text")
        if not isinstance(name, str) or not name:
            raise BadRecord("no_id")
        carry["lines"] = carry.get("lines", 0) + 1
        return [Event(Kind.USER_MSG, session_key(name), summary=text.split("\n")[0] if isinstance(text, str) else "")]

    def resume(self, session):
        return None


@pytest.fixture
def samples(tmp_path) -> Path:
    (tmp_path / "songs").mkdir()
    (tmp_path / "songs" / "s1.jsonl").write_bytes(LINES)
    (tmp_path / "songs" / "s1.jsonl.expected.json").write_bytes(orjson.dumps(EXPECTED))
    return tmp_path


def broken(**methods):
    return type("Broken", (Wren,), methods)()


def held(adapter, samples) -> set[str]:
    """The names of the checks that fail."""
    failed = set()
    for check in contract(adapter, samples):
        try:
            check()
        except AssertionError:
            failed.add(str(check).split(":")[1])
    return failed


def test_a_good_adapter_keeps_the_contract(samples):
    check_adapter(Wren(), samples)
    assert held(Wren(), samples) == set()
    assert check_files(Wren(), samples) == 1


def test_each_check_has_a_name_of_its_own_to_run_under(samples):
    checks = contract(Wren(), samples)
    assert len({str(check) for check in checks}) == len(checks) == 10
    assert all(isinstance(check, Check) for check in checks)


def parse_keyed_by_place(self, line, carry):
    return [Event(Kind.USER_MSG, session_key(str(id(line))), summary=decode(line)["text"])]


def parse_in_place(self, line, carry):
    carry.setdefault("seen", []).append(decode(line)["id"])
    return []


def parse_forgetting(self, line, carry):
    record = decode(line)
    self.count = getattr(self, "count", 0) + 1
    return [Event(Kind.USER_MSG, session_key(f"{record['id']}{self.count}"))]


def parse_anything(self, line, carry):
    try:
        return Wren.parse(self, line, carry)
    except BadRecord:
        return []


def parse_tracing(self, line, carry):
    carry["junk"] = line.offset
    return Wren.parse(self, line, carry)


def parse_trusting(self, line, carry):
    record = decode(line)
    return [Event(Kind.USER_MSG, session_key(record["id"]), summary=record["text"].strip())]


def parse_two_lines(self, line, carry):
    return [Event(Kind.USER_MSG, session_key("x"), summary="a\nb")]


@pytest.mark.parametrize(
    ("methods", "failing"),
    [
        ({"wants": lambda self, path: False}, "brings_samples_with_what_is_expected"),
        ({"wants": lambda self, path: True}, "claims_only_what_it_wants"),
        ({"folders": lambda self, home: [home]}, "keeps_below_its_homes"),
        ({"folders": lambda self, home: [home / "nests"]}, "keeps_below_its_homes"),
        ({"parse": parse_keyed_by_place}, "means_what_is_written_beside_it"),
        ({"parse": parse_two_lines}, "is_well_formed"),
        ({"parse": parse_forgetting}, "may_be_cut_at_any_byte"),
        ({"parse": parse_forgetting}, "is_the_same_twice"),
        ({"parse": parse_in_place}, "may_be_restarted_between_any_two_lines"),
        ({"parse": parse_anything}, "rejects_junk_and_forgets_it"),
        ({"parse": parse_tracing}, "rejects_junk_and_forgets_it"),
        ({"parse": parse_trusting}, "bears_anything_in_any_place"),
    ],
)
def test_what_breaks_the_contract_is_told(samples, methods, failing):
    adapter = broken(**methods)
    assert failing in held(adapter, samples)
    with pytest.raises(AssertionError, match=failing):
        check_adapter(adapter, samples)


def test_an_expectation_without_its_sample_is_told(samples):
    (samples / "songs" / "s2.jsonl.expected.json").write_text("[]")
    assert held(Wren(), samples) == {"brings_samples_with_what_is_expected"}


def test_a_record_that_the_store_could_not_take_is_told():
    assert list(faults_of("text"))
    assert list(faults_of(Event(Kind.USER_MSG, "no scope")))
    assert list(faults_of(Event(Kind.USER_MSG, ts="yesterday")))
    assert list(faults_of(Event(Kind.USER_MSG, text="x" * 30_000)))
    assert list(faults_of(Usage(session_key("u"), input_tokens=-1)))
    assert list(faults_of(Link(None, None)))
    assert not list(faults_of(Event(Kind.USER_MSG, session_key("a"), ts="2026-05-01T10:00:00.000Z")))


def test_real_files_with_a_fault_are_told(samples):
    with pytest.raises(AssertionError, match="s1.jsonl"):
        check_files(broken(parse=parse_two_lines), samples)


def test_it_needs_no_test_runner():
    code = "import sys, sessiond.testing; sys.exit('pytest' in sys.modules or 'hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lines_and_paths_reach_an_adapter_as_they_will_in_the_daemon(samples):
    seen = []

    def wants(self, path):
        seen.append(path)
        return Wren.wants(self, path)

    def parse(self, line, carry):
        assert isinstance(line, Line)
        return Wren.parse(self, line, carry)

    check_adapter(broken(wants=wants, parse=parse), samples)
    assert seen[0] == PurePosixPath("songs/s1.jsonl")


def test_the_example_of_the_docs_keeps_the_contract(tmp_path):
    page = (Path(__file__).parent.parent / "docs" / "adapters.md").read_text()
    named: dict = {}
    exec(page.partition("```python\n")[2].partition("```")[0], named)
    (tmp_path / "flights").mkdir()
    lines = [
        {"type": "header", "model": "grey-1", "cwd": "/lake"},
        {"type": "ask", "id": "1", "at": "2026-05-01T10:00:00Z", "text": "Where to?"},
        {"type": "wind"},
    ]
    expected = [
        {"line": 1, "records": [{"fact": "model", "value": "grey-1"}]},
        {"line": 2, "records": [{"event": "user_msg", "key": "s:1", "summary": "Where to?", "is_turn": True}]},
        {"line": 3, "records": [{"unknown": "wind"}]},
    ]
    (tmp_path / "flights" / "f1.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    (tmp_path / "flights" / "f1.jsonl.expected.json").write_bytes(orjson.dumps(expected))

    check_adapter(named["ADAPTER"], tmp_path)
