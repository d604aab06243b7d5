"""Sizes and times: what people write is understood exactly, or refused with a sentence that helps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from sessiond import units

NOW = datetime(2025, 3, 30, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")  # its clocks went forward on 30 March 2025


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4GiB", 4 * 2**30),
        ("500MB", 500_000_000),
        ("1.5 GB", 1_500_000_000),
        ("1.5GiB", 3 * 2**29),
        ("64k", 65_536),
        ("2T", 2 * 2**40),
        ("10kB", 10_000),
        (" 7 b ", 7),
        ("0", 0),
        ("4096", 4096),
        (4096, 4096),
        (0, 0),
        ("0.1GB", 100_000_000),
    ],
)
def test_sizes_as_people_write_them(written, size):
    assert units.parse_size(written) == size


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", '"" is not a size'),
        ("lots", '"lots" is not a size'),
        ("4 gigs", '"gigs" in "4 gigs" is not a unit of size'),
        ("-4GiB", '"-4GiB" is negative'),
        (-1, "-1 is negative"),
        ("1e9", '"1e9" is not a size'),
        ("1,000MB", "is not a size"),
        ("4GiB!", "is not a size"),
        ("٤GiB", "is not a size"),
        ("99999999PiB", "more than any disk"),
        (True, "true is not a size"),
        (1.5, "1.5 is not a size"),
        (None, "None is not a size"),
    ],
)
def test_what_is_no_size_is_refused_by_name(written, complaint):
    with pytest.raises(ValueError, match=r".+") as caught:
        units.parse_size(written)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("written", "span"),
    [
        ("45d", timedelta(days=45)),
        ("2h30m", timedelta(hours=2, minutes=30)),
        ("2h 30m", timedelta(hours=2, minutes=30)),
        ("30s", timedelta(seconds=30)),
        ("0s", timedelta(0)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("2 weeks", timedelta(days=14)),
        ("1 Day", timedelta(days=1)),
        ("90min", timedelta(minutes=90)),
        ("off", None),
        ("OFF", None),
    ],
)
def test_durations_as_people_write_them(written, span):
    assert units.parse_duration(written) == span


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", '"" is not a time'),
        ("45", '45 has no unit; write "45s", "45m", "45h" or "45d"'),
        (45, "45 has no unit"),
        ("-5m", '"-5m" is negative'),
        ("5 fortnights", '"fortnights" in "5 fortnights" is not a unit of time'),
        ("30m2h", "units out of order"),
        ("1h1h", "units out of order"),
        ("h", '"h" is not a time'),
        ("2h30", '"2h30" is not a time'),
        ("999999w", "longer than a hundred years"),
        (True, "true is not a time"),
        ([], "[] is not a time"),
    ],
)
def test_what_is_no_duration_is_refused_by_name(written, complaint):
    with pytest.raises(ValueError, match=r".+") as caught:
        units.parse_duration(written)
    assert complaint in str(caught.value)


def test_a_span_cannot_be_off():
    with pytest.raises(ValueError, match='"off" is not a time'):
        units.parse_span("off")


@given(st.integers(0, units.MAX_SIZE))
def test_a_written_size_is_read_back_to_the_byte(size):
    assert units.parse_size(units.write_size(size)) == size


@given(st.integers(0, 36_500 * 86_400_000))
def test_a_written_duration_is_read_back_to_the_millisecond(milliseconds):
    span = timedelta(milliseconds=milliseconds)
    assert units.parse_duration(units.write_duration(span)) == span


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024 * 1024 - 1, "1 MiB"),
        (4 * 2**30, "4 GiB"),
        (12_345_678_901, "11.5 GiB"),
        (-1536, "-1.5 KiB"),
        (2**62, "4096 PiB"),
    ],
)
def test_sizes_for_reading(size, shown):
    assert units.format_size(size) == shown


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (0, "0s"),
        (0.35, "350ms"),
        (0.9999, "1s"),
        (3.24, "3.2s"),
        (9.96, "10s"),
        (59.7, "1m"),
        (90, "1m 30s"),
        (timedelta(hours=2, minutes=30, seconds=9), "2h 30m"),
        (timedelta(days=3, minutes=5), "3d"),
        (timedelta(days=45), "45d"),
        (-90, "-1m 30s"),
    ],
)
def test_durations_for_reading(span, shown):
    assert units.format_duration(span) == shown


@pytest.mark.parametrize(
    ("age", "shown"),
    [
        (timedelta(seconds=2), "just now"),
        (timedelta(seconds=12), "12s ago"),
        (timedelta(minutes=59, seconds=59), "59m ago"),
        (timedelta(hours=3), "3h ago"),
        (timedelta(days=45), "45d ago"),
        (timedelta(days=200), "6mo ago"),
        (timedelta(days=800), "2y ago"),
        (timedelta(minutes=-5), "in 5m"),
        (timedelta(seconds=-2), "in 2s"),
    ],
)
def test_how_long_ago(age, shown):
    assert units.format_ago(NOW, NOW - age) == shown


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2025-03-30T12:00:00"),
        ("2h", "2025-03-30T10:00:00"),
        ("2h ago", "2025-03-30T10:00:00"),
        ("-1d", "2025-03-29T12:00:00"),
        ("today", "2025-03-29T23:00:00"),
        ("yesterday", "2025-03-28T23:00:00"),
        ("tomorrow", "2025-03-30T22:00:00"),  # that day has 23 hours in Berlin
        ("2025-07-01", "2025-06-30T22:00:00"),
        ("2025-01-05T08:30", "2025-01-05T07:30:00"),
        ("2025-01-05 08:30:15", "2025-01-05T07:30:15"),
        ("2025-01-05T08:30Z", "2025-01-05T08:30:00"),
        ("2025-01-05T08:30+05:00", "2025-01-05T03:30:00"),
        ("9:05", "2025-03-30T07:05:00"),
        ("14:30:10", "2025-03-30T12:30:10"),
    ],
)
def test_moments_as_people_name_them(text, moment):
    assert units.parse_when(text, NOW, BERLIN) == datetime.fromisoformat(moment).replace(tzinfo=UTC)


def test_a_moment_without_a_zone_is_in_this_machines_zone():
    assert units.parse_when("2025-01-05", NOW) == datetime(2025, 1, 5).astimezone(UTC)
    assert units.parse_when("2025-01-05", NOW).tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", '"" is not a time; write "2h", "today"'),
        ("soon", '"soon" is not a time'),
        ("2025-02-30", '"2025-02-30" is not a date that exists'),
        ("0001-01-01T00:00+14:00", "is not a date that exists"),
        ("25:00", "is not a date that exists"),
        ("5", "5 has no unit"),
        ("5 apples", '"apples" in "5 apples" is not a unit of time'),
    ],
)
def test_what_is_no_moment_is_refused_by_name(text, complaint):
    with pytest.raises(ValueError, match=r".+") as caught:
        units.parse_when(text, NOW, BERLIN)
    assert complaint in str(caught.value)
    assert "today" in str(caught.value)
