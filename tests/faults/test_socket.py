"""Rows 67-71: clients that are slow, endless, foreign or dead, at the socket of the real daemon while it takes in lines."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lab import AtWork, Lab, append, until, user_line
from sessiond.serve import protocol

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's own")
GOOD = b'{"jsonrpc":"2.0","id":1,"method":"freshness"}\n'
MIB = 2**20
ROOM = 12 * MIB  # what a process may grow by for other reasons: a first request, a count, an arena


def connect(lab: Lab) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(lab.paths.socket))
    connection.settimeout(10)
    return connection


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def latencies(lab: Lab, path: Path, first: int, count: int) -> list[float]:
    """How long a line takes from the agent's file into the store, one line after the other."""
    took = []
    with lab.store() as db:
        for number in range(first, first + count):
            append(path, user_line(number))
            began = time.monotonic()
            while db.execute("SELECT next_seq FROM _session").fetchall() != [(number + 2,)]:
                assert time.monotonic() - began < 10, "the line does not come"
                time.sleep(0.002)
            took.append(time.monotonic() - began)
    return took


# --- 67 -----------------------------------------------------------------------------------------


class Slow(AtWork):
    """Clients that send a byte each second, and come back when they are sent away."""

    def __init__(self, lab: Lab, clients: int) -> None:
        self._lab = lab
        self.lasted: list[float] = []
        super().__init__([self._drip] * clients)

    def _drip(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            with closing(connect(self._lab)) as connection:
                try:
                    while not self._stop.wait(1.0):
                        connection.send(b"{")
                except OSError:
                    self.lasted.append(time.monotonic() - began)


@pytest.mark.fault(67)
def test_sixteen_clients_that_send_a_byte_a_second_do_not_slow_the_ingest(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    with lab.daemon(config='[watch]\nmode = "native"\n'):
        until(lambda: lab.sessions())
        alone = latencies(lab, path, 1, 25)
        # More than there are places for: whoever is sent away needs a while to notice and come back.
        with Slow(lab, 2 * protocol.MAX_CLIENTS) as slow:
            until(lambda: is_full(lab), 60, "a full house")
            crowded = latencies(lab, path, 26, 25)
            until(lambda: len(slow.lasted) >= protocol.MAX_CLIENTS, 60, "all of them sent away once")
        until(lambda: lab.status()["socket"]["clients"] == 1, what="places that are free again")
        assert lab.status()["socket"]["refused"] >= 1
    assert statistics.median(crowded) < statistics.median(alone) + 0.1, (alone, crowded)
    assert max(crowded) < max(1.0, 3 * max(alone)), (alone, crowded)
    # Two seconds for a request, seen at the next byte; the crowd of a slow machine comes on top.
    assert statistics.median(slow.lasted) < protocol.DEADLINE_SECONDS + 2.5


def is_full(lab: Lab) -> bool:
    """Whether the next client is told that there are too many."""
    with closing(connect(lab)) as connection:
        connection.settimeout(0.3)
        try:
            return b"too many clients" in connection.recv(65536)
        except TimeoutError:
            return False


# --- 68 -----------------------------------------------------------------------------------------


def pour(lab: Lab, total: int) -> int:
    """Send so many bytes without a newline, as far as they are taken; how many conversations that took."""
    block, sent, times = b'\x00\xff{["x' * 10_000, 0, 0
    while sent < total:
        times += 1
        with closing(connect(lab)) as connection:
            try:
                while True:
                    sent += connection.send(block)
            except OSError:
                assert json.loads(connection.recv(65536))["error"]["code"] == protocol.INVALID_REQUEST
    return times


def converse(lab: Lab, total: int) -> int:
    """As many bytes in good requests of the largest size, in one conversation; how many were answered."""
    filler = "x" * (protocol.MAX_REQUEST_BYTES - 100)
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "freshness", "params": {"of": filler}}).encode() + b"\n"
    answered = 0
    with closing(connect(lab)) as connection, connection.makefile("rb") as replies:
        for _ in range(total // len(request)):
            connection.sendall(request)
            answered += b'"result"' in replies.readline()
    return answered


def stay_flat(lab: Lab, total: int) -> dict[str, float]:
    with lab.daemon() as process:
        pour(lab, MIB)
        converse(lab, MIB)
        before, fds = rss(process.pid), descriptors(process.pid)
        peak = before
        stop = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not stop.wait(0.02):
                peak = max(peak, rss(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.monotonic()
        try:
            times, answered = pour(lab, total), converse(lab, total)
        finally:
            stop.set()
            watcher.join()
        assert peak - before < ROOM
        assert answered >= total // protocol.MAX_REQUEST_BYTES, "every good request was answered"
        until(lambda: descriptors(process.pid) <= fds + 1, what="descriptors that are free again")
        assert lab.status()["state"] == "ready"
        assert process.poll() is None
    return {
        "sent_mib": 2 * total / MIB, "cut_off": times, "answered": answered, "grown_mib": (peak - before) / MIB,
        "seconds": time.monotonic() - began,
    }  # fmt: skip


@on_linux
@pytest.mark.fault(68)
def test_stream_without_end_takes_no_memory(lab):
    stay_flat(lab, 32 * MIB)


@on_linux
@pytest.mark.long
@pytest.mark.fault(68)
def test_gigabyte_of_garbage_and_one_of_requests_take_no_memory(lab):
    print("\n", stay_flat(lab, 1024 * MIB))


# --- 69 is in test_access.py and tests/serve; 70 ------------------------------------------------------


@pytest.mark.fault(70)
@pytest.mark.parametrize("variable", ["SESSIOND_RUNTIME_DIR", "XDG_RUNTIME_DIR", "SESSIOND_STATE_DIR"])
def test_folder_whose_path_is_too_long_for_a_socket_is_replaced_by_a_short_one(lab, variable):
    long = lab.folder / ("r" * 120)
    long.mkdir(mode=0o700)
    lab.env.pop("SESSIOND_RUNTIME_DIR")
    lab.env[variable] = str(long)
    if variable == "XDG_RUNTIME_DIR":
        lab.env["XDG_STATE_HOME"] = lab.env.pop("SESSIOND_STATE_DIR")
    at = lab.paths.runtime_dir
    try:
        with lab.daemon():
            assert len(os.fsencode(lab.paths.socket)) <= 104
            assert lab.cli("status").returncode == 0, "daemon and client find the same place"
            assert not list(long.glob("**/*.sock"))
        assert not lab.paths.socket.exists()
    finally:
        shutil.rmtree(at, ignore_errors=True)


# --- 71 -----------------------------------------------------------------------------------------

ABORTS: list[tuple[bytes, int | None]] = [
    (b"", None), (b"{", None), (GOOD, None), (GOOD * 20, None), (b"x" * 70_000, None), (b"\n", socket.SHUT_WR),
    (GOOD, socket.SHUT_WR), (GOOD, socket.SHUT_RD), (GOOD[:-1], socket.SHUT_RDWR), (b"\x00" * 999, socket.SHUT_WR),
]  # fmt: skip


def abort_again_and_again(lab: Lab, times: int, progress: Callable[[int], None] = lambda _: None) -> int:
    """Connect, say something or nothing, and be gone in one of many ways. How many descriptors the daemon has more."""
    chance = random.Random(times)
    with lab.daemon() as process:
        lab.status()
        before = descriptors(process.pid)
        for number in range(times):
            data, how = chance.choice(ABORTS)
            with closing(connect(lab)) as connection:
                try:
                    connection.sendall(data)
                    if how is not None:
                        connection.shutdown(how)
                except OSError:
                    pass
            progress(number)
        until(lambda: lab.status()["socket"]["clients"] == 1, what="clients that are gone")
        assert process.poll() is None
        assert lab.status()["state"] == "ready"
        until(lambda: descriptors(process.pid) <= before + 1, what="descriptors that are free again")
        left = descriptors(process.pid) - before
    log = (lab.folder / "daemon.log").read_text()
    assert "request_failed" not in log
    assert "Traceback" not in log
    return left


@on_linux
@pytest.mark.fault(71)
def test_clients_that_die_cost_no_descriptor_and_no_line_of_log(lab):
    assert abort_again_and_again(lab, 1_500) <= 1


@on_linux
@pytest.mark.long
@pytest.mark.fault(71)
def test_ten_thousand_clients_that_die_while_lines_come_in(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))

    def write(number: int) -> None:
        if number % 100 == 99:
            append(path, user_line(number // 100 + 1))

    began = time.monotonic()
    left = abort_again_and_again(lab, 10_000, write)
    lab.ingest()
    assert len(lab.events("claude:s1")) == 101
    print(f"\n10,000 aborted connections: {left} descriptors left, {time.monotonic() - began:.1f} s")


@contextmanager
def gone_before_the_answer(lab: Lab):
    connection = connect(lab)
    connection.sendall(b'{"jsonrpc":"2.0","id":1,"method":"status"}\n')
    connection.close()
    yield


@pytest.mark.fault(71)
def test_reply_to_a_client_that_is_gone_ends_nothing(lab):
    """SIGPIPE would end the daemon, an error unseen its thread."""
    with lab.daemon() as process:
        for _ in range(50):
            with gone_before_the_answer(lab):
                pass
        assert lab.status()["pid"] == process.pid
        with closing(connect(lab)) as half:  # closed for sending, open for the answer
            half.sendall(GOOD)
            half.shutdown(socket.SHUT_WR)
            assert b'"result"' in half.recv(65536)
            assert half.recv(65536) == b""
