"""Faults 66-71, 81 and 83: what the control socket does with clients of every kind."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sessiond.errors import Busy, Forbidden, SessiondError, UsageError
from sessiond.serve import protocol
from sessiond.serve.server import Server, Stream

ROOT = Path(__file__).parents[2]
METHODS = {"echo": lambda params: params}


def code_of(reply: dict) -> int:
    return reply["error"]["code"]


# --- what a reply looks like ---


def test_every_reply_carries_version_and_protocol(serve, request_line):
    with serve(METHODS) as serving:
        good, unknown = serving.exchange(request_line("echo", 7, a=[1, "ü"]) + request_line("nope", "x"))

    speaks = {"version": "9.8.7", "protocol": 1}
    assert good == {"jsonrpc": "2.0", "sessiond": speaks, "id": 7, "result": {"a": [1, "ü"]}}
    assert (unknown["id"], code_of(unknown), unknown["sessiond"]) == ("x", protocol.METHOD_NOT_FOUND, speaks)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{nope", protocol.PARSE_ERROR),
        (b"\xff\xfe\x00", protocol.PARSE_ERROR),
        (b"", protocol.PARSE_ERROR),
        (b"[" * 60_000, protocol.PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "echo"}', protocol.PARSE_ERROR),
        (b"[]", protocol.INVALID_REQUEST),
        (b"7", protocol.INVALID_REQUEST),
        (b'{"id": 1, "method": "echo"}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "echo"}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1e999, "method": "echo"}', protocol.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "none"}', protocol.METHOD_NOT_FOUND),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "echo", "params": [1]}', protocol.INVALID_PARAMS),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "echo", "params": null}', protocol.INVALID_PARAMS),
    ],
)
def test_a_request_that_cannot_be_used_gets_its_error_code(serve, line, code):
    with serve(METHODS) as serving:
        (reply,) = serving.exchange(line + b"\n")

    assert code_of(reply) == code
    assert "result" not in reply


def test_garbage_ends_the_conversation_but_a_wrong_request_does_not(serve, request_line):
    with serve(METHODS) as serving:
        after_wrong = serving.exchange(b"[]\n" + request_line("echo"))
        after_garbage = serving.exchange(b"{nope\n" + request_line("echo"))

    assert [("result" in reply) for reply in after_wrong] == [False, True]
    assert [code_of(reply) for reply in after_garbage] == [protocol.PARSE_ERROR]


def test_a_notification_is_carried_out_and_not_answered(serve, request_line):
    seen = []
    with serve({"note": seen.append}) as serving:
        replies = serving.exchange(
            b'{"jsonrpc": "2.0", "method": "note", "params": {"a": 1}}\n{"jsonrpc": "2.0", "method": "none"}\n'
        )

    assert (seen, replies) == ([{"a": 1}], [])


def test_a_last_line_without_newline_is_answered_on_half_close(serve, request_line):
    with serve(METHODS) as serving:
        (reply,) = serving.exchange(request_line("echo", a=1).rstrip())

    assert reply["result"] == {"a": 1}


def test_a_lone_surrogate_and_a_huge_id_come_back_as_they_went(serve):
    huge = 10**4000
    with serve(METHODS) as serving:
        line = b'{"jsonrpc":"2.0","id":%d,"method":"echo","params":{"a":"\\ud800"}}\n' % huge
        (reply,) = serving.exchange(line)

    assert (reply["id"], reply["result"]) == (huge, {"a": "\ud800"})


# --- errors of a handler ---


def test_a_sessiond_error_reaches_the_client_whole(serve, request_line):
    def refuse(params):
        raise Busy("the store is locked", hint="try again")

    with serve({"refuse": refuse}) as serving:
        (reply,) = serving.exchange(request_line("refuse"))

    assert reply["error"] == {
        "code": protocol.FAILED,
        "message": "the store is locked",
        "data": {"fact": "the store is locked", "hint": "try again", "exit_code": 75},
    }
    assert serving.errors == []


def test_a_usage_error_means_wrong_params(serve, request_line):
    def check(params):
        raise UsageError("limit is no number")

    with serve({"check": check}) as serving:
        (reply,) = serving.exchange(request_line("check", limit="x"))

    assert code_of(reply) == protocol.INVALID_PARAMS
    assert reply["error"]["data"]["exit_code"] == 2


@pytest.mark.parametrize("result", [object(), float("nan"), {1: {2}}])
def test_what_json_cannot_say_is_an_internal_error(serve, request_line, result):
    with serve({"get": lambda params: result}) as serving:
        (reply,) = serving.exchange(request_line("get"))

    assert code_of(reply) == protocol.INTERNAL_ERROR
    assert len(serving.errors) == 1


def test_any_other_exception_goes_to_the_log_and_never_to_the_client(serve, request_line):
    def fail(params):
        raise KeyError("a secret word")

    with serve(METHODS | {"fail": fail}) as serving:
        failed, good = serving.exchange(request_line("fail") + request_line("echo"))

    assert failed["error"] == {"code": protocol.INTERNAL_ERROR, "message": "internal error"}
    assert "result" in good
    (error,) = serving.errors
    assert isinstance(error, KeyError)
    assert error.__traceback__ is not None


def test_a_log_that_fails_does_not_take_the_socket_with_it(folder, serve, request_line):
    def explode(error):
        raise OSError("the log is gone")

    with serve({"fail": lambda params: 1 / 0}) as serving:
        serving.server._on_error = explode
        (reply,) = serving.exchange(request_line("fail"))

    assert code_of(reply) == protocol.INTERNAL_ERROR


def test_an_answer_beyond_the_limit_is_an_error_that_says_so(serve, request_line):
    with serve({"much": lambda params: "x" * protocol.MAX_REPLY_BYTES}) as serving:
        (reply,) = serving.exchange(request_line("much"))

    assert "too many" in reply["error"]["message"]
    assert reply["error"]["data"]["hint"]


# --- the filter ---


def mask(value):
    if isinstance(value, dict):
        return {name: mask(each) for name, each in value.items()}
    return value.replace("hunter2", "***") if isinstance(value, str) else value


def test_results_errors_and_streamed_items_pass_the_filter(serve, request_line):
    def refuse(params):
        raise SessiondError("no hunter2 here", hint="hunter2")

    methods = METHODS | {"refuse": refuse, "stream": lambda params: Stream(iter(["hunter2"]))}
    with serve(methods, reply_filter=mask) as serving:
        lines = request_line("echo", a="hunter2") + request_line("refuse") + request_line("stream")
        replies = serving.exchange(lines)

    assert len(replies) == 4
    assert "hunter2" not in json.dumps(replies)
    assert json.dumps(replies).count("***") == 5  # a, message, fact, hint, item


def test_when_the_filter_fails_nothing_unfiltered_is_sent(serve, request_line):
    def broken(value):
        raise RuntimeError

    with serve({"get": lambda params: "hunter2"}, reply_filter=broken) as serving:
        replies = serving.exchange(request_line("get"))

    assert "hunter2" not in json.dumps(replies)
    assert serving.errors


# --- limits ---


@pytest.mark.fault(68)
def test_a_request_of_64_kib_is_read_and_one_byte_more_is_not(serve, request_line):
    empty = len(request_line("echo", a="")) - 1
    with serve(METHODS) as serving:
        (good,) = serving.exchange(request_line("echo", a="x" * (protocol.MAX_REQUEST_BYTES - empty)))
        (bad,) = serving.exchange(request_line("echo", a="x" * (protocol.MAX_REQUEST_BYTES - empty + 1)))

    assert len(good["result"]["a"]) == protocol.MAX_REQUEST_BYTES - empty
    assert code_of(bad) == protocol.INVALID_REQUEST


@pytest.mark.fault(68)
def test_an_endless_line_is_cut_off_early_with_a_reason(serve):
    with serve(METHODS) as serving, serving.connect() as connection:
        sent = 0
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while sent < 1 << 30:
                sent += connection.send(b"x" * 65536)
        reply = json.loads(connection.recv(65536))

    assert code_of(reply) == protocol.INVALID_REQUEST
    assert sent < 2 << 20  # what socket buffers hold; the rest was never taken


@pytest.mark.fault(67)
def test_a_slow_request_is_ended_at_its_deadline(serve):
    with serve(METHODS) as serving, serving.connect() as connection:
        began = time.monotonic()
        connection.sendall(b"{")
        reply = json.loads(connection.recv(65536))
        took = time.monotonic() - began

    assert code_of(reply) == protocol.INVALID_REQUEST
    assert 1.9 <= took <= 2.6


@pytest.mark.fault(67)
def test_slow_clients_delay_no_one_and_lose_their_places(serve, request_line):
    """Fault 67: 16 clients that send a byte now and then."""
    with serve(METHODS) as serving:
        slow = [serving.connect() for _ in range(15)]
        began = time.monotonic()
        for connection in slow:
            connection.sendall(b"{")
        serving.wait_for(clients=15)
        assert "result" in serving.exchange(request_line("echo"))[0]  # the 16th place
        served_after = time.monotonic() - began

        serving.wait_for(clients=15)
        slow.append(serving.connect())
        serving.wait_for(clients=16)
        (refused,) = serving.exchange(request_line("echo"))  # there is no 17th
        refused_after = time.monotonic() - began

        drip(slow, until=lambda: serving.server.counters()["clients"] <= 1)
        assert "result" in serving.exchange(request_line("echo"))[0]
        freed_after = time.monotonic() - began
        for connection in slow:
            connection.close()

    assert max(served_after, refused_after) < 1.0
    assert refused["error"]["data"]["exit_code"] == 75
    assert serving.server.counters()["refused"] == 1
    assert freed_after < 3.0


def drip(connections, until) -> None:
    deadline = time.monotonic() + 5
    while not until():
        assert time.monotonic() < deadline
        for connection in connections:
            try:
                connection.send(b" ")
            except OSError:
                continue
        time.sleep(0.1)


def test_a_client_that_does_not_take_its_reply_is_dropped(serve, request_line, short_deadline):
    with serve({"much": lambda params: "x" * (8 << 20)}) as serving, serving.connect() as connection:
        connection.sendall(request_line("much"))
        serving.wait_for(clients=1, requests=1)
        began = time.monotonic()
        serving.wait_for(clients=0)

    assert short_deadline / 2 <= time.monotonic() - began <= short_deadline + 0.7


def test_a_slow_handler_is_not_bound_by_the_clients_deadline(serve, request_line, short_deadline):
    release = threading.Event()
    with (
        serve(METHODS | {"wait": lambda params: release.wait(10)}) as serving,
        serving.connect() as connection,
    ):
        connection.sendall(request_line("wait"))
        serving.wait_for(requests=1)
        assert "result" in serving.exchange(request_line("echo"))[0]
        threading.Timer(short_deadline + 0.2, release.set).start()
        reply = json.loads(connection.recv(65536))

    assert reply["result"] is True


# --- clients that vanish ---


@pytest.mark.fault(71)
def test_thousands_of_aborted_connections_leave_no_descriptor_behind(serve, request_line, open_files, until):
    """Fault 71."""
    ways = [b"", b"{", request_line("echo"), b"x" * 5000, b"\n"]
    with serve(METHODS) as serving:
        serving.exchange(request_line("echo"))
        serving.wait_for(clients=0)
        before = open_files()
        for number in range(10_000):
            connection = serving.connect()
            connection.sendall(ways[number % len(ways)])
            if number % 3 == 0:
                connection.shutdown(socket.SHUT_WR)
            connection.close()
        until(lambda: "result" in serving.exchange(request_line("echo"))[0])  # they are all accepted before it
        serving.wait_for(clients=0)

        assert open_files() == before
    assert serving.errors == []


@pytest.mark.fault(71)
def test_a_client_that_leaves_before_its_reply_harms_no_one(serve, request_line):
    gone = threading.Event()
    with serve(METHODS | {"wait": lambda params: gone.wait(5) and "x" * 1_000_000}) as serving:
        connection = serving.connect()
        connection.sendall(request_line("wait"))
        serving.wait_for(requests=1)
        connection.close()
        gone.set()
        serving.wait_for(clients=0)

        assert "result" in serving.exchange(request_line("echo"))[0]
    assert serving.errors == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
almost_requests = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | json_values, "method": st.sampled_from(["echo", "fail"]) | json_values},
    optional={"id": json_values, "params": json_values},
)
garbage = st.one_of(
    st.binary(max_size=300),
    st.lists(almost_requests | json_values, max_size=4).map(lambda items: "\n".join(map(json.dumps, items)).encode()),
    st.integers(65_000, 200_000).map(lambda size: b"{" * size),
)


@pytest.mark.fault(68)
def test_no_garbage_kills_the_server(serve, request_line):
    """Fault 68: whatever comes, every reply is well-formed, and a good request is answered right after."""
    with serve(METHODS | {"fail": lambda params: 1 / 0}) as serving:

        @settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
        @given(garbage, st.booleans())
        def check(data, ends_with_newline):
            for reply in serving.exchange(data + b"\n" * ends_with_newline):
                assert reply["jsonrpc"] == "2.0"
                assert ("result" in reply) != ("error" in reply)
            assert serving.exchange(request_line("echo", a=1))[0]["result"] == {"a": 1}

        check()
        assert all(isinstance(error, ZeroDivisionError) for error in serving.errors)


# --- streams ---


def test_a_stream_sends_its_items_and_then_one_reply(serve, request_line):
    with serve(METHODS | {"count": lambda params: Stream(iter(range(params["n"])))}) as serving:
        replies = serving.exchange(request_line("count", 5, n=3) + request_line("echo"))

    assert [reply.get("params") for reply in replies[:3]] == [{"id": 5, "item": n} for n in range(3)]
    assert {reply["method"] for reply in replies[:3]} == {"count"}
    assert (replies[3]["id"], replies[3]["result"]) == (5, None)
    assert replies[4]["result"] == {}


class Ticker:
    """A stream without end that says when it is closed."""

    def __init__(self, item=None):
        self.item = item
        self.closed = threading.Event()

    def __call__(self, params):
        self.kept = self.ticks()  # so that only close() ends it, not the loss of the last reference
        return Stream(self.kept)

    def ticks(self):
        try:
            while True:
                time.sleep(0.01)
                yield self.item
        finally:
            self.closed.set()


@pytest.mark.parametrize("item", [None, "tick"])
def test_a_stream_outlives_the_deadline_and_ends_with_its_client(serve, request_line, short_deadline, item):
    ticker = Ticker(item)
    with serve({"ticks": ticker}) as serving:
        connection = serving.connect()
        connection.sendall(request_line("ticks"))
        serving.wait_for(requests=1)
        assert not ticker.closed.wait(short_deadline + 0.3)
        connection.close()

        assert ticker.closed.wait(2)
        serving.wait_for(clients=0)


def test_a_stream_goes_on_when_its_client_only_stops_sending(serve, request_line):
    def later(params):
        return Stream(iter([None, None, "late", None]))

    with serve({"later": later}) as serving:
        replies = serving.exchange(request_line("later"))

    assert [reply["params"]["item"] for reply in replies[:-1]] == ["late"]


def test_a_stream_that_no_one_reads_is_ended(serve, request_line, short_deadline):
    ticker = Ticker("x" * 100_000)
    with serve({"ticks": ticker}) as serving, serving.connect() as connection:
        connection.sendall(request_line("ticks"))

        assert ticker.closed.wait(5)


def test_a_stream_that_fails_midway_ends_with_an_error(serve, request_line):
    def fail():
        yield 1
        raise SessiondError("the store is gone")

    with serve({"fail": lambda params: Stream(fail())}) as serving:
        item, last = serving.exchange(request_line("fail"))

    assert item["params"]["item"] == 1
    assert last["error"]["message"] == "the store is gone"


def test_streams_leave_room_for_other_requests(serve, request_line):
    ticker = Ticker()
    with serve(METHODS | {"ticks": ticker, "one": lambda params: Stream(iter([1]))}) as serving:
        streams = [serving.connect() for _ in range(protocol.MAX_STREAMS)]
        for connection in streams:
            connection.sendall(request_line("ticks"))
        serving.wait_for(requests=protocol.MAX_STREAMS)
        (refused,) = serving.exchange(request_line("ticks"))

        assert refused["error"]["data"]["exit_code"] == 75
        assert "result" in serving.exchange(request_line("echo"))[0]
        for connection in streams:
            connection.close()
        serving.wait_for(clients=0)
        assert serving.exchange(request_line("one"))[0]["params"]["item"] == 1


# --- start and stop ---


def test_stop_ends_streams_and_idle_clients_within_a_second(serve, request_line, open_files):
    before = open_files()
    ticker = Ticker()
    with serve(METHODS | {"ticks": ticker}) as serving:
        with serving.connect() as idle, serving.connect() as streaming, serving.connect() as half:
            half.sendall(b"{")
            streaming.sendall(request_line("ticks"))
            serving.wait_for(clients=3, requests=1)
            began = time.monotonic()
            serving.server.stop()
            took = time.monotonic() - began

            assert ticker.closed.is_set()
            assert read_all(idle) == b""
            assert json.loads(read_all(streaming))["error"]["data"]["exit_code"] == 69
        serving.server.stop()  # again: harmless

    assert took < 0.5
    assert not serving.path.exists()
    assert serving.server.counters()["clients"] == 0
    assert open_files() == before


def read_all(connection) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def test_stop_lets_a_request_under_way_finish(serve, request_line):
    begun = threading.Event()

    def work(params):
        begun.set()
        time.sleep(0.2)
        return "done"

    with serve({"work": work}) as serving, serving.connect() as connection:
        connection.sendall(request_line("work"))
        assert begun.wait(2)
        serving.server.stop()

        assert json.loads(connection.recv(65536))["result"] == "done"


def test_stop_does_not_wait_for_a_handler_that_hangs(serve, request_line):
    release = threading.Event()
    with serve({"hang": lambda params: release.wait(30)}) as serving, serving.connect() as connection:
        connection.sendall(request_line("hang"))
        serving.wait_for(requests=1)
        began = time.monotonic()
        serving.server.stop()
        took = time.monotonic() - began
        release.set()
        serving.wait_for(clients=0)

    assert took < 1.0


def test_stop_may_be_asked_for_by_a_client(serve, request_line, until):
    with serve({"stop": lambda params: serving.server.stop()}) as serving:
        serving.exchange(request_line("stop"))
        until(lambda: not serving.path.exists())


def test_stop_leaves_a_socket_that_is_not_its_own(serve):
    with serve(METHODS) as serving:
        assert serving.server.is_in_place()
        serving.path.unlink()
        assert not serving.server.is_in_place()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(serving.path))
            serving.server.stop()

            assert serving.path.is_socket()


@pytest.mark.fault(69)
def test_socket_and_folder_are_the_owners_alone_whatever_the_umask(serve, folder):
    umask = os.umask(0)
    try:
        with serve(METHODS, path=folder / "new" / "s") as serving:
            assert stat.S_IMODE(serving.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(serving.path.parent.stat().st_mode) == 0o700
            assert [each.name for each in serving.path.parent.iterdir()] == ["s"]
    finally:
        os.umask(umask)


def test_an_empty_open_folder_is_made_private(serve, folder):
    folder.chmod(0o777)
    with serve(METHODS):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_shared_folder_is_refused_and_left_as_it_is(folder):
    (folder / "someone's").touch()
    folder.chmod(0o777)
    with pytest.raises(Forbidden, match="others may write") as caught:
        Server(folder / "s", METHODS, version="1", on_error=print).start()

    assert "chmod 700" in caught.value.hint
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777


def test_a_folder_with_other_things_that_others_may_only_read_is_left_as_it_is(serve, folder):
    (folder / "someone's").touch()
    folder.chmod(0o755)
    with serve(METHODS) as serving:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        assert stat.S_IMODE(serving.path.stat().st_mode) == 0o600


LEFTOVER = """
import os, pathlib, sys, signal
from sessiond.serve.server import Server
server = Server(pathlib.Path(sys.argv[1]), {"pid": lambda params: os.getpid()}, version="1", on_error=print)
server.start()
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.fault(66)
def test_the_socket_of_a_killed_daemon_is_replaced(folder, serve, request_line):
    """Fault 66."""
    command = [sys.executable, "-c", LEFTOVER, str(folder / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as daemon:
        try:
            assert daemon.stdout.readline() == b"ready\n"
            with pytest.raises(Busy, match="another process answers"):
                Server(folder / "s", METHODS, version="1", on_error=print).start()
            assert (folder / "s").is_socket()
        finally:
            daemon.send_signal(signal.SIGKILL)
    assert (folder / "s").is_socket()

    with serve(METHODS) as serving:
        assert "result" in serving.exchange(request_line("echo"))[0]


@pytest.mark.fault(66)
def test_a_leftover_of_a_start_that_was_killed_is_replaced(folder, serve, request_line):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "~s"))
    with serve(METHODS) as serving:
        assert "result" in serving.exchange(request_line("echo"))[0]
        assert not (folder / "~s").exists()


