"""`errors`: what keeps going wrong; and of one error, whether it was seen and what made it go away."""

from __future__ import annotations

import json

import pytest

from distilled import MISSING, Corpus, days_ago, did, snippet

from .conftest import SECRET, SHOP, _prompt, _result, _says, write_session
from .test_asking import ANSI

NUMPY = "ModuleNotFoundError: No module named 'numpy'"
TIMEOUT = "TimeoutError: timed out after 30 s"
GENERIC = "exit code 1"
INSTALL, TEST = did("pip install requests"), did("pytest -q")


@pytest.fixture
def corpus(lab):
    corpus = Corpus(lab)
    fix = [INSTALL, TEST]
    corpus.add("s1", snippet(count=4, first=3, last=8, gone=fix, then="ls"), snippet(GENERIC), snippet(TIMEOUT), days=3)
    corpus.add("s2", snippet(gone=fix, tool="shell"), snippet(GENERIC), agent="codex", repo="/w/blog", days=10)
    corpus.add("s3", snippet(NUMPY, gone=[did("pip install numpy")]), snippet(GENERIC), repo="/w/blog", days=30)
    corpus.add("s4", snippet(GENERIC), days=1)
    corpus.save()
    return corpus


def test_errors_are_listed_by_sessions_with_the_telling_ones_first(sessiond, corpus):
    said = sessiond("errors", "--json")

    assert said.code == 0
    assert [(each["sample"], each["sessions"], each["is_generic"]) for each in said.json] == [
        (MISSING, 3, False), (TIMEOUT, 1, False), (GENERIC, 4, True),
    ]  # fmt: skip


def test_a_listed_error_has_its_evidence(sessiond, corpus):
    first = sessiond("errors", "--json").json[0]

    assert first == {
        "fingerprint": snippet(MISSING)["fingerprint"],
        "name": "ModuleNotFoundError: no module named",
        "sample": MISSING,
        "sessions": 3,
        "occurrences": 6,
        "first_at": days_ago(30),
        "last_at": days_ago(3),
        "trend": "steady",
        "tools": ["Bash", "shell"],
        "flavors": ["claude", "codex"],
        "repos": ["/w/blog", "/w/shop"],
        "followed_by": {"steps": ["ls"], "sessions": 1, "place": "claude:s1#9"},
        "recovered_by": {"steps": ["pip install requests", "pytest -q"], "sessions": 2, "place": "claude:s1#17"},
        "evidence": ["claude:s1#8", "codex:s2#2", "claude:s3#2"],
        "is_generic": False,
    }


def test_the_list_for_people(sessiond, corpus):
    lines = sessiond("errors").out.splitlines()

    assert lines[0] == "SESSIONS  ERROR"
    assert lines[1] == f"       3  {MISSING}"
    for words in ("→ steady · 6 times · claude, codex · /w/blog, /w/shop · Bash, shell · first ", " · claude:s1#8"):
        assert words in lines[2]
    assert lines[3] == "          went away after: pip install requests, then pytest -q (2 sessions)"


def test_what_followed_is_told_where_nothing_is_known_to_have_helped(sessiond, lab):
    corpus = Corpus(lab)
    corpus.add("s1", snippet(then="git status"))
    corpus.add("s2", snippet(TIMEOUT, gone=[]))
    corpus.save()

    out = sessiond("errors").out

    assert "followed by: git status" in out
    assert "went away after: trying again" in out


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--agent", "codex"], [MISSING, GENERIC]),
        (["--repo", "shop"], [MISSING, TIMEOUT, GENERIC]),
        (["-S", "2d"], [GENERIC]),
        (["-U", "20d"], [NUMPY, GENERIC]),
        (["-n", "1"], [MISSING]),
        (["--repo", "nowhere"], []),
    ],
)
def test_the_list_can_be_narrowed(sessiond, corpus, args, found):
    assert [each["sample"] for each in sessiond("errors", "--json", *args).json] == found


def test_the_list_fits_the_terminal_and_shows_the_sample_and_what_helped(screen, corpus):
    for width in (50, 80, 160):
        lines = ANSI.sub("", screen("errors", width=width)).splitlines()
        assert all(len(line) <= width for line in lines)
        text = " ".join(line.strip() for line in lines)
        assert MISSING in text
        assert "went away after: pip install" in text
        assert "last 3d ago" in text


def test_a_long_list_says_that_there_is_more(screen, corpus):
    assert "there are more: -n 5" in screen("errors", "-n", "1")
    assert "there are more" not in screen("errors", "-n", "3")


