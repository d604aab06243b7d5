"""What Hive's files share: values that may be anything, names for records, and what a tool call does. Pure."""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

from sessiond.adapters.base import text_of
from sessiond.adapters.commands import is_test_command
from sessiond.adapters.wording import clip, first_line, media_note, one_line, searchable
from sessiond.model import Kind, parse_utc, utc

NAME_LIMIT = 200

_SHELL_WORDS = ("exec", "command", "shell", "terminal", "bash")
_EDITS = frozenset(
    {
        *("write_file", "edit_file", "append_file", "create_file", "patch_file", "write_to_file", "replace_in_file"),
        *("apply_patch", "apply_diff", "hashline_edit", "search_replace", "str_replace", "multi_edit"),
    }
)
_CHOICES = frozenset({"ask_user", "ask_user_multiple", "request_user_input", "escalate"})
_PATHS = ("path", "file_path", "filename", "file", "target_file")
_SHOWN = ("query", "url", "prompt", "question", *_PATHS)


class Call(NamedTuple):
    kind: Kind
    name: str
    summary: str
    text: str
    files: tuple[str, ...] = ()


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def string(value: Any, limit: int = NAME_LIMIT) -> str:
    """A string, bounded; "" for anything else."""
    return value[:limit] if isinstance(value, str) else ""


def said(value: Any) -> str:
    """What somebody wrote, in full: a string as it is, of a list of blocks their text, of anything else the words."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_block, value)))
    return searchable(value)


def _block(block: Any) -> str:
    if not isinstance(block, dict):
        return searchable(block)
    return text if isinstance(text := block.get("text"), str) else media_note(block)


def digest(*parts: str | bytes) -> str:
    hash_ = blake2b(digest_size=8)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "replace")
        hash_.update(len(data).to_bytes(8, "big") + data)
    return hash_.hexdigest()


def key_of(kind: str, record: dict[str, Any], field: str) -> str:
    """A name for a record: its own id, or what it says where it has none."""
    name = string(record.get(field))
    return f"{kind}:{name}" if name else f"{kind}:~{digest(text_of(record))}"


def later(ts: str | None, seconds: Any) -> str | None:
    """The time so many seconds after `ts`."""
    if ts is None or isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        return ts
    try:
        return utc(parse_utc(ts) + timedelta(seconds=seconds))
    except OverflowError:
        return ts


def read_call(call: dict[str, Any]) -> Call:
    """What a call does: it edits, runs tests, asks for a choice, or is any other call."""
    name = string(call.get("tool_name"), 80) or "tool"
    given = call.get("tool_input")
    arguments = mapping(given)
    text = searchable(given)
    command = arguments.get("command")
    if any(word in name for word in _SHELL_WORDS) and isinstance(command, str | list):
        argv = command if isinstance(command, str) else [word for word in command if isinstance(word, str)]
        kind = Kind.TEST_RUN if is_test_command(argv) else Kind.TOOL_CALL
        return Call(kind, name, one_line(argv if isinstance(argv, str) else " ".join(argv)) or name, text)
    if name in _EDITS:
        files = tuple(string(arguments[at], 4096) for at in _PATHS if string(arguments.get(at)))[:1]
        return Call(Kind.EDIT, name, one_line("edit " + files[0]) if files else name, text, files)
    kind = Kind.DECISION if name in _CHOICES else Kind.TOOL_CALL
    shown = next((string(arguments[at]) for at in _SHOWN if string(arguments.get(at))), "") or text_of(given)[:1000]
    return Call(kind, name, one_line(f"{name} {shown}"), text)


def read_result(call: dict[str, Any]) -> tuple[str, str, bool]:
    """(summary, text, failed) of a finished call."""
    text = said(call.get("result"))
    failed = call.get("is_error") is True
    return first_line(text) or ("failed" if failed else "no output"), clip(text), failed
