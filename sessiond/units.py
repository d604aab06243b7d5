"""Sizes and times as people write and read them: "4GiB", "2h30m", "3m ago", "yesterday".

`parse_*` is strict and raises ValueError with a sentence for the person who typed it. `write_*` is its exact
inverse and goes back into a configuration file; `format_*` rounds and is for reading only.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal

MAX_SIZE = 2**63 - 1  # what SQLite and every file system count in
MAX_SPAN = timedelta(days=36_500)  # beyond it, "now minus that" leaves the calendar

_SIZE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15,
    # A bare letter is binary, as du, ls and systemd have it.
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_MS = {
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    "ms": 1,
}
_STEP = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.IGNORECASE)
_WRITTEN = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))

SIZE_HELP = 'write a size such as "500MB" or "4GiB"'
SPAN_HELP = 'write a time such as "30s", "2h30m" or "45d"'
WHEN_HELP = 'write "2h", "today", "yesterday", "14:30", "2025-03-01" or "2025-03-01T14:30"'


def parse_size(value: object) -> int:
    """Bytes. Text with a unit, or a whole number of bytes; 0 is a size, a negative one is not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _checked_size(Decimal(value), str(value))
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a size; {SIZE_HELP}")
    text = value.strip()
    if text.startswith("-") and _SIZE.fullmatch(text[1:]):
        raise ValueError(f'"{text}" is negative; {SIZE_HELP}')
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is not a size; {SIZE_HELP}')
    factor = _SIZE_UNITS.get(match[2].lower())
    if factor is None:
        raise ValueError(f'"{match[2]}" in "{text}" is not a unit of size; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB')
    return _checked_size(Decimal(match[1]) * factor, f'"{text}"')


def _checked_size(size: Decimal, shown: str) -> int:
    if size < 0:
        raise ValueError(f"{shown} is negative; {SIZE_HELP}")
    if size > MAX_SIZE:
        raise ValueError(f"{shown} is more than any disk holds; {SIZE_HELP}")
    return int(size)


def parse_duration(value: object) -> timedelta | None:
    """A length of time, or None for "off"."""
    if isinstance(value, str) and value.strip().lower() == "off":
        return None
    return parse_span(value)


def parse_span(value: object) -> timedelta:
    """A length of time; "off" is none. Units go from large to small, each at most once."""
    if not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError(_without_unit(str(value)))
        raise ValueError(f"{_shown(value)} is not a time; {SPAN_HELP}")
    text = value.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise ValueError(_without_unit(text))
    if re.match(r"-\s*[0-9]", text):
        raise ValueError(f'"{text}" is negative; {SPAN_HELP}')
    total, last, at = Decimal(0), 10**12, 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError(f'"{text}" is not a time; {SPAN_HELP}')
        factor = _MS.get(step[2].lower())
        if factor is None:
            raise ValueError(f'"{step[2]}" in "{text}" is not a unit of time; use ms, s, m, h, d or w')
        if factor >= last:
            raise ValueError(f'"{text}" has its units out of order; {SPAN_HELP}')
        total, last, at = total + Decimal(step[1]) * factor, factor, step.end()
    if not text:
        raise ValueError(f'"" is not a time; {SPAN_HELP}')
    if total > MAX_SPAN.days * 86_400_000:
        raise ValueError(f'"{text}" is longer than a hundred years; {SPAN_HELP}')
    return timedelta(milliseconds=int(total))


def _without_unit(number: str) -> str:
    return f'{number} has no unit; write "{number}s", "{number}m", "{number}h" or "{number}d"'


