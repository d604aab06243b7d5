"""Rows 63-66, 79 and 81: signals, configuration, instances and descriptors, all of the real process."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from lab import Lab, append, until, user_line
from sessiond.serve.client import Client
from sessiond.store.connect import rows

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's own")
STOP_SECONDS = 2.0


class Manager:
    """What systemd is to the daemon: a datagram socket, and every message that came."""

    def __init__(self, lab: Lab) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(lab.folder / "notify"))
        lab.env["NOTIFY_SOCKET"] = str(lab.folder / "notify")
        self.messages: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while message := self._socket.recv(65536):
            self.messages.append(message.decode())

    def said(self, word: str) -> bool:
        return any(word in message.split("\n") for message in list(self.messages))

    def states(self) -> list[str]:
        """READY, RELOADING and STOPPING in their order."""
        lines = [line for message in list(self.messages) for line in message.split("\n")]
        return [line for line in lines if line in ("READY=1", "RELOADING=1", "STOPPING=1")]

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self._socket.getsockname())
        self._thread.join(5)
        self._socket.close()


@pytest.fixture
def manager(lab):
    found = Manager(lab)
    yield found
    found.close()


def events_in(lab: Lab) -> list[str]:
    return [json.loads(line)["event"] for line in (lab.folder / "daemon.log").read_text().splitlines()]


# --- 63: told to stop ---------------------------------------------------------------------------


def stop_again_and_again(lab: Lab, manager: Manager, stops: int, seed: int) -> list[float]:
    """Start over files that are not read yet, stop at a random moment; every stop is clean, and nothing is lost."""
    chance = random.Random(seed)
    files = [lab.claude_file(f"s{number}") for number in range(8)]
    line = [0] * len(files)
    took = []
    for round_ in range(stops):
        for number, path in enumerate(files):
            lines = [user_line(n, "x" * 700, session=f"s{number}") for n in range(line[number], line[number] + 700)]
            append(path, b"".join(lines))
            line[number] += 700
        manager.messages.clear()
        process = lab.start_daemon()
        until(lambda: manager.said("READY=1"), what="READY=1")
        time.sleep(chance.uniform(0, 0.4))
        began = time.monotonic()
        process.send_signal((signal.SIGTERM, signal.SIGINT)[round_ % 2])
        assert process.wait(20) == 0, (lab.folder / "daemon.log").read_text()[-2000:]
        took.append(time.monotonic() - began)
        assert took[-1] < STOP_SECONDS
        assert manager.states() == ["READY=1", "STOPPING=1"]
        assert not lab.paths.socket.exists()
        wal = lab.paths.store.with_name("store.db-wal")
        assert not wal.exists() or wal.stat().st_size == 0, "what was read is in the database, not in its WAL"
        for path in files:
            assert path.read_bytes().startswith(lab.archived(path)), "whole batches or nothing"
    lab.ingest()
    for number, path in enumerate(files):
        assert lab.archived(path) == path.read_bytes()
        assert len(lab.events(f"claude:s{number}")) == line[number]
    return took


@pytest.mark.fault(63)
def test_signal_at_any_moment_of_an_ingest_ends_it_cleanly_within_two_seconds(lab, manager):
    stop_again_and_again(lab, manager, 3, seed=1)


@pytest.mark.long
@pytest.mark.fault(63)
def test_a_hundred_signals(lab, manager):
    took = sorted(stop_again_and_again(lab, manager, 100, seed=2))
    print(f"\n100 stops: median {took[50]:.3f} s, slowest {took[-1]:.3f} s")


@pytest.mark.fault(63)
def test_second_signal_means_now(lab):
    """The first stop cannot come to its end, since another program holds the store; nobody has to wait for that."""
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    with lab.daemon() as process:
        until(lambda: lab.sessions())
        other = apsw.Connection(str(lab.paths.store))
        other.set_busy_timeout(30_000)
        try:
            other.execute("BEGIN IMMEDIATE")
            append(path, b"".join(user_line(n) for n in range(1, 50)))
            lab.call("ingest")
            time.sleep(0.5)  # the writer waits by now: nothing outside tells
            process.send_signal(signal.SIGTERM)
            until(lambda: "stopping" in events_in(lab))
            assert process.poll() is None
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 130
            assert time.monotonic() - began < 0.5
        finally:
            other.close()
    lab.ingest()
    assert lab.archived(path) == path.read_bytes()
    assert len(lab.events("claude:s1")) == 50


# --- 64: configuration --------------------------------------------------------------------------


def bad_configurations() -> dict[str, tuple[bytes, str]]:
    return {
        "bad TOML": (b"[watch\n", "line 1"),
        "wrong type": (b"[watch]\nscan_interval = true\n", "watch.scan_interval"),
        "bad value": (b"[retention]\nsoft_cap = '0'\n", "retention.soft_cap"),
        "unknown key": (b"[watch]\nscan_intervall = '5s'\n", "did you mean watch.scan_interval"),
        "unknown section": (b"[wacth]\nmode = 'poll'\n", "wacth"),
        "no text": (b"\xff\xfe\x00", "UTF-8"),
        "not a file": (b"", "is a folder"),
        "unreadable": (b"", "cannot be read"),
    }


@pytest.mark.fault(64)
def test_bad_configuration_at_sighup_is_refused_named_and_outlived(lab, manager):
    config = lab.user_home / ".config" / "sessiond" / "config.toml"
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    good = '[watch]\nmode = "poll"\npoll_interval = "100ms"\n'
    with lab.daemon(config=good) as process:
        for number, (name, (text, words)) in enumerate(bad_configurations().items(), 1):
            if name == "unreadable" and os.geteuid() == 0:
                continue  # root reads everything
            put_in_place(config, name, text)
            manager.messages.clear()
            process.send_signal(signal.SIGHUP)
            until(lambda: manager.states() == ["RELOADING=1", "READY=1"], what=f"RELOADING, READY after {name}")
            status = until(lambda: (found := lab.status()) and found["config"]["error"] and found, what=name)
            assert words in status["config"]["error"], name
            assert "configuration" in [each["name"] for each in status["degraded"]]
            assert status["watch"]["mode"] == "poll", "the old one holds"
            append(path, user_line(number))
            until(lambda number=number: len(lab.events("claude:s1")) == number + 1, what="the old one at work")
            remove(config)
            config.write_text(good)
            process.send_signal(signal.SIGHUP)
            until(lambda: lab.status()["config"]["error"] is None)
        assert process.poll() is None
        log = events_in(lab)
        assert log.count("configuration_rejected") >= len(bad_configurations()) - 1


def put_in_place(config: Path, name: str, text: bytes) -> None:
    remove(config)
    if name == "not a file":
        config.mkdir()
    else:
        config.write_bytes(text)
        config.chmod(0 if name == "unreadable" else 0o600)


def remove(config: Path) -> None:
    if config.is_dir():
        config.rmdir()
    else:
        config.unlink()


# --- 65 and 66: two of them, and what a killed one leaves -----------------------------------------


@pytest.mark.fault(65)
@pytest.mark.long
def test_of_twenty_daemons_started_at_once_one_runs_and_the_others_name_it(lab):
    processes = [
        subprocess.Popen([sys.executable, "-m", "sessiond", "run"], env=lab.env, stderr=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    try:
        until(lambda: sum(each.poll() is None for each in processes) == 1, 60, "one that is left")
        (winner,) = [each for each in processes if each.poll() is None]
        losers = [each for each in processes if each is not winner]
        assert {each.returncode for each in losers} == {75}
        assert all(f"pid {winner.pid}" in each.stderr.read() for each in losers)
        until(lambda: lab.status())
        assert lab.status()["pid"] == winner.pid
        winner.kill()
        winner.wait()
        with lab.daemon() as next_one:
            assert lab.status()["pid"] == next_one.pid
    finally:
        for each in processes:
            each.kill()
            each.wait()
            each.stderr.close()


@pytest.mark.fault(65)
@pytest.mark.fault(66)
def test_killed_daemon_leaves_lock_and_socket_to_the_next_one_and_a_second_one_touches_neither(lab):
    with lab.daemon() as process:
        before = (lab.paths.socket.stat().st_ino, lab.paths.lock.read_bytes())
        second = lab.cli("run")
        assert second.returncode == 75
        assert f"pid {process.pid}" in second.stderr
        assert (lab.paths.socket.stat().st_ino, lab.paths.lock.read_bytes()) == before
        process.kill()
        process.wait()
    assert lab.paths.socket.is_socket()
    assert str(process.pid) in lab.paths.lock.read_text()
    assert lab.cli("status").returncode == 69
    with lab.daemon() as process:
        assert lab.status()["pid"] == process.pid
        assert [each.name for each in lab.paths.runtime_dir.iterdir()] == ["sessiond.sock"]


# --- 79: nobody reads the log ---------------------------------------------------------------------


@contextmanager
def daemon_with_stderr(lab: Lab, way: str):
    """The daemon with a log at level debug and a stderr of this kind; its process, and how to harm the stderr later."""
    lab.write_config('[log]\nlevel = "debug"\n[watch]\nmode = "poll"\npoll_interval = "100ms"\n')
    read_end, write_end = os.pipe()
    redirect = {"closed": "<&- >&- 2>&-", "full disk": "2>/dev/full"}.get(way, "")
    if way == "full pipe":
        os.set_blocking(write_end, False)
        try:
            while os.write(write_end, b"x" * 4096):
                pass
        except BlockingIOError:
            os.set_blocking(write_end, True)
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$0" -m sessiond run {redirect}', sys.executable],
        env=lab.env,
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        stderr=write_end,
    )
    os.close(write_end)
    try:
        until(lambda: lab.status() or process.poll() is not None)
        yield process, lambda: os.close(read_end)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        if way != "reader that goes away":
            os.close(read_end)


@pytest.mark.fault(79)
@pytest.mark.parametrize("way", ["full pipe", "closed", "full disk", "reader that goes away"])
def test_log_that_nobody_takes_holds_nothing_up(lab, way):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    with daemon_with_stderr(lab, way) as (process, go_away):
        until(lambda: lab.events("claude:s1"))
        if way == "reader that goes away":
            go_away()
        for number in range(1, 6):
            append(path, user_line(number))
            process.send_signal(signal.SIGUSR1)  # some kilobytes of log each
            until(lambda number=number: len(lab.events("claude:s1")) == number + 1, 10, "the next line")
        assert process.poll() is None
        assert lab.status()["state"] == "ready"
        if way == "closed" and sys.platform == "linux":
            ends = {os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)}
            assert ends == {"/dev/null"}, "a stray word on stderr must not land in a file of ours"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - began < STOP_SECONDS + 1.0  # a second more for words that cannot be written
    with lab.store() as db:
        assert rows(db, "PRAGMA integrity_check") == [("ok",)]


# --- 81: children -------------------------------------------------------------------------------

# Python tells an audit hook of everything that could make a child.
HOOK = """
import os, sys
_CHILDREN = {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen", "pty.spawn"}
def _note(event, args):
    if event in _CHILDREN:
        with open(os.environ["NOTED"], "a") as file:
            file.write(f"{event} {args[:2]!r}\\n")
sys.addaudithook(_note)
"""


def loose_descriptors(pid: int) -> dict[str, str]:
    """Descriptors besides the standard three that a child would inherit, and what they are."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            at = os.readlink(f"/proc/{pid}/fd/{number}")
            facts = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
        except FileNotFoundError:
            continue  # closed again
        flags = next(int(line.split()[1], 8) for line in facts.splitlines() if line.startswith("flags:"))
        if int(number) > 2 and not flags & os.O_CLOEXEC:
            found[number] = at
    return found


@on_linux
@pytest.mark.fault(81)
def test_no_child_is_made_after_the_store_is_open_and_none_would_inherit_anything(lab):
    (lab.folder / "hook").mkdir()
    (lab.folder / "hook" / "sitecustomize.py").write_text(HOOK)
    noted = lab.folder / "noted"
    lab.env |= {"PYTHONPATH": f"{lab.folder}/hook:{Path(__file__).parents[2]}", "NOTED": str(noted)}
    path = lab.claude_file()
    path.write_bytes(b"".join(user_line(n) for n in range(500)))
    loose: dict[str, str] = {}
    with socket.socket(socket.AF_UNIX) as client, lab.daemon(config='[watch]\nmode = "native"\n') as process:
        client.connect(str(lab.paths.socket))
        for verb in ("analyze", "evict", "reindex"):
            append(path, b"".join(user_line(n) for n in range(500, 600)))
            lab.ingest_through_daemon()
            ticket = lab.call("work", verb=verb, params={})["ticket"]
            until(lambda ticket=ticket: lab.call("worked", ticket=ticket)["done"])
            loose |= loose_descriptors(process.pid)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        until(lambda: "configuration_loaded" in events_in(lab) and "state" in events_in(lab))
        loose |= loose_descriptors(process.pid)
        assert len(os.listdir(f"/proc/{process.pid}/fd")) > 10
        assert children_of(process.pid) == []
    assert loose == {}
    assert not noted.exists()


@on_linux
@pytest.mark.fault(81)
def test_process_that_tries_a_pattern_of_the_user_has_nothing_of_ours_open(lab):
    """The one child there is: another program at once, never a copy of this one with the store open."""
    with lab.daemon() as process:
        lab.write_config("[privacy]\nmask = ['shop-[0-9]{6}']\n")
        held: list[str] = []
        asked = threading.Thread(target=lambda: Client(lab.paths.socket, 30).call("reload"))
        asked.start()
        while asked.is_alive():
            for child in children_of(process.pid):
                held += held_by(child)
        asked.join()
        assert any("pipe:" in each for each in held), "the child was seen"
        assert not [each for each in held if str(lab.folder) in each or "inotify" in each or "socket:" in each]
        assert lab.status()["config"]["error"] is None


def children_of(pid: int) -> list[int]:
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            found += [int(each) for each in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
        except FileNotFoundError:
            continue
    return found


def held_by(pid: int) -> list[str]:
    """What another program has open; nothing while it is still a copy of its parent, about to become one."""
    try:
        if b"trial.py" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return []
        return [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    except (FileNotFoundError, ProcessLookupError):
        return []
