"""Small frames become few large ones: the same bytes, the same places, and no byte written again too often."""

from __future__ import annotations

import os
import random
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from lab import append, user_line
from sessiond.store import archive, gone, merge
from sessiond.store.connect import open_reader, rows
from sessiond.store.merge import merge_frames
from sessiond.store.writer import Writer

MIB = 2**20


@contextmanager
def writing(lab):
    writer = Writer(lab.paths.store)
    writer.start()
    db = open_reader(lab.paths.store)
    try:
        yield writer, db
    finally:
        db.close()
        writer.stop()


@pytest.fixture
def store(lab):
    """A session with one file, whose frames a test lays out as it likes."""
    lab.claude_file().write_bytes(user_line(0))
    lab.ingest()
    with writing(lab) as (writer, db):
        writer.call(lambda to: to.execute("DELETE FROM _frame").fetchall())
        yield writer, db


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def lay(writer: Writer, sizes: list[int], *, start: int = 0, codec: str = archive.ZSTD, generation: int = 1) -> int:
    """Frames of these sizes, one after the other, and the cursor behind them; returns where that is."""

    def run(db) -> int:
        at = start
        for size in sizes:
            data = archive.compress(noise(size, at)) if codec == archive.ZSTD else b""
            query = "INSERT INTO _frame (generation_id, start, stop, codec, data) VALUES (?, ?, ?, ?, ?)"
            db.execute(query, (generation, at, at + size, codec, data))
            at += size
        db.execute("UPDATE _source SET read_offset = ?", (at,))
        return at

    return writer.call(run)


def sizes(db) -> list[int]:
    return [size for (size,) in rows(db, "SELECT stop - start FROM _frame ORDER BY generation_id, start")]


def content(db, generation: int = 1) -> bytes:
    return b"".join(data for _, data in archive.stream(db, generation))


def test_a_session_written_line_by_line_becomes_one_frame(lab):
    path = lab.claude_file()
    for number in range(12):
        append(path, user_line(number, f"line {number}"))
        lab.ingest()
    with writing(lab) as (writer, db):
        assert len(sizes(db)) == 12
        assert merge_frames(db, writer, 1, is_final=True) == 11
        assert sizes(db) == [len(path.read_bytes())]
    assert lab.archived(path) == path.read_bytes()
    assert [event.summary for event in lab.events("claude:s1")][-1] == "line 11"
    with lab.store() as db:
        for start, length in rows(db, "SELECT start, length FROM _event"):
            assert archive.read(db, 1, start, length) == path.read_bytes()[start : start + length]

    append(path, user_line(12, "and on"))  # reading goes on behind it
    assert lab.ingest()["lines"] == 1
    assert lab.archived(path) == path.read_bytes()


def test_no_frame_is_larger_than_a_mebibyte_and_ids_keep_the_order_of_the_bytes(store):
    writer, db = store
    lay(writer, [random.Random(1).randint(1, 300_000) for _ in range(30)])
    before = content(db)
    saved = merge_frames(db, writer, 1, is_final=True)

    assert content(db) == before
    assert len(sizes(db)) == 30 - saved
    assert max(sizes(db)) <= MIB
    assert all(a + b > MIB for a, b in zip(sizes(db), sizes(db)[1:], strict=False))  # nothing more could be packed
    assert rows(db, "SELECT start FROM _frame ORDER BY id") == rows(db, "SELECT start FROM _frame ORDER BY start")
    assert merge_frames(db, writer, 1, is_final=True) == 0


def test_nothing_is_merged_across_what_is_missing_or_holds_no_bytes(store):
    writer, db = store
    at = lay(writer, [10, 10])
    at = lay(writer, [5000], start=at, codec=archive.ZEROS)
    at = lay(writer, [10, 10], start=at)
    at = lay(writer, [7000], start=at, codec=archive.DROPPED)
    at = lay(writer, [10, 10], start=at)
    lay(writer, [10, 10], start=at + 1)  # a gap
    assert merge_frames(db, writer, 1, is_final=True) == 4
    assert sizes(db) == [20, 5000, 20, 7000, 20, 20]


def test_a_frame_that_is_large_already_stays(store):
    writer, db = store
    lay(writer, [10, 10, MIB, 10, 10])
    assert merge_frames(db, writer, 1, is_final=True) == 2
    assert sizes(db) == [20, MIB, 20]


