"""Rows 26-28, 32-38 and 82: where files lie. Links, pipes, odd names, roots that come and go, mounts, closed folders,
too few descriptors, a writer that is faster than the reader. Scenarios that need a namespace run this file as a program.
"""

# ruff: noqa: E402 - run as a program it must find its neighbours first

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1, 0)]  # run as a program it has no conftest

from lab import Lab, append, settle, states, until, user_line
from namespaces import inside, mount_tmpfs
from sessiond.intake.unseen import Unseen
from sessiond.store.connect import rows, value
from sessiond.trouble import Troubles

MODES = pytest.mark.parametrize("mode", ["native", "poll"])
POLL_FIRST = pytest.mark.parametrize("mode", ["poll", pytest.param("native", marks=pytest.mark.long)])
NATIVE_FIRST = pytest.mark.parametrize("mode", ["native", pytest.param("poll", marks=pytest.mark.long)])


def watching(mode: str) -> str:
    return f'[watch]\nmode = "{mode}"\npoll_interval = "100ms"\nscan_interval = "1s"\n'


def lines(*numbers: int, text: str = "hello", session: str = "s1") -> bytes:
    return b"".join(user_line(number, text, session=session) for number in numbers)


def stored(lab: Lab, session: str = "s1") -> int:
    with lab.store() as db:
        return int(value(db, "SELECT count(*) FROM events WHERE session_uid = ?", (f"claude:{session}",)))


def lines_read(lab: Lab) -> int:
    with lab.store() as db:
        return int(value(db, "SELECT value FROM _counter WHERE name = 'lines'") or 0)


def generations(lab: Lab) -> int:
    with lab.store() as db:
        return int(value(db, "SELECT count(*) FROM _generation"))


def troubles(lab: Lab) -> dict[str, dict]:
    return {each["name"]: each for each in lab.status()["degraded"]}


def in_the_store(lab: Lab, needle: bytes) -> bool:
    with lab.store() as db:
        frames = rows(db, "SELECT path FROM _source")
        found = any(needle in lab.archived(Path(os.fsdecode(path))) for (path,) in frames)
        return found or bool(value(db, "SELECT count(*) FROM _event WHERE instr(summary, ?)", (needle.decode(),)))


# --- links, pipes and other things that are no files ----------------------------------------------


@pytest.mark.fault(26)
@MODES
def test_links_below_a_root_are_not_followed_and_a_root_that_is_a_link_is(lab, mode):
    outside = lab.folder / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(lines(0, text="secret words", session="secret"))
    data = lab.folder / "data"
    data.mkdir()
    lab.claude.symlink_to(data)
    path = lab.claude_file()
    with lab.daemon(config=watching(mode)):
        path.write_bytes(lines(0))
        folder = path.parent
        (folder / "file.jsonl").symlink_to(outside / "secret.jsonl")
        (folder / "chain.jsonl").symlink_to("file.jsonl")
        (folder / "self.jsonl").symlink_to("self.jsonl")
        (folder / "nowhere.jsonl").symlink_to("missing")
        (folder / "way-out").symlink_to(outside)
        (folder / "loop").symlink_to(folder)
        (folder / "etc").symlink_to("/etc")
        until(lambda: stored(lab) == 1)
        append(path, lines(1))
        until(lambda: stored(lab) == 2)
        until(lambda: lab.status()["sources"]["special"] == 4, what="the four links that are named like sessions")
        assert lab.status()["state"] == "ready"
    assert states(lab) == {str(data / "projects" / "-w" / "s1.jsonl"): "live"}
    assert not in_the_store(lab, b"secret words")


@pytest.mark.fault(27)
@MODES
def test_pipes_sockets_devices_and_folders_named_like_sessions_hold_nothing_up(lab, mode):
    path = lab.claude_file()
    folder = path.parent
    with lab.daemon(config=watching(mode)):
        os.mkfifo(folder / "pipe.jsonl")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "socket.jsonl"))
        (folder / "folder.jsonl").mkdir()
        special = 2
        if os.getuid() == 0:
            os.mknod(folder / "device.jsonl", 0o20600, os.makedev(1, 5))  # /dev/zero: it would never end
            special = 3
        path.write_bytes(lines(0))
        until(lambda: stored(lab) == 1)
        (folder / "folder.jsonl" / "inside.jsonl").write_bytes(lines(0, session="inside"))
        until(lambda: lab.status()["sources"]["special"] == special)
        assert lab.status()["state"] == "ready"
        path.unlink()  # and one that takes a file's place
        os.mkfifo(path)
        until(lambda: lab.status()["sources"]["special"] == special + 1)
        until(lambda: states(lab)[str(path)] == "gone")
        assert lab.status()["degraded"] == []