@pytest.mark.fault(66)
@pytest.mark.parametrize("name", ["s", "~s"])
def test_a_file_in_the_way_is_never_removed(folder, name):
    (folder / name).write_text("precious")
    with pytest.raises(SessiondError, match="in the way"):
        Server(folder / "s", METHODS, version="1", on_error=print).start()

    assert (folder / name).read_text() == "precious"


@pytest.mark.fault(66)
def test_a_link_to_another_socket_is_never_followed(folder):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "other"))
        (folder / "s").symlink_to("other")
        with pytest.raises(SessiondError, match="in the way"):
            Server(folder / "s", METHODS, version="1", on_error=print).start()

    assert (folder / "other").is_socket()


@pytest.mark.fault(70)
def test_a_path_that_is_too_long_is_refused_with_a_way_out(folder, serve, request_line):
    """Fault 70."""
    longest = protocol.MAX_PATH_BYTES - len(str(folder)) - 1
    with pytest.raises(SessiondError, match="107 bytes long") as caught:
        Server(folder / ("n" * (longest + 1)), METHODS, version="1", on_error=print).start()
    assert "SESSIOND_RUNTIME_DIR" in caught.value.hint

    with serve(METHODS, path=folder / ("n" * longest)) as serving:
        assert "result" in serving.exchange(request_line("echo"))[0]


