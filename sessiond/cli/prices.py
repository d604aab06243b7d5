"""What a model's tokens cost, by the price list of genai-prices as it was installed: no network, and no guesses.

The list finds a model by parts of its name, so that `claude-opus-4-7-anything` is charged as `claude-opus-4-7`. Here
a name counts only if it is one that the list spells out, but for a date or a word such as `latest` behind it, and for
a provider's own name and a slash before it. Every other model has no price, and whoever asks names it.

Prices are the standard ones: no batch or priority rates, no fees per request or search. Tokens written to a cache are
charged as for the shortest-lived one, since agents' totals do not tell them apart.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import genai_prices  # 0.1 s, which is why only `cost` imports this module, and late
from genai_prices import data, types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from decimal import Decimal

    from sessiond.store.spent import Tokens

# What may follow a name without making it another model: snapshots are dated in all these ways.
_SNAPSHOT = re.compile(
    r"""[-@](?: latest | default | preview | exp
              | 20\d{2}[01]\d[0-3]\d | 20\d{2}-[01]\d-[0-3]\d      # 20250929, 2025-09-29
              | [01]\d-[0-3]\d | [01]\d-20\d{2} | [01]\d[0-3]\d    # 05-20, 09-2025, 0309
              | 0\d{2} )$                                          # 001""",
    re.VERBOSE,
)


class Rate:
    """One model's prices at one time, for prompts of one range of lengths. The same rate is the same object."""

    def __init__(self, prices: types.ModelPrice) -> None:
        self._prices = prices

    def usd(self, tokens: Tokens) -> Decimal:
        # The list counts cached tokens as part of the input; the store keeps them apart.
        usage = genai_prices.Usage(
            input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
            cache_read_tokens=tokens.cache_read,
            cache_write_tokens=tokens.cache_write,
            output_tokens=tokens.output,
        )
        return self._prices.calc_price(usage)["total_price"]


class PriceList:
    """The installed list. It never looks for a newer one: that is what upgrading the package does."""

    version = genai_prices.__version__

    def __init__(self) -> None:
        self._models: dict[str, types.ModelInfo | None] = {}
        self._rates: dict[tuple[int, int], Rate] = {}

    def rate(self, model: str | None, at: datetime, prompt: int) -> Rate | None:
        """What a response of `model` was charged at that time, given a prompt of so many tokens; None: not known."""
        info = None if model is None else self._find(model)
        if info is None:
            return None
        prices = info.get_prices(at)
        if prices.input_mtok is None or prices.output_mtok is None:
            return None  # listed, but not by the token
        length = prompt if _is_one_request(info, prompt) else 0
        kept = self._rates.get((id(prices), length))
        if kept is None:
            kept = self._rates[id(prices), length] = Rate(_for_length(prices, length))
        return kept

    def steps(self, models: Iterable[str]) -> list[int]:
        """The lengths of a prompt beyond which any of these models has another price, in rising order."""
        found: set[int] = set()
        for model in models:
            info = self._find(model)
            starts = _starts(info) if info is not None else set()
            found |= starts
            if info is not None and starts and info.context_window is not None:
                found.add(info.context_window)
        return sorted(found)

    def as_of(self, today: date | None = None) -> date:
        """The day of the newest price in the list that was more than an announcement when it was installed."""
        written = datetime.fromtimestamp(Path(data.__file__).stat().st_mtime, UTC).date()
        days = sorted(set(_days()))
        in_force = [day for day in days if day <= written]
        if not in_force:  # a packager who gives every file the same old time
            in_force = [day for day in days if day <= (today or datetime.now(UTC).date())]
        return in_force[-1] if in_force else written

    def _find(self, model: str) -> types.ModelInfo | None:
        if model not in self._models:
            self._models[model] = _look_up(model.lower())
        return self._models[model]


def _look_up(name: str) -> types.ModelInfo | None:
    prefix, slash, rest = name.partition("/")
    for provider in data.providers:
        if slash and (prefix == provider.id or prefix in _words(provider.provider_match)):
            return _named(provider, rest)
    for provider in data.providers:
        if provider.model_match is not None and provider.model_match.is_match(name):
            return _named(provider, name)
    return None


def _named(provider: types.Provider, name: str) -> types.ModelInfo | None:
    """The model that the list finds, if the list also spells its name like this."""
    found = provider.find_model(name)
    if found is None:
        return None
    spelled = {found.id.lower(), *_words(found.match)}
    while name not in spelled:
        shorter = _SNAPSHOT.sub("", name)
        if shorter == name:
            return None
        name = shorter
    return found


def _words(clause: types.MatchLogic | None) -> set[str]:
    """The names that a rule of the list spells out, whether it asks for the whole or for a part."""
    match clause:
        case types.ClauseOr(or_=parts) | types.ClauseAnd(and_=parts):
            return {word for part in parts for word in _words(part)}
        case types.ClauseEquals(equals=word) | types.ClauseContains(contains=word):
            return {word.lower()}
        case types.ClauseStartsWith(starts_with=word) | types.ClauseEndsWith(ends_with=word):
            return {word.lower()}
    return set()


def _is_one_request(info: types.ModelInfo, prompt: int) -> bool:
    """False where the prompt is longer than the model takes: an agent that states turns has summed several.

    Where the list states a window that ends before its own last price begins, the window tells nothing.
    """
    window = info.context_window
    return window is None or prompt <= window or window <= max(_starts(info), default=0)


def _starts(info: types.ModelInfo) -> set[int]:
    listed = [info.prices] if isinstance(info.prices, types.ModelPrice) else [each.prices for each in info.prices]
    tiered = [price for prices in listed for price in vars(prices).values() if isinstance(price, types.TieredPrices)]
    return {tier.start for price in tiered for tier in price.tiers}


def _for_length(prices: types.ModelPrice, prompt: int) -> types.ModelPrice:
    """The prices of one response, fit for a sum of many: the sum's own length must not choose among them."""
    flat = {name: price for name, price in vars(prices).items() if name != "requests_kcount"}
    for name, price in flat.items():
        if isinstance(price, types.TieredPrices):
            reached = [tier.price for tier in price.tiers if prompt > tier.start]
            flat[name] = reached[-1] if reached else price.base
    return types.ModelPrice(**flat)


def _days() -> Iterator[date]:
    for provider in data.providers:
        for model in provider.models:
            conditional = [] if isinstance(model.prices, types.ModelPrice) else model.prices
            for each in (*conditional, *(model.price_variants or ())):
                if isinstance(each.constraint, types.StartDateConstraint):
                    yield each.constraint.start_date
