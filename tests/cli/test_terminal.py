"""What may reach a screen: escapes made visible, widths kept, colour only where wanted."""

from __future__ import annotations

import io
import json
import re

from hypothesis import given, strategies as st

from sessiond.cli import terminal
from sessiond.cli.table import Column, print_table
from sessiond.cli.terminal import Terminal, cut, plain, plain_json, width_of


def test_sequences_are_shown_and_not_obeyed():
    assert plain("\x1b]0;owned\x07 \x9b2J \u202egnp.exe\ttab\n") == "\\x1b]0;owned\\x07 \\x9b2J \\u202egnp.exe\\ttab\\n"


def test_half_a_character_and_invisible_tags_are_shown():
    assert plain("a\udcffb\U000e0041") == "a\\udcffb\\U000e0041"


@given(st.text())
def test_nothing_that_a_terminal_acts_upon_gets_through(text):
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", plain(text))


@given(st.text())
def test_json_keeps_its_value_and_is_harmless(text):
    shown = plain_json(json.dumps(text, ensure_ascii=False))

    assert json.loads(shown) == text
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", shown)


def test_wide_letters_take_two_columns_and_accents_none():
    assert width_of("日本") == 4
    assert width_of("e\u0301") == 1
    assert cut("日本語です", 6) == "日本…"
    assert cut("short", 5) == "short"


@given(st.text(alphabet="ab日本語e\u0301 "), st.integers(min_value=1, max_value=20))
def test_a_cut_text_fits(text, width):
    assert width_of(cut(text, width)) <= width


class Screen(Terminal):
    def __init__(self, width: int | None) -> None:
        super().__init__(io.StringIO())
        self.width = width
        self.is_screen = width is not None

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


COLUMNS = (Column("WHEN"), Column("REPO", shrinks_to=4, leaves=1), Column("TITLE", shrinks_to=6), Column("ID"))
ROW = ("3m ago", "a-long-repository", "a title that is rather long", "abcd1234")


def test_a_table_fits_its_screen_and_keeps_the_id():
    for width in range(28, 90):
        to = Screen(width)
        print_table(to, COLUMNS, [ROW])
        assert all(width_of(line) <= width for line in to.lines)
        assert to.lines[1].endswith("abcd1234")


def test_a_narrow_screen_leaves_the_least_needed_column_out():
    to = Screen(28)
    print_table(to, COLUMNS, [ROW])

    assert "REPO" not in to.lines[0]
    assert "TITLE" in to.lines[0]


def test_without_a_screen_nothing_is_cut():
    to = Screen(None)
    print_table(to, COLUMNS, [ROW])

    assert re.split(r"  +", to.lines[1]) == list(ROW)


def test_columns_stay_in_line_without_a_screen_when_one_is_empty():
    to = Screen(None)
    print_table(to, COLUMNS, [("now", "", "x", "id1"), ("now", "", "longer", "id2")])

    assert to.lines[1].index("id1") == to.lines[2].index("id2") == to.lines[0].index("ID")


def test_a_column_without_a_word_is_left_out_on_a_screen():
    to = Screen(80)
    print_table(to, COLUMNS, [("now", "", "x", "id1")])

    assert "REPO" not in to.lines[0]


def test_no_colour_when_asked_or_not_a_terminal(monkeypatch):
    class Tty(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Terminal(Tty()).style("x", "bold") == "\x1b[1mx\x1b[0m"
    assert Terminal(io.StringIO()).style("x", "bold") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal(Tty()).style("x", "bold") == "x"


def test_paths_below_home_are_short(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")

    assert terminal.shown_path("/home/ada/kite") == "~/kite"
    assert terminal.shown_path("/home/adam/kite") == "/home/adam/kite"
    assert terminal.shown_path("/home/ada/\x1b") == "~/\\x1b"
