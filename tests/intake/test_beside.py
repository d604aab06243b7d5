"""Files that are read, or understood, by what lies beside them: stand-ins, and working directories in a file."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from grok_files import PARENT, answer, call, folder, prompt, result, summary, turn
from lab import append, until
from sessiond.store.connect import rows

UID = f"grok:{PARENT}"
CHAT = b"".join(
    json.dumps(row).encode() + b"\n"
    for row in (
        {"type": "user", "content": "from the chat", "prompt_index": 0},
        {"type": "assistant", "content": "yes", "tool_calls": [{"id": "k", "name": "write", "arguments": '{"path":"x"}'}]},
        {"type": "tool_result", "tool_call_id": "k", "content": "done"},
    )
)  # fmt: skip
UPDATES = prompt("from the updates", 1) + answer("yes", 2) + turn(3, spent=10)


def told(lab) -> list[str]:
    return [event.summary for event in lab.events(UID)]


def sweep(pipeline) -> None:
    ticket = pipeline.ask()
    until(lambda: pipeline.asked(ticket)["done"])


def test_a_stand_in_is_read_where_the_real_file_is_missing(lab):
    (folder(lab) / "chat_history.jsonl").write_bytes(CHAT)
    lab.ingest()

    events = lab.events(UID)
    assert [e.kind.value for e in events] == ["user_msg", "assistant_msg", "edit", "tool_result"]
    assert events[3].parent_seq == events[2].seq
    session = lab.sessions()[UID]
    assert (session.cost.turns, session.cwd) == (1, "/home/ada/kite")
    assert session.ended_at is not None  # by the file's mtime: the rows have no times


def test_a_stand_in_that_is_rewritten_whole_repeats_nothing(lab):
    path = folder(lab) / "chat_history.jsonl"
    path.write_bytes(CHAT)
    lab.ingest()
    path.with_name("new").write_bytes(CHAT + b'{"type":"assistant","content":"more"}\n')
    os.replace(path.with_name("new"), path)
    lab.ingest()

    assert told(lab) == ["from the chat", "yes", "write x", "done", "more"]


def test_nothing_of_a_stand_in_is_stored_beside_the_real_file(lab):
    (folder(lab) / "chat_history.jsonl").write_bytes(CHAT)
    (folder(lab) / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()

    assert told(lab) == ["from the updates", "yes", "turn completed"]
    assert lab.ingest()["lines"] == 0


def test_the_real_file_relieves_its_stand_in(lab):
    """As a copy of a home arrives file by file: what was read first must not tell, in any number."""
    path = folder(lab) / "chat_history.jsonl"
    path.write_bytes(CHAT)
    lab.ingest()
    (folder(lab) / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()
    append(path, b'{"type":"assistant","content":"more"}\n')
    lab.ingest()

    assert told(lab) == ["from the updates", "yes", "turn completed"]
    session = lab.sessions()[UID]
    assert (session.events, session.cost.turns, session.started_at) == (3, 1, "2026-11-18T11:06:41.000Z")
    with lab.store() as db:
        assert rows(db, "SELECT count(*) FROM _file") == [(0,)]
        assert rows(db, "SELECT state FROM _source WHERE member = 'chat_history.jsonl'") == [("foreign",)]
        assert rows(db, "SELECT count(*) FROM _frame AS r JOIN _generation AS g ON g.id = r.generation_id") == [(1,)]


@pytest.mark.parametrize("updates_first", [True, False])
def test_one_that_is_open_when_the_real_file_comes_is_read_no_further(updates_first, lab):
    """Within one run of the daemon, whichever of the two is looked at first."""
    path, real = folder(lab) / "chat_history.jsonl", folder(lab) / "updates.jsonl"
    path.write_bytes(CHAT)
    pipeline = lab.pipeline()
    try:
        pipeline.start()
        sweep(pipeline)
        assert told(lab)[0] == "from the chat"
        arrivals = [(real, UPDATES), (path, b'{"type":"assistant","content":"new"}\n' + CHAT)]
        for name, data in arrivals if updates_first else reversed(arrivals):
            name.with_suffix(".new").write_bytes(data)
            os.replace(name.with_suffix(".new"), name)
            sweep(pipeline)
    finally:
        pipeline.stop()

    assert told(lab) == ["from the updates", "yes", "turn completed"]
    assert lab.sessions()[UID].cost.turns == 1


def test_what_left_with_a_stand_in_is_not_found_any_more(lab):
    (folder(lab) / "chat_history.jsonl").write_bytes(CHAT)
    lab.ingest()
    (folder(lab) / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()

    with lab.store() as db:
        assert rows(db, "SELECT count(*) FROM _event") == [(3,)]
        assert rows(db, "SELECT count(*) FROM _key WHERE seq IS NULL AND target IS NULL") == [(0,)]


def test_a_stand_in_is_not_read_after_the_real_file_was(lab):
    """Grok deletes old files one by one: the history may stay longer than the updates, which are stored."""
    (folder(lab) / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()
    (folder(lab) / "updates.jsonl").unlink()
    (folder(lab) / "chat_history.jsonl").write_bytes(CHAT)
    lab.ingest()

    assert told(lab) == ["from the updates", "yes", "turn completed"]


def test_patches_that_wait_survive_the_relief(lab):
    """events.jsonl knows that a call failed, long before the result is read."""
    outcome = {"ts": "2026-11-18T11:06:43.000Z", "type": "tool_completed", "outcome": "error", "tool_call_id": "call_0"}
    (folder(lab) / "events.jsonl").write_text(json.dumps(outcome) + "\n")
    (folder(lab) / "chat_history.jsonl").write_bytes(CHAT)
    lab.ingest()
    (folder(lab) / "updates.jsonl").write_bytes(prompt("a", 1) + call(2) + result(3))
    lab.ingest()

    assert [(e.kind.value, e.is_error) for e in lab.events(UID)][1:] == [("tool_call", False), ("tool_result", True)]


# --- .cwd ---------------------------------------------------------------------------------------------

HASHED = "kite-1cf04f59b6032ef0"
LONG = "/home/ada/" + "/".join(["a-very-long-name"] * 20) + "/最後"


@pytest.fixture
def hashed(lab):
    place = folder(lab, group=HASHED)
    (place.parent / ".cwd").write_text(LONG)
    return place


def test_a_working_directory_is_read_from_the_file_beside(hashed, lab):
    (hashed / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()

    assert lab.sessions()[UID].cwd == LONG


def test_without_that_file_the_summary_says_it(hashed, lab):
    (hashed.parent / ".cwd").unlink()
    (hashed / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()
    assert lab.sessions()[UID].cwd is None
    (hashed / "summary.json").write_text(summary(cwd=LONG))
    lab.ingest()

    assert lab.sessions()[UID].cwd == LONG


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"/" + b"x" * 5000])
def test_a_file_that_holds_no_path_says_nothing(content, hashed, lab):
    (hashed.parent / ".cwd").write_bytes(content)
    (hashed / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()

    assert (told(lab)[0], lab.sessions()[UID].cwd) == ("from the updates", None)


def test_it_is_not_read_through_a_link(hashed, lab):
    (hashed.parent / ".cwd").unlink()
    (lab.folder / "elsewhere").write_text("/somewhere")
    (hashed.parent / ".cwd").symlink_to(lab.folder / "elsewhere")
    (hashed / "updates.jsonl").write_bytes(UPDATES)
    lab.ingest()

    assert lab.sessions()[UID].cwd is None


def test_privacy_rules_hold_for_it(hashed, lab):
    lab.write_config('[privacy]\nexclude = ["/home/ada/a-very-long-name"]\n')
    for name, data in (
        ("updates.jsonl", UPDATES),
        ("summary.json", summary(cwd=LONG).encode()),
        ("events.jsonl", b"{}\n"),
    ):
        (hashed / name).write_bytes(data)
    lab.ingest()

    assert lab.sessions() == {}


# --- a session's folder -------------------------------------------------------------------------------


def test_a_folder_that_moves_to_another_directory_is_the_same_session(lab):
    (folder(lab) / "updates.jsonl").write_bytes(UPDATES)
    (folder(lab) / "summary.json").write_text(summary())
    lab.ingest()
    there = folder(lab, group="%2Fhome%2Fada%2Fnew")
    shutil.rmtree(there)
    folder(lab).rename(there)
    append(there / "updates.jsonl", prompt("and on", 4, index=1))
    (there / "summary.json").write_text(summary(cwd="/home/ada/new"))
    lab.ingest()

    assert told(lab) == ["from the updates", "yes", "turn completed", "and on"]
    session = lab.sessions()[UID]
    assert (session.cwd, session.cost.input_tokens, session.cost.turns) == ("/home/ada/new", 10, 2)


def test_updates_that_are_pulled_anew_repeat_nothing(lab):
    path = folder(lab) / "updates.jsonl"
    path.write_bytes(UPDATES)
    lab.ingest()
    path.with_name("new").write_bytes(answer("from before", 0) + UPDATES)
    os.replace(path.with_name("new"), path)
    lab.ingest()

    assert sorted(told(lab)) == ["from before", "from the updates", "turn completed", "yes"]
    assert lab.sessions()[UID].cost.input_tokens == 10


def test_a_torn_line_costs_itself_alone(lab):
    (folder(lab) / "updates.jsonl").write_bytes(prompt("a", 1) + answer("torn", 2)[:50] + b"\n" + answer("b", 3))
    lab.ingest()

    assert told(lab) == ["a", "b"]
    assert [reason for *_, reason in lab.rejects()] == ["not_json"]


@pytest.mark.parametrize("order", [("updates.jsonl", "events.jsonl"), ("events.jsonl", "updates.jsonl")])
def test_an_outcome_reaches_the_result_of_its_very_call(order, lab):
    """Models that count their calls anew with every answer use an id again."""
    outcome = {"ts": "2026-11-18T11:06:43.000Z", "type": "tool_completed", "outcome": "error", "tool_call_id": "call_0"}
    data = {
        "updates.jsonl": prompt("a", 1) + call(2) + result(3) + call(4) + result(5),
        "events.jsonl": json.dumps(outcome).encode() + b"\n",
    }
    for name in order:
        (folder(lab) / name).write_bytes(data[name])
        lab.ingest()

    events = lab.events(UID)
    assert [e.is_error for e in events] == [False, False, True, False, False]
    assert [e.parent_seq for e in events if e.kind == "tool_result"] == [2, 4]
