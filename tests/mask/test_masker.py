"""Names and values of JSON, the user's patterns among the built-in ones."""

from __future__ import annotations

import pytest

from mask.secrets_table import PEM, R
from sessiond.mask import Masker

mask_json = Masker().mask_json


def test_the_users_own_patterns_count_too():
    masker = Masker([r"ACME-[0-9]{6}", r"(?i)project\s+heron"])
    assert masker.mask("see ACME-123456 of Project Heron") == "see [masked:custom] of [masked:custom]"
    assert masker.mask("see ACME-12") == "see ACME-12"


def test_a_pattern_that_matches_the_mask_itself_does_no_harm():
    masker = Masker(["masked", "[a-z]+"])
    once = masker.mask("password=hunter2 AND more")
    assert masker.mask(once) == once
    assert once.count("[masked:custom]") >= 1


def test_what_a_custom_pattern_lays_bare_is_masked_as_well():
    assert Masker(["foo"]).mask(f"fooghp_{R[:36]}") == "[masked:custom][masked:github-token]"


def test_what_a_built_in_pattern_lays_bare_to_the_users_is_masked_as_well():
    masker = Masker(["^foo"])
    once = masker.mask(f"{PEM}foo")
    assert once == "[masked:private-key][masked:custom]"
    assert masker.mask(once) == once


def test_tokens_glued_together_go_at_once():
    assert Masker().mask(f"pat{R[:14]}.{'0a' * 32}ghp_{R[:36]}") == "[masked:airtable-token]"


def test_json_is_masked_in_values_and_names():
    value = {
        "text": f"ghp_{R[:36]}",
        "list": ["fine", f"sk-ant-{R[:30]}", 5, None, True, 1.5],
        f"npm_{R[:36]}": "name",
        "deep": {"password": "hunter2", "user": "joe"},
        "tokens": 12,
        "token": 12,
    }
    assert mask_json(value) == {
        "text": "[masked:github-token]",
        "list": ["fine", "[masked:anthropic-key]", 5, None, True, 1.5],
        "[masked:npm-token]": "name",
        "deep": {"password": "[masked:password]", "user": "joe"},
        "tokens": 12,
        "token": 12,
    }


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("password", "hunter", "[masked:password]"),
        ("DB_PASSWORD", ["hunter"], ["[masked:password]"]),
        ("apiKey", "abc", "[masked:api-key]"),
        ("Authorization", "abc def", "[masked:authorization]"),
        ("access_token", "abc", "[masked:token]"),
        ("Cookie", "sid=abcdef123", "[masked:cookie]"),
        ("MAPBOX_KEY", R[:40], "[masked:api-key]"),
        ("SORT_KEY", "name", "name"),
        ("cookie", "chocolate", "chocolate"),
        ("clean_pass", ["all", "green"], ["all", "green"]),
        ("token_type", "bearer", "bearer"),
        ("password", "", ""),
        ("password", None, None),
        ("password", "$PASS", "$PASS"),
        ("summary", "hunter", "hunter"),
    ],
)
def test_what_stands_under_a_secrets_name_is_masked_whatever_it_is(name, value, masked):
    assert mask_json({name: value}) == {name: masked}


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ({"name": "DB_PASSWORD", "value": "hunter"}, {"name": "DB_PASSWORD", "value": "[masked:password]"}),
        ({"value": "hunter", "key": "DB_PASSWORD"}, {"value": "[masked:password]", "key": "DB_PASSWORD"}),
        (["tool", "--db-password", "hunter", "x"], ["tool", "--db-password", "[masked:password]", "x"]),
        ({"name": "COLOR", "value": "hunter"}, {"name": "COLOR", "value": "hunter"}),
        (["the", "password", "hunter"], ["the", "password", "hunter"]),
        ({"name": ["odd"], "value": "hunter"}, {"name": ["odd"], "value": "hunter"}),
    ],
)
def test_a_name_beside_its_value_counts_as_well(value, masked):
    assert mask_json(value) == masked


def test_names_that_are_secrets_of_one_kind_stay_apart():
    value = {f"ghp_{R[:36]}": 1, f"ghp_{R[1:37]}": 2}
    assert mask_json(value) == {"[masked:github-token]": 1, "[masked:github-token]#2": 2}


def test_json_keeps_its_order_and_the_original_is_untouched():
    value = {"b": 1, "a": {"password": "hunter2"}, "c": [1, (2, 3)]}
    masked = mask_json(value)
    assert list(masked) == ["b", "a", "c"]
    assert masked["c"] == [1, [2, 3]]
    assert value["a"]["password"] == "hunter2"


def test_json_may_be_nested_deeper_than_the_stack():
    value: list = []
    for _ in range(5000):
        value = [value]
    assert mask_json(value) is not None
