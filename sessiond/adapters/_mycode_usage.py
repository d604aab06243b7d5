"""What an answer spent: four providers' own words up to 0.1x, one canonical form after.

In Anthropic's words the input leaves the cache out; in all others the cache is part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sessiond.adapters.base import count_of
from sessiond.model import Key, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Spent(NamedTuple):
    """`given` as the provider counts it; `apart` where that leaves the cache out."""

    given: int | None
    answered: int | None
    read: int | None
    written: int | None
    reasoning: int | None
    apart: bool = False


def usage_of(spent: Any, key: Key, event_key: Key | None, ts: str | None, model: str | None) -> Usage | None:
    if not isinstance(spent, dict):
        return None
    found = _spent(spent)
    if (found.given, found.answered, found.read, found.written) == (None,) * 4:
        return None
    given = found.given
    if given is not None and not found.apart:
        given = max(0, given - (found.read or 0) - (found.written or 0))
    return Usage(
        key=key,
        event_key=event_key,
        ts=ts,
        model=model,
        input_tokens=given,
        output_tokens=found.answered,
        cache_read_tokens=found.read,
        cache_write_tokens=found.written,
        reasoning_tokens=found.reasoning,
    )


def _spent(usage: dict[str, Any]) -> _Spent:
    def of(name: str, part: Mapping[str, Any] = usage) -> int | None:
        return count_of(part.get(name))

    def details(name: str) -> Mapping[str, Any]:
        found = usage.get(name)
        return found if isinstance(found, dict) else {}

    def priced(given: str, answered: str, given_parts: str, answered_parts: str) -> _Spent:
        inside, thought = details(given_parts), of("reasoning_tokens", details(answered_parts))
        return _Spent(of(given), of(answered), of("cached_tokens", inside), of("cache_write_tokens", inside), thought)

    if "prompt_token_count" in usage:  # Google: what it thought comes on top of what it said
        said, thought = of("candidates_token_count"), of("thoughts_token_count")
        answered = None if said is None and thought is None else (said or 0) + (thought or 0)
        return _Spent(of("prompt_token_count"), answered, of("cached_content_token_count"), None, thought)
    if "prompt_tokens" in usage:  # chat completions
        return priced("prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details")
    if "input_tokens_details" in usage:  # OpenAI's responses
        return priced("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")
    given, answered = of("input_tokens"), of("output_tokens")
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:  # Anthropic
        read, written = of("cache_read_input_tokens"), of("cache_creation_input_tokens")
        return _Spent(given, answered, read, written, None, apart=True)
    # Canonical; or Anthropic without a word about its cache, which comes to the same.
    return _Spent(given, answered, of("cache_read_tokens"), of("cache_write_tokens"), of("reasoning_tokens"))
