"""pi's own rules: where its files lie, retries that take an error back, forks that repeat their parent's entries."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import orjson
import pytest

from lab import Lab, append
from sessiond.adapters.pi import ADAPTER
from sessiond.model import Event, Fact, Kind, Line, Patch, Session, Unknown, Usage
from tests.adapters.harness import SAMPLES

PARENT, FORK = (f"0196f000-0000-7000-8000-00000000000{n}" for n in (1, 2))
FOLDER = PurePosixPath("agent/sessions/--home-ada-kite--")


def parse(record, carry=None):
    return ADAPTER.parse(Line(0, orjson.dumps(record)), {} if carry is None else carry)


def only(kind, records):
    return [each for each in records if isinstance(each, kind)]


def message(id_="e1", **fields):
    return {"type": "message", "id": id_, "timestamp": "2026-05-01T10:00:00.000Z", "message": fields}


@pytest.fixture
def pi_home(lab: Lab) -> Path:
    shutil.copytree(SAMPLES / "pi", lab.user_home / ".pi", ignore=shutil.ignore_patterns("*.expected.json"))
    return lab.user_home / ".pi"


# --- where files lie ---


@pytest.mark.parametrize(
    ("env", "home"),
    [({}, "/u/.pi"), ({"PI_CODING_AGENT_DIR": "~/x/agent"}, "/u/x/agent"), ({"PI_CODING_AGENT_DIR": "/a"}, "/a")],
)
def test_the_home_is_where_pi_itself_would_look(env, home):
    assert ADAPTER.homes(env, Path("/u")) == [Path(home)]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("agent/sessions/--a--/t_id.jsonl", True),
        ("sessions/--a--/t_id.jsonl", True),
        ("agent/sessions/t_id.jsonl", True),
        ("agent/sessions/--a--/deep/t_id.jsonl", False),
        ("agent/models.json", False),
        ("agent/sessions/--a--/notes.txt", False),
        ("t_id.jsonl", False),
    ],
)
def test_only_session_logs_are_wanted(path, wanted):
    assert ADAPTER.wants(PurePosixPath(path)) is wanted


def test_the_header_names_the_session_and_its_folder():
    head = [orjson.dumps({"type": "session", "id": "abc", "cwd": "/w"})]
    claim = ADAPTER.claims(FOLDER / "t_other.jsonl", head)
    assert (claim.session_id, claim.cwd) == ("abc", "/w")


def test_without_a_header_the_file_is_named_by_its_name():
    claim = ADAPTER.claims(FOLDER / "2026-05-01T10-00-00-000Z_abc.jsonl", [b"torn"])
    assert (claim.session_id, claim.cwd, claim.cwd_may_come) == ("abc", None, False)


def test_resume_opens_the_session_by_its_id():
    assert ADAPTER.resume(Session("pi:abc", "pi", "abc")) == ["pi", "--session", "abc"]


# --- what a line means ---


def test_an_error_is_taken_back_by_its_own_edit_only():
    carry = {}
    parse(message("e1", role="assistant", content=[], stopReason="error", errorMessage="503"), carry)
    edit = {"type": "context_edit", "id": "e2", "targetId": "e0", "replacement": None}
    assert not only(Patch, parse(edit, dict(carry)))
    assert not only(Patch, parse({**edit, "targetId": "e1", "replacement": {"content": "shorter"}}, dict(carry)))
    assert only(Patch, parse({**edit, "targetId": "e1"}, dict(carry)))[0].kind is Kind.RETRY


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('529 {"error":{"type":"overloaded_error","message":"Overloaded"}}', "529 overloaded_error: Overloaded"),
        ('500 {"error":{"message":"boom"}}', "500 boom"),
        ("500 {", "500 {"),
        ("fetch failed\nat x", "fetch failed"),
        ("", "the call failed without a word"),
    ],
)
def test_an_error_is_put_in_a_line(said, words):
    (event,) = only(Event, parse(message(role="assistant", content=[], stopReason="error", errorMessage=said)))
    assert (event.kind, event.summary, event.is_error) == (Kind.ERROR, words, True)


def test_a_failed_call_costs_nothing_that_is_known():
    zeros = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    assert not only(Usage, parse(message(role="assistant", content=[], stopReason="error", usage=zeros)))


def test_an_answer_without_an_end_is_no_completion():
    kinds = [e.kind for e in only(Event, parse(message(role="assistant", content="half", stopReason="length")))]
    assert kinds == [Kind.ASSISTANT_MSG]


def test_entries_of_the_oldest_files_have_no_id():
    record = {"type": "message", "timestamp": "2025-11-01T10:00:00Z", "message": {"role": "user", "content": "hi"}}
    (event,) = only(Event, parse(record))
    assert event.key is None
    assert event.is_turn


def test_a_strange_role_is_counted_by_name():
    assert only(Unknown, parse(message(role="wind"))) == [Unknown("message/wind")]


def test_a_branch_names_its_parent_however_the_path_is_written():
    for path in ("/a/b/t_p1.jsonl", "C:\\a\\t_p1.jsonl", "t_p1.jsonl"):
        assert Fact("parent", "p1") in parse({"type": "session", "id": "x", "parentSession": path})


# --- through the store ---


def test_a_retried_call_is_a_retry_and_no_error(lab, pi_home):
    lab.ingest()
    events = lab.events(f"pi:{PARENT}")
    assert [e.summary for e in events if e.kind is Kind.RETRY] == ["429 rate_limit_error: Slow down"]
    assert [e.summary for e in events if e.kind is Kind.ERROR] == ["fetch failed"]
    assert lab.sessions()[f"pi:{PARENT}"].cost.retries == 1


def test_a_retry_that_is_told_in_a_later_sweep_counts_too(lab, pi_home):
    path = next(pi_home.rglob(f"*{PARENT}.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:6]))
    lab.ingest()
    assert lab.sessions()[f"pi:{PARENT}"].cost.retries == 0
    append(path, b"".join(lines[6:]))
    lab.ingest()
    assert lab.sessions()[f"pi:{PARENT}"].cost.retries == 1


@pytest.mark.parametrize("first", [PARENT, FORK])
def test_a_fork_owns_only_what_is_new_in_it(lab, pi_home, first):
    later = {path: path.read_bytes() for path in pi_home.rglob("*.jsonl") if first not in path.name}
    for path in later:
        path.unlink()
    lab.ingest()
    for path, data in later.items():
        path.write_bytes(data)
    lab.ingest()
    assert [e.summary for e in lab.events(f"pi:{FORK}")] == ["another way"]
    session = lab.sessions()[f"pi:{FORK}"]
    assert (session.parent_uid, session.cost.turns) == (f"pi:{PARENT}", 1)
    assert lab.sessions()[f"pi:{PARENT}"].cost.turns == 2


def test_results_hang_on_their_calls(lab, pi_home):
    lab.ingest()
    events = {event.seq: event for event in lab.events(f"pi:{PARENT}")}
    joined = [(events[e.parent_seq].kind, e.is_error) for e in events.values() if e.kind is Kind.TOOL_RESULT]
    assert joined == [(Kind.TEST_RUN, True), (Kind.EDIT, False)]
