"""What the state machine found, each as the few steps that it comes down to."""

from __future__ import annotations

import os

import pytest

from lab import Lab, append, states, user_line
from sessiond.store import restore
from sessiond.store.connect import rows

AGED = '[retention]\nmax_age = "1ms"\nsoft_cap = "900MiB"\nkeep_free = "1MiB"\n'


def let_go(lab: Lab) -> None:
    lab.analyze()
    assert lab.evict()["evicted"]


def frames(lab: Lab) -> list[tuple]:
    query = "SELECT g.number, r.start, r.stop FROM _frame AS r JOIN _generation AS g ON g.id = r.generation_id ORDER BY 1, 2"
    with lab.store() as db:
        return rows(db, query)


@pytest.mark.fault(51)
def test_file_that_was_not_read_to_its_end_is_read_on_after_a_kill(lab):
    """The stat that a restart compares with was that of the whole file: the rest waited for the hourly look."""
    lab.write_config('[limits]\nchunk = "4KiB"\n')
    path = lab.claude_file()
    lines = b"".join(user_line(number, "x" * 500) for number in range(100))
    path.write_bytes(lines)
    pipeline = lab.pipeline()
    pipeline.start_store()
    ingest = pipeline.loop._ingest
    assert ingest.take_in(str(path)).more
    pipeline.stop()

    lab.ingest()

    assert lab.archived(path) == lines


def test_unfinished_line_written_anew_at_its_length_is_the_one_that_is_kept(lab):
    """P3: only its length was compared."""
    path = lab.claude_file()
    path.write_bytes(user_line(0) + b'{"first')
    lab.ingest()
    path.write_bytes(user_line(0) + b'{"other')
    lab.ingest()
    path.unlink()
    lab.ingest()
    assert lab.archived(path) == user_line(0) + b'{"other'


@pytest.mark.fault(19)
def test_two_files_that_changed_places_are_read_both(lab):
    """Each looked for its old inode beside it and found the other, which did the same."""
    first, second = lab.claude_file("a1"), lab.claude_file("b2")
    first.write_bytes(user_line(0, session="a1"))
    second.write_bytes(user_line(0, session="b2"))
    lab.ingest()
    aside = first.with_suffix(".aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    for path, name in ((first, "b2"), (second, "a1")):
        append(path, user_line(1, "more", session=name))

    assert lab.ingest()["degraded"] == []

    assert lab.archived(first) == first.read_bytes()
    assert lab.archived(second) == second.read_bytes()


@pytest.mark.fault(22)
def test_inode_of_an_empty_file_that_is_given_again_tells_nothing(lab):
    """An empty file is replaced, and a new one beside it has its inode: the first kept no source, and was not read."""
    path, other = lab.claude_file("s1", slug="-v"), lab.claude_file("s1", slug="-w")
    path.touch()
    lab.ingest()
    inode = path.stat().st_ino
    other.unlink(missing_ok=True)
    os.link(path, other)  # keeps the inode, as a new file on ext4 would be given it
    aside = path.with_suffix(".aside")
    aside.write_bytes(user_line(0))
    aside.rename(path)
    assert other.stat().st_ino == inode != path.stat().st_ino

    pipeline = lab.pipeline()
    for each in (path, other):  # the second before the first is committed
        pipeline.loop._ingest.take_in(str(each))
    pipeline.start_store()
    pipeline.stop()

    assert lab.archived(path) == user_line(0)
    assert set(states(lab)) == {str(path), str(other)}


def test_file_without_a_finished_line_is_missed_when_it_goes(lab):
    """Another file's end had made sessiond forget that it was there at all."""
    one, other = lab.claude_file("s1"), lab.claude_file("s2")
    one.touch()
    other.write_bytes(user_line(0, session="s2"))
    pipeline = lab.pipeline()
    pipeline.start_store()
    loop = pipeline.loop
    try:
        for path in (one, other):
            loop._ingest.take_in(str(path))
        append(one, b'{"unfinished')
        loop._ingest.take_in(str(one))
        for path in (other, one):  # no look at the one between the sweeps
            path.unlink()
            loop._sweep()
    finally:
        pipeline.stop()
    assert states(lab) == {str(one): "gone", str(other): "gone"}


@pytest.mark.fault(77)
def test_evicted_end_of_a_file_that_went_away_does_not_come_back(lab):
    """Its unfinished line was archived when it went, evicted, and archived again when another content took its place."""
    lab.write_config(AGED)
    path = lab.claude_file()
    path.write_bytes(user_line(0) + b'{"unfinished')
    lab.ingest()
    path.unlink()
    lab.ingest()
    let_go(lab)
    path.write_bytes(user_line(5, "another"))
    lab.ingest()
    assert frames(lab) == [(2, 0, len(user_line(5, "another")))]
    assert lab.rejects() == []


def test_end_of_a_file_that_went_away_again_is_archived_again(lab):
    """After it had been evicted, and the file had come back with more of its last line."""
    lab.write_config(AGED)
    path = lab.claude_file()
    for tail in (b'{"unfin', b'{"unfinished'):
        path.write_bytes(user_line(0) + tail)
        lab.ingest()
        path.unlink()
        lab.ingest()
        assert lab.archived(path).endswith(tail)
        let_go(lab)
        assert frames(lab) == []


def test_line_whose_first_half_was_evicted_is_whole_when_it_is_finished(lab):
    lab.write_config(AGED)
    path = lab.claude_file()
    lines = [user_line(0), user_line(1, "finished later")]
    path.write_bytes(lines[0] + lines[1][:40])
    lab.ingest()
    path.unlink()
    lab.ingest()
    let_go(lab)
    path.write_bytes(b"".join(lines))
    lab.ingest()
    assert lab.archived(path) == lines[1]
    with lab.store() as db:
        (part,) = restore.plan(db, "claude:s1")
        assert part.missing == (0, len(lines[0]))
