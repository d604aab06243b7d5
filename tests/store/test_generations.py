"""A file that is rewritten, replaced, moved, copied, linked or removed: what its rows and bytes become."""

from __future__ import annotations

import os
import shutil

import pytest

from lab import append, user_line
from sessiond.store import restore
from sessiond.store.connect import rows


def summaries(lab, uid="claude:s1", **wanted) -> list[str]:
    return [event.summary for event in lab.events(uid, **wanted)]


def test_record_seen_again_is_moved_and_the_others_are_superseded(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0, "keep") + user_line(1, "drop"))
    lab.ingest()
    before = {event.summary: event.seq for event in lab.events("claude:s1")}

    path.write_bytes(user_line(0, "keep") + user_line(2, "new") + user_line(3, "newer"))
    lab.ingest()

    assert summaries(lab) == ["keep", "new", "newer"]
    assert sorted(summaries(lab, superseded=True)) == ["drop", "keep", "new", "newer"]
    assert next(e.seq for e in lab.events("claude:s1") if e.summary == "keep") == before["keep"]
    assert lab.archived(path) == path.read_bytes()
    with lab.store() as db:  # the old content is still there to be restored
        (part,) = restore.plan(db, "claude:s1", generation=1)
        restore.write(db, [part], lab.folder / "old")
        assert (lab.folder / "old" / part.below).read_bytes() == user_line(0, "keep") + user_line(1, "drop")


def test_superseded_record_that_comes_back_is_live_again(lab):
    path = lab.claude_file()
    first = user_line(0, "a") + user_line(1, "b")
    path.write_bytes(first)
    lab.ingest()
    path.write_bytes(user_line(5, "c"))
    lab.ingest()
    assert summaries(lab) == ["c"]
    path.write_bytes(first)
    lab.ingest()
    assert summaries(lab) == ["a", "b"]
    assert len(summaries(lab, superseded=True)) == 3


def test_cost_of_superseded_records_is_kept(lab):
    path = lab.claude_file()
    spent = {"type": "assistant", "requestId": "r1"}
    message = {
        "id": "m1", "role": "assistant", "model": "claude-x", "content": [{"type": "text", "text": "done"}],
        "usage": {"input_tokens": 10, "output_tokens": 4},
    }  # fmt: skip
    path.write_bytes(user_line(0) + user_line(1, **spent, message=message))
    lab.ingest()
    path.write_bytes(user_line(9, "fresh start"))
    lab.ingest()
    assert lab.sessions()["claude:s1"].cost.output_tokens == 4


def test_renamed_file_keeps_its_cursor(lab):
    """Row 19, stopped: the path is new, nothing is read again."""
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    moved = lab.claude_file("renamed")
    path.rename(moved)
    append(moved, user_line(1, "after the move"))
    result = lab.ingest()
    assert (result["lines"], result["sessions"]) == (1, 1)
    assert summaries(lab) == ["hello", "after the move"]
    with lab.store() as db:
        assert rows(db, "SELECT path, state FROM _source") == [(os.fsencode(moved), "live")]


def test_copy_is_a_session_of_its_own_whose_records_are_replays(lab):
    """Row 21: both are read, each line is kept for each file, and nothing is counted twice."""
    path, copy = lab.claude_file("a1"), lab.claude_file("b2")
    path.write_bytes(user_line(0, session="a1") + user_line(1, session="a1"))
    shutil.copyfile(path, copy)
    for each, text in ((path, "mine"), (copy, "yours")):
        append(each, user_line(2, text, session="a1", uuid=f"own-{text}"))
    lab.ingest()
    assert summaries(lab, "claude:a1") == ["hello", "hello", "mine"]
    assert summaries(lab, "claude:b2") == ["yours"]
    assert lab.sessions()["claude:b2"].parent_uid == "claude:a1"
    assert lab.archived(copy) == copy.read_bytes()
    assert lab.archived(path) == path.read_bytes()


