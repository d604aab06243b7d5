"""What a log line looks like, and what may stand in it.

The rule: an event is a fixed name in the past tense, its fields are facts about the work. The words that people and
agents wrote never enter a log. Whoever writes a log call keeps to it; what is here is the net below: fields that
usually carry content are dropped by name, long values are cut, secrets are masked (a path may hold one), an
exception's message loses what it quotes.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.log.light import structlog
from sessiond.mask import Masker

if TYPE_CHECKING:
    from collections.abc import MutableMapping

CONTENT = frozenset({"text", "summary", "data", "line", "payload"})
MAX_VALUE_CHARS = 300
MAX_LINE_BYTES = 16_384
_FRAMES = 20
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # as syslog counts

# What a terminal would act upon: controls, and what turns text around or hides it (as sessiond.cli.terminal has them).
_TURNING = (0x61C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF)
_CONTROLS = {c: f"\\x{c:02x}" if c < 0x100 else f"\\u{c:04x}" for c in (*range(0x20), *range(0x7F, 0xA0), *_TURNING)}
_CONTROLS_IN_JSON = {c: f"\\u{c:04x}" for c in _CONTROLS if c >= 0x7F}  # the others are no JSON as they are
_QUOTED = re.compile(r"""'[^']*+'|"[^"]*+"|`[^`]*+`""")
_NAME = re.compile(r".[\w./:-]{0,40}.")
_MASKED_CHARS = 4 * MAX_VALUE_CHARS  # of a long value: what is masked before it is cut
Mask = Callable[[str], str]
mask_usual = Masker().mask


def cut(text: str, limit: int = MAX_VALUE_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def guard(fields: MutableMapping[str, Any], mask: Mask = mask_usual) -> MutableMapping[str, Any]:
    """The fields without content and secrets, the exception in words, every value of a bounded length."""
    error = _exception_of(fields.pop("exc_info", None))
    fields.pop("stack_info", None)
    clean: dict[str, Any] = _bounded(dict(fields), mask, depth=0)
    if error is not None:
        clean["exception"] = exception_text(error, mask)
    return clean


def _bounded(value: Any, mask: Mask, depth: int) -> Any:
    if isinstance(value, dict):
        if depth > 5:
            return "…"
        return {_short(str(k), mask): _bounded(v, mask, depth + 1) for k, v in value.items() if k not in CONTENT}
    if isinstance(value, list | tuple | set | frozenset):
        return [_bounded(each, mask, depth + 1) for each in list(value)[:100]] if depth <= 5 else "…"
    if value is None or isinstance(value, bool | int | float):
        return value
    return _short(str(value), mask)


def _short(text: str, mask: Mask) -> str:
    return cut(mask(text[:_MASKED_CHARS]))


def _exception_of(exc_info: Any) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1] if len(exc_info) == 3 and isinstance(exc_info[1], BaseException) else None
    if exc_info:
        return sys.exc_info()[1]
    return None


def exception_text(error: BaseException, mask: Mask = mask_usual) -> str:
    """Type, message and the last frames of an exception and of what caused it; never a local variable."""
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(parts) < 5:
        seen.add(id(current))
        frames = traceback.extract_tb(current.__traceback__)[-_FRAMES:]
        where = "".join(f"  {f.filename}:{f.lineno} {f.name}\n" for f in frames)
        parts.append(f"{type(current).__qualname__}: {_message(current, mask)}\n{where}")
        hidden = current.__suppress_context__ or current.__context__ is None
        current = current.__cause__ or (None if hidden else current.__context__)
    return "caused by ".join(parts).rstrip("\n")


def _message(error: BaseException, mask: Mask) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever it is, it must not hide the exception that it is about
        return "(no message)"
    return _short(_QUOTED.sub(lambda m: m[0] if _NAME.fullmatch(m[0]) else "'…'", text), mask)


def render_json(fields: MutableMapping[str, Any]) -> bytes:
    """One line of JSON, whatever the fields hold."""
    try:
        line = orjson.dumps(fields, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a lone surrogate of a file name, an integer beyond 64 bits
        line = json.dumps(fields, default=str).encode("ascii")
    if len(line) > MAX_LINE_BYTES:
        kept = {key: fields[key] for key in ("timestamp", "level", "event", "logger") if key in fields}
        line = orjson.dumps({**kept, "cut": True}, default=str)
    if not line.isascii() or b"\x7f" in line:
        line = line.decode().translate(_CONTROLS_IN_JSON).encode()
    return line + b"\n"


def console_renderer(*, colors: bool) -> Callable[[MutableMapping[str, Any]], bytes]:
    """For eyes; nothing in it can act on the terminal."""
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors, pad_event_to=24, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )

    def render(fields: MutableMapping[str, Any]) -> bytes:
        safe = {key: _without_controls(key, value) for key, value in fields.items()}
        text = renderer(None, "", safe)
        return cut(str(text), MAX_LINE_BYTES).encode("utf-8", "backslashreplace") + b"\n"

    return render


def _without_controls(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value if value is None or isinstance(value, bool | int | float) else str(value).translate(_CONTROLS)
    if key == "exception":
        return "\n".join(part.translate(_CONTROLS) for part in value.split("\n"))
    return value.translate(_CONTROLS)


def for_journal(line: bytes, level: str) -> bytes:
    """The priority in front of every line, as journald reads it."""
    prefix = b"<%d>" % _PRIORITIES.get(level, 6)
    return b"".join(prefix + each for each in line.splitlines(keepends=True))


def now_utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now_local() -> str:
    return datetime.now(UTC).astimezone().strftime("%H:%M:%S")
