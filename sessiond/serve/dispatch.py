"""A decoded request becomes the lines that answer it. No sockets, no threads: the server moves the bytes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sessiond.errors import Busy, NotRunning, SessiondError, UsageError
from sessiond.serve import protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    Handler = Callable[[dict[str, Any]], Any]


class Stream:
    """What a handler returns to go on sending until the client leaves.

    Each item becomes one notification. None is not sent: it means "nothing yet", and gives the server the
    moment to see that the client has gone or that the daemon stops. So the iterator must yield at least every
    half second. A generator is closed in any case, so its `finally` runs.
    """

    def __init__(self, items: Iterator[Any]) -> None:
        self.items = items

    def close(self) -> None:
        close = getattr(self.items, "close", None)
        if close is not None:
            close()


class _Refused(Exception):
    """A request that never reached a handler."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Dispatcher:
    def __init__(
        self,
        methods: Mapping[str, Handler],
        *,
        version: str,
        on_error: Callable[[Exception], None],
        reply_filter: Callable[[Any], Any],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._methods = methods
        self._speaks = {"version": version, "protocol": protocol.PROTOCOL}
        self._on_error = on_error
        self._reply_filter = reply_filter
        self._is_stopping = is_stopping
        self._stream_slots = threading.BoundedSemaphore(protocol.MAX_STREAMS)

    def answer(self, request: Any) -> Generator[bytes | None]:
        """The lines to send, in order: one reply for a request, none for a notification, many for a stream.

        None among them means "nothing yet". The caller closes the generator when the client has gone.
        """
        request_id = _id_of(request)
        try:
            result = self._call(request)
            if isinstance(result, Stream):
                yield from self._notify_items(request, result)
                result = None
            line = self._reply(request_id, result)
        except _Refused as refusal:
            line = self.error(refusal.code, refusal.message, request_id=request_id)
        except SessiondError as error:
            line = self.failure(error, request_id=request_id)
        except Exception as error:  # noqa: BLE001 - the outer edge of one request: the next one must be served
            error.add_note(f"in the handler of {_method_of(request)}")
            self._on_error(error)
            line = self.error(protocol.INTERNAL_ERROR, "internal error", request_id=request_id)
        if not isinstance(request, dict) or "id" in request or not _is_well_formed(request):
            yield line

    def error(self, code: int, message: str, *, data: Any = None, request_id: str | int | None = None) -> bytes:
        """An error reply; its words pass the same filter as a result, for they may quote one."""
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        return self._line({"id": request_id, "error": self._reply_filter(error)})

    def failure(self, error: SessiondError, *, request_id: str | int | None = None) -> bytes:
        """An error reply from which the client can raise the same error again."""
        code = protocol.INVALID_PARAMS if isinstance(error, UsageError) else protocol.FAILED
        data = {"fact": error.fact, "hint": error.hint, "exit_code": error.exit_code}
        return self.error(code, error.fact, data=data, request_id=request_id)

    def _call(self, request: Any) -> Any:
        if not _is_well_formed(request):
            raise _Refused(protocol.INVALID_REQUEST, "not a JSON-RPC 2.0 request object")
        method, params = request["method"], request.get("params", {})
        if method not in self._methods:
            raise _Refused(protocol.METHOD_NOT_FOUND, f"unknown method {method[:64]!r}")
        if not isinstance(params, dict):
            raise _Refused(protocol.INVALID_PARAMS, "params must be an object: parameters go by name")
        return self._methods[method](params)

    def _notify_items(self, request: dict[str, Any], stream: Stream) -> Iterator[bytes | None]:
        try:
            if "id" not in request:  # a notification wants no answer, so there is no one to stream to
                return
            if not self._stream_slots.acquire(blocking=False):
                raise Busy("too many streams are open", hint="end another `tail -f` or `events -f` first")
            try:
                for item in stream.items:
                    if self._is_stopping():
                        raise NotRunning("the daemon is stopping")
                    yield None if item is None else self._notification(request, item)
            finally:
                self._stream_slots.release()
        finally:
            stream.close()

    def _notification(self, request: dict[str, Any], item: Any) -> bytes:
        params = {"id": request["id"], "item": self._reply_filter(item)}
        return self._line({"method": request["method"], "params": params})

    def _reply(self, request_id: str | int | None, result: Any) -> bytes:
        line = self._line({"id": request_id, "result": self._reply_filter(result)})
        if len(line) > protocol.MAX_REPLY_BYTES:
            raise SessiondError(f"the answer has {len(line)} bytes, too many to send", hint="ask for less at a time")
        return line

    def _line(self, members: dict[str, Any]) -> bytes:
        return protocol.encode({"jsonrpc": "2.0", "sessiond": self._speaks, **members})


def _is_well_formed(request: Any) -> bool:
    return (
        isinstance(request, dict)
        and request.get("jsonrpc") == "2.0"
        and isinstance(request.get("method"), str)
        and _is_id(request.get("id"))
    )


def _is_id(value: Any) -> bool:
    # No fractions: 1e999 would come back as an infinity, which JSON cannot say.
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _id_of(request: Any) -> str | int | None:
    value = request.get("id") if isinstance(request, dict) else None
    return value if _is_id(value) else None


def _method_of(request: Any) -> str:
    return str(request["method"]) if _is_well_formed(request) else "a malformed request"
