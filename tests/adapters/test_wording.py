"""One line for people, a bounded text for the index, no data in either."""

from __future__ import annotations

import time

import pytest

from sessiond.adapters.wording import clip, first_line, media_note, one_line, searchable, size_note, task_ref_in


def test_one_line_is_one_line_without_colours():
    assert one_line("a\n\tb \x1b[1mc\x1b[22m\u2028d") == "a b c d"
    assert len(one_line("x" * 10_000)) == 300


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n ----\nfirst\nsecond", "first"),
        ("Exit code 2\n\nls: no such file", "Exit code 2: ls: no such file"),
        ("Exit code 2", "Exit code 2"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "KeyError: 'a'"),
        ("", ""),
        ("---", ""),
    ],
)
def test_the_first_line_is_the_first_that_says_something(text, line):
    assert first_line(text) == line


def test_clip_keeps_the_head_and_the_tail():
    assert clip("x" * 20_000) == "x" * 20_000
    assert clip("a" * 15_000 + "b" * 90_000 + "c" * 5_000) == "a" * 15_000 + "\n...\n" + "c" * 5_000


def test_searchable_takes_the_words_in_order_and_leaves_the_data():
    value = {
        "a": "one",
        "list": ["two", {"b": "three"}, 4, None],
        "picture": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
        "signature": "c2ln",
        "encrypted_content": "ZW5j",
        "blob": "A" * 1_000,
        "z": "last",
    }
    assert searchable(value) == "one\ntwo\nthree\nlast"


def test_searchable_is_bounded_and_survives_any_depth():
    deep = "x"
    for _ in range(5_000):
        deep = [deep]
    assert searchable(deep) == "x"
    assert len(searchable(["a b " * 100] * 10_000)) <= 20_010


@pytest.mark.parametrize(
    ("block", "note"),
    [
        ({"type": "image", "source": {"media_type": "image/png", "data": "A" * 704_000}}, "image/png, 528 kB"),
        (
            {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
            "image, https://x.example/a.png",
        ),
        ({"type": "image", "source": {"url": "data:image/png;base64,QUJD"}}, "image"),
        ({"type": "document", "source": {"media_type": "application/pdf", "data": "QUJD"}}, "application/pdf, 3 B"),
        ({"type": 7}, "media"),
        ({}, "media"),
    ],
)
def test_media_is_known_by_type_and_size(block, note):
    assert media_note(block) == note


def test_sizes_are_written_as_people_say_them():
    assert [size_note(n) for n in (0, 999, 1_000, 528_400, 1_250_000)] == ["0 B", "999 B", "1 kB", "528 kB", "1.2 MB"]


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("see https://git.example/a/b/issues/12 please", "https://git.example/a/b/issues/12"),
        ("https://git.example/a/b/pull/7/files", "https://git.example/a/b/pull/7"),
        ("https://x.example/g/p/-/merge_requests/9", "https://x.example/g/p/-/merge_requests/9"),
        ("fix KITE-123 today", "KITE-123"),
        ("feature/KITE-9-wing", "KITE-9"),
        ("fix/issue-42", "#42"),
        ("PR #5 is red", "#5"),
        ("UTF-8, SHA-256 and ISO-8601", None),
        ("[Image #1] what is it", None),
        ("debug 12 things at https://x.example/docs", None),
        ("", None),
    ],
)
def test_a_task_is_found_where_one_is_named(text, ref):
    assert task_ref_in(text) == ref


@pytest.mark.parametrize("unit", ["https://", "https://a/", "a/", "A-", "A1-", "issue ", "\x1b[", "\x1b[0;"])
def test_hostile_text_costs_no_more_than_long_text(unit):
    text = unit * 200_000
    began = time.perf_counter()
    task_ref_in(text), one_line(text), first_line(text), clip(text), searchable([text])
    assert time.perf_counter() - began < 0.5
