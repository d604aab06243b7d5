from __future__ import annotations

import os
import resource
import time

import pytest
from hypothesis import example, given, settings, strategies as st

from sessiond.intake import identity, tail
from sessiond.intake.opened import NotRegular
from sessiond.model import START, Checkpoint, Chunk

LIMITS = tail.Limits(line=40, archive_line=200, chunk=16)


def read_all(path, at: Checkpoint = START, limits: tail.Limits = LIMITS) -> list[Chunk]:
    chunks = []
    while True:
        chunk = tail.read(str(path), 0, at, limits)
        chunks.append(chunk)
        at = chunk.checkpoint
        if not chunk.more:
            return chunks


def lines_of(chunks: list[Chunk]) -> list[tuple[int, bytes]]:
    return [(line.offset, line.data) for chunk in chunks for line in chunk.lines]


def rejects_of(chunks: list[Chunk]) -> list[tuple[int, int, str, bytes]]:
    """Rejects in order; a run of NULs that was read in two pieces counts as one, as the store keeps it."""
    merged: list[tuple[int, int, str, bytes]] = []
    for reject in (reject for chunk in chunks for reject in chunk.rejects):
        row = (reject.offset, reject.length, reject.reason, reject.hash)
        if merged and row[2] == merged[-1][2] == "nul" and sum(merged[-1][:2]) == row[0]:
            merged[-1] = (merged[-1][0], merged[-1][1] + row[1], "nul", b"")
        else:
            merged.append(row)
    return merged


def archived(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk.data + bytes(chunk.zeros) for chunk in chunks)


@pytest.fixture
def session_file(tmp_path):
    path = tmp_path / "s.jsonl"
    path.touch()
    return path


def append(path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.fault(2)
def test_unfinished_line_waits_for_its_newline(session_file):
    append(session_file, b'{"n": 1}\n{"n"')
    first = tail.read(str(session_file), 0, START, tail.Limits())
    append(session_file, b": 2}\n")
    second = tail.read(str(session_file), 0, first.checkpoint, tail.Limits())

    assert [line.data for line in first.lines] == [b'{"n": 1}']
    assert (first.pending, first.pending_bytes) == (b'{"n"', 4)
    assert [(line.offset, line.data) for line in second.lines] == [(9, b'{"n": 2}')]
    assert second.pending_bytes == 0


pieces = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [b"\n", b"\r\n", b"\0", b"\0" * 20, b" \n", b"\xe2\x80\xa8", b'{"a": 1}\n', b"x" * 41, b"y" * 250]
        ),
    ),
    max_size=20,
)


@pytest.mark.fault(3)
@settings(max_examples=400, deadline=None)
@given(pieces, st.lists(st.integers(0, 600), max_size=6))
@example([b"\0", b"\0", b"ab\n"], [1])
@example([b"x" * 41, b"\n"], [17, 40, 41])
@example([b"x" * 250, b"\n", b"ok\n"], [100, 210])
def test_any_split_of_any_bytes_gives_the_same_lines(tmp_path_factory, parts, cuts):
    """P2 for the reader alone: bytes arriving in any pieces, read after each of them."""
    data = b"".join(parts)
    folder = tmp_path_factory.mktemp("split")
    whole, grown = folder / "whole", folder / "grown"
    whole.write_bytes(data)
    grown.touch()
    expected = read_all(whole)

    chunks: list[Chunk] = []
    at = START
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        append(grown, data[start:stop])
        chunks += read_all(grown, at)
        at = chunks[-1].checkpoint

    assert lines_of(chunks) == lines_of(expected)
    assert rejects_of(chunks) == rejects_of(expected)
    assert at.offset == expected[-1].checkpoint.offset
    assert at.checksum == expected[-1].checkpoint.checksum
    assert not any(chunk.restarted for chunk in chunks)


@settings(max_examples=300, deadline=None)
@given(pieces)
def test_archived_bytes_are_the_file_up_to_its_last_line_end(tmp_path_factory, parts):
    data = b"".join(parts)
    path = tmp_path_factory.mktemp("exact") / "f"
    path.write_bytes(data)
    chunks = read_all(path, limits=tail.Limits(line=40, archive_line=10_000, chunk=16))

    end = chunks[-1].checkpoint.offset
    assert archived(chunks) == data[:end]
    assert b"\n" not in data[end:]


@pytest.mark.fault(3)
def test_lines_end_at_line_feeds_only(session_file):
    text = '{"a": "x\u2028y\u0085z\x0b"}'.encode()
    append(session_file, text + b"\n")
    assert lines_of(read_all(session_file, limits=tail.Limits())) == [(0, text)]


