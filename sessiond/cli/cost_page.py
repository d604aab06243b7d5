"""The table of `sessiond cost`: a row for each day, model or session, their total, and what has no price."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from sessiond.cli import times
from sessiond.cli.table import Column, print_table
from sessiond.store import glance
from sessiond.store.spent import NOTHING, Tokens, titles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sessiond.cli.answer import Answer
    from sessiond.cli.prices import PriceList
    from sessiond.cli.terminal import Terminal

CALENDAR = ("day", "week", "month")
WIDE = 110  # columns of a screen from which numbers are written out
UNPRICED = "unpriced"
NAMELESS = {"model": "(no model)", "repo": "(no repository)"}


@dataclass(slots=True)
class Entry:
    """One row: everything that was spent under one key, and what of it has a price."""

    key: str | None
    tokens: Tokens = NOTHING
    usd: Decimal | None = None  # None: nothing of it has a price
    unpriced: dict[str | None, Tokens] = field(default_factory=dict)  # by model
    sessions: set[str] = field(default_factory=set)

    def add(self, other: Entry) -> None:
        self.tokens = self.tokens.plus(other.tokens)
        if other.usd is not None:
            self.usd = (self.usd or Decimal(0)) + other.usd
        for model, tokens in other.unpriced.items():
            self.unpriced[model] = self.unpriced.get(model, NOTHING).plus(tokens)
        self.sessions |= other.sessions

    @property
    def without_price(self) -> Tokens:
        return _sum(self.unpriced.values())


def _sum(parts: Iterable[Tokens]) -> Tokens:
    total = NOTHING
    for part in parts:
        total = total.plus(part)
    return total


def print_page(answer: Answer, to: Terminal, entries: list[Entry], by: str, prices: PriceList, shown: int) -> None:
    """At most `shown` rows and the sum of those left out, so that every column adds up to the total."""
    listed, total = entries[:shown], _together(entries)
    # Without any price the picture is that of the tokens.
    weights = [float(each.tokens.total if total.usd is None else each.usd or 0) for each in listed]
    most = max(weights) or 1.0
    cells = [
        (*label, *_numbers(to, entry), _bar(to, weight / most))
        for label, entry, weight in zip(_labels(answer, to, by, listed), listed, weights, strict=True)
    ]
    if len(entries) > shown:
        cells.append((f"{len(entries) - shown} more", "", *_numbers(to, _together(entries[shown:])), ""))
    cells.append(("total", "", *_numbers(to, total), ""))
    if total.unpriced:
        *counts, _, _ = _numbers(to, Entry(None, total.without_price))
        cells.append((UNPRICED, "", *counts, "" if to.is_screen else "-", "" if to.is_screen else "-", ""))
    _print_columns(to, by, cells)
    for line in _notes(answer, total, prices):
        to.line(to.style(line, "dim"))


def _together(entries: Iterable[Entry]) -> Entry:
    total = Entry(None)
    for entry in entries:
        total.add(entry)
    return total


def _labels(answer: Answer, to: Terminal, by: str, entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """(what, title) of each entry; only sessions have a title."""
    keys = [entry.key or "" for entry in entries]
    if by == "session":
        named = titles(answer.db, keys)
        short = glance.short_names(answer.db, keys) if to.is_screen else {}
        return [(short.get(key, key), answer.words(named.get(key)) or "-") for key in keys]
    if by == "repo":
        # The last part of a path says it, unless two have the same.
        last = Counter(os.path.basename(key) for key in keys)
        is_short = {key: to.is_screen and last[os.path.basename(key)] == 1 for key in keys}
        shown = {key: answer.words(os.path.basename(key)) if is_short[key] else answer.path(key) for key in keys}
        return [(shown[key] or NAMELESS[by], "") for key in keys]
    if to.is_screen and by in ("day", "week"):
        return [(_with_day(key, by), "") for key in keys]
    return [(answer.words(key) or NAMELESS.get(by, "-"), "") for key in keys]


def _with_day(key: str, by: str) -> str:
    day = date.fromisoformat(key)  # of a week: its Monday
    return f"{key} {day:%a}" if by == "day" else f"{key} {day:%b} {day.day:2}"


def _numbers(to: Terminal, entry: Entry) -> tuple[str, ...]:
    if to.width is None:
        counts = [str(number) for number in entry.tokens]
    else:
        counts = [times.number(each) if to.width >= WIDE else times.short_number(each) for each in entry.tokens]
    return (*counts, _usd(to, entry), str(len(entry.sessions)))


def _usd(to: Terminal, entry: Entry) -> str:
    if entry.usd is None:
        return UNPRICED if to.width is not None else "-"
    if to.width is None:
        return f"{entry.usd:.6f}"
    if entry.unpriced:
        return f"{to.glyph('≥', '>')}{entry.usd:,.2f}"  # there is more, and nobody knows how much
    return f"{entry.usd:,.2f}" if entry.usd == 0 or entry.usd >= Decimal("0.005") else "<0.01"


def _bar(to: Terminal, share: float) -> str:
    if to.width is None:
        return ""
    width = 20 if to.width >= WIDE else 8
    return to.bar(share, width)[: round(share * width)]  # without its empty part: a column of them is a wall


def _print_columns(to: Terminal, by: str, cells: Sequence[Sequence[str]]) -> None:
    is_narrow = to.width is not None and to.width < WIDE
    columns = [
        Column(by.upper(), shrinks_to=None if by in CALENDAR else 20, style=_key_style),
        Column("TITLE", shrinks_to=12, leaves=2),
        Column("INPUT", right=True, leaves=4),
        Column("OUTPUT", right=True, leaves=3),
        Column("CACHE RD" if is_narrow else "CACHE READ", right=True, leaves=6),
        Column("CACHE WR" if is_narrow else "CACHE WRITE", right=True, leaves=7),
        Column("USD", right=True, style=lambda text: ("yellow",) if text == UNPRICED else ("bold",)),
        Column("SESSIONS", right=True, leaves=8),
        Column("", leaves=9, style=lambda _: ("cyan",)),
    ]
    # Off the screen every column is printed: those that say nothing here must not be there at all.
    kept = [
        at for at, column in enumerate(columns) if any(row[at] for row in cells) and column.title != by.upper() + "S"
    ]
    print_table(to, [columns[at] for at in kept], [[row[at] for at in kept] for row in cells])


def _key_style(text: str) -> tuple[str, ...]:
    return ("bold",) if text == "total" else ("yellow",) if text == UNPRICED else ()


def _notes(answer: Answer, total: Entry, prices: PriceList) -> list[str]:
    lines = [f"USD at API prices of {prices.as_of()} (genai-prices {prices.version})"]
    if total.unpriced:
        most = sorted(total.unpriced, key=lambda model: (-total.unpriced[model].total, model or ""))
        named = ", ".join(answer.words(model) if model else NAMELESS["model"] for model in most)
        lines.insert(0, f"{UNPRICED}: {times.count(total.without_price.total, 'token')} of {named}")
    return lines
