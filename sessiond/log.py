"""The daemon's log, set up once: JSON lines on stderr, or for eyes on a terminal.

    log = structlog.get_logger()
    log.warning("record_rejected", flavor="heron", source=path.name, offset=4096, reason="not a JSON object")

What may stand in a line is the business of `log_render`, how it leaves the process that of `log_sink`. Messages and
warnings of the libraries come the same way. The same event again and again is held back and counted.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

import structlog

from sessiond.log_render import console_renderer, cut, for_journal, guard, now_local, now_utc, render_json
from sessiond.log_sink import Sink
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


_output: _Output | None = None
_lost = 0


def setup(
    level: Level = "info",
    format: Format = "auto",  # noqa: A002 - as in the configuration
    stream: TextIO | None = None,
    *,
    env: Mapping[str, str] | None = None,
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
    )
    structlog.configure(
        processors=[_limit, _render], wrapper_class=Log, logger_factory=_Outlet, cache_logger_on_first_use=True
    )
    return _route_libraries(level)


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
    line = output.render({**head, **guard(fields)})
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


# --- the same event again and again ---------------------------------------------------------------


class RateLimit:
    """For each key `burst` in `per_seconds`; says with the next one how many were held back."""

    MAX_KEYS = 1000

    def __init__(self, burst: int = 20, per_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._per_seconds, self._clock = burst, per_seconds, clock
        self._windows: dict[Any, list[float]] = {}  # key -> [began, let through, held back]
        self._lock = threading.Lock()

    def allow(self, key: Any) -> int | None:
        """How many were held back before this one; None: hold this one back too."""
        now = self._clock()
        with self._lock:
            window = self._windows.get(key)
            if window is None or now - window[0] >= self._per_seconds:
                held = int(window[2]) if window else 0
                self._windows.pop(key, None)
                if len(self._windows) >= self.MAX_KEYS:
                    del self._windows[next(iter(self._windows))]
                self._windows[key] = [now, 1, 0]
                return held
            if window[1] < self._burst:
                window[1] += 1
                return 0
            window[2] += 1
            return None


_rate = RateLimit()


def _limit(logger: _Outlet, level: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    key = fields.pop("_key", None) or (logger.name, fields["event"], fields.get("trouble"))
    if level == "debug":  # who asks for everything gets everything
        return fields
    held = _rate.allow(key)
    if held is None:
        raise structlog.DropEvent
    if held:
        fields["held_back"] = held
    return fields


# --- what the libraries say -----------------------------------------------------------------------


class _Route(logging.Handler):
    """Messages of the libraries; the template tells which are the same."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = next((name for name, number in _NUMBERS.items() if number >= record.levelno), "critical")
            say = getattr(structlog.get_logger(record.name), level)
            key = (record.name, str(record.msg)[:200])
            say("library_message", detail=cut(record.getMessage()), exc_info=record.exc_info, _key=key)
        except Exception:  # noqa: BLE001 - a library's bad format string is not worth a crash
            return


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 - the signature of warnings.showwarning
    line: str | None = None,  # noqa: ARG001
) -> None:
    structlog.get_logger("warnings").warning(
        "python_warning", category=category.__name__, at=f"{filename}:{lineno}", detail=cut(str(message)),
        _key=(category, filename, lineno),
    )  # fmt: skip


def _route_libraries(level: Level) -> Callable[[], None]:
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Route)]:
        root.removeHandler(old)
    route, before, show_before = _Route(), root.level, warnings.showwarning
    root.addHandler(route)
    root.setLevel(logging.INFO if level == "debug" else logging.WARNING)
    warnings.showwarning = _show_warning
    # watchdog's warnings repeat all its watches, tens of kilobytes each. "always" does not keep them: any other action
    # stores each text for good, to know it again.
    warnings.filterwarnings("always", category=RuntimeWarning, module=r"watchdog\.")

    def stop() -> None:
        root.removeHandler(route)
        root.setLevel(before)
        if warnings.showwarning is _show_warning:
            warnings.showwarning = show_before if show_before is not _show_warning else _ORIGINAL_SHOW
        flush()

    return stop


_ORIGINAL_SHOW = warnings.showwarning
