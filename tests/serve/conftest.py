"""A real server on a real socket, in a folder whose path is short enough for AF_UNIX."""

from __future__ import annotations

import errno
import json
import os
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessiond.serve.server import Server

VERSION = "9.8.7"


class Serving:
    """A started server, what it reported, and raw access to its socket."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.path = server.path
        self.errors: list[Exception] = []

    def connect(self, timeout: float = 5.0) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self.path))  # blocking: with a timeout, Linux fails at once on a full backlog
        connection.settimeout(timeout)
        return connection

    def exchange(self, data: bytes) -> list[dict]:
        """Send, close the sending side, and return every reply until the server closes."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                    raise  # else it was refused midway, and the reply is still there to read
            return read_replies(connection)

    def wait_for(self, **counters: int) -> None:
        wait_until(lambda: counters.items() <= self.server.counters().items())


def read_replies(connection: socket.socket) -> list[dict]:
    data = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        data += piece
    return [json.loads(line) for line in data.splitlines()]


def wait_until(condition, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def serve(folder):
    """`with serve(methods) as serving`: a server for as long as the block lasts."""

    @contextmanager
    def start(methods, **options):
        options.setdefault("path", folder / "s")
        errors: list[Exception] = []
        server = Server(options.pop("path"), methods, version=VERSION, on_error=errors.append, **options)
        serving = Serving(server)
        serving.errors = errors
        server.start()
        try:
            yield serving
        finally:
            server.stop()

    return start


@pytest.fixture
def request_line():
    def make(method: str, request_id=1, **params) -> bytes:
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return json.dumps(request).encode() + b"\n"

    return make


@pytest.fixture
def until():
    return wait_until


@pytest.fixture
def open_files():
    """How many descriptors this process has open."""
    return lambda: len(os.listdir("/dev/fd"))


@pytest.fixture
def short_deadline(monkeypatch):
    """The client's deadline, cut down where a test must wait for it; two tests wait for the real one."""
    seconds = 0.3
    monkeypatch.setattr("sessiond.serve.server.DEADLINE_SECONDS", seconds)
    return seconds
