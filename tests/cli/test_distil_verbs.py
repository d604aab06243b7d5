"""The screens of distilling and letting go: they fit, they say what holds, and nothing on them is untrue."""

from __future__ import annotations

import re

import pytest

from sessiond.cli.group import VERBS, examples

from .conftest import SECRET, SHOP
from .test_daemon_verbs import FRESH, status

OLD = "2026-01-01T00:00:00.000Z"
LOSS = {
    "id": 1, "at": OLD, "session_uid": "claude:lost-1", "first_seq": 3, "last_seq": 1204, "bytes": 3 * 2**20,
    "reason": "hard_cap was reached before it was distilled",
}  # fmt: skip
OVER = {
    "dry_run": False, "used_before": 3 * 2**20, "used_after": 3 * 2**20, "free_after": 2**30, "rounds": [],
    "evicted": [], "lost": [],
    "unreachable": {"bytes": 2**20, "held_by": [{"what": "young", "sessions": 2, "bytes": 2**19}]},
}  # fmt: skip
PLANNED = {"session_uid": f"claude:{SHOP}", "last_activity": OLD, "rule": "budget", "what": "session", "bytes": 2048}
PLAN = {"dry_run": True, "used": 2**20, "slack": 0, "need": 1024, "bytes": 2048, "plan": [PLANNED]}


def doing(report: dict) -> dict:
    """The answers of a daemon that has done what it was asked for, with this report."""
    return {"work": {"ticket": 1}, "worked": {"done": True, "report": report}}


def bare(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


# --- status -------------------------------------------------------------------------------------


def test_a_pass_that_did_something_says_what(sessiond, daemon):
    told = {
        "analyze": {"last_at": OLD, "last_result": "nothing to do", "next_at": None},
        "evict": {"last_at": OLD, "last_result": "42 sessions, 1.5 GiB freed", "next_at": None},
    }
    with daemon(status=status(passes=told)):
        line = next(each for each in sessiond("status").out.splitlines() if "passes" in each)

    assert line.endswith(": 42 sessions, 1.5 GiB freed")
    assert "nothing to do" not in line


def test_a_pass_that_could_not_do_enough_says_how_much_is_over(sessiond, daemon):
    told = {"evict": {"last_at": OLD, "last_result": "nothing to do; 972.8 KiB over", "next_at": None}}
    with daemon(status=status(passes=told)):
        assert ": 972.8 KiB over\n" in sessiond("status").out


def test_a_pass_at_work_is_told(sessiond, daemon):
    told = {"analyze": {"last_at": OLD, "last_result": "x", "next_at": None, "running_since": OLD}}
    with daemon(status=status(passes=told)):
        assert "analyze at work for " in sessiond("status").out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"paused_by": "user", "paused_until": "2031-02-03T04:05:06.000Z"}, "is paused by you until 2031-02-03 04:05"),
        ({"paused_by": "user", "paused_until": "forever"}, "is paused by you: sessiond unpause"),
        ({"paused_by": "hard_cap", "paused_until": None}, "is paused (hard cap reached)"),
        ({"paused_by": "a reason of tomorrow"}, "is paused (a reason of tomorrow)"),
    ],
)
def test_a_pause_says_whose_it_is_and_until_when(sessiond, daemon, changes, words):
    with daemon(status=status(state="paused", **changes)):
        assert words in sessiond("status").out.splitlines()[0]


def test_what_was_lost_is_listed_until_it_is_acknowledged(sessiond, daemon):
    trouble = {"name": "data_loss", "since": OLD, "detail": "1 session", "fix": "sessiond status --acknowledge"}
    with daemon(status=status(degraded=[trouble], data_loss=[LOSS])):
        told = sessiond("status").out
    with daemon(status=status(counters={"data_loss": 1})):
        acknowledged = sessiond("status").out

    assert "claude:lost-1\n      events 3 to 1,204, 3 MiB, 2026-01-01 00:00: hard_cap was reached" in told
    assert "LOST" not in acknowledged


def test_acknowledging_says_how_many(sessiond, daemon):
    with daemon(status=status(), **doing({"acknowledged": 2})):
        said = sessiond("status", "--acknowledge")

    assert (said.code, said.err) == (0, "2 data-loss reports acknowledged\n")


def test_acknowledging_is_done_and_told_without_a_daemon(sessiond, journal):
    said = sessiond("status", "--acknowledge")

    assert said.code == 69
    assert said.err.splitlines()[0] == "0 data-loss reports acknowledged"


def test_the_page_of_many_agents_fits_and_keeps_its_numbers(screen, daemon):
    agents = [
        {"flavor": name, "homes": [f"/h/.{name}", f"/h/.config/{name}/sessions"], "found": True, "files": 1234,
         "bytes": 10**9, "sessions": 1204, "sessions_today": 112}
        for name in ("claude", "codex", "gemini")
    ]  # fmt: skip
    with daemon(status=status(agents=agents)):
        lines = bare(screen("status", width=80))

    assert all(len(line) <= 80 for line in lines)
    assert sum("112 sessions today" in line for line in lines) == 3


