"""Signals of one session: when each is raised, when it is not, and what stands for it."""

from __future__ import annotations

from sessiond.model import Kind
from sessiond.passes._digest_errors import STORM_FAILURES, STORM_RETRIES, STORM_WINDOW_MS
from sessiond.passes._digest_state import EVIDENCE
from sessiond.passes.signals import EACH, REPEATED_TIMES
from tests.passes.story import Story


def raised(story: Story, name: str) -> list[dict]:
    return [each for each in story.finished().signals if each["signal"] == name]


# --- retry_storm --------------------------------------------------------------------------------------


def test_the_same_call_failing_again_and_again_is_a_storm():
    story = Story()
    for _ in range(STORM_FAILURES + 2):
        story.ran("npm install", "ECONNRESET", fails=True)
    [storm] = raised(story, "retry_storm")
    assert storm["detail"] == f"Bash failed {STORM_FAILURES + 2} times in a row with nothing changed in between"
    assert storm["seqs"] == [2, 4, 6, 8, 10]


def test_one_failure_less_is_none():
    story = Story()
    for _ in range(STORM_FAILURES - 1):
        story.ran("npm install", "ECONNRESET", fails=True)
    assert raised(story, "retry_storm") == []


def test_work_in_between_makes_it_a_new_attempt():
    story = Story()
    for _ in range(STORM_FAILURES):
        story.ran("npm install", "ECONNRESET", fails=True)
        story.edited("/w/package.json")
    assert raised(story, "retry_storm") == []


def test_reading_in_between_does_not():
    story = Story()
    for _ in range(STORM_FAILURES):
        story.ran("npm install", "ECONNRESET", fails=True)
        story.ran("/w/package.json", tool="Read")
    assert len(raised(story, "retry_storm")) == 1


def test_another_call_failing_begins_a_new_run():
    story = Story()
    for number in range(STORM_FAILURES):
        story.ran(f"npm install {number}", "ECONNRESET", fails=True)
    assert raised(story, "retry_storm") == []


def test_two_storms_are_told_apart():
    story = Story()
    for _ in range(2):
        for _ in range(STORM_FAILURES + 1):
            story.ran("npm install", "ECONNRESET", fails=True)
        story.edited()
    assert [each["seqs"][0] for each in raised(story, "retry_storm")] == [2, 2 + 2 * (STORM_FAILURES + 1) + 2]


def test_storms_are_bounded_and_the_sixth_leaves_the_fifth_alone():
    story = Story()
    for number in range(EACH + 1):
        for _ in range(STORM_FAILURES + number):
            story.ran("npm install", "ECONNRESET", fails=True)
        story.edited()
    storms = raised(story, "retry_storm")
    assert [each["detail"].split()[2] for each in storms] == [str(STORM_FAILURES + number) for number in range(EACH)]


def test_many_retries_in_a_short_time_are_a_storm():
    story = Story()
    for _ in range(STORM_RETRIES + 3):
        story.add(Kind.RETRY, "429, attempt", after_s=10)
    [storm] = raised(story, "retry_storm")
    assert storm["detail"] == f"{STORM_RETRIES + 3} retries in quick succession"
    assert storm["seqs"] == [1, 2, 3, 4, 5]


def test_retries_that_begin_anew_are_another_storm():
    story = Story()
    for _ in range(2):
        story.add(Kind.RETRY, "429, attempt", after_s=STORM_WINDOW_MS)
        for _ in range(STORM_RETRIES - 1):
            story.add(Kind.RETRY, "429, attempt")
    assert [each["seqs"][0] for each in raised(story, "retry_storm")] == [1, 1 + STORM_RETRIES]


def test_as_many_over_a_long_time_are_none():
    story = Story()
    gap_s = STORM_WINDOW_MS / 1000 / (STORM_RETRIES - 1) + 1
    for _ in range(STORM_RETRIES + 3):
        story.add(Kind.RETRY, "429, attempt", after_s=gap_s)
    assert raised(story, "retry_storm") == []


def test_retries_whose_time_is_not_known_are_none():
    story = Story()
    for _ in range(STORM_RETRIES + 3):
        story.add(Kind.RETRY, "429, attempt")
    assert raised(story.without_times(), "retry_storm") == []


