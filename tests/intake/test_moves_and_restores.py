"""Renames, restores, odd paths on screen."""

from __future__ import annotations

import json
import os
import time

import pytest

from lab import Lab, append, settle, states, until, user_line
from sessiond.store import restore
from sessiond.store.connect import rows


@pytest.mark.parametrize("mode", ["poll", "native"])
@pytest.mark.fault(19)
def test_rename_during_backfill(lab, mode):
    f = lab.claude_file("s1")
    lines = [user_line(i, f"{i} " * 200) for i in range(12000)]
    f.write_bytes(b"".join(lines))
    os.utime(f, (1e9, 1e9))
    p = lab.pipeline(mode)
    p.start()
    try:
        until(lambda: p.loop.history.done_bytes > 2**20)
        g = lab.claude_file("s1", slug="-v")
        f.rename(g)
        until(lambda: "claude:s1" in lab.sessions() and lab.sessions()["claude:s1"].events == 12000, 45)
        settle(p)
        time.sleep(1.1)
        settle(p)
        assert lab.archived(g) == b"".join(lines)
        assert states(lab) == {str(g): "live"}
    finally:
        p.stop()


@pytest.mark.parametrize("mode", ["poll", "native"])
@pytest.mark.fault(19)
def test_directory_renamed_live(lab, mode):
    fs = [lab.claude_file(f"s{k}") for k in range(20)]
    for k, f in enumerate(fs):
        f.write_bytes(user_line(0, session=f"s{k}") + b'{"pend')
    p = lab.pipeline(mode)
    p.start()
    try:
        settle(p)
        fs[0].parent.rename(fs[0].parent.with_name("-v"))
        gs = [lab.claude_file(f"s{k}", slug="-v") for k in range(20)]
        for k, g in enumerate(gs):
            append(g, b'"}\n' + user_line(1, session=f"s{k}"))
        time.sleep(1.5)
        settle(p)
        time.sleep(1.1)
        settle(p)
        assert set(states(lab).values()) == {"live"} and len(states(lab)) == 20
        for g in gs:
            assert lab.archived(g) == g.read_bytes()
    finally:
        p.stop()


def test_restore_holes_giant_and_tail(lab):
    lab.write_config('[limits]\nline = "64KiB"\narchive_line = "256KiB"\nchunk = "64KiB"\n')
    f = lab.claude_file()
    data = user_line(0) + bytes(300_000) + user_line(1) + b"x" * 200_000 + b"\n" + user_line(2) + b'{"tail'
    f.write_bytes(data)
    lab.ingest()
    with lab.store() as db:
        parts = restore.plan(db, "claude:s1")
        (out,) = restore.write(db, parts, lab.folder / "out")
    assert out.read_bytes() == data
    append(f, b'"}\n' + b"y" * 600_000 + b"\n" + user_line(3))
    lab.ingest()
    with lab.store() as db:
        parts = restore.plan(db, "claude:s1")
        assert parts[0].missing
        (out,) = restore.write(db, parts, lab.folder / "out2", partial=True)
    assert out.stat().st_size == f.stat().st_size
    assert lab.rejects()


def test_restorable_again_when_the_giant_is_gone(lab):
    lab.write_config('[limits]\nline = "64KiB"\narchive_line = "128KiB"\nchunk = "64KiB"\n')
    f = lab.claude_file()
    f.write_bytes(user_line(0) + b"y" * 600_000 + b"\n")
    lab.ingest()
    f.write_bytes(user_line(0) + user_line(1))
    lab.ingest()
    with lab.store() as db:
        assert rows(db, "SELECT is_restorable FROM _source") == [(1,)]


def test_old_generation_keeps_its_unfinished_tail(lab):
    f = lab.claude_file()
    f.write_bytes(user_line(0) + b'{"tail')
    lab.ingest()
    f.write_bytes(user_line(7))
    lab.ingest()
    with lab.store() as db:
        parts = restore.plan(db, "claude:s1", generation=1)
        (out,) = restore.write(db, parts, lab.folder / "out")
    assert out.read_bytes() == user_line(0) + b'{"tail'


@pytest.mark.fault(28)
def test_odd_path_in_trouble_does_not_break_status():
    import pathlib
    import tempfile

    folder = pathlib.Path(tempfile.mkdtemp(prefix="sd"))
    lab = Lab(folder)
    d = lab.claude / "projects" / "-w\udcff"
    d.mkdir(parents=True)
    (d / "s1.jsonl").write_bytes(user_line(0))
    (d / "s2.jsonl").mkdir()
    with lab.daemon(config="") as _:
        lab.ingest_through_daemon()
        time.sleep(0.5)
        assert lab.status()
        r = lab.cli("sessions", "--json")
        assert r.returncode == 0, r.stderr[-800:]
        assert json.loads(r.stdout)
        for words in (
            ["sessions"],
            ["show", "s1"],
            ["show", "s1", "--json"],
            ["events", "s1", "--json"],
            ["restore", "s1", "--to", str(folder / "o")],
        ):
            r = lab.cli(*words)
            assert r.returncode == 0, (words, r.stderr[-800:])
        assert (folder / "o/projects/-w\udcff/s1.jsonl").exists()


def test_home_of_odd_name():
    import pathlib
    import tempfile

    folder = pathlib.Path(tempfile.mkdtemp(prefix="sd"))
    lab = Lab(folder)
    home = folder / "h\udcff"
    lab.env["CLAUDE_CONFIG_DIR"] = str(home)
    lab.claude = home
    lab.claude_file().write_bytes(user_line(0))
    with lab.daemon(config="") as _:
        lab.ingest_through_daemon()
        assert lab.status()
        for words in (["status"], ["status", "--json"], ["sessions", "--json"]):
            r = lab.cli(*words)
            assert r.returncode == 0, (words, r.stderr[-800:])
