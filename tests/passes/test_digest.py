"""The fold: the same however it is cut (P5), bounded whatever comes (P6), masked, and as docs/digest.md says."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from sessiond.model import Kind, Outcome, Role, Step
from sessiond.passes import _digest_state as state
from sessiond.passes._digest_reports import FAILED, NONE, PASSED, RUNNING, read_report
from sessiond.passes._digest_words import call_key, is_shell
from sessiond.passes.digest import EMPTY, VERSION, Digest, finish, fold
from sessiond.passes.outcome import Verdict, verdict
from tests.passes.story import Story, first_line_print

PAGE = Path(__file__).resolve().parents[2] / "docs" / "digest.md"

# --- P5: a digest is a fold ---------------------------------------------------------------------------

TIMES = st.one_of(
    st.none(),
    st.integers(0, 40).map(lambda minute: f"2026-03-04T05:{minute:02d}:00.000Z"),
    st.sampled_from(["2026-03-04T05:06:07", "0001-01-01T00:00:00+14:00", "yesterday", "", "9999-12-31T23:59:59Z"]),
)
WORDS = st.one_of(
    st.sampled_from(
        [
            *("pytest -q", "git commit -m x", "turn started", "turn ended: budget", "pull request #1", "still running"),
            *("1 failed, 2 passed", "3 passed in 1s", "FAIL", "! ls", "ran ls", "boom 7", "nothing to commit", ""),
        ]
    ),
    st.text(max_size=20),
)


@st.composite
def sessions(draw) -> list[Step]:
    seqs = sorted(draw(st.sets(st.integers(1, 60), max_size=40)))
    # Parents before and behind, themselves, and none that exists: whatever a store may hold.
    parents = st.one_of(st.none(), st.sampled_from(seqs or [1]), st.integers(-2, 70))
    is_mixed = draw(st.booleans())
    return [
        Step(
            seq=seq,
            kind=draw(st.sampled_from(Kind)),
            ts=draw(TIMES),
            role=draw(st.one_of(st.none(), st.sampled_from(Role))),
            tool=draw(st.sampled_from([None, "Bash", "Edit", "write_stdin", "Ωtool"])),
            summary=draw(WORDS),
            detail=draw(st.one_of(st.none(), WORDS)),
            parent_seq=draw(parents),
            is_sidechain=draw(st.booleans()) if is_mixed else False,
            is_error=draw(st.booleans()),
            is_turn=draw(st.booleans()),
            files=tuple(draw(st.lists(st.sampled_from(["/a", "/b", "/ü"]), max_size=2))),
        )
        for seq in seqs
    ]


def folded(digest: Digest, steps: list[Step]) -> Digest:
    return fold(digest, steps, fingerprint=first_line_print)


def through_json(digest: Digest) -> Digest:
    return Digest.from_dict(orjson.loads(orjson.dumps(digest.to_dict(), option=orjson.OPT_SORT_KEYS)))


def ended(digest: Digest) -> Digest:
    return finish(digest, title="t", models=["m"], outcome=verdict(digest, stated=None, is_quiet=True))


@settings(max_examples=400, deadline=None)
@given(sessions(), st.data())
def test_any_cut_gives_the_same_digest(steps, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(steps)), max_size=5)))
    at_once = folded(EMPTY, steps)

    digest = EMPTY
    for begin, end in zip([0, *cuts], [*cuts, len(steps)], strict=True):
        digest = through_json(folded(digest, steps[begin:end]))
    assert digest.to_dict() == at_once.to_dict()


@settings(max_examples=200, deadline=None)
@given(sessions(), st.data())
def test_finishing_in_between_changes_nothing_later(steps, data):
    cut = data.draw(st.integers(0, len(steps)))
    half = ended(folded(EMPTY, steps[:cut]))
    assert ended(half) == half
    assert ended(folded(through_json(half), steps[cut:])) == ended(folded(EMPTY, steps))


@settings(max_examples=100, deadline=None)
@given(sessions(), st.data())
def test_events_that_are_covered_are_passed_over(steps, data):
    cut = data.draw(st.integers(0, len(steps)))
    half = folded(EMPTY, steps[:cut])
    before = half.to_dict()
    assert folded(half, steps) == folded(EMPTY, steps)
    assert half.to_dict() == before
    assert Digest() == EMPTY


def test_a_long_session_cut_at_every_event_with_all_lists_full():
    story = crowded_story()
    digest = EMPTY
    for step in story.steps:
        digest = folded(digest, [step])
    assert through_json(digest) == story.digest()


def crowded_story() -> Story:
    """More of everything than the lists hold, with results in and out of order."""
    story = Story()
    for number in range(300):
        story.prompt(f"prompt {number}")
        story.edited(f"/w/{number}.py", fails=number % 7 == 0)
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        story.ran(f"command {number % 130}", f"error {word}", fails=number % 3 == 0)
        story.call(f"open {number}", tool=f"tool{number % 120}")
        story.result(len(story.steps) + 3, "early", is_error=number % 2 == 0)
        story.add(Kind.DECISION, f"plan {number}")
        story.tested("1 failed" if number % 2 else "1 passed")
        story.intervention("denied", parent_seq=number)
        story.result(10_000 + number, "for a call that never comes")
    for _ in range(10):
        for _ in range(10):
            story.ran("make", "boom", fails=True)
        story.ran("ls")
    return story


# --- P6: bounded --------------------------------------------------------------------------------------


def test_lists_keep_the_first_and_count_the_rest():
    digest = crowded_story().digest()
    assert len(digest.tools) == state.TOOLS
    assert (len(digest.files), digest.files_more > 0) == (state.FILES, True)
    assert (len(digest.commands), digest.commands_more > 0) == (state.COMMANDS, True)
    assert (len(digest.error_snippets), digest.errors_more > 0) == (state.ERRORS, True)
    assert (len(digest.decisions), digest.decisions_more) == (state.DECISIONS, 300 - state.DECISIONS)
    assert len(digest.human_interventions["items"]) == state.INTERVENTIONS
    assert digest.human_interventions["count"] == 300
    assert len(digest.fold.storms) == 5
    assert len(digest.open_calls) == len(digest.fold.calls) == state.OPEN_CALLS - 1  # the last one came back
    assert digest.open_calls_more > 0
    assert digest.open_calls[-1]["summary"] == "open 299"
    assert sum(tool["calls"] for tool in digest.tools.values()) + digest.tools_more == 300 * 4 + 110
    memory = digest.fold
    assert len(memory.recent) <= state.ACTIONS
    assert len(memory.unfollowed) <= state.ERRORS
    assert len(memory.unrecovered) <= state.ERRORS
    assert all(len(each["seqs"]) <= state.EVIDENCE for each in memory.errors)
    assert 0 < len(memory.early) <= 64
    assert sum(command["count"] for command in digest.commands) + digest.commands_more == 600 + 110


def test_one_monstrous_event_is_cut():
    megabyte = "word " * 200_000
    story = Story()
    for kind in Kind:
        story.add(
            kind,
            megabyte,
            detail=megabyte,
            tool=megabyte,
            is_error=True,
            is_turn=True,
            files=tuple(f"/{megabyte[:3000]}/{number}" for number in range(3_000)),
        )
    for number in range(30):
        paths = tuple(f"/{number}/{megabyte[:500]}/{each}" for each in range(5))
        story.call("open", tool="Edit", kind=Kind.EDIT, files=paths)
    files = story.call("edit", tool="Edit", kind=Kind.EDIT, files=tuple(f"/w/{number}" for number in range(10_000)))
    story.result(files)
    digest = story.finished()
    assert len(digest.files) == state.FILES
    assert digest.files_more >= 10_000 - state.FILES
    assert len(orjson.dumps(digest.to_dict())) < 400_000
    assert sum(len(path) for call in digest.fold.calls for path in call["files"]) <= 1_000 * len(digest.fold.calls)
    for text in strings(digest.to_dict()):
        assert len(text) <= state.SAID_CHARS


def test_an_error_that_never_ends_is_remembered_once():
    story = Story()
    for _ in range(200):
        story.ran("make", "boom", fails=True)
    memory = story.digest().fold
    assert (len(memory.unfollowed), len(memory.unrecovered), len(memory.run_seqs)) == (1, 1, state.EVIDENCE)


def test_a_digest_stops_growing():
    story = crowded_story()
    size = len(orjson.dumps(story.digest().to_dict()))
    longer = crowded_story()
    seqs = len(longer.steps)
    longer.steps += [dataclasses.replace(step, seq=step.seq + seqs) for step in crowded_story().steps]
    assert len(orjson.dumps(longer.digest().to_dict())) < size * 1.02 + 500


def strings(value) -> typing.Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


# --- masked -------------------------------------------------------------------------------------------


def test_all_that_is_kept_is_masked_and_errors_are_known_by_their_masked_text():
    story = Story()
    for kind in Kind:
        given_to = {"tool": "hunter2", "is_error": True, "is_turn": True, "files": ("/w/hunter2",)}
        story.add(kind, "say hunter2", detail="hunter2 boom", **given_to)
        story.add(kind, "say hunter2", tool="hunter2")
    seen: list[str] = []

    def spying_print(text, tool):
        seen.append(text)
        return first_line_print(text, tool)

    digest = fold(
        EMPTY, story.steps, fingerprint=spying_print, mask=lambda text: text.replace("hunter2", "[masked:password]")
    )
    assert "hunter2" not in orjson.dumps(digest.to_dict()).decode()
    assert "[masked:password] boom" in orjson.dumps(digest.to_dict()).decode()
    assert seen
    assert not any("hunter2" in text for text in seen)


def test_a_secret_at_the_cut_is_masked_before_it_is_cut():
    story = Story()
    story.prompt("x" * (state.SAID_CHARS - 4) + "hunter2")
    digest = story.digest(mask=lambda text: text.replace("hunter2", "[masked:password]"))
    assert digest.first_prompt is not None
    assert "hunt" not in digest.first_prompt


def test_a_lone_surrogate_still_makes_json():
    story = Story()
    story.prompt("so \ud800 what")
    story.ran("echo \udfff", "\ud800", fails=True, tool="\ud800")
    assert orjson.loads(orjson.dumps(story.finished().to_dict()))["first_prompt"] == "so ? what"


# --- what was done ------------------------------------------------------------------------------------


def test_kinds_tools_and_turns():
    story = Story()
    story.prompt("one")
    story.ran("ls")
    story.ran("cat x", "no such file", fails=True)
    story.ran("/w/x", tool="Read")
    story.intervention("not that one", is_turn=True)
    story.add(Kind.RETRY, "attempt 2")
    digest = story.digest()
    assert digest.kinds == {"user_msg": 1, "tool_call": 3, "tool_result": 3, "human_intervention": 1, "retry": 1}
    assert digest.tools == {"Bash": {"calls": 2, "errors": 1}, "Read": {"calls": 1, "errors": 0}}
    assert (digest.turns, digest.retries, digest.through_seq) == (2, 1, 9)
    assert digest.human_interventions == {"count": 1, "items": [{"seq": 8, "summary": "not that one"}]}


def test_times():
    story = Story()
    story.prompt(after_s=0)
    story.answer(after_s=60)
    story.prompt(after_s=3600)
    story.answer(after_s=30.5)
    digest = story.digest()
    assert (digest.started_at, digest.ended_at) == (story.steps[0].ts, story.steps[-1].ts)
    assert digest.duration_s == 3690.5
    assert digest.active_s == 60 + 300 + 30.5


def test_times_that_are_missing_or_go_back():
    story = Story()
    story.prompt(ts=None)
    story.answer(ts="2026-03-04T10:00:00.000Z")
    story.answer(ts="2026-03-04T09:00:00.000Z")
    story.answer(ts="not a time")
    story.answer(ts="2026-03-04T10:00:10.000Z")
    digest = story.digest()
    assert (digest.started_at, digest.ended_at) == ("2026-03-04T09:00:00.000Z", "2026-03-04T10:00:10.000Z")
    assert (digest.duration_s, digest.active_s) == (3610.0, 10.0)
    assert Story().digest().duration_s is None


def test_commands_are_those_of_shells():
    story = Story()
    story.ran("make", "error", fails=True)
    story.ran("make")
    story.ran("/w/x", tool="Read")
    story.tested(tool="run_shell_command")
    story.tested(tool="tdd")
    assert story.digest().commands == [
        {"command": "make", "count": 2, "failed": 1, "seq": 1},
        {"command": "pytest -q", "count": 1, "failed": 0, "seq": 7},
    ]


def test_an_edit_that_failed_or_was_denied_is_taken_back():
    story = Story()
    story.edited("/w/a.py")
    story.edited("/w/a.py", fails=True)
    story.edited("/w/b.py", fails=True)
    denied = story.call("/w/c.py", tool="Edit", kind=Kind.EDIT, files=("/w/c.py",))
    story.intervention("denied", parent_seq=denied)
    story.call("/w/open.py", tool="Edit", kind=Kind.EDIT, files=("/w/open.py",))
    assert story.digest().files == [{"path": "/w/a.py", "edits": 1}, {"path": "/w/open.py", "edits": 1}]


def test_an_edit_beyond_the_list_is_taken_back_as_well():
    story = Story()
    for number in range(state.FILES):
        story.edited(f"/w/{number}")
    story.edited("/w/more")
    story.edited("/w/most", fails=True)
    assert story.digest().files_more == 1


def test_decisions_interventions_and_open_calls():
    story = Story()
    story.add(Kind.DECISION, "plan: begin")
    asked = story.call("which one?", tool="AskUser", kind=Kind.DECISION)
    denied, left_open = story.call("rm -rf x"), story.call("sleep 9")
    story.intervention("no", parent_seq=denied)
    digest = story.digest()
    assert digest.decisions == [{"seq": 1, "summary": "plan: begin"}, {"seq": 2, "summary": "which one?"}]
    assert [call["seq"] for call in digest.open_calls] == [asked, left_open]
    assert digest.open_calls[1] == {"seq": left_open, "kind": "tool_call", "tool": "Bash", "summary": "sleep 9"}
    assert digest.tools["Bash"] == {"calls": 2, "errors": 0}


def test_a_command_of_the_persons_own_closes_no_call():
    story = Story()
    call = story.call("sleep 9")
    story.intervention("! ls", parent_seq=call)
    story.intervention("input requested", parent_seq=call, role=Role.SYSTEM)
    assert [each["seq"] for each in story.digest().open_calls] == [call]


def test_what_was_asked_and_answered():
    story = Story()
    story.add(Kind.USER_MSG, "injected", role=Role.AGENT)
    story.prompt("first", detail="first, and in full")
    story.answer("on it")
    story.prompt("sub-agent's task", is_sidechain=True)
    story.answer("sub-agent's answer", is_sidechain=True)
    story.intervention("faster", is_turn=True)
    story.answer("y" * 2000)
    story.answer("   ")
    digest = story.digest()
    assert (digest.first_prompt, digest.last_prompt) == ("first, and in full", "faster")
    assert digest.last_answer == "y" * (state.SAID_CHARS - 1) + "…"


def test_a_sub_agents_own_session_speaks_for_itself_until_the_main_chain_comes():
    story = Story(is_sidechain=True)
    story.prompt("count")
    story.answer("two")
    digest = story.digest()
    assert (digest.first_prompt, digest.last_prompt, digest.last_answer) == ("count", "count", "two")
    story.lifecycle("started", is_sidechain=False)
    digest = story.digest()
    assert (digest.first_prompt, digest.last_prompt, digest.last_answer) == (None, None, None)
    assert digest.kinds == {"user_msg": 1, "assistant_msg": 1, "lifecycle": 1}


# --- tests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("===== 3 failed, 10 passed in 1.20s =====", FAILED),
        ("10 passed, 2 xfailed in 1.20s", PASSED),
        ("10 passed, 0 failed", PASSED),
        ("FAILED tests/test_a.py::test_b - assert 1 == 2", FAILED),
        ("= 1 error in 0.12s =", FAILED),
        ("Tests:       1 failed, 3 passed, 4 total", FAILED),
        ("Tests:       4 passed, 4 total", PASSED),
        (" FAIL  src/app.test.ts > adds", FAILED),
        ("--- FAIL: TestTotal (0.00s)\nFAIL\nFAIL\tshop\t0.01s", FAILED),
        ("ok  \tshop\t0.01s", PASSED),
        ("test result: FAILED. 1 passed; 1 failed; 0 ignored", FAILED),
        ("test result: ok. 2 passed; 0 failed; 0 ignored", PASSED),
        ("Ran 3 tests in 0.001s\n\nFAILED (failures=1)", FAILED),
        ("Ran 3 tests in 0.001s\n\nOK", PASSED),
        ("Tests run: 5, Failures: 1, Errors: 0", FAILED),
        ("Tests run: 5, Failures: 0, Errors: 0", PASSED),
        ("3 examples, 1 failure", FAILED),
        ("12 passing (1s)\n  2 failing", FAILED),
        ("# pass 4\n# fail 1", FAILED),
        ("67% tests passed, 1 tests failed out of 3", FAILED),
        ("make: *** [Makefile:3: test] Error 1", FAILED),
        ("\x1b[31m1 failed\x1b[0m", FAILED),
        ("[exit code: 1]", FAILED),
        ("Process exited with code 2", FAILED),
        ("Exit code 0", PASSED),
        ("the client exits with exit code 3 when told to", PASSED),
        ("test_that_failed_logins_are_counted ok", PASSED),
        ("all good", PASSED),
        ("", PASSED),
        ("still running", RUNNING),
        ("Command running in background with ID: b1", RUNNING),
        ("no tests ran in 0.01s", NONE),
        ("ok a/b 0.01s [no tests to run]\nok a/c 0.5s", PASSED),
    ],
)
def test_what_a_report_says(text, says):
    assert read_report(text) == says


def test_no_report_takes_long_to_read():
    for piece in ("1", " ", "1 ", "ok ", "exit ", "FAIL", "\x1b[", "Errors: ", "\n", "ok\t", "1 tests "):
        read_report(piece * 500_000)


def test_tests_are_counted_by_their_results():
    story = Story()
    story.tested()
    story.tested("1 failed", fails=True)
    story.tested("2 failed, 1 passed", command="pytest | tail")
    story.call("pytest", kind=Kind.TEST_RUN)
    assert story.digest().tests == {"runs": 4, "passed": 1, "failed": 2, "last": "failed", "last_seq": 5}


def test_a_denied_or_empty_test_run_neither_passed_nor_failed():
    story = Story()
    call = story.call("pytest", kind=Kind.TEST_RUN)
    story.intervention("denied", parent_seq=call)
    story.tested("no tests ran in 0.01s")
    assert story.digest().tests == {"runs": 2, "passed": 0, "failed": 0, "last": None, "last_seq": None}


@pytest.mark.parametrize(("report", "last"), [("2 passed in 9s", "passed"), ("1 failed in 9s", "failed")])
def test_a_test_left_running_is_told_by_the_call_that_looks_after_it(report, last):
    story = Story()
    run = story.tested("still running", tool="exec_command")
    story.ran("write_stdin 7", "collecting", tool="write_stdin")
    assert story.digest().tests["last"] is None
    poll = story.call("write_stdin 7", tool="write_stdin")
    story.result(poll, ".....", detail=report)
    digest = story.digest()
    assert (digest.tests["last"], digest.tests["last_seq"]) == (last, run)
    assert digest.tools["write_stdin"]["errors"] == 0


def test_work_that_is_logged_when_finished_has_no_results():
    """The events of one line: all at one time, all children of its call, and its end settles them."""
    story = Story()
    first = story.call("tdd/green", tool="tdd")
    at = {"parent_seq": first, "ts": story.steps[0].ts}
    story.call("FAIL (not verified)", tool="tdd", kind=Kind.TEST_RUN, is_error=True, **at)
    story.call("ok (verified)", tool="tdd", kind=Kind.TEST_RUN, detail="1 failed, as it should", **at)
    story.call("cart.py", tool="tdd", kind=Kind.EDIT, files=("cart.py",), **at)
    story.completion(**at)
    second = story.call("debug", tool="debug")
    story.error("debug: no hypothesis", parent_seq=second, ts=story.steps[-1].ts)
    digest = story.digest()
    assert digest.open_calls == []
    assert digest.tests == {"runs": 2, "passed": 1, "failed": 1, "last": "passed", "last_seq": 3}
    assert digest.tools == {"tdd": {"calls": 4, "errors": 1}, "debug": {"calls": 1, "errors": 1}}
    assert digest.files == [{"path": "cart.py", "edits": 1}]
    assert [each["tool"] for each in digest.error_snippets] == ["tdd", "debug"]


def test_finished_work_that_failed_may_have_done_some_of_it():
    story = Story()
    story.call("tdd/green", tool="tdd")
    at = {"parent_seq": 1, "ts": story.steps[0].ts}
    story.call("cart.py", tool="tdd", kind=Kind.EDIT, files=("cart.py",), **at)
    story.error("tdd/green: gave up", **at)
    digest = story.digest()
    assert digest.files == [{"path": "cart.py", "edits": 1}]
    assert digest.tools["tdd"] == {"calls": 2, "errors": 1}


def test_an_error_at_another_time_is_not_the_end_of_a_call():
    story = Story()
    call = story.call("make")
    story.error("hook failed", parent_seq=call)
    assert [each["seq"] for each in story.digest().open_calls] == [call]


def test_where_results_are_written_an_error_beside_a_call_does_not_end_it():
    story = Story()
    story.ran("ls")
    call = story.call("make")
    story.error("hook failed", parent_seq=call, ts=story.steps[-1].ts)
    assert [each["seq"] for each in story.digest().open_calls] == [call]


# --- results out of order -----------------------------------------------------------------------------


def test_a_result_may_be_stored_before_its_call():
    story = Story()
    story.result(2, "boom", is_error=True)
    story.call("make")
    story.result(4, "3 passed in 1s")
    story.call("pytest", kind=Kind.TEST_RUN)
    story.intervention("no", parent_seq=6)
    story.call("/w/a", tool="Edit", kind=Kind.EDIT, files=("/w/a",))
    digest = story.digest()
    assert digest.open_calls == []
    assert digest.tools["Bash"] == {"calls": 2, "errors": 1}
    assert digest.commands[0]["failed"] == 1
    assert digest.tests["last"] == "passed"
    assert digest.files == []


def test_an_error_stored_before_its_call_goes_away_like_any_other():
    story = Story()
    story.result(2, "boom", is_error=True)
    story.call("make")
    again = story.ran("make")
    assert story.digest().error_snippets[0]["recovered_by"] == {"seq": again, "actions": []}


def test_a_result_without_a_call_counts_by_itself():
    story = Story()
    story.ran("ls")
    story.result(None, "boom", is_error=True, tool="Bash")
    story.result(1, "boom", is_error=True)
    digest = story.digest()
    assert digest.error_snippets[0]["count"] == 2
    assert digest.tools["Bash"] == {"calls": 1, "errors": 1}


# --- errors -------------------------------------------------------------------------------------------


def test_errors_are_gathered_by_fingerprint():
    story = Story()
    story.ran("make", "app.c:7: error: expected ;", fails=True)
    story.ran("make -j", "app.c:9: error: expected ;", fails=True)
    story.error("API error 529")
    story.add(Kind.RETRY, "stream error", is_error=True)
    story.lifecycle("job failed", is_error=True)
    first, *others = story.digest().error_snippets
    assert first == {
        "fingerprint": first_line_print("app.c:1: error: expected ;", None).id,
        "sample": "app.c:7: error: expected ;",
        "count": 2,
        "tool": "Bash",
        "first_seq": 2,
        "last_seq": 4,
        "first_at": story.steps[1].ts,
        "last_at": story.steps[3].ts,
        "followed_by": None,
        "recovered_by": None,
    }
    assert [each["sample"] for each in others] == ["API error 529", "stream error", "job failed"]


def test_what_a_person_denied_is_no_error():
    story = Story()
    call = story.call("rm x")
    story.intervention("denied", parent_seq=call, is_error=True, detail="denied")
    assert story.digest().error_snippets == []


def test_followed_by_is_the_next_action_that_went_well():
    story = Story()
    at_once = story.call("cat y")  # begun before the error: no answer to it
    story.ran("make", "boom", fails=True)
    story.result(at_once)
    story.ran("make clean", "no rule", fails=True)
    after = story.ran("/w/Makefile", tool="Read")
    story.ran("ls")
    followed = {each["sample"]: each["followed_by"] for each in story.digest().error_snippets}
    expected = {"seq": after, "kind": "tool_call", "tool": "Read", "summary": "/w/Makefile"}
    assert followed == {"boom": expected, "no rule": expected}


def test_recovered_by_is_the_same_command_going_well_and_what_was_done_until_then():
    story = Story()
    story.ran("cat before")
    story.ran("cd app && make 2>&1 | tail -20", "boom", fails=True)
    story.ran("/w/a.c", tool="Read")
    edited = story.edited("/w/a.c")
    story.edited("/w/a.c", fails=True)
    story.ran("make clean")
    again = story.ran("make")
    story.ran("later")
    recovered = story.digest().error_snippets[0]["recovered_by"]
    assert recovered["seq"] == again
    assert [each["summary"] for each in recovered["actions"]] == ["/w/a.c", "make clean"]
    assert recovered["actions"][0] == {"seq": edited, "kind": "edit", "tool": "Edit", "summary": "/w/a.c"}


def test_a_success_that_had_begun_before_the_error_is_no_recovery():
    story = Story()
    slow, quick = story.call("make"), story.call("make")
    story.result(quick, "boom", is_error=True)
    story.result(slow)
    assert story.digest().error_snippets[0]["recovered_by"] is None


def test_of_what_was_done_the_last_few_are_kept():
    story = Story()
    story.ran("make", "boom", fails=True)
    for number in range(20):
        story.ran(f"try {number}")
    story.ran("make")
    recovered = story.digest().error_snippets[0]["recovered_by"]
    assert [each["summary"] for each in recovered["actions"]] == [f"try {number}" for number in range(15, 20)]


def test_a_failing_test_is_recovered_by_any_test_run_that_passes():
    story = Story()
    story.tested("E   assert 1 == 2", fails=True)
    story.ran("make", "boom", fails=True)
    story.tested(command="pytest tests/test_one.py")
    recovered = {each["sample"]: each["recovered_by"] is not None for each in story.digest().error_snippets}
    assert recovered == {"E assert 1 == 2": True, "boom": False}


def test_an_error_that_comes_back_was_not_recovered():
    story = Story()
    story.ran("make", "boom", fails=True)
    story.ran("make")
    story.ran("make", "boom", fails=True)
    [error] = story.digest().error_snippets
    assert (error["followed_by"], error["recovered_by"]) == (None, None)


def test_an_error_outside_a_call_has_nothing_to_recover_by():
    story = Story()
    story.ran("make", "boom", fails=True)
    story.error("boom")
    story.ran("make")
    [error] = story.digest().error_snippets
    assert error["followed_by"]["summary"] == "make"
    assert error["recovered_by"] is None


def test_an_error_that_says_nothing_makes_no_snippet():
    story = Story()
    story.ran("make", "", fails=True)
    digest = story.digest()
    assert (digest.error_snippets, digest.tools["Bash"]["errors"]) == ([], 1)


def test_commands_are_the_same_wherever_they_run_and_however_much_is_shown():
    assert call_key("Bash", "cd /w && make") == call_key("Bash", "make 2>&1 | tail -n 20") == call_key("Bash", "make")
    assert call_key("Bash", "make") != call_key("Bash", "make test")
    assert call_key("Bash", "make") != call_key("shell", "make")
    assert call_key("Read", "cd /w && x") != call_key("Read", "x")
    assert is_shell("run_terminal_command")
    assert not is_shell("KillShell")
    assert not is_shell(None)


# --- the contract -------------------------------------------------------------------------------------


def sample_story() -> Story:
    """The session of the example in docs/digest.md."""
    story = Story()
    story.prompt("Make the totals right, please")
    story.answer("I will run the tests first.")
    story.tested("E   assert total([1, 2]) == 3\n1 failed in 0.02s", fails=True)
    story.edited("/home/sam/shop/cart.py")
    story.tested("4 passed in 0.02s")
    story.add(Kind.DECISION, "plan: commit it", role=Role.ASSISTANT)
    story.ran("git commit -am 'cart: count the last item'", "[main 1a2b3c4] cart: count the last item")
    story.intervention("and push, please", is_turn=True)
    story.call("git push")
    return story


def test_the_page_shows_this_very_digest():
    [example] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown = sample_story().finished().to_dict()
    del shown["fold"]
    assert json.loads(example) == shown


def test_the_page_names_every_field():
    text = PAGE.read_text()
    names = {each.name for each in dataclasses.fields(Digest)}
    kinds = (
        "ToolUse",
        "FileEdits",
        "Command",
        "Tests",
        "Action",
        "Recovery",
        "Snippet",
        "Note",
        "Interventions",
        "Signal",
    )
    for kind in kinds:
        names |= set(getattr(state, kind).__annotations__)
    missing = {name for name in names if f"`{name}`" not in text}
    assert not missing
    for word in ("retry_storm", "repeated_error", "abandoned", "clean_pass", "recovery", f"version {VERSION}"):
        assert word in text, word


def test_the_page_tells_the_limits():
    text = PAGE.read_text()
    for limit in (state.TOOLS, state.FILES, state.COMMANDS, state.ERRORS, state.DECISIONS, state.OPEN_CALLS):
        assert re.search(rf"\b{limit}\b", text), limit


def test_finish_puts_in_what_is_not_folded():
    digest = finish(
        sample_story().digest(),
        title="Totals",
        models=[f"model-{number}" for number in range(30)],
        outcome=Verdict(Outcome.FAIL, "stated", "gave up"),
        partial="older events had left before they could be folded again",
    )
    assert (digest.title, digest.outcome, digest.outcome_basis) == ("Totals", "fail", "stated")
    assert (digest.outcome_reason, len(digest.models)) == ("gave up", 20)
    assert digest.partial == "older events had left before they could be folded again"


def test_unknown_names_are_left_out_and_later_versions_refused():
    written = sample_story().finished().to_dict()
    assert Digest.from_dict({**written, "new": 1, "fold": {**written["fold"], "new": 2}}).to_dict() == written
    assert Digest.from_dict({}) == EMPTY
    for version in (VERSION + 1, 0, "1", None):
        with pytest.raises(ValueError, match="version"):
            Digest.from_dict({**written, "version": version})