@pytest.mark.fault(82)
def test_folder_and_file_that_are_swapped_for_links_under_the_reader_give_nothing_away(lab):
    """The swaps go on all the time: between any look at the path and its use there is one sooner or later."""
    outside = lab.folder / "outside"
    outside.mkdir()
    for name in ("s1.jsonl", "s2.jsonl"):
        (outside / name).write_bytes(lines(*range(50), text="secret words"))
    real, single = lab.claude_file(slug="-swapped"), lab.claude_file("s2", slug="-fixed")
    real.write_bytes(lines(0, text="fine"))
    single.write_bytes(lines(0, text="fine", session="s2"))
    stopped = threading.Event()
    swaps = [swap_for_ever(real.parent, outside, stopped), swap_for_ever(single, outside / "s2.jsonl", stopped)]
    pipeline = lab.pipeline("poll")
    pipeline.start()
    try:
        deadline, number = time.monotonic() + 2, 0
        while time.monotonic() < deadline:
            for path in (real, single):
                pipeline.loop._hint(str(path))  # as a busy watch would
            number += 1
            time.sleep(0.0005)
    finally:
        stopped.set()
        for thread in swaps:
            thread.join()
    append(real, lines(1, text="fine"))
    append(single, lines(1, text="fine", session="s2"))
    try:
        until(lambda: (stored(lab), stored(lab, "s2")) == (2, 2), what="both files, back in their places")
        settle(pipeline)
    finally:
        pipeline.stop()
    assert number > 200
    assert not in_the_store(lab, b"secret words")
    assert lab.archived(real) == real.read_bytes()
    assert lines_read(lab) == 4


def swap_for_ever(place: Path, target: Path, stopped: threading.Event) -> threading.Thread:
    """Puts a link to `target` where `place` is, and `place` back, until told to stop; then it is as it was."""
    aside, link = place.with_name(place.name + ".aside"), place.with_name(place.name + ".link")

    def swap() -> None:
        while not stopped.is_set():
            link.symlink_to(target)
            place.rename(aside)
            link.rename(place)
            place.unlink()
            aside.rename(place)

    thread = threading.Thread(target=swap)
    thread.start()
    return thread


# --- names ----------------------------------------------------------------------------------------

ODD_NAMES = {
    "newline": b"a\nb",
    "not_utf8": b"\xff\xfe",
    "right_to_left": "\u202egnp".encode(),
    "escape": b"\x1b[31mred",
    "255_bytes": b"n" * 249,
}


@pytest.mark.fault(28)
@MODES
def test_any_name_is_taken_in_and_shown_without_harm(lab, mode):
    paths = []
    for number, name in enumerate(ODD_NAMES.values()):
        paths.append(lab.claude_file(os.fsdecode(name), slug=os.fsdecode(name)))
        paths[-1].write_bytes(lines(0, session=f"in{number}"))
    with lab.daemon(config=watching(mode)):
        until(lambda: lines_read(lab) == len(paths))
        for number, path in enumerate(paths):
            append(path, lines(1, session=f"in{number}"))
        until(lambda: lines_read(lab) == 2 * len(paths))
        assert states(lab) == {str(path): "live" for path in paths}
        listed = lab.cli("sessions", "--json")
        assert listed.returncode == 0, listed.stderr
        assert len(json.loads(listed.stdout)) == len(paths)
        for words in (["sessions"], ["status"], ["sessions", "--all"]):
            shown = lab.cli(*words)
            assert shown.returncode == 0, shown.stderr
            assert "\x1b" not in shown.stdout
            assert "\u202e" not in shown.stdout
        assert lab.status()["state"] == "ready"


@pytest.mark.fault(28)
def test_path_too_long_for_the_system_is_named_and_its_neighbours_are_read(lab):
    path, near = lab.claude_file(), lab.claude_file("near", slug="d" * 200)
    path.write_bytes(lines(0))
    near.write_bytes(lines(0, session="near"))
    with inside_of(near.parent) as at:
        for _ in range(25):  # 5000 bytes: nobody can name it from the root, and yet it is there
            os.mkdir("d" * 200, dir_fd=at())
            at("d" * 200)
        fd = os.open("deep.jsonl", os.O_CREAT | os.O_WRONLY, dir_fd=at())
        os.write(fd, lines(0, session="deep"))
        os.close(fd)
    with lab.daemon(config=watching("poll")):
        until(lambda: (stored(lab), stored(lab, "near")) == (1, 1))
        until(lambda: "ENAMETOOLONG" in troubles(lab).get("unreadable", {"detail": ""})["detail"])
    subprocess.run(["rm", "-r", str(near.parent)], check=True)


