"""Rows 16-25 and 29-31: a file that is truncated, rewritten, replaced, moved, copied, linked, removed or touched.

Each is tried while sessiond is off and while it runs, watching natively and polling: the outcome is the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from lab import append, settle, states, until, user_line
from sessiond.intake import recheck
from sessiond.model import moment
from sessiond.store import counts
from sessiond.store.connect import rows

POLLING = '[watch]\npoll_interval = "100ms"\n'


class Watcher:
    """sessiond over the lab's files: off (each look is a sweep of its own) or running."""

    def __init__(self, lab, how: str) -> None:
        self._lab = lab
        lab.write_config(POLLING)
        self.pipeline = None if how == "stopped" else lab.pipeline(how)
        if self.pipeline is not None:
            self.pipeline.start()

    def sees(self, condition, what: str = "it") -> None:
        """Running, it comes to know by itself; nobody asks it to look."""
        if self.pipeline is not None:
            until(condition, what=what)
        else:
            self._lab.ingest()
            assert condition(), what

    def looks(self) -> None:
        """Once over everything, to its end."""
        if self.pipeline is not None:
            settle(self.pipeline)
        else:
            self._lab.ingest()

    def stop(self) -> None:
        if self.pipeline is not None:
            self.pipeline.stop()


@pytest.fixture(params=["stopped", "native", "poll"])
def watcher(request, lab):
    lab.claude_file()  # else a native watch finds the root by its next look, up to half a second later
    watching = Watcher(lab, request.param)
    yield watching
    watching.stop()


def lines(*numbers: int, text: str = "hello", session: str = "s1") -> bytes:
    return b"".join(user_line(number, text, session=session) for number in numbers)


def counter(lab, name: str) -> int:
    with lab.store() as db:
        return counts.counters(db).get(name, 0)


def cursors(lab) -> list[tuple]:
    with lab.store() as db:
        return rows(db, "SELECT path, read_offset, generation_id, state FROM _source ORDER BY id")


def generations(lab, path: Path) -> list[tuple[int, str | None]]:
    query = """
    SELECT g.number, g.reason FROM _generation AS g JOIN _source AS s ON s.id = g.source_id WHERE s.path = ?
     ORDER BY g.number
    """
    with lab.store() as db:
        return rows(db, query, (os.fsencode(path),))


def summaries(lab, uid: str = "claude:s1", **wanted) -> list[str]:
    return [event.summary for event in lab.events(uid, **wanted)] if uid in lab.sessions() else []