@pytest.mark.fault(81)
def test_no_descriptor_is_inherited_by_a_child(serve, request_line):
    """Fault 81."""
    child = "import os; print(*os.listdir('/dev/fd'))"
    before = set(os.listdir("/dev/fd"))
    with serve(METHODS) as serving, serving.connect():
        serving.wait_for(clients=1)
        ours = set(os.listdir("/dev/fd")) - before
        listing = subprocess.run(
            [sys.executable, "-S", "-c", child], close_fds=False, capture_output=True, text=True, check=True
        )

    assert len(ours) >= 5  # listener, both ends of the client, the pipe that wakes
    # The child's own listing takes the lowest number that is free in it, so one of ours may be named by it.
    assert len(ours & set(listing.stdout.split())) <= 1


def test_running_out_of_descriptors_is_reported_once_and_survived(folder):
    script = """
import os, pathlib, resource, socket, sys, time
from sessiond.serve.server import Server
from sessiond.serve.client import Client
path, errors = pathlib.Path(sys.argv[1]), []
server = Server(path, {"echo": lambda params: params}, version="1", on_error=errors.append)
server.start()
assert Client(path).call("echo", a=1) == {"a": 1}
while server.counters()["clients"]:  # its descriptor would be the one that is free again below
    time.sleep(0.001)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
client = socket.socket(socket.AF_UNIX)
hog = []
try:
    while True:
        hog.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
client.connect(str(path))
began = time.process_time()
deadline = time.monotonic() + 5
while not errors and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.5)
assert time.process_time() - began < 0.2, "it spins"
for fd in hog:
    os.close(fd)
client.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "echo"}\\n')
client.settimeout(5)
assert b"result" in client.recv(65536)
server.stop()
print([type(error).__name__ for error in errors])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "s")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (done.stdout.strip(), done.stderr) == ("['OSError']", "")


# --- other users ---

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

AS_NOBODY = """
import os, socket, sys
from sessiond.errors import SessiondError
from sessiond.serve.client import Client
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    if sys.argv[2:] == ["boldly"]:  # without asking who listens, as a stranger's own program would
        Client._check_peer = lambda *_: None
    print(Client(sys.argv[1]).call("echo"))