def test_what_is_evicted_or_being_evicted_is_left(store):
    writer, db = store
    lay(writer, [10, 10, 10, 10, 10])
    writer.call(lambda to: to.execute("UPDATE _generation SET evicted_to = 20").fetchall())
    assert merge_frames(db, writer, 1, is_final=True) == 2
    assert sizes(db) == [10, 10, 30]

    lay(writer, [10, 10], start=50)
    writer.call(lambda to: to.execute("INSERT INTO _leaving VALUES (1, 1, 99)").fetchall())
    assert merge_frames(db, writer, 1, is_final=True) == 0


def test_rewritten_files_are_left(store):
    writer, db = store
    lay(writer, [10, 10])
    writer.call(lambda to: to.execute("UPDATE _source SET reader = 'snapshot'").fetchall())
    assert merge_frames(db, writer, 1, is_final=True) == 0


def test_content_that_was_replaced_is_merged_too(lab):
    path = lab.claude_file()
    for number in range(3):
        append(path, user_line(number))
        lab.ingest()
    old = path.read_bytes()
    path.write_bytes(user_line(7, "fresh"))
    lab.ingest()
    with writing(lab) as (writer, db):
        assert merge_frames(db, writer, 1, is_final=False) == 2  # nothing is ever added to it
        assert content(db, 1) == old


def test_the_unfinished_line_of_a_lost_file_can_still_be_cut_off(lab):
    """Row 19: the file comes back, and goes on where its last newline was."""
    path = lab.claude_file()
    path.write_bytes(user_line(0) + b'{"unfinished')
    lab.ingest()
    path.unlink()
    lab.ingest()
    with writing(lab) as (writer, db):
        assert len(sizes(db)) == 2
        merge_frames(db, writer, 1, is_final=True)
    path.write_bytes(user_line(0) + b'{"unfinished": 1}\n' + user_line(1, "back"))
    lab.ingest()
    assert lab.archived(path) == path.read_bytes()


# --- while it goes on ---------------------------------------------------------------------------


def test_appends_cost_the_same_however_long_the_session_is(store, monkeypatch):
    """A thousand appends with a pass after each: every byte is written again a few times, not a thousand."""
    writer, db = store
    written: list[int] = []
    read = merge._read
    monkeypatch.setattr(merge, "_read", lambda *given: written.append(len(read(*given) or b"")) or read(*given))
    size, count, at = 2000, 1200, 0
    most = 0
    for _ in range(count):
        at = lay(writer, [size], start=at)
        merge_frames(db, writer, 1, is_final=False)
        most = max(most, len(sizes(db)))

    assert most <= 16  # however small they came
    assert sum(written) <= 12 * at  # log 1.5 (1 MiB / 2000) is 15
    assert sorted(written)[len(written) // 2] <= 4 * size  # and most passes have next to nothing to do
    assert len(content(db)) == at


def test_a_small_append_does_not_rewrite_a_large_frame(store):
    writer, db = store
    lay(writer, [500_000, 1000])
    assert merge_frames(db, writer, 1, is_final=False) == 0
    lay(writer, [260_000], start=501_000)
    assert merge_frames(db, writer, 1, is_final=False) == 2
    assert sizes(db) == [761_000]


def test_frames_that_changed_meanwhile_are_left_as_they_are(store, monkeypatch):
    """Between reading and writing the session may be evicted, cut back, or merged by somebody else."""
    writer, db = store
    lay(writer, [10, 10, 10])
    read = merge._read

    def overtaken(*given):
        data = read(*given)
        writer.call(lambda to: to.execute("DELETE FROM _frame WHERE start = 20").fetchall())
        return data

    monkeypatch.setattr(merge, "_read", overtaken)
    assert merge_frames(db, writer, 1, is_final=True) == 0
    assert sizes(db) == [10, 10]


def test_a_damaged_frame_is_not_made_to_look_whole(store):
    writer, db = store
    lay(writer, [10, 10])
    writer.call(lambda to: to.execute("UPDATE _frame SET data = ? WHERE start = 10", (os.urandom(9),)).fetchall())
    assert merge_frames(db, writer, 1, is_final=True) == 0


def test_a_file_that_goes_away_afterwards_keeps_its_tail(lab):
    path = lab.claude_file()
    for piece in (user_line(0), user_line(1), b"{half"):
        append(path, piece)
        lab.ingest()
    with writing(lab) as (writer, db):
        merge_frames(db, writer, 1, is_final=True)
        writer.call(lambda to: gone.mark_gone(to, [str(path)], datetime(2026, 1, 1, tzinfo=UTC)))
        assert content(db) == path.read_bytes()
