"""Events derived anew from the archive: with adapters that have not changed, the very rows that were there."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from conformance_homes import EXPECTED, HERE, OWN_TESTS, home_of, lay_out
from lab import FIXTURES, Lab, append, user_line
from sessiond.adapters import adapters
from sessiond.intake.parse import Wording
from sessiond.intake.reindex import reindex
from sessiond.mask import Masker
from sessiond.model import Event, Fact, Kind
from sessiond.store import evict, fts
from sessiond.store.connect import open_reader, rows
from sessiond.store.merge import merge_frames
from sessiond.store.writer import Writer
from test_splits import JUNK, sample_lines

OWN_HOMES = {
    home: (name.removeprefix("expected_"), wanted["files"])
    for name in OWN_TESTS
    if name in ("expected_mycode", "expected_skill")
    for home, wanted in json.loads((HERE / f"{name}.json").read_text()).items()
}
NOW = datetime(2026, 12, 1, tzinfo=UTC)
LONGEST = 8 * 2**20
# Everything that is derived, without ids and revisions. Of a fork: who owns the last copied record, not which of its
# names was met last; of usage, and of those
# who wait: the event, where that did not go to its owner.
DERIVED = {
    "_event": "SELECT session_id, seq, generation_id, start, length, block, ts, kind, role, tool, summary, parent_seq,"
    " is_sidechain, is_error, is_turn, detail FROM _event ORDER BY session_id, seq",
    "_key": "SELECT hash, session_id, iif(seq IS NULL, 0, source_id), seq, target, scope FROM _key ORDER BY hash, scope",
    "_usage": "SELECT hash, session_id, source_id, scope, ts, model, input_tokens, output_tokens, cache_read_tokens,"
    " cache_write_tokens, reasoning_tokens, duration_ms,"
    " (SELECT seq FROM _event AS e WHERE e.session_id = u.session_id AND e.seq = u.seq)"
    " FROM _usage AS u ORDER BY hash, scope",
    "_fact": "SELECT * FROM _fact ORDER BY session_id, name",
    "_file": "SELECT * FROM _file ORDER BY session_id, seq, path",
    "_reject": "SELECT * FROM _reject ORDER BY generation_id, start",
    "_line_count": "SELECT * FROM _line_count ORDER BY generation_id, hash",
    "_waiting": "SELECT hash, session_id, seq, patch FROM _waiting AS w WHERE seq IS NULL"
    " OR EXISTS (SELECT 1 FROM _event AS e WHERE e.session_id = w.session_id AND e.seq = w.seq) ORDER BY 2, 1, 3, 4",
    "_generation": "SELECT * FROM _generation ORDER BY id",
    "_source": "SELECT id, session_id, path, state, generation_id, read_offset, carry, adapter_version, seed, first_ts,"
    " pending FROM _source ORDER BY id",
    "_session": "SELECT id, uid, is_sidechain, repo, domain, cwd, git_branch, model, title, task_ref, parent, "
    " fork_offset, outcome, outcome_basis, outcome_reason, started_at, ended_at, stored_at, discovered_at, ingested_at,"
    " source_gone_at, pinned, next_seq, events, turns, retries FROM _session ORDER BY id",
    "parents": "SELECT session_uid, parent_uid FROM sessions ORDER BY 1",
    "_lineage": "SELECT * FROM _lineage ORDER BY uid",
    "_frame": "SELECT generation_id, start, stop FROM _frame ORDER BY 1, 2",
}


def derived(lab) -> dict[str, list[tuple]]:
    with lab.store() as db:
        return {table: rows(db, query) for table, query in DERIVED.items()}


@contextmanager
def writing(lab):
    writer = Writer(lab.paths.store)
    writer.start()
    db = open_reader(lab.paths.store)
    try:
        yield writer, db
    finally:
        db.close()
        writer.stop()


def reindexed(lab, *uids: str, known=None, **kept) -> dict:
    wording = Wording(Masker().mask)
    with writing(lab) as (writer, db):
        return reindex(writer, db, known or adapters(), wording, LONGEST, uids or None, NOW, **kept)


def merged(lab) -> int:
    with writing(lab) as (writer, db):
        found = rows(db, "SELECT id FROM _session ORDER BY id")
        return sum(merge_frames(db, writer, row, is_final=True) for (row,) in found)


def assert_same(before: dict, after: dict) -> None:
    for table in DERIVED:
        assert after[table] == before[table], table


@pytest.mark.parametrize("home", EXPECTED)
def test_every_fixture_gives_the_same_rows_again(home, lab, fixtures):
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])
    lab.ingest()
    before = derived(lab)

    report = reindexed(lab)

    assert_same(before, derived(lab))
    assert (report["changed"], report["failed"]) == (0, [])
    assert report["sessions"] == len(before["_session"])
    assert report["events"] == len(before["_event"])


@pytest.mark.parametrize("home", EXPECTED)
def test_the_agents_files_and_small_frames_are_not_needed(home, lab, fixtures):
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])
    lab.ingest()
    for folder in home_of(lab, flavor).iterdir():
        shutil.rmtree(folder)
        folder.mkdir()
    lab.ingest()
    merged(lab)
    before = derived(lab)

    report = reindexed(lab)

    assert_same(before, derived(lab))
    assert report["changed"] == 0


@pytest.mark.parametrize("home", OWN_HOMES)
def test_mycode_and_skill_too(home, lab, fixtures):
    flavor, files = OWN_HOMES[home]
    lab.write_config('[sources.skill]\nroots = ["~/brain/sessions"]\n')
    for fixture, below in files.items():
        target = lab.user_home / (".mycode" if flavor == "mycode" else "brain/sessions") / below
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FIXTURES / fixture, target)
    lab.ingest()
    before = derived(lab)

    assert reindexed(lab)["changed"] == 0
    assert_same(before, derived(lab))


# --- sessions of several files ------------------------------------------------------------------


def agent_file(lab, name: str):
    path = lab.claude / "projects" / "-w" / "s1" / "subagents" / f"agent-{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def aside(number: int, text: str, agent: str) -> bytes:
    return user_line(number, text, uuid=f"{agent}-{number}", parentUuid=None, isSidechain=True, agentId=agent)


def tool(number: int) -> bytes:
    block = {"type": "tool_use", "id": f"t{number}", "name": "Edit", "input": {"file_path": f"/w/{number}.py"}}
    message = {"id": f"m{number}", "role": "assistant", "model": "x", "content": [block]}
    return user_line(number, type="assistant", message={**message, "usage": {"input_tokens": 3, "output_tokens": 4}})


def result(number: int, of: int) -> bytes:
    block = {"type": "tool_result", "tool_use_id": f"t{of}", "content": "no such file", "is_error": True}
    return user_line(number, message={"role": "user", "content": [block]})


NO_EVENT = b'{"type":"summary","summary":"a title","leafUuid":"none"}\n'


def write_by_turns(lab) -> None:
    """The main file and two sub-agents, each a few lines at a time."""
    main, one, two = lab.claude_file(), agent_file(lab, "one"), agent_file(lab, "two")
    for path, data in (
        (main, NO_EVENT + user_line(0, "go")),
        (two, NO_EVENT + aside(0, "second's task", "two")),
        (main, tool(1)),
        (one, aside(0, "first's task", "one") + aside(1, "first goes on", "one")),
        (main, NO_EVENT + result(2, of=1) + b"{broken\n"),
        (two, aside(1, "second goes on", "two")),
        (one, b"\0\0\0" + aside(2, "first ends", "one")),
        (main, tool(3) + result(4, of=3)),
    ):
        append(path, data)
        lab.ingest()


def test_files_written_by_turns_keep_their_turns(lab):
    write_by_turns(lab)
    before = derived(lab)
    merged(lab)
    frames = derived(lab)["_frame"]
    assert len(frames) < len(before["_frame"])

    assert reindexed(lab)["changed"] == 0

    assert_same({**before, "_frame": frames}, derived(lab))
    assert [e.summary for e in lab.events("claude:s1")][:4] == ["go", "second's task", "/w/1.py", "first's task"]


def test_content_that_was_replaced_is_replaced_again(lab):
    """Records that moved to the new content were first met in the old one: their turns are those of then."""
    write_by_turns(lab)
    main, one = lab.claude_file(), agent_file(lab, "one")
    for path, data in (
        (main, user_line(0, "go") + result(2, of=1) + user_line(7, "after a rewind")),
        (one, aside(5, "begun again", "one")),
        (main, main.read_bytes() + tool(3)),
        (main, user_line(8, "all new")),
        (one, aside(1, "first goes on", "one")),
    ):
        path.with_name("new").write_bytes(data)
        path.with_name("new").replace(path)
        lab.ingest()
    before = derived(lab)
    assert len(before["_generation"]) == 8

    assert reindexed(lab)["changed"] == 0
    assert_same(before, derived(lab))


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_what_belongs_to_other_sessions_stays_theirs(order, lab):
    """Forks of forks, in every order of arrival: seqs that went away with their events are not given again."""
    a = user_line(0, "a0", session="a") + user_line(1, "a1", session="a")
    b = user_line(5, "b starts", session="b", uuid="bs", parentUuid=None) + a + user_line(10, "b0", session="b")
    c = user_line(6, "c starts", session="c", uuid="cs", parentUuid=None) + b + user_line(20, "c0", session="c")
    contents = {"a": a, "b": b, "c": c}
    for name in order:
        lab.claude_file(name).write_bytes(contents[name])
        lab.ingest()
    before = derived(lab)

    assert reindexed(lab)["changed"] == 0
    assert_same(before, derived(lab))
    assert reindexed(lab, "claude:a")["sessions"] == 3  # what its forks copied counts for it
    assert_same(before, derived(lab))


def test_what_a_copy_adds_to_the_cost_of_its_owner_is_kept(lab):
    def answer(output: int) -> bytes:
        message = {"id": "m", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "yes"}]}
        usage = {"input_tokens": 5, "output_tokens": output}
        return user_line(1, session="a", type="assistant", message={**message, "usage": usage}, requestId="r")

    lab.claude_file("a").write_bytes(user_line(0, session="a") + answer(3))
    lab.claude_file("b").write_bytes(user_line(0, session="a") + answer(90) + user_line(9, "on", session="b"))
    lab.ingest()
    assert lab.sessions()["claude:a"].cost.output_tokens == 90

    assert reindexed(lab, "claude:a")["changed"] == 0
    assert lab.sessions()["claude:a"].cost.output_tokens == 90


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_lines_in_any_pieces(data):
    # A record stands in one file of its session: of two that both hold it, either may be where it is shown from.
    shared = [line for line in JUNK if b'"uuid"' not in line] + [NO_EVENT]
    lines = {name: [*shared, *(aside(n, f"a{n}", name) for n in range(4))] for name in ("one", "two")}
    lines["main"] = lines["new main"] = [*sample_lines("claude"), *JUNK, NO_EVENT]
    lab = Lab(Path(tempfile.mkdtemp(prefix="sd")))
    try:
        for path in data.draw(st.lists(st.sampled_from(sorted(lines)), max_size=7)):
            target = lab.claude_file() if "main" in path else agent_file(lab, path)
            if path == "new main":
                target.unlink(missing_ok=True)
            append(target, data.draw(st.lists(st.sampled_from(lines[path]), max_size=8).map(b"".join)))
            lab.ingest()
        if not lab.paths.store.exists():
            return
        merged(lab)
        before = derived(lab)
        report = reindexed(lab)
        assert_same(before, derived(lab))
        assert report["failed"] == []
    finally:
        shutil.rmtree(lab.folder)


# --- what is not in the archive -----------------------------------------------------------------


def evict_all(lab) -> None:
    with lab.upkeep() as upkeep:
        upkeep.analyze(everything=True)
        writer = upkeep._pipeline.writer
        with lab.store() as db:
            found = rows(db, "SELECT id FROM _session ORDER BY id")
        assert all(evict.let_go(writer, row, NOW, active_before="~") for (row,) in found)


def test_a_session_with_an_evicted_part_is_left_alone(lab):
    lab.claude_file().write_bytes(user_line(0) + user_line(1))
    lab.ingest()
    evict_all(lab)
    append(lab.claude_file(), user_line(2, "and on"))
    lab.ingest()
    lab.analyze()
    before, digest = derived(lab), lab.digest("claude:s1")

    report = reindexed(lab)

    assert (report["sessions"], report["skipped_evicted"]) == (0, 1)
    assert_same(before, derived(lab))
    assert lab.digest("claude:s1") == digest


def test_versions_of_a_file_that_are_not_kept_are_not_forgotten(lab):
    """state.json was active, then completed: only the latest version is archived, and both changes were seen."""
    folder = lab.home_of("hive") / "agents" / "kite" / "sessions" / "session_20260101_000000_aaaaaaaa"
    folder.mkdir(parents=True)
    for status in ("active", "paused", "completed"):
        times = {"started_at": "2026-01-01T00:00:00", "updated_at": "2026-01-01T00:00:01"}
        (folder / "state.json").write_text(json.dumps({"status": status, "timestamps": times}))
        lab.ingest()
        if status == "paused":  # as long as the first: its length does not tell
            before = derived(lab)
            assert (reindexed(lab)["skipped_rewritten"], derived(lab)) == (1, before)
    before = derived(lab)
    assert len(before["_event"]) == 3

    report = reindexed(lab)

    assert (report["sessions"], report["skipped_rewritten"]) == (0, 1)
    assert_same(before, derived(lab))


def test_a_session_whose_bytes_are_damaged_is_not_emptied(lab):
    lab.claude_file().write_bytes(user_line(0))
    lab.ingest()
    with writing(lab) as (writer, _):
        writer.call(lambda db: db.execute("DELETE FROM _frame").fetchall())
    assert reindexed(lab)["skipped_damaged"] == 1
    assert len(lab.events("claude:s1")) == 1


def test_a_session_of_an_agent_that_is_not_installed_is_left_alone(lab):
    lab.claude_file().write_bytes(user_line(0))
    lab.ingest()
    known = {flavor: adapter for flavor, adapter in adapters().items() if flavor != "claude"}
    report = reindexed(lab, known=known)
    assert (report["sessions"], report["skipped_agents"], len(lab.events("claude:s1"))) == (0, 1, 1)


def test_the_place_of_a_folder_that_is_gone_is_remembered(lab):
    """A work tree is removed when its work is done; which repository it was of cannot be found out again."""
    repo, tree = lab.folder.resolve() / "kite", lab.folder.resolve() / "tree"
    (repo / ".git" / "worktrees" / "tree").mkdir(parents=True)
    tree.mkdir()
    (repo / ".git" / "worktrees" / "tree" / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {repo}/.git/worktrees/tree\n")
    lab.claude_file().write_bytes(user_line(0, cwd=str(tree)))
    lab.ingest()
    assert lab.sessions()["claude:s1"].repo == str(repo)
    shutil.rmtree(tree)

    assert reindexed(lab)["changed"] == 0
    assert lab.sessions()["claude:s1"].repo == str(repo)


# --- an adapter that has changed ----------------------------------------------------------------


class Louder:
    """The same agent, read otherwise: summaries in capitals, an event more for every line, a fact more, and a title
    that it no longer takes from the prompt."""

    version = 77

    def __init__(self) -> None:
        self._inner = adapters()["claude"]

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def parse(self, line, carry):
        carry["louder"] = carry.get("louder", 0) + 1
        found = []
        for record in self._inner.parse(line, carry):
            if isinstance(record, Fact) and record.name == "title":
                continue
            is_event = isinstance(record, Event)
            found.append(
                replace(record, summary=record.summary.upper(), text=record.text + " shouted") if is_event else record
            )
        return [*found, Event(Kind.LIFECYCLE, ts="2026-01-02T03:00:00.000Z", summary="noted"), Fact("mood", "loud")]


def louder(lab, *uids: str) -> dict:
    return reindexed(lab, *uids, known={**adapters(), "claude": Louder()})


def test_rows_digest_and_cursor_are_those_of_the_new_reading(lab):
    write_by_turns(lab)
    lab.analyze()
    assert lab.digest("claude:s1") is not None
    before = derived(lab)

    report = louder(lab)

    events = lab.events("claude:s1")
    assert report["changed"] == 1
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert [e.summary for e in events][:4] == ["noted", "GO", "noted", "noted"]
    by_seq = {e.seq: e for e in events}
    assert {by_seq[e.parent_seq].summary for e in events if e.kind == "tool_result"} == {"/W/1.PY", "/W/3.PY"}
    session = lab.sessions()["claude:s1"]
    assert (session.title, session.events, session.state) == (None, len(events), "ingested")
    assert lab.digest("claude:s1") is None
    with lab.store() as db:
        assert rows(db, "SELECT value FROM _fact WHERE name = 'mood'") == [("loud",)]
        row = rows(db, "SELECT digested_seq, refold, analyzed_at, stale_since IS NULL FROM _session")
        assert row == [(0, 0, None, 0)]
        carries = rows(db, "SELECT member, adapter_version, carry FROM _source ORDER BY id")
        assert [(version, json.loads(carry)["louder"]) for _, version, carry in carries] == [(77, 7), (77, 3), (77, 3)]

    reindexed(lab)  # and back: each event keeps the number that it has got by now
    after = derived(lab)
    assert [row[2:11] + row[12:] for row in after["_event"]] == [row[2:11] + row[12:] for row in before["_event"]]
    assert [row[:-1] for row in after["_usage"]] == [row[:-1] for row in before["_usage"]]
    lab.analyze()
    assert lab.digest("claude:s1") is not None


def test_the_search_index_follows(lab):
    lab.claude_file().write_bytes(user_line(0, "a kite in the wind"))
    lab.ingest()
    louder(lab)
    lab.ingest()  # the index catches up

    with lab.store() as db:
        (newest,) = rows(db, "SELECT max(id) FROM _event WHERE kind = 'user_msg'")
    index = open_reader(lab.paths.search)
    try:
        assert [id_ for id_, _ in fts.matches(index, "kite", 10)] == list(newest)
        assert [id_ for id_, _ in fts.matches(index, "shouted", 10)] == list(newest)
    finally:
        index.close()


def test_what_nobody_derives_is_kept(lab):
    lab.claude_file().write_bytes(user_line(0))
    lab.ingest()
    with writing(lab) as (writer, _):
        writer.call(lambda db: db.execute("UPDATE _session SET pinned = 1").fetchall())
    before = lab.sessions()["claude:s1"]
    louder(lab)
    after = lab.sessions()["claude:s1"]
    assert (after.pinned, after.discovered_at, after.ingested_at) == (True, before.discovered_at, before.ingested_at)
    assert after.revision > before.revision


def test_lines_too_long_for_then_are_read_if_they_are_not_for_now(lab):
    lab.write_config('[limits]\nline = "1KiB"\nchunk = "1KiB"\n')
    lab.claude_file().write_bytes(
        user_line(0) + user_line(1, "long " * 800) + b"\0\0" + user_line(2, "after") + user_line(3, "x" * 900)
    )
    lab.ingest()
    before = derived(lab)
    assert [reason for *_, reason in lab.rejects()] == ["too_long", "nul", "too_long"]

    with writing(lab) as (writer, db):
        reindex(writer, db, adapters(), Wording(Masker().mask), 1024, None, NOW)
    assert_same(before, derived(lab))

    reindexed(lab)
    assert [e.summary[:5] for e in lab.events("claude:s1")] == ["hello", "long ", "after", "xxxxx"]
    assert [reason for *_, reason in lab.rejects()] == ["nul"]


def test_an_adapter_that_fails_costs_the_line_and_no_more(lab):
    lab.claude_file().write_bytes(user_line(0) + user_line(1, "poison") + user_line(2, "fine"))
    lab.ingest()

    class Failing(Louder):
        def parse(self, line, carry):
            if b"poison" in line.data:
                raise KeyError
            return self._inner.parse(line, carry)

    report = reindexed(lab, known={"claude": Failing()})
    assert (report["events"], report["failed"]) == (2, [])
    assert [reason for *_, reason in lab.rejects()] == ["adapter_error"]
    reindexed(lab)
    assert lab.rejects() == []


def test_it_stops_between_two_sessions_when_it_is_told_to(lab):
    for name in "abc":
        lab.claude_file(name).write_bytes(user_line(0, session=name))
    lab.ingest()
    asked = iter([False, True])
    report = reindexed(lab, is_stopping=lambda: next(asked))
    assert (report["sessions"], report["left"]) == (1, 2)


# --- by hand ------------------------------------------------------------------------------------


def test_by_hand_without_a_daemon(lab):
    write_by_turns(lab)
    lab.analyze()
    before, digest = derived(lab), lab.digest("claude:s1")
    said = lab.cli("reindex", "s1")
    assert (said.returncode, said.stdout) == (0, "1 session derived anew, 10 events; 0 changed\n")
    assert_same(before, derived(lab))
    assert lab.digest("claude:s1") == digest, "derived anew as well"
    told = json.loads(lab.cli("reindex", "--json").stdout)
    assert (told["sessions"], told["complete"], told["failed"]) == (1, True, [])
    assert lab.cli("reindex", "nobody").returncode == 1


def test_a_running_daemon_goes_on_with_the_new_carry(lab):
    """Its intake remembers what the lines before meant; what it remembers must be what the store says now."""
    name = "rollout-2026-01-02T03-04-05-0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
    path = lab.codex_file(name)
    head = {"timestamp": "2026-01-02T03:04:05.000Z", "type": "turn_context", "payload": {"model": "gpt-x", "cwd": "/w"}}
    started = json.dumps({**head, "type": "event_msg", "payload": {"type": "task_started"}}).encode() + b"\n"
    path.write_bytes(json.dumps(head).encode() + b"\n")
    lab.ingest()
    with writing(lab) as (writer, _):  # as an older version would have left it
        writer.call(lambda db: db.execute("UPDATE _source SET carry = x'7b7d'").fetchall())
    with lab.daemon():
        append(path, started)
        lab.ingest_through_daemon()
        assert "model" not in carry_of(lab)
        said = lab.cli("reindex")
        assert said.returncode == 0, said.stderr
        assert carry_of(lab)["model"] == "gpt-x"
        append(path, started)
        lab.ingest_through_daemon()
        assert carry_of(lab)["model"] == "gpt-x"
        assert lab.status()["paused_by"] is None


def carry_of(lab) -> dict:
    with lab.store() as db:
        return json.loads(rows(db, "SELECT carry FROM _source")[0][0])
