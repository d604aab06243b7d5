"""What a turn spent. Grok states it once per turn, with `turn_completed`, for all its model calls together.

A turn has an id of its own, so one that is written again, or copied by a fork, counts once. The tokens of a turn hold
those of the sub-agents it started, which state theirs in sessions of their own: see `usage_in_parent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sessiond.adapters._grok_reading import ident, mapping
from sessiond.adapters.base import count_of
from sessiond.model import Key, Usage, global_key

if TYPE_CHECKING:
    from sessiond.adapters._grok_reading import Reading


class Spent(NamedTuple):
    input: int  # all of it, cached or not
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


def turn_usage(reading: Reading) -> None:
    stated, took = reading.body.get("usage"), count_of(reading.body.get("elapsed_ms"))
    turn = ident(reading.body.get("prompt_id"))
    key = global_key("turn:" + turn) if turn else Key(f"{reading.key}:turn")
    model = reading.carry.get("fact:model")
    if not isinstance(stated, dict):
        if took is not None:
            reading.records.append(Usage(key, ts=reading.ts, duration_ms=took))
        return
    parts: list[tuple[str | None, Spent]] = [*_by_model(stated)] or [(model, _spent(stated))]
    for number, (name, spent) in enumerate(parts):
        reading.records.append(
            Usage(
                Key(f"{key}:{name}") if number else key,
                event_key=reading.key,
                ts=reading.ts,
                model=name,
                input_tokens=max(0, spent.input - spent.cache_read - spent.cache_write),
                output_tokens=spent.output,
                cache_read_tokens=spent.cache_read,
                cache_write_tokens=spent.cache_write,
                reasoning_tokens=spent.reasoning,
                duration_ms=None if number else took,
            )
        )


def _by_model(stated: dict[str, Any]) -> list[tuple[str, Spent]]:
    """The same by model, where that adds up to what the turn states as a whole."""
    models = mapping(stated.get("modelUsage"))
    parts = [(name[:200], _spent(each)) for name, each in models.items() if name and isinstance(each, dict)]
    total = _spent(stated)
    added = Spent(*(sum(column) for column in zip(*(spent for _, spent in parts), strict=True))) if parts else None
    return parts if added == total else []


def _spent(stated: dict[str, Any]) -> Spent:
    names = ("inputTokens", "outputTokens", "cachedReadTokens", "cacheCreationTokens", "reasoningTokens")
    return Spent(*(count_of(stated.get(name)) or 0 for name in names))
