"""What systemd would receive, on a real datagram socket."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from sessiond.notify import Notifier, watchdog_interval


@pytest.fixture
def manager():
    with (
        tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        listener.bind(str(Path(folder) / "notify"))
        listener.settimeout(2)
        yield listener


@pytest.fixture
def notifier(manager):
    with Notifier({"NOTIFY_SOCKET": manager.getsockname()}) as notifier:
        yield notifier


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (lambda n: n.ready(), b"READY=1"),
        (lambda n: n.ready("3 agents"), b"READY=1\nSTATUS=3 agents"),
        (lambda n: n.status("reading: 58 %, \u00fc"), "STATUS=reading: 58 %, \u00fc".encode()),
        (lambda n: n.stopping(), b"STOPPING=1"),
        (lambda n: n.watchdog(), b"WATCHDOG=1"),
        (lambda n: n.extend_timeout(2.5), b"EXTEND_TIMEOUT_USEC=2500000"),
    ],
)
def test_each_message_arrives_in_systemds_words(manager, notifier, say, message):
    assert say(notifier) is True
    assert manager.recv(4096) == message


def test_reloading_carries_the_monotonic_time(manager, notifier):
    before = time.monotonic_ns() // 1000
    notifier.reloading()
    first, second = manager.recv(4096).decode().split("\n")

    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_a_status_stays_one_line_and_lone_surrogates_do_no_harm(manager, notifier):
    assert notifier.status("a\nWATCHDOG=1\r\nb\ud800")
    assert manager.recv(4096) == b"STATUS=a WATCHDOG=1 b?"


@pytest.mark.skipif(sys.platform != "linux", reason="the abstract namespace is Linux's own")
def test_an_abstract_address_is_understood():
    name = f"sessiond-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(2)
        with Notifier({"NOTIFY_SOCKET": "@" + name}) as notifier:
            assert notifier.ready()
        assert manager.recv(4096) == b"READY=1"


@pytest.mark.parametrize(
    "env",
    [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}, {"NOTIFY_SOCKET": "relative"}]
    + [{"NOTIFY_SOCKET": address} for address in ("/no/such/socket", "/" + "x" * 300, "/nul\0byte", "@", "/dev/null")],
)
def test_without_a_usable_address_nothing_happens(env):
    with Notifier(env) as notifier:
        said = [
            notifier.ready("x"),
            notifier.status("x"),
            notifier.reloading(),
            notifier.stopping(),
            notifier.watchdog(),
            notifier.extend_timeout(1),
        ]

    assert said == [False] * 6


def test_a_manager_that_does_not_read_never_blocks_us(manager, notifier):
    began = time.monotonic()
    while notifier.watchdog():
        assert time.monotonic() - began < 5

    assert not notifier.watchdog()
    assert time.monotonic() - began < 5


def test_a_manager_that_was_restarted_is_found_again(manager, notifier):
    path = manager.getsockname()
    notifier.ready()
    os.unlink(path)
    assert not notifier.watchdog()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as again:
        again.bind(path)
        again.settimeout(2)

        assert notifier.watchdog()
        assert again.recv(4096) == b"WATCHDOG=1"


def test_after_close_nothing_is_said(manager, notifier):
    notifier.close()
    notifier.close()

    assert not notifier.ready()


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "me"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "9" * 5000}, None),
    ],
)
def test_the_watchdog_interval_is_half_of_what_is_allowed(env, seconds):
    assert watchdog_interval(env, pid=42) == seconds


def test_the_watchdog_is_meant_for_this_process_by_default():
    env = {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}

    assert watchdog_interval(env) == 1.0