def rewrite_in_place(path: Path, data: bytes) -> None:
    """As a program does that keeps the file open: same inode, and no moment at which it is shorter."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


# --- truncated, rewritten, replaced ---------------------------------------------------------------


@pytest.mark.fault(16)
@pytest.mark.parametrize("count", [1, 3, 9], ids=["less", "equal", "more"])
def test_truncated_file_begins_anew_and_its_old_rows_are_superseded(lab, watcher, count):
    path = lab.claude_file()
    path.write_bytes(lines(0, 1, 2, text="old one"))
    watcher.sees(lambda: len(summaries(lab)) == 3)
    os.truncate(path, 0)
    watcher.sees(lambda: generations(lab, path) == [(1, None), (2, "truncated")])
    append(path, lines(*range(10, 10 + count), text="new one"))
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    assert summaries(lab) == ["new one"] * count
    assert sorted(summaries(lab, superseded=True)) == ["new one"] * count + ["old one"] * 3, "no event tells of it"
    assert counter(lab, "truncated") == 1
    assert len(generations(lab, path)) == 2


@pytest.mark.fault(16)
def test_truncation_is_logged_with_its_reason_and_counted_in_status(lab):
    path = lab.claude_file()
    path.write_bytes(lines(0, 1))
    with lab.daemon():
        until(lambda: len(summaries(lab)) == 2)
        path.write_bytes(lines(7))
        until(lambda: summaries(lab) == ["hello"])
        until(lambda: lab.status()["counters"].get("truncated") == 1)
    log = (lab.folder / "daemon.log").read_text()
    assert '"generation_began"' in log
    assert '"reason":"truncated"' in log.replace(" ", "")


@pytest.mark.fault(17)
@pytest.mark.parametrize("after", [0, 3], ids=["same_size", "larger"])
@pytest.mark.parametrize("head", [0, 6], ids=["another_head", "same_first_kilobyte"])
def test_rewritten_content_of_the_same_or_a_larger_size_is_a_new_generation(lab, watcher, head, after):
    path = lab.claude_file()
    same = lines(*range(head))
    path.write_bytes(same + lines(10, 11, 12, text="before"))
    assert not head or len(same) > 1024
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    rewrite_in_place(path, same + lines(*range(20, 23 + after), text="after!"))
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    assert summaries(lab) == ["hello"] * head + ["after!"] * (3 + after)
    assert generations(lab, path) == [(1, None), (2, "rewritten")]


@pytest.mark.fault(17)
def test_rewritten_head_is_a_new_generation_although_the_end_is_the_same(lab, watcher):
    path = lab.claude_file()
    path.write_bytes(lines(0, text="before") + lines(*range(1, 10)))
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    rewrite_in_place(path, path.read_bytes().replace(b"before", b"after!"))
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    assert generations(lab, path) == [(1, None), (2, "rewritten")]


@pytest.mark.fault(18)
def test_file_replaced_by_one_that_begins_alike_goes_on_at_the_cursor(lab, watcher):
    path = lab.claude_file()
    path.write_bytes(lines(*range(20)))
    watcher.sees(lambda: len(summaries(lab)) == 20)
    other = lab.folder / "rewritten by an editor"
    other.write_bytes(path.read_bytes() + lines(20, text="and one more"))
    other.rename(path)
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    assert summaries(lab) == ["hello"] * 20 + ["and one more"]
    assert counter(lab, "lines") == 21
    assert generations(lab, path) == [(1, None)]


@pytest.mark.fault(18)
def test_file_replaced_by_another_is_a_new_generation(lab, watcher):
    """The two differ in a place that neither the head nor the marker covers."""
    path = lab.claude_file()
    path.write_bytes(lines(*range(10)) + lines(10, text="aaa") + lines(*range(11, 20)))
    watcher.sees(lambda: len(summaries(lab)) == 20)
    other = lab.folder / "other"
    other.write_bytes(path.read_bytes().replace(b"aaa", b"bbb"))
    other.rename(path)
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    assert generations(lab, path) == [(1, None), (2, "replaced")]


# --- moved, copied, linked ------------------------------------------------------------------------


@pytest.mark.fault(19)
def test_renamed_file_keeps_its_cursor_and_is_not_read_again(lab, watcher):
    path, moved = lab.claude_file(), lab.claude_file("s1", slug="-elsewhere")
    path.write_bytes(lines(0, 1))
    watcher.sees(lambda: len(summaries(lab)) == 2)
    path.rename(moved)
    watcher.sees(lambda: states(lab) == {str(moved): "live"})
    append(moved, lines(2, text="goes on"))
    watcher.sees(lambda: summaries(lab) == ["hello", "hello", "goes on"])
    assert counter(lab, "lines") == 3
    assert lab.archived(moved) == moved.read_bytes()
    assert list(lab.sessions()) == ["claude:s1"]


@pytest.mark.fault(19)
def test_name_that_was_given_to_another_file_meanwhile_loses_and_doubles_nothing(lab, watcher):
    """Rotation: the old file lies beside a new one of its name."""
    path, rotated = lab.claude_file(), lab.claude_file("s1.1")
    path.write_bytes(lines(0, 1, text="before"))
    watcher.sees(lambda: len(summaries(lab)) == 2)
    path.rename(rotated)
    os.utime(rotated, (1e9, 1e9))  # old: the new file is looked at first
    path.write_bytes(lines(2, 3, 4, text="after"))
    watcher.sees(lambda: lab.archived(path) == path.read_bytes() and lab.archived(rotated) == rotated.read_bytes())
    watcher.looks()
    with lab.store() as db:
        found = rows(db, "SELECT summary FROM events WHERE NOT is_superseded ORDER BY summary")
    assert [text for (text,) in found] == ["after"] * 3 + ["before"] * 2


@pytest.mark.fault(20)
def test_file_that_left_the_roots_is_gone_and_goes_on_where_it_was_when_it_comes_back(lab, watcher):
    path, away = lab.claude_file(), lab.folder / "away"
    path.write_bytes(lines(0, 1))
    watcher.sees(lambda: len(summaries(lab)) == 2)
    append(path, lines(2, text="unread when it left") + b'{"half')
    path.rename(away)
    watcher.sees(lambda: states(lab) == {str(path): "gone"})
    assert summaries(lab)[:2] == ["hello", "hello"]
    assert cursors(lab)[0][1] >= len(lines(0, 1))
    away.rename(path)
    append(path, b'":1}\n' + lines(3, text="back"))
    watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    assert summaries(lab) == ["hello", "hello", "unread when it left", "back"]
    assert counter(lab, "lines") == 5
    assert generations(lab, path) == [(1, None)]


@pytest.mark.fault(21)
def test_copy_is_read_as_a_file_of_its_own(lab, watcher):
    path, copy = lab.claude_file("a1"), lab.claude_file("b2")
    path.write_bytes(lines(*range(10), session="a1"))
    watcher.sees(lambda: len(summaries(lab, "claude:a1")) == 10)
    shutil.copyfile(path, copy)
    for each, text in ((path, "mine"), (copy, "yours")):
        append(each, user_line(10, text, session="a1", uuid=f"own-{text}"))
    watcher.sees(lambda: all(lab.archived(each) == each.read_bytes() for each in (path, copy)))
    assert summaries(lab, "claude:a1") == ["hello"] * 10 + ["mine"]
    assert summaries(lab, "claude:b2") == ["yours"], "what both hold is the first one's"
    assert (counter(lab, "lines"), counter(lab, "replays")) == (22, 10)


@pytest.mark.fault(21)
def test_copy_of_a_whole_home_is_read_too(lab):
    """A backup that is watched as well: the same name in the same place, and yet another file."""
    path, home = lab.claude_file(), lab.folder / "backup"
    lab.write_config(f'[sources.claude]\nroots = ["{lab.claude}", "{home}"]\n')
    path.write_bytes(lines(*range(10)))
    lab.ingest()
    shutil.copytree(lab.claude, home)
    copy = home / path.relative_to(lab.claude)
    append(copy, user_line(10, "in the copy", uuid="own"))
    lab.ingest()
    assert states(lab) == {str(path): "live", str(copy): "live"}
    append(path, lines(10, text="in the first"))
    lab.ingest()
    assert all(lab.archived(each) == each.read_bytes() for each in (path, copy))
    assert sorted(summaries(lab)) == ["hello"] * 10 + ["in the copy", "in the first"]


@pytest.mark.fault(25)
def test_second_name_of_a_file_is_listed_and_the_file_read_once(lab, watcher):
    path, second = lab.claude_file(), lab.claude_file("second-name")
    path.write_bytes(lines(0, 1))
    watcher.sees(lambda: len(summaries(lab)) == 2)
    os.link(path, second)
    append(second, lines(2))
    watcher.sees(lambda: len(summaries(lab)) == 3)
    watcher.looks()
    assert (list(lab.sessions()), counter(lab, "lines")) == (["claude:s1"], 3)
    if watcher.pipeline is not None:
        assert watcher.pipeline.loop.links == {str(second): str(path)}
    path.unlink()  # and now it is the only one
    append(second, lines(3, text="goes on"))
    watcher.sees(lambda: summaries(lab)[3:] == ["goes on"])
    assert counter(lab, "lines") == 4
    if watcher.pipeline is not None:
        until(lambda: watcher.pipeline.loop.links == {})


@pytest.mark.fault(25)
def test_status_lists_every_name_of_a_file(lab):
    path, second = lab.claude_file(), lab.claude_file("second-name")
    path.write_bytes(lines(0))
    os.link(path, second)
    with lab.daemon():
        lab.ingest_through_daemon()
        links = lab.status()["sources"]["links"]
        assert links in ({str(second): str(path)}, {str(path): str(second)})
        until(lambda: lab.status()["counters"]["lines"] == 1)


@pytest.mark.fault(25)
def test_names_of_one_file_that_are_found_together_are_read_once(lab, watcher):
    folder = lab.claude_file().parent.with_name("-new")
    aside = lab.folder / "aside"
    aside.mkdir()
    (aside / "s0.jsonl").write_bytes(lines(0))
    for number in range(1, 6):
        os.link(aside / "s0.jsonl", aside / f"s{number}.jsonl")
    aside.rename(folder)
    watcher.sees(lambda: len(states(lab)) > 0)
    watcher.looks()
    assert (len(states(lab)), counter(lab, "lines")) == (1, 1)


# --- removed and made again -----------------------------------------------------------------------


@pytest.mark.fault(22)
def test_cursor_of_a_deleted_file_is_never_applied_to_another_with_its_inode(lab, watcher):
    old = [lab.claude_file(f"old{number}") for number in range(10)]
    for path in old:
        path.write_bytes(lines(*range(5), text="of the old one", session=path.stem))
    watcher.sees(lambda: counter(lab, "lines") == 50)
    inodes = {path.stat().st_ino for path in old}
    for path in old:
        path.unlink()
    new = [lab.claude_file(f"new{number}") for number in range(10)]
    for path in new:
        path.write_bytes(lines(*range(8), text="of another", session=path.stem))
    if not inodes & {path.stat().st_ino for path in new}:
        pytest.skip("this file system did not use any inode again")
    watcher.sees(lambda: all(lab.archived(path) == path.read_bytes() for path in new))
    watcher.sees(lambda: {states(lab)[str(path)] for path in old} == {"gone"})
    for path in new:
        assert summaries(lab, f"claude:{path.stem}") == ["of another"] * 8
    for path in old:
        assert summaries(lab, f"claude:{path.stem}") == ["of the old one"] * 5


@pytest.mark.fault(22)
@pytest.mark.fault(23)
def test_file_made_again_with_its_name_and_its_inode_is_read_from_its_beginning(lab, watcher):
    path = lab.claude_file()
    inodes = []
    for number in range(8):
        path.unlink(missing_ok=True)
        path.write_bytes(lines(number, 100 + number, text=f"life {number}"))
        inodes.append(path.stat().st_ino)
        watcher.sees(lambda: lab.archived(path) == path.read_bytes())
    if len(set(inodes)) == len(inodes):
        pytest.skip("this file system did not use any inode again")
    assert summaries(lab) == ["life 7"] * 2


def descriptors_of_deleted_files(pid: int, below: Path) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(each)
        except FileNotFoundError:
            continue
        if target.startswith(str(below)) and target.endswith("(deleted)"):
            found.append(target)
    return found


@pytest.mark.fault(23)
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc here to see descriptors in")
@pytest.mark.parametrize("mode", ["native", "poll"])
def test_file_deleted_and_made_again_a_thousand_times_is_followed_and_holds_no_descriptor(lab, mode):
    path = lab.claude_file()
    with lab.daemon(config=f'[watch]\nmode = "{mode}"\npoll_interval = "100ms"\n') as process:
        for number in range(1000):
            path.write_bytes(lines(number, text=f"life {number}"))
            if number < 999:
                path.unlink()
        until(lambda: lab.archived(path) == path.read_bytes(), what="the last life")
        append(path, lines(1000, text="and on"))
        until(lambda: summaries(lab) == ["life 999", "and on"])
        until(lambda: descriptors_of_deleted_files(process.pid, lab.user_home) == [], 60)
        assert states(lab) == {str(path): "live"}


@pytest.mark.fault(24)
def test_file_deleted_before_it_was_read_is_counted_as_vanished(lab):
    path = lab.claude_file()
    with lab.daemon(config='[watch]\nmode = "native"\n'):

        def make_and_delete() -> bool:
            for number in range(20):
                short = path.with_name(f"short{number}.jsonl")
                short.write_bytes(lines(0))
                short.unlink()
            return lab.status()["counters"]["vanished"] > 0

        until(make_and_delete)
        path.write_bytes(lines(0, text="stays"))
        until(lambda: summaries(lab) == ["stays"])
        assert lab.status()["state"] == "ready"


# --- times ----------------------------------------------------------------------------------------


def bytes_read(pid: int | str) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise AssertionError("no rchar")


def wait_for_a_whole_sweep(lab) -> None:
    """Two that ended: the second began after this was called."""
    for _ in range(2):
        before = lab.status()["passes"]["scan"]["last_at"]
        until(lambda: lab.status()["passes"]["scan"]["last_at"] != before)  # noqa: B023 - called at once


@pytest.mark.fault(29)
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="there is no /proc here to see what was read")
def test_touched_file_is_not_read_and_makes_no_row(lab):
    path = lab.claude_file()
    path.write_bytes(lines(*range(5), text="x" * 200_000))
    with lab.daemon(config='[watch]\nmode = "poll"\npoll_interval = "50ms"\n') as process:
        until(lambda: lab.archived(path) == path.read_bytes())
        before = cursors(lab), counter(lab, "lines")
        began = bytes_read(process.pid)
        for number in range(8):
            os.utime(path, (number, number))
            wait_for_a_whole_sweep(lab)
        # 8 MB if each touch read the file; the rest is what the daemon reads of its store meanwhile.
        assert bytes_read(process.pid) - began < 4_000_000
        assert (cursors(lab), counter(lab, "lines")) == before


@pytest.mark.fault(30)
@pytest.mark.parametrize("seconds", [0, 7_258_118_400], ids=["1970", "2200"])
def test_no_time_of_a_file_keeps_it_from_being_read(lab, watcher, seconds):
    path = lab.claude_file()
    path.write_bytes(lines(0, 1))
    os.utime(path, (seconds, seconds))
    watcher.sees(lambda: len(summaries(lab)) == 2)
    append(path, lines(2))
    os.utime(path, (seconds, seconds))
    watcher.sees(lambda: len(summaries(lab)) == 3)
    assert counter(lab, "lines") == 3


@pytest.mark.fault(30)
def test_times_in_the_future_are_warned_of_once_and_counted(lab):
    path = lab.claude_file()
    path.write_bytes(lines(0))
    os.utime(path, (7_258_118_400, 7_258_118_400))
    with lab.daemon(config='[watch]\nmode = "poll"\npoll_interval = "50ms"\n'):
        until(lambda: lab.status()["sources"]["future_mtime"] == 1)
        wait_for_a_whole_sweep(lab)
        assert lab.cli("health").returncode == 0, "nothing is amiss with what was read"
        os.utime(path)
        until(lambda: lab.status()["sources"]["future_mtime"] == 0)
    assert (lab.folder / "daemon.log").read_text().count("future_mtime_seen") == 1


@pytest.mark.fault(30)
@pytest.mark.parametrize("seconds", [-(2**40), 2**40])
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="ext4 keeps no such times; there is no tmpfs here")
def test_times_that_no_calendar_has_do_no_harm(lab, seconds):
    """Also to a file that says nothing about time itself, and to what tells how far history is."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        lab.write_config(POLLING + f'[sources.claude]\nroots = ["{home}"]\n')
        path = Path(home, "projects", "-w", "s1.jsonl")
        path.parent.mkdir(parents=True)
        path.write_bytes(lines(0) + b'{"type":"summary","summary":"x"}\n')
        os.utime(path, (seconds, seconds))
        pipeline = lab.pipeline("poll")
        pipeline.start()
        try:
            until(lambda: summaries(lab))
            settle(pipeline)
            assert pipeline.history()["percent"] == 100.0
            assert lab.troubles.listing() == []
        finally:
            pipeline.stop()
    assert moment(seconds * 10**9).year in (1019, 9999)