# --- has this been seen? ----------------------------------------------------------------------------


def test_an_error_that_was_seen_is_known_again_with_what_made_it_go_away(sessiond, corpus):
    said = sessiond("errors", "ModuleNotFoundError:", "No module named", "'pandas'")

    lines = said.out.splitlines()
    assert said.code == 0
    assert lines[0] == "ModuleNotFoundError: No module named 'pandas'"
    assert lines[1].startswith("seen 6 times in 3 sessions of claude and codex; first ")
    assert lines[2] == "went away after: pip install requests, then pytest -q (2 sessions)"
    assert lines[3].split() == ["WHEN", "AGENT", "REPO", "TIMES", "TITLE", "FIRST", "LAST", "WENT", "AWAY", "AFTER"]
    assert "claude:s1#3" in lines[4]
    assert "claude:s1#8" in lines[4]


def test_sessions_in_which_it_read_just_so_come_first_and_say_what_helped(sessiond, corpus):
    lines = sessiond("errors", NUMPY).out.splitlines()

    assert lines[2] == "went away after: pip install numpy"
    assert "claude:s3#2" in lines[4]


def test_an_error_in_a_traceback_with_other_paths_is_found(sessiond, corpus):
    trace = (
        f'Traceback (most recent call last):\n  File "/x/y.py", line 9, in <module>\n    import requests\n{MISSING}\n'
    )

    (found,) = sessiond("errors", "--json", trace).json

    assert (found["sessions"], found["sample"]) == (3, MISSING)
    assert [(each["first"], each["last"], each["count"]) for each in found["seen_in"]] == [
        ("claude:s1#3", "claude:s1#8", 4), ("codex:s2#2", "codex:s2#2", 1), ("claude:s3#2", "claude:s3#2", 1),
    ]  # fmt: skip
    assert found["seen_in"][1]["recovered_by"]["steps"] == ["pip install requests", "pytest -q"]


def test_a_part_of_an_error_finds_those_that_contain_it(sessiond, corpus):
    assert [each["sample"] for each in sessiond("errors", "--json", "timed OUT after").json] == [TIMEOUT]
    assert [each["sessions"] for each in sessiond("errors", "--json", "No module named").json] == [3]
    assert sessiond("errors", "timed out").out.splitlines()[0] == TIMEOUT
    assert sessiond("errors", "timed out", "--agent", "codex").out == ""


def test_what_a_command_printed_can_be_piped_in(program, corpus):
    printed = f"cc -c a.c\n\x1b[31mError: {GENERIC}\x1b[0m\n{MISSING}\nmake: *** [all] Error 2\n".encode()

    done = program("errors", "-", input=printed)

    assert done.returncode == 0
    assert done.stdout.decode().startswith(f"{MISSING}\nseen 6 times in 3 sessions of claude and codex;")


@pytest.mark.parametrize("before", [True, False])
def test_a_long_print_is_read_to_its_end_and_known_by_both_ends(program, corpus, before):
    noise = b"compiling something that is fine\n" * 60_000  # 2 MB
    printed = noise + MISSING.encode() + b"\n" if before else MISSING.encode() + b"\n" + noise

    done = program("errors", "--json", "-", input=printed)

    assert done.returncode == 0
    assert [each["sample"] for each in json.loads(done.stdout)] == [MISSING]


def test_bytes_that_are_no_text_do_no_harm(program, corpus):
    done = program("errors", "-", input=b"\xff\xfe\x00\n" + MISSING.encode())

    assert done.returncode == 0
    assert b"seen 6 times" in done.stdout


def test_of_several_errors_those_that_say_little_come_last_and_new_ones_are_named(sessiond, corpus):
    out = sessiond("errors", f"{GENERIC}\nKeyError: 'colour'\n{MISSING}\n").out

    assert out.startswith(MISSING)
    assert "\nnot seen before: KeyError: 'colour'\n" in out
    assert out.count("WHEN ") == 1  # what says little gets no list of sessions beside what says much


def test_only_a_generic_error_is_answered_too(sessiond, corpus):
    lines = sessiond("errors", GENERIC).out.splitlines()

    assert lines[1].startswith("seen 4 times in 4 sessions of claude and codex;")
    assert len(lines) == 7


def test_the_sessions_listed_are_limited(sessiond, corpus):
    lines = sessiond("errors", MISSING, "-n", "1").out.splitlines()

    assert lines[-1] == "and 2 more sessions: -n 3, or --json"


