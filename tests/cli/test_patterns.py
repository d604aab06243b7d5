"""`patterns`: signals and errors that recur, across agents first, with evidence on every row."""

from __future__ import annotations

import pytest

from distilled import MISSING, Corpus, days_ago, did, signal, snippet

from .test_asking import ANSI

TIMEOUT = "TimeoutError: timed out after 30 s"
GENERIC = "exit code 1"
FIELDS = {
    "kind", "name", "fingerprint", "sample", "sessions", "occurrences", "flavors", "repos", "tokens", "first_at",
    "last_at", "trend", "went_away_after", "evidence",
}  # fmt: skip


@pytest.fixture
def corpus(lab):
    corpus = Corpus(lab)
    recovery = signal("recovery", 8, detail="gone after: make", about=MISSING)
    corpus.add("s1", snippet(last=8, gone=[did("make")]), snippet(GENERIC), days=9, tokens=700, signals=(recovery,))
    corpus.add(
        "s2", snippet(), snippet(TIMEOUT), agent="codex", repo="/w/blog", days=2, signals=(signal("abandoned", 4),)
    )
    for number in range(3, 6):
        corpus.add(f"s{number}", snippet(TIMEOUT), snippet(GENERIC), tokens=100, signals=(signal("abandoned", 2),) * 2)
    corpus.add("s6", snippet("KeyError: 'once'"))
    corpus.save()
    return corpus


def rows(said):
    return [(row["name"] if row["kind"] == "signal" else row["sample"], row["sessions"]) for row in said.json]


def test_what_crosses_agents_comes_first_then_most_sessions(sessiond, corpus):
    said = sessiond("patterns", "--json")

    assert said.code == 0
    # Errors of one session are no pattern; what says too little comes last.
    assert rows(said) == [("abandoned", 4), (TIMEOUT, 4), (MISSING, 2), ("recovery", 1), (GENERIC, 4)]


def test_every_row_has_all_its_evidence(sessiond, corpus):
    found = sessiond("patterns", "--json").json

    assert all(set(row) == FIELDS and row["evidence"] for row in found)
    abandoned, _, missing, recovery, _ = found
    assert missing == {
        "kind": "error",
        "name": "ModuleNotFoundError: no module named",
        "fingerprint": snippet(MISSING)["fingerprint"],
        "sample": MISSING,
        "sessions": 2,
        "occurrences": 2,
        "flavors": ["claude", "codex"],
        "repos": ["/w/blog", "/w/shop"],
        "tokens": 700,
        "first_at": days_ago(9),
        "last_at": days_ago(2),
        "trend": "steady",
        "went_away_after": {"steps": ["make"], "sessions": 1, "place": "claude:s1#17"},
        "evidence": ["codex:s2#2", "claude:s1#8"],
    }
    assert (abandoned["kind"], abandoned["fingerprint"], abandoned["trend"]) == ("signal", None, "new")
    assert (abandoned["occurrences"], abandoned["tokens"]) == (7, 300)  # the tokens of a session count once
    assert len(abandoned["evidence"]) == 4
    assert recovery["went_away_after"]["steps"] == ["make"]


def test_tokens_that_nobody_told_are_unknown(sessiond, corpus):
    found = sessiond("patterns", "--json", "--agent", "codex").json

    assert [(row["name"], row["tokens"]) for row in found] == [("abandoned", None)]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--repo", "shop"], [(TIMEOUT, 3), ("abandoned", 3), ("recovery", 1), (GENERIC, 4)]),
        (["-S", "5d"], [("abandoned", 4), (TIMEOUT, 4), (GENERIC, 3)]),
        (["-U", "5d"], [("recovery", 1)]),
        (["-n", "2"], [("abandoned", 4), (TIMEOUT, 4)]),
        (["--outcome", "fail"], []),
    ],
)
def test_patterns_can_be_narrowed(sessiond, corpus, args, found):
    said = sessiond("patterns", "--json", *args)

    assert sorted(rows(said)) == sorted(found)


def test_sessions_that_spend_more_than_nine_in_ten_overrun(sessiond, lab):
    corpus = Corpus(lab)
    for number in range(20):
        corpus.add(f"s{number:02}", tokens=1000 + number, days=1 + number / 100)
    corpus.save()

    (row,) = sessiond("patterns", "--json").json

    assert (row["name"], row["sessions"], row["tokens"]) == ("budget_overrun", 2, 1018 + 1019)
    assert row["sample"] == "1,018 tokens; nine in ten sessions spend at most 1,017"
    assert [each.partition("#")[0] for each in row["evidence"]] == ["claude:s18", "claude:s19"]


def test_the_budget_is_that_of_all_sessions_whichever_are_asked_for(sessiond, lab):
    corpus = Corpus(lab)
    for number in range(20):
        corpus.add(f"s{number:02}", tokens=1000 + number, repo="/w/blog" if number in (3, 19) else "/w/shop")
    corpus.save()

    (row,) = sessiond("patterns", "--json", "--repo", "blog").json

    assert (row["sessions"], row["evidence"][0].partition("#")[0]) == (1, "claude:s19")


def test_the_page_for_people(sessiond, corpus):
    blocks = [block.splitlines() for block in sessiond("patterns").out.split("\n\n")]

    assert [block[0] for block in blocks] == [
        "SESSIONS  ACROSS AGENTS", "SESSIONS  WITHIN ONE AGENT", "SESSIONS  TOO GENERAL TO TELL",
    ]  # fmt: skip
    assert blocks[0][1] == "       4  abandoned: left unfinished"
    assert " · 7 times · claude, codex · /w/blog, /w/shop · 300 tokens · first " in blocks[0][2]
    assert blocks[0][3] == "          newest: so it was"
    assert "          went away after: make" in blocks[0]


def test_the_page_fits_the_terminal(screen, corpus):
    for width in (50, 80, 160):
        lines = ANSI.sub("", screen("patterns", width=width)).splitlines()
        assert all(len(line) <= width for line in lines)
        assert any(line.startswith("       2  ModuleNotFoundError: No module") for line in lines)
        assert width == 50 or any(" · claude, codex · " in line for line in lines)


def test_the_page_has_every_signal_however_many_errors_there_are(screen, lab):
    corpus = Corpus(lab)
    codes = [f"E{number:04}" for number in range(100, 130)]
    for name, agent in (("s1", "claude"), ("s2", "codex")):
        corpus.add(name, *(snippet(f"error[{code}]: it is wrong") for code in codes), agent=agent)
    corpus.add("s3", signals=(signal("retry_storm", 1),))
    corpus.save()

    page = ANSI.sub("", screen("patterns"))

    assert "retry_storm" in page
    assert page.count("error[E0") == 19
    assert "there are more: -n 100" in page
    assert "retry_storm" not in screen("patterns", "-n", "20")


def test_before_anything_is_distilled_it_says_how(sessiond, journal):
    for args in ((), ("--json",)):
        said = sessiond("patterns", *args)
        assert said.code == 0
        assert "nothing distilled yet: sessiond analyze" in said.err
    assert said.json == []


def test_nothing_that_fits_is_no_failure(sessiond, corpus):
    said = sessiond("patterns", "--outcome", "fail")

    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("no such patterns\n")


def test_signals_of_real_sessions_are_there_after_the_pass(sessiond, journal):
    sessiond("analyze")

    assert {row["name"] for row in sessiond("patterns", "--json").json} == {"abandoned"}
