"""`sessions`, `show`, `events` and `search` over a small real journal."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest

from .conftest import BLOG, SECRET, SHOP

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_sessions_are_listed_newest_first(sessiond, journal):
    said = sessiond("sessions")

    lines = said.out.splitlines()
    assert said.code == 0
    assert lines[0].split() == ["WHEN", "AGENT", "REPO", "TITLE", "OUTCOME", "TURNS", "TOKENS", "SESSION"]
    assert [line.split()[-1] for line in lines[1:]] == [f"claude:{SHOP}", f"claude:{BLOG}"]
    assert "2026-01-02 03:04" in lines[1]


def test_ls_is_sessions(sessiond, journal):
    assert sessiond("ls") == sessiond("sessions")


def test_sessions_json_is_a_bare_array_of_the_nouns(sessiond, journal):
    newest, oldest = sessiond("sessions", "--json").json

    assert (newest["session_uid"], oldest["session_uid"]) == (f"claude:{SHOP}", f"claude:{BLOG}")
    assert newest["cost"]["turns"] == 2
    assert newest["git_branch"] == "main"


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--repo", "shop"], [SHOP]),
        (["--repo", "shop", "--repo", "blog"], [SHOP, BLOG]),
        (["--repo", "nowhere"], []),
        (["--agent", "codex"], []),
        (["--model", "opus"], [SHOP]),
        (["--since", "2026-01-02"], [SHOP]),
        (["--until", "2026-01-02"], [BLOG]),
        (["--file", "src/cart.py"], [SHOP]),
        (["--branch", "main", "-n", "1"], [SHOP]),
        (["--outcome", "fail"], []),
        (["--state", "ingested", "--state", "analyzed"], [SHOP, BLOG]),
    ],
)
def test_sessions_can_be_narrowed(sessiond, journal, args, found):
    assert [each["native_session_id"] for each in sessiond("sessions", "--json", *args).json] == found


def test_repo_dot_is_here(sessiond, journal, shop, monkeypatch):
    (shop / "src").mkdir()
    monkeypatch.chdir(shop / "src")

    assert [each["native_session_id"] for each in sessiond("sessions", "--json", "--repo", ".").json] == [SHOP]


def test_no_hits_are_no_failure(sessiond, journal):
    said = sessiond("sessions", "--repo", "nowhere")

    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("no such sessions\n")


def test_an_unknown_agent_is_a_usage_error(sessiond, journal):
    said = sessiond("sessions", "--agent", "cluade")

    assert said.code == 2
    assert "sessiond: there is no agent cluade (did you mean claude?)" in said.err


def test_the_list_fits_the_terminal_and_shows_short_names(screen, journal):
    for width in (50, 80, 120):
        lines = ANSI.sub("", screen("sessions", width=width)).splitlines()
        assert all(len(line) <= width for line in lines)
        assert lines[1].endswith(" a3f9c2d1-0")  # as short as names it alone


def test_a_short_name_finds_its_session(sessiond, journal):
    said = sessiond("show", "a3f9c2d1-1", "--json")

    assert said.json["session_uid"] == f"claude:{BLOG}"


def test_an_ambiguous_prefix_is_a_usage_error(sessiond, journal):
    said = sessiond("show", "a3f9")

    assert said.code == 2
    assert "could be" in said.err


def test_an_unknown_session_is_a_failure(sessiond, journal):
    said = sessiond("show", "ffff")

    assert said.code == 1
    assert "sessiond: there is no session 'ffff' (sessiond sessions lists them)" in said.err


def test_show_is_a_page_that_ends_with_how_to_go_on(sessiond, journal, shop):
    said = sessiond("show", SHOP)

    assert said.code == 0
    assert said.out.splitlines()[0] == "Make the cart remember its items"
    assert said.out.splitlines()[-1] == f"resume: cd {shop} && claude --resume {SHOP}"
    for words in ("claude-opus-4-7", "main", "2 turns", "src/cart.py", "1 edit", "The cart remembers now."):
        assert words in said.out
    assert "3.5k tokens (300 in, 150 out, 3k cached)" in said.out


def test_show_without_a_uid_is_the_newest_session_here(sessiond, journal, shop, monkeypatch):
    monkeypatch.chdir(shop)

    assert sessiond("show", "--json").json["native_session_id"] == SHOP


def test_show_without_a_uid_elsewhere_says_so(sessiond, journal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = sessiond("show")

    assert said.code == 1
    assert f"sessiond: there is no session of {tmp_path} (name one: sessiond sessions lists them)" in said.err


def test_show_json_has_files_kinds_and_freshness(sessiond, journal, shop):
    shown = sessiond("show", SHOP, "--json").json

    assert shown["files"] == [{"path": f"{shop}/src/cart.py", "edits": 1}]
    assert shown["kinds"]["tool_result"] == 2
    assert shown["errors"] == 1
    assert shown["resume"] == ["claude", "--resume", SHOP]
    assert shown["complete"] is False
    assert "as_of" in shown


def test_events_are_listed_in_order_with_failures_marked(sessiond, journal):
    lines = sessiond("events", SHOP).out.splitlines()

    assert [int(line.split()[0]) for line in lines] == sorted(int(line.split()[0]) for line in lines)
    failed = [line for line in lines if "FAILED" in line]
    assert len(failed) == 1
    assert "connection refused" in failed[0]
    assert "Bash: " in failed[0]


def test_events_json_is_one_object_a_line(sessiond, journal):
    events = [json.loads(line) for line in sessiond("events", SHOP, "--json").out.splitlines()]

    assert events[0]["kind"] == "user_msg"
    assert events[0]["session_uid"] == f"claude:{SHOP}"
    assert sum(each["is_error"] for each in events) == 1


def test_events_of_a_kind_and_the_last_ones(sessiond, journal):
    edits = sessiond("events", SHOP, "--kind", "edit", "--json").out.splitlines()
    last = sessiond("events", SHOP, "-n", "2", "--json").out.splitlines()
    everything = sessiond("events", SHOP, "--json").out.splitlines()

    assert [json.loads(line)["tool"] for line in edits] == ["Edit"]
    assert last == everything[-2:]


def test_events_since_a_time(sessiond, journal):
    lines = sessiond("events", SHOP, "-S", "2026-01-02T03:04:05", "--json").out.splitlines()

    assert {json.loads(line)["ts"][17:19] for line in lines} == {"05", "06"}


def test_surroundings_of_one_event(sessiond, journal):
    around = sessiond("events", f"{SHOP}#3", "-C", "1", "--json").out.splitlines()
    alone = sessiond("events", f"{SHOP}#3", "--json").out.splitlines()

    assert [json.loads(line)["seq"] for line in around] == [2, 3, 4]
    assert [json.loads(line)["seq"] for line in alone] == [3]


def test_an_event_that_is_not_there_names_those_that_are(sessiond, journal):
    said = sessiond("events", f"{SHOP}#99")

    assert said.code == 1
    assert f"there is no event claude:{SHOP}#99 (it has events 1 to 8)" in said.err


def test_payload_is_the_very_record_unmasked(program, journal):
    path = journal.claude_file(SHOP, slug="-work-shop")
    lines = path.read_bytes().splitlines()

    done = program("events", SHOP, "--payload")

    assert done.returncode == 0
    assert done.stdout.splitlines() == lines
    assert SECRET.encode() in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["sessions"],
        ["show", SHOP],
        ["events", SHOP],
        ["search", "token"],
        ["show", SHOP, "--json"],
        ["events", SHOP, "--json"],
        ["search", "token", "--json"],
    ],
)
def test_secrets_and_escapes_never_reach_the_screen(sessiond, journal, args):
    said = sessiond(*args)

    assert said.code == 0
    assert SECRET not in said.out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said.out)
    if args[0] == "events":
        assert "[masked:github-token]" in said.out
        assert "\\x1b]0;owned" in said.out or "\\u001b]0;owned" in said.out


def test_own_patterns_of_the_configuration_are_masked(sessiond, journal):
    journal.write_config("[privacy]\nmask = ['cart rem\\w+']\n")

    assert "[masked:custom]" in sessiond("sessions").out
    assert "cart remember" not in sessiond("show", SHOP, "--json").out


def test_a_pattern_that_cannot_be_used_shows_nothing(sessiond, journal):
    journal.write_config("[privacy]\nmask = ['(']\n")
    said = sessiond("sessions")

    assert (said.code, said.out) == (78, "")
    assert "privacy.mask cannot be used" in said.err


def test_search_names_the_session_and_the_event(sessiond, journal):
    lines = sessiond("search", "connection", "refused").out.splitlines()

    assert lines[0].startswith("Make the cart remember its items  claude · shop · ")
    assert lines[1].startswith(f"  claude:{SHOP}#5 ")
    assert lines[1].endswith("connection refused")


def test_search_json_says_where_the_match_stands(sessiond, journal):
    (hit,) = sessiond("search", "refused", "--json").json

    assert hit["id"] == f"claude:{SHOP}#5"
    assert [hit["snippet"][start:stop] for start, stop in hit["marks"]] == ["refused"]


def test_search_can_be_narrowed(sessiond, journal):
    assert sessiond("search", "cart", "--repo", "blog", "--json").json == []
    assert {hit["kind"] for hit in sessiond("search", "cart", "--kind", "assistant_msg", "--json").json} == {
        "assistant_msg"
    }
    assert sessiond("search", "kites", "--since", "2026-01-02", "--json").json == []
    assert len(sessiond("search", "kites", "--json").json) == 1


def test_search_marks_the_match_on_a_terminal(screen, journal):
    assert "\x1b[1;7mrefused\x1b[0m" in screen("search", "refused")
    plain = screen("search", "refused", NO_COLOR="1")
    assert "refused" in plain
    assert "\x1b" not in plain


def test_nothing_found_is_no_failure(sessiond, journal):
    said = sessiond("search", "unheard-of")

    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("nothing found\n")


def test_a_query_of_quotes_and_sql_is_only_words(sessiond, journal):
    said = sessiond("search", "'; DROP TABLE fts; -- cart\" OR")

    assert said.code == 0
    assert sessiond("search", "cart", "--json").json


def test_restore_writes_the_bytes_and_says_how_to_go_on(sessiond, journal, shop, tmp_path):
    path = journal.claude_file(SHOP, slug="-work-shop")
    original = path.read_bytes()
    path.unlink()

    said = sessiond("restore", SHOP, "--to", str(tmp_path / "back"))

    restored = tmp_path / "back" / "projects" / "-work-shop" / f"{SHOP}.jsonl"
    assert said.code == 0
    assert restored.read_bytes() == original
    assert os.stat(restored).st_mode & 0o777 == 0o600
    assert str(restored) in said.out
    assert said.out.splitlines()[-1] == f"resume: cd {shop} && claude --resume {SHOP}"


def test_restore_never_overwrites(sessiond, journal, tmp_path):
    assert sessiond("restore", SHOP, "--to", str(tmp_path)).code == 0
    said = sessiond("restore", SHOP, "--to", str(tmp_path))

    assert said.code == 1
    assert "exists already" in said.err


def test_restore_json_lists_the_files(sessiond, journal, tmp_path):
    told = sessiond("restore", SHOP, "--to", str(tmp_path), "--json").json

    (file,) = told["files"]
    assert os.path.getsize(file["path"]) == file["bytes"]
    assert told["whole"] is True
    assert {"as_of", "complete"} <= told.keys()


def test_a_part_that_was_evicted_is_named(sessiond, journal, tmp_path):
    import apsw

    with apsw.Connection(str(journal.paths.store)) as db:
        db.execute("DELETE FROM _frame")

    said = sessiond("restore", SHOP, "--to", str(tmp_path / "a"))
    partly = sessiond("restore", SHOP, "--to", str(tmp_path / "b"), "--partial")
    payload = sessiond("events", f"{SHOP}#1", "--payload")

    assert said.code == 1
    assert "bytes 0.." in said.err
    assert "--partial" in said.err
    assert not (tmp_path / "a").exists()
    assert partly.code == 0
    assert "missing" in partly.err
    assert payload.code == 1
    assert "1 record is no longer in the archive" in payload.err


def test_a_missing_index_is_said_and_the_query_answered(sessiond, journal):
    for path in journal.paths.search.parent.glob("search.db*"):
        path.unlink()
    said = sessiond("search", "cart")
    told = sessiond("search", "cart", "--json")

    assert said.code == told.code == 0
    assert json.loads(told.out) == []
    for each in (said, told):
        assert "there is no search index yet: nothing can be found before the daemon has made it" in each.err


def test_a_gone_source_is_told(sessiond, journal):
    shutil.rmtree(journal.claude / "projects" / "-work-shop")
    journal.ingest()

    assert "gone since" in sessiond("show", SHOP).out
