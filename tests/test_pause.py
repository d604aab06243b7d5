"""`pause` and `unpause`: nothing is read, cursors stay; across restarts, and until its time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from lab import append, settle, until, user_line
from sessiond.errors import SessiondError
from sessiond.intake.pipeline import FOREVER
from sessiond.model import utc


@pytest.fixture
def file(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    return path


@pytest.fixture
def running(lab, file):
    pipeline = lab.pipeline()
    pipeline.start()
    try:
        settle(pipeline)
        yield pipeline
    finally:
        pipeline.stop()


def stored(lab) -> int:
    return len(lab.events("claude:s1"))


def turns(pipeline, count: int = 3) -> None:
    """Let the loop look at its clock so many times: what it was going to read it has read then."""
    for _ in range(count):
        at = pipeline.loop._next_tick
        until(lambda at=at: pipeline.loop._next_tick > at)


def test_nothing_is_read_while_paused_and_all_of_it_after(lab, file, running):
    running.pause_by_hand({"until": FOREVER})
    append(file, user_line(1))
    running.loop._hint(str(file))
    turns(running)
    assert stored(lab) == 1
    assert running.loop.paused_by == "user"

    assert running.unpause({}) == {"was_paused": True, "paused_by": None}
    settle(running)

    assert stored(lab) == 2


def test_a_path_that_was_just_taken_is_put_back(lab, file, running, monkeypatch):
    """The pause comes while the loop waits for a path."""
    real = running.loop.inbox.take

    def take(timeout=None):
        taken = real(timeout)
        if taken is not None:
            running.loop.pause("user")
        return taken

    monkeypatch.setattr(running.loop.inbox, "take", take)
    turns(running)  # the call under way is still the real one
    append(file, user_line(1))
    running.loop._hint(str(file))
    until(lambda: running.loop.paused_by == "user")
    turns(running)
    assert stored(lab) == 1

    monkeypatch.setattr(running.loop.inbox, "take", real)
    running.loop.resume("user")
    until(lambda: stored(lab) == 2)


def test_it_survives_a_restart(lab, file):
    assert json.loads(lab.cli("pause", "--json").stdout)["paused_until"] == FOREVER

    pipeline = lab.pipeline()
    pipeline.start()
    try:
        turns(pipeline)
        assert pipeline.loop.paused_by == "user"
        assert pipeline.paused_until == FOREVER
        assert lab.sessions() == {}
    finally:
        pipeline.stop()


def test_it_ends_by_itself_at_its_time(lab, file, running):
    soon = utc(datetime.now(UTC) + timedelta(seconds=1.5))
    running.pause_by_hand({"until": soon})
    append(file, user_line(1))
    assert running.paused_until == soon
    assert running.loop.paused_by == "user"

    until(lambda: running.loop.paused_by is None)
    settle(running)

    assert datetime.now(UTC) >= datetime.fromisoformat(soon)
    assert stored(lab) == 2
    assert running.paused_until is None


def test_one_whose_time_went_by_while_nothing_ran_is_over(lab, file):
    pipeline = lab.pipeline()
    pipeline.start_store()
    pipeline.pause_by_hand({"until": utc(datetime.now(UTC) - timedelta(seconds=1))})
    assert pipeline.loop.paused_by == "user"
    pipeline.stop()

    again = lab.pipeline()
    again.stop()

    assert again.loop.paused_by is None


def test_of_several_reasons_each_ends_for_itself(running):
    running.pause("keep_free")
    running.pause("hard_cap")
    assert running.loop.paused_by == "hard_cap"
    running.pause_by_hand({})
    assert running.loop.paused_by == "user"

    assert running.unpause({})["paused_by"] == "hard_cap"
    running.resume("hard_cap")
    assert running.loop.paused_by == "keep_free"
    running.resume("keep_free")
    running.resume("keep_free")
    assert running.loop.paused_by is None
    settle(running)


def test_a_reload_does_not_end_it(lab, file, running):
    running.pause_by_hand({})
    running.pause("hard_cap")

    running.reconfigure(running._config)
    append(file, user_line(1))
    turns(running)

    assert set(running.loop.pauses) == {"user", "hard_cap"}
    assert stored(lab) == 1


def test_ingest_says_so_and_does_not_wait(lab, file, running):
    asked = running.ask()
    running.pause_by_hand({})

    with pytest.raises(SessiondError, match="paused by you"):
        running.ask()
    running.search.position = -1  # as if it had not been done yet
    with pytest.raises(SessiondError, match="paused by you"):
        running.asked(asked)


def test_the_verbs_without_a_daemon(lab, file):
    paused = lab.cli("pause", "--for", "2h")
    refused = lab.cli("ingest")
    ended = lab.cli("unpause")
    taken = lab.cli("ingest")

    assert paused.stdout.startswith("paused until 20")
    assert refused.returncode == 1
    assert "paused by you until" in refused.stderr
    assert "sessiond unpause" in refused.stderr
    assert ended.stdout == "reading goes on\n"
    assert taken.returncode == 0
    assert lab.cli("unpause").stdout == "it was not paused by you\n"


def test_the_verbs_through_the_daemon(lab, file):
    with lab.daemon():
        lab.ingest_through_daemon()
        assert lab.cli("pause").returncode == 0
        assert lab.status()["paused_by"] == "user"
        assert lab.cli("ingest").returncode == 1
        append(file, user_line(1))
        assert lab.cli("unpause").returncode == 0
        lab.ingest_through_daemon()
        assert lab.status()["paused_by"] is None
    assert stored(lab) == 2


@pytest.mark.parametrize("span", ["0s", "soon", "-2h", "7"])
def test_a_bad_length_is_refused(lab, span):
    done = lab.cli("pause", f"--for={span}")

    assert done.returncode == 2
    assert "--for" in done.stderr
