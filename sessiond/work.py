"""Work that was asked for over the socket: a ticket at once, the report when it is done. A reply has two seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

KEPT = 64


class Tickets:
    """`begin` runs something somewhere and returns its future; `give` and `look` are the socket's two methods."""

    def __init__(self, begin: Callable[[str, dict[str, Any]], Future[dict[str, Any]]]) -> None:
        self._begin = begin
        self._futures: dict[int, Future[dict[str, Any]]] = {}
        self._newest = 0

    def give(self, params: dict[str, Any]) -> dict[str, Any]:
        verb, given = params.get("verb"), params.get("params", {})
        if not isinstance(verb, str) or not isinstance(given, dict):
            raise UsageError("work takes a verb and its params")
        self._newest += 1
        self._futures[self._newest] = self._begin(verb, given)
        for old in [number for number, future in self._futures.items() if future.done()][:-KEPT]:
            del self._futures[old]
        return {"ticket": self._newest}

    def look(self, params: dict[str, Any]) -> dict[str, Any]:
        future = self._futures.get(params.get("ticket", -1))
        if future is None:
            raise UsageError("there is no such ticket", hint="ask again")
        return {"done": True, "report": future.result()} if future.done() else {"done": False}