# --- what no stat tells ---------------------------------------------------------------------------


def rewrite_unnoticed(path: Path, old: bytes, new: bytes) -> None:
    """As a program does that puts size and mtime back."""
    facts = path.stat()
    data = path.read_bytes()
    assert len(old) == len(new)
    assert data.count(old) == 1
    rewrite_in_place(path, data.replace(old, new))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.fixture
def hourly(monkeypatch):
    """Every sweep compares, as else one in an hour does."""
    return lambda: monkeypatch.setattr(recheck, "SECONDS", 0.0)


@pytest.mark.fault(31)
@pytest.mark.parametrize("where", ["head", "tail"])
def test_hourly_check_finds_what_was_rewritten_with_its_size_and_mtime_kept(lab, hourly, where):
    path = lab.claude_file()
    path.write_bytes(lines(0, text="head") + lines(*range(1, 20)) + lines(20, text="tail"))
    watching = Watcher(lab, "poll")
    try:
        watching.sees(lambda: lab.archived(path) == path.read_bytes())
        rewrite_unnoticed(path, where.encode(), b"else")
        watching.looks()
        assert lab.archived(path) != path.read_bytes(), "its stat says that it is the same"
        hourly()
        watching.sees(lambda: lab.archived(path) == path.read_bytes())
        assert generations(lab, path) == [(1, None), (2, "rewritten")]
    finally:
        watching.stop()


