"""Owners, masks, reader, reload."""

from __future__ import annotations

import itertools
import json
import os
import time

import apsw
import pytest

from lab import Lab, until, user_line
from sessiond.store import reader
from sessiond.store.connect import rows


def uuid(n):
    return f"0190aaaa-bbbb-7ccc-8ddd-{n:012d}"


def codex(number, parent, turns):
    meta = {"id": uuid(number), "timestamp": f"2026-01-0{number}T00:00:00.000Z", "cwd": "/w"}
    if parent:
        meta["forked_from_id"] = uuid(parent)
    recs = [("session_meta", meta)]
    for t in turns:
        recs += [
            ("turn_context", {"model": "gpt-x", "cwd": "/w", "turn_id": f"turn-{t}"}),
            ("event_msg", {"type": "user_message", "message": f"ask {t}"}),
            (
                "response_item",
                {
                    "type": "custom_tool_call",
                    "call_id": f"c{t}",
                    "name": "apply_patch",
                    "status": "completed",
                    "input": f"*** Begin Patch\n*** Update File: f{t}.py\n@@\n-a\n+b\n*** End Patch",
                },
            ),
            ("response_item", {"type": "custom_tool_call_output", "call_id": f"c{t}", "output": "ok"}),
            (
                "response_item",
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"answer {t}"}]},
            ),
        ]
    return b"".join(
        json.dumps({"timestamp": f"2026-01-0{number}T00:00:{i:02d}.000Z", "type": k, "payload": v}).encode() + b"\n"
        for i, (k, v) in enumerate(recs)
    )


def everything(lab):
    with lab.store() as db:
        events = rows(
            db,
            "SELECT s.uid, e.summary, e.kind, p.summary FROM _event AS e JOIN _session AS s ON s.id = e.session_id"
            " LEFT JOIN _event AS p ON p.session_id = e.session_id AND p.seq = e.parent_seq ORDER BY 1, 2, 3, 4",
        )
        files = rows(db, "SELECT session_uid, path, edits FROM files ORDER BY 1, 2")
        counted = rows(db, "SELECT uid, events, turns, retries, started_at, ended_at FROM _session ORDER BY uid")
    return {
        "events": events,
        "files": files,
        "counted": counted,
        "parents": {u: s.parent_uid for u, s in lab.sessions().items()},
        "usage": lab.usage_rows(),
    }


@pytest.mark.parametrize("what", ["events", "files", "counted"])
def test_codex_fork_of_fork_in_every_order(tmp_path, what):
    contents = {1: codex(1, None, "a"), 2: codex(2, 1, "ab"), 3: codex(3, 2, "abc")}
    got = {}
    for number, order in enumerate(itertools.permutations((1, 2, 3))):
        lab = Lab(tmp_path / str(number))
        for n in order:
            lab.codex_file(f"rollout-2026-01-0{n}T00-00-00-{uuid(n)}").write_bytes(contents[n])
            lab.ingest()
        got[order] = everything(lab)[what]
    first = got[1, 2, 3]
    print(first)
    assert first
    for order, each in got.items():
        assert each == first, (order, each)


def test_repo_and_files_are_masked(lab):
    tok = "ghp_" + "a1B2" * 10
    line = {
        "type": "assistant",
        "uuid": "x1",
        "parentUuid": None,
        "sessionId": "s1",
        "cwd": f"/w/{tok}",
        "timestamp": "2026-01-02T03:04:05.000Z",
        "message": {
            "id": "m",
            "role": "assistant",
            "model": "c",
            "content": [
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "Edit",
                    "input": {"file_path": f"/w/{tok}/a.py", "old_string": "a", "new_string": "b"},
                }
            ],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    }
    lab.claude_file().write_bytes(json.dumps(line).encode() + b"\n")
    lab.ingest()
    with lab.store() as db:
        s = rows(db, "SELECT cwd, repo FROM _session")
        f = rows(db, "SELECT path FROM _file")
    assert tok not in repr(s), s
    assert tok not in repr(f), f


def test_same_native_id_of_two_agents_is_ambiguous(lab):
    u = uuid(1)
    lab.claude_file(u).write_bytes(user_line(0, session=u))
    lab.codex_file(f"rollout-2026-01-01T00-00-00-{u}").write_bytes(codex(1, None, "a"))
    lab.ingest()
    from sessiond.errors import UsageError

    with lab.store() as db, pytest.raises(UsageError):
        reader.resolve_uid(db, u)


def test_coming_back_raises_the_revision(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    away = lab.folder / "away"
    path.rename(away)
    lab.ingest()
    before = lab.sessions()["claude:s1"]
    assert before.source_gone_at
    away.rename(path)
    lab.ingest()
    after = lab.sessions()["claude:s1"]
    assert after.source_gone_at is None and after.revision > before.revision


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xfe",
        b"[log]\nlevel = 99999999999999999999999\n",
        b"a = " + b"[" * 5000,
        b'[privacy]\nmask = ["("]\n',
        b'[privacy]\nexclude=["["]\n',
        b'[watch]\nscan_interval = "9999999999999d"\n',
        b'[limits]\nchunk="0"\n',
        "dir",
        "fifo",
    ],
)
def test_reload_of_bad_configuration_never_ends_the_daemon(bad, tmp_path_factory):
    import pathlib
    import shutil
    import signal
    import tempfile

    folder = pathlib.Path(tempfile.mkdtemp(prefix="sd"))
    lab = Lab(folder)
    with lab.daemon(config="") as process:
        path = lab.user_home / ".config/sessiond/config.toml"
        path.unlink()
        if bad == "dir":
            path.mkdir()
        elif bad == "fifo":
            os.mkfifo(path)
        else:
            path.write_bytes(bad)
        process.send_signal(signal.SIGHUP)
        until(lambda: lab.status()["config"]["error"], what="the error in status")
        assert process.poll() is None, (folder / "daemon.log").read_text()[-500:]
    shutil.rmtree(folder)


def test_reload_keeps_tickets(lab):
    for k in range(40):
        f = lab.claude_file(f"s{k}")
        f.write_bytes(b"".join(user_line(i, f"{i} " * 300, session=f"s{k}") for i in range(1000)))
        os.utime(f, (1e9, 1e9))
    p = lab.pipeline("poll")
    p.start()
    try:
        n = p.ask()["ticket"]
        until(lambda: p.loop.last_sweep.at)
        ticket = p._tickets[n][0]
        assert not ticket.is_stored
        p.reconfigure(p._config)
        assert not ticket.is_stored
        until(lambda: p.loop.last_sweep.at and not p.loop.history.left, 40)
        until(lambda: p.asked({"ticket": n})["done"], 10, "the ticket")
    finally:
        p.stop()


def test_search_full_does_not_spin(lab, monkeypatch):
    from sessiond.store import fts as s

    n = {"n": 0}

    def bad(*a):
        n["n"] += 1
        raise apsw.FullError("full")

    monkeypatch.setattr(s, "open_index", bad)
    lab.claude_file().write_bytes(user_line(0))
    p = lab.pipeline("poll")
    p.start()
    try:
        time.sleep(1)
        assert n["n"] < 20, n
    finally:
        p.stop()
