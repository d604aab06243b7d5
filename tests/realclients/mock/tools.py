"""From what a script wants done to the tool that this client offers for it, with its arguments filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from realclients.mock.scripts import Call
from realclients.mock.wires.shape import Json, Tool

PATCH = "apply_patch"
_TOOLS = {
    "shell": ("bash", "exec_command", "shell_command", "shell", "run_terminal_command", "run_terminal_cmd", "run_shell_command"),
    "write": ("write", "write_file", "create_file", PATCH, "search_replace"),
    "edit": ("edit", "replace", "edit_file", "str_replace", "search_replace", PATCH),
    "read": ("read", "read_file", "view_file"),
    "delegate": ("agent", "task", "spawn_agent", "spawn_subagent", "subagent"),
    "wait": ("wait_agent",),
}  # fmt: skip
_ARGUMENTS = {
    "command": ("command", "cmd"),
    "description": ("description", "explanation"),
    "path": ("file_path", "path", "absolute_path", "target_file"),
    "content": ("content", "contents"),
    "old": ("old_string", "old_str", "oldtext"),
    "new": ("new_string", "new_str", "newtext"),
    "prompt": ("prompt", "message", "instructions"),
    "ids": ("ids", "targets", "agent_ids"),
}
_GUESSES: Mapping[str | None, Any] = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Chosen:
    tool: Tool
    arguments: Json
    freeform: str | None = None
    is_edit: bool = False


def offers(tools: Sequence[Tool], action: str) -> bool:
    return any(tool.name.lower() in _TOOLS[action] for tool in tools)


def choose(tools: Sequence[Tool], call: Call, last_result: str) -> Chosen | None:
    """The client's own tool for it, else its shell, as these agents do it themselves; None: not even that."""
    arguments: dict[str, Any] = dict(call.arguments)
    if call.action == "wait":
        arguments["ids"] = _UUID.findall(last_result)[:1]
    by_name = {tool.name.lower(): tool for tool in tools}
    for name in _TOOLS[call.action]:
        if name not in by_name:
            continue
        tool, is_edit = by_name[name], call.action in ("write", "edit")
        if name == PATCH:
            patch = _patch(call)
            return Chosen(tool, {"input": patch}, patch if tool.is_freeform else None, is_edit)
        return Chosen(tool, _fill(tool.schema, tool.schema, call.action, arguments), None, is_edit)
    if call.action == "shell":
        return None
    return choose(tools, Call("shell", {"command": _in_shell(call), "description": call.action}), last_result)


def fill_required(tool: Tool) -> Json:
    return _fill(tool.schema, tool.schema, "answer", {})


def _fill(schema: Json, root: Json, action: str, arguments: Mapping[str, Any]) -> Json:
    schema = _followed(schema, root)
    required = schema.get("required") or []
    filled: Json = {}
    for name, raw in (schema.get("properties") or {}).items():
        spec = _followed(raw, root) if isinstance(raw, dict) else {}
        ours = next((ours for ours, theirs in _ARGUMENTS.items() if name.lower() in theirs and ours in arguments), None)
        if ours is not None:
            filled[name] = (
                ["bash", "-lc", arguments[ours]] if _type(spec) == "array" and ours == "command" else arguments[ours]
            )
        elif name == "edits":
            filled[name] = [_fill(spec.get("items") or {}, root, action, arguments)]
        elif action == "write" and name in ("old_string", "new_string"):
            filled[name] = "" if name == "old_string" else arguments["content"]  # replacing nothing makes a file
        elif action == "delegate" and name in ("subagent_type", "run_in_background", "background"):
            filled[name] = "general-purpose" if name == "subagent_type" else False
        elif name in required:
            filled[name] = (spec.get("enum") or [_GUESSES.get(_type(spec), f"scripted {action}")])[0]
    return filled


def _followed(schema: Json, root: Json) -> Json:
    at: Any = schema
    if str(schema.get("$ref", "")).startswith("#/"):
        at = root
        for name in schema["$ref"][2:].split("/"):
            at = at.get(name) or {}
    return at if isinstance(at, dict) else {}


def _type(spec: Json) -> str | None:
    kind = spec.get("type")
    return kind[0] if isinstance(kind, list) else kind


def _patch(call: Call) -> str:
    words = call.arguments
    if call.action == "write":
        added = "\n".join("+" + line for line in words["content"].splitlines())
        return f"*** Begin Patch\n*** Add File: {words['path']}\n{added}\n*** End Patch\n"
    change = f" def area(w, h):\n-    return {words['old']}\n+    return {words['new']}"
    return f"*** Begin Patch\n*** Update File: {words['path']}\n@@\n{change}\n*** End Patch\n"


def _in_shell(call: Call) -> str:
    words = call.arguments
    if call.action == "write":
        return f"cat > {words['path']} <<'EOF'\n{words['content']}EOF"
    if call.action == "read":
        return f"cat {words['path']}"
    if call.action == "edit":
        return f"sed -i 's/{words['old'].replace('*', '[*]')}/{words['new']}/' {words['path']}"
    return "echo no sub-agents here"
