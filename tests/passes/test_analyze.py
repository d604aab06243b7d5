"""The analyze pass on the real store: when a session is due, what is read again, and what its state is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lab import Lab, append, user_line
from sessiond.passes.analyze import Analyzer, Pace
from sessiond.store import digests
from sessiond.store.connect import rows, value
from tests.passes.test_promises import answer, call_lines, conversation, let_all_go

PACE = Pace(quiet_after=timedelta(seconds=30), max_delay=timedelta(minutes=5), outcome_after=timedelta(minutes=30))


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def run(lab: Lab, after: timedelta = timedelta(0), **how) -> dict:
    """One pass, so long from now."""
    with lab.upkeep() as upkeep:
        analyzer = Analyzer(lab.paths.store, upkeep._pipeline.writer, mask=str)
        return analyzer.run(PACE, datetime.now(UTC) + after, **how).to_dict()


def now_line(number: int, text: str = "hello", **fields) -> bytes:
    return user_line(number, text, timestamp=datetime.now(UTC).isoformat().replace("+00:00", "Z"), **fields)


def test_session_is_due_when_quiet_or_when_it_has_waited_long_enough(lab):
    append(lab.claude_file(), user_line(0))
    lab.ingest()
    assert run(lab)["sessions"] == 0, "it came in just now"
    assert run(lab, timedelta(seconds=31))["sessions"] == 1
    append(lab.claude_file(), user_line(1))
    lab.ingest()
    with lab.upkeep() as upkeep:  # goes on all the time
        query = "UPDATE _session SET stored_at = ?, stale_since = ?"
        busy = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(), datetime.now(UTC).isoformat()
        upkeep._pipeline.writer.call(lambda db: db.execute(query, busy))
    assert run(lab, timedelta(minutes=4))["sessions"] == 0
    assert run(lab, timedelta(minutes=6))["sessions"] == 1


def test_append_costs_the_append(lab):
    append(lab.claude_file(), b"".join(conversation(["ask", "work", "fail", "answer"] * 300)))
    lab.ingest()
    assert run(lab, everything=True)["events"] > 1500
    append(lab.claude_file(), user_line(9000, "one more"))
    lab.ingest()
    assert run(lab, everything=True)["events"] == 1


def test_watermarks_go_back_when_events_arrive(lab):
    append(lab.claude_file(), user_line(0))
    lab.ingest()
    assert lab.sessions()["claude:s1"].state == "ingested"
    lab.analyze()
    session = lab.sessions()["claude:s1"]
    assert (session.state, session.is_evictable) == ("analyzed", True)
    append(lab.claude_file(), user_line(1))
    lab.ingest()
    session = lab.sessions()["claude:s1"]
    assert (session.state, session.analyzed_at, session.is_evictable) == ("ingested", None, False)
    lab.analyze()
    let_all_go(lab)
    assert lab.sessions()["claude:s1"].state == "evicted"
    append(lab.claude_file(), user_line(2))
    lab.ingest()
    assert lab.sessions()["claude:s1"].state == "ingested"
    assert lab.sessions()["claude:s1"].evicted_at is None


def test_outcome_is_told_once_it_is_quiet_and_taken_back_when_it_goes_on(lab):
    append(lab.claude_file(), now_line(0) + now_line(1, type="assistant", message=_answer(1)))
    lab.ingest()
    run(lab, everything=True)
    assert lab.sessions()["claude:s1"].outcome == "unknown"
    assert run(lab, timedelta(minutes=10))["sessions"] == 0
    assert run(lab, timedelta(minutes=31))["sessions"] == 1, "visited again without new events"
    session = lab.sessions()["claude:s1"]
    assert (session.outcome, session.outcome_basis) == ("success", "terminal")
    append(lab.claude_file(), now_line(2, "and now?"))
    lab.ingest()
    assert lab.sessions()["claude:s1"].outcome == "unknown"


def _answer(number: int) -> dict:
    text = [{"type": "text", "text": "done"}]
    return {"id": f"a{number}", "role": "assistant", "model": "m", "content": text, "stop_reason": "end_turn"}


def test_clock_far_ahead_in_an_agents_file_counts_as_when_it_was_stored(lab):
    append(lab.claude_file(), user_line(0, timestamp="2091-01-01T00:00:00.000Z"))
    append(lab.claude_file("s2"), now_line(0, session="s2"))
    lab.ingest()
    run(lab, timedelta(minutes=31))
    assert lab.sessions()["claude:s1"].outcome == "abandoned"


def test_change_of_what_is_digested_refolds_and_a_change_above_it_does_not(lab):
    path = lab.claude_file()
    append(path, b"".join(conversation(["ask", "work", "answer"])))
    lab.ingest()
    run(lab, everything=True)
    append(path, user_line(50, "more"))
    lab.ingest()
    assert run(lab, everything=True)["refolded"] == 0
    path.write_bytes(user_line(60, "rewritten"))
    lab.ingest()
    report = run(lab, everything=True)
    assert report["refolded"] == 1
    assert lab.digest("claude:s1")["turns"] == 1
    assert lab.digest("claude:s1")["first_prompt"] == "rewritten"


def test_new_content_after_eviction_keeps_the_old_digest_and_says_partial(lab):
    path = lab.claude_file()
    append(path, b"".join(conversation(["ask", "work", "answer"])))
    lab.ingest()
    lab.analyze()
    let_all_go(lab)
    path.write_bytes(b"".join(conversation(["ask", "work", "answer"])[:2]) + user_line(60, "after a rewrite"))
    lab.ingest()
    lab.analyze()
    digest = lab.digest("claude:s1")
    assert digest["turns"] == 2, "only what is new is folded"
    assert digest["partial"]
    assert [event.summary for event in lab.events("claude:s1")] == ["after a rewrite"]


def test_change_above_what_left_is_refolded_onto_what_was_kept(lab):
    path = lab.claude_file()
    append(path, b"".join(conversation(["ask", "work", "answer"])))
    lab.ingest()
    lab.analyze()
    let_all_go(lab)
    append(path, user_line(60, "more") + answer(61))
    lab.ingest()
    lab.analyze()
    before = lab.digest("claude:s1")
    with lab.upkeep() as upkeep:  # as a late patch does it
        writer = upkeep._pipeline.writer
        query = "UPDATE _session SET refold = 1, alterations = alterations + 1, stale_since = '2026'"
        writer.call(lambda db: db.execute(query))
        writer.call(lambda db: db.execute("UPDATE _event SET summary = 'patched' WHERE summary = 'more'"))
        upkeep.do("analyze", {})
    after = lab.digest("claude:s1")
    assert after == {**before, "last_prompt": "patched"}


def test_digest_that_was_overtaken_is_not_saved(lab, monkeypatch):
    append(lab.claude_file(), user_line(0))
    lab.ingest()
    real = digests.save

    def late(db, distilled, now):
        db.execute("UPDATE _session SET alterations = alterations + 1")
        return real(db, distilled, now)

    monkeypatch.setattr(digests, "save", late)
    assert run(lab, everything=True)["overtaken"] == 1
    monkeypatch.undo()
    assert lab.digest("claude:s1") is None
    assert run(lab, everything=True)["sessions"] == 1


def test_events_that_came_while_it_was_folded_leave_it_ingested(lab, monkeypatch):
    append(lab.claude_file(), user_line(0))
    lab.ingest()
    real = digests.save

    def late(db, distilled, now):
        db.execute("UPDATE _session SET next_seq = next_seq + 1")  # as a commit in between does
        return real(db, distilled, now)

    monkeypatch.setattr(digests, "save", late)
    assert run(lab, everything=True)["sessions"] == 1
    session = lab.sessions()["claude:s1"]
    assert (session.state, session.analyzed_at) == ("ingested", None)
    assert lab.digest("claude:s1")["turns"] == 1, "what was folded is kept"


def test_one_session_that_cannot_be_folded_does_not_keep_the_others(lab, monkeypatch):
    append(lab.claude_file("s1"), user_line(0))
    append(lab.claude_file("s2"), user_line(0, session="s2"))
    lab.ingest()
    real = digests.models

    def failing(db, row):
        if row == 1:
            raise RuntimeError("no")
        return real(db, row)

    monkeypatch.setattr(digests, "models", failing)
    report = run(lab, everything=True)
    assert (report["sessions"], len(report["failed"])) == (1, 1)


def test_errors_are_kept_when_the_session_has_left(lab):
    append(lab.claude_file(), user_line(0) + b"".join(call_lines(1, failed=True)))
    lab.ingest()
    lab.analyze()
    let_all_go(lab)
    with lab.store() as db:
        ((fingerprint, count),) = rows(db, "SELECT fingerprint, count FROM errors")
        assert count == 1
        assert len(fingerprint) == 16
        assert value(db, "SELECT count(*) FROM _event") == 0


def test_evicted_session_is_found_by_its_digest(lab):
    append(lab.claude_file(), user_line(0, "the zebrafish migration") + answer(1))
    lab.ingest()
    lab.analyze()
    let_all_go(lab)
    lab.ingest()
    told = lab.cli("search", "zebrafish", "--json")
    assert '"kind": "digest"' in told.stdout, told.stderr
    assert "zebrafish" in lab.cli("search", "zebrafish").stdout
    assert "zebrafish" in lab.cli("show", "s1").stdout
