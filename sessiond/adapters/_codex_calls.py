"""Response items for calls and their results: one event each, joined by the id of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._codex_reading import Reading, digest
from sessiond.adapters._codex_tools import Call, read_call, read_command, read_result
from sessiond.adapters.base import text_of
from sessiond.model import Kind, Role, session_key

if TYPE_CHECKING:
    from collections.abc import Callable


def _function_call(item: dict[str, Any], reading: Reading) -> None:
    name = text_of(item.get("name"))
    raw = item.get("arguments")
    _call(item, name, raw, read_call(name, raw), reading)


def _custom_tool_call(item: dict[str, Any], reading: Reading) -> None:
    name = text_of(item.get("name"))
    raw = item.get("input")
    _call(item, name, raw, read_call(name, raw), reading)


def _local_shell_call(item: dict[str, Any], reading: Reading) -> None:
    action = item.get("action")
    command = action.get("command") if isinstance(action, dict) else None
    call = read_command(command if isinstance(command, str | list) else text_of(action))
    _call(item, "local_shell", action, call, reading)


def _web_search_call(item: dict[str, Any], reading: Reading) -> None:
    action = item.get("action")
    asked = action if isinstance(action, dict) else {}
    query = text_of(asked.get("query") or asked.get("queries") or asked.get("url") or asked.get("pattern"))
    _call(item, "web_search", action, Call(Kind.TOOL_CALL, f"search {query}", query), reading)


def _tool_search_call(item: dict[str, Any], reading: Reading) -> None:
    raw = item.get("arguments")
    text = text_of(raw)
    _call(item, "tool_search", raw, Call(Kind.TOOL_CALL, f"tool search {text}", text), reading)


def _image_generation_call(item: dict[str, Any], reading: Reading) -> None:
    wanted = text_of(item.get("revised_prompt"))
    _call(item, "image_generation", wanted, Call(Kind.TOOL_CALL, f"image {wanted}", wanted), reading)


def _call(item: dict[str, Any], name: str, raw: Any, call: Call, reading: Reading) -> None:
    call_id = text_of(item.get("call_id"))
    if not call_id and item.get("type") == "local_shell_call":
        call_id = text_of(item.get("id"))
    said = (name, call_id, raw if isinstance(raw, str) else text_of(raw))
    reading.advance("call", *said)
    key = reading.key("k", *said)
    reading.event(
        call.kind,
        key,
        role=Role.ASSISTANT,
        tool=name or None,
        summary=call.summary,
        text=call.text,
        files=call.files,
    )
    reading.link_call(call_id, key)


def _output(item: dict[str, Any], reading: Reading) -> None:
    call_id = text_of(item.get("call_id"))
    if item.get("type") == "tool_search_output":
        result = read_result(_found_tools(item.get("tools")))
    else:
        result = read_result(item.get("output"))
    text = result.text
    hashed = digest(str(len(text)), text[:2000], text[-500:])  # the call's id is what tells results apart
    reading.advance("output", call_id, hashed)
    key = reading.key("r", call_id, hashed)
    reading.event(
        Kind.HUMAN_INTERVENTION if result.denied else Kind.TOOL_RESULT,
        key,
        role=Role.TOOL,
        summary=result.summary,
        text=text,
        parent=session_key("call:" + call_id) if call_id else None,
        is_error=result.is_error,
    )
    reading.link_result(call_id, key)


def _found_tools(tools: Any) -> str:
    names = [text_of(tool.get("name")) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return f"{len(names)} found: {', '.join(names)}" if names else "none found"


CALLS: dict[str, Callable[[dict[str, Any], Reading], None]] = {
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
    "local_shell_call": _local_shell_call,
    "web_search_call": _web_search_call,
    "tool_search_call": _tool_search_call,
    "image_generation_call": _image_generation_call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "tool_search_output": _output,
}
