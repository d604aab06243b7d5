"""The client: every way in which a daemon can be absent, slow, foreign or of another version has its own error."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessiond.errors import Busy, ConfigError, Forbidden, NotRunning, SessiondError, UsageError
from sessiond.serve import protocol
from sessiond.serve.client import Client
from sessiond.serve.server import Stream

ROOT = Path(__file__).parents[2]


def test_a_call_returns_the_result_and_learns_the_version(serve):
    with serve({"echo": lambda params: params}) as serving:
        client = Client(serving.path)

        assert client.server_version is None
        assert client.call("echo", a=1, method="m", self="s") == {"a": 1, "method": "m", "self": "s"}
        assert client.server_version == "9.8.7"


def test_one_client_serves_many_calls_and_leaves_nothing_open(serve, open_files):
    with serve({"echo": lambda params: params}) as serving:
        client = Client(serving.path)
        client.call("echo")
        serving.wait_for(clients=0)
        before = open_files()
        for number in range(50):
            assert client.call("echo", n=number) == {"n": number}
        serving.wait_for(clients=0)

        assert open_files() == before


@pytest.mark.parametrize("kind", [SessiondError, UsageError, NotRunning, Busy, Forbidden, ConfigError])
def test_the_daemons_error_is_raised_again_as_it_was(serve, kind):
    def fail(params):
        raise kind("the fact", hint="the way out")

    with serve({"fail": fail}) as serving, pytest.raises(SessiondError) as caught:
        Client(serving.path).call("fail")

    assert type(caught.value) is kind
    assert (caught.value.fact, caught.value.hint) == ("the fact", "the way out")


def test_an_internal_error_says_nothing_more(serve):
    with serve({"fail": lambda params: 1 / 0}) as serving, pytest.raises(SessiondError) as caught:
        Client(serving.path).call("fail")

    assert (type(caught.value), str(caught.value)) == (SessiondError, "internal error")


@pytest.mark.fault(83)
def test_a_method_that_an_older_daemon_lacks_asks_for_a_restart(serve):
    with (
        serve({}) as serving,
        pytest.raises(SessiondError, match=r"\(9.8.7\) does not know 'novel'") as caught,
    ):
        Client(serving.path).call("novel")

    assert "restart" in caught.value.hint


def test_a_request_that_is_too_long_gets_the_daemons_reason(serve):
    with serve({"echo": lambda params: params}) as serving, pytest.raises(SessiondError, match="too long"):
        Client(serving.path).call("echo", a="x" * 5_000_000)


# --- no daemon ---


def test_without_a_socket_the_daemon_is_not_running(folder):
    with pytest.raises(NotRunning, match="the daemon is not running") as caught:
        Client(folder / "s").call("status")

    assert caught.value.exit_code == 69
    assert caught.value.hint == "start it: sessiond run"


def test_a_leftover_socket_or_file_is_no_daemon(folder):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "s"))
    (folder / "file").touch()

    for name in ("s", "file", "file/below", "no/such"):
        with pytest.raises(NotRunning, match="is not running"):
            Client(folder / name).call("status")


def test_a_path_that_is_too_long_is_named_before_anything_is_tried(folder):
    with pytest.raises(SessiondError, match="bytes long"):
        Client(folder / ("n" * 120))


@contextmanager
def answering(path: Path, *lines: bytes):
    """Something that takes one request and answers with just these bytes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"".join(lines))

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


def reply_of(**members) -> bytes:
    speaks = {"version": "2.0", "protocol": protocol.PROTOCOL}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "sessiond": speaks} | members).encode() + b"\n"


def test_a_daemon_that_dies_before_its_answer_is_not_running(folder):
    with answering(folder / "s"), pytest.raises(NotRunning, match="hung up"):
        Client(folder / "s").call("status")


@pytest.mark.parametrize(
    "line",
    [b"hello\n", b"[]\n", b"{}\n", b'"s"\n', reply_of(result=1)[:-9], reply_of(sessiond=None), b"\xff\n"],
)
def test_whatever_else_answers_is_an_error_and_no_crash(folder, line):
    with answering(folder / "s", line), pytest.raises(SessiondError, match="does not speak"):
        Client(folder / "s").call("status")


@pytest.mark.fault(83)
def test_a_daemon_of_another_protocol_is_named_with_the_way_out(folder):
    """Fault 83."""
    line = reply_of(result=1, sessiond={"version": "7.0", "protocol": 99, "more": True})
    with (
        answering(folder / "s", line),
        pytest.raises(SessiondError, match=r"\(7.0\) speaks protocol 99") as caught,
    ):
        Client(folder / "s").call("status")

    assert "restart" in caught.value.hint


