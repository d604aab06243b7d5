"""Qwen Code's own rules: what is told twice counts once, sub-agents are part of their session, who said what."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import orjson
import pytest

from lab import Lab
from sessiond.adapters.base import Reader
from sessiond.adapters.qwen import ADAPTER
from sessiond.model import Event, Fact, Kind, Line, Patch, Role, Session, Unknown, Usage
from tests.adapters.harness import SAMPLES

SID = "5f000000-0000-4000-8000-00000000c001"
UID = f"qwen:{SID}"


def parse(record, carry=None):
    return ADAPTER.parse(Line(0, orjson.dumps(record)), {} if carry is None else carry)


def only(kind, records):
    return [each for each in records if isinstance(each, kind)]


def telemetry(uuid="t1", name="api_response", **fields):
    told = {"event.name": f"qwen-code.{name}", "response_id": "r1", "prompt_id": "p1", **fields}
    return {"uuid": uuid, "type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": told}}


def response(uuid="t1", given=10, answered=2, **fields):
    counts = {"input_token_count": given, "output_token_count": answered, "total_token_count": given + answered}
    return telemetry(uuid, **counts, **fields)


def answer(uuid="a1", given=10, answered=2, **fields):
    spent = {"promptTokenCount": given, "candidatesTokenCount": answered, "totalTokenCount": given + answered}
    message = {"role": "model", "parts": [{"text": "so"}]}
    return {"uuid": uuid, "type": "assistant", "message": message, "usageMetadata": {**spent, **fields}}


@pytest.fixture
def qwen_home(lab: Lab) -> Path:
    shutil.copytree(SAMPLES / "qwen", lab.user_home / ".qwen", ignore=shutil.ignore_patterns("*.expected.json"))
    return lab.user_home / ".qwen"


# --- where files lie ---


@pytest.mark.parametrize(
    ("env", "home"),
    [
        ({}, "/u/.qwen"),
        ({"QWEN_HOME": "/q"}, "/q"),
        ({"QWEN_HOME": "/q", "QWEN_RUNTIME_DIR": "~/r"}, "/u/r"),
    ],
)
def test_the_home_is_where_qwen_itself_would_look(env, home):
    assert ADAPTER.homes(env, Path("/u")) == [Path(home)]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"projects/-w/chats/{SID}.jsonl", True),
        (f"projects/-w/subagents/{SID}/agent-a.jsonl", True),
        (f"projects/-w/subagents/{SID}/agent-a.meta.json", True),
        (f"projects/-w/subagents/{SID}/notes.jsonl", False),
        ("projects/-w/meta.json", False),
        ("projects/-w/extract-cursor.json", False),
        ("projects/-w/memory/MEMORY.md", False),
        (f"projects/-w/chats/{SID}.jsonl.tmp", False),
    ],
)
def test_only_session_logs_are_wanted(path, wanted):
    assert ADAPTER.wants(PurePosixPath(path)) is wanted


def test_a_sub_agent_is_part_of_its_session():
    head = [orjson.dumps({"cwd": "/w", "type": "user"})]
    claim = ADAPTER.claims(PurePosixPath(f"projects/-w/subagents/{SID}/agent-a.jsonl"), head)
    assert (claim.session_id, claim.role, claim.cwd, claim.is_sidechain) == (SID, "subagent", "/w", False)
    sidecar = ADAPTER.claims(PurePosixPath(f"projects/-w/subagents/{SID}/agent-a.meta.json"), head)
    assert (sidecar.session_id, sidecar.role, sidecar.reader) == (SID, "sidecar", Reader.SNAPSHOT)


def test_resume_names_the_session():
    assert ADAPTER.resume(Session(UID, "qwen", SID)) == ["qwen", "--resume", SID]


# --- what is told twice ---


@pytest.mark.parametrize("lines", [[response(), answer()], [answer(), response()]])
def test_a_call_told_twice_has_one_name(lines):
    carry = {}
    spent = [usage for line in lines for usage in only(Usage, parse(line, carry))]
    assert len(spent) == 2
    assert len({usage.key for usage in spent}) == 1
    assert {(usage.input_tokens, usage.output_tokens) for usage in spent} == {(10, 2)}


def test_calls_with_other_numbers_are_other_calls():
    carry = {}
    lines = [response(), answer("a1", given=99), response("t2", given=11, response_id="r2"), answer("a2", given=11)]
    keys = [usage.key for line in lines for usage in only(Usage, parse(line, carry))]
    assert len(set(keys)) == 3


def test_equal_calls_one_after_the_other_are_two():
    carry = {}
    lines = [response(), answer(), response("t2", response_id="r2"), answer("a2")]
    keys = [usage.key for line in lines for usage in only(Usage, parse(line, carry))]
    assert keys == ["g:usage:r1", "g:usage:r1", "g:usage:r2", "g:usage:r2"]


def test_a_side_job_between_a_call_and_its_answer_does_not_part_them():
    carry = {}
    side = response("t2", response_id="r9", subagent_id="memory-1")
    keys = [usage.key for line in (response(), side, answer()) for usage in only(Usage, parse(line, carry))]
    assert keys == ["g:usage:r1", "g:usage:r9", "g:usage:r1"]


def test_a_sub_agents_answers_are_counted_by_telemetry_alone():
    assert not only(Usage, parse({**answer(), "isSidechain": True, "agentId": "a"}))


@pytest.mark.parametrize(("total", "output"), [(130, 30), (135, 35)])
def test_thoughts_are_part_of_the_answer_or_apart_from_it(total, output):
    spent = {"cachedContentTokenCount": 40, "thoughtsTokenCount": 5, "totalTokenCount": total}
    (usage,) = only(Usage, parse(answer(given=100, answered=30, **spent)))
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (60, output, 40)
    assert usage.reasoning_tokens == 5


# --- errors and retries ---


def test_an_error_is_a_retry_once_its_prompt_is_at_the_model_again():
    carry = {}
    parse(telemetry("e1", "api_error", error_message="429"), carry)
    assert not only(Patch, parse(response(prompt_id="p2"), dict(carry)))
    (patch,) = only(Patch, parse(response(), carry))
    assert (patch.key, patch.kind, patch.is_error) == ("g:e1#0", Kind.RETRY, False)
    assert not only(Patch, parse(response("t3"), carry))


def test_a_failed_turn_is_not_told_again():
    carry = {}
    parse(telemetry("e1", "api_error", error_message="400"), carry)
    ended = {"uuid": "x", "type": "system", "subtype": "turn_result", "systemPayload": {"state": "error"}}
    assert not only(Event, parse(ended, carry))
    assert only(Event, parse(ended))[0].kind is Kind.ERROR


# --- who said what ---


@pytest.mark.parametrize(
    ("fields", "kind", "role", "is_turn"),
    [
        ({"provenance": "real_user"}, Kind.USER_MSG, Role.USER, True),
        ({}, Kind.USER_MSG, Role.USER, True),
        ({"provenance": "system", "subtype": "notification"}, Kind.LIFECYCLE, Role.SYSTEM, False),
        ({"subtype": "cron"}, Kind.LIFECYCLE, Role.SYSTEM, False),
        ({"provenance": "goal_runtime"}, Kind.LIFECYCLE, Role.SYSTEM, False),
        ({"isSidechain": True, "agentId": "a"}, Kind.USER_MSG, Role.AGENT, False),
    ],
)
def test_only_a_persons_words_are_a_turn(fields, kind, role, is_turn):
    record = {"uuid": "u", "type": "user", "message": {"parts": [{"text": "go"}]}, **fields}
    (event,) = only(Event, parse(record))
    assert (event.kind, event.role, event.is_turn) == (kind, role, is_turn)


def test_a_branched_session_names_its_parent_once():
    carry, record = {}, {"uuid": "u", "type": "user", "forkedFrom": {"sessionId": "p"}}
    assert Fact("parent", "p") in parse(record, carry)
    assert Fact("parent", "p") not in parse(record, carry)


def test_a_strange_type_is_counted_by_name():
    assert only(Unknown, parse({"type": "wind"})) == [Unknown("wind")]


# --- through the store ---


def test_each_call_is_paid_once_whichever_file_comes_first(lab, qwen_home):
    side = next(qwen_home.rglob("agent-*.jsonl"))
    main = qwen_home / "projects" / "-home-ada-kite" / "chats" / f"{SID}.jsonl"
    data = main.read_bytes()
    main.unlink()
    lab.ingest()
    main.write_bytes(data)
    lab.ingest()
    cost = lab.sessions()[UID].cost
    assert (cost.input_tokens, cost.output_tokens, cost.cache_read_tokens) == (80 + 50 + 110 + 130 + 40, 54, 20)
    assert (cost.turns, cost.retries) == (2, 1)
    assert side.exists()


def test_a_sub_agent_hangs_on_the_call_that_started_it(lab, qwen_home):
    lab.ingest()
    events = {event.seq: event for event in lab.events(UID)}
    task = next(e for e in events.values() if e.is_sidechain and e.kind is Kind.USER_MSG)
    assert events[task.parent_seq].tool == "agent"
    assert sum(e.is_sidechain for e in events.values()) == 4


def test_tokens_are_shown_at_the_first_event_of_an_answer(lab, qwen_home):
    lab.ingest()
    shown = {event.summary: event.tokens for event in lab.events(UID) if event.tokens is not None}
    assert shown == {"Hm.": 130, "npm test": 122, "Done.": 134}


def test_a_branch_owns_only_what_is_new_in_it(lab, qwen_home):
    chats = qwen_home / "projects" / "-home-ada-kite" / "chats"
    first = orjson.loads((chats / f"{SID}.jsonl").read_bytes().split(b"\n")[0])
    copied = {**first, "sessionId": "b", "forkedFrom": {"sessionId": SID, "messageUuid": first["uuid"]}}
    own = {
        **first,
        "uuid": "new",
        "parentUuid": first["uuid"],
        "sessionId": "b",
        "timestamp": "2026-05-01T11:00:00.000Z",
    }
    (chats / "b.jsonl").write_bytes(orjson.dumps(copied) + b"\n" + orjson.dumps(own) + b"\n")
    lab.ingest()
    assert len(lab.events("qwen:b")) == 1
    assert lab.sessions()["qwen:b"].parent_uid == UID
