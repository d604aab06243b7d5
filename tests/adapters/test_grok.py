"""Grok's own rules: which files are whose, what names a line, what a prompt, a call and a turn are."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import orjson
import pytest

from grok_files import PARENT, answer, call, prompt, result, turn, update
from sessiond.adapters.base import NeedMore, Reader
from sessiond.adapters.grok import ADAPTER
from sessiond.model import Event, Fact, Kind, Line, Link, Patch, Role, Session, Unknown, Usage

IN = PurePosixPath("sessions/%2Fhome%2Fada%2Fkite") / PARENT
ANSWERED = [b'{"type":"user"}', b'{"type":"assistant","content":"hi"}']


def read(*lines: bytes, session: str = PARENT, name: str = "updates.jsonl") -> list:
    carry = {"file": name, "session": session}
    found, at = [], 0
    for line in lines:
        found += ADAPTER.parse(Line(at, line.rstrip(b"\n")), carry)
        at += len(line)
    return found


def events(records: list) -> list[Event]:
    return [each for each in records if isinstance(each, Event)]


def kinds(records: list) -> list[str]:
    return [each.kind.value for each in events(records)]


# --- whose file it is -------------------------------------------------------------------------------


def test_the_home_is_the_variable_as_it_stands():
    assert list(ADAPTER.homes({}, Path("/home/ada"))) == [Path("/home/ada/.grok")]
    assert list(ADAPTER.homes({"GROK_HOME": ""}, Path("/home/ada"))) == [Path("/home/ada/.grok")]
    assert list(ADAPTER.homes({"GROK_HOME": "/x/grok"}, Path("/home/ada"))) == [Path("/x/grok")]
    assert list(ADAPTER.folders(Path("/x/grok"))) == [Path("/x/grok/sessions")]


@pytest.mark.parametrize("name", ["updates.jsonl", "events.jsonl", "summary.json", "chat_history.jsonl"])
def test_the_files_of_a_session_are_wanted(name):
    assert ADAPTER.wants(IN / name)


@pytest.mark.parametrize(
    "path",
    [
        *(IN / name for name in ("usage.json", "rewind_points.jsonl", "signals.json", "updates.jsonl.lock")),
        *(IN / name for name in ("summary.json.0199.tmp", "plan.json", "subagents/c/output.json", "goal/meta.json")),
        IN / "terminal" / "call_1.log",
        IN.parent / "prompt_history.jsonl",
        IN.parent / ".cwd",
        PurePosixPath("sessions/session_search.sqlite"),
        PurePosixPath("grok.db"),
        PurePosixPath("logs/a/b/updates.jsonl"),
    ],
)
def test_locks_logs_indexes_and_derived_files_are_not(path):
    assert not ADAPTER.wants(path)
    assert ADAPTER.claims(path, [b"{}"]) is None


def test_the_working_directory_is_read_off_the_folder():
    claim = ADAPTER.claims(IN / "updates.jsonl", [])

    assert (claim.session_id, claim.member, claim.cwd, claim.cwd_file) == (
        PARENT,
        "updates.jsonl",
        "/home/ada/kite",
        None,
    )


def test_a_directory_too_long_for_a_name_is_in_a_file_beside():
    hashed = PurePosixPath("sessions/workspace-1cf04f59b6032ef0") / PARENT

    claim = ADAPTER.claims(hashed / "updates.jsonl", [])
    of_child = ADAPTER.claims(hashed / "subagents" / "c1" / "meta.json", [])

    assert (claim.cwd, claim.cwd_file) == (None, "../.cwd")
    assert (of_child.cwd, of_child.cwd_file) == (None, "../../../.cwd")


def test_a_folder_that_is_no_utf8_names_no_directory():
    assert ADAPTER.claims(PurePosixPath("sessions/%2Fa%FFb/s/updates.jsonl"), []).cwd is None


def test_a_summary_says_that_it_is_of_a_sub_agent():
    head = ["{", ' "info": {"cwd": "/w/\\"x\\""},', ' "session_kind": "subagent_fork",']
    child = ADAPTER.claims(IN / "summary.json", [line.encode() for line in head])
    other = ADAPTER.claims(IN / "summary.json", [b'{"session_kind": "headless"'])

    assert (child.reader, child.role, child.is_sidechain, child.cwd) == (Reader.SNAPSHOT, "sidecar", True, '/w/"x"')
    assert (other.is_sidechain, other.cwd) == (False, "/home/ada/kite")


def test_what_a_parent_notes_of_its_child_is_a_file_of_the_child():
    claim = ADAPTER.claims(IN / "subagents" / "c1" / "meta.json", [b"{", b' "child_cwd": "/tmp/tree",'])

    assert (claim.session_id, claim.member, claim.role, claim.is_sidechain) == ("c1", "meta.json", "sidecar", True)
    assert claim.cwd == "/tmp/tree"
    assert Fact("parent", PARENT) in ADAPTER.parse(Line(0, b"{}"), dict(claim.seed))


def test_a_chat_history_without_an_answer_says_nothing_yet():
    """Grok writes the prompt to it a moment before updates.jsonl exists."""
    with pytest.raises(NeedMore):
        ADAPTER.claims(IN / "chat_history.jsonl", [b'{"type":"user","content":"\\"type\\":\\"assistant\\""}'])
    claim = ADAPTER.claims(IN / "chat_history.jsonl", ANSWERED)

    assert (claim.stands_in_for, claim.timeless) == ("updates.jsonl", True)


def test_a_session_is_resumed_by_its_id():
    session = Session(session_uid=f"grok:{PARENT}", flavor="grok", native_session_id=PARENT)

    assert ADAPTER.resume(session) == ["grok", "--resume", PARENT]


# --- names ------------------------------------------------------------------------------------------


def test_a_counter_that_begins_anew_names_other_lines():
    first, again = events(read(answer("a", 2), answer("a", 2).replace(b"1795000002000", b"1795009002000")))

    assert first.key != again.key


def test_a_copy_keeps_the_name_and_the_time_of_its_original():
    (original,) = events(read(answer("a", 2)))
    copied = read(answer("a", 2, "f" * 36, writer=PARENT), session="f" * 36)
    (copy,) = events(copied)

    assert (copy.key, copy.ts) == (original.key, original.ts)
    assert isinstance(copied[0], Link)  # a fork's file begins when it was copied, not when its first line was said
    assert copied[0].ts == "2026-11-18T13:53:20.999Z"
    assert Fact("parent", PARENT, 2) in copied


def test_a_line_without_a_time_of_its_own_is_told_apart_by_what_it_says():
    lines = [
        json.dumps(
            {"params": {"update": {"sessionUpdate": "plan", "entries": n}, "_meta": {"eventId": "s-1"}}}
        ).encode()
        for n in (1, 2, 1)
    ]
    one, two, again = events(read(*lines, session="s"))

    assert one.key == again.key != two.key


# --- prompts ----------------------------------------------------------------------------------------


def test_parts_of_one_prompt_are_one_event():
    found = read(prompt("look at", 1), prompt("this", 2))

    assert kinds(found) == ["user_msg"]
    (patch,) = (each for each in found if isinstance(each, Patch))
    assert (patch.key, patch.summary, patch.text) == (events(found)[0].key, "look at this", "look at\nthis")


def test_the_same_index_after_anything_else_is_another_prompt():
    assert kinds(read(prompt("a", 1), update("rewind_marker", 2, target_prompt_index=0), prompt("b", 3))) == [
        "user_msg",
        "human_intervention",
        "user_msg",
    ]


def test_words_without_an_index_steer_once_there_was_one():
    steer = update("user_message_chunk", 2, content={"type": "text", "text": "faster"})

    first, second = events(read(prompt("go", 1), steer))
    (alone,) = events(read(steer))

    assert (second.kind, second.is_turn, second.parent_key) == (Kind.HUMAN_INTERVENTION, True, first.key)
    assert (alone.kind, alone.is_turn) == (Kind.USER_MSG, True)


# --- calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "given", "expected"),
    [
        ("write", "write", {"file_path": "a"}, Kind.EDIT),
        ("delete", "delete", {"path": "a"}, Kind.EDIT),
        ("run_terminal_command", "execute", {"command": "cargo test"}, Kind.TEST_RUN),
        ("run_terminal_command", "execute", {"command": "grep pytest x"}, Kind.TOOL_CALL),
        ("run_terminal_command", "execute", {}, Kind.TOOL_CALL),
        ("todo_write", "plan", {"todos": []}, Kind.TOOL_CALL),
        ("ask_user_question", "other", {"question": "which?"}, Kind.DECISION),
        ("read_file", "read", {"target_file": "test_a.py"}, Kind.TOOL_CALL),
    ],
)
def test_what_a_call_is(name, kind, given, expected):
    meta = {"x.ai/tool": {"name": name, "kind": kind}}
    (event,) = events(read(update("tool_call", 1, toolCallId="c", rawInput=given, _meta=meta)))

    assert (event.kind, event.tool) == (expected, name)


@pytest.mark.parametrize(
    ("status", "output", "is_error"),
    [
        ("completed", {"exit_code": 0}, False),
        ("completed", {"exit_code": 3}, True),
        ("completed", {"exit_code": None, "timed_out": True}, True),
        ("completed", {"exit_code": None, "signal": 9}, True),
        ("completed", None, False),
        ("failed", None, True),
    ],
)
def test_completed_only_means_that_the_tool_ran(status, output, is_error):
    line = update("tool_call_update", 2, toolCallId="call_0", status=status, rawOutput=output)
    *_, event = events(read(call(1), line))

    assert (event.kind, event.is_error, event.parent_key) == (Kind.TOOL_RESULT, is_error, "s:call:call_0")


def test_a_call_that_is_still_running_has_no_result():
    lines = [
        update("tool_call_update", n, toolCallId="call_0", status=s) for n, s in ((2, "in_progress"), (3, "pending"))
    ]

    assert kinds(read(call(1), *lines)) == ["tool_call"]


def test_a_result_written_twice_is_one_event_and_an_id_used_twice_is_two():
    again = read(call(1), result(2), result(3))
    reused = read(call(1), result(2), call(3), result(4))

    assert kinds(again) == ["tool_call", "tool_result"]
    assert kinds(reused) == ["tool_call", "tool_result"] * 2


def test_output_as_numbers_is_never_text():
    """Trap 8: a kilobyte of shell output is four of byte numbers."""
    output = {
        "type": "Bash",
        "output": list(b"secret words") * 100,
        "output_for_prompt": "exit: 0\nwords",
        "exit_code": 0,
    }
    content = [{"type": "content", "content": {"type": "text", "text": "words"}}]
    line = update("tool_call_update", 2, toolCallId="c", status="completed", content=content, rawOutput=output)
    (event,) = events(read(line))

    assert (event.text, event.summary) == ("words", "words")
    (bare,) = events(read(line.replace(b'"content": [{"type": "content"', b'"other": [{"type": "content"')))
    assert bare.text == "exit: 0\nwords"


def test_what_was_remembered_of_calls_stays_bounded():
    carry = {"file": "updates.jsonl", "session": PARENT}
    for number in range(2000):
        for line in (call(number, f"call_{number}" * 10), result(number, f"call_{number}" * 10)):
            ADAPTER.parse(Line(0, line), carry)

    assert len(orjson.dumps(carry)) < 20_000


# --- turns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "kind", "is_error"),
    [
        ("end_turn", Kind.COMPLETION, False),
        ("cancelled", Kind.HUMAN_INTERVENTION, False),
        ("error", Kind.ERROR, True),
        ("interrupted", Kind.ERROR, True),
        ("refusal", Kind.ERROR, True),
        ("some_new_reason", Kind.LIFECYCLE, False),
    ],
)
def test_how_a_turn_ends(reason, kind, is_error):
    (event,) = events(read(turn(1, reason=reason)))

    assert (event.kind, event.is_error) == (kind, is_error)


def test_tokens_of_a_turn_are_without_what_was_cached():
    spent = {
        "inputTokens": 100,
        "cachedReadTokens": 60,
        "cacheCreationTokens": 10,
        "outputTokens": 7,
        "reasoningTokens": 3,
    }
    line = update("turn_completed", 1, prompt_id="p", stop_reason="end_turn", usage=spent, elapsed_ms=40)
    (usage,) = (each for each in read(prompt("x", 0), line) if isinstance(each, Usage))

    assert (usage.key, usage.model, usage.duration_ms) == ("g:turn:p", "grok-5", 40)
    numbers = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    assert numbers == (30, 7, 60, 10)


def test_models_that_do_not_add_up_are_not_believed():
    spent = {"inputTokens": 100, "outputTokens": 7, "modelUsage": {"a": {"inputTokens": 1}, "b": {"outputTokens": 2}}}
    line = update("turn_completed", 1, prompt_id="p", stop_reason="end_turn", usage=spent)
    (usage,) = (each for each in read(line) if isinstance(each, Usage))

    assert (usage.model, usage.input_tokens, usage.output_tokens) == (None, 100, 7)


def test_a_turn_without_usage_spent_an_unknown_amount():
    assert [each for each in read(turn(1)) if isinstance(each, Usage)] == []
    (timed,) = (each for each in read(turn(1, elapsed_ms=5)) if isinstance(each, Usage))
    assert (timed.duration_ms, timed.output_tokens) == (5, None)


def test_values_that_nobody_knows_are_accepted():
    found = read(update("never_heard_of", 1, words="but kept"))

    assert kinds(found) == ["lifecycle"]
    assert events(found)[0].text == "but kept"
    assert Unknown("never_heard_of") in found
    assert not [each for each in read(update("goal_updated", 1)) if isinstance(each, Unknown)]


def test_failures_among_the_long_tail_are_marked():
    assert [each.is_error for each in events(read(update("auto_compact_failed", 1)))] == [True]
    assert kinds(read(update("auto_recovery_exhausted", 1))) == ["error"]
    (finished,) = events(read(update("subagent_finished", 1, status="failed", error="no tokens left")))
    assert (finished.kind, finished.role, finished.is_error) == (Kind.LIFECYCLE, Role.AGENT, True)


# --- the files beside -------------------------------------------------------------------------------


def test_a_chat_history_hides_what_the_program_put_around_a_prompt():
    row = {
        "type": "user",
        "content": [{"type": "text", "text": "The user interrupted:\n<user_query>\nstop\n</user_query>"}],
    }
    (event,) = events(read(json.dumps(row).encode(), name="chat_history.jsonl"))

    assert (event.kind, event.text, event.is_turn) == (Kind.USER_MSG, "stop", True)


def test_counts_in_a_summary_are_not_believed():
    found = read(b'{"num_messages": 5, "info": {}, "parent_session_id": "%s"}' % PARENT.encode(), name="summary.json")

    assert found == []  # nor is a session its own parent
