"""Exact bytes out of the archive, whatever happens to its frames meanwhile."""

from __future__ import annotations

import pytest

from lab import Lab, append, user_line
from sessiond.store import archive
from sessiond.store.connect import value
from sessiond.store.merge import merge_frames


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path)
    for number in range(8):
        append(lab.claude_file(), user_line(number, "words " * number))
        lab.ingest()
    return lab


def test_frames_that_are_merged_while_they_are_read_are_read_whole(lab):
    data = lab.claude_file().read_bytes()
    with lab.upkeep() as upkeep, lab.store() as db:
        generation = value(db, "SELECT id FROM _generation")
        stream = archive.stream(db, generation)
        read = [next(stream), next(stream)]
        assert merge_frames(db, upkeep._pipeline.writer, 1, is_final=True) == 7
        read += stream
    assert b"".join(piece for _, piece in read) == data
    assert [start for start, _ in read][:2] == [0, len(user_line(0, ""))]


def test_any_range_is_exact_before_and_after_merging(lab):
    data = lab.claude_file().read_bytes()
    with lab.upkeep() as upkeep, lab.store() as db:
        generation = value(db, "SELECT id FROM _generation")
        for _ in range(2):
            for start in range(0, len(data), 97):
                for length in (1, 100, 5000):
                    if start + length <= len(data):
                        assert archive.read(db, generation, start, length) == data[start : start + length]
            merge_frames(db, upkeep._pipeline.writer, 1, is_final=True)
        with pytest.raises(archive.Missing):
            archive.read(db, generation, len(data) - 1, 2)