@contextmanager
def inside_of(folder: Path):
    """Steps down from folder to folder: `at(name)` goes into one, `at()` is the descriptor of where that led."""
    fds = [os.open(folder, os.O_RDONLY)]

    def at(name: str | None = None) -> int:
        if name is not None:
            fds.append(os.open(name, os.O_RDONLY, dir_fd=fds[-1]))
        return fds[-1]

    yield at
    for fd in fds:
        os.close(fd)


# --- a fast writer --------------------------------------------------------------------------------


def read_so_far(lab: Lab, path: Path) -> int:
    with lab.store() as db:
        return int(value(db, "SELECT read_offset FROM _source WHERE path = ?", (os.fsencode(path),)) or 0)


class HotWriter(threading.Thread):
    """Keeps one file several chunks ahead of its reader, which so never comes to its end."""

    AHEAD = 20 * 2**20  # more than may wait to be written: the reader itself is behind

    def __init__(self, lab: Lab) -> None:
        super().__init__()
        self.path = lab.claude_file("hot")
        self.path.write_bytes(lines(0, session="hot"))
        self._line = lines(0, text="x" * 2000, session="hot")
        self.written = 1
        self.is_stopped = threading.Event()
        self._lab = lab

    def run(self) -> None:
        with self.path.open("ab", buffering=0) as file:
            while not self.is_stopped.wait(0.01):
                while file.tell() - read_so_far(self._lab, self.path) < self.AHEAD:
                    numbers = range(self.written, self.written + 400)
                    file.write(b"".join(self._line.replace(b"uhot-0", b"uhot-%d" % number) for number in numbers))
                    self.written += 400


def latencies(lab: Lab, count: int, slow: int) -> tuple[list[float], int]:
    """How long each line took to be stored that was appended to one of the slow files; the most lag that was shown."""
    took: list[float] = []
    lag = 0
    while len(took) < count:
        number, session = len(took) // slow, f"slow{len(took) % slow}"
        began = time.monotonic()
        append(lab.claude_file(session), lines(number, session=session))
        until(lambda: stored(lab, session) == number + 1, 60)  # noqa: B023 - called at once
        took.append(time.monotonic() - began)
        if len(took) % 5 == 0:
            lag = max(lag, lab.status()["sources"]["lag_bytes"])
    return took, lag


def assert_slow_files_are_not_held_up(lab: Lab, count: int, limit: float) -> None:
    with lab.daemon(config=watching("native")):
        hot = HotWriter(lab)
        until(lambda: stored(lab, "hot") == 1)
        hot.start()
        try:
            took, lag = latencies(lab, count, 100)
        finally:
            hot.is_stopped.set()
            hot.join()
        p99 = statistics.quantiles(took, n=100)[98]
        print(f"{len(took)} lines of slow files: p50 {statistics.median(took):.3f} s, p99 {p99:.3f} s;")
        print(f"{hot.written} lines of the hot file, {lag / 2**20:.1f} MiB behind at most")
        assert p99 < limit
        assert lag > 2**20, "how far behind it is, is shown"
        until(lambda: stored(lab, "hot") == hot.written, 60, "the rest of the hot file")
        until(lambda: lab.status()["sources"]["lag_bytes"] == 0)
        assert lines_read(lab) == hot.written + len(took)


@pytest.mark.fault(32)
def test_one_file_that_grows_faster_than_it_is_read_does_not_hold_up_the_others(lab):
    assert_slow_files_are_not_held_up(lab, 15, limit=6.0)


@pytest.mark.long
@pytest.mark.fault(32)
def test_hot_writer_and_two_lines_of_each_of_a_hundred_slow_ones(lab):
    assert_slow_files_are_not_held_up(lab, 200, limit=3.0)


# --- what may not be read: without root's right to read everything --------------------------------


class Ordinary(Lab):
    """The same machine, where modes of files hold for the daemon, whoever runs the tests."""

    BOUND = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")

    def start_daemon(self, *, config: str | None = None) -> subprocess.Popen:
        if config is not None:
            self.write_config(config)
        argv = [*(self.BOUND if os.getuid() == 0 else ()), sys.executable, "-m", "sessiond", "run"]
        with (self.folder / "daemon.log").open("ab") as log:
            return subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@pytest.fixture
