"""The skill log: a root that must be named, files of others left alone, and an outcome that the last line states."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from lab import append, until
from sessiond.adapters.base import NeedMore
from sessiond.adapters.skill import ADAPTER
from sessiond.model import Line, Session
from sessiond.store import restore
from sessiond.store.connect import rows
from tests.adapters.harness import SAMPLES


def entry(number: int, status: str = "ok", **fields) -> bytes:
    record = {
        "session_id": "s1",
        "timestamp": f"2026-04-18T09:{number:02d}:00Z",
        "skill": "tdd",
        **fields,
        "final_status": status,
    }
    return json.dumps(record).encode() + b"\n"


@pytest.fixture
def folder(lab) -> Path:
    path = lab.user_home / "brain" / "sessions"
    path.mkdir(parents=True)
    lab.write_config('[sources.skill]\nroots = ["~/brain/sessions"]\n')
    return path


def parse(data: bytes, carry: dict | None = None) -> list:
    return ADAPTER.parse(Line(0, data.rstrip(b"\n")), {} if carry is None else carry)


def test_there_is_no_usual_place(lab):
    assert ADAPTER.homes({"HOME": "/home/ada"}, Path("/home/ada")) == []
    path = lab.user_home / "brain" / "sessions" / "s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(entry(1))
    lab.ingest()
    assert lab.sessions() == {}


def test_the_named_folder_itself_is_read(lab, folder):
    (folder / "s1.jsonl").write_bytes(entry(1))
    (folder / "deeper").mkdir()
    (folder / "deeper" / "s2.jsonl").write_bytes(entry(1))
    (folder / "notes.json").write_text("{}")
    lab.ingest()
    assert list(lab.sessions()) == ["skill:s1"]
    with lab.store() as db:
        assert rows(db, "SELECT below, state FROM _source") == [(b"s1.jsonl", "live")]
        (written,) = restore.write(db, restore.plan(db, "skill:s1"), lab.folder / "back")
    assert written == lab.folder / "back" / "s1.jsonl"
    assert written.read_bytes() == entry(1)


def test_a_line_appended_while_the_daemon_watches_is_taken(lab, folder):
    """The root is the home itself: hints must find it too."""
    (folder / "s1.jsonl").write_bytes(entry(1))
    pipeline = lab.pipeline(mode="auto")
    pipeline.start()
    try:
        until(lambda: len(lab.events("skill:s1")) == 2)
        append(folder / "s1.jsonl", entry(2))
        until(lambda: len(lab.events("skill:s1")) == 4, seconds=5, what="the hint")
    finally:
        pipeline.stop()


@pytest.mark.parametrize(
    ("head", "is_ours"),
    [
        ([entry(1)], True),
        ([b"garbage", b"[1]", entry(1)], True),
        ([b'{"type": "user", "session_id": "s"}', entry(1)], False),
        ([b'{"session_id": "s", "skill": 1, "final_status": "ok"}'], False),
        ([b'{"skill": "tdd", "final_status": "ok"}'], False),
    ],
)
def test_first_readable_line_tells_whose_file_it_is(head, is_ours):
    claim = ADAPTER.claims(PurePosixPath("free text id.jsonl"), head)
    assert (claim is not None) is is_ours
    assert claim is None or claim.session_id == "free text id"


@pytest.mark.parametrize("head", [[], [b"garbage"], [b"[]", b"7"]])
def test_until_then_nothing_is_said(head):
    with pytest.raises(NeedMore):
        ADAPTER.claims(PurePosixPath("s.jsonl"), head)


def test_files_of_others_are_left_alone(lab, folder):
    data = (SAMPLES / "skill" / "foreign.jsonl").read_bytes()
    (folder / "foreign.jsonl").write_bytes(data)
    (folder / "s1.jsonl").write_bytes(entry(1))
    lab.ingest()
    assert list(lab.sessions()) == ["skill:s1"]
    with lab.store() as db:
        assert rows(db, "SELECT state FROM _source WHERE below = ?", (b"foreign.jsonl",)) == [("foreign",)]


def test_outcome_is_that_of_the_last_line_and_changes_with_it(lab, folder):
    path = folder / "s1.jsonl"
    for number, (status, outcome) in enumerate(
        [("ok", "success"), ("error", "fail"), ("pass", "success"), ("fail", "fail"), ("skip", "unknown"), ("ok", "success")],
        1,
    ):  # fmt: skip
        append(path, entry(number, status))
        lab.ingest()
        session = lab.sessions()["skill:s1"]
        assert (session.outcome, session.outcome_basis) == (outcome, "stated")
        assert session.outcome_reason == f"the last skill, tdd, ended with {status}"


def test_turns_and_tokens_are_unknown_and_durations_add_up(lab, folder):
    attempts = [{"attempt": 1, "model": "a", "verified": False}, {"attempt": 2, "model": "b", "verified": True}]
    (folder / "s1.jsonl").write_bytes(
        entry(10, duration_ms=60_000, model_used="wren-5", attempts=attempts)
        + entry(11, duration_ms=5, model_used="self")
    )
    lab.ingest()
    session = lab.sessions()["skill:s1"]
    cost = session.cost
    assert (cost.turns, cost.retries, cost.wall_clock_s) == (None, 1, 60.005)
    assert (cost.input_tokens, cost.output_tokens, cost.cache_tokens) == (None, None, None)
    assert (session.started_at, session.ended_at) == ("2026-04-18T09:09:00.000Z", "2026-04-18T09:11:00.000Z")
    assert (session.model, session.task_ref, session.title) == ("wren-5", "s1", "s1")


def test_everything_of_a_line_hangs_on_its_call(lab, folder):
    attempts = [{"attempt": 1, "runner_output": "FAIL", "verified": True}, {"attempt": 2, "runner_output": "ok"}]
    (folder / "s1.jsonl").write_bytes(entry(1, attempts=attempts, file_path="a.go") + entry(2))
    lab.ingest()
    events = lab.events("skill:s1")
    assert [(e.kind, e.parent_seq) for e in events] == [
        ("tool_call", None), ("test_run", 1), ("retry", 1), ("test_run", 1), ("edit", 1), ("completion", 1),
        ("tool_call", None), ("completion", 7),
    ]  # fmt: skip
    assert [e.is_error for e in events if e.kind == "test_run"] == [False, True]


def test_newest_project_is_where_it_is(lab, folder):
    path = folder / "s1.jsonl"
    path.write_bytes(entry(1, project_root="/w/one") + entry(2, project_root="/w/two") + entry(3))
    lab.ingest()
    assert lab.sessions()["skill:s1"].cwd == "/w/two"


def test_rules_are_asked_with_the_project(lab, folder):
    lab.write_config('[sources.skill]\nroots = ["~/brain/sessions"]\n[privacy]\nexclude = ["/secret"]\n')
    (folder / "open.jsonl").write_bytes(entry(1))  # names none: the path is asked
    (folder / "shut.jsonl").write_bytes(entry(1) + entry(2, project_root="/secret"))
    lab.ingest()
    assert list(lab.sessions()) == ["skill:open"]


def test_equal_lines_without_a_time_are_two_invocations(lab, folder):
    zero = entry(1, timestamp="0001-01-01T00:00:00Z")
    (folder / "s1.jsonl").write_bytes(zero + zero + entry(2))
    lab.ingest()
    assert len(lab.events("skill:s1")) == 6
    assert lab.sessions()["skill:s1"].started_at == "2026-04-18T09:02:00.000Z"


@pytest.mark.parametrize("duration", [0, -1, 2**60, "x", None, 1.5e300])
def test_a_duration_that_makes_no_sense_is_unknown(duration):
    found = parse(entry(1, duration_ms=duration))
    assert not any(type(record).__name__ == "Usage" for record in found)


def test_nobody_goes_on_with_a_log():
    assert ADAPTER.resume(Session("skill:s1", "skill", "s1")) is None
