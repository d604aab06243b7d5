"""What the libraries say, through `logging` and `warnings`, comes into the one log; cut short and held back alike."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, TextIO

from sessiond.log.light import structlog
from sessiond.log.render import cut

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVELS = ((10, "debug"), (20, "info"), (30, "warning"), (40, "error"))
_original_show = warnings.showwarning


def route_libraries(level: str) -> Callable[[], None]:
    """From now on; until the result is called. Only what matters: below `warning` just when debugging."""
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Route)]:
        root.removeHandler(old)
    route, level_before = _Route(), root.level
    root.addHandler(route)
    root.setLevel(logging.INFO if level == "debug" else logging.WARNING)
    warnings.showwarning = _show_warning
    # watchdog's warnings repeat all its watches, tens of kilobytes each. "always" does not keep them: any other
    # action stores each text for good, to know it again.
    warnings.filterwarnings("always", category=RuntimeWarning, module=r"watchdog\.")

    def stop() -> None:
        root.removeHandler(route)
        root.setLevel(level_before)
        if warnings.showwarning is _show_warning:
            warnings.showwarning = _original_show

    return stop


class _Route(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = next((name for number, name in _LEVELS if record.levelno <= number), "critical")
            say = getattr(structlog.get_logger(record.name), level)
            # The template tells which messages are the same.
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
        "python_warning",
        category=category.__name__,
        at=f"{filename}:{lineno}",
        detail=cut(str(message)),
        _key=(category, filename, lineno),
    )
