"""What Qwen's calls of the model cost. Each is told twice, with the same numbers but without a name in common.

A telemetry line has the response's id, an `assistant` line has not; the one follows the other, so the carry pairs them.
A sub-agent's answers stand in its own file and their telemetry in the main one: there telemetry alone counts, as it
does for side jobs (memory extraction), which have nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._parts import agent_name, read_tokens
from sessiond.adapters.base import count_of, mapping_of, string_of
from sessiond.model import Key, Usage, global_key

if TYPE_CHECKING:
    from sessiond.model import Carry

_TOLD = (
    *("input_token_count", "output_token_count", "thoughts_token_count"),
    *("cached_content_token_count", "tool_token_count", "total_token_count"),
)
_ANSWERED = (
    *("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    *("cachedContentTokenCount", "toolUsePromptTokenCount", "totalTokenCount"),
)


def of_answer(record: dict[str, Any], ts: str | None, event_key: Key | None, carry: Carry) -> Usage | None:
    """What an `assistant` line of a main file says that it cost."""
    spent = mapping_of(record.get("usageMetadata"))
    numbers = [spent.get(name) for name in _ANSWERED]
    uuid = string_of(record.get("uuid"))
    if read_tokens(*numbers) is None or uuid is None:
        return None
    signature = _signature(numbers)
    key = _paired(carry, "told", signature) or _leave(carry, "answered", signature, global_key(f"usage:{uuid}"))
    return _usage(key, numbers, ts, event_key, string_of(record.get("model")), None)


def of_telemetry(told: dict[str, Any], uuid: str | None, ts: str | None, carry: Carry) -> Usage | None:
    """What an `api_response` line says that it cost: the session, a sub-agent of it, or a side job."""
    numbers = [told.get(name) for name in _TOLD]
    name = string_of(told.get("response_id")) or uuid
    if read_tokens(*numbers) is None or name is None:
        return None
    key = global_key(f"usage:{name[:200]}")
    if agent_name(told.get("subagent_id")) is None:
        signature = _signature(numbers)
        key = _paired(carry, "answered", signature) or _leave(carry, "told", signature, key)
    return _usage(key, numbers, ts, None, string_of(told.get("model")), count_of(told.get("duration_ms")))


def _signature(numbers: list[Any]) -> str:
    return ":".join(str(count_of(number) or 0) for number in numbers)


def _paired(carry: Carry, slot: str, signature: str) -> Key | None:
    """The name under which the same numbers were told just before."""
    if carry.get(slot) != signature:
        return None
    carry.pop(slot)
    return Key(carry.pop(slot + "_key"))


def _leave(carry: Carry, slot: str, signature: str, key: Key) -> Key:
    if len(key) <= 400:  # what is carried is bounded
        carry[slot], carry[slot + "_key"] = signature, key
    return key


def _usage(
    key: Key, numbers: list[Any], ts: str | None, event_key: Key | None, model: str | None, duration_ms: int | None
) -> Usage | None:
    tokens = read_tokens(*numbers)
    if tokens is None:
        return None
    return Usage(
        key=key,
        event_key=event_key,
        ts=ts,
        model=model,
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cached,
        reasoning_tokens=tokens.thought,
        duration_ms=duration_ms,
    )
