"""Times and numbers as a person reads them: in their own zone, relative while that is short."""

from __future__ import annotations

from datetime import UTC, datetime

from sessiond.units import format_ago, format_duration

RELATIVE_SECONDS = 86_400


def now() -> datetime:
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def parse(text: str | None) -> datetime | None:
    """None for nothing, and for what is no time."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def local(moment: datetime) -> str:
    """To the minute, in the user's zone; sorts as text."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def when(text: str | None, at: datetime, *, absolute: bool = False) -> str:
    """For a column: "3m ago" within a day, then the date and time, without the year within this one."""
    moment = parse(text)
    if moment is None:
        return "-" if absolute else ""
    if absolute:
        return local(moment)
    if abs((at - moment).total_seconds()) < RELATIVE_SECONDS:
        return format_ago(at, moment)
    here = moment.astimezone()
    return f"{here:%b} {here.day:2} {here:%H:%M}" if here.year == at.astimezone().year else f"{here:%Y-%m-%d}"


def since(text: str | None, at: datetime) -> str:
    """How long it lasts already: "3d 4h"."""
    moment = parse(text)
    return format_duration(max(0.0, (at - moment).total_seconds())) if moment is not None else ""


def number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def short_number(value: float | None) -> str:
    """Three digits at most: "812", "1.2k", "34M"."""
    if value is None:
        return ""
    for unit in ("", "k", "M", "G"):
        if value < 999.5 or unit == "G":
            digits = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
            return digits.removesuffix(".0") + unit
        value /= 1000
    return ""


def count(value: int, noun: str) -> str:
    """As in "1 file", "12,345 lines"."""
    return f"{value:,} {noun}" + ("" if value == 1 else "s")
