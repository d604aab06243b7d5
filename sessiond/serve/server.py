"""The daemon's end of the control socket: a thread that accepts, and one short-lived thread for each client.

A client has a thread of its own so that a slow one delays no other, and a deadline so that it cannot keep its
place. What the requests mean is told by `methods`; this module only moves lines.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from sessiond.errors import Busy, Forbidden, SessiondError
from sessiond.serve import listen, protocol
from sessiond.serve.dispatch import Dispatcher, Stream
from sessiond.serve.protocol import DEADLINE_SECONDS, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Server", "Stream"]

_STOP_SECONDS = 0.9
_FINISH_SECONDS = 0.6  # of those, what a request under way has to finish
_RETRY_ACCEPT_SECONDS = 0.1


def _as_it_is(value: Any) -> Any:
    return value


class Server:
    """Answers at `path`, for this user alone, from `start()` to `stop()`.

    The instance lock is held already. `methods` take the params and return what JSON can say, or a `Stream`.
    A SessiondError they raise reaches the client as it is, a UsageError as wrong params; all else goes to
    `on_error` and is an "internal error" to the client. `reply_filter` sees every value before it is sent.
    """

    def __init__(
        self,
        path: Path,
        methods: Mapping[str, Callable[[dict[str, Any]], Any]],
        *,
        version: str,
        on_error: Callable[[Exception], None],
        reply_filter: Callable[[Any], Any] = _as_it_is,
    ) -> None:
        self.path = path
        self._on_error = on_error
        self._stopping = threading.Event()
        self._dispatcher = Dispatcher(
            methods,
            version=version,
            on_error=self._report,
            reply_filter=reply_filter,
            is_stopping=self._stopping.is_set,
        )
        self._lock = threading.Lock()  # guards what follows
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._requests = 0
        self._refused = 0
        self._accepting: threading.Thread | None = None
        self._identity: tuple[int, int] | None = None

    def start(self) -> None:
        """Clients are answered from now on. SessiondError (Busy, Forbidden) if the socket cannot be had."""
        self._listener = listen.bind(self.path)
        self._identity = listen.identity(self.path)
        self._wake_reader, self._wake_writer = os.pipe()
        self._accepting = threading.Thread(target=self._accept_clients, name="sessiond-accept", daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        """Within a second: no socket file, no clients. Requests under way get most of it to finish."""
        with self._lock:
            accepting, self._accepting = self._accepting, None
        if accepting is None:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        if self.is_in_place():
            self.path.unlink(missing_ok=True)
        os.write(self._wake_writer, b"\0")  # before the flag: once that is seen, the thread closes the pipe
        self._stopping.set()
        accepting.join(_STOP_SECONDS - _FINISH_SECONDS)
        self._hang_up(socket.SHUT_RD)  # no more requests, but replies still get out
        self._join_clients(time.monotonic() + _FINISH_SECONDS)
        self._hang_up(socket.SHUT_RDWR)
        self._join_clients(deadline)

    def is_in_place(self) -> bool:
        """Whether the path still names our socket: a cleaner of temporary files may have taken it away."""
        return self._identity is not None and listen.identity(self.path) == self._identity

    def counters(self) -> dict[str, int]:
        """`clients` connected now; `requests` read and clients `refused` since the start."""
        with self._lock:
            return {"clients": len(self._clients), "requests": self._requests, "refused": self._refused}

    # --- the accepting thread ---

    def _accept_clients(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._wake_reader, select.POLLIN)
        is_failing = False
        try:
            while not self._stopping.is_set():
                poller.poll()
                is_failing = self._accept_one(was_failing=is_failing)
        finally:
            self._listener.close()
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _accept_one(self, *, was_failing: bool) -> bool:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return was_failing  # we were woken to stop, or the client has gone again
        except OSError as error:
            # Out of file descriptors: the client waits in the backlog, and without a pause we would spin.
            if not was_failing:
                self._report(error)
            self._stopping.wait(_RETRY_ACCEPT_SECONDS)
            return True
        refusal = self._refusal(connection)
        if refusal is None:
            self._admit(connection)
        else:
            self._refuse(connection, refusal)
        return False

    def _refusal(self, connection: socket.socket) -> SessiondError | None:
        try:
            uid = protocol.peer_uid(connection)
        except OSError:
            return Forbidden("the kernel does not say who you are")
        if uid != os.geteuid():
            return Forbidden("this daemon serves another user", hint="run your own: sessiond run")
        with self._lock:
            is_full = len(self._clients) >= protocol.MAX_CLIENTS
        return Busy("the daemon has too many clients", hint="try again in a moment") if is_full else None

    def _refuse(self, connection: socket.socket, refusal: SessiondError) -> None:
        with self._lock:
            self._refused += 1
        with connection, suppress(OSError):
            connection.setblocking(False)  # a short line fits in any buffer; the accepting thread never waits
            connection.send(self._dispatcher.failure(refusal))

    def _admit(self, connection: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), name="sessiond-client", daemon=True)
        with self._lock:
            self._clients[connection] = thread
        try:
            thread.start()
        except RuntimeError as error:  # no more threads to be had
            self._drop(connection)
            self._report(error)

    # --- the thread of one client ---

    def _serve(self, connection: socket.socket) -> None:
        wire = Wire(connection, protocol.MAX_REQUEST_BYTES)
        try:
            while self._serve_request(wire):
                pass
        except OSError:
            pass  # the client has gone, or does not take its reply: its own loss
        except Exception as error:  # noqa: BLE001 - the outer edge of one client: the others must be served
            self._report(error)
        finally:
            self._drop(connection)

    def _serve_request(self, wire: Wire) -> bool:
        """Answer one request; False when the conversation is over."""
        try:
            line = wire.receive(DEADLINE_SECONDS)
            if line is None:
                return False
            with self._lock:
                self._requests += 1
            request = protocol.decode(line)
        except TimeoutError:
            if wire.has_partial_line:
                self._say_goodbye(wire, protocol.INVALID_REQUEST, f"no whole request in {DEADLINE_SECONDS:g} s")
            return False
        except protocol.TooLong as error:
            return self._say_goodbye(wire, protocol.INVALID_REQUEST, f"the request is too long: {error}")
        except ValueError:
            return self._say_goodbye(wire, protocol.PARSE_ERROR, "not JSON")
        return self._send_answer(wire, request)

    def _send_answer(self, wire: Wire, request: Any) -> bool:
        with closing(self._dispatcher.answer(request)) as lines:
            for line in lines:
                if line is not None:
                    wire.send(line, DEADLINE_SECONDS)
                elif _has_hung_up(wire.connection):
                    return False
        return not self._stopping.is_set()

    def _say_goodbye(self, wire: Wire, code: int, message: str) -> bool:
        wire.send(self._dispatcher.error(code, message), DEADLINE_SECONDS)
        return False

    # --- shared ---

    def _drop(self, connection: socket.socket) -> None:
        with self._lock:
            # Closed under the lock: `stop` must not shut down a descriptor that means something else by now.
            self._clients.pop(connection, None)
            connection.close()

    def _hang_up(self, how: int) -> None:
        with self._lock:
            for connection in self._clients:
                with suppress(OSError):
                    connection.shutdown(how)

    def _join_clients(self, deadline: float) -> None:
        with self._lock:
            threads = [thread for thread in self._clients.values() if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _report(self, error: Exception) -> None:
        with suppress(Exception):  # a log that fails must not take the socket with it
            self._on_error(error)


def _has_hung_up(connection: socket.socket) -> bool:
    # Asked for nothing, poll() tells of a full hang-up only: a client may shut its sending side and listen.
    poller = select.poll()
    poller.register(connection, 0)
    return bool(poller.poll(0))
