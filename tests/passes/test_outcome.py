"""Outcome, basis and reason: one example for each thing that a session may end on."""

from __future__ import annotations

import pytest

from sessiond.model import Kind, Outcome, Role
from sessiond.passes.outcome import Verdict, verdict
from tests.passes.story import Story


def ends(story: Story) -> tuple[str, str | None, str | None]:
    found = story.verdict()
    return found.outcome.value, found.basis, found.reason


def asked() -> Story:
    story = Story()
    story.prompt("make it work")
    return story


# --- stated, and not yet ------------------------------------------------------------------------------


def test_what_the_agent_states_wins_at_once():
    stated = Verdict(Outcome.FAIL, "stated", "failed: too many retries")
    story = asked()
    story.answer()
    assert verdict(story.digest(), stated=stated, is_quiet=False) is stated
    assert verdict(story.digest(), stated=stated, is_quiet=True) is stated


def test_a_session_that_is_not_quiet_has_no_outcome_yet():
    story = asked()
    story.answer()
    found = verdict(story.digest(), stated=None, is_quiet=False)
    assert (found.outcome, found.basis, found.reason) == (Outcome.UNKNOWN, None, "still going on")


# --- success ------------------------------------------------------------------------------------------


def test_an_answer_at_the_end_is_a_success():
    story = asked()
    story.ran()
    story.answer()
    assert ends(story) == ("success", "terminal", "ended on an answer")


def test_a_completed_turn_is_a_success_even_without_words():
    story = asked()
    story.ran()
    story.completion()
    assert ends(story) == ("success", "terminal", "the turn came to its end")


def test_a_passing_test_after_the_last_edit_is_evidence():
    story = asked()
    story.edited()
    story.tested()
    story.answer()
    assert ends(story) == ("success", "evidence", "ended on an answer; tests passed after the last edit")


def test_a_passing_test_before_the_last_edit_is_none():
    story = asked()
    story.tested()
    story.edited()
    story.answer()
    assert ends(story)[:2] == ("success", "terminal")


def test_an_edit_that_failed_is_no_edit():
    story = asked()
    story.edited()
    story.tested()
    story.edited(fails=True)
    story.answer()
    assert ends(story)[:2] == ("success", "evidence")


def test_a_session_may_end_on_its_passing_test():
    story = asked()
    story.edited()
    story.tested()
    story.add(Kind.THINKING, "all tests pass")
    assert ends(story) == ("success", "evidence", "tests passed after the last edit")


def test_a_look_around_after_the_passing_test_changes_nothing():
    story = asked()
    story.tested()
    story.ran("ruff check")
    assert ends(story)[:2] == ("success", "evidence")


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m 'fix the parser'",
        "git add -A && git commit -am wip",
        "cd app; git -C . -c user.name=x commit",
        # A script's lines, side by side as a summary has them.
        "cd /w git add . git commit -F message",
    ],
)
def test_a_commit_is_evidence(command):
    story = asked()
    story.ran(command)
    story.answer()
    assert ends(story) == ("success", "evidence", "ended on an answer; committed")


@pytest.mark.parametrize(
    "command",
    [
        "git commit --dry-run",
        "git log --grep commit",
        "echo 'do not forget: git commit'",
        "git commit-tree HEAD",
        "digit commit",
        "git show; commit",
    ],
)
def test_what_only_speaks_of_a_commit_is_none(command):
    story = asked()
    story.ran(command)
    story.answer()
    assert ends(story)[:2] == ("success", "terminal")


def test_a_commit_that_failed_or_had_nothing_to_commit_is_none():
    story = asked()
    story.ran("git commit -m x", "hook declined", fails=True)
    story.ran("git commit -m x | cat", "nothing to commit, working tree clean")
    story.answer()
    assert ends(story)[:2] == ("success", "terminal")


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("Bash", "gh pr create --fill"),
        ("shell", "git push && glab mr create -f"),
        ("mcp__forge__create_pull_request", '{"title": "x"}'),
    ],
)
def test_a_pull_request_is_evidence(tool, command):
    story = asked()
    story.ran(command, tool=tool)
    story.answer()
    assert ends(story) == ("success", "evidence", "ended on an answer; a pull request was opened")


def test_a_record_of_a_pull_request_is_evidence():
    story = asked()
    story.lifecycle("pull request https://forge.example/w/pull/7")
    story.answer()
    assert ends(story)[1] == "evidence"