@pytest.mark.fault(5)
def test_carriage_return_is_kept_out_of_the_json_but_in_the_record(session_file):
    append(session_file, b'{"a": 1}\r\n{"b": 2}\n')
    first, second = tail.read(str(session_file), 0, START, tail.Limits()).lines
    assert (first.data, first.length, second.offset) == (b'{"a": 1}', 9, 10)


@pytest.mark.fault(6)
def test_blank_lines_move_the_cursor_and_nothing_else(session_file):
    append(session_file, b"\n \n\t\r\nx\n\n")
    chunks = read_all(session_file)
    assert lines_of(chunks) == [(6, b"x")]
    assert sum(chunk.blank_lines for chunk in chunks) == 4
    assert chunks[-1].checkpoint.offset == 9


@pytest.mark.fault(4)
def test_giant_line_is_passed_in_bounded_memory_and_its_neighbours_are_read(session_file):
    """Row 4: 200 MB between two good lines."""
    size = 200 * 2**20
    with session_file.open("wb") as file:
        file.write(b'{"before": 1}\n')
        for _ in range(200):
            file.write(b"x" * 2**20)
        file.write(b'\n{"after": 1}\n')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines, rejects, at = [], [], START
    while True:
        chunk = tail.read(str(session_file), 0, at, tail.Limits())
        lines += [line.data for line in chunk.lines]
        rejects += chunk.rejects
        at = chunk.checkpoint
        if not chunk.more:
            break
    assert lines == [b'{"before": 1}', b'{"after": 1}']
    assert [(r.offset, r.length, r.reason) for r in rejects] == [(14, size, "too_long")]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # kB


@pytest.mark.fault(7)
def test_hole_of_a_gigabyte_is_one_reject_and_costs_little(session_file):
    """Row 7: what a stale writer leaves after a truncate, or a power cut."""
    hole = 2**30
    with session_file.open("wb") as file:
        file.write(b'{"before": 1}\n')
        file.truncate(14 + hole)
        file.seek(14 + hole)
        file.write(b'{"after": 1}\n')
    began = time.process_time()
    chunks = read_all(session_file, limits=tail.Limits())
    assert lines_of(chunks) == [(0, b'{"before": 1}'), (14 + hole, b'{"after": 1}')]
    assert rejects_of(chunks) == [(14, hole, "nul", b"")]
    assert time.process_time() - began < 8


@pytest.mark.parametrize(
    ("rewrite", "reason"),
    [
        (b'{"n": 9}\n', "truncated"),
        (b'{"n": 7}\n{"n": 8}\n', "rewritten"),  # the same size
        (b'{"n": 7}\n{"n": 8}\n{"n": 9}\n', "rewritten"),  # larger
    ],
)
@pytest.mark.fault(16)
@pytest.mark.fault(17)
def test_rewrite_in_place_is_a_new_generation(session_file, rewrite, reason):
    """Rows 16 and 17: also when the size says nothing."""
    append(session_file, b'{"n": 1}\n{"n": 2}\n')
    at = read_all(session_file)[-1].checkpoint
    session_file.write_bytes(rewrite)
    chunks = read_all(session_file, at)
    assert chunks[0].restarted == reason
    assert chunks[0].start == 0
    assert b"".join(line + b"\n" for _, line in lines_of(chunks)) == rewrite


@pytest.mark.fault(17)
def test_change_between_head_and_cursor_is_seen_by_the_marker(session_file):
    """Row 17: the first kilobyte alone would not tell."""
    same = b'{"same": "%s"}\n' % (b"h" * 1100)
    append(session_file, same + b'{"n": 1}\n')
    at = read_all(session_file, limits=tail.Limits())[-1].checkpoint
    session_file.write_bytes(same + b'{"n": 2}\n')
    assert tail.read(str(session_file), 0, at, tail.Limits()).restarted == "rewritten"


@pytest.mark.fault(18)
def test_replaced_file_that_begins_alike_goes_on_at_the_cursor(session_file, tmp_path):
    """Row 18: an editor's save, a restore, a decompression."""
    append(session_file, b'{"n": 1}\n' * 300)
    at = read_all(session_file, limits=tail.Limits())[-1].checkpoint
    other = tmp_path / "other"
    other.write_bytes(b'{"n": 1}\n' * 300 + b'{"n": 2}\n')
    other.rename(session_file)
    chunk = tail.read(str(session_file), 0, at, tail.Limits())
    assert (chunk.restarted, chunk.start) == (None, 2700)
    assert [line.data for line in chunk.lines] == [b'{"n": 2}']


