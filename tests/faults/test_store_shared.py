"""Rows 55 and 58: who has the store open. A reader that does not end, and ourselves: one connection of the daemon writes,
and no other. (Row 56, a writer that does not let go, is in tests/test_things_that_fail.py.)
"""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from lab import Lab, append, until, user_line
from sessiond.store import connect, space
from sessiond.store.connect import rows

MIB = 2**20
LINUX = pytest.mark.skipif(not Path("/proc/self/fdinfo").is_dir(), reason="there is no /proc to see descriptors in")


def noise_lines(name: str, first: int, size: int) -> tuple[bytes, int]:
    """About so many bytes that do not compress, and the number of lines."""
    chance = random.Random(f"{name} {first}")
    count = max(1, size // 4000)
    lines = (user_line(first + n, chance.randbytes(1800).hex(), session=name) for n in range(count))
    return b"".join(lines), count


# --- 55: a reader that does not end ---------------------------------------------------------------

READER = """
import sqlite3, sys
db = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True)
db.execute("BEGIN")
db.execute("SELECT count(*) FROM _event").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""


@contextmanager
def long_read(lab: Lab):
    argv = [sys.executable, "-c", READER, str(lab.paths.store)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"reading\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def wal_trouble(lab: Lab) -> dict | None:
    return next((each for each in lab.status()["degraded"] if each["name"] == "wal"), None)


@pytest.mark.fault(55)
def test_reader_that_keeps_the_wal_from_being_emptied_is_named_and_its_end_is_noticed(lab):
    config = '[retention]\nsoft_cap = "64MiB"\nkeep_free = "0"\n'
    path = lab.claude_file("r")
    with lab.daemon(config=config):
        append(path, noise_lines("r", 0, 4000)[0])
        lab.ingest_through_daemon()
        assert lab.status()["store"]["wal_bytes"] < 4 * MIB
        with long_read(lab) as reader:
            data, count = noise_lines("r", 1, 8 * MIB)
            append(path, data)
            trouble = until(lambda: wal_trouble(lab), 60, "the reader's name")
            assert f"(pid {reader.pid})" in trouble["detail"] or not Path("/proc/self/fd").is_dir()
            assert "store.db-wal has grown to" in trouble["detail"]
            assert "close that program" in trouble["fix"]
            assert lab.status()["store"]["wal_bytes"] > 3 * MIB
            assert lab.cli("health").returncode == 1
            until(lambda: lab.status()["counters"]["lines"] == count + 1, 60, "all lines stored meanwhile")
        until(lambda: wal_trouble(lab) is None, 60, "the end of it")
        assert lab.status()["store"]["wal_bytes"] < 4 * MIB
    assert lab.archived(path) == path.read_bytes()


@pytest.mark.long
@pytest.mark.fault(55)
def test_reader_of_a_minute_stops_intake_at_the_hard_cap_and_nothing_is_lost(lab):
    config = '[retention]\nsoft_cap = "8MiB"\nhard_cap = "16MiB"\nmin_age = "24h"\nkeep_free = "0"\n'
    path = lab.claude_file("r")
    largest, lines, named = 0, 1, None
    with lab.daemon(config=config):
        append(path, noise_lines("r", 0, 4000)[0])
        lab.ingest_through_daemon()
        with long_read(lab):
            end = time.monotonic() + 60
            while time.monotonic() < end:
                data, count = noise_lines("r", lines, MIB)
                append(path, data)
                lines += count
                time.sleep(0.5)
                largest = max(largest, space.total(lab.paths))
                named = named or wal_trouble(lab)
            assert lab.status()["paused_by"] == "hard_cap"
        assert named is not None
        # Ten times as much was written. What is let go for the cap goes through the WAL as well, as zeros.
        assert largest < 4 * 16 * MIB < path.stat().st_size
        print("\n", {"written": path.stat().st_size, "largest store": largest, "named": named["detail"]})
        lab.write_config(config.replace("16MiB", "2GiB").replace("8MiB", "1GiB"))
        lab.call("reload")
        until(lambda: lab.status()["counters"]["lines"] == lines, 300, "everything stored after all")
    with lab.store() as db:  # each line is an event; some of them may have been let go again
        ((last, evicted),) = rows(db, "SELECT next_seq - 1, evicted_events FROM _session")
        assert last == lines
        assert rows(db, "SELECT count(*) FROM _event") == [(lines - evicted,)]
        assert rows(db, "PRAGMA integrity_check") == [("ok",)]


# --- 58: one connection that writes -----------------------------------------------------------------


def opened_for_writing(pid: int, path: Path) -> int:
    """Descriptors of this process that could write to this very file."""
    count = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}") == str(path):
                told = Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
                flags = int(next(line.split()[1] for line in told.splitlines() if line.startswith("flags:")), 8)
                count += flags & os.O_ACCMODE != os.O_RDONLY
        except FileNotFoundError:
            continue  # closed meanwhile
    return count


class Watcher(threading.Thread):
    """Looks again and again how many of them there are."""

    def __init__(self, pid: int, path: Path) -> None:
        super().__init__()
        self._pid, self._path = pid, path
        self.most, self.looks = 0, 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.002):
            self.most = max(self.most, opened_for_writing(self._pid, self._path))
            self.looks += 1


@LINUX
@pytest.mark.fault(58)
def test_daemon_has_one_connection_that_can_write_whatever_it_does(lab):
    """Two that write and checkpoint at one instant is what SQLite's WAL-reset bug needs."""
    config = '[retention]\nsoft_cap = "1MiB"\nmin_age = "0s"\nkeep_free = "0"\n[analyze]\nquiet_after = "0s"\n'
    store = lab.paths.store
    with lab.daemon(config=config) as process:
        watcher = Watcher(process.pid, store)
        watcher.start()
        for number in range(4):
            append(lab.claude_file(f"s{number}"), noise_lines(f"s{number}", 0, MIB // 2)[0])
        lab.ingest_through_daemon()
        for words in (("analyze",), ("evict",), ("search", "hello"), ("pin", "claude:s1"), ("reindex",), ("verify",)):
            done = lab.cli(*words)
            assert done.returncode == 0, done.stderr
        assert any(session.evicted_at for session in lab.sessions().values())
        watcher.stop.set()
        watcher.join()
        assert watcher.looks > 50
        assert watcher.most == 1
        assert opened_for_writing(process.pid, store) == 1
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert f"{store}-shm" in maps, "the index of the WAL is shared memory"
        assert f"{store}\n" not in maps, "the database itself is not mapped"
        # Closing a descriptor of the file besides SQLite's own would have taken its locks away (POSIX), and with them
        # what keeps another program from removing the WAL.
        assert holds_a_lock(process.pid, store)


def holds_a_lock(pid: int, path: Path) -> bool:
    inode = os.stat(path)[stat.ST_INO]
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(f":{inode}" in words[-3] and words[-4] == str(pid) for words in held)


@pytest.mark.fault(58)
def test_status_and_the_log_name_the_sqlite_version(lab):
    with lab.daemon():
        told = json.loads(lab.cli("status", "--json").stdout)["sqlite"]
        page = lab.cli("status").stdout
    assert told["version"] == apsw.sqlite_lib_version()
    assert f"SQLite {told['version']}" in page
    assert told["version"] in next(
        line for line in (lab.folder / "daemon.log").read_text().splitlines() if "started" in line
    )
    if not told["wal_reset_bug"]:
        assert told["warning"] is None


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    ("version", "is_in_it"),
    [
        ("3.40.1", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.0", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.0", True),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.54.1", False),
    ],
)
def test_which_sqlite_has_the_bug(monkeypatch, version, is_in_it):
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    assert connect.wal_reset_bug() is is_in_it


OLD_SQLITE = """
import sys, apsw
apsw.sqlite_lib_version = lambda: "3.51.2"
from sessiond.cli import main
sys.exit(main())
"""


@pytest.mark.fault(58)
def test_sqlite_with_the_bug_is_warned_of_at_the_start_and_in_status(lab):
    with (lab.folder / "daemon.log").open("wb") as log:
        argv = [sys.executable, "-c", OLD_SQLITE, "run"]
        process = subprocess.Popen(argv, env=lab.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        told = until(lab.status, 60, "the daemon's answer")
        page = lab.cli("status").stdout
    finally:
        process.terminate()
        process.wait(10)
    assert told["sqlite"]["wal_reset_bug"]
    assert "SQLite 3.51.2: this SQLite has the WAL-reset bug: update apsw" in page
    assert "sqlite_has_wal_reset_bug" in (lab.folder / "daemon.log").read_text()


@pytest.mark.fault(58)
def test_no_database_is_mapped_into_memory(tmp_path):
    writer = connect.open_writer(tmp_path / "a.db")
    reader = connect.open_reader(tmp_path / "a.db")
    for db in (writer, reader):
        assert rows(db, "PRAGMA mmap_size") in ([(0,)], [])
        db.close()