def test_an_error_that_was_overcome_is_forgiven():
    story = asked()
    story.error()
    story.answer()
    assert ends(story)[0] == "success"


def test_what_fails_after_the_turn_has_ended_does_not_undo_it():
    story = asked()
    story.answer()
    story.completion()
    story.error("Stop hook: command not found")
    assert ends(story)[0] == "success"


def test_a_person_running_a_command_of_their_own_is_no_interruption():
    for words in ("! git status", "ran git status"):
        story = asked()
        story.answer()
        story.intervention(words)
        assert ends(story)[0] == "success"


def test_an_agent_that_asks_for_input_is_not_interrupted():
    story = asked()
    story.answer()
    story.intervention("client input requested: anything else?", role=Role.SYSTEM)
    assert ends(story)[0] == "success"


def test_a_call_left_open_long_ago_is_forgotten_after_an_answer():
    story = asked()
    story.call("sleep 60")
    story.prompt("go on")
    story.answer()
    assert ends(story)[0] == "success"


def test_a_plan_or_a_verdict_is_no_call():
    story = asked()
    story.answer()
    story.add(Kind.DECISION, "plan: all done", role=Role.ASSISTANT)
    assert ends(story)[0] == "success"


# --- fail ---------------------------------------------------------------------------------------------


def test_an_error_at_the_end_is_a_failure():
    story = asked()
    story.error("429: rate limit")
    story.lifecycle("turn took 3 s")
    assert ends(story) == ("fail", "terminal", "ended on an error")


def test_the_end_of_a_turn_that_an_error_ended_is_still_a_failure():
    story = asked()
    story.error()
    story.completion()
    assert ends(story)[0] == "fail"


def test_an_error_in_a_new_turn_counts_although_the_one_before_had_ended():
    story = asked()
    story.answer()
    story.completion()
    story.prompt("more")
    story.error()
    assert ends(story)[0] == "fail"
    story = asked()
    story.completion()
    story.lifecycle("turn started")
    story.error()
    assert ends(story)[0] == "fail"


def test_a_failing_test_outlives_the_answer_after_it():
    story = asked()
    story.tested("1 failed, 2 passed", fails=True)
    story.edited()
    story.answer("it should work now")
    story.completion()
    assert ends(story) == ("fail", "terminal", "the last test run failed, and none has passed since")


def test_a_later_pass_makes_up_for_a_failing_test():
    story = asked()
    story.tested("1 failed", fails=True)
    story.edited()
    story.tested()
    story.answer()
    assert ends(story)[:2] == ("success", "evidence")


def test_a_session_that_stops_right_after_a_failing_test_has_failed():
    story = asked()
    story.tested("1 failed", fails=True)
    assert ends(story) == ("fail", "terminal", "ended on a failing test run")


def test_a_test_whose_exit_code_was_lost_is_read():
    story = asked()
    story.tested("=== 1 failed, 20 passed in 3.1s ===", command="pytest 2>&1 | tail -3")
    story.answer()
    assert ends(story)[0] == "fail"


# --- abandoned ----------------------------------------------------------------------------------------


def test_a_prompt_without_an_answer_is_abandoned():
    assert ends(asked()) == ("abandoned", "terminal", "the prompt was never answered")
    story = asked()
    story.answer()
    story.prompt("and now?")
    story.add(Kind.THINKING, "hm")
    assert ends(story) == ("abandoned", "terminal", "the last prompt was not answered")


def test_an_open_call_is_abandoned():
    story = asked()
    story.answer("let me see")
    story.call("sleep 60")
    assert ends(story) == ("abandoned", "terminal", "a call was left open (Bash)")


def test_one_of_two_calls_that_never_came_back_is_abandoned():
    story = asked()
    first, second = story.call("sleep 60"), story.call("pytest", kind=Kind.TEST_RUN)
    story.result(second, "3 passed in 1s")
    assert ends(story)[0] == "abandoned"
    story.result(first)
    assert ends(story)[0] == "success"


def test_a_call_left_open_before_the_last_prompt_is_not_what_the_session_ended_on():
    story = asked()
    story.call("sleep 60")
    story.prompt("never mind, run the tests")
    story.tested()
    assert ends(story)[0] == "success"


def test_an_interruption_is_abandoned():
    story = asked()
    story.answer()
    story.completion()
    story.prompt("now something big")
    story.answer("on it")
    story.intervention()
    assert ends(story) == ("abandoned", "terminal", "interrupted by a person")


