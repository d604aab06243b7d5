"""`sessiond verify`: finds every kind of difference, names nothing that is as it should be, and writes nothing."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager

import pytest

from conformance_homes import EXPECTED, lay_out
from lab import append, user_line
from sessiond.store.archive import zstd
from sessiond.store.connect import open_reader, rows
from sessiond.store.merge import merge_frames
from sessiond.store.writer import Writer

ONE, TWO, THREE = (sum(len(user_line(number, f"line {number}")) for number in range(upto)) for upto in (1, 2, 3))


@contextmanager
def writing(lab):
    writer = Writer(lab.paths.store)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


def change(lab, *statements: str, bound=()) -> None:
    with writing(lab) as writer:
        for statement in statements:
            writer.call(lambda db, statement=statement: db.execute(statement, bound).fetchall())


def verified(lab, *words: str) -> dict:
    said = lab.cli("verify", "--json", *words)
    told = json.loads(said.stdout)
    assert said.returncode == (1 if told["problems"] else 0)
    assert told["ok"] == (not told["problems"])
    return told


def problems(lab, *words: str) -> list[tuple]:
    return [(each["session_uid"], each["offset"], each["what"]) for each in verified(lab, *words)["problems"]]


@pytest.fixture
def path(lab):
    """A session of three appends."""
    path = lab.claude_file()
    for number in range(3):
        append(path, user_line(number, f"line {number}"))
        lab.ingest()
    return path


def test_all_is_well(path, lab):
    told = verified(lab)
    assert (told["problems"], told["notes"]) == ([], [])
    assert (told["sessions"], told["files"], told["bytes"]) == (1, 1, path.stat().st_size)
    said = lab.cli("verify", "s1")
    assert said.stdout.startswith("1 session, 1 file compared, ")
    assert said.stdout.endswith(": all as it should be\n")


@pytest.mark.parametrize("home", EXPECTED)
def test_every_fixture_is_well_also_after_merging_and_without_its_files(home, lab, fixtures):
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])
    lab.ingest()
    assert verified(lab)["problems"] == []
    with writing(lab) as writer:
        db = open_reader(lab.paths.store)
        for (row,) in rows(db, "SELECT id FROM _session ORDER BY id"):
            merge_frames(db, writer, row, is_final=True)
        db.close()
    shutil.rmtree(lab.home_of(flavor))
    told = verified(lab)
    assert (told["problems"], told["files"]) == ([], 0)


def test_a_byte_that_changed_in_place_is_found(path, lab):
    """Neither head nor marker tells: only the bytes themselves do."""
    path.write_bytes(path.read_bytes() + user_line(3, "x" * 5000) + user_line(4))
    lab.ingest()
    data = bytearray(path.read_bytes())
    at = THREE + 3000
    data[at] ^= 1
    with path.open("r+b") as file:
        file.write(data)

    assert problems(lab) == [("claude:s1", at, "differs from the archive")]
    said = lab.cli("verify")
    assert said.returncode == 1
    assert f"s1.jsonl at byte {at:,}: differs from the archive" in said.stdout
    assert "restore" in said.stdout


def test_what_was_appended_since_is_no_difference(path, lab):
    append(path, user_line(3) + b"{half a line")
    assert verified(lab)["problems"] == []


@pytest.mark.parametrize(("content", "why"), [(b"", "truncated"), (user_line(9, "other words") * 9, "rewritten")])
def test_a_replaced_file_is_named_until_it_is_taken_in(path, lab, content, why):
    path.write_bytes(content)
    ((uid, _, what),) = problems(lab)
    assert (uid, what) == ("claude:s1", f"differs: {why} since, not yet taken in")
    lab.ingest()
    assert problems(lab) == []


def test_a_file_that_went_away_is_only_told(path, lab):
    path.unlink()
    told = verified(lab)
    assert [each["what"] for each in told["notes"]] == ["not there any more, and not yet noticed"]
    lab.ingest()
    assert verified(lab)["notes"] == []


def test_a_file_that_cannot_be_read_is_only_told(path, lab):
    path.unlink()
    path.mkdir()
    assert len(verified(lab)["notes"]) == 1


def test_a_compressed_file_is_compared_by_what_is_in_it(lab):
    name = "rollout-2026-01-02T03-04-05-0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
    line = b'{"timestamp":"2026-01-02T03:04:05.000Z","type":"event_msg","payload":{"type":"user_message","message":"%s"}}\n'
    packed = lab.codex_file(name).with_suffix(".jsonl.zst")
    packed.write_bytes(zstd.compress(line % b"one" + line % b"two"))
    lab.ingest()
    told = verified(lab)
    assert (told["problems"], told["bytes"]) == ([], 2 * len(line) + 2)
    packed.write_bytes(zstd.compress(line % b"one" + line % b"twx"))
    assert [offset for _, offset, _ in problems(lab)] == [len(line) + 1 + line.index(b"%s") + 2]


def test_a_rewritten_file_is_compared_as_long_as_it_is_the_version_that_was_read(lab):
    folder = lab.home_of("hive") / "agents" / "kite" / "sessions" / "session_20260101_000000_aaaaaaaa"
    folder.mkdir(parents=True)
    state = folder / "state.json"
    state.write_text('{"status": "active"}')
    lab.ingest()
    stat = state.stat()
    assert verified(lab)["bytes"] == stat.st_size
    state.write_text('{"status": "paused"}')
    os.utime(state, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert problems(lab)[0][1:] == (len('{"status": "'), "differs from the archive")
    os.utime(state)
    told = verified(lab)
    assert (told["problems"], [each["what"] for each in told["notes"]]) == ([], ["changed since"])


# --- the store itself ---------------------------------------------------------------------------


def test_bytes_that_are_missing_are_named_with_their_events(path, lab):
    change(lab, f"DELETE FROM _frame WHERE start = {ONE}")
    assert problems(lab) == [
        ("claude:s1", ONE, f"bytes {ONE}..{TWO} are not in the archive"),
        ("claude:s1", ONE, "the record of event 2 is not in the archive"),
    ]


def test_the_end_that_is_missing_is_named_too(path, lab):
    change(lab, f"DELETE FROM _frame WHERE start = {TWO}")
    assert problems(lab)[0] == ("claude:s1", TWO, f"bytes {TWO}..{THREE} are not in the archive")


def test_frames_that_overlap_are_named(path, lab):
    change(lab, f"UPDATE _frame SET start = start - 5 WHERE start = {ONE}")
    assert ("claude:s1", ONE - 5, f"bytes {ONE - 5}..{ONE} are archived twice") in problems(lab)


def test_what_was_evicted_is_not_missed(path, lab):
    change(lab, f"DELETE FROM _frame WHERE start < {TWO}", f"UPDATE _generation SET evicted_to = {TWO}")
    told = verified(lab)
    assert (told["problems"], told["bytes"]) == ([], THREE - TWO)


def test_what_a_privacy_rule_left_out_is_no_problem(path, lab):
    lab.write_config('[privacy]\nexclude = ["/w"]\n')
    append(path, user_line(3, "private"))
    lab.ingest()
    lab.write_config("")
    append(path, user_line(4, "public"))
    lab.ingest()
    append(path, user_line(5, "public too"))
    lab.ingest()
    told = verified(lab)
    assert told["problems"] == []
    assert ["never archived" in each["what"] for each in told["notes"]] == [True]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_frame_that_cannot_be_read_is_found(path, lab, is_there):
    change(lab, f"UPDATE _frame SET data = ? WHERE start = {ONE}", bound=(b"nonsense",))
    if not is_there:
        path.unlink()
        lab.ingest()
    assert problems(lab) == [("claude:s1", ONE, f"the frame at {ONE} cannot be read")]


def test_a_damaged_database_is_found(path, lab):
    lab.paths.search.write_bytes(b"no database at all" * 1000)
    ((uid, offset, what),) = problems(lab)
    assert (uid, offset) == (None, None)
    assert "NotADB" in what or "damaged" in what or "not a database" in what


def test_only_the_session_that_is_asked_for(path, lab):
    other = lab.claude_file("other")
    other.write_bytes(user_line(0, session="other"))
    lab.ingest()
    path.write_bytes(b"")
    assert verified(lab, "other")["problems"] == []
    assert len(problems(lab, "s1")) == 1
    assert lab.cli("verify", "nobody").returncode == 1


def test_nothing_is_written(path, lab):
    """P9, and the store as well: by the bytes and times of every file."""

    def state():
        found = {}
        for file in sorted(lab.folder.rglob("*")):
            if file.is_file() and not file.name.endswith("-shm"):
                found[str(file)] = (file.read_bytes(), file.stat().st_mtime_ns)
        return found

    verified(lab)
    before = state()
    verified(lab)
    assert state() == before


def test_beside_a_running_daemon(path, lab):
    with lab.daemon():
        append(path, user_line(3))
        lab.ingest_through_daemon()
        assert verified(lab)["bytes"] == path.stat().st_size
