"""What both ends of the control socket agree on: JSON-RPC 2.0, one object per line, and its limits.

Standard library only, and little of that: every `sessiond status` pays for what is imported here.

Every line that the server sends carries `"sessiond": {"version": ..., "protocol": 1}`, so that an old client
and a new daemon can tell. A stream is a request whose answer is preceded by notifications (the method's own
name, `params: {"id", "item"}`); like any other request it ends with exactly one reply.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

from sessiond.errors import SessiondError

PROTOCOL = 1  # raised only when an older client could misread what it is sent

MAX_REQUEST_BYTES = 64 * 1024
MAX_REPLY_BYTES = 16 * 1024 * 1024  # verbs that read much read the store, not the socket
MAX_CLIENTS = 16
MAX_STREAMS = 8  # a person's many `tail -f` must leave room for `status`
DEADLINE_SECONDS = 2.0

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
FAILED = -32000  # a SessiondError; `data` holds fact, hint and exit_code

# sun_path ends in a NUL byte, and the server binds under a name that is one byte longer than the final one.
MAX_PATH_BYTES = (104 if sys.platform == "darwin" else 108) - 2

_RECEIVE_BYTES = 64 * 1024
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)  # a CLI may have set SIGPIPE back to its default, which is to die


class TooLong(ValueError):
    """A line that exceeds what this end accepts."""


def encode(message: dict[str, Any]) -> bytes:
    """One line. ValueError or TypeError for what JSON cannot say, NaN included."""
    # ASCII only: a lone surrogate (legal in JSON, not in UTF-8) survives the trip as the escape that it was.
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(line: bytes) -> Any:
    """The JSON value on a line. ValueError, and nothing else, if there is none."""
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def check_path(path: str | os.PathLike[str]) -> str:
    """The path as the system takes it, or an error that says how to get a shorter one."""
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise SessiondError(
            f"the socket's path is {length} bytes long, and the system allows {MAX_PATH_BYTES}",
            hint="set SESSIOND_RUNTIME_DIR to a folder with a shorter path",
        )
    return os.fspath(path)


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end, as the kernel knows it. OSError if it cannot tell any more.

    Both ends ask: neither talks to another user.
    """
    # Linux: pid, uid, gid. The BSDs: struct xucred (SOL_LOCAL 0, LOCAL_PEERCRED 1), version, uid, groups. Four bytes
    # each.
    level, name, size = (socket.SOL_SOCKET, socket.SO_PEERCRED, 12) if sys.platform == "linux" else (0, 1, 76)
    return int.from_bytes(connection.getsockopt(level, name, size)[4:8], sys.byteorder)


class Wire:
    """One end of a connection: whole lines in and out, each within its own deadline (None: for ever).

    It never holds more than `limit` bytes and one read.
    """

    def __init__(self, connection: socket.socket, limit: int) -> None:
        self.connection = connection
        self._limit = limit
        self._buffer = bytearray()

    @property
    def has_partial_line(self) -> bool:
        return bool(self._buffer)

    def receive(self, seconds: float | None) -> bytes | None:
        """The next line without its newline; None once the other end has closed.

        What stands before a close without a newline is a line too: cut short, an object is no JSON anyway.
        Raises TimeoutError, TooLong, and OSError for a broken connection.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > self._limit:
                raise TooLong(f"a line may have {self._limit} bytes")
            data = self._receive_some(deadline)
            if not data:
                end = searched
                break
            self._buffer += data
        if end > self._limit:
            raise TooLong(f"a line may have {self._limit} bytes")
        closed = end == len(self._buffer)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return None if closed and not line else line

    def _receive_some(self, deadline: float | None) -> bytes:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:  # settimeout(0) would mean "do not wait", not "too late"
            raise TimeoutError
        self.connection.settimeout(left)
        return self.connection.recv(_RECEIVE_BYTES)

    def send(self, line: bytes, seconds: float | None) -> None:
        """Hand over the whole line, or raise OSError (TimeoutError among them)."""
        self.connection.settimeout(seconds)
        self.connection.sendall(line, _NO_SIGNAL)  # the timeout is that of the whole line, not of each piece
