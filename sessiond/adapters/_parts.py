"""What Gemini CLI and Qwen Code, which grew from it, share: content in parts, tool names, results, token counts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from sessiond.adapters._calls import Toolbox
from sessiond.adapters.base import count_of, mapping_of, string_of
from sessiond.adapters.wording import clip, first_line, media_note, one_line, searchable
from sessiond.model import Key, Kind, session_key

TOOLS = Toolbox(
    edits=frozenset({"replace", "edit", "write_file", "notebook_edit"}),
    shells=frozenset({"run_shell_command"}),
    decisions=frozenset({"exit_plan_mode", "ask_user", "ask_user_question"}),
)
_MAX_PARTS = 1_000
_TAIL = 500  # a shell's exit code stands at the end of its output
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,10})$", re.MULTILINE)
_WRAPPER = re.compile(r"\A<untrusted_context>\n|\n?</untrusted_context>\s*\Z")


class Result(NamedTuple):
    """A tool's answer, as one event needs it."""

    kind: Kind
    summary: str
    text: str
    is_error: bool


class Tokens(NamedTuple):
    """In the store's sense: input without what was cached, output with what was only thought."""

    input: int | None
    output: int | None
    cached: int | None
    thought: int | None


def call_key(call_id: Any) -> Key | None:
    return session_key("call:" + call_id) if isinstance(call_id, str) and call_id else None


def result_key(call_id: Any) -> Key | None:
    return session_key("result:" + call_id) if isinstance(call_id, str) and call_id else None


def parts_of(content: Any) -> list[dict[str, Any]]:
    """Content as its parts: a string is one, one part may stand alone."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    listed = content if isinstance(content, list) else [content]
    found = ({"text": part} if isinstance(part, str) else part for part in listed[:_MAX_PARTS])
    return [part for part in found if isinstance(part, dict)]


def text_of_parts(parts: list[dict[str, Any]]) -> str:
    """What is said in these parts, thoughts and calls left out, media as a note."""
    said = []
    for part in parts:
        if part.get("thought") is True:
            continue
        if isinstance(part.get("text"), str):
            said.append(clip(part["text"]))
        elif media := mapping_of(part.get("inlineData")) or mapping_of(part.get("fileData")):
            said.append(media_note(media))
    return clip("\n".join(said))


def read_result(response: dict[str, Any], status: Any, shown: Any) -> Result:
    """A functionResponse's `response`, the client's mark for it, and what the client showed instead.

    A command that failed is a success to these clients; the exit code at its end says otherwise.
    """
    error = response.get("error")
    said = response.get("output") if error is None else error
    text = _unwrapped(said) if isinstance(said, str) else searchable(response if said is None else said)
    code = _exit_code(text, shown)
    is_error = status == "error" or error is not None or bool(code)
    if status == "cancelled":
        return Result(Kind.HUMAN_INTERVENTION, first_line(text) or "tool call cancelled", clip(text), is_error=False)
    words = first_line(_output(text, shown)) or ("failed without a word" if is_error else "(no output)")
    return Result(Kind.TOOL_RESULT, f"Exit code {code}: {words}" if code else words, clip(text), is_error)


def _unwrapped(text: str) -> str:
    return _WRAPPER.sub("", text)


def _exit_code(text: str, shown: Any) -> int | None:
    stated = mapping_of(shown).get("exitCode")
    if isinstance(stated, int) and not isinstance(stated, bool) and abs(stated) < 2**32:
        return stated
    codes = _EXIT_CODE.findall(text[-_TAIL:])
    return int(codes[-1]) if codes else None


def _output(text: str, shown: Any) -> str:
    """What a tool printed, without the lines about it: as the client showed it, else from the answer itself."""
    display = mapping_of(shown)
    for said in (shown, display.get("text"), display.get("output"), display.get("result")):
        if isinstance(said, str) and said.strip():
            return said
    if text.startswith("Command: ") and "\nOutput: " in text[:20_000]:
        text = text[text.find("\nOutput: ") + 1 :]
    return text.removeprefix("Output: ")


def thought_line(text: str) -> str:
    return one_line(text) or "(thinking, not shown)"


def read_tokens(given: Any, answered: Any, thought: Any, cached: Any, tools: Any, total: Any) -> Tokens | None:
    """None where nothing is known. Thoughts are part of the answer for some providers, apart from it for others:
    only where they are part of it do question and answer make up the total.
    """
    asked, said, mused, kept, used, sum_ = (count_of(n) for n in (given, answered, thought, cached, tools, total))
    if asked is None and said is None:
        return None
    uncached = None if asked is None else max(asked - (kept or 0), 0) + (used or 0)
    is_apart = bool(mused) and sum_ != (asked or 0) + (said or 0)
    output = None if said is None else said + (mused or 0) * is_apart
    return Tokens(uncached, output, kept, mused)


def agent_name(value: Any) -> str | None:
    """An agent's id, bounded."""
    name = string_of(value)
    return name[:200] if name is not None else None