@pytest.mark.fault(18)
def test_replaced_file_that_differs_in_the_middle_is_read_again(session_file, tmp_path):
    """Row 18: head and marker agree, the bytes between them do not; only the checksum knows."""
    begin, middle, end = b"a" * 1030 + b"\n", b"b" * 30 + b"\n", b"c" * 300 + b"\n"
    limits = tail.Limits()
    session_file.write_bytes(begin + middle + end)
    at = read_all(session_file, limits=limits)[-1].checkpoint
    other = tmp_path / "other"
    other.write_bytes(begin + middle.upper() + end)
    other.rename(session_file)
    assert tail.read(str(session_file), 0, at, limits).restarted == "replaced"


@pytest.mark.fault(22)
def test_deleted_and_recreated_file_with_the_same_inode_is_read_again(session_file):
    """Row 22: ext4 gives the inode away at once."""
    append(session_file, b'{"n": 1}\n')
    at = read_all(session_file)[-1].checkpoint
    session_file.unlink()
    session_file.write_bytes(b'{"n": 5, "longer": true}\n')
    chunk = tail.read(str(session_file), 0, at, LIMITS)
    assert chunk.restarted
    assert lines_of(read_all(session_file, at)) == [(0, b'{"n": 5, "longer": true}')]


@pytest.mark.fault(27)
def test_fifo_is_refused_at_once(tmp_path):
    """Row 27: opening a FIFO without a writer would wait for ever."""
    os.mkfifo(tmp_path / "x.jsonl")
    with pytest.raises(NotRegular):
        tail.read(str(tmp_path / "x.jsonl"), 0, START, LIMITS)


@pytest.mark.fault(26)
@pytest.mark.fault(82)
def test_link_is_not_followed_neither_at_the_end_nor_on_the_way(tmp_path):
    """Rows 26 and 82."""
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "f").write_bytes(b"secret\n")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "way").symlink_to(tmp_path / "real")
    (tmp_path / "root" / "end").symlink_to(tmp_path / "real" / "deep" / "f")
    with pytest.raises(OSError, match="symbolic|directory|loop"):
        tail.read(str(tmp_path / "root" / "way" / "deep" / "f"), 2, START, LIMITS)
    with pytest.raises(OSError, match="symbolic|loop"):
        tail.read(str(tmp_path / "root" / "end"), 0, START, LIMITS)


def test_compressed_file_reads_as_its_plain_bytes(tmp_path):
    from sessiond.store.archive import zstd

    data = b"".join(b'{"n": %d, "pad": "%s"}\n' % (n, b"z" * (n % 700)) for n in range(9000))
    packed = tmp_path / "f.zst"
    half = len(data) // 2
    packed.write_bytes(zstd.compress(data[:half]) + zstd.compress(data[half:]))  # two frames, as appended
    plain = tmp_path / "f"
    plain.write_bytes(data)
    limits = tail.Limits(chunk=2**16)

    def everything(path, *, compressed):
        at, found = START, []
        while True:
            chunk = tail.read(str(path), 0, at, limits, compressed=compressed)
            found += [(line.offset, line.data) for line in chunk.lines]
            at = chunk.checkpoint
            if not chunk.more:
                return found, at

    (unpacked, at), (expected, plain_at) = everything(packed, compressed=True), everything(plain, compressed=False)
    assert unpacked == expected
    assert (at.offset, at.checksum, at.head, at.marker) == (
        plain_at.offset, plain_at.checksum, plain_at.head, plain_at.marker,
    )  # fmt: skip
    # The plain file goes on where the compressed one was read to, and the other way round.
    assert tail.read(str(plain), 0, at, limits).restarted is None
    assert tail.read(str(packed), 0, plain_at, limits, compressed=True).restarted is None


@given(st.binary(max_size=300), st.integers(0, 300))
def test_checksum_does_not_care_how_bytes_are_cut(data, at):
    whole = identity.running(0, data)
    assert identity.running(identity.running(0, data[:at]), data[at:]) == whole


def test_head_gives_complete_lines_only(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b'{"a": 1}\n{"b"')
    assert tail.head(str(path), 0)[0] == [b'{"a": 1}']
    path.write_bytes(b'{"a": "' + b"x" * 100_000 + b'"}\n{"b": 1}\n')
    lines, _ = tail.head(str(path), 0)
    assert [len(line) for line in lines] == [100_009]