def ordinary(lab):
    machine = Ordinary(lab.folder)
    closed = lab.folder / "closed"
    closed.touch(mode=0)
    bound = machine.BOUND if os.getuid() == 0 else ()
    if bound and shutil.which(bound[0]) is None:
        pytest.skip("root runs these tests, and there is no setpriv here to take its rights away")
    if subprocess.run([*bound, "cat", str(closed)], capture_output=True).returncode == 0:
        pytest.skip("no mode keeps this user from reading")
    return machine


def append_and_close(path: Path, data: bytes) -> None:
    """As a program does that has it open while nobody else may read it any more."""
    with path.open("ab", buffering=0) as file:
        path.chmod(0)
        file.write(data)


def log_lines(lab: Lab, word: str) -> int:
    return (lab.folder / "daemon.log").read_text().count(word)


@pytest.mark.fault(33)
def test_file_that_may_not_be_read_is_named_once_and_read_when_it_may(ordinary):
    lab = ordinary
    path, other = lab.claude_file(), lab.claude_file("s2")
    path.write_bytes(lines(0))
    other.write_bytes(lines(0, session="s2"))
    path.chmod(0)
    with lab.daemon(config=watching("native")):
        until(lambda: stored(lab, "s2") == 1)
        until(lambda: "unreadable" in troubles(lab))
        assert "EACCES" in troubles(lab)["unreadable"]["detail"]
        assert str(path) in troubles(lab)["unreadable"]["detail"]
        for number in (1, 2, 3):  # a few sweeps on
            append(other, lines(number, session="s2"))
            until(lambda: stored(lab, "s2") == number + 1)  # noqa: B023 - called at once
            time.sleep(0.4)
        assert log_lines(lab, str(path)) == 1
        path.chmod(0o600)
        until(lambda: stored(lab) == 1, what="the file after it was opened")
        until(lambda: "unreadable" not in troubles(lab))
        append_and_close(path, lines(1))  # once more, with a cursor to keep
        until(lambda: "unreadable" in troubles(lab))
        path.chmod(0o600)
        until(lambda: stored(lab) == 2)
        append_and_close(path, lines(2))
        until(lambda: "unreadable" in troubles(lab))
        path.unlink()  # never readable again: and yet it is missed
        until(lambda: states(lab)[str(path)] == "gone")
    assert lines_read(lab) == 6


@pytest.mark.fault(34)
@POLL_FIRST
def test_folder_that_may_not_be_read_keeps_the_cursors_of_all_below_it(ordinary, mode):
    lab = ordinary
    paths = [lab.claude_file(f"s{number}", slug="-closed") for number in range(5)]
    for path in paths:
        path.write_bytes(lines(0, session=path.stem))
    closed = paths[0].parent
    with lab.daemon(config=watching(mode)):
        until(lambda: lines_read(lab) == 5)
        closed.chmod(0)
        until(lambda: "unreadable" in troubles(lab))
        assert str(closed) in troubles(lab)["unreadable"]["detail"]
        before = lab.status()["passes"]["scan"]["last_at"]
        until(lambda: lab.status()["passes"]["scan"]["last_at"] != before)
        assert set(states(lab).values()) == {"live"}
        closed.chmod(0o700)
        until(lambda: "unreadable" not in troubles(lab))
        for path in paths:
            append(path, lines(1, session=path.stem))
        until(lambda: all(stored(lab, path.stem) == 2 for path in paths))
    assert (lines_read(lab), generations(lab)) == (10, 5), "nothing was read again"


# --- roots and trees that come and go -------------------------------------------------------------


@pytest.mark.fault(35)
@NATIVE_FIRST
def test_root_that_is_absent_deleted_made_again_and_moved_away_and_back(lab, mode):
    root = lab.claude / "projects"
    with lab.daemon(config=watching(mode)) as process:
        path = lab.claude_file()
        path.write_bytes(lines(0))
        until(lambda: stored(lab) == 1, what="a root that came later")
        shutil.rmtree(root)
        path = lab.claude_file("s2")
        path.write_bytes(lines(0, session="s2"))
        until(lambda: stored(lab, "s2") == 1, what="a root made again")
        append(path, lines(1, session="s2"))
        until(lambda: stored(lab, "s2") == 2)
        root.rename(lab.folder / "away")
        until(lambda: {r["state"] for r in lab.status()["watch"]["roots"] if r["folder"] == str(root)} <= {"absent"}
              or mode == "poll")  # fmt: skip
        time.sleep(0.5)
        assert states(lab)[str(path)] == "live", "below a root that is absent nothing is gone"
        (lab.folder / "away").rename(root)
        append(path, lines(2, session="s2"))
        until(lambda: stored(lab, "s2") == 3, what="a root that came back")
        assert process.poll() is None
    assert (lines_read(lab), generations(lab)) == (4, 2)


