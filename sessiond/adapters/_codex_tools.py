"""Calls and their results as Codex writes them: what a call does, which files a patch touches, how it ended. Pure."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from sessiond.adapters._codex_text import content_text
from sessiond.adapters.base import text_of
from sessiond.adapters.commands import is_test_command
from sessiond.adapters.wording import first_line
from sessiond.model import Kind

_SHELLS = {"shell", "exec_command", "shell_command", "container.exec", "local_shell"}
_DECISIONS = {"update_plan", "request_user_input", "request_permissions"}
_PATCH_FILE = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.*\S)", re.MULTILINE)

_EXIT_CODE = re.compile(r"(?:[Ee]xit code:?|exited with code) (-?\d+)")
_ABORTED = re.compile(r"(?:Wall time:[^\n]*\n)?(?:command )?aborted by user")
_DENIED = re.compile(r"(?:rejected|denied) by (?:the )?user(?! approval settings)")
_FAILED = re.compile(
    r"failed in sandbox|execution error|tool call error|err:|unsupported (?:custom tool )?call"
    r"|failed to parse function arguments|[\w.]+ (?:verification )?failed[: ]"
)
_HEADER_CHARS = 400  # the lines that Codex puts before a command's own output


class Call(NamedTuple):
    kind: Kind
    summary: str
    text: str
    files: tuple[str, ...] = ()


class Result(NamedTuple):
    text: str
    summary: str
    is_error: bool
    denied: bool  # by a person


def read_call(name: str, raw: Any) -> Call:
    """What a call does. `raw` is the JSON that the model wrote (a string, maybe no valid JSON) or a bare patch."""
    if name == "apply_patch":
        arguments = _arguments(raw)
        patch = arguments.get("input", arguments.get("patch")) if arguments else raw
        return _edit(text_of(patch))
    if name in _SHELLS:
        arguments = _arguments(raw)
        command = arguments.get("command", arguments.get("cmd"))
        return read_command(command if isinstance(command, str | list) else text_of(raw))
    text = text_of(raw)
    if name in _DECISIONS:
        return Call(Kind.DECISION, _decision(name, _arguments(raw)) or text, text)
    return Call(Kind.TOOL_CALL, f"{name} {text[:1000]}", text)


def read_command(command: str | list[Any]) -> Call:
    """What a shell command does: it may run tests, or carry a patch."""
    argv = command if isinstance(command, str) else [word for word in command if isinstance(word, str)]
    script = argv if isinstance(argv, str) else _script(argv)
    if "apply_patch" in script[:400] and "*** Begin Patch" in script:
        return _edit(script)
    kind = Kind.TEST_RUN if is_test_command(argv) else Kind.TOOL_CALL
    return Call(kind, script, script)


def _script(argv: list[str]) -> str:
    if len(argv) == 3 and argv[1] in ("-lc", "-c", "-Command"):  # bash -lc '...': the dots are what matters
        return argv[2]
    return " ".join(argv)


def _arguments(raw: Any) -> dict[str, Any]:
    if isinstance(raw, str):
        try:
            raw = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return {}
    return raw if isinstance(raw, dict) else {}


def _edit(patch: str) -> Call:
    files = tuple(dict.fromkeys(_PATCH_FILE.findall(patch)))
    return Call(Kind.EDIT, "edit " + ", ".join(files) if files else first_line(patch), patch, files)


def _decision(name: str, arguments: dict[str, Any]) -> str:
    if name == "update_plan":
        steps = arguments.get("plan")
        steps = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
        current = next((step for step in steps if step.get("status") == "in_progress"), None)
        said = arguments.get("explanation") or (current or (steps[0] if steps else {})).get("step")
        return "plan: " + text_of(said) if said else ""
    questions = arguments.get("questions")
    if isinstance(questions, list) and questions and isinstance(questions[0], dict):
        return "asked: " + text_of(questions[0].get("question"))
    return ""


def read_result(value: Any) -> Result:
    """How a call ended. The exit status is written as text, in one of several ways over the years."""
    if isinstance(value, dict):
        inner = value.get("content", value.get("output", value.get("body")))
        result = read_result(inner if isinstance(inner, str | list) else content_text(value) or text_of(inner))
        failed = value.get("success") is False or value.get("is_error") is True
        return result._replace(is_error=True) if failed else result
    text = value if isinstance(value, str) else content_text(value)
    if text.startswith('{"output":') and (plain := _with_metadata(text)) is not None:
        return plain
    header, separator, body = text.partition("Output:\n")
    if not separator or len(header) > _HEADER_CHARS:
        header, body = text[:_HEADER_CHARS], text
        if _ABORTED.match(header) or _DENIED.search(header):
            return Result(text, first_line(text.rpartition("seconds\n")[2]), is_error=True, denied=True)
        code = _EXIT_CODE.search(header) if header.startswith(("Exit code", "Chunk ID", "Wall time")) else None
        failed = _FAILED.match(header) is not None or (code is not None and code[1] != "0")
        return Result(text, first_line(text) or "no output", is_error=failed, denied=False)
    code = _EXIT_CODE.search(header)
    failed = code is not None and code[1] != "0"
    if "running with session ID" in header:
        empty = "still running"
    else:
        empty = f"exit code {code[1]}" if code is not None else "no output"
    return Result(body, first_line(body) or empty, is_error=failed, denied=False)


def _with_metadata(text: str) -> Result | None:
    """The form of 2025: a JSON object in a string."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    output, metadata = value.get("output"), value.get("metadata")
    if not isinstance(output, str) or not isinstance(metadata, dict):
        return None
    code = metadata.get("exit_code")
    failed = isinstance(code, int) and code != 0
    denied = _ABORTED.match(output[:_HEADER_CHARS]) is not None
    return Result(output, first_line(output) or f"exit code {code}", failed or denied, denied)
