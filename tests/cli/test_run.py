"""`sessiond run` as a person has it: on a real terminal, over a real home."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from lab import until, user_line
from sessiond.serve.client import Client
from terminals import read_all

from .conftest import ROOT


class Running:
    def __init__(self, process: subprocess.Popen, near: int) -> None:
        self.process = process
        self.near = near
        self.pieces: list[bytes] = []
        self.reader = threading.Thread(target=read_all, args=(near, self.pieces))
        self.reader.start()

    @property
    def shown(self) -> str:
        return b"".join(self.pieces).decode()


@contextmanager
def running(lab):
    near, far = pty.openpty()
    env = {**lab.env, "TERM": "xterm", "LANG": "C.UTF-8", "COLUMNS": "100", "LINES": "40", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "sessiond", "run"],
        stdin=far,
        stdout=far,
        stderr=far,
        env=env,
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(far)
    started = Running(process, near)
    try:
        yield started
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        started.reader.join(10)
        os.close(near)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP])
def test_it_shows_what_it_takes_in_and_stops_politely(lab, sent):
    lab.claude_file().write_bytes(user_line(0) + user_line(1))
    with running(lab) as run:
        until(lambda: "is ready" in run.shown and "1 file " in run.shown, what="a picture with the file on it")
        assert "Nothing leaves this machine" in run.shown
        assert Client(lab.paths.socket).call("status")["sessions"]["total"] == 1
        run.process.send_signal(sent)
        assert run.process.wait(10) == 0
        until(lambda: "stopped; everything that was read is stored" in run.shown)

    assert "stopping…" in run.shown
    assert "Traceback" not in run.shown


def test_without_a_terminal_it_only_logs(lab):
    argv = [sys.executable, "-m", "sessiond", "run"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=lab.env, cwd=ROOT) as process:
        until(lab.paths.socket.exists, what="the socket")
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=10)

    assert process.returncode == 0
    assert out == b""
    assert b"started" in log


def test_a_second_one_is_told_that_one_is_running(lab, program):
    with running(lab):
        until(lab.paths.socket.exists, what="the socket")
        done = program("run")
        ingested = program("ingest")

    assert done.returncode == 75
    assert b"sessiond: sessiond is already running (pid " in done.stderr
    assert ingested.returncode == 0


def test_ingest_without_a_daemon_takes_everything_in(lab, program):
    lab.claude_file().write_bytes(user_line(0) + b"not json\n" + user_line(1))
    done = program("ingest")

    assert done.returncode == 0
    assert done.stdout.startswith(b"3 lines of 1 file taken in, 1 rejected (")
    assert lab.sessions()["claude:s1"].events == 2
