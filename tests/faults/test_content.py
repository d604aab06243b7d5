"""Rows 1 to 8 of the fault matrix: bytes that arrive in pieces, never end, are empty, or are no text at all."""

from __future__ import annotations

import os
import re
import threading
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from lab import append, settle, until, user_line
from sessiond.adapters.base import decode
from sessiond.errors import BadRecord
from sessiond.intake import tail
from sessiond.model import START, Line
from sessiond.store import archive, reader
from sessiond.store.connect import rows

GIB = 2**30
MIB = 2**20


def places(lab) -> list[tuple[int, int]]:
    with lab.store() as db:
        return rows(db, "SELECT start, length FROM _event ORDER BY start")


def peak_kib(pid: int) -> int:
    """The most memory that this process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summaries(lab, session: str = "s1") -> list[str]:
    return [event.summary for event in lab.events(f"claude:{session}")]


@pytest.mark.fault(1)
@pytest.mark.parametrize("mode", ["native", "poll"])
def test_lines_written_while_the_file_is_read_are_each_stored_once_in_order(lab, mode):
    path, count = lab.claude_file(), 1500
    path.touch()

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for number in range(count):
                line = user_line(number, f"line {number} é{'x' * (number * 7 % 900)}")
                cut = number * 31 % len(line)
                file.write(line[:cut])
                file.write(line[cut:])

    pipeline = lab.pipeline(mode)
    pipeline.start()
    try:
        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
        settle(pipeline)
    finally:
        pipeline.stop()

    assert lab.archived(path) == path.read_bytes()
    assert [words.split(" é")[0] for words in summaries(lab)] == [f"line {number}" for number in range(count)]
    found = places(lab)
    assert found[0][0] == 0
    assert all(start + length + 1 == after for (start, length), (after, _) in pairwise(found))


@pytest.mark.fault(2)
def test_half_a_line_waits_over_a_restart_and_is_one_row(lab):
    path, line = lab.claude_file(), user_line(1, "in two halves")
    path.write_bytes(user_line(0) + line[:100])
    with lab.daemon():
        lab.ingest_through_daemon()
        assert until(lambda: lab.status()["sources"]["pending_bytes"] == 100)
        assert lab.cli("analyze").returncode == 0  # nothing that runs by the clock flushes it either
        assert summaries(lab) == ["hello"]
        assert lab.archived(path) == user_line(0)
    with lab.daemon():
        lab.ingest_through_daemon()
        assert lab.status()["sources"]["pending_bytes"] == 100
        append(path, line[100:])
        until(lambda: summaries(lab) == ["hello", "in two halves"])
        until(lambda: lab.status()["sources"]["pending_bytes"] == 0)
    assert lab.archived(path) == path.read_bytes()
    assert lab.rejects() == []


@pytest.mark.fault(2)
def test_half_a_line_of_a_file_that_went_away_is_unterminated_until_it_comes_back(lab):
    path, line = lab.claude_file(), user_line(1, "finished after all")
    path.write_bytes(user_line(0) + line[:100])
    with lab.daemon():
        lab.ingest_through_daemon()
        path.unlink()
        until(lambda: lab.status()["sources"]["gone"] == 1)
        assert lab.rejects() == [(len(user_line(0)), 100, "unterminated")]
        assert until(lambda: lab.status()["sources"]["pending_bytes"] == 0)  # nobody waits for it any more
        assert lab.archived(path) == user_line(0) + line[:100]

        # Moved into place: seen empty for a moment, it would be a truncated file, and rightly a new generation.
        whole = lab.folder / "whole"
        whole.write_bytes(user_line(0) + line)
        whole.rename(path)
        until(lambda: summaries(lab) == ["hello", "finished after all"])
    assert lab.rejects() == []
    assert lab.archived(path) == path.read_bytes()


def giant_line(lab, megabytes: int, config: str, cap_mib: int) -> dict[str, float]:
    """The real daemon passes a line of so many megabytes between two good ones."""
    path = lab.claude_file()
    with path.open("wb") as file:
        file.write(user_line(0, "before"))
        for number in range(megabytes):
            file.write(f"{number:08d}".encode() * (MIB // 8))
        file.write(b"\n" + user_line(1, "after"))
    with lab.daemon(config=config) as process:
        until(lambda: summaries(lab) == ["before", "after"], seconds=240)
        figures = {"MB": megabytes, "peak_MiB": peak_kib(process.pid) / 1024, "cpu_s": cpu_seconds(process.pid)}
        assert until(lambda: lab.status()["sources"]["rejected"]) == 1
    assert lab.rejects() == [(len(user_line(0, "before")), megabytes * MIB, "too_long")]
    assert figures["peak_MiB"] < cap_mib
    with lab.store() as db:  # compared by piece: the test need not hold it either
        (generation,) = rows(db, "SELECT generation_id FROM _source")[0]
        with path.open("rb") as file:
            assert all(file.read(len(data)) == data for _, data in archive.stream(db, generation))
            assert file.read() == b""
    return figures


@pytest.mark.fault(4)
def test_a_line_beyond_the_limit_is_passed_in_little_memory_and_kept(lab):
    giant_line(lab, 48, '[limits]\nline = "256KiB"\nchunk = "256KiB"\n', cap_mib=110)


@pytest.mark.long
@pytest.mark.fault(4)
def test_a_line_of_200_megabytes_is_passed_in_150_mib(lab):
    print("\n", giant_line(lab, 200, "", cap_mib=150))


@pytest.mark.fault(5)
def test_a_carriage_return_belongs_to_the_record_and_not_to_its_json(lab):
    path = lab.claude_file()
    unix = user_line(0)
    path.write_bytes(unix[:-1] + b"\r\n" + user_line(1) + b"\r\n" + user_line(2)[:-1] + b"\r\n")
    lab.ingest()
    assert len(summaries(lab)) == 3
    assert places(lab)[0] == (0, len(unix))  # the newline's byte is the carriage return's now
    assert places(lab)[2][0] + places(lab)[2][1] == path.stat().st_size - 1
    assert lab.rejects() == []
    with lab.store() as db:
        assert reader.payload(db, lab.events("claude:s1")[0]) == unix[:-1] + b"\r"


@pytest.mark.fault(6)
@pytest.mark.parametrize(
    ("data", "said", "blank"),
    [
        (b"\n\n \t\r\n" + user_line(0), ["hello"], 3),
        (user_line(0) + b"\n\n", ["hello"], 2),
        (user_line(0) + b"\r\n" + user_line(1), ["hello", "hello"], 1),
        (b"\n" * 500, [], 500),
        (b"", [], 0),
    ],
    ids=["leading", "trailing", "between", "only", "empty"],
)
def test_empty_lines_are_passed_counted_and_never_read_twice(lab, data, said, blank):
    path = lab.claude_file()
    path.write_bytes(data)
    lab.ingest()
    lab.ingest()
    append(path, user_line(7, "later"))
    lab.ingest()
    with lab.store() as db:
        counters = dict(rows(db, "SELECT name, value FROM _counter"))
        assert rows(db, "SELECT read_offset FROM _source") == [(path.stat().st_size,)]
    assert summaries(lab) == [*said, "later"]
    assert counters.get("blank_lines", 0) == blank
    assert "generations" not in counters
    assert lab.rejects() == []
    assert lab.archived(path) == path.read_bytes()


@pytest.mark.fault(7)
def test_a_hole_of_a_gigabyte_is_one_reject_and_neither_spins_nor_swells(lab):
    path = lab.claude_file()
    with path.open("wb") as file:
        file.write(user_line(0, "before"))
        file.seek(GIB, os.SEEK_CUR)
        file.write(user_line(1, "after"))
    with lab.daemon() as process:
        until(lambda: summaries(lab) == ["before", "after"], seconds=60)
        assert until(lambda: lab.status()["sources"]["rejected"]) == 1
        before = cpu_seconds(process.pid)
        assert before < 15
        assert peak_kib(process.pid) / 1024 < 150
        lab.ingest_through_daemon()
        assert cpu_seconds(process.pid) - before < 1.5  # and it is not looked at again
    assert lab.rejects() == [(len(user_line(0, "before")), GIB, "nul")]
    assert lab.disk_bytes() < 32 * MIB


@pytest.mark.fault(7)
def test_each_run_of_nuls_is_one_reject_however_it_arrives(lab):
    path = lab.claude_file()
    pieces = [b"\0" * 3, b"\0" * 5000, b"\0" * 7 + user_line(0), bytes(MIB + 5), user_line(1), b"\0\0\n", user_line(2)]
    for piece in pieces:
        append(path, piece)
        lab.ingest()
    one, two = len(user_line(0)), len(user_line(1))
    assert lab.rejects() == [
        (0, 5010, "nul"),
        (5010 + one, MIB + 5, "nul"),
        (5010 + one + MIB + 5 + two, 2, "nul"),
    ]
    with lab.store() as db:
        assert dict(rows(db, "SELECT name, value FROM _counter"))["rejected"] == 3
    assert len(summaries(lab)) == 3
    assert lab.archived(path) == path.read_bytes()


@pytest.mark.fault(7)
@pytest.mark.parametrize("step", [10_000_000, 7, 4096], ids=["at once", "in small pieces", "by blocks"])
def test_nuls_within_a_line_cost_what_stood_there_and_not_the_record_behind_them(lab, step):
    """As a power cut leaves them: half a line, NULs up to the end of its block, and then what was appended later."""
    path = lab.claude_file()
    torn, kept = user_line(1)[:100], user_line(2)[:-1]  # of the second only the newline was lost
    data = user_line(0) + torn + bytes(3000) + kept + bytes(50) + user_line(3)
    for at in range(0, len(data), max(step, len(data) // 20)):
        append(path, data[at : at + max(step, len(data) // 20)])
        lab.ingest()
    begins = len(user_line(0))
    behind = begins + len(torn) + 3000 + len(kept)

    assert [start for start, _ in places(lab)] == [0, behind - len(kept), behind + 50]
    assert lab.rejects() == [
        (begins, len(torn), "not_json"),
        (begins + len(torn), 3000, "nul"),
        (behind, 50, "nul"),
    ]
    assert lab.archived(path) == path.read_bytes()
    before = lab.event_rows()
    with lab.upkeep() as upkeep:
        upkeep.do("reindex", {})
    assert lab.event_rows() == before


NUL_LIMITS = tail.Limits(line=12, archive_line=10**6, chunk=16)


def read_to_the_end(path, data, cuts):
    """(lines, rejects with runs joined, blank lines) of a file that grew by these cuts."""
    at, lines, rejects, blank = START, [], [], 0
    path.write_bytes(b"")
    for begin, end in pairwise([0, *sorted(cuts), len(data)]):
        append(path, data[begin:end])
        more = True
        while more:
            chunk = tail.read(str(path), 1, at, NUL_LIMITS)
            assert chunk.restarted is None
            lines += [(line.offset, line.data) for line in chunk.lines]
            for each in chunk.rejects:
                if rejects and each.reason == rejects[-1][2] == "nul" and sum(rejects[-1][:2]) == each.offset:
                    rejects[-1] = (rejects[-1][0], rejects[-1][1] + each.length, "nul")
                else:
                    rejects.append((each.offset, each.length, each.reason))
            blank += chunk.blank_lines
            at, more = chunk.checkpoint, chunk.more
    return lines, sorted(rejects), blank


@pytest.mark.fault(7)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_lines_and_runs_of_nuls_are_the_same_however_they_arrive(tmp_path, data):
    part = st.sampled_from(
        [b"a", b"bcd", b"x" * 11, b"y" * 40, b"\0", bytes(5), bytes(40), b"\n", b"\n\n", b" ", b"\r\n"]
    )
    content = b"".join(data.draw(st.lists(part, max_size=12))) + b"\n"
    cuts = data.draw(st.sets(st.integers(0, len(content)), max_size=5))
    whole = read_to_the_end(tmp_path / "f", content, [])

    assert read_to_the_end(tmp_path / "f", content, cuts) == whole
    found = {*(offset for offset, _ in whole[0]), *(at for at, _, why in whole[1] if why == "too_long")}
    assert found == {each.start() for each in re.finditer(rb"[^\0\n]+", content) if each[0].strip()}


@pytest.mark.fault(8)
def test_a_text_that_is_no_utf8_is_repaired_and_counted_or_rejected_and_kept(lab):
    path = lab.claude_file()
    broken = user_line(1, "caf@").replace(b"caf@", b"caf\xe9")
    hopeless = b"\xff\xfe{\x01\n"
    path.write_bytes(user_line(0) + broken + hopeless + user_line(2))
    with lab.daemon():
        lab.ingest_through_daemon()
        status = until(lambda: (told := lab.status())["sources"]["rejected"] and told)
    assert summaries(lab) == ["hello", "caf\ufffd", "hello"]
    assert (status["counters"]["repaired"], status["sources"]["rejected"]) == (1, 1)
    assert lab.rejects() == [(len(user_line(0)) + len(broken), len(hopeless) - 1, "utf8")]
    assert lab.archived(path) == path.read_bytes()


@pytest.mark.fault(8)
@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=20))
@example(b"\xed\xa0\x80", b"")
@example(b"\xf4\x90\x80\x80", b"")
@example(b"\xc0\xaf", b"\xff")
def test_any_bytes_in_a_text_are_repaired_or_rejected_for_a_reason(inside, around):
    line = Line(1, b'{"text": "' + inside + b'"}' + around)
    try:
        record = decode(line)
    except BadRecord as error:
        assert error.reason in {"utf8", "not_json", "not_object", "nul", "depth"}
        return
    is_utf8 = True
    try:
        line.data.decode()
    except UnicodeDecodeError:
        is_utf8 = False
    assert line.repaired or is_utf8
    orjson.dumps(record)  # every text in it can be written again
