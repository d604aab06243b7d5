"""`forget`: no trace of a forgotten word in any file of ours, and none ever again; all else stays as it was."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import apsw
import pytest

import grok_files
from lab import append, settle, until, user_line
from sessiond.config import load as configuration
from sessiond.errors import SessiondError, UsageError
from sessiond.store import archive, deletion, forget, tombstones
from sessiond.store.connect import open_reader, rows, value
from sessiond.upkeep import Upkeep

SECRET, OTHER = "5ec2e700-0000-4000-8000-000000000001", "07e20000-0000-4000-8000-000000000002"
UID = f"claude:{SECRET}"
# One for each place that a word of a session may get to.
WORDS = (
    "azquuxprompt", "bzquuxoutput", "czquuxpath", "dzquuxcwd", "ezquuxtitle", "fzquuxbranch",
    "gzquuxpending", "hzquuxreject", "izquuxside", "jzquuxerror", "kzquuxcommand", "lzquuxanswer",
    "mzquuxslug", "nzquuxmeta",
)  # fmt: skip


# --- a session with a word in every place -------------------------------------------------------


def line(session: str, number: int, **fields) -> bytes:
    return user_line(number, session=session, **fields)


def says(session: str, number: int, *blocks: dict, **fields) -> bytes:
    message = {
        "id": f"m-{session}-{number}", "role": "assistant", "model": "claude-opus-4-7", "content": list(blocks),
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip
    return line(session, number, type="assistant", message=message, **fields)


def result(session: str, number: int, call: str, text: str, *, is_error: bool = False, **fields) -> bytes:
    block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
    return line(session, number, message={"role": "user", "content": [block]}, **fields)


def write_secret(lab) -> list:
    """Every word of WORDS, in one session with a sub-agent's file beside it. Returns its files."""
    common = {"cwd": "/srv/dzquuxcwd", "gitBranch": "fzquuxbranch"}
    edit = {"type": "tool_use", "id": "c1", "name": "Edit",
            "input": {"file_path": "/srv/czquuxpath.py", "old_string": "a", "new_string": "b"}}  # fmt: skip
    shell = {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": "make kzquuxcommand"}}
    path = lab.claude_file(SECRET, slug="-srv-mzquuxslug")
    path.write_bytes(
        user_line(0, "please azquuxprompt", session=SECRET, **common)
        + says(SECRET, 1, edit, **common)
        + result(SECRET, 2, "c1", "done: bzquuxoutput", **common)
        + says(SECRET, 3, shell, **common)
        + result(SECRET, 4, "c2", "ValueError: jzquuxerror", is_error=True, **common)
        + b'{"hzquuxreject": \n'
        + says(SECRET, 5, {"type": "text", "text": "here is lzquuxanswer"}, **common)
        + json.dumps({"type": "custom-title", "customTitle": "on ezquuxtitle", "sessionId": SECRET}).encode()
        + b"\n"
        + b'{"type": "user", "message": "gzquuxpending'
    )
    side = path.parent / SECRET / "subagents" / "agent-a1.jsonl"
    side.parent.mkdir(parents=True)
    side.write_bytes(user_line(0, "find izquuxside", session=SECRET, isSidechain=True, agentId="a1", **common))
    meta = side.with_name("agent-a1.meta.json")
    meta.write_bytes(json.dumps({"agentType": "Explore", "description": "nzquuxmeta"}).encode())
    return [path, side, meta]


def write_other(lab, session: str = OTHER, lines: int = 20) -> bytes:
    path = lab.claude_file(session, slug="-srv-public")
    common = {"session": session, "cwd": "/srv/public"}
    path.write_bytes(b"".join(user_line(n, f"ordinary words {n}", **common) for n in range(lines)))
    return path.read_bytes()


# --- looking ------------------------------------------------------------------------------------


def traces(lab, words=WORDS) -> dict[str, list[str]]:
    """Word -> the files of ours that hold it: as bytes, or in anything in them that zstd can read."""
    found: dict[str, list[str]] = {}
    for folder in (lab.paths.state_dir, lab.paths.runtime_dir):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_socket():
                data = read_bytes(path)
                for text in (data, *unpacked(data)):
                    for word in words:
                        if word.encode()[2:] in text:  # FTS5 leaves out what a term shares with the one before it
                            found.setdefault(word, []).append(path.name)
    return found


def read_bytes(path) -> bytes:
    # By another process: closing a database's file here would drop the locks that SQLite holds on it in this one.
    return subprocess.run(["cat", str(path)], capture_output=True, check=True).stdout


def unpacked(data: bytes):
    at = -1
    while (at := data.find(b"\x28\xb5\x2f\xfd", at + 1)) >= 0:
        decompressor = archive.zstd.ZstdDecompressor()
        try:
            yield decompressor.decompress(data[at : at + 2**21])
        except archive.zstd.ZstdError:
            continue  # not a frame after all, or cut off by the end of its page


@contextmanager
def working(lab, *, reads: bool = False):
    """The stages of a daemon in this process, and what people ask of it."""
    pipeline = lab.pipeline()
    pipeline.start() if reads else pipeline.start_store()
    try:
        config = configuration.load(None, lab.env, {"claude"}, system_dir=lab.folder / "etc").config
        yield pipeline, Upkeep(lambda: config, lab.paths, pipeline, lab.troubles)
    finally:
        pipeline.stop()


def analyzed(lab) -> None:
    with working(lab) as (_, upkeep):
        assert upkeep.do("analyze", {})["failed"] == []


def searched(lab, word: str) -> list[str]:
    return sorted({hit["session_uid"] for hit in json.loads(lab.cli("search", word, "--json").stdout)})


def forgotten(lab, *uids: str) -> dict:
    with working(lab) as (_, upkeep):
        return upkeep.do("forget", {"uids": list(uids)})


# --- no trace -----------------------------------------------------------------------------------


def test_every_word_is_in_our_files_before_it_is_forgotten(lab):
    """Else the tests below would show nothing."""
    write_secret(lab)
    lab.ingest()
    analyzed(lab)

    assert set(traces(lab)) == set(WORDS)


def test_no_word_of_a_forgotten_session_is_in_any_file_of_ours(lab):
    write_secret(lab)
    before = write_other(lab)
    lab.ingest()
    analyzed(lab)

    report = forgotten(lab, UID)

    assert traces(lab) == {}
    assert report["forgotten"] == [UID]
    assert list(lab.sessions()) == [f"claude:{OTHER}"]
    assert lab.archived(lab.claude_file(OTHER, slug="-srv-public")) == before


def test_no_trace_while_the_daemon_runs_and_none_in_its_log(lab):
    files = write_secret(lab)
    before = write_other(lab)
    with lab.daemon(config="[log]\nlevel = 'debug'\n"):
        lab.ingest_through_daemon()
        assert lab.cli("analyze").returncode == 0
        assert set(traces(lab)) == set(WORDS)

        done = lab.cli("forget", SECRET[:8], "--yes")

        assert done.returncode == 0, done.stderr
        assert "1 session forgotten" in done.stdout
        assert traces(lab) == {}
        for path in files:  # later appends, at once and after a restart, bring nothing back
            append(path, line(SECRET, 50, cwd="/srv/dzquuxcwd"))
        lab.ingest_through_daemon()
        assert traces(lab) == {}
        assert list(lab.sessions()) == [f"claude:{OTHER}"]
        assert lab.status()["degraded"] == []
    with lab.daemon():
        lab.ingest_through_daemon()
    assert traces(lab) == {}
    assert not any(word in (lab.folder / "daemon.log").read_text() for word in WORDS)
    restored = lab.folder / "back"
    assert lab.cli("restore", OTHER, "--to", str(restored)).returncode == 0
    assert (restored / "projects" / "-srv-public" / f"{OTHER}.jsonl").read_bytes() == before
    assert searched(lab, "ordinary") == [f"claude:{OTHER}"]


def test_no_trace_in_a_store_with_many_sessions(lab):
    chance = random.Random(7)
    sessions = [f"{n:08x}-0000-4000-8000-000000000000" for n in range(9)]
    for number in range(120):
        for session in sessions:
            word = "azquuxprompt" if session == sessions[4] else "ordinary"
            text = " ".join([word] * chance.randrange(1, 60))
            edit = {"file_path": f"/{word}/{chance.random()}", "old_string": text, "new_string": ""}
            block = {"type": "tool_use", "id": f"c{session}{number}", "name": "Edit", "input": edit}
            path = lab.claude_file(session, slug="-srv-all")
            append(path, says(session, number, {"type": "text", "text": text}, block))
        if number % 20 == 0:
            lab.ingest()
    lab.ingest()
    analyzed(lab)
    assert traces(lab, ("azquuxprompt",))

    forgotten(lab, f"claude:{sessions[4]}")

    assert traces(lab, ("azquuxprompt",)) == {}
    assert_whole(lab)
    assert len(searched(lab, "ordinary")) == 8


def test_no_trace_in_the_unused_room_of_pages(lab):
    """Rows that SQLite moves from page to page leave copies there, which `secure_delete` does not reach."""
    write_secret(lab)
    before = write_other(lab, lines=300)
    lab.ingest()
    analyzed(lab)
    planted = [plant(path, b"ozquuxgap") for path in (lab.paths.store, lab.paths.search)]
    assert min(planted) > 5

    forgotten(lab, UID)

    assert traces(lab, (*WORDS, "ozquuxgap")) == {}
    assert_whole(lab)
    assert lab.archived(lab.claude_file(OTHER, slug="-srv-public")) == before
    assert searched(lab, "ordinary") == [f"claude:{OTHER}"]


def plant(path, word: bytes) -> int:
    """Put a word into the unused room of every page of rows that has any; how many there are."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    planted = 0
    for start in range(2 * size, len(data), size):  # the second page is the map of the others
        header = {5: 12, 2: 12, 13: 8, 10: 8}.get(data[start])
        cells, content = (int.from_bytes(data[start + at : start + at + 2], "big") for at in (3, 5))
        first = header and header + 2 * cells
        if (
            header
            and 0 < content <= size
            and content - first >= len(word)
            and not any(data[start + first : start + content])
        ):
            data[start + content - len(word) : start + content] = word
            planted += 1
    path.write_bytes(data)
    return planted


def assert_whole(lab) -> None:
    for path in (lab.paths.store, lab.paths.search):
        db = open_reader(path)
        assert value(db, "PRAGMA integrity_check") == "ok"
        db.close()


def test_no_trace_in_what_the_index_has_taken_in_but_could_not_trim(lab, monkeypatch):
    def full(*_):
        raise apsw.FullError

    monkeypatch.setattr("sessiond.store.search._trim", full)
    write_secret(lab)
    lab.ingest()
    with lab.store() as db:
        assert value(db, "SELECT count(*) FROM _outbox")

    forgotten(lab, UID)

    assert traces(lab) == {}


def test_every_table_that_hangs_on_a_session_is_emptied(lab):
    write_secret(lab)
    lab.ingest()
    analyzed(lab)

    forgotten(lab, UID)

    with lab.store() as db:
        tables = [name for (name,) in rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        left = {name: value(db, f"SELECT count(*) FROM {name}") for name in tables}
        hanging = {
            name
            for name in tables
            for (_, column, *_) in rows(db, f"PRAGMA table_info({name})")
            if column in ("session_id", "source_id", "generation_id")
        }
    kept = {"_meta", "_counter", "_tombstone", "_pass", "_unknown", "sqlite_sequence"}
    assert {name for name, count in left.items() if count} <= kept
    known = {*deletion.OF_SESSION, *deletion.OF_GENERATION, "_key", "_event", "_frame", "_source", "_generation"}
    assert hanging == known  # a new table must be emptied too: add it to store/deletion.py


def test_tombstones_are_keyed_hashes_and_nothing_else(lab):
    write_secret(lab)
    lab.ingest()
    forgotten(lab, UID)

    with lab.store() as db:
        hashes = [row[0] for row in rows(db, "SELECT hash FROM _tombstone")]
        key = value(db, "SELECT value FROM _meta WHERE name = 'tombstone_key'")
    assert len(hashes) == 4  # the uid and three files
    assert {len(each) for each in hashes} == {16}
    assert len(bytes.fromhex(key)) == 32
    assert b"5ec2e700" not in b"".join(read_bytes(path) for path in lab.paths.state_dir.iterdir() if path.is_file())


# --- and none ever again ------------------------------------------------------------------------


def test_a_forgotten_session_stays_forgotten_wherever_its_file_turns_up(lab):
    path, *_ = write_secret(lab)
    lab.ingest()
    forgotten(lab, UID)
    append(path, line(SECRET, 60, cwd="/srv/dzquuxcwd"))
    elsewhere = lab.claude_file(SECRET, slug="-srv-copied")
    shutil.copy(path, elsewhere)
    lab.ingest()
    assert lab.sessions() == {}

    path.rename(lab.claude_file(SECRET, slug="-srv-moved"))
    elsewhere.write_bytes(line(SECRET, 0) * 2)  # replaced
    side = path.parent / SECRET / "subagents" / "agent-a2.jsonl"
    side.write_bytes(user_line(0, "izquuxside again", session=SECRET, isSidechain=True, agentId="a2"))
    lab.ingest()
    analyzed(lab)

    assert traces(lab) == {}
    with lab.store() as db:
        assert rows(db, "SELECT path FROM _source") == []


def test_files_of_the_session_that_nobody_claimed_are_forgotten_with_it(lab):
    """Their rows hold nothing but a path, and that may say enough."""
    folder = grok_files.folder(lab, group="%2Fsrv%2Fdzquuxcwd")
    (folder / "updates.jsonl").write_bytes(grok_files.prompt("azquuxprompt", 0))
    chat = folder / "chat_history.jsonl"  # read only where there are no updates
    chat.write_bytes(b'{"type":"assistant","content":"bzquuxoutput"}\n')
    lab.ingest()
    with lab.store() as db:
        assert rows(db, "SELECT state FROM _source ORDER BY state") == [("foreign",), ("live",)]

    forgotten(lab, f"grok:{grok_files.PARENT}")
    assert traces(lab) == {}

    shutil.copytree(folder, lab.grok / "sessions" / "%2Fsrv%2Fczquuxpath" / folder.name)
    lab.ingest()
    assert traces(lab) == {}
    with lab.store() as db:
        assert rows(db, "SELECT path FROM _source") == []


def test_a_running_intake_drops_what_it_remembers(lab):
    path, *_ = write_secret(lab)
    write_other(lab)
    with working(lab, reads=True) as (pipeline, upkeep):
        settle(pipeline)
        register = pipeline.loop._ingest._register
        assert str(path) in register._kept
        upkeep.do("forget", {"uids": [UID]})
        until(lambda: str(path) not in register._kept)
        append(path, line(SECRET, 61, cwd="/srv/dzquuxcwd"))
        settle(pipeline)
        assert register.find(str(path)) is None
        append(lab.claude_file(OTHER, slug="-srv-public"), user_line(99, "goes on", session=OTHER))
        settle(pipeline)

        assert list(lab.sessions()) == [f"claude:{OTHER}"]
        assert lab.troubles.listing() == []
        assert lab.events(f"claude:{OTHER}")[-1].summary == "goes on"
    assert traces(lab) == {}


def test_a_chunk_in_flight_does_not_bring_a_session_back(lab, monkeypatch):
    """It was read before the session was forgotten, and is to be written after: the register could not know."""
    path, *_ = write_secret(lab)
    write_other(lab)
    monkeypatch.setattr(tombstones, "is_path_forgotten", lambda *_: False)
    monkeypatch.setattr(tombstones, "is_any_forgotten", lambda *_: False)
    with working(lab, reads=True) as (pipeline, upkeep):
        settle(pipeline)
        forget.forget(pipeline.writer, pipeline.search, lab.paths, [UID])  # intake is not told
        append(path, line(SECRET, 62, cwd="/srv/dzquuxcwd"))
        append(lab.claude_file(OTHER, slug="-srv-public"), user_line(99, "in the same transaction", session=OTHER))
        settle(pipeline)

        assert list(lab.sessions()) == [f"claude:{OTHER}"]
        assert lab.events(f"claude:{OTHER}")[-1].summary == "in the same transaction"
        assert lab.troubles.listing() == []
        del upkeep
    assert traces(lab) == {}


def test_a_file_in_the_place_of_a_forgotten_one_is_left_alone(lab):
    forgotten_id = write_codex(lab, 1, None, "azquuxprompt")
    lab.ingest()
    forgotten(lab, f"codex:{forgotten_id}")
    path = lab.codex_file(f"rollout-2026-01-02T03-04-05-{forgotten_id}")
    path.write_bytes(codex_lines("00000009-0000-7000-8000-000000000000", None, "bzquuxoutput"))

    lab.ingest()
    with working(lab) as (pipeline, _):
        assert pipeline.loop._ingest._register.find(str(path)) is None  # not even read

    assert lab.sessions() == {}
    assert traces(lab) == {}


def codex_lines(uid: str, parent: str | None, text: str) -> bytes:
    spawn = {"source": {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}}} if parent else {}
    meta = {"id": uid, "timestamp": "2026-01-02T03:04:05.000Z", "cwd": "/w", "originator": "x", "cli_version": "0.9",
            "source": "cli", **spawn}  # fmt: skip
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    records = [
        ("session_meta", meta),
        ("response_item", said),
        ("event_msg", {"type": "user_message", "message": text}),
    ]
    return b"".join(
        json.dumps({"timestamp": f"2026-01-02T03:04:0{n}.000Z", "type": kind, "payload": payload}).encode() + b"\n"
        for n, (kind, payload) in enumerate(records)
    )


def write_codex(lab, number: int, parent: str | None, text: str) -> str:
    uid = f"0000000{number}-0000-7000-8000-000000000000"
    lab.codex_file(f"rollout-2026-01-02T03-04-05-{uid}").write_bytes(codex_lines(uid, parent, text))
    return uid


def test_sub_agents_go_with_their_session_also_those_that_come_later(lab):
    parent = write_codex(lab, 1, None, "azquuxprompt")
    write_codex(lab, 2, parent, "izquuxside")
    lab.ingest()
    assert len(lab.sessions()) == 2

    report = forgotten(lab, f"codex:{parent}")
    write_codex(lab, 3, parent, "nzquuxmeta")
    lab.ingest()
    lab.ingest()

    assert sorted(report["forgotten"]) == [f"codex:0000000{n}-0000-7000-8000-000000000000" for n in (1, 2)]
    assert lab.sessions() == {}
    assert traces(lab) == {}


def test_forks_that_repeat_it_are_named_and_stay(lab):
    base, fork, far = "base0000", "fork0000", "far00000"
    shared = b"".join(user_line(n, f"shared {n}", session=base) for n in range(3))
    lab.claude_file(base).write_bytes(shared)
    copied = shared.replace(b'"sessionId": "base0000"', b'"sessionId": "fork0000"')
    lab.claude_file(fork).write_bytes(copied + user_line(9, "own", session=fork))
    lab.claude_file(far).write_bytes(user_line(0, "nothing in common", session=far))
    lab.ingest()

    report = forgotten(lab, f"claude:{base}")

    assert report["also_held_by"] == [f"claude:{fork}"]
    assert sorted(lab.sessions()) == [f"claude:{far}", f"claude:{fork}"]
    assert lab.archived(lab.claude_file(fork)) == lab.claude_file(fork).read_bytes()


# --- stopped half-way ---------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3, 5, 8, 12, 20])
def test_a_kill_half_way_leaves_it_forgotten_and_the_rest_is_finished(lab, step):
    """A process that ends without warning after so many of the writer's steps."""
    write_secret(lab)
    write_other(lab)
    lab.ingest()
    analyzed(lab)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(lab.folder), UID, str(step)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL

    with working(lab) as (pipeline, _):
        resumed = forget.resume_forgetting(pipeline.writer, pipeline.search, lab.paths)
        again = forget.resume_forgetting(pipeline.writer, pipeline.search, lab.paths)
    lab.ingest()

    assert resumed is not None
    assert again is None
    assert traces(lab) == {}
    assert list(lab.sessions()) == [f"claude:{OTHER}"]


KILLED = """
import os, signal, sys
from pathlib import Path
from lab import Lab
from sessiond.store import forget, writer
lab = Lab(Path(sys.argv[1]))
pipeline = lab.pipeline()
pipeline.start_store()
left = [int(sys.argv[3])]
real = writer.Writer.call
def call(self, run):
    answer = real(self, run)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
writer.Writer.call = call
forget.forget(pipeline.writer, pipeline.search, lab.paths, [sys.argv[2]])
"""


def test_a_kill_leaves_the_sessions_files_alone_even_before_it_is_finished(lab):
    write_secret(lab)
    lab.ingest()
    with working(lab) as (pipeline, _):
        pipeline.writer.call(lambda db: forget._bury(db, [UID], datetime.now(UTC)))
    before = lab.events(UID)
    append(lab.claude_file(SECRET, slug="-srv-mzquuxslug"), b'"}\n' + line(SECRET, 63))

    lab.ingest()

    assert lab.events(UID) == before


def test_a_reader_in_the_way_is_told_of_and_the_rest_done_later(lab, monkeypatch):
    monkeypatch.setattr(forget, "WIPE_TRIES", 1)
    monkeypatch.setattr("sessiond.store.space.CHECKPOINT_TRIES", 1)
    write_secret(lab)
    lab.ingest()
    with working(lab) as (pipeline, upkeep):
        db = open_reader(lab.paths.store)
        db.execute("BEGIN")
        rows(db, "SELECT count(*) FROM _event")
        with pytest.raises(SessiondError, match="another program reads the store"):
            upkeep.do("forget", {"uids": [UID]})
        db.execute("ROLLBACK")
        db.close()
        assert forget.resume_forgetting(pipeline.writer, pipeline.search, lab.paths) is not None
        assert traces(lab) == {}


# --- copies of the store ------------------------------------------------------------------------


def test_copies_from_before_an_upgrade_go_and_damaged_ones_are_named(lab):
    write_secret(lab)
    lab.ingest()
    copy = lab.paths.store.with_name("store.db.before-schema-2")
    damaged = lab.paths.store.with_name("store.db.damaged-20260102T030405Z")
    shutil.copy(lab.paths.store, copy)
    damaged.write_bytes(b"azquuxprompt")
    damaged.with_name(damaged.name + "-wal").write_bytes(b"")

    done = lab.cli("forget", UID, "--yes")

    assert done.returncode == 0, done.stderr
    assert not copy.exists()
    assert damaged.exists()
    assert f"rm {damaged}*" in done.stderr
    assert traces(lab) == {"azquuxprompt": [damaged.name]}


# --- not in the way -----------------------------------------------------------------------------


def test_no_step_holds_up_the_writer(lab):
    """Most within a few milliseconds; the bound is generous, for a machine that others use too."""
    path = lab.claude_file(SECRET)
    path.write_bytes(b"".join(user_line(n, f"{n} " * 300, session=SECRET) for n in range(6000)))
    lab.ingest()
    took: list[float] = []
    with working(lab) as (pipeline, upkeep):
        real = pipeline.writer._answer

        def timed(call):
            began = time.monotonic()
            real(call)
            took.append(time.monotonic() - began)

        pipeline.writer._answer = timed
        upkeep.do("forget", {"uids": [UID]})

    assert len(took) > 60  # some 400 rows each
    assert sorted(took)[len(took) * 9 // 10] < 0.05
    assert max(took) < 0.2


# --- the verb -----------------------------------------------------------------------------------


def test_it_lists_and_refuses_without_a_terminal_unless_told(lab):
    write_secret(lab)
    lab.ingest()

    asked = lab.cli("forget", SECRET[:6], stdin=subprocess.DEVNULL)

    assert asked.returncode == 2
    assert UID in asked.stdout
    assert "--yes" in asked.stderr
    assert UID in lab.sessions()


def test_a_dry_run_changes_nothing(lab):
    write_secret(lab)
    lab.ingest()

    done = lab.cli("forget", "--repo", "dzquuxcwd", "--dry-run", "--json")

    told = json.loads(done.stdout)
    assert [each["session_uid"] for each in told["sessions"]] == [UID]
    assert told["bytes"] == sum(each["bytes"] for each in told["sessions"]) > 0
    assert UID in lab.sessions()
    with lab.store() as db:
        assert rows(db, "SELECT * FROM _tombstone") == []


@pytest.mark.parametrize("words", [(), ("--yes",), (SECRET, "--repo", "x")])
def test_without_a_name_nothing_is_meant(lab, words):
    write_secret(lab)
    lab.ingest()

    done = lab.cli("forget", *words)

    assert done.returncode == 2
    assert UID in lab.sessions()


def test_until_goes_by_the_last_activity_and_pinned_sessions_stay(lab):
    for name, month, pinned in (("old00000", "01", False), ("new00000", "05", False), ("keep0000", "01", True)):
        first = user_line(0, session=name, timestamp="2025-01-01T00:00:00.000Z")
        last = user_line(1, session=name, timestamp=f"2025-{month}-01T00:00:00.000Z")
        lab.claude_file(name).write_bytes(first + last)
        lab.ingest()
        if pinned:
            assert lab.cli("pin", name).returncode == 0

    done = lab.cli("forget", "--until", "2025-03-01", "--yes", "--json")

    assert json.loads(done.stdout)["forgotten"] == ["claude:old00000"]
    assert "1 pinned session stay" in done.stderr
    assert sorted(lab.sessions()) == ["claude:keep0000", "claude:new00000"]


def test_an_unknown_uid_forgets_nothing_of_the_others(lab):
    write_secret(lab)
    lab.ingest()
    with working(lab) as (_, upkeep):
        with pytest.raises(SessiondError, match="no session"):
            upkeep.do("forget", {"uids": [UID, "claude:nobody"]})
        with pytest.raises(UsageError):
            upkeep.do("forget", {"uids": []})

    assert UID in lab.sessions()
    with lab.store() as db:
        assert rows(db, "SELECT * FROM _tombstone") == []


def test_it_asks_on_a_terminal_and_no_means_no(lab):
    write_secret(lab)
    lab.ingest()

    said = on_a_terminal(lab, "forget", SECRET, answer=b"n\n")

    assert "[y/N]" in said
    assert "nothing was forgotten" in said
    assert UID in lab.sessions()

    on_a_terminal(lab, "forget", SECRET, answer=b"y\n")
    assert lab.sessions() == {}


def on_a_terminal(lab, *words: str, answer: bytes) -> str:
    near, far = os.openpty()
    env = {**lab.env, "TERM": "dumb"}
    process = subprocess.Popen([sys.executable, "-m", "sessiond", *words], stdin=far, stdout=far, stderr=far, env=env)
    os.close(far)
    os.write(near, answer)
    said = b""
    while True:
        try:
            piece = os.read(near, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    process.wait(30)
    os.close(near)
    return said.decode()


def test_status_counts_it_no_more(lab):
    write_secret(lab)
    write_other(lab)
    with lab.daemon():
        lab.ingest_through_daemon()
        assert lab.cli("forget", UID, "--yes").returncode == 0
        until(lambda: lab.status()["sessions"]["total"] == 1)
        assert lab.status()["sources"]["files"] == 1
