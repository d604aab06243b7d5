"""Lifecycle: gone, moved, excluded, odd names and times."""

from __future__ import annotations

import os
import shutil
import time

from lab import append, settle, states, user_line
from sessiond.store.connect import rows


def test_deleted_under_native_watch_is_marked_gone(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0) + b'{"half')
    p = lab.pipeline("native")
    p.start()
    try:
        settle(p)
        path.unlink()
        time.sleep(0.5)
        settle(p)
        time.sleep(1.2)
        settle(p)
        assert states(lab)[str(path)] == "gone"
        assert p.loop.vanished == 0
    finally:
        p.stop()


def test_home_moved_and_linked(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    data = lab.folder / "data"
    shutil.move(lab.claude, data)
    lab.claude.symlink_to(data)
    append(path, user_line(1))
    lab.ingest()
    assert len(lab.events("claude:s1")) == 2


def test_home_moved_and_linked_while_running(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        data = lab.folder / "data"
        shutil.move(lab.claude, data)
        lab.claude.symlink_to(data)
        append(path, user_line(1))
        lab.claude_file("s2").write_bytes(user_line(0, session="s2"))
        settle(p)
        time.sleep(1.1)
        settle(p)
        assert len(lab.events("claude:s2")) == 1
        assert len(lab.events("claude:s1")) == 2
    finally:
        p.stop()


def test_non_utf8_name(lab):
    path = lab.claude_file("s\udcff1")
    path.write_bytes(user_line(0))
    ok = lab.claude_file("ok")
    ok.write_bytes(user_line(0, session="ok"))
    r = lab.ingest()
    print(r, lab.troubles.listing())
    assert r["events"] == 2


def test_newline_name(lab):
    path = lab.claude_file("s\n1")
    path.write_bytes(user_line(0))
    r = lab.ingest()
    assert r["events"] == 1


def test_mtime_2300(lab):
    path = lab.claude_file("s1")
    path.write_bytes(user_line(0))
    os.utime(path, (10413792000, 10413792000))
    r = lab.ingest()
    print(r)
    assert r["events"] == 1


def test_sidecar_without_newline(lab):
    main = lab.claude_file("s1")
    main.write_bytes(user_line(0))
    side = lab.claude / "projects/-w/s1/subagents/agent-a1.meta.json"
    side.parent.mkdir(parents=True)
    side.write_bytes(b'{"agentType":"x","toolUseId":"t1"}')
    lab.ingest()
    assert str(side) in states(lab)


def test_excluded_gone_back_then_rule_removed(lab):
    lab.write_config('[privacy]\nexclude = ["/w"]\n')
    path = lab.claude_file("s1")
    path.write_bytes(user_line(0))
    lab.ingest()
    assert states(lab)[str(path)] == "excluded"
    away = lab.folder / "away"
    path.rename(away)
    lab.ingest()
    away.rename(path)
    append(path, user_line(1))
    lab.ingest()
    assert states(lab)[str(path)] == "excluded"
    lab.write_config("")
    append(path, user_line(2))
    lab.ingest()
    assert [e.summary for e in lab.events("claude:s1")] == ["hello"]


def test_empty_file_then_rule_then_lines(lab):
    path = lab.claude_file("s1")
    path.write_bytes(b"")
    lab.ingest()
    lab.write_config('[privacy]\nexclude = ["/w"]\n')
    append(path, user_line(0, "secret words"))
    lab.ingest()
    assert lab.events("claude:s1") == []


def test_no_cwd_yet_then_rule_then_lines(lab):
    path = lab.claude_file("s1")
    path.write_bytes(b'{"type":"summary","summary":"x"}\n')
    lab.ingest()
    lab.write_config('[privacy]\nexclude = ["/w"]\n')
    append(path, user_line(0, "secret words"))
    lab.ingest()
    assert lab.events("claude:s1") == []


def test_exclude_then_include_keeps_what_was_there(lab):
    path = lab.claude_file("s1")
    path.write_bytes(user_line(0, "first"))
    lab.ingest()
    lab.write_config('[privacy]\nexclude = ["/w"]\n')
    append(path, user_line(1, "hidden"))
    lab.ingest()
    lab.write_config("")
    append(path, user_line(2, "third"))
    lab.ingest()
    assert [e.summary for e in lab.events("claude:s1")] == ["first", "third"]
    assert b"hidden" not in b"".join(d for d in [r[0] for r in _frames(lab)])


def _frames(lab):
    from sessiond.store import archive

    with lab.store() as db:
        return [(archive.decompress(r[0]),) for r in rows(db, "SELECT data FROM _frame WHERE codec='zstd'")]


def test_sidecar_waits_for_main_under_rules(lab):
    lab.write_config('[privacy]\nexclude = ["/other"]\n')
    main = lab.claude_file("s1")
    main.write_bytes(user_line(0))
    side = lab.claude / "projects/-w/s1/subagents/agent-a1.meta.json"
    side.parent.mkdir(parents=True)
    side.write_bytes(b'{"agentType":"x","toolUseId":"t1"}\n')
    os.utime(main, (1e9, 1e9))
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        time.sleep(1.1)
        settle(p)
        time.sleep(1.1)
        settle(p)
        assert states(lab).get(str(side)) == "live"
    finally:
        p.stop()


def test_corrupt_zst(lab):
    path = lab.codex_file("rollout-2026-01-02T03-04-05-00000000-0000-0000-0000-000000000001")
    z = path.with_name(path.name + ".zst")
    z.write_bytes(b"\x28\xb5\x2f\xfd" + b"garbage" * 100)
    lab.claude_file("s1").write_bytes(user_line(0))
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        print(lab.troubles.listing())
        z.unlink()
        time.sleep(1.1)
        settle(p)
        time.sleep(2.2)
        assert lab.troubles.listing() == []
    finally:
        p.stop()


def test_excluded_with_half_line_then_included(lab):
    lab.write_config('[privacy]\nexclude = ["/w"]\n')
    path = lab.claude_file("s1")
    path.write_bytes(user_line(0, "hidden") + b'{"hal')
    lab.ingest()
    lab.write_config("")
    append(path, b'f":1}\n' + user_line(1, "seen"))
    lab.ingest()
    assert [e.summary for e in lab.events("claude:s1")] == ["seen"]
    assert lab.troubles.listing() == []
