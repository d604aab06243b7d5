"""The other end of the control socket, for the CLI and the tests. Light: standard library and our errors."""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sessiond.errors import Busy, ConfigError, Forbidden, NotRunning, SessiondError, UsageError
from sessiond.serve import protocol
from sessiond.serve.protocol import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

_ERRORS: dict[Any, type[SessiondError]] = {
    kind.exit_code: kind for kind in (UsageError, NotRunning, Busy, Forbidden, ConfigError)
}
_REQUEST_ID = 1  # one request per connection
_RETRY_CONNECT_SECONDS = 0.01
_START = "start it: sessiond run"
_ELSEWHERE = "set SESSIOND_RUNTIME_DIR to a folder of your own, for the daemon too"
_RESTART = "restart it: stop it, then sessiond run"


class Client:
    """Asks the daemon at `socket_path`, each call on a connection of its own.

    `timeout` is that of a whole call, in seconds; None waits for as long as the daemon lives.
    `server_version` is that of the daemon that answered last.
    """

    def __init__(self, socket_path: str | os.PathLike[str], timeout: float | None = protocol.DEADLINE_SECONDS) -> None:
        self.socket_path = protocol.check_path(socket_path)
        self.timeout = timeout
        self.server_version: str | None = None

    def call(self, method: str, /, **params: Any) -> Any:
        """The result. Raises what the daemon raised; NotRunning without one, Forbidden at another user's."""
        deadline = self._deadline()
        with self._connect(deadline) as wire:
            self._send_request(wire, method, params, deadline)
            return self._result(self._receive(wire, deadline), method)

    def stream(self, method: str, /, **params: Any) -> Iterator[Any]:
        """The items as they come, while the daemon has any; closing the iterator ends it there too."""
        deadline = self._deadline()
        with self._connect(deadline) as wire:
            self._send_request(wire, method, params, deadline)
            while "method" in (message := self._receive(wire, None)):
                yield message["params"]["item"]
            self._result(message, method)

    def _deadline(self) -> float | None:
        return None if self.timeout is None else time.monotonic() + self.timeout

    @contextmanager
    def _connect(self, deadline: float | None) -> Iterator[Wire]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                self._reach(connection, deadline)
            except PermissionError as error:
                raise Forbidden(f"the daemon's socket {self.socket_path} is not open to you") from error
            except TimeoutError as error:
                raise self._no_answer() from error
            except OSError as error:  # no such file, or a file that no one listens at
                raise NotRunning("the daemon is not running", hint=_START) from error
            self._check_peer(connection)
            yield Wire(connection, protocol.MAX_REPLY_BYTES)

    def _reach(self, connection: socket.socket, deadline: float | None) -> None:
        while True:
            connection.settimeout(_left(deadline))
            try:
                return connection.connect(self.socket_path)
            except BlockingIOError:  # how Linux says that the backlog is full; it does not wait by itself
                time.sleep(_RETRY_CONNECT_SECONDS)

    def _check_peer(self, connection: socket.socket) -> None:
        """Whoever made the folder first could answer in the daemon's place, and hear what is asked of it."""
        try:
            is_ours = protocol.peer_uid(connection) == os.geteuid()
        except OSError:
            return  # it has gone again: what follows finds out
        if not is_ours:
            raise Forbidden(f"what answers at {self.socket_path} belongs to another user", hint=_ELSEWHERE)

    def _send_request(self, wire: Wire, method: str, params: dict[str, Any], deadline: float | None) -> None:
        request = {"jsonrpc": "2.0", "id": _REQUEST_ID, "method": method, "params": params}
        try:
            wire.send(protocol.encode(request), _left(deadline))
        except TimeoutError as error:
            raise self._no_answer() from error
        except ConnectionError:
            pass  # it hung up on us; why, its last line may still say

    def _receive(self, wire: Wire, deadline: float | None) -> dict[str, Any]:
        try:
            line = wire.receive(_left(deadline))
        except TimeoutError as error:
            raise self._no_answer() from error
        except (ConnectionError, protocol.TooLong):
            line = None
        if line is None:
            raise NotRunning("the daemon hung up without an answer", hint="its log says why")
        return self._understand(line)

    def _understand(self, line: bytes) -> dict[str, Any]:
        try:
            message = protocol.decode(line)
            speaks = message["sessiond"]
            self.server_version, theirs = str(speaks["version"]), speaks["protocol"]
        except (ValueError, LookupError, TypeError) as error:
            raise SessiondError(f"what answers at {self.socket_path} does not speak as sessiond does") from error
        if theirs != protocol.PROTOCOL:
            raise SessiondError(
                f"the daemon ({self.server_version}) speaks protocol {theirs}, not {protocol.PROTOCOL}",
                hint=_RESTART,
            )
        return dict(message)

    def _result(self, reply: dict[str, Any], method: str) -> Any:
        error = reply.get("error")
        if error is None:
            return reply.get("result")
        if error.get("code") == protocol.METHOD_NOT_FOUND:
            raise SessiondError(f"the daemon ({self.server_version}) does not know {method!r}", hint=_RESTART)
        raise _error_from(error)

    def _no_answer(self) -> NotRunning:
        return NotRunning(f"the daemon did not answer within {self.timeout:g} s", hint="its log may say why")


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _error_from(error: dict[str, Any]) -> SessiondError:
    """The error that the daemon raised, of the same class, so that it ends in the same exit code here."""
    data = error.get("data") or {}
    kind = _ERRORS.get(data.get("exit_code"), SessiondError)
    if not data and error.get("code") == protocol.INVALID_PARAMS:
        kind = UsageError
    return kind(str(data.get("fact") or error.get("message")), hint=data.get("hint"))
