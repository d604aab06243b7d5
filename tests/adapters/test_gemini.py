"""Gemini CLI's own rules: the last line of a message wins, a repeated history adds nothing, files of one session."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath

import orjson
import pytest

from lab import Lab, append
from sessiond.adapters.base import NeedMore, Reader
from sessiond.adapters.gemini import ADAPTER
from sessiond.model import Event, Kind, Line, Patch, Session, Unknown, Usage
from tests.adapters.harness import SAMPLES

SID = "7e000000-0000-4000-8000-00000000e001"
UID = f"gemini:{SID}"
CHATS = PurePosixPath("tmp/kite/chats")
NAME = "session-2026-05-01T10-00-7e000000.jsonl"
HEADER = {"sessionId": SID, "projectHash": "ab", "kind": "main"}
TIME = "2026-05-01T10:00:00.000Z"


def parse(record, carry=None):
    return ADAPTER.parse(Line(0, orjson.dumps(record)), {} if carry is None else carry)


def only(kind, records):
    return [each for each in records if isinstance(each, kind)]


def said(text="hello", id_="m1", **fields):
    return {"id": id_, "timestamp": TIME, "type": "gemini", "content": text, **fields}


def call(id_="c1", output=None, status="executing"):
    result = [{"functionResponse": {"id": id_, "name": "run_shell_command", "response": {"output": output}}}]
    made = {"id": id_, "name": "run_shell_command", "args": {"command": "ls"}, "status": status}
    return made if output is None else {**made, "result": result}


@pytest.fixture
def gemini_home(lab: Lab) -> Path:
    shutil.copytree(SAMPLES / "gemini", lab.user_home / ".gemini", ignore=shutil.ignore_patterns("*.expected.json"))
    return lab.user_home / ".gemini"


# --- where files lie ---


@pytest.mark.parametrize(("env", "home"), [({}, "/u/.gemini"), ({"GEMINI_CLI_HOME": "/g"}, "/g/.gemini")])
def test_the_home_is_where_gemini_itself_would_look(env, home):
    assert ADAPTER.homes(env, Path("/u")) == [Path(home)]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"tmp/kite/chats/{NAME}", True),
        ("tmp/ab12/chats/session-2025-09-01T10-00-7e000000.json", True),
        (f"tmp/kite/chats/{SID}/sub-1.jsonl", True),
        (f"tmp/kite/chats/{SID}/sub-1.json", False),
        ("tmp/kite/chats/notes.jsonl", False),
        ("tmp/kite/logs.json", False),
        ("tmp/kite/tool-outputs/session-1/x.txt", False),
        ("settings.json", False),
    ],
)
def test_only_session_logs_are_wanted(path, wanted):
    assert ADAPTER.wants(PurePosixPath(path)) is wanted


def test_the_header_names_the_session_in_full():
    claim = ADAPTER.claims(CHATS / NAME, [orjson.dumps(HEADER)])
    assert (claim.session_id, claim.reader) == (SID, Reader.TAIL)


def test_an_empty_file_waits_for_its_header():
    with pytest.raises(NeedMore):
        ADAPTER.claims(CHATS / NAME, [])


def test_an_old_file_is_rewritten_whole():
    head = [b"{", b'  "sessionId": "abc",']
    claim = ADAPTER.claims(CHATS / NAME.removesuffix("l"), head)
    assert (claim.session_id, claim.reader) == ("abc", Reader.SNAPSHOT)


def test_a_sub_agent_is_a_session_of_its_own():
    claim = ADAPTER.claims(CHATS / SID / "sub-1.jsonl", [orjson.dumps({**HEADER, "sessionId": "sub-1"})])
    assert (claim.session_id, claim.is_sidechain) == ("sub-1", True)
    child = Session("gemini:sub-1", "gemini", "sub-1", is_sidechain=True)
    assert ADAPTER.resume(child) is None


def test_the_working_folder_stands_in_the_first_message():
    text = '<session_context>\n- **Workspace Directories:**\n  - /home/"a\\b\n  - /other\n'
    first = {"$set": {"messages": [{"id": "x", "type": "user", "content": [{"text": text}]}]}}
    head = [orjson.dumps(HEADER), orjson.dumps(first)]
    assert ADAPTER.claims(CHATS / NAME, head).cwd == '/home/"a\\b'
    assert [fact.value for fact in parse(first)] == ['/home/"a\\b']


def test_the_working_folder_may_come_until_the_first_message_came():
    header = orjson.dumps(HEADER)
    assert ADAPTER.claims(CHATS / NAME, [header]).cwd_may_come
    assert not ADAPTER.claims(CHATS / NAME, [header, b'{"$set":{"messages":[]}}']).cwd_may_come


def test_resume_names_the_session():
    assert ADAPTER.resume(Session(UID, "gemini", SID)) == ["gemini", "--resume", SID]


# --- the last line wins ---


def test_a_message_that_is_written_again_unchanged_says_nothing_new():
    carry = {}
    assert len(only(Event, parse(said(), carry))) == 1
    assert parse(said(), carry) == []


def test_a_message_that_has_changed_is_patched():
    carry = {}
    parse(said("hel"), carry)
    assert parse(said("hello"), carry) == [
        Patch("s:message:m1#text", Kind.ASSISTANT_MSG, role="assistant", summary="hello", text="hello", is_error=False)
    ]


def test_a_call_and_then_its_result_are_added():
    carry = {}
    parse(said(), carry)
    assert [e.kind for e in parse(said(toolCalls=[call()]), carry)] == [Kind.TOOL_CALL]
    (result,) = parse(said(toolCalls=[call(output="x", status="success")]), carry)
    assert (result.kind, result.key, result.parent_key) == (Kind.TOOL_RESULT, "s:result:c1", "s:call:c1")


def test_the_answer_in_a_users_name_does_not_overwrite_the_result():
    carry = {}
    parse(said(toolCalls=[{**call(output="Output: long", status="success"), "resultDisplay": "short"}]), carry)
    repeated = {"id": "m2", "type": "user", "content": call(output="Output: long")["result"]}
    assert parse(repeated, carry) == []
    (alone,) = parse(repeated, {})  # where nothing told it before, it is the result
    assert (alone.kind, alone.summary) == (Kind.TOOL_RESULT, "long")


def test_what_is_remembered_of_a_session_is_bounded():
    carry = {}
    for number in range(500):
        parse(said("x" * 1000, id_=f"m{number}"), carry)
    assert len(orjson.dumps(carry)) < 4_000


def test_tokens_come_with_a_later_line():
    carry = {}
    parse(said(tokens=None), carry)
    spent = {"input": 100, "output": 10, "cached": 30, "thoughts": 4, "tool": 2, "total": 116}
    (usage,) = only(Usage, parse(said(tokens=spent), carry))
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (72, 14, 30)
    assert usage.reasoning_tokens == 4


@pytest.mark.parametrize(
    ("output", "status", "is_error"),
    [
        ("Output: x\nExit Code: 0", "success", False),
        ("Output: x\nExit Code: 2\nProcess Group PGID: 1", "success", True),
        ("Output: the words Exit Code: 2 in a line", "success", False),
        ("anything", "error", True),
    ],
)
def test_a_command_that_fails_is_an_error_whatever_the_client_calls_it(output, status, is_error):
    *_, result = only(Event, parse(said(toolCalls=[call(output=output, status=status)])))
    assert result.is_error is is_error


def test_a_strange_message_is_counted_by_name():
    assert parse({"id": "m", "type": "wind"}) == [Unknown("message/wind")]


# --- through the store ---


def test_the_history_repeated_on_resume_changes_nothing(lab, gemini_home):
    path = gemini_home / CHATS / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:13]))
    lab.ingest()
    before, cost = lab.events(UID), lab.sessions()[UID].cost
    append(path, b"".join(lines[13:16]))
    lab.ingest()
    assert lab.events(UID) == before
    assert lab.sessions()[UID].cost == cost


def test_one_event_for_each_part_of_a_message_with_its_last_words(lab, gemini_home):
    lab.ingest()
    told = [(str(e.kind), e.summary) for e in lab.events(UID)]
    assert told[1:5] == [
        ("thinking", "Plan Test first."),
        ("assistant_msg", "Running the tests."),
        ("test_run", "pytest -q"),
        ("tool_result", "Exit code 1: 1 failed"),
    ]
    assert len(told) == len(set(told))
    cost = lab.sessions()[UID].cost
    assert (cost.input_tokens, cost.output_tokens, cost.turns) == (190, 22, 1)


def test_lines_read_one_by_one_come_to_the_same(lab, gemini_home, tmp_path):
    lab.ingest()
    other = Lab(tmp_path)
    path = other.user_home / ".gemini" / CHATS / NAME
    path.parent.mkdir(parents=True)
    path.touch()
    for line in (gemini_home / CHATS / NAME).read_bytes().splitlines(keepends=True):
        append(path, line)
        other.ingest()
    once, often = ([replace(e, payload_ref=None) for e in each.events(UID)] for each in (lab, other))
    assert once == often


def test_a_second_file_of_a_session_adds_no_session(lab, gemini_home):
    lab.ingest()
    assert set(lab.sessions()) == {UID, "gemini:kite-counter-1", "gemini:7e000000-0000-4000-8000-00000000e002"}
    child = lab.sessions()["gemini:kite-counter-1"]
    assert (child.parent_uid, child.is_sidechain, child.cwd) == (UID, True, "/home/ada/kite")
    assert child.cost.turns == 0


def test_an_old_file_that_is_rewritten_grows_by_what_is_new(lab, gemini_home):
    uid = "gemini:7e000000-0000-4000-8000-00000000e002"
    path = next(gemini_home.rglob("*.json"))
    lab.ingest()
    record = orjson.loads(path.read_bytes())
    record["messages"][1]["content"] = "Hi there."
    record["messages"].append({"id": "o3", "timestamp": TIME, "type": "user", "content": "Bye"})
    path.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
    lab.ingest()
    assert [event.summary for event in lab.events(uid)] == ["Hello", "Hi there.", "Bye"]


def test_an_excluded_folder_keeps_a_session_out(lab, gemini_home):
    lab.write_config('[privacy]\nexclude = ["/home/ada/**"]\n')
    lab.ingest()
    assert set(lab.sessions()) == {"gemini:7e000000-0000-4000-8000-00000000e002"}


def test_privacy_rules_know_the_project_by_the_file_beside_it(lab):
    """Where the messages do not name the folder, `.project_root` does: an excluded project stays out."""
    project = lab.user_home / ".gemini" / "tmp" / "plans"
    (project / "chats").mkdir(parents=True)
    (project / ".project_root").write_text("/secret/plans")
    header = b'{"sessionId":"5e000000-aaaa-4bbb-8ccc-000000000001","startTime":"2026-05-01T10:00:00.000Z"}\n'
    said = b'{"id":"m1","timestamp":"2026-05-01T10:00:01.000Z","type":"user","content":[{"text":"XyzzyPlugh"}]}\n'
    (project / "chats" / "session-2026-05-01T10-00-5e000000.jsonl").write_bytes(header + said)
    lab.write_config('[privacy]\nexclude = ["/secret/**"]\n')
    lab.ingest()
    assert lab.sessions() == {}
    lab.write_config("")
    stored = b"".join(path.read_bytes() for path in lab.paths.state_dir.rglob("*") if path.is_file())
    assert b"XyzzyPlugh" not in stored
