"""`sessiond cost`: tokens, and what they would cost at API prices, by day, model, repository and so on."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import cost_page, options, terminal
from sessiond.cli.answer import answering
from sessiond.cli.cost_page import CALENDAR, Entry
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.store.spent import NOTHING, QUARTER_SECONDS, models, spent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from sessiond.cli.prices import PriceList, Rate
    from sessiond.store.spent import Spent, Tokens

SHOWN = 20
FEW = ("model", "agent")  # all are shown: a model without a price must not be lost among the rest
BY = (*CALENDAR, *FEW, "repo", "session")


def _by(context: click.Context, option: click.Parameter, given: str) -> str:
    options.one_of(BY)(context, option, (given,))
    return given


@click.command(
    "cost",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond cost", "by day, newest first"),
        ("sessiond cost --by model -S 30d", "which models, in the last month"),
        ("sessiond cost --by session --repo . -S today", "what was dear here today?"),
        ("sessiond cost --by month --json", "for a script"),
    ),
)
@click.option(
    "--by", callback=_by, default="day", show_default=True, metavar="WORD",
    help="What a row stands for: day, week, month, model, agent, repo, session.",
)  # fmt: skip
@options.which
@options.span
@options.limit
@options.as_json
@click.pass_obj
def command(config_file: Path | None, /, by: str, as_json: bool, limit: int | None, **given: Any) -> None:
    """Tokens spent, and what they cost at API prices; days are those of your own time zone.

    A model that the price list does not know is named, and its tokens are counted apart. --since, --until and
    --model choose among the responses themselves, so a session may be counted in part.
    """
    # Late: the price list brings pydantic and more with it.
    from sessiond.cli.prices import PriceList

    with answering(config_file) as answer:
        known = models(answer.db)
        wanted = dataclasses.replace(
            options.wanted(answer.db, {**given, "models": ()}, since=given["since"], until=given["until"]),
            models=[name for name in known if any(part.lower() in name.lower() for part in given["models"])]
            or given["models"],
        )
        prices = PriceList()
        steps = prices.steps(known)
        entries = ordered(fold(spent(answer.db, wanted, steps), by, prices, steps), by)
        if as_json:
            as_of = prices.as_of().isoformat()
            answer.print_json([_object(each, by, as_of) for each in entries[:limit]])
        elif entries:
            shown = len(entries) if by in FEW else SHOWN
            cost_page.print_page(answer, terminal.stdout(), entries, by, prices, limit or shown)
        else:
            terminal.say_note("nothing was spent")


def fold(rows: Iterable[Spent], by: str, prices: PriceList, steps: Sequence[int]) -> list[Entry]:
    """One entry for each key. Tokens are summed first and priced then, each sum at the rate of its own time."""
    entries: dict[str | None, Entry] = {}
    rated: dict[tuple[str | None, Rate], Tokens] = {}
    days: dict[int, str] = {}
    for row in rows:
        if by in CALENDAR and row.quarter not in days:
            days[row.quarter] = _period(row.quarter, by)
        key = days[row.quarter] if by in CALENDAR else getattr(row, "session_uid" if by == "session" else by)
        entry = entries.setdefault(key, Entry(key))
        entry.tokens = entry.tokens.plus(row.tokens)
        entry.sessions.add(row.session_uid)
        at = datetime.fromtimestamp(row.quarter * QUARTER_SECONDS, UTC)
        rate = prices.rate(row.model, at, steps[row.step - 1] + 1 if row.step else 0)
        if rate is None:
            entry.unpriced[row.model] = entry.unpriced.get(row.model, NOTHING).plus(row.tokens)
        else:
            rated[key, rate] = rated.get((key, rate), NOTHING).plus(row.tokens)
    for (key, rate), tokens in rated.items():
        entries[key].usd = (entries[key].usd or Decimal(0)) + rate.usd(tokens)
    return list(entries.values())


def _period(quarter: int, by: str) -> str:
    """The user's own day, week (it begins on Monday) or month that this quarter of an hour lies in."""
    here = time.localtime(quarter * QUARTER_SECONDS)
    try:
        day = date(*here[:3])
    except ValueError:  # a record's time at an end of the calendar, beyond it in this zone
        day = date.min if quarter < 0 else date.max
    year, week, _ = day.isocalendar()
    return {"day": day.isoformat(), "week": f"{year:04}-W{week:02}", "month": day.isoformat()[:7]}[by]


def ordered(entries: list[Entry], by: str) -> list[Entry]:
    """Newest first; what is no time, the dearest first."""
    if by in CALENDAR:
        return sorted(entries, key=lambda each: each.key or "", reverse=True)
    return sorted(entries, key=lambda each: (-(each.usd or 0), -each.tokens.total, each.key or ""))


def _object(entry: Entry, by: str, as_of: str) -> dict[str, Any]:
    return {
        "by": by,
        "key": entry.key,
        "input_tokens": entry.tokens.input,
        "output_tokens": entry.tokens.output,
        "cache_read_tokens": entry.tokens.cache_read,
        "cache_write_tokens": entry.tokens.cache_write,
        "usd": None if entry.usd is None else float(round(entry.usd, 9)),
        "unpriced_tokens": entry.without_price.total,
        "unpriced_models": sorted(entry.unpriced, key=lambda model: model or ""),
        "sessions": len(entry.sessions),
        "prices_as_of": as_of,
    }
