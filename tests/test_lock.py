"""Fault 65: one instance, whoever races and however the holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sessiond.errors import Busy, Forbidden, SessiondError
from sessiond.lock import Holder, InstanceLock, read_holder

ROOT = Path(__file__).parents[1]
STARTED = "2026-01-02T03:04:05.000Z"

HOLD = """
import pathlib, sys
from sessiond.errors import SessiondError
from sessiond.lock import InstanceLock
lock = InstanceLock(pathlib.Path(sys.argv[1]))
sys.stdin.readline()                     # the starting signal
try:
    lock.acquire(socket="/run/s", version="1.0", started_at="2026-01-02T03:04:05.000Z")
except SessiondError as error:
    print(error, flush=True)
    sys.exit(error.exit_code)
print("held", flush=True)
sys.stdin.readline()                     # until told, or killed
"""


def start(path: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def say(process: subprocess.Popen) -> None:
    process.stdin.write("go\n")
    process.stdin.flush()


def finish(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "lock"


@pytest.fixture
def other(path):
    """Another process that holds the lock."""
    process = start(path)
    say(process)
    assert process.stdout.readline() == "held\n"
    yield process
    finish(process)


def acquire(path: Path, socket: str | None = "/run/s") -> InstanceLock:
    return InstanceLock(path).acquire(socket=socket, version="1.0", started_at=STARTED)


def test_the_file_names_its_holder_and_is_private(path):
    with acquire(path):
        facts = json.loads(path.read_text())
        mode = stat.S_IMODE(path.stat().st_mode)
        folder_mode = stat.S_IMODE(path.parent.stat().st_mode)
        holder = read_holder(path)

    assert facts == {"pid": os.getpid(), "socket": "/run/s", "version": "1.0", "started_at": STARTED}
    assert (mode, folder_mode) == (0o600, 0o700)
    assert holder == Holder(os.getpid(), "/run/s", "1.0", STARTED)


def test_a_second_instance_is_told_who_runs(path, other):
    with pytest.raises(Busy) as caught:
        acquire(path)

    assert caught.value.exit_code == 75
    assert caught.value.fact == f"sessiond is already running (pid {other.pid}, socket /run/s)"
    assert caught.value.hint == "sessiond status"


def test_a_command_at_work_is_not_called_a_daemon(path):
    with acquire(path, socket=None), pytest.raises(Busy, match="another sessiond command is at work"):
        acquire(path)


@pytest.mark.fault(65)
def test_of_twenty_at_once_exactly_one_wins(path):
    processes = [start(path) for _ in range(20)]
    try:
        for process in processes:
            say(process)
        words = [process.stdout.readline() for process in processes]
        (winner,) = [process for process, word in zip(processes, words, strict=True) if word == "held\n"]
        losers = [process for process in processes if process is not winner]

        assert [process.wait(10) for process in losers] == [75] * 19
        expected = f"sessiond is already running (pid {winner.pid}, socket /run/s) (sessiond status)\n"
        assert {word for word in words if word != "held\n"} == {expected}
        assert read_holder(path).pid == winner.pid
    finally:
        for process in processes:
            finish(process)


@pytest.mark.fault(65)
def test_a_killed_holder_leaves_the_lock_free_and_is_not_believed(path, other):
    assert read_holder(path).pid == other.pid
    other.send_signal(signal.SIGKILL)
    other.wait()

    assert json.loads(path.read_text())["pid"] == other.pid  # what it wrote is still there
    assert read_holder(path) is None
    with acquire(path):
        assert read_holder(path).pid == os.getpid()


def test_release_frees_the_lock_and_keeps_the_file(path):
    lock = acquire(path)
    lock.release()
    lock.release()

    assert read_holder(path) is None
    assert path.read_bytes() == b""
    acquire(path).release()


def test_there_is_no_holder_without_a_file(path):
    assert read_holder(path) is None
    assert not path.exists()


def test_a_lock_cannot_be_taken_twice_by_one_object(path):
    with acquire(path) as lock, pytest.raises(RuntimeError):
        lock.acquire(socket=None, version="1.0", started_at=STARTED)


def test_those_who_ask_who_runs_do_not_stop_a_start(path):
    acquire(path).release()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            read_holder(path)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for thread in askers:
        thread.start()
    try:
        for _ in range(30):
            acquire(path).release()
    finally:
        stop.set()
        for thread in askers:
            thread.join()


def test_a_holder_that_has_not_written_its_name_is_waited_for(path):
    path.parent.mkdir()
    path.write_text('{"pid": 999999999, "socket": "/old", "version": "0", "started_at": "x"}')
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        renamed = json.dumps({"pid": os.getpid(), "socket": "/new", "version": "1", "started_at": "y"})
        timer = threading.Timer(0.05, lambda: path.write_text(renamed))
        timer.start()

        assert read_holder(path) == Holder(os.getpid(), "/new", "1", "y")
        timer.join()


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "\0\0"])
def test_a_holder_without_a_readable_name_still_holds(path, content):
    path.parent.mkdir()
    path.write_text(content)
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        assert read_holder(path) == Holder()
        with pytest.raises(Busy, match=r"^sessiond is already running \(sessiond status\)$"):
            acquire(path)


def test_a_removed_lock_file_is_noticed(path):
    with acquire(path) as lock:
        assert lock.is_intact()
        path.unlink()
        assert not lock.is_intact()
        path.touch()
        assert not lock.is_intact()


def test_a_file_that_is_swapped_while_it_is_locked_does_not_count(path, monkeypatch):
    """The old file may be locked by us alone while another instance has locked the new one."""
    real, swapped = fcntl.flock, []

    def flock(fd, kind):
        real(fd, kind)
        if not swapped:
            swapped.append(path.unlink())

    monkeypatch.setattr(fcntl, "flock", flock)
    with acquire(path) as lock:
        assert lock.is_intact()
        assert swapped


@pytest.mark.fault(81)
def test_a_child_does_not_keep_the_lock_alive(path):
    lock = acquire(path)
    with subprocess.Popen(["sleep", "30"], close_fds=False) as child:
        lock.release()
        assert read_holder(path) is None
        fcntl_free = acquire(path)
        fcntl_free.release()
        child.kill()


def test_a_loose_mode_is_tightened(path):
    path.parent.mkdir()
    path.touch()
    path.chmod(0o666)
    with acquire(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_regular_file_is_refused_without_hanging(path, make):
    path.parent.mkdir()
    make(path)
    began = time.monotonic()
    with pytest.raises(SessiondError):
        acquire(path)

    assert time.monotonic() - began < 1


def test_a_folder_that_cannot_be_made_is_an_error_for_people(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SessiondError, match="cannot be made"):
        acquire(tmp_path / "file" / "state" / "lock")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_forbidden(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(Forbidden):
        acquire(tmp_path / "lock")
