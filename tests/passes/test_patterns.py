"""Patterns over sessions: trends, what helped, and an order that does not depend on how the rows come in."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from distilled import MISSING, did, snippet
from sessiond.passes import patterns
from sessiond.passes.fingerprint import Fingerprint
from sessiond.passes.patterns import About, Helped, Trend
from sessiond.store.occurrences import Sighting, Tally

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
WEEKS = patterns.weeks(NOW)
OLD, LAST_WEEK, TODAY = "2026-01-01T00:00:00.000Z", "2026-03-10T00:00:00.000Z", "2026-03-20T00:00:00.000Z"


def tally(name="f1", *, sessions=3, occurrences=5, first=OLD, last=TODAY, recent=1, before=1, flavors=("claude",)):
    return Tally(name, sessions, occurrences, first, last, recent, before, flavors, ("/w/shop",), ("Bash",))


def sighting(uid="claude:a", at=TODAY, *, repo="/w/shop", sample=MISSING, last=9, tool="Bash", **more):
    found = snippet(sample, last=last, **more)
    return Sighting(
        uid, uid.partition(":")[0], repo, "a title", tool, sample, found["count"], found["first_seq"], last, at, at,
        found["followed_by"], found["recovered_by"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("recent", "before", "first", "found"),
    [
        (0, 3, OLD, Trend.GONE),
        (0, 0, OLD, Trend.GONE),
        (2, 0, TODAY, Trend.NEW),
        (2, 0, WEEKS.one_ago, Trend.NEW),
        (2, 0, OLD, Trend.RISING),  # it is back
        (2, 1, OLD, Trend.RISING),
        (1, 2, OLD, Trend.FALLING),
        (2, 2, OLD, Trend.STEADY),
        (4, 3, OLD, Trend.STEADY),
        (3, 4, OLD, Trend.STEADY),
        (40, 29, OLD, Trend.RISING),
        (29, 40, OLD, Trend.FALLING),
        (1, 1, LAST_WEEK, Trend.STEADY),
    ],
)
def test_a_trend_compares_this_week_with_the_one_before(recent, before, first, found):
    assert patterns.trend(tally(recent=recent, before=before, first=first), WEEKS) is found


def test_weeks_are_counted_back_from_now():
    assert (WEEKS.one_ago, WEEKS.two_ago) == ("2026-03-13T12:00:00.000Z", "2026-03-06T12:00:00.000Z")


# --- what helped ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (did("/w/shop/src/db.py", "edit"), "edit src/db.py"),
        (did("/elsewhere/db.py", "edit"), "edit /elsewhere/db.py"),
        (did("update src/db.py", "edit"), "update src/db.py"),
        (did("cd /w/shop && cd api; pytest -q"), "pytest -q"),
        (did("python /w/shop/run.py"), "python run.py"),
        (did(""), "Bash"),
    ],
)
def test_an_action_reads_the_same_in_every_checkout(action, words):
    assert patterns.phrase(action, "/w/shop") == words


def test_what_most_sessions_did_made_it_go_away():
    seen = [
        sighting("claude:c", gone=[did("make deps")]),
        sighting("claude:b", gone=[did("pip install requests"), did("pytest")], last=7),
        sighting("codex:a", gone=[did("pip install requests"), did("pytest")]),
        sighting("codex:z"),
    ]

    assert patterns.went_away_after(seen) == Helped(("pip install requests", "pytest"), 2, "claude:b#16")


def test_the_step_that_matters_is_found_among_others():
    """Each did something else beside it: no two did the same."""
    install = did("pip install requests")
    seen = [
        sighting("claude:c", gone=[did("/w/shop/setup.py", "edit"), install]),
        sighting("claude:b", gone=[install, did("git status")]),
        sighting("claude:a", gone=[install]),
    ]

    assert patterns.went_away_after(seen) == Helped(("pip install requests",), 3, "claude:a#18")


def test_of_equals_the_newest_helped():
    seen = [sighting("claude:b", gone=[did("new")]), sighting("claude:a", gone=[did("old")])]

    assert patterns.went_away_after(seen).steps == ("new",)


def test_trying_again_is_a_way_of_its_own():
    again = [sighting(f"claude:{n}", gone=[]) for n in range(2)]
    fixed = [sighting(f"codex:{n}", gone=[did("make")]) for n in range(3)]

    assert patterns.went_away_after(again + fixed) == Helped(("make",), 3, "codex:0#18")
    assert patterns.went_away_after(again + fixed[:1]) == Helped((), 2, "claude:0#18")


def test_the_same_step_in_a_row_is_one():
    edits = [did("/w/shop/a.py", "edit")] * 3

    assert patterns.went_away_after([sighting(gone=[*edits, did("make")])]).steps == ("edit a.py", "make")


def test_a_session_has_one_vote():
    """Two tools of one session met the error; one of them saw its end."""
    seen = [sighting("claude:a", tool="Edit"), sighting("claude:a", gone=[did("make")], tool="Bash")]

    assert patterns.went_away_after(seen) == Helped(("make",), 1, "claude:a#18")
    assert patterns.went_away_after([*seen[1:], *seen[1:]]).sessions == 1


def test_nothing_helped_where_no_session_shows_it():
    assert patterns.went_away_after([sighting()]) is None
    assert patterns.followed_by([sighting()]) is None


def test_what_went_well_next_in_most_sessions():
    seen = [sighting("claude:a", then="ls"), sighting("claude:b", then="pytest"), sighting("codex:c", then="pytest")]

    assert patterns.followed_by(seen) == Helped(("pytest",), 2, "claude:b#10")


# --- evidence and order ---------------------------------------------------------------------------


def test_evidence_is_the_newest_and_every_agent():
    seen = [sighting(f"claude:{n}", f"2026-03-{20 - n:02d}T00:00:00.000Z") for n in range(8)]
    seen += [sighting("codex:x", "2026-02-01T00:00:00.000Z"), sighting("grok:y", "2026-01-01T00:00:00.000Z")]

    found = patterns.describe(About.ERROR, tally(), seen, WEEKS).evidence

    assert found == ("claude:0#9", "claude:1#9", "claude:2#9", "codex:x#9", "grok:y#9")


def test_a_description_does_not_depend_on_the_order_of_the_rows():
    shuffled = random.Random(4)
    seen = [
        sighting(f"{agent}:{n}", [TODAY, LAST_WEEK][n % 2], tool=tool, then=f"step {n % 3}", gone=[did(f"fix {n % 3}")])
        for agent in ("claude", "codex")
        for n in range(6)
        for tool in ("Bash", "Edit")
    ]
    expected = patterns.describe(About.ERROR, tally(), seen, WEEKS)
    for _ in range(20):
        shuffled.shuffle(seen)
        assert patterns.describe(About.ERROR, tally(), seen, WEEKS) == expected


def test_patterns_are_in_a_total_order_across_agents_first():
    both = ("claude", "codex")
    wanted = [
        tally("1", sessions=2, flavors=both),
        tally("2", sessions=9),
        tally("3", sessions=8, occurrences=9),
        tally("4", sessions=8, occurrences=8, last=TODAY),
        tally("5", sessions=8, occurrences=8, last=LAST_WEEK),
        tally("6", sessions=8, occurrences=8, last=LAST_WEEK),
    ]
    made = [patterns.describe(About.ERROR, each, [sighting()], WEEKS) for each in wanted]
    generic = patterns.describe(About.ERROR, tally("0", sessions=99), [sighting(sample="exit code 1")], WEEKS)
    shuffled = random.Random(7)
    for _ in range(30):
        tallies, found = list(wanted), [*made, generic]
        shuffled.shuffle(tallies)
        shuffled.shuffle(found)
        assert patterns.across_agents_first(tallies) == wanted
        assert patterns.ranked(found) == [*made, generic]


def test_a_signal_and_an_error_of_the_same_weight_have_an_order():
    error = patterns.describe(About.ERROR, tally(), [sighting()], WEEKS)
    signal = patterns.describe(About.SIGNAL, tally(), [sighting()], WEEKS)

    assert patterns.ranked([error, signal]) == patterns.ranked([signal, error])


def test_errors_that_say_too_little_come_last_and_only_where_there_is_room():
    telling = [patterns.describe(About.ERROR, tally(str(n)), [sighting()], WEEKS) for n in range(3)]
    generic = patterns.describe(About.ERROR, tally("g"), [sighting(sample="Error: exit code 1")], WEEKS)
    read = []

    def found():
        for each in [generic, *telling]:
            read.append(each)
            yield each

    assert patterns.specific_first(found(), None) == [*telling, generic]
    read.clear()
    assert patterns.specific_first(found(), 2) == telling[:2]
    assert read == [generic, *telling[:2]]
    assert patterns.specific_first(found(), 4) == [*telling, generic]


def test_of_what_a_text_may_be_about_the_telling_lines_come_first():
    prints = [Fingerprint(name, name, name, is_generic=name.isupper()) for name in ("a", "B", "c", "D")]

    assert [each.id for each in patterns.telling_first(prints)] == ["a", "c", "B", "D"]


# --- what was spent -------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "found"), [(1, 1), (10, 9), (20, 18), (21, 19), (100, 90)])
def test_nine_in_ten_do_not_exceed_p90(count, found):
    assert patterns.p90(range(1, count + 1)) == found


def test_only_sessions_over_the_ninth_tenth_overrun():
    spent = {row: row * 1000 for row in range(1, 21)}

    found = patterns.overruns(spent)

    assert set(found) == {19, 20}
    assert found[20] == "20,000 tokens; nine in ten sessions spend at most 18,000"


def test_few_sessions_are_no_measure():
    spent = {row: row * 1000 for row in range(1, 21)}

    assert patterns.overruns({**spent, 20: 0}) == {}
    assert patterns.overruns(spent, aside={3}) == {}