def test_looking_an_error_up_can_be_narrowed(sessiond, corpus):
    (found,) = sessiond("errors", MISSING, "--json", "--agent", "codex").json

    assert (found["sessions"], [each["session_uid"] for each in found["seen_in"]]) == (1, ["codex:s2"])


def test_an_error_that_was_never_seen_is_said_to_be_new(sessiond, corpus):
    said = sessiond("errors", "KeyError: 'colour'")

    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("not seen before: KeyError: 'colour'\n")
    assert "sessiond search" not in said.err
    assert sessiond("errors", "KeyError: 'colour'", "--json").json == []


def test_an_error_that_only_was_spoken_of_is_pointed_to(sessiond, lab, shop, corpus):
    write_session(lab, SHOP, shop, [("2026-01-02T03:04:05.000Z", _prompt("what is KeyError: 'colour' in the cart?"))])
    lab.ingest()

    said = sessiond("errors", "KeyError: 'colour'")

    assert "but its words were said or done: sessiond search 'KeyError colour'\n" in said.err
    assert SHOP in sessiond("search", "KeyError colour").out


def test_no_text_is_a_usage_error_and_no_error_in_it_is_none(sessiond, program, corpus):
    assert sessiond("errors", " ").code == 2
    done = program("errors", "-", input=b"")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"there is no error in this text" in done.stderr


def test_before_anything_is_distilled_it_says_how(sessiond, journal):
    for args in ((), ("--json",), ("connection refused",)):
        said = sessiond("errors", *args)
        assert said.code == 0
        assert "nothing distilled yet: sessiond analyze" in said.err
    assert "not seen before: connection refused" in said.err
    assert "sessiond search 'connection refused'" in said.err


def test_nothing_that_fits_is_no_failure(sessiond, corpus):
    said = sessiond("errors", "--repo", "nowhere")

    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("no such errors\n")


def test_secrets_and_escapes_are_not_shown(sessiond, lab):
    lab.write_config('[privacy]\nmask = ["kite-[0-9]+"]\n')
    corpus = Corpus(lab)
    corpus.add(
        "s1", snippet(f"ValueError: no kite-42 \x1b[2J with {SECRET}", gone=[did(f"export TOKEN={SECRET}")]),
        repo="/w/kite-77",
    )  # fmt: skip
    corpus.save()

    for args in ((), ("--json",), ("ValueError: no kite-42 \x1b[2J with " + SECRET,)):
        said = sessiond("errors", *args)
        assert SECRET not in said.out
        assert "kite-4" not in said.out
        assert "kite-7" not in said.out
        assert "\x1b" not in said.out


def test_an_error_with_a_secret_in_it_is_known_again(sessiond, lab, shop):
    """It was masked before its fingerprint was taken, and so is what is asked."""
    lab.write_config('[privacy]\nmask = ["kite"]\n')
    _fail_and_fix(lab, shop, error="AuthError: the word kite was refused")
    sessiond("analyze")

    found = sessiond("errors", "--json", "AuthError: the word kite was refused").json

    assert [(each["sessions"], "kite" in each["sample"]) for each in found] == [(1, False)]


def test_a_real_session_from_its_file_to_what_made_the_error_go_away(sessiond, lab, shop):
    _fail_and_fix(lab, shop, error=f"Traceback (most recent call last):\n{MISSING}")
    sessiond("analyze")

    lines = sessiond("errors", MISSING).out.splitlines()

    assert lines[0] == MISSING
    assert lines[1].startswith("seen 1 time in 1 session of claude, last 2026-01-02 03:04")
    assert lines[2] == "went away after: edit src/cart.py"
    assert f"claude:{SHOP}#3" in lines[4]


def _fail_and_fix(lab, repo, *, error: str) -> None:
    run = {"type": "tool_use", "name": "Bash", "input": {"command": "python run.py"}}
    edit = {"file_path": f"{repo}/src/cart.py", "old_string": "a", "new_string": "b"}
    records = [
        _prompt("run it"),
        _says({**run, "id": "c1"}, message="m1"),
        _result("c1", error, is_error=True),
        _says({"type": "tool_use", "id": "c2", "name": "Edit", "input": edit}, message="m2"),
        _result("c2", "done"),
        _says({**run, "id": "c3"}, message="m3"),
        _result("c3", "fine"),
    ]
    write_session(lab, SHOP, repo, [(f"2026-01-02T03:04:{n:02d}.000Z", record) for n, record in enumerate(records)])
    lab.ingest()
