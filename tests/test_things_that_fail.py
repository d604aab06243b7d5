"""Writer, search thread, loop, tickets, reload."""

from __future__ import annotations

import os
import time

import apsw
import pytest

from lab import append, settle, states, until, user_line
from sessiond.store import archive
from sessiond.store.connect import rows


def texts(lab, path):
    with lab.store() as db:
        return [r[0] for r in rows(db, "SELECT summary FROM _event ORDER BY id")]


def test_failed_rewrite_then_append_loses_nothing(lab, monkeypatch):
    """chunk A (a same-size rewrite) fails once, chunk B after it must not be stored on the old generation."""
    path = lab.claude_file()
    one = user_line(0, "aaaa")
    two = user_line(0, "bbbb", uuid="x0")
    two = two.replace(b'"x0"', b'"us1-0"'.replace(b"us1", b"zz1"))
    assert len(one) == len(two)
    path.write_bytes(one)
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        from sessiond.store import writer as w

        real = w.commit_chunk
        fails = {"n": 0}

        def commit(db, batch, counts, now):
            if batch.chunk.restarted and fails["n"] < 2:
                fails["n"] += 1
                time.sleep(0.3)
                raise apsw.BusyError("locked")
            return real(db, batch, counts, now)

        monkeypatch.setattr(w, "commit_chunk", commit)
        path.write_bytes(two)
        p.loop._put(str(path), 0)
        until(lambda: fails["n"] >= 1 or p.writer.queued)
        append(path, user_line(1, "cccc"))
        p.loop._put(str(path), 0)
        time.sleep(8)
        settle(p)
        assert texts(lab, path) == ["aaaa", "bbbb", "cccc"]
        assert lab.archived(path) == path.read_bytes()
    finally:
        p.stop()


def test_ticket_waits_for_failed_batch(lab, monkeypatch):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    p = lab.pipeline("poll")
    from sessiond.store import writer as w

    real = w.commit_chunk
    fails = {"n": 0}

    def commit(db, batch, counts, now):
        if fails["n"] < 2:
            fails["n"] += 1
            raise apsw.BusyError("locked")
        return real(db, batch, counts, now)

    monkeypatch.setattr(w, "commit_chunk", commit)
    p.start()
    try:
        n = p.ask()["ticket"]
        r = until(lambda: (s := p.asked({"ticket": n}))["done"] and s, 15)
        assert r["complete"] is False or r["events"] == 1, r
    finally:
        p.stop()


@pytest.mark.fault(56)
def test_store_locked_is_said_soon_and_resumes(lab):
    """Deadlines are long: what is waited for comes after one busy_timeout, on a busy machine some more."""
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        other = apsw.Connection(str(lab.paths.store))
        other.set_busy_timeout(30_000)
        other.execute("BEGIN EXCLUSIVE")
        for k in range(12):
            lab.claude_file(f"s{k}").write_bytes(user_line(0, session=f"s{k}"))
        p.loop.ask()
        busy = until(lambda: [t for t in lab.troubles.listing() if t["name"] == "store_busy"], 60, "store_busy")
        assert busy[0]["fix"]
        assert p.loop.lag_bytes > 0, "what could not be stored is behind"
        assert lab.sessions() == {}, "who reads is not held up, and nothing is half stored"
        other.execute("ROLLBACK")
        other.close()
        until(lambda: len(lab.sessions()) == 12, 60, "all stored")
        until(lambda: lab.troubles.listing() == [], 60, "the end of it")
        settle(p)
        assert p.loop.lag_bytes == 0
    finally:
        p.stop()
    for k in range(12):
        assert len(lab.events(f"claude:s{k}")) == 1
        assert lab.archived(lab.claude_file(f"s{k}")) == lab.claude_file(f"s{k}").read_bytes()


def test_stop_while_store_locked(lab):
    p = lab.pipeline("poll")
    p.start()
    settle(p)
    other = apsw.Connection(str(lab.paths.store))
    other.execute("BEGIN IMMEDIATE")
    for k in range(5):
        lab.claude_file(f"s{k}").write_bytes(user_line(0, session=f"s{k}"))
    p.loop.ask()
    time.sleep(0.5)
    t = time.monotonic()
    p.stop()
    took = time.monotonic() - t
    other.close()
    assert took < 11, took


def test_index_survives_a_busy_store(lab):
    """The store is locked by another program for a while: the search index must not be thrown away."""
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        said = []
        lab.troubles._say = lambda n, d: said.append((n, d))
        from sessiond.store import search as s

        real = s._trim
        n = {"n": 0}

        def trim(db, pos):
            if n["n"] == 0:
                n["n"] += 1
                raise apsw.BusyError("x")
            return real(db, pos)

        s._trim = trim
        append(path, user_line(1))
        settle(p)
        time.sleep(0.3)
        s._trim = real
        assert not [x for x in said if x[0] == "search_index" and x[1] and "again" in x[1]], said
    finally:
        p.stop()