@pytest.mark.fault(36)
@NATIVE_FIRST
def test_what_is_written_below_a_folder_that_moved_out_is_no_longer_ours(lab, mode):
    paths = [lab.claude_file(f"s{number}", slug="-leaving") for number in range(3)]
    for path in paths:
        path.write_bytes(lines(0, session=path.stem))
    away = lab.folder / "away"
    with lab.daemon(config=watching(mode)):
        until(lambda: lines_read(lab) == 3)
        paths[0].parent.rename(away)
        for path in paths:
            append(away / path.name, lines(1, text="elsewhere", session=path.stem))
        until(lambda: set(states(lab).values()) == {"gone"})
        again = lab.claude_file("s0", slug="-leaving")  # the old name, and another file
        again.write_bytes(lines(5, session="s0"))
        until(lambda: lab.archived(again) == again.read_bytes())
        assert not in_the_store(lab, b"elsewhere")
        assert lines_read(lab) == 4


# --- mounts ---------------------------------------------------------------------------------------


def mounted_over(lab: Lab, mode: str) -> None:
    """A file system is mounted over a folder, used, and taken away again."""
    paths = [lab.claude_file(f"s{number}", slug="-covered") for number in range(5)]
    other = lab.claude_file("other", slug="-beside")
    for path in (*paths, other):
        path.write_bytes(lines(0, session=path.stem))
    with lab.daemon(config=watching(mode)):
        until(lambda: lines_read(lab) == 6)
        mount_tmpfs(paths[0].parent)
        until(lambda: "hidden" in troubles(lab))
        assert "5 files" in troubles(lab)["hidden"]["detail"]
        assert lab.cli("health").returncode == 1
        other.unlink()
        (paths[0].parent / "new.jsonl").write_bytes(lines(0, session="new"))
        until(lambda: stored(lab, "new") == 1, what="what was written to the new file system")
        until(lambda: states(lab)[str(other)] == "gone", what="a deletion beside it")
        assert {states(lab)[str(path)] for path in paths} == {"live"}
        subprocess.run(["umount", str(paths[0].parent)], check=True)
        until(lambda: {each for each in troubles(lab) if each != "hidden"} == set() and lab.status() is not None)
        for path in paths:
            append(path, lines(1, session=path.stem))
        until(lambda: all(stored(lab, path.stem) == 2 for path in paths))
        assert {states(lab)[str(path)] for path in paths} == {"live"}
    assert (lines_read(lab), generations(lab)) == (12, 7)


def unmounted(lab: Lab, mode: str) -> None:
    """The disk that the files are on goes away, also while sessiond is off, and comes back."""
    disk = lab.folder / "disk"
    mount_tmpfs(disk)
    path = lab.claude_file(slug="-on-a-disk")
    subprocess.run(["mount", "--bind", str(disk), str(path.parent)], check=True)
    path.write_bytes(lines(0))
    with lab.daemon(config=watching(mode)):
        until(lambda: stored(lab) == 1)
        subprocess.run(["umount", str(path.parent)], check=True)
        until(lambda: "hidden" in troubles(lab))
    with lab.daemon():
        until(lambda: "hidden" in troubles(lab))
        assert states(lab)[str(path)] == "live"
        subprocess.run(["mount", "--bind", str(disk), str(path.parent)], check=True)
        append(path, lines(1))
        until(lambda: stored(lab) == 2)
        until(lambda: lab.status()["state"] == "ready")
    assert (lines_read(lab), generations(lab)) == (2, 1)


def gives_eio(path: Path) -> bool:
    try:
        with path.open("rb", buffering=0) as file:
            file.read(1)
    except OSError as error:
        return error.errno == errno.EIO
    return False