def parse_when(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The moment a person means, in UTC. Dates and times without a zone are in `zone` (None: this machine's).

    A length of time is that long ago; a date is its midnight; a time of day is that of today.
    """
    word = text.strip()
    local = now.astimezone(zone)
    match word.lower():
        case "now":
            return now.astimezone(UTC)
        case "today":
            return _at_midnight(local, 0, zone)
        case "yesterday":
            return _at_midnight(local, -1, zone)
        case "tomorrow":
            return _at_midnight(local, 1, zone)
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", word):
        word = f"{local:%Y-%m-%d}T{word.zfill(len(word.partition(':')[2]) + 3)}"
    if re.match(r"[0-9]{4}-?[0-9W]{2}", word):
        return _parse_iso(word, text, zone)
    span = re.sub(r"\s+ago$|^-", "", word, flags=re.IGNORECASE)
    try:
        return (now - parse_span(span)).astimezone(UTC)
    except ValueError as error:
        reason = str(error) if re.match(r"[0-9]", span) else f'"{text}" is not a time; '
        raise ValueError(reason.partition("; ")[0] + f"; {WHEN_HELP}") from None


def _at_midnight(local: datetime, days: int, zone: tzinfo | None) -> datetime:
    # By the calendar, then placed in the zone: a day is not always 24 hours.
    day = local.replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)
    return _placed(day, zone)


def _placed(naive: datetime, zone: tzinfo | None) -> datetime:
    return (naive.replace(tzinfo=zone) if zone else naive.astimezone()).astimezone(UTC)


def _parse_iso(word: str, text: str, zone: tzinfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(word)
        return moment.astimezone(UTC) if moment.tzinfo else _placed(moment, zone)
    except (ValueError, OverflowError):
        raise ValueError(f'"{text}" is not a date that exists; {WHEN_HELP}') from None


def _shown(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else f"{value}"


def write_size(size: int) -> str:
    """Exact and short: parse_size() gives the same bytes back."""
    power = 0
    while power + 1 < len(_BINARY) and size and size % 1024 == 0:
        size, power = size // 1024, power + 1
    return f"{size}{_BINARY[power]}"


def write_duration(span: timedelta | None) -> str:
    """Exact to the millisecond and short: parse_duration() gives the same span back."""
    if span is None:
        return "off"
    rest, parts = round(span / timedelta(milliseconds=1)), []
    for unit, factor in _WRITTEN:
        count, rest = divmod(rest, factor)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_size(size: float) -> str:
    """For reading: "3.2 GiB", "512 B"."""
    amount, sign, power = abs(size), "-" if size < 0 else "", 0
    while power + 1 < len(_BINARY) and round(amount, 1 if power else 0) >= 1024:
        amount, power = amount / 1024, power + 1
    number = f"{amount:.1f}".removesuffix(".0") if power else f"{amount:.0f}"
    return f"{sign}{number} {_BINARY[power]}"


def format_duration(span: timedelta | float) -> str:
    """For reading: the two largest units ("2h 30m"); below ten seconds "3.2s", below one "350ms"."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    sign, seconds = "-" if seconds < 0 else "", abs(seconds)
    if seconds < 0.9995:
        return f"{sign}{seconds * 1000:.0f}ms" if seconds >= 0.0005 else "0s"
    if round(seconds, 1) < 10:
        return f"{sign}{seconds:.1f}".removesuffix(".0") + "s"
    rest = round(seconds) * 1000
    parts: list[str] = []
    for unit, factor in _WRITTEN[:-1]:
        count, rest = divmod(rest, factor)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return sign + " ".join(part for part in parts if part)


def format_ago(now: datetime, then: datetime) -> str:
    """One unit, for a column: "just now", "12s ago", "3h ago", "45d ago", "in 5m"."""
    seconds = (now - then).total_seconds()
    amount = int(abs(seconds))
    if amount < 1 or (seconds > 0 and amount < 5):
        return "just now"
    for unit, length, until in (
        ("s", 1, 60),
        ("m", 60, 3600),
        ("h", 3600, 86_400),
        ("d", 86_400, 100 * 86_400),
    ):
        if amount < until:
            shown = f"{amount // length}{unit}"
            break
    else:
        shown = f"{amount // (30 * 86_400)}mo" if amount < 700 * 86_400 else f"{amount // (365 * 86_400)}y"
    return f"{shown} ago" if seconds > 0 else f"in {shown}"
