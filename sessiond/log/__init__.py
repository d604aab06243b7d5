"""The daemon's log, set up once: JSON lines on stderr, or for eyes on a terminal.

    log = structlog.get_logger()
    log.warning("record_rejected", flavor="heron", source=path.name, offset=4096, reason="not a JSON object")

What may stand in a line is the business of `render`, how it leaves the process that of `sink`. Messages and
warnings of the libraries come the same way. The same event again and again is held back and counted.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from sessiond.log.libraries import route_libraries
from sessiond.log.light import structlog
from sessiond.log.limit import RateLimit
from sessiond.log.render import console_renderer, for_journal, guard, mask_usual, now_local, now_utc, render_json
from sessiond.log.sink import Sink
from sessiond.paths import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]
_NUMBERS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_FLUSH_SECONDS = 0.5


@dataclass(slots=True)
class _Output:
    """Where lines go now. Loggers are cached for speed, so what a reload may change lives here."""

    sink: Sink
    render: Callable[[MutableMapping[str, Any]], bytes]
    threshold: int
    is_journal: bool
    is_console: bool
    mask: Callable[[str], str]


_output: _Output | None = None
_lost = 0


def setup(
    level: Level = "info",
    format: Format = "auto",  # noqa: A002 - as in the configuration
    stream: TextIO | None = None,
    *,
    env: Mapping[str, str] | None = None,
    mask: Callable[[str], str] = mask_usual,
) -> Callable[[], None]:
    """Log to the stream (stderr) from now on; may be called again. The result, once called, writes what still waits.

    Never blocks and never raises afterwards, whatever becomes of the stream; see `dropped`.
    """
    global _output, _lost  # noqa: PLW0603 - there is one log
    env = environment() if env is None else env
    stream = stream or sys.stderr
    is_terminal = _is_terminal(stream)
    is_console = format == "console" or (format == "auto" and is_terminal)
    sink = Sink(stream, notice=_dropped_notice)
    if _output is not None:
        _output.sink.close(_FLUSH_SECONDS)
        _lost += _output.sink.dropped
    _output = _Output(
        sink=sink,
        render=console_renderer(colors=is_terminal and not env.get("NO_COLOR")) if is_console else render_json,
        threshold=_NUMBERS[level],
        is_journal=_is_journal(sink.fd, env),
        is_console=is_console,
        mask=mask,
    )
    structlog.configure(
        processors=[_limit, _render], wrapper_class=Log, logger_factory=_Outlet, cache_logger_on_first_use=True
    )
    stop_routing = route_libraries(level)

    def finish() -> None:
        stop_routing()
        flush()

    return finish


def dropped() -> int:
    """Lines that could not be written, since the start of the process."""
    return _lost + (_output.sink.dropped if _output is not None else 0)


def flush(timeout: float = _FLUSH_SECONDS) -> bool:
    """Wait until all is written, but no longer than this; True if it is."""
    return _output is None or _output.sink.flush(timeout)


atexit.register(flush)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _is_journal(fd: int | None, env: Mapping[str, str]) -> bool:
    if fd is None:
        return False
    found = os.fstat(fd)
    return env.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class Log(structlog.BoundLoggerBase):
    """What structlog.get_logger() gives. A call below the level returns at once: it may stand in a loop over lines."""

    def debug(self, event: str, **fields: Any) -> None:
        self._say("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say("error", event, fields)

    def critical(self, event: str, **fields: Any) -> None:
        self._say("critical", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        self._say("error", event, {"exc_info": True, **fields})

    def _say(self, level: str, event: str, fields: dict[str, Any]) -> None:
        global _lost  # noqa: PLW0603
        if _output is None or _NUMBERS[level] < _output.threshold:
            return
        try:
            self._proxy_to_logger(level, event, **fields)
        except Exception:  # noqa: BLE001 - a log that cannot be written must not stop the work it is about
            _lost += 1


class _Outlet:
    """The end of structlog's chain: hands a finished line to wherever lines go now."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def __getattr__(self, level: str) -> Callable[[bytes], None]:
        return self._put

    @staticmethod
    def _put(line: bytes) -> None:
        if _output is not None:
            _output.sink.put(line)


def _render(logger: _Outlet, level: str, fields: MutableMapping[str, Any]) -> bytes:
    output = _output
    assert output is not None  # noqa: S101 - _say() looked
    event = fields.pop("event")
    head: dict[str, Any] = {}
    if not output.is_journal:  # journald has a clock of its own
        head["timestamp"] = now_local() if output.is_console else now_utc()
    head |= {"level": level, "event": event}
    if logger.name:
        head["logger"] = logger.name
    line = output.render({**head, **guard(fields, output.mask)})
    return for_journal(line, level) if output.is_journal else line


def _dropped_notice(lines: int) -> bytes:
    output = _output
    fields = {"timestamp": now_utc(), "level": "warning", "event": "log_lines_dropped", "lines": lines}
    if output is None:
        return b""
    if output.is_journal:
        del fields["timestamp"]
    line = output.render(fields)
    return for_journal(line, "warning") if output.is_journal else line


_rate = RateLimit()


def _limit(logger: _Outlet, level: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    key = fields.pop("_key", None) or (logger.name, fields["event"])
    if level == "debug":  # who asks for everything gets everything
        return fields
    held = _rate.allow(key)
    if held is None:
        raise structlog.DropEvent
    if held:
        fields["held_back"] = held
    return fields