def failing_disk(lab: Lab, mode: str) -> None:
    """One file gives EIO: the memory of a process, read where nothing is mapped, does so for real."""
    bad, good = lab.claude_file("bad"), lab.claude_file("good")
    bad.write_bytes(lines(0, session="bad"))
    good.write_bytes(lines(0, session="good"))
    with lab.daemon(config=watching(mode)):
        until(lambda: lines_read(lab) == 2)
        subprocess.run(["mount", "--bind", f"/proc/{os.getpid()}/mem", str(bad)], check=True)
        if not gives_eio(bad):
            print("SKIP this kernel lets nobody read the memory of a process")
            return
        until(lambda: "EIO" in troubles(lab).get("unreadable", {"detail": ""})["detail"])
        append(good, lines(1, session="good"))
        until(lambda: stored(lab, "good") == 2)
        assert states(lab)[str(bad)] == "live"
        subprocess.run(["umount", str(bad)], check=True)
        append(bad, lines(1, session="bad"))
        until(lambda: stored(lab, "bad") == 2, 30)
        until(lambda: lab.status()["state"] == "ready")
    assert (lines_read(lab), generations(lab)) == (4, 2)


@pytest.mark.fault(37)
@POLL_FIRST
def test_files_below_a_mount_are_hidden_not_gone_and_go_on_after_it(lab, mode):
    inside(__file__, "mounted_over", lab, mode)


@pytest.mark.long
@pytest.mark.fault(37)
def test_files_on_a_disk_that_was_taken_away_wait_for_it(lab):
    inside(__file__, "unmounted", lab, "poll")


@pytest.mark.fault(37)
def test_failing_disk_keeps_the_cursor_and_is_tried_ever_more_rarely(lab):
    if "SKIP" in (told := inside(__file__, "failing_disk", lab, "poll")):
        pytest.skip(told)


@pytest.mark.fault(37)
def test_attempts_at_a_file_that_cannot_be_read_grow_rare_but_for_one_that_may_not(lab):
    unseen = Unseen(Troubles(lambda: datetime.now(UTC), lambda _, __: None))
    attempts = {"bad": 0, "denied": 0}
    for second in range(3600):
        for name, number in (("bad", errno.EIO), ("denied", errno.EACCES)):
            if not unseen.is_resting(name, second):
                unseen.failed(name, OSError(number, ""), second)
                attempts[name] += 1
    assert attempts["denied"] == 3600, "a permission may be granted at any time"
    assert attempts["bad"] < 20
    unseen.was_read("bad")
    assert not unseen.is_resting("bad", 3600)


# --- descriptors ----------------------------------------------------------------------------------


class Limited(Lab):
    descriptors = 64

    def start_daemon(self, *, config: str | None = None) -> subprocess.Popen:
        if config is not None:
            self.write_config(config)
        argv = ["sh", "-c", f'ulimit -n {self.descriptors} && exec "$@"', "sh", sys.executable, "-m", "sessiond", "run"]
        with (self.folder / "daemon.log").open("ab") as log:
            return subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@pytest.mark.fault(38)
@NATIVE_FIRST
def test_five_hundred_files_and_sixteen_clients_with_sixty_four_descriptors(lab, mode):
    machine = Limited(lab.folder)
    paths = [machine.claude_file(f"s{number}", slug=f"-{number % 20}") for number in range(500)]
    for path in paths:
        path.write_bytes(lines(0, session=path.stem))
    with machine.daemon(config=watching(mode)):
        until(lambda: lines_read(machine) == 500)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(16)]
        for client in clients:
            client.connect(str(machine.paths.socket))
        for path in paths:
            append(path, lines(1, session=path.stem))
        until(lambda: lines_read(machine) == 1000)
        for client in clients:
            client.close()
        assert until(machine.status)["state"] == "ready"
    assert generations(machine) == 500


@pytest.mark.fault(38)
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of another process cannot be set here")
def test_without_any_descriptor_no_cursor_is_lost_and_nothing_is_read_twice(lab):
    paths = [lab.claude_file(f"s{number}") for number in range(100)]
    for path in paths:
        path.write_bytes(lines(0, session=path.stem))
    with lab.daemon(config=watching("poll")) as process:
        until(lambda: lines_read(lab) == 100)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{process.pid}/fd"))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used // 2, before[1]))
        for path in paths:
            append(path, lines(1, session=path.stem))
        paths[0].unlink()
        time.sleep(1.5)  # sweeps that see nothing, reads that fail
        assert set(states(lab).values()) == {"live"}
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        until(lambda: lines_read(lab) == 199, 30, "everything, once there were descriptors again")
        until(lambda: states(lab)[str(paths[0])] == "gone")
        until(lambda: lab.status()["state"] == "ready", 30)
    assert generations(lab) == 100


if __name__ == "__main__":
    globals()[sys.argv[1]](Lab(Path(sys.argv[2])), sys.argv[3])