# --- evict --------------------------------------------------------------------------------------


def test_evict_over_the_caps_does_not_say_that_all_is_well(sessiond, daemon):
    with daemon(**doing(OVER)):
        said = sessiond("evict")
        told = sessiond("evict", "--json").json

    assert said.out == "nothing was evicted\n"
    assert "still 1 MiB too much" in said.err
    assert "512 KiB in sessions active within min_age" in said.err
    assert told["complete"] is False


def test_a_dry_run_that_reaches_too_little_says_so(sessiond, daemon):
    with daemon(**doing({**PLAN, "plan": [], "bytes": 0})):
        said = sessiond("evict", "--dry-run")
        told = sessiond("evict", "--dry-run", "--json").json

    assert said.out == "nothing would go, though the store takes 1 MiB and 1 KiB must go\n"
    assert "this is not enough" in said.err
    assert told["complete"] is False


def test_a_plan_names_sessions_as_people_know_them_and_fits(screen, sessiond, journal, daemon):
    with daemon(freshness=FRESH, **doing(PLAN)):
        lines = bare(screen("evict", "--dry-run", width=80))
        piped = sessiond("evict", "--dry-run").out

    assert all(len(line) <= 80 for line in lines)
    assert "Make the cart remember" in lines[1]
    assert lines[-1] == "1 session would go, about 2 KiB; 1 KiB must"
    assert piped.splitlines()[1].endswith(f"2048  claude:{SHOP}")


# --- by hand ------------------------------------------------------------------------------------


def test_unpause_does_not_say_that_reading_goes_on_when_it_does_not(sessiond, daemon):
    with daemon(**doing({"was_paused": True, "paused_by": "hard_cap"})):
        said = sessiond("unpause")

    assert said.out == "your pause is over\n"
    assert "paused still (hard_cap)" in said.err


def test_pin_of_nothing_is_still_json(sessiond, journal):
    assert sessiond("pin", "--repo", "nonesuch", "--json").json["changed"] == []


def test_forget_lists_short_names_on_a_screen(screen, journal):
    lines = bare(screen("forget", "--repo", "shop", "--dry-run", width=80))

    assert all(len(line) <= 80 for line in lines)
    assert lines[1].endswith(f" {SHOP[:10]}")


def test_a_mistake_in_the_call_is_all_that_is_said(sessiond, journal):
    said = sessiond("errors", "--agent", "cluade")

    assert (said.code, said.err) == (2, "sessiond: there is no agent cluade (did you mean claude?)\n")


def test_cost_by_a_wrong_word_names_the_right_one(sessiond, journal):
    said = sessiond("cost", "--by", "modle")

    assert (said.code, said.err) == (2, "sessiond: --by is never modle (did you mean model?)\n")


# --- evicted sessions ---------------------------------------------------------------------------


@pytest.fixture
def evicted(journal):
    """The journal after everything in it was distilled and let go."""
    journal.write_config('[retention]\nsoft_cap = "16KiB"\nmin_age = "0s"\n')
    journal.analyze()
    assert f"claude:{SHOP}" in journal.evict()["evicted"]
    return journal


def test_an_evicted_session_is_shown_with_what_its_digest_knows(sessiond, evicted):
    told = sessiond("show", SHOP).out

    assert "state      evicted · its raw bytes were let go" in told
    assert re.search(r"^events +8: .*user_msg", told, re.MULTILINE)
    assert "connection refused" in told
    assert SECRET not in told
    assert "\x1b" not in told


def test_events_that_were_let_go_are_not_called_unknown(sessiond, evicted):
    whole, one = sessiond("events", SHOP), sessiond("events", f"{SHOP}#2")

    assert (whole.code, one.code) == (0, 1)
    assert "events 1 to 8 were let go" in whole.err
    assert "no such events" not in whole.err
    assert f"event 2 was let go; what it was part of: sessiond show claude:{SHOP}" in one.err


def test_verify_does_not_claim_to_have_compared_anything(sessiond, evicted):
    said = sessiond("verify", SHOP)

    assert said.code == 0
    assert "no file compared" in said.out


# --- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_eighty_columns(screen, verb):
    assert [line for line in bare(screen(verb, "--help", width=80)) if len(line) > 80] == []


def test_an_example_too_long_for_a_column_gets_its_words_below():
    told = examples(("sessiond x", "short"), ("sessiond " + "y" * 60, "and what that is good for"))

    assert told == f"Examples:\n  sessiond x  short\n  sessiond {'y' * 60}\n      and what that is good for\n"
