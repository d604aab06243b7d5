"""P4 and P5 on the real store: whatever the order of ingest, analyze, evict, crash and restart, every event is in the
digest exactly once, and nothing left before it was.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lab import FIXTURES, Lab, append, user_line
from sessiond.store import evict
from sessiond.store.connect import rows, value

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
ANY_AGE = "~"


def let_all_go(lab: Lab) -> None:
    """Evict whatever may go, however young."""
    with lab.upkeep() as upkeep:
        with lab.store() as db:
            found = evict.oldest(db, active_before=ANY_AGE)
        for each in found:
            evict.let_go(upkeep._pipeline.writer, each.row, datetime.now(UTC), active_before=ANY_AGE)


def comparable(digest: dict) -> dict:
    return {name: each for name, each in digest.items() if name != "through_seq"}


@contextmanager
def throw_away():
    folder = Path(tempfile.mkdtemp(prefix="sd-"))
    try:
        yield Lab(folder)
    finally:
        shutil.rmtree(folder)


def call_lines(number: int, *, failed: bool, session: str = "s1") -> list[bytes]:
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"make target{number % 3}"}}
    said = f"Exit code 2\nmake: *** No rule to make target '{number}'. Stop." if failed else "ok"
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": said, "is_error": failed}
    message = {"id": f"m{number}", "role": "assistant", "model": "m", "content": [use], "stop_reason": "tool_use"}
    return [
        user_line(number, session=session, type="assistant", message=message),
        user_line(number + 1, session=session, message={"role": "user", "content": [result]}),
    ]


def answer(number: int, session: str = "s1") -> bytes:
    text = {"type": "text", "text": f"answer {number} " + "x" * (number * 37 % 400)}
    message = {
        "id": f"a{session}-{number}",
        "role": "assistant",
        "model": "m",
        "content": [text],
        "stop_reason": "end_turn",
    }
    return user_line(number, session=session, type="assistant", message=message)


def conversation(shape: list[str]) -> list[bytes]:
    lines: list[bytes] = []
    for word in shape:
        number = len(lines)
        if word == "ask":
            lines.append(user_line(number, f"please do {number}"))
        elif word == "answer":
            lines.append(answer(number))
        else:
            lines += call_lines(number, failed=word == "fail")
    return lines


SHAPES = st.lists(st.sampled_from(["ask", "answer", "work", "fail"]), min_size=1, max_size=25)
DOINGS = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(["ingest", "analyze", "evict", "evict", "analyze"])), max_size=10
)


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(SHAPES, DOINGS)
def test_any_cut_into_passes_with_eviction_between_gives_the_digest_of_doing_it_at_once(shape, doings):
    lines = conversation(shape)
    with throw_away() as whole, throw_away() as pieces:
        whole.claude_file().write_bytes(b"".join(lines))
        whole.ingest()
        whole.analyze()
        left = list(lines)
        for size, doing in doings:
            append(pieces.claude_file(), b"".join(left[:size]))
            left = left[size:]
            pieces.ingest()
            if doing != "ingest":
                pieces.analyze()
            if doing == "evict":
                let_all_go(pieces)
        append(pieces.claude_file(), b"".join(left))
        pieces.ingest()
        pieces.analyze()

        assert comparable(pieces.digest("claude:s1")) == comparable(whole.digest("claude:s1"))
        assert pieces.usage_rows() == whole.usage_rows()


def part_of(path: Path, part: slice) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    first, last = (None if share is None else int(len(lines) * share) for share in (part.start, part.stop))
    return b"".join(lines[first:last])


REAL = sorted((FIXTURES / "claude").rglob("*.jsonl"), key=str) if (FIXTURES / "claude").is_dir() else []


@pytest.mark.skipif(not REAL, reason="../shared/fixtures is not here")
@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
def test_real_sessions_cut_and_evicted_half_way_have_the_digest_of_doing_it_at_once(tmp_path, cut):
    once, pieces = Lab(tmp_path / "once"), Lab(tmp_path / "pieces")
    chosen = [path for path in REAL if 5_000 < path.stat().st_size < 3_000_000][:25]
    for part in (slice(None, cut), slice(cut, None)):
        for lab in (once, pieces):  # the same order of arrival: over several files of a session it is that of seq
            for path in chosen:
                append(lab.claude_file(path.stem, slug=f"-{path.parent.name}"), part_of(path, part))
            lab.ingest()
        pieces.analyze()
        let_all_go(pieces)
    once.analyze()

    compared = 0
    for uid in once.sessions():
        told, expected = pieces.digest(uid), once.digest(uid)
        if told is None or told["partial"]:  # a change of what had left: it says so, and may differ
            continue
        compared += 1
        assert comparable(told) == comparable(expected), uid
    assert compared >= len(once.sessions()) // 2


class Crash(RuntimeError):
    pass


class Schedules(RuleBasedStateMachine):
    """Any schedule of ingest, analyze, evict, crash and restart. The model is the lines that were written."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sd-"))
        self.lab = Lab(self.folder)
        self.written = {"s1": [], "s2": []}
        self.seen: set[tuple[int, int]] = set()

    def teardown(self):
        if hasattr(self, "folder"):
            self.lab.ingest()
            self.lab.analyze()
            for session, lines in self.written.items():
                digest = self.lab.digest(f"claude:{session}")
                if lines:
                    assert digest["partial"] is None
                    assert digest["kinds"].get("user_msg", 0) == Counter(lines)["ask"]
                    assert digest["kinds"].get("assistant_msg", 0) == Counter(lines)["answer"]
            shutil.rmtree(self.folder)

    @rule(session=st.sampled_from(["s1", "s2"]), what=st.sampled_from(["ask", "answer"]), times=st.integers(1, 3))
    def write(self, session, what, times):
        for _ in range(times):
            number = len(self.written[session])
            line = user_line(number, session=session) if what == "ask" else answer(number, session)
            append(self.lab.claude_file(session), line)
            self.written[session].append(what)

    @rule()
    def ingest(self):
        self.lab.ingest()

    @rule()
    def analyze(self):
        self.lab.analyze()

    @rule()
    def let_go(self):
        let_all_go(self.lab) if self.lab.paths.store.exists() else None

    @rule(where=st.sampled_from(["_delete_frames", "_delete_events", "_mark_rows"]))
    def crash_while_letting_go(self, where):
        if not self.lab.paths.store.exists():
            return

        def die(*_):
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evict, where, die)
            try:
                let_all_go(self.lab)
            except Crash:
                pass

    @rule()
    def finish_what_was_begun(self):
        if self.lab.paths.store.exists():
            self.lab.evict()

    @rule()
    def analyze_is_overtaken(self):
        """Events arrive between the reading and the saving of a digest."""
        if not self.lab.paths.store.exists():
            return
        from sessiond.store import digests

        real = digests.save
        with pytest.MonkeyPatch.context() as patch:

            def late(db, distilled, now):
                query = "UPDATE _session SET alterations = alterations + 1 WHERE id = ?"
                db.execute(query, (distilled.due.row,))
                return real(db, distilled, now)

            patch.setattr(digests, "save", late)
            self.lab.analyze()

    @invariant()
    def nothing_left_that_no_digest_covers(self):
        if not hasattr(self, "lab") or not self.lab.paths.store.exists():
            return
        with self.lab.store() as db:
            there = set(rows(db, "SELECT session_id, seq FROM _event"))
            covered = {
                row: json.loads(data)["through_seq"] for row, data in rows(db, "SELECT session_id, data FROM _digest")
            }
            self.seen |= there
            for row, seq in self.seen - there:
                assert covered.get(row, 0) >= seq
            # Bytes too: what is not in the archive any more lies before an offset that a digest covers.
            query = (
                "SELECT ifnull(min(r.start), f.read_offset), g.evicted_to, s.digested_seq, s.evicted_seq"
                " FROM _source AS f JOIN _generation AS g ON g.id = f.generation_id JOIN _session AS s ON"
                " s.id = f.session_id LEFT JOIN _frame AS r ON r.generation_id = g.id GROUP BY f.id"
            )
            for first, evicted_to, digested_seq, evicted_seq in rows(db, query):
                assert first <= evicted_to or first == 0
                assert digested_seq >= evicted_seq
            assert (
                value(
                    db,
                    "SELECT count(*) FROM _event AS e WHERE NOT EXISTS"
                    " (SELECT 1 FROM _session WHERE id = e.session_id)",
                )
                == 0
            )


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=15, stateful_step_count=12, deadline=None, suppress_health_check=SLOW)
