"""A record belongs to the session whose file begins first, whatever order files are read in."""

from __future__ import annotations

import itertools
import json

import pytest

from lab import Lab, user_line
from sessiond.store.connect import rows


def assistant(number: int, session: str, *, uuid: str, message: str, output: int, text: str = "done") -> bytes:
    content = {
        "id": message, "role": "assistant", "model": "claude-x", "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 5, "output_tokens": output},
    }  # fmt: skip
    return user_line(number, session=session, type="assistant", uuid=uuid, message=content, requestId="r")


def state(lab: Lab) -> tuple:
    """Everything that must not depend on the order of arrival."""
    with lab.store() as db:
        events = rows(
            db,
            "SELECT s.uid, e.summary, e.kind, p.summary FROM _event AS e JOIN _session AS s ON s.id = e.session_id"
            " LEFT JOIN _event AS p ON p.session_id = e.session_id AND p.seq = e.parent_seq ORDER BY 1, 2, 3, 4",
        )
        files = rows(db, "SELECT session_uid, path, edits FROM files ORDER BY 1, 2")
        counted = rows(db, "SELECT uid, events, turns, retries, started_at, ended_at FROM _session ORDER BY uid")
    parents = {uid: session.parent_uid for uid, session in lab.sessions().items()}
    return events, files, counted, parents, lab.usage_rows()


def test_fork_of_a_fork_in_every_order(tmp_path):
    """a is the oldest; b copies a and goes on; c copies b and goes on."""
    a = [user_line(0, "a0", session="a"), assistant(1, "a", uuid="a1", message="m1", output=3, text="a1")]
    b = [
        *a,
        user_line(10, "b0", session="b", parentUuid="a1"),
        assistant(11, "b", uuid="b1", message="m2", output=7, text="b1"),
    ]
    c = [*b, user_line(20, "c0", session="c", parentUuid="b1")]
    b = [user_line(5, "b starts", session="b", uuid="bs", parentUuid=None, isMeta=True), *b]
    c = [user_line(6, "c starts", session="c", uuid="cs", parentUuid=None, isMeta=True), *c]
    contents = {"a": b"".join(a), "b": b"".join(b), "c": b"".join(c)}
    states = []
    for number, order in enumerate(itertools.permutations("abc")):
        lab = Lab(tmp_path / str(number))
        for name in order:
            lab.claude_file(name).write_bytes(contents[name])
            lab.ingest()
        states.append(state(lab))
    assert all(each == states[0] for each in states[1:])
    assert states[0][3] == {"claude:a": None, "claude:b": "claude:a", "claude:c": "claude:b"}
    assert [row[:2] for row in states[0][0] if row[1] in ("a0", "b0", "c0")] == [
        ("claude:a", "a0"), ("claude:b", "b0"), ("claude:c", "c0"),
    ]  # fmt: skip
    assert sum(row[4] for row in states[0][4]) == 10  # each response is paid once


def test_usage_is_the_maximum_over_all_records_of_a_response(lab):
    path = lab.claude_file()
    path.write_bytes(
        user_line(0)
        + assistant(1, "s1", uuid="x1", message="m", output=3)
        + user_line(2, "in between")
        + assistant(3, "s1", uuid="x2", message="m", output=90)
        + assistant(4, "s1", uuid="x3", message="m", output=40)
    )
    lab.ingest()
    cost = lab.sessions()["claude:s1"].cost
    assert (cost.input_tokens, cost.output_tokens) == (5, 90)
    tokens = [event.tokens for event in lab.events("claude:s1") if event.kind == "assistant_msg"]
    assert tokens == [95, None, None]  # shown once, on the response's first event


def rollout(lab: Lab, number: int, parent: int | None, vectors: list[int]) -> None:
    """A codex thread that forks from another and repeats its token counts."""

    def uuid(n: int) -> str:
        return f"0190aaaa-bbbb-7ccc-8ddd-{n:012d}"

    meta = {"id": uuid(number), "timestamp": f"2026-01-0{number}T00:00:00.000Z", "cwd": "/w"}
    if parent is not None:
        meta["forked_from_id"] = uuid(parent)
    records = [("session_meta", meta), ("turn_context", {"model": "gpt-x", "cwd": "/w"})]
    for total in vectors:
        usage = {"input_tokens": total, "cached_input_tokens": 0, "output_tokens": total, "total_tokens": 2 * total}
        last = {**usage, "input_tokens": 10, "output_tokens": 1}
        info = {"total_token_usage": usage, "last_token_usage": last}
        records.append(("event_msg", {"type": "token_count", "info": info}))
    lines = [
        json.dumps({"timestamp": f"2026-01-0{number}T00:00:{at:02d}.000Z", "type": kind, "payload": payload})
        for at, (kind, payload) in enumerate(records)
    ]
    lab.codex_file(f"rollout-2026-01-0{number}T00-00-00-{uuid(number)}").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_lineage_is_settled_when_the_thread_in_the_middle_comes_last(lab, order):
    """1 <- 2 <- 3, each repeating what came before: 3 does not know that it descends from 1 until 2 says so."""
    threads = {1: (None, [10, 20]), 2: (1, [10, 20, 30]), 3: (2, [10, 20, 30, 40])}
    for number in order:
        rollout(lab, number, *threads[number])
        lab.ingest()
    spent = {uid[-1]: session.cost.output_tokens for uid, session in lab.sessions().items()}
    assert spent == {"1": 2, "2": 1, "3": 1}


def test_equal_counts_of_unrelated_threads_are_both_counted(lab):
    rollout(lab, 1, None, [10, 20])
    rollout(lab, 2, None, [10, 20])
    lab.ingest()
    assert [session.cost.output_tokens for session in lab.sessions().values()] == [2, 2]


def test_parent_in_a_file_that_comes_later_is_found(lab):
    """A sub-agent's file may be read before its session's own."""
    agent = lab.claude / "projects" / "-w" / "s1" / "subagents" / "agent-f1.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(user_line(0, "the task", uuid="sub0", isSidechain=True, agentId="f1"))
    lab.ingest()
    call = {"id": "m1", "role": "assistant", "model": "x", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "Task", "input": {"description": "look around", "prompt": "p"}}]}  # fmt: skip
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]}
    lab.claude_file().write_bytes(
        user_line(0, "go")
        + user_line(1, type="assistant", message=call)
        + user_line(2, message=result, toolUseResult={"agentId": "f1", "status": "completed"})
    )
    lab.ingest()
    events = {event.summary: event for event in lab.events("claude:s1")}
    task = next(event for event in events.values() if event.tool == "Task" and event.kind == "tool_call")
    assert events["the task"].parent_seq == task.seq
    assert events["the task"].is_sidechain
    assert events["ok"].parent_seq == task.seq