def test_hard_link_is_read_once(lab):
    """Row 25."""
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    os.link(path, lab.claude_file("second-name"))
    assert lab.ingest()["lines"] == 0
    assert list(lab.sessions()) == ["claude:s1"]
    path.unlink()  # now the second name is the file's only one
    lab.ingest()
    append(lab.claude_file("second-name"), user_line(1, "goes on"))
    lab.ingest()
    assert summaries(lab) == ["hello", "goes on"]


@pytest.mark.fault(2)
def test_source_that_goes_away_leaves_its_rows_and_its_tail(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0) + b'{"unfinished')
    lab.ingest()
    path.unlink()
    lab.ingest()
    session = lab.sessions()["claude:s1"]
    assert session.source_gone_at is not None
    assert summaries(lab) == ["hello"]
    assert lab.archived(path) == user_line(0) + b'{"unfinished'
    assert [reason for *_, reason in lab.rejects()] == ["unterminated"]

    path.write_bytes(user_line(0) + b'{"unfinished": 1}\n' + user_line(1, "back"))
    lab.ingest()
    assert summaries(lab) == ["hello", "back"]
    assert lab.rejects() == []
    assert lab.sessions()["claude:s1"].source_gone_at is None
    assert lab.archived(path) == path.read_bytes()


def test_absent_root_is_no_deletion(lab):
    """Rule 12: not seen is not deleted."""
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    lab.claude.rename(lab.user_home / "elsewhere")
    lab.ingest()
    assert lab.sessions()["claude:s1"].source_gone_at is None
    (lab.user_home / "elsewhere").rename(lab.claude)
    assert lab.ingest()["lines"] == 0


def test_touch_writes_nothing(lab):
    """Row 29."""
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    with lab.store() as db:
        before = rows(db, "SELECT * FROM _source")
    os.utime(path)
    lab.ingest()
    with lab.store() as db:
        assert rows(db, "SELECT * FROM _source") == before


@pytest.mark.fault(15)
def test_codex_rollout_compressed_and_back_is_one_session(lab):
    """Archived, compressed, decompressed: the same thread each time, and never read twice."""
    from sessiond.store.archive import zstd

    name = "rollout-2026-01-02T03-04-05-0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
    line = b'{"timestamp":"2026-01-02T03:04:05.000Z","type":"event_msg","payload":{"type":"user_message","message":"%s"}}\n'
    plain = lab.codex_file(name)
    plain.write_bytes(line % b"one")
    lab.ingest()
    archived = lab.codex / "archived_sessions" / plain.name
    archived.parent.mkdir()
    plain.rename(archived)
    assert lab.ingest()["lines"] == 0
    packed = archived.with_name(archived.name + ".zst")
    packed.write_bytes(zstd.compress(archived.read_bytes()))
    assert lab.ingest()["lines"] == 0  # both are there: plain wins
    archived.unlink()
    assert lab.ingest()["lines"] == 0
    plain.write_bytes(line % b"one" + line % b"two")
    packed.unlink()
    assert lab.ingest()["lines"] == 1
    uid = "codex:0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
    assert list(lab.sessions()) == [uid]
    assert [e.summary for e in lab.events(uid) if e.kind == "user_msg"] == ["one", "two"]


def test_empty_file_says_later_what_it_is(lab):
    """A sub-agent's file may be seen before its first line, which is where it says so."""
    name = "rollout-2026-01-02T03-04-05-0190aaaa-bbbb-7ccc-8ddd-000000000002"
    path = lab.codex_file(name)
    path.touch()
    lab.ingest()
    assert [s.is_sidechain for s in lab.sessions().values()] == [False]
    meta = b'{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"0190aaaa-bbbb-7ccc-8ddd-000000000002","cwd":"/w","source":{"subagent":{"thread_spawn":{"parent_thread_id":"p","depth":1}}}}}\n'
    append(path, meta[:40])
    lab.ingest()
    append(path, meta[40:])
    lab.ingest()
    (session,) = lab.sessions().values()
    assert (session.is_sidechain, session.parent_uid, session.events) == (True, "codex:p", 1)
