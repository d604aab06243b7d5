"""Letting go: the caps hold on the real disk, nothing leaves undistilled, and nothing that left comes back."""

from __future__ import annotations

import base64
import hashlib
import random
from datetime import UTC, datetime, timedelta

import pytest

from lab import Lab, append, user_line
from sessiond.store.connect import rows, value
from tests.passes.test_promises import let_all_go

MIB = 2**20


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def words(seed: int, size: int) -> str:
    """Text that does not compress, so that a session's size on disk is known."""
    return base64.b85encode(random.Random(seed).randbytes(size * 4 // 5)).decode()


def answer_line(number: int, text: str = "done", *, session: str = "s1", ts: str | None = None) -> bytes:
    message = {
        "id": f"m{session}-{number}",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    return user_line(
        number, session=session, type="assistant", message=message, **({} if ts is None else {"timestamp": ts})
    )


def write_session(lab: Lab, name: str, size: int, age: timedelta) -> None:
    """A session of about so many bytes, that ended so long ago."""
    at = datetime.now(UTC) - age
    path = lab.claude_file(name)
    lines = []
    for number in range(0, max(2, size // 8192 * 2), 2):
        ts = (at + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        lines.append(user_line(number, f"please {name} {number}", session=name, timestamp=ts))
        lines.append(answer_line(number + 1, words(hash((name, number)) % 2**32, 8192), session=name, ts=ts))
    path.write_bytes(b"".join(lines))


def fingerprint_of(lab: Lab) -> dict[str, str]:
    """Every file of the agents: its bytes and its times."""
    return {
        str(path): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns} {path.stat().st_ino}"
        for path in sorted(lab.claude.rglob("*.jsonl"))
    }


CAPS = """
[retention]
soft_cap = "12MiB"
hard_cap = "200MiB"
min_age = "1h"
keep_free = "1MiB"
"""


@pytest.mark.fault(54)
def test_store_far_over_its_cap_ends_below_low_water_by_exactly_the_plan(lab):
    lab.write_config(CAPS)
    for number in range(30):
        write_session(lab, f"s{number:02d}", MIB, timedelta(days=30 - number))
    before = fingerprint_of(lab)
    lab.ingest()
    lab.analyze()
    assert lab.disk_bytes() > 24 * MIB
    planned = [each["session_uid"] for each in lab.evict(dry_run=True)["plan"]]

    report = lab.evict()

    assert report["evicted"] == planned
    assert lab.disk_bytes() <= 12 * MIB * 80 // 100
    gone = {uid for uid, session in lab.sessions().items() if session.evicted_at}
    assert gone == set(planned)
    assert planned == [f"claude:s{number:02d}" for number in range(len(planned))], "oldest first"
    assert all(lab.digest(f"claude:s{number:02d}")["turns"] for number in range(30))
    assert fingerprint_of(lab) == before
    newest = lab.claude_file("s29")
    assert lab.archived(newest) == newest.read_bytes()


@pytest.mark.fault(77)
def test_nothing_that_left_comes_back_and_a_session_goes_on_after_it_left(lab):
    lab.write_config('[retention]\nsoft_cap = "2MiB"\nmin_age = "0s"\nkeep_free = "1MiB"\n')
    write_session(lab, "s1", 4 * MIB, timedelta(days=3))
    write_session(lab, "whole", 4 * MIB, timedelta(days=3))
    lab.ingest()
    lab.analyze()
    lab.evict()
    assert lab.sessions()["claude:s1"].state == "evicted"
    digest = lab.digest("claude:s1")

    lab.ingest()
    assert lab.events("claude:s1") == []
    assert lab.archived(lab.claude_file("s1")) == b""

    append(lab.claude_file("s1"), user_line(9001, "one more thing", session="s1"))
    lab.ingest()
    session = lab.sessions()["claude:s1"]
    assert session.state == "ingested"
    assert [event.summary for event in lab.events("claude:s1")] == ["one more thing"]
    lab.analyze()
    extended = lab.digest("claude:s1")
    assert extended["turns"] == digest["turns"] + 1
    assert extended["first_prompt"] == digest["first_prompt"]
    assert extended["last_prompt"] == "one more thing"
    assert extended["partial"] is None
    assert lab.archived(lab.claude_file("s1")).endswith(b"\n")


def test_fork_that_appears_after_its_parent_left_adds_neither_events_nor_cost(lab):
    lab.write_config('[retention]\nsoft_cap = "1MiB"\nmin_age = "0s"\nkeep_free = "1MiB"\n')
    write_session(lab, "s1", 2 * MIB, timedelta(days=3))
    lab.ingest()
    lab.analyze()
    lab.evict()
    assert lab.sessions()["claude:s1"].evicted_at
    spent = lab.usage_rows()

    copied = lab.claude_file("s1").read_bytes().replace(b'"sessionId": "s1"', b'"sessionId": "s2"')
    lab.claude_file("s2").write_bytes(copied + user_line(9001, "on a branch", session="s2"))
    lab.ingest()

    assert [event.summary for event in lab.events("claude:s2")] == ["on a branch"]
    assert lab.events("claude:s1") == []
    assert lab.usage_rows() == spent


def test_pinned_young_and_undistilled_sessions_stay_and_are_named(lab):
    lab.write_config('[retention]\nsoft_cap = "2MiB"\nhard_cap = "900MiB"\nmin_age = "24h"\nkeep_free = "1MiB"\n')
    write_session(lab, "pinned", 2 * MIB, timedelta(days=9))
    write_session(lab, "young", 2 * MIB, timedelta(hours=2))
    write_session(lab, "old", 2 * MIB, timedelta(days=8))
    lab.ingest()
    lab.analyze()
    write_session(lab, "undistilled", 2 * MIB, timedelta(days=30))
    lab.ingest()
    with lab.upkeep() as upkeep:
        upkeep._pipeline.writer.call(
            lambda db: db.execute("UPDATE _session SET pinned = 1 WHERE uid = 'claude:pinned'")
        )
        report = upkeep.do("evict", {})

    assert report["evicted"] == ["claude:old"]
    assert {"pinned", "young", "not distilled"} <= {each["what"] for each in report["unreachable"]["held_by"]}
    assert report["unreachable"]["bytes"] > 3 * MIB
    assert "over_budget" in {each["name"] for each in lab.troubles.listing()}


def test_over_hard_cap_sessions_go_before_min_age_and_then_intake_pauses(lab):
    lab.write_config('[retention]\nsoft_cap = "2MiB"\nhard_cap = "3MiB"\nmin_age = "24h"\nkeep_free = "1MiB"\n')
    write_session(lab, "a", 2 * MIB, timedelta(hours=3))
    write_session(lab, "b", 2 * MIB, timedelta(hours=2))
    lab.ingest()
    report = lab.evict()
    assert report["evicted"][0] == "claude:a"
    assert lab.digest("claude:a")["turns"]
    assert report["used_after"] <= 3 * MIB


def test_on_overflow_evict_loses_the_oldest_and_says_so_until_acknowledged(lab, monkeypatch):
    lab.write_config(
        '[retention]\nsoft_cap = "2MiB"\nhard_cap = "3MiB"\nmin_age = "24h"\nkeep_free = "1MiB"\non_overflow = "evict"\n'
    )
    write_session(lab, "a", 2 * MIB, timedelta(days=3))
    write_session(lab, "b", 2 * MIB, timedelta(days=2))
    lab.ingest()
    with lab.upkeep() as upkeep:
        monkeypatch.setattr(upkeep, "analyze", lambda **_: None)  # it cannot be distilled, for whatever reason
        report = upkeep.do("evict", {})
        assert report["lost"][0] == "claude:a"
        assert "data_loss" in {each["name"] for each in lab.troubles.listing()}
        assert upkeep.do("acknowledge", {}) == {"acknowledged": len(report["lost"])}
        assert "data_loss" not in {each["name"] for each in lab.troubles.listing()}
    lab.analyze()
    assert lab.digest("claude:a")["partial"]


def test_kill_between_mark_and_delete_is_finished_by_the_next_pass(lab):
    lab.write_config('[retention]\nsoft_cap = "1MiB"\nmin_age = "0s"\nkeep_free = "1MiB"\n')
    write_session(lab, "s1", 2 * MIB, timedelta(days=3))
    lab.ingest()
    lab.analyze()
    from sessiond.store import evict

    with lab.upkeep() as upkeep, pytest.MonkeyPatch.context() as patch:
        patch.setattr(evict, "_delete_events", lambda *_: 1 / 0)  # dies after the frames
        with pytest.raises(ZeroDivisionError):
            upkeep.do("evict", {})
    append(lab.claude_file("s1"), user_line(9001, "meanwhile", session="s1"))
    lab.ingest()

    lab.evict()

    with lab.store() as db:
        assert rows(db, "SELECT * FROM _leaving") == []
        assert rows(db, "SELECT summary FROM _event") == [("meanwhile",)]
        assert value(db, "SELECT count(*) FROM _frame") == 1


def test_superseded_content_goes_first_and_a_record_seen_again_is_told_again(lab):
    lab.write_config('[retention]\nsoft_cap = "4MiB"\nhard_cap = "900MiB"\nmin_age = "0s"\nkeep_free = "1MiB"\n')
    write_session(lab, "other", MIB, timedelta(days=30))
    write_session(lab, "s1", 4 * MIB, timedelta(days=3))
    path = lab.claude_file("s1")
    old = path.read_bytes()
    lab.ingest()
    path.write_bytes(user_line(5000, "begun anew", session="s1"))
    lab.ingest()
    lab.analyze()
    assert lab.digest("claude:s1")["turns"] == 1

    report = lab.evict()

    assert report["evicted"][0] == "claude:s1"
    assert not lab.sessions()["claude:s1"].evicted_at
    assert not lab.sessions()["claude:other"].evicted_at, "the old content was enough"
    append(path, old.splitlines(keepends=True)[0])
    lab.ingest()
    lab.analyze()
    assert lab.digest("claude:s1")["turns"] == 2


def test_line_without_a_name_that_comes_again_after_eviction_is_a_new_event(lab):
    """Such a record is known by its bytes and how often they came before: that must stay known."""
    line = user_line(0, "again", uuid=None)
    append(lab.claude_file(), line * 2)
    lab.ingest()
    assert len(lab.events("claude:s1")) == 2
    lab.analyze()
    let_all_go(lab)
    append(lab.claude_file(), line)
    lab.ingest()
    lab.analyze()
    assert [event.summary for event in lab.events("claude:s1")] == ["again"]
    assert lab.digest("claude:s1")["turns"] == 3