def test_a_refused_call_is_abandoned():
    story = asked()
    call = story.call("rm -rf build")
    story.intervention("denied", parent_seq=call, role=Role.TOOL, is_error=True)
    assert ends(story)[0] == "abandoned"


def test_steering_wants_an_answer():
    story = asked()
    story.answer("first")
    story.intervention("no, the other one", is_turn=True)
    assert ends(story) == ("abandoned", "terminal", "the last prompt was not answered")
    story.answer("ah")
    assert ends(story)[0] == "success"


def test_a_result_without_an_answer_is_abandoned():
    story = asked()
    story.ran()
    assert ends(story) == ("abandoned", "terminal", "ended without an answer")


def test_a_call_cut_off_by_a_crash_is_no_failure_of_the_work():
    story = asked()
    story.ran("sleep 9", "error: tool call was interrupted", fails=True)
    story.lifecycle("No response requested.")
    assert ends(story)[0] == "abandoned"


def test_good_tests_of_an_earlier_turn_say_nothing_of_a_turn_that_broke_off():
    story = asked()
    story.tested()
    story.answer()
    story.prompt("now refactor it")
    story.ran("cat app.py")
    assert ends(story)[0] == "abandoned"


def test_nor_do_bad_ones():
    story = asked()
    story.tested("1 failed", fails=True)
    story.answer("that is why")
    story.prompt("thanks; now something else")
    story.ran("cat app.py")
    assert ends(story)[0] == "abandoned"


def test_a_turn_that_was_begun_and_never_ended_is_abandoned():
    story = Story()
    story.lifecycle("turn started")
    story.prompt()
    story.answer("I will look at the tests first")
    assert ends(story) == ("abandoned", "terminal", "the turn never came to its end")
    story.completion()
    assert ends(story)[0] == "success"
    story.lifecycle("turn started")
    assert ends(story)[0] == "abandoned"


def test_a_turn_that_the_client_stopped_is_abandoned():
    story = asked()
    story.answer()
    story.lifecycle("turn ended: budget_limited")
    assert ends(story)[0] == "abandoned"


# --- unknown ------------------------------------------------------------------------------------------


def test_a_session_that_was_never_asked_anything_is_unknown():
    assert ends(Story()) == ("unknown", None, "nothing was ever asked")
    story = Story()
    story.lifecycle("session started")
    story.add(Kind.DECISION, "permission mode: ask -> all", role=Role.USER)
    assert ends(story)[0] == "unknown"


# --- chains -------------------------------------------------------------------------------------------


def test_a_sub_agent_inside_a_session_does_not_decide_its_end():
    story = asked()
    task = story.call("explore", tool="Task")
    story.prompt("explore", is_sidechain=True)
    story.call("grep", is_sidechain=True)  # never comes back
    story.result(task, "explored")
    story.tested("1 failed", fails=True, is_sidechain=True)
    story.answer("all good")
    story.error(is_sidechain=True)
    assert ends(story)[:2] == ("success", "terminal")
    story.tested()
    assert ends(story)[:2] == ("success", "evidence")


def test_a_call_that_a_sub_agent_left_open_is_not_the_sessions():
    story = asked()
    task = story.call("explore", tool="Task")
    story.call("grep", is_sidechain=True)
    story.result(task, "explored")
    story.tested()
    assert ends(story)[0] == "success"


def test_a_session_of_which_only_sub_agents_are_here_was_never_asked_itself():
    story = Story(is_sidechain=True)
    story.prompt("count the files")
    story.answer("seven")
    assert verdict(story.digest(), stated=None, is_quiet=True) == Verdict(
        Outcome.UNKNOWN, None, "only what its sub-agents did is here"
    )


def test_a_session_that_is_all_sub_agent_ends_like_any_other():
    story = Story(is_sidechain=True)
    story.prompt("count the files")
    assert ends(story)[0] == "abandoned"
    story.call("ls")
    assert ends(story) == ("abandoned", "terminal", "a call was left open (Bash)")
    story.result(2)
    story.answer("two")
    assert ends(story)[0] == "success"


def test_the_main_chain_wins_although_the_sub_agent_was_read_first():
    story = Story()
    story.prompt("explore", is_sidechain=True)
    story.tested("1 failed", fails=True, is_sidechain=True)
    story.prompt("hello")
    assert ends(story) == ("abandoned", "terminal", "the prompt was never answered")
    story.answer()
    assert ends(story)[0] == "success"
