"""How a call ended, told apart from its result: before it or after it, under the id of the call.

Only a failure is passed on: it is all that these records add to what the result says of itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.model import Kind, Patch, session_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiond.adapters._codex_reading import Reading

_DECLINED = {"declined", "denied", "rejected"}


def _ended(payload: dict[str, Any], reading: Reading, call_id: Any, *, failed: bool) -> None:
    status = payload.get("status")
    declined = isinstance(status, str) and status in _DECLINED  # by a person
    if isinstance(call_id, str) and call_id and (failed or declined or status == "failed"):
        kind = Kind.HUMAN_INTERVENTION if declined else None
        reading.records.append(Patch(session_key("result:" + call_id), kind=kind, is_error=True))


def _command(payload: dict[str, Any], reading: Reading) -> None:
    code = payload.get("exit_code")
    failed = isinstance(code, int) and code != 0
    _ended(payload, reading, payload.get("call_id") or payload.get("id"), failed=failed)


def _change(payload: dict[str, Any], reading: Reading) -> None:
    call_id = payload.get("call_id") or payload.get("callId") or payload.get("id")
    _ended(payload, reading, call_id, failed=payload.get("success") is False)


def _mcp(payload: dict[str, Any], reading: Reading) -> None:
    result = payload.get("result")
    result = result if isinstance(result, dict) else {}
    inner = result.get("Ok", result)
    inner = inner if isinstance(inner, dict) else {}
    failed = "Err" in result or True in (inner.get("isError"), inner.get("is_error")) or bool(payload.get("error"))
    _ended(payload, reading, payload.get("call_id") or payload.get("id"), failed=failed)


EVENT_RESULTS: dict[str, Callable[[dict[str, Any], Reading], None]] = {
    "exec_command_end": _command,
    "patch_apply_end": _change,
    "mcp_tool_call_end": _mcp,
    "dynamic_tool_call_response": _change,
}
ITEM_RESULTS: dict[str, Callable[[dict[str, Any], Reading], None]] = {
    "CommandExecution": _command,
    "FileChange": _change,
    "McpToolCall": _mcp,
    "DynamicToolCall": _change,
}
