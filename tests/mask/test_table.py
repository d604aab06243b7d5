"""Secrets are taken out, and everything around them and everything that only looks like one stays."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies as st

from mask.near_misses_table import NEAR_MISSES
from mask.secrets_table import SECRETS, plain
from sessiond.mask import Masker

mask = Masker().mask

secrets = pytest.mark.parametrize(("text", "label"), [pytest.param(*row, id=name) for name, *row in SECRETS])
near_misses = pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NEAR_MISSES])


@secrets
def test_a_secret_is_taken_out_and_all_around_it_stays(text, label):
    space, label = (" ", label[1:]) if label.startswith(" ") else ("", label)
    assert mask(plain(text)) == re.sub("«[^»]*»", f"{space}[masked:{label}]", text)


@secrets
def test_a_secret_is_found_wherever_it_stands(text, label):
    """Around it other text, which must not hide it from the cheap tests in front of the patterns."""
    around = mask(f"so I ran it:\n{plain(text)}\nand then 3 tests of 5 were green")
    assert f"[masked:{label.strip()}]" in around
    for secret in re.findall("«([^»]*)»", text):
        assert secret not in around


@near_misses
def test_what_only_looks_like_one_stays(text):
    assert mask(text) == text


@near_misses
def test_what_only_looks_like_one_stays_in_the_middle_of_a_text(text):
    around = f"so I ran it:\n{text}\nand then 3 tests of 5 were green"
    assert mask(around) == around


def test_there_is_a_table_worth_the_name():
    assert len({name for name, *_ in SECRETS}) == len(SECRETS) >= 220
    assert len({name for name, _ in NEAR_MISSES}) == len(NEAR_MISSES) >= 120


@pytest.mark.parametrize("text", [plain(row[1]) for row in SECRETS])
def test_masking_twice_changes_nothing(text):
    assert mask(mask(text)) == mask(text)


PIECES = st.sampled_from(
    [plain(text) for _, text, _ in SECRETS]
    + [text for _, text in NEAR_MISSES]
    + [
        "password",
        "password is ",
        "my ",
        "token",
        "secret",
        "Cookie: ",
        "mysql ",
        "curl -u ",
        " -p",
        "machine a login b ",
    ]
    + [
        "=",
        ": ",
        '"',
        "'",
        "\\",
        "\\n",
        " ",
        "\n",
        "--",
        "@",
        "://",
        "&",
        "[masked:x]",
        "Bearer ",
        "<password>",
        "</",
        "|",
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=8))
def test_masking_twice_changes_nothing_in_any_mixture(pieces):
    once = mask("".join(pieces))
    assert mask(once) == once


@given(st.text())
def test_any_text_is_taken(text):
    assert isinstance(mask(text), str)
