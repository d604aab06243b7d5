"""[privacy] exclude is decided before the first byte is stored."""

from __future__ import annotations

import os

from lab import append, user_line
from sessiond.store.connect import rows


def everything_stored(lab) -> bytes:
    """Every byte of every file of ours."""
    return b"".join(path.read_bytes() for path in lab.paths.state_dir.rglob("*") if path.is_file())


def test_nothing_of_an_excluded_folder_is_stored(lab):
    lab.write_config('[privacy]\nexclude = ["/secret/**"]\n')
    lab.claude_file("open").write_bytes(user_line(0, "visible", session="open", cwd="/w"))
    lab.claude_file("shut").write_bytes(user_line(0, "XyzzyPlugh", session="shut", cwd="/secret/plans"))
    lab.ingest()
    assert list(lab.sessions()) == ["claude:open"]
    assert b"XyzzyPlugh" not in everything_stored(lab)
    with lab.store() as db:
        assert rows(db, "SELECT state, carry FROM _source WHERE CAST(path AS TEXT) LIKE '%shut%'") == [
            ("excluded", b"{}")
        ]


def test_file_waits_while_its_folder_is_not_known(lab):
    """The first lines of some files name no folder: nothing is committed until one does."""
    lab.write_config('[privacy]\nexclude = ["/secret"]\n')
    path = lab.claude_file("late")
    path.write_bytes(b'{"type":"summary","summary":"XyzzyPlugh","leafUuid":"x"}\n')
    lab.ingest()
    assert lab.sessions() == {}
    append(path, user_line(0, "more", session="late", cwd="/secret"))
    lab.ingest()
    assert lab.sessions() == {}
    assert b"XyzzyPlugh" not in everything_stored(lab)


def test_what_was_written_while_a_rule_held_stays_out(lab):
    lab.write_config('[privacy]\nexclude = ["/secret"]\n')
    path = lab.claude_file("s1")
    path.write_bytes(user_line(0, "XyzzyPlugh", cwd="/secret"))
    lab.ingest()
    lab.write_config("")
    lab.ingest()
    append(path, user_line(1, "later", cwd="/secret"))
    lab.ingest()
    assert [event.summary for event in lab.events("claude:s1")] == ["later"]
    assert b"XyzzyPlugh" not in everything_stored(lab)


def test_rule_that_comes_later_stops_what_follows(lab):
    path = lab.claude_file("s1")
    path.write_bytes(user_line(0, "before", cwd="/secret"))
    lab.ingest()
    lab.write_config('[privacy]\nexclude = ["/secret"]\n')
    append(path, user_line(1, "XyzzyPlugh", cwd="/secret"))
    lab.ingest()
    assert [event.summary for event in lab.events("claude:s1")] == ["before"]
    assert b"XyzzyPlugh" not in everything_stored(lab)


def test_secrets_are_masked_in_what_people_see_and_whole_in_the_archive(lab):
    key = "sk-ant-api03-" + "A1b2" * 20 + "-xyzAA"
    path = lab.claude_file("s1")
    path.write_bytes(user_line(0, f"use {key} please"))
    lab.ingest()
    (event,) = lab.events("claude:s1")
    assert key not in event.summary
    assert "masked" in event.summary
    assert key not in lab.sessions()["claude:s1"].title
    assert key.encode() in lab.archived(path)


def test_files_and_folders_are_private(lab):
    lab.claude_file().write_bytes(user_line(0))
    os.umask(0o022)
    lab.ingest()
    for path in [lab.paths.state_dir, *lab.paths.state_dir.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
