"""Rows 76 and 77: what is let go races what comes in and who reads, and never comes back."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from lab import Lab, append, settle, until, user_line
from sessiond.store import commit, evict, reader
from sessiond.store.connect import open_reader, rows, snapshot, value
from sessiond.upkeep import Upkeep

OLD = datetime.now(UTC) - timedelta(days=9)
TIGHT = '[retention]\nsoft_cap = "1MiB"\nhard_cap = "900MiB"\nmin_age = "24h"\nkeep_free = "1MiB"\n'


def line(number: int, session: str = "s1", *, age: timedelta = timedelta(days=9), text: str = "") -> bytes:
    at = (datetime.now(UTC) - age + timedelta(milliseconds=number)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    return user_line(number, text or f"line {number} " + os.urandom(500).hex(), session=session, timestamp=at)


def write(lab: Lab, session: str = "s1", lines: int = 1500) -> None:
    lab.claude_file(session).write_bytes(b"".join(line(n, session) for n in range(lines)))


def files_of(lab: Lab) -> dict[str, tuple[bytes, int, int]]:
    """The agents' files: their bytes, which file it is, and when it was changed last."""
    return {
        str(path): (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(lab.claude.rglob("*.jsonl"))
    }


class Working:
    """The pipeline at work, with intake, and what is done by hand beside it."""

    def __init__(self, lab: Lab) -> None:
        self.pipeline = lab.pipeline("poll")
        config = self.pipeline.config
        self.upkeep = Upkeep(lambda: config, lab.paths, self.pipeline, lab.troubles)

    def __enter__(self) -> Working:
        self.pipeline.start()
        settle(self.pipeline)
        self.upkeep.do("analyze", {})
        return self

    def __exit__(self, *_: object) -> None:
        self.pipeline.stop()


# --- 76 -----------------------------------------------------------------------------------------


@pytest.mark.fault(76)
def test_line_that_is_appended_between_plan_and_deletion_keeps_its_session(lab, monkeypatch):
    lab.write_config(TIGHT)
    write(lab)
    real = evict.let_go
    before: dict = {}
    with Working(lab) as work:
        planned = work.upkeep.do("evict", {"dry_run": True})["plan"]
        assert [each["session_uid"] for each in planned] == ["claude:s1"]

        def late(writer, row, *args, **more):
            append(lab.claude_file(), line(1500, age=timedelta(days=8)))  # not even young: it is the digest that counts
            settle(work.pipeline)
            before.update(files_of(lab))
            return real(writer, row, *args, **more)

        monkeypatch.setattr(evict, "let_go", late)
        assert work.upkeep.do("evict", {})["evicted"] == []
        assert len(lab.events("claude:s1")) == 1501
        assert lab.archived(lab.claude_file()) == lab.claude_file().read_bytes()
        monkeypatch.setattr(evict, "let_go", real)
        work.upkeep.do("analyze", {})
        assert work.upkeep.do("evict", {})["evicted"] == ["claude:s1"]
    assert lab.digest("claude:s1")["turns"] == 1501
    assert files_of(lab) == before, "the agents' files are as they were"


@pytest.mark.fault(76)
def test_lines_that_come_while_a_session_is_being_deleted_stay(lab, monkeypatch):
    """Between the mark and the last step; and all of it is done by the one thread that also takes lines in."""
    lab.write_config(TIGHT)
    write(lab)
    threads: set[str] = set()
    came = []

    def watched(function):
        def step(*args):
            threads.add(threading.current_thread().name)
            return function(*args)

        return step

    for where, name in ((evict, "_mark_rows"), (evict, "_delete_frames"), (evict, "_delete_events")):
        monkeypatch.setattr(where, name, watched(getattr(where, name)))
    monkeypatch.setattr(commit, "_write_bytes", watched(commit._write_bytes))
    with Working(lab) as work:
        (session,) = evict.oldest(work.pipeline._db, active_before="~")

        def between() -> None:
            if len(came) < 3:
                came.append(line(1500 + len(came), text=f"late {len(came)}"))
                append(lab.claude_file(), came[-1])
                settle(work.pipeline)

        assert evict.let_go(work.pipeline.writer, session.row, OLD, active_before="~", after_each=between)
        assert len(came) == 3, "it takes several steps"
        assert [event.summary for event in lab.events("claude:s1")] == ["late 0", "late 1", "late 2"]
        assert lab.archived(lab.claude_file()) == b"".join(came)
        work.upkeep.do("analyze", {})
    assert lab.digest("claude:s1")["turns"] == 1503
    assert len(threads) == 1
    with lab.store() as db:
        assert rows(db, "SELECT * FROM _leaving") == []


@pytest.mark.fault(76)
@pytest.mark.parametrize("state", ["not distilled", "new events", "changed since", "pinned", "active"])
def test_no_caller_can_let_go_of_what_the_query_does_not_allow(lab, state):
    """The guard is in the statement itself: whoever asks, however old the plan is."""
    write(lab, lines=5)
    with Working(lab) as work:
        (session,) = evict.oldest(work.pipeline._db, active_before="~")
        spoiled = {
            "not distilled": "analyzed_at = NULL, digested_seq = 0",
            "new events": "next_seq = next_seq + 1",
            "changed since": "refold = 1",
            "pinned": "pinned = 1",
            "active": "pinned = 0",
        }[state]
        work.pipeline.writer.call(lambda db: db.execute(f"UPDATE _session SET {spoiled}"))
        active_before = "2000" if state == "active" else "~"
        assert not evict.let_go(work.pipeline.writer, session.row, OLD, active_before=active_before)
        assert not evict.let_go_superseded(work.pipeline.writer, session.row)
        with lab.store() as db:
            assert value(db, "SELECT count(*) FROM _event") == 5
            assert value(db, "SELECT count(*) FROM _frame") == 1
            assert rows(db, "SELECT evicted_at, evicted_seq FROM _session") == [(None, 0)]


@pytest.mark.fault(76)
def test_reader_in_the_middle_of_a_session_reads_it_to_its_end(lab):
    write(lab)
    whole = lab.claude_file().read_bytes()
    with Working(lab) as work:
        db = open_reader(lab.paths.store)
        try:
            with snapshot(db):
                events = reader.events(db, "claude:s1")
                first = [next(events) for _ in range(10)]
                (session,) = evict.oldest(db, active_before="~")
                assert evict.let_go(work.pipeline.writer, session.row, OLD, active_before="~")
                assert lab.events("claude:s1") == [], "who asks now finds nothing"
                read = [*first, *events]
                assert [event.seq for event in read] == list(range(1, 1501))
                assert b"".join(reader.payload(db, event) + b"\n" for event in read) == whole
        finally:
            db.close()


# --- 77 -----------------------------------------------------------------------------------------


def lines_counted(lab: Lab) -> int:
    """What `status` tells, too, but there it may be a second old."""
    with lab.store() as db:
        return value(db, "SELECT value FROM _counter WHERE name = 'lines'")


@pytest.mark.fault(77)
def test_what_was_evicted_is_not_read_again_after_kill_restart_sweep_touch_and_move(lab):
    lab.write_config(TIGHT)
    write(lab)
    path = lab.claude_file()
    with lab.daemon() as process:
        lab.ingest_through_daemon()
        for verb in ("analyze", "evict"):
            assert lab.cli(verb).returncode == 0
        assert lab.sessions()["claude:s1"].state == "evicted"
        lines = lines_counted(lab)
        process.kill()
        process.wait()

    def assert_still_gone() -> None:
        lab.ingest_through_daemon()
        assert lines_counted(lab) == lines
        assert lab.events("claude:s1") == []
        assert lab.sessions()["claude:s1"].state == "evicted"
        with lab.store() as db:
            assert value(db, "SELECT count(*) FROM _frame") == 0
            assert rows(db, "SELECT read_offset, size FROM _source") == [(path.stat().st_size,) * 2]

    with lab.daemon():
        assert_still_gone()
        os.utime(path)
        assert_still_gone()
        moved = path.with_name("s1.tmp")
        path.rename(moved)
        lab.ingest_through_daemon()
        moved.rename(path)
        assert_still_gone()
        copy = path.with_name("copy.tmp")
        copy.write_bytes(path.read_bytes())
        copy.rename(path)  # the same bytes in another file
        assert_still_gone()
        assert lab.cli("reindex").returncode == 0
        assert_still_gone()
        append(path, line(1500, text="one more"))
        until(lambda: [event.summary for event in lab.events("claude:s1")] == ["one more"])
    lab.analyze()
    assert lab.digest("claude:s1")["turns"] == 1501