@pytest.mark.fault(17)
@pytest.mark.fault(31)
@pytest.mark.parametrize("mode", ["native", "poll"])
def test_hourly_check_finds_an_edit_in_the_middle_of_a_file_that_changed_since_the_last(lab, hourly, mode):
    """Between the first kilobyte and the last 256 bytes a single read does not see it."""
    path = lab.claude_file()
    path.write_bytes(lines(*range(20)) + lines(20, text="middle") + lines(*range(21, 40)))
    watching = Watcher(lab, mode)
    try:
        watching.sees(lambda: lab.archived(path) == path.read_bytes())
        rewrite_in_place(path, path.read_bytes().replace(b"middle", b"edited"))
        append(path, lines(40, text="goes on"))
        watching.sees(lambda: summaries(lab)[-1:] == ["goes on"])
        assert b"middle" in lab.archived(path)
        hourly()
        watching.looks()
        watching.sees(lambda: lab.archived(path) == path.read_bytes())
        assert generations(lab, path) == [(1, None), (2, "rewritten")]
        assert len(summaries(lab)) == 41, "the same records, none twice"
    finally:
        watching.stop()


@pytest.mark.fault(31)
def test_hourly_check_leaves_files_alone_that_are_as_they_were(lab, hourly):
    hourly()
    watching = Watcher(lab, "poll")
    try:
        for number in range(50):
            lab.claude_file(f"s{number}").write_bytes(lines(0, 1, session=f"s{number}"))
        watching.sees(lambda: counter(lab, "lines") == 100)
        before = cursors(lab)
        for _ in range(3):
            watching.looks()
            until(lambda: watching.pipeline.loop.inbox.is_idle)
        assert (cursors(lab), counter(lab, "lines"), counter(lab, "generations")) == (before, 100, 0)
        assert watching.pipeline.history()["percent"] == 100.0
    finally:
        watching.stop()