def test_search_thread_survives_unopenable_index(lab):
    lab.paths.state_dir.mkdir(parents=True, exist_ok=True)
    lab.paths.search.mkdir(parents=True)
    lab.claude_file().write_bytes(user_line(0))
    p = lab.pipeline("poll")
    p.start()
    try:
        time.sleep(1)
        assert p.search._thread.is_alive()
        assert any(t["name"] == "search_index" for t in lab.troubles.listing())
        c0 = time.process_time()
        time.sleep(1)
        used = time.process_time() - c0
        assert used < 0.5, used
    finally:
        p.stop()


def test_gone_is_not_undone_by_batches_in_flight(lab, monkeypatch):
    from sessiond.store import writer as w

    real = w.commit_chunk

    def commit(db, batch, counts, now):
        if slow["on"]:
            time.sleep(0.08)
        return real(db, batch, counts, now)

    slow = {"on": False}
    monkeypatch.setattr(w, "commit_chunk", commit)
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        slow["on"] = True
        files = [lab.claude_file(f"s{k}") for k in range(6)]
        for k, f in enumerate(files):
            f.write_bytes(user_line(0, session=f"s{k}") + b'{"half')
        p.ask()["ticket"]
        until(lambda: p.writer.queued >= 3)
        time.sleep(0.02)
        for f in files:
            f.unlink()
        p.loop._pace.hurry("x")
        p.loop.inbox.wake()
        time.sleep(3)
        settle(p)
        time.sleep(1.1)
        settle(p)
        assert set(states(lab).values()) == {"gone"}
    finally:
        p.stop()


def test_mark_gone_survives_a_failure(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        from sessiond.intake import loop as l

        real, n = l.gone.mark_gone, {"n": 0}

        def bad(*a):
            if n["n"] == 0:
                n["n"] = 1
                raise apsw.BusyError("x")
            return real(*a)

        l.gone.mark_gone = bad
        path.unlink()
        try:
            settle(p)
            time.sleep(1.2)
            settle(p)
            time.sleep(1.2)
        finally:
            l.gone.mark_gone = real
        assert states(lab)[str(path)] == "gone"
        assert lab.troubles.listing() == []
    finally:
        p.stop()


def test_pause_full_ends_although_another_file_waits_an_hour(lab, monkeypatch):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    p = lab.pipeline("poll")
    from sessiond.store import writer as w

    real = w.commit_chunk
    n = {"n": 0}

    def commit(db, batch, counts, now):
        if n["n"] < 1:
            n["n"] += 1
            raise apsw.FullError("full")
        return real(db, batch, counts, now)

    monkeypatch.setattr(w, "commit_chunk", commit)
    z = lab.codex_file("rollout-2026-01-02T03-04-05-00000000-0000-0000-0000-000000000001")
    z = z.with_name(z.name + ".zst")
    z.write_bytes(b"\x28\xb5\x2f\xfd" + b"garbage" * 100)
    p.start()
    try:
        until(lambda: p.loop.paused_by == "store_full", 5)
        until(lambda: len(lab.sessions()) == 1, 12, "stored after the pause")
    finally:
        p.stop()


def test_unreadable_directory_recovers(lab, monkeypatch):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    bad = {"on": True}
    real = os.scandir

    def scandir(d):
        if bad["on"] and str(d) == str(path.parent):
            raise PermissionError(13, "denied")
        return real(d)

    from sessiond.intake import scan

    monkeypatch.setattr(scan.os, "scandir", scandir)
    p = lab.pipeline("poll")
    p.start()
    try:
        settle(p)
        time.sleep(1.1)
        assert [t["name"] for t in lab.troubles.listing()] == ["unreadable"]
        bad["on"] = False
        settle(p)
        time.sleep(1.2)
        settle(p)
        time.sleep(1.2)
        assert lab.events("claude:s1")
        assert lab.troubles.listing() == []
    finally:
        p.stop()


def test_descriptor_trouble_ends(lab, monkeypatch):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    from sessiond.intake import tail

    real, n = tail.opened, {"n": 0}

    def opened(*a):
        if n["n"] == 0:
            n["n"] = 1
            raise OSError(24, "too many")
        return real(*a)

    monkeypatch.setattr(tail, "opened", opened)
    p = lab.pipeline("poll")
    p.start()
    try:
        until(lambda: lab.troubles.listing())
        until(lambda: "claude:s1" in lab.sessions(), 10)
        time.sleep(1.2)
        assert lab.troubles.listing() == []
    finally:
        p.stop()


def test_asked_under_steady_writes(lab):
    """done means: what was there when it was stored is searchable; not that nobody writes any more."""
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    p = lab.pipeline("poll")
    p.start()
    try:
        n = p.ask()["ticket"]
        until(lambda: p.asked({"ticket": n})["done"])
        assert p._tickets[n][0].position == p.search.position if hasattr(p._tickets[n][0], "position") else True
        p.writer.call(
            lambda db: (
                db.execute("INSERT INTO _outbox (data) VALUES (?)", (archive.compress(b'{"add":[],"remove":[]}'),))
                and None
            )
        )
        assert p.asked({"ticket": n})["done"]
    finally:
        p.stop()
