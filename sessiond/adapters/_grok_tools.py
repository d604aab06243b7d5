"""What a call does and how it ended, as Grok writes both. Pure; updates.jsonl and chat_history.jsonl share it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from sessiond.adapters._grok_reading import mapping, string, whole
from sessiond.adapters.base import text_of
from sessiond.adapters.commands import is_test_command
from sessiond.adapters.wording import clip, first_line, media_note, one_line, searchable
from sessiond.model import Kind

_EDITING = frozenset({"edit", "write", "delete", "move"})
_EDIT_TOOLS = frozenset({"search_replace", "write", "edit_file", "delete_file", "apply_patch", "multi_edit"})
_SHELLS = frozenset({"run_terminal_command", "bash", "shell"})
_DECISIONS = frozenset({"ask_user_question", "exit_plan_mode"})  # todo_write is none: its plan is, in a line of its own
_FILES = ("file_path", "path", "target_file", "source_path", "destination_path")
_ARGUMENTS = ("command", *_FILES, "target_directory", "pattern", "query", "url", "description", "question", "prompt")
_DENIED = re.compile(
    r"User (?:rejected|denied|declined|cancelled)\b|[^\n]{0,200}\b(?:rejected|denied|cancelled) by (?:the )?user\b"
    r"|Tool execution was halted by the harness \(user_"
)
_EXIT = re.compile(r"exit: (-?\d+)(?:\n|$)")


class Call(NamedTuple):
    kind: Kind
    tool: str | None
    summary: str
    text: str
    files: tuple[str, ...] = ()


class Result(NamedTuple):
    kind: Kind
    summary: str
    text: str
    is_error: bool


def read_call(name: str | None, sort: str | None, arguments: Any) -> Call:
    """`sort` is what Grok itself says that the tool does (`kind`), where it says so."""
    given = mapping(arguments)
    command = string(given.get("command"))
    text = searchable(arguments)
    if sort in _EDITING or (sort is None and name in _EDIT_TOOLS):
        files = tuple(dict.fromkeys(path for field in _FILES if (path := string(given.get(field)))))
        return Call(Kind.EDIT, name, f"{name or 'edit'} {', '.join(files)}", text, files)
    if command is not None and (sort == "execute" or (sort is None and name in _SHELLS)):
        kind = Kind.TEST_RUN if is_test_command(command) else Kind.TOOL_CALL
        return Call(kind, name, command, text)
    kind = Kind.DECISION if name in _DECISIONS else Kind.TOOL_CALL
    return Call(kind, name, f"{name or 'tool'} {_argument(given) or one_line(text)}", text)


def read_arguments(raw: Any) -> Any:
    """chat_history.jsonl has them as JSON in a string."""
    if isinstance(raw, str):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            return raw
    return raw


def read_result(status: str, content: Any, output: Any) -> Result:
    """`status` says whether the tool ran, not whether what it ran went well."""
    stated = mapping(output)
    text = blocks_text(content) or searchable({name: each for name, each in stated.items() if name != "type"})
    code = whole(stated.get("exit_code"))
    killed = stated.get("timed_out") is True or bool(stated.get("signal"))
    failed = status == "failed" or code not in (None, 0) or killed
    denied = status == "cancelled" or (failed and _DENIED.match(text) is not None)
    summary = first_line(text)
    if not summary:
        summary = f"exit code {code}" if code is not None else "failed" if failed else "no output"
    return Result(Kind.HUMAN_INTERVENTION if denied else Kind.TOOL_RESULT, summary, text, failed or denied)


def read_plain_result(text: str) -> Result:
    """A result as the model was shown it: the exit code is its first line."""
    denied = _DENIED.match(text) is not None
    code = _EXIT.match(text)
    failed = code is not None and code[1] != "0"
    body = text[code.end() :] if code is not None else text
    summary = first_line(body) or (f"exit code {code[1]}" if code is not None else "no output")
    return Result(Kind.HUMAN_INTERVENTION if denied else Kind.TOOL_RESULT, summary, body, failed or denied)


def blocks_text(content: Any) -> str:
    """The words in content blocks: text as it is, a diff by its path and what it puts there, media in a few words."""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return clip(content) if isinstance(content, str) else ""
    return clip("\n".join(filter(None, (_block_text(block) for block in content))))


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else ""
    if block.get("type") == "content":
        return blocks_text(block.get("content"))
    if block.get("type") == "diff":
        return f"{text_of(block.get('path'))}\n{text_of(block.get('newText'))}"
    text = block.get("text")
    if isinstance(text, str):
        return text
    return media_note(block) if "type" in block else ""


def _argument(given: dict[str, Any]) -> str:
    return next((text for name in _ARGUMENTS if (text := string(given.get(name)))), "")
