"""The live screen of `run`: what is on it, and that it draws on a real terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from sessiond.cli.screen import live, screen_lines
from sessiond.cli.terminal import Terminal

from .test_daemon_verbs import STATUS, TROUBLE, status

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def lines(state: dict, **options) -> str:
    return "\n".join(screen_lines(Terminal(io.StringIO()), state, NOW, **options))


def test_it_shows_what_is_taken_in_and_what_to_ask():
    shown = lines(status())

    for words in ("claude", "412 files", "12 sessions today", "1 GiB of 4 GiB", "Nothing leaves this machine",
                  "sessiond sessions", "sessiond search", "sessiond status", "Ctrl-C stops"):  # fmt: skip
        assert words in shown


def test_it_shows_degradations_in_words():
    assert TROUBLE["detail"] in lines(status(state="degraded", degraded=[TROUBLE]))


def test_without_agents_it_says_where_it_looked_and_waits():
    agents = [{**agent, "found": False} for agent in STATUS["agents"]]
    shown = lines(status(agents=agents))

    assert "/h/.claude" in shown
    assert "Waiting" in shown
    assert "In another terminal" not in shown


def test_it_says_that_it_stops():
    assert "stopping…" in lines(status(), is_stopping=True)


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_it_draws_while_the_daemon_works_and_says_when_it_stops(monkeypatch):
    stream = Tty()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with live(status):
        pass

    assert "is ready" in stream.getvalue()
    assert "stopping…" in stream.getvalue()


def test_a_status_that_fails_does_not_take_the_screen_down(monkeypatch):
    stream = Tty()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")

    def broken():
        raise OSError("the store went away")

    with live(broken):
        pass

    assert "the store went away" in stream.getvalue()