@pytest.mark.fault(83)
def test_what_a_newer_daemon_adds_is_ignored(folder):
    with answering(folder / "s", reply_of(result=[1], novel={"a": 1})):
        assert Client(folder / "s").call("status") == [1]


def test_wrong_params_without_details_are_a_usage_error(folder):
    line = reply_of(error={"code": protocol.INVALID_PARAMS, "message": "params must be an object"})
    with answering(folder / "s", line), pytest.raises(UsageError, match="must be an object"):
        Client(folder / "s").call("status")


def test_a_daemon_that_hangs_is_given_up_after_the_timeout(folder):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen(0)
        client = Client(folder / "s", timeout=0.2)
        began = time.monotonic()
        with pytest.raises(NotRunning, match=r"did not answer within 0.2 s"):
            client.call("status")  # takes the one place in the backlog; its connection stays queued
        with pytest.raises(NotRunning, match=r"did not answer within 0.2 s"):
            client.call("status")  # finds the backlog full

    assert 0.35 <= time.monotonic() - began < 1.0


def test_without_a_timeout_a_long_call_is_waited_for(serve):
    release = threading.Event()
    with serve({"wait": lambda params: release.wait(10)}) as serving:
        with pytest.raises(NotRunning, match="did not answer"):
            Client(serving.path, timeout=0.1).call("wait")
        threading.Timer(0.3, release.set).start()

        assert Client(serving.path, timeout=None).call("wait") is True


def test_a_full_daemon_is_busy(serve):
    with serve({"echo": lambda params: params}) as serving:
        others = [serving.connect() for _ in range(protocol.MAX_CLIENTS)]
        serving.wait_for(clients=protocol.MAX_CLIENTS)
        with pytest.raises(Busy, match="too many clients"):
            Client(serving.path).call("echo")
        for connection in others:
            connection.close()


# --- streams ---


def test_a_stream_yields_its_items_and_ends(serve):
    with serve({"count": lambda params: Stream(iter([None, 1, None, {"a": 2}]))}) as serving:
        client = Client(serving.path)

        assert list(client.stream("count")) == [1, {"a": 2}]
        assert client.server_version == "9.8.7"


def test_leaving_a_stream_ends_it_in_the_daemon(serve):
    closed = threading.Event()

    def ticks():
        try:
            while True:
                yield "tick"
                time.sleep(0.005)
                yield None
        finally:
            closed.set()

    with serve({"ticks": lambda params: Stream(ticks())}) as serving:
        stream = Client(serving.path).stream("ticks")
        assert [next(stream), next(stream)] == ["tick", "tick"]
        stream.close()

        assert closed.wait(2)


def test_a_stream_waits_longer_than_the_timeout_for_its_next_item(serve):
    def slow():
        for _ in range(30):
            time.sleep(0.01)
            yield None
        yield "late"

    with serve({"slow": lambda params: Stream(slow())}) as serving:
        assert list(Client(serving.path, timeout=0.1).stream("slow")) == ["late"]


def test_a_stream_of_a_daemon_that_stops_ends_with_not_running(serve):
    def ticks():
        while True:
            yield "tick"
            time.sleep(0.005)

    with serve({"ticks": lambda params: Stream(ticks())}) as serving:
        stream = Client(serving.path).stream("ticks")
        next(stream)
        serving.server.stop()
        with pytest.raises(NotRunning, match="is stopping"):
            list(stream)


def test_a_stream_of_an_unknown_method_raises_at_once(serve):
    with serve({}) as serving, pytest.raises(SessiondError, match="does not know"):
        next(Client(serving.path).stream("novel"))


# --- weight ---


def test_importing_the_client_stays_light():
    script = """
import sys
before = set(sys.modules)
import sessiond.serve.client
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
print(*sorted(name for name in sys.modules if name.startswith("sessiond.")))
print(*sorted({"inspect", "dataclasses", "asyncio", "logging", "subprocess", "ssl"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    foreign, ours, heavy = done.stdout.split("\n")[:3]

    assert foreign == "sessiond"
    assert ours.split() == [
        "sessiond.errors",
        "sessiond.serve",
        "sessiond.serve.client",
        "sessiond.serve.protocol",
    ]
    assert heavy == ""


def test_a_client_that_restored_sigpipe_survives_a_hang_up(folder):
    script = """
import signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
from sessiond.errors import NotRunning
from sessiond.serve.client import Client
try:
    Client(sys.argv[1]).call("status", text="x" * 5_000_000)
except NotRunning as error:
    print(error.fact)
"""
    with answering(folder / "s"):
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder / "s")], cwd=ROOT, capture_output=True, text=True
        )

    assert (done.returncode, done.stdout.strip()) == (0, "the daemon hung up without an answer")
