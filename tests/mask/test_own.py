"""The user's patterns: one that would hold up the daemon is seen beforehand, all others are let be."""

from __future__ import annotations

import time

import pytest

from sessiond.mask import Masker, too_slow
from sessiond.mask.own import PIECE_CHARS, _pieces

BOMBS = [
    r"(a+)+$", r"(a*)*b", r"(a|a)+$", r"(a|aa)+$", r"(?:a?){40}a{40}$", r"^(\w+\s?)*$x", r"(?:[a-z]-?|[0-9m]-?)*!$", r"(.*)*x",
    r"key=(([a-z])+.)+[A-Z]([a-z])+$", r"ACME-(?:[0-9]+[0-9]+)+X", r"(?:[a-z]{1,20}){1,20}!", r"\w+\w+\w+X",
    r"(?s)BEGIN(.|\s)*END", r"(?:ab|a|b)+c", r"^(([a-z])+\.)+[A-Z]([a-z]+)+$", r"(?=(a+)+$)x", r"(?i)(ACME)+-(x+x+)+y",
]  # fmt: skip

HARMLESS = [
    r"ACME-[0-9]{6}", r"(?i)project\s+heron", r"[A-Z]{3}-\d{4,}", r"(?:\d{4}[ -]?){3}\d{4}", r"(?:[a-z]+-)+[0-9]+",
    r"\b[\w.]+@acme\.example\b", r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}", r"customer \w+", r".*internal only.*", r"(?:a++)+b",
    r"(?s)BEGIN ACME.*?END ACME", r"acme_[a-f0-9]{32}", r"[A-Z0-9]{5}(?:-[A-Z0-9]{5}){4}", r"(\w)\1{5}", r"(?<=id=)\w+",
    r"(?P<q>['\"])acme(?P=q)", r"(a)?(?(1)b|c)", r"[^\W\d_]+X", r"(?:Müller|Meier)straße \d+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", BOMBS)
def test_a_pattern_that_blows_up_is_seen_and_the_trial_itself_is_short(pattern):
    start = time.monotonic()
    reason = too_slow(pattern)
    assert reason is not None
    assert "takes too long over" in reason
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("pattern", HARMLESS)
def test_a_pattern_that_does_not_is_let_be(pattern):
    assert too_slow(pattern) is None


def test_long_text_is_masked_in_pieces_that_end_at_a_blank():
    masker = Masker(["ACME-[0-9]{6}"])
    text = "word ACME-123456 " * (PIECE_CHARS // 4)
    assert masker.mask(text) == text.replace("ACME-123456", "[masked:custom]")


@pytest.mark.parametrize(
    "text", ["", "a" * 10_000, "word " * 5000, "line\n" * 5000, "a" * 4095 + " b", "a" * 4096 + " b"]
)
def test_no_piece_is_longer_than_the_limit_and_none_is_lost(text):
    pieces = list(_pieces(text))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= PIECE_CHARS
