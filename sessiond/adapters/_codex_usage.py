"""Tokens. Codex writes a running total, again and again; each new total counts once, with what it adds.

- `last_token_usage` is what the request spent; up to half of all records repeat an unchanged total, resume resets
  it to zero, and a review has a counter of its own in the middle of its parent's. So neither the sum of all
  records nor the last total is right, but the sum over *different* totals is: `once` is the total.
- A copied history is known by its prefix: the key is a running hash over the totals so far. The hash of a review
  starts anew, so that the sub-agent's own file and the copy inside its parent's name the same thing.
- `token_usage_record` (0.169) says the same per response, and also for a turn that was killed before its
  `token_count`: once a file has them, they alone count. Their thread total, the same vector, is their `once`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._codex_reading import Reading, digest
from sessiond.adapters.base import MAX_COUNT, count_of
from sessiond.model import Key, Usage, lineage_key, session_key

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "cache_write_input_tokens",
)
_REVIEW = "review"


def enter_review(reading: Reading) -> None:
    if "review" not in reading.carry:
        reading.carry["review"] = _REVIEW


def leave_review(reading: Reading) -> None:
    if not reading.carry.get("reviewer"):
        reading.carry.pop("review", None)
        reading.carry.pop("review_vector", None)


def token_count(payload: dict[str, Any], reading: Reading) -> None:
    info, carry = payload.get("info"), reading.carry
    total = _numbers(info.get("total_token_usage")) if isinstance(info, dict) else None
    if total is None or carry.get("records"):
        return
    vector = _vector(total)
    chain, before = ("review", "review_vector") if "review" in carry else ("totals", "vector")
    previous = carry.get(before)
    if previous == vector:
        return  # the commonest of all: the same total again
    last = _numbers(payload["info"].get("last_token_usage"))
    if previous is None and last is not None and _vector(last) != vector and reading.is_replay():
        carry["cut"] = True  # only its parent's last turns were copied: no prefix to know them by
    carry[chain] = digest(str(carry.get(chain, carry.get("seed", ""))), vector)
    carry[before] = vector
    if "cut" in carry and reading.is_replay():
        return
    prefix = "review:" if chain == "review" else "usage:"
    spent = last if last is not None else _difference(total, previous)
    _emit(reading, lineage_key(prefix + carry[chain]), vector, spent)


def token_usage_record(payload: dict[str, Any], reading: Reading) -> None:
    spent, thread = _numbers(payload.get("usage")), _numbers(payload.get("thread_token_usage"))
    if spent is None:
        return
    reading.carry["records"] = True
    response = payload.get("response_id")
    if isinstance(response, str) and response:
        key = lineage_key("response:" + response)
    else:
        key = reading.key("u", "usage", _vector(spent), _vector(thread) if thread else "")
    _emit(reading, key, _vector(thread) if thread else None, spent)


def turn_duration(payload: dict[str, Any], reading: Reading) -> None:
    """How long a turn took; it spends no tokens of its own."""
    duration = count_of(payload.get("duration_ms"))
    if duration is not None:
        key = lineage_key(f"turn:{reading.anchor()}:{payload.get('turn_id')}")
        reading.records.append(Usage(key, ts=reading.ts, duration_ms=duration))


def _emit(reading: Reading, key: Key, vector: str | None, spent: Sequence[int]) -> None:
    tokens_in, cached, out, reasoning, written = spent
    if not (tokens_in or out):
        return  # a marker of a full context: nothing was spent, and nothing is not 0
    carry = reading.carry
    event_key = carry.get("spent") or carry.get("last")
    reading.records.append(
        Usage(
            key,
            once=session_key("vector:" + vector) if vector else None,
            event_key=Key(event_key) if event_key else None,
            ts=reading.ts,
            model=carry.get("model"),
            input_tokens=max(0, tokens_in - cached - written),
            output_tokens=out,
            cache_read_tokens=cached,
            cache_write_tokens=written,
            reasoning_tokens=reasoning,
        )
    )


def _numbers(usage: Any) -> list[int] | None:
    """The five numbers of a usage object, missing ones 0; None if there is no such object."""
    if not isinstance(usage, dict):
        return None
    return [
        number if type(number := usage.get(name)) is int and 0 <= number <= MAX_COUNT else count_of(number) or 0
        for name in _FIELDS
    ]


def _vector(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers[:4]))


def _difference(total: Sequence[int], previous: str | None) -> Sequence[int]:
    """What a total adds to the one before it; after a decrease the counter began anew."""
    if previous is None:
        return total
    before = [int(number) for number in previous.split(",")]
    if any(now < then for now, then in zip(total, before, strict=False)):
        return total
    return [*(now - then for now, then in zip(total, before, strict=False)), 0]