# --- repeated_error -----------------------------------------------------------------------------------


def test_an_error_that_keeps_coming_back():
    story = Story()
    for number in range(REPEATED_TIMES):
        story.ran(f"step {number}", "ImportError: no module named app", fails=True)
        story.edited()
    [repeated] = raised(story, "repeated_error")
    assert repeated["detail"] == f"{REPEATED_TIMES} times: ImportError: no module named app"
    assert repeated["seqs"] == [2, 6, 10]
    assert repeated["fingerprint"] == story.digest().error_snippets[0]["fingerprint"]


def test_one_time_less_is_none():
    story = Story()
    for number in range(REPEATED_TIMES - 1):
        story.ran(f"step {number}", "ImportError: no module named app", fails=True)
    assert raised(story, "repeated_error") == []


def test_the_most_frequent_come_first_and_only_a_few():
    story = Story()
    for number in range(EACH + 2):
        for _ in range(REPEATED_TIMES + number):
            story.error("error " + "abcdefgh"[number])
    found = raised(story, "repeated_error")
    assert [each["detail"][-1] for each in found] == ["g", "f", "e", "d", "c"]
    assert all(len(each["seqs"]) <= EVIDENCE for each in found)


# --- recovery -----------------------------------------------------------------------------------------


def test_an_error_that_went_away_tells_what_was_done():
    story = Story()
    story.prompt()
    story.ran("make", "app.c:1: error: expected ;", fails=True)
    story.edited("/w/app.c")
    again = story.ran("make")
    story.answer()
    [recovery] = raised(story, "recovery")
    assert recovery["seqs"] == [3, 4, again]
    assert recovery["detail"] == "app.c:1: error: expected ;: gone after: /w/app.c"


def test_an_error_that_stays_is_no_recovery():
    story = Story()
    story.ran("make", "error: expected ;", fails=True)
    story.ran("ls")
    assert raised(story, "recovery") == []


def test_a_long_tale_is_cut():
    story = Story()
    story.ran("make", "boom " * 100, fails=True)
    for number in range(5):
        story.ran(f"{number} " + "word " * 100)
    story.ran("make")
    [recovery] = raised(story, "recovery")
    assert len(recovery["detail"]) == 500
    assert recovery["detail"].endswith("…")


# --- abandoned, clean_pass ----------------------------------------------------------------------------


def test_an_abandoned_session_says_why():
    story = Story()
    story.prompt()
    story.ran()
    call = story.call("sleep 60")
    [abandoned] = raised(story, "abandoned")
    assert (abandoned["seqs"], abandoned["detail"]) == ([call], "a call was left open (Bash)")


def clean() -> Story:
    story = Story()
    story.prompt()
    story.edited()
    story.tested()
    return story


def test_work_that_went_through_is_a_clean_pass():
    story = clean()
    end = story.answer()
    [passed] = raised(story, "clean_pass")
    assert passed["detail"] == "2 calls, none failed, 1 test run passed"
    assert passed["seqs"] == [4, end]
    assert raised(story, "abandoned") == []


def test_anything_that_went_wrong_is_in_the_way_of_a_clean_pass():
    def spoil(what) -> list[dict]:
        story = clean()
        what(story)
        story.answer()
        assert story.verdict().outcome == "success"
        return raised(story, "clean_pass")

    assert spoil(lambda story: story.ran("cat x", "no such file", fails=True)) == []
    assert spoil(lambda story: story.ran("cat x", "", fails=True)) == []  # an error without a word has no fingerprint
    assert spoil(lambda story: story.error("")) == []
    assert spoil(lambda story: (story.tested("", fails=True, tool=None), story.tested())) == []
    assert spoil(lambda story: story.add(Kind.RETRY, "attempt 2")) == []
    assert spoil(lambda story: story.intervention("! git status")) == []
    assert spoil(lambda story: story.call("sleep 9")) == []
    assert len(spoil(lambda story: story.ran("ls"))) == 1


def test_a_mere_answer_is_no_clean_pass():
    story = Story()
    story.prompt()
    story.answer()
    assert raised(story, "clean_pass") == []