except SessiondError as error:
    print(type(error).__name__, error.exit_code, error.fact)
"""


def as_nobody(path: Path, *how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path), *how], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.fault(69)
@needs_root
def test_another_user_does_not_reach_the_socket(serve):
    """Fault 69, the first wall: the folder's mode."""
    with serve(METHODS) as serving:
        assert as_nobody(serving.path).startswith("Forbidden 77 the daemon's socket")
        assert serving.server.counters()["requests"] == 0


@pytest.mark.fault(69)
@needs_root
def test_another_user_is_turned_away_by_the_kernels_word(serve, folder):
    """Fault 69, the second wall: someone opened folder and socket, and the peer's uid still counts."""
    with serve(METHODS) as serving:
        folder.chmod(0o755)
        serving.path.chmod(0o666)

        assert as_nobody(serving.path, "boldly") == "Forbidden 77 this daemon serves another user"
        assert serving.server.counters() == {"clients": 0, "requests": 0, "refused": 1}


@pytest.mark.fault(66)
@pytest.mark.fault(69)
@needs_root
def test_a_folder_or_socket_of_another_user_is_refused(folder):
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(folder / "s"))
    os.chown(folder / "s", 65534, 65534)
    with pytest.raises(Forbidden, match="belongs to another user"):
        Server(folder / "s", METHODS, version="1", on_error=print).start()
    assert (folder / "s").is_socket()

    os.chown(folder, 65534, 65534)
    with pytest.raises(Forbidden, match="belongs to another user"):
        Server(folder / "t", METHODS, version="1", on_error=print).start()
