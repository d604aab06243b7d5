"""The watch, with the real watchdog on real directories: hints come, and what breaks is noticed and mended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest

from sessiond.intake.scan import Root, sweep
from sessiond.intake.watch import NativeWatch, WatchedRoot, make_watch
from sessiond.intake.watching import mounts

PROJECT = Path(__file__).resolve().parents[2]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Heard:
    """What a watch told, to be waited on."""

    def __init__(self) -> None:
        self.hints: list[str] = []
        self.troubles: list[str] = []
        self._changed = threading.Condition()

    def hint(self, path: str) -> None:
        with self._changed:
            self.hints.append(path)
            self._changed.notify_all()

    def trouble(self, reason: str) -> None:
        with self._changed:
            self.troubles.append(reason)
            self._changed.notify_all()

    def wait(self, condition, seconds: float = 10) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    def hears_of(self, path: Path) -> bool:
        """Append to the file; True when that is hinted."""
        before = len(self.hints)
        append(path)
        return self.wait(lambda: str(path) in self.hints[before:])


def append(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"{}\n")


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def watch(heard):
    watch = make_watch("auto", heard.hint, heard.trouble)
    yield watch
    watch.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "projects").mkdir(parents=True)
    return Path(os.path.realpath(tmp_path / "home"))


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "projects"


def root_of(home: Path) -> Root:
    return Root("heron", str(home), "projects")


def state(watch) -> str:
    return watch.health.roots[0].state


# --- hints ----------------------------------------------------------------------------------------


def test_files_that_are_made_grow_move_and_go_are_hinted(watch, heard, home, folder):
    (folder / "sub").mkdir()
    watch.start([root_of(home)])
    a, b, out = folder / "a.jsonl", folder / "sub" / "b.jsonl", home / "out.jsonl"

    assert watch.health.is_complete
    assert heard.hears_of(a)
    assert heard.hears_of(a)
    os.rename(a, b)
    assert heard.wait(lambda: str(b) in heard.hints)
    heard.hints.clear()
    os.rename(b, out)
    assert heard.wait(lambda: str(b) in heard.hints)
    heard.hints.clear()
    os.rename(out, a)
    assert heard.wait(lambda: str(a) in heard.hints)
    heard.hints.clear()
    a.unlink()
    assert heard.wait(lambda: str(a) in heard.hints)


@pytest.mark.fault(43)
def test_own_reading_causes_no_hints(watch, heard, home, folder):
    session = folder / "sub" / "a.jsonl"
    append(session)
    watch.start([root_of(home)])
    for _ in range(20):
        session.read_bytes()
        os.listdir(folder)
        sweep([root_of(home)], lambda *_: True)
    assert heard.hears_of(folder / "last.jsonl")

    assert set(heard.hints) == {str(folder / "last.jsonl")}
    assert heard.troubles == []


def test_a_move_out_does_not_hold_up_the_hints_after_it(watch, heard, home, folder):
    """watchdog waits half a second for the other end of a move, and everything else waits with it."""
    watch.start([root_of(home)])
    waits = []
    for n in range(5):
        append(folder / "x.tmp")
        os.rename(folder / "x.tmp", home / "x.tmp")
        began = time.monotonic()
        assert heard.hears_of(folder / f"{n}.jsonl")
        waits.append(time.monotonic() - began)

    assert min(waits) < 0.25


@pytest.mark.fault(44)
def test_deep_new_directories_with_files_written_at_once_are_covered(watch, heard, home, folder):
    watch.start([root_of(home)])
    files = [folder / f"a{n}" / "b" / "c" / "s.jsonl" for n in range(300)]
    for file in files:
        append(file)
    heard.wait(lambda: {str(f) for f in files} <= set(heard.hints), 5)
    assert heard.wait(lambda: "directory_changed" in heard.troubles), "a sweep is asked for"

    seen = sweep([root_of(home)], lambda *_: True).files
    assert {str(f) for f in files} <= set(heard.hints) | set(seen)
    assert heard.hears_of(files[-1]), "and what is new is watched"


@pytest.mark.fault(36)
def test_a_subtree_that_moves_out_asks_for_a_sweep(watch, heard, home, folder):
    append(folder / "sub" / "a.jsonl")
    watch.start([root_of(home)])
    os.rename(folder / "sub", home / "away")

    assert heard.wait(lambda: "directory_changed" in heard.troubles)


def test_a_renamed_directory_is_hinted_under_its_new_name(watch, heard, home, folder):
    append(folder / "sub" / "deep" / "a.jsonl")
    watch.start([root_of(home)])
    for n in range(20):
        os.rename(folder / ("sub" if n == 0 else f"sub{n - 1}"), folder / f"sub{n}")

    last = folder / "sub19" / "deep" / "a.jsonl"
    assert heard.wait(lambda: str(last) in heard.hints)
    assert heard.hears_of(last)


@pytest.mark.parametrize("name", [b"new\nline", b"\xff\xfe", b"n" * 249])
@linux_only
@pytest.mark.fault(28)
def test_any_byte_name_is_hinted_as_the_sweep_names_it(watch, heard, home, folder, name):
    watch.start([root_of(home)])
    path = os.path.join(os.fsencode(folder), name + b".jsonl")
    with open(path, "wb") as file:
        file.write(b"{}\n")

    assert heard.wait(lambda: os.fsdecode(path) in heard.hints)
    assert os.fsdecode(path) in sweep([root_of(home)], lambda *_: True).files


def test_a_fifo_is_not_opened(watch, heard, home, folder):
    os.mkfifo(folder / "pipe.jsonl")
    watch.start([root_of(home)])
    os.mkfifo(folder / "later.jsonl")

    assert heard.hears_of(folder / "a.jsonl")
    assert watch.check(0.0) == []


def test_links_below_the_root_are_not_followed(watch, heard, home, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, folder / "way-out")
    os.symlink(folder, folder / "loop")
    watch.start([root_of(home)])
    os.symlink(outside, folder / "later")
    append(outside / "secret.jsonl")
    assert heard.hears_of(folder / "a.jsonl")

    assert not [path for path in heard.hints if "secret" in path]
    assert watch.check(0.0) == []
    assert watch.health.problems == {}


# --- roots come, go and change --------------------------------------------------------------------


@pytest.mark.fault(35)
def test_a_root_that_comes_later_is_watched(watch, heard, tmp_path):
    home = tmp_path / "late"
    watch.start([root_of(home)])
    assert state(watch) == "absent"
    assert watch.check(0.0) == []
    append(home / "projects" / "before.jsonl")

    assert watch.check(1.0) == ["root_changed"]
    assert heard.troubles == ["root_changed"], "the sweep that this asks for finds what came before the watch"
    assert state(watch) == "watched"
    assert heard.hears_of(home / "projects" / "after.jsonl")
    assert watch.check(2.0) == []


@pytest.mark.fault(35)
def test_a_root_deleted_and_made_again_is_watched_again(watch, heard, home, folder):
    watch.start([root_of(home)])
    for n in range(3):  # ext4 gives the new folder the old inode: the emitter that ended tells as well
        shutil.rmtree(folder)
        folder.mkdir()
        deadline = time.monotonic() + 10
        while "root_changed" not in watch.check(float(n)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert heard.hears_of(folder / "a.jsonl")
    assert state(watch) == "watched"


def test_a_root_deleted_for_good_is_absent(watch, home, folder):
    watch.start([root_of(home)])
    shutil.rmtree(folder)

    assert "root_changed" in watch.check(0.0)
    assert state(watch) == "absent"
    assert watch.health.is_complete, "an agent that is not there is no problem"


@pytest.mark.fault(35)
def test_a_root_replaced_by_another_folder_is_watched_in_its_new_place(watch, heard, home, folder):
    watch.start([root_of(home)])
    os.rename(folder, home / "old")
    (home / "new").mkdir()
    os.rename(home / "new", folder)

    assert watch.check(0.0) == ["root_changed"]
    assert heard.hears_of(folder / "a.jsonl")


@pytest.mark.fault(35)
def test_a_root_moved_away_and_back_is_watched_again(watch, heard, home, folder):
    watch.start([root_of(home)])
    os.rename(folder, home / "away")
    assert watch.check(0.0) == ["root_changed"]
    assert state(watch) == "absent"
    os.rename(home / "away", folder)

    assert watch.check(1.0) == ["root_changed"]
    assert heard.hears_of(folder / "a.jsonl")


def test_a_linked_root_is_hinted_by_real_paths_and_followed_when_it_turns(watch, heard, home, folder, tmp_path):
    other = Path(os.path.realpath(tmp_path)) / "other"
    (other / "projects").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(home)
    watch.start([root_of(link)])
    append(link / "projects" / "a.jsonl")
    assert heard.wait(lambda: str(folder / "a.jsonl") in heard.hints)
    link.unlink()
    link.symlink_to(other)

    assert watch.check(0.0) == ["root_changed"]
    assert heard.hears_of(other / "projects" / "b.jsonl")


def test_two_roots_in_one_folder_are_both_watched(watch, heard, home, folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(home)
    watch.start([root_of(home), root_of(link)])
    assert [root.state for root in watch.health.roots] == ["watched", "watched"]
    link.unlink()

    assert watch.check(0.0) == ["root_changed"]
    watch.check(1.0)
    assert [root.state for root in watch.health.roots] == ["watched", "absent"]
    assert heard.hears_of(folder / "a.jsonl")


def test_start_again_watches_the_new_roots_only(watch, heard, home, folder, tmp_path):
    other = Path(os.path.realpath(tmp_path)) / "other"
    (other / "projects").mkdir(parents=True)
    watch.start([root_of(home)])
    watch.start([root_of(other)])
    append(folder / "a.jsonl")

    assert heard.hears_of(other / "projects" / "b.jsonl")
    assert str(folder / "a.jsonl") not in heard.hints


# --- threads --------------------------------------------------------------------------------------


def kill_dispatcher(watch: NativeWatch) -> None:
    observer = watch._observer
    observer.event_queue.put(("no event",))  # cannot be unpacked: the thread ends with a ValueError
    observer.join(10)


def kill_reader(watch: NativeWatch) -> None:
    watch._observer.reader.stop()
    watch._observer.reader.join(10)


def kill_emitter(watch: NativeWatch) -> None:
    (emitter,) = watch._observer.emitters
    emitter.stop()
    emitter.join(10)


@pytest.mark.fault(42)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kill", [kill_dispatcher, pytest.param(kill_reader, marks=linux_only), kill_emitter])
def test_a_thread_that_ends_is_replaced(watch, heard, home, folder, kill):
    watch.start([root_of(home)])
    kill(watch)

    assert set(watch.check(100.0)) & {"watch_restarted", "root_changed"}
    assert watch.health.is_complete
    assert heard.hears_of(folder / "a.jsonl")
    assert watch.check(101.0) == []


@pytest.mark.fault(42)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watch_that_keeps_dying_is_retried_ever_more_rarely_and_says_so(watch, home):
    watch.start([root_of(home)])
    restarts = []
    for second in range(2000):
        if watch.health.mode == "native":
            kill_dispatcher(watch)
        if "watch_restarted" in watch.check(float(second)):
            restarts.append(second)
        else:
            assert watch.health.mode == "poll"
            assert "watch_unavailable" in watch.health.problems

    assert restarts == [0, 30, 90, 210, 450, 930, 1530], "at once, then after 30 s, 60 s ... and 600 s at most"


@pytest.mark.fault(42)
def test_a_hint_that_cannot_be_taken_does_not_end_the_watch(heard, home, folder):
    def refuse(path: str) -> None:
        heard.hint(path)
        raise RuntimeError(path)

    watch = make_watch("auto", refuse, heard.trouble)
    watch.start([root_of(home)])
    try:
        assert heard.hears_of(folder / "a.jsonl")
        assert heard.hears_of(folder / "a.jsonl")
        assert heard.wait(lambda: "hint_failed" in heard.troubles)
        assert watch.check(0.0) == []
    finally:
        watch.stop()


@linux_only
def test_stop_leaves_no_thread_and_no_descriptor(heard, home, folder):
    before = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    watch = make_watch("auto", heard.hint, heard.trouble)
    for _ in range(3):
        watch.start([root_of(home)])
        assert heard.hears_of(folder / "a.jsonl")
        watch.stop()

    assert (set(threading.enumerate()), len(os.listdir("/proc/self/fd"))) == before


# --- the kernel's limits (Linux) ------------------------------------------------------------------


@pytest.mark.fault(39)
@linux_only
def test_a_full_kernel_queue_asks_for_a_sweep_and_the_watches_are_built_anew(watch, heard, home, folder):
    room = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if room > 200_000:
        pytest.skip(f"the kernel's queue holds {room} events: too many to fill in a test")
    append(folder / "a.jsonl")
    append(folder / "b.jsonl")
    watch.start([root_of(home)])
    assert watch.check(0.0) == []
    with watch._observer.reader._lock:  # the thread that reads the queue stands still
        with (folder / "a.jsonl").open("ab", 0) as a, (folder / "b.jsonl").open("ab", 0) as b:
            for _ in range(room):  # by turns, or the kernel makes one event of them
                a.write(b"\n")
                b.write(b"\n")
        late = folder / "made" / "while" / "full" / "c.jsonl"
        append(late)

    assert heard.wait(lambda: "overflow" in heard.troubles)
    assert watch.health.overflows == 1
    assert watch.check(1.0) == ["watch_restarted"]
    assert watch.check(2.0) == []
    assert heard.hears_of(late), "its directories came while events were lost"
    assert watch.health.is_complete


@pytest.mark.fault(39)
@linux_only
def test_an_overflow_with_more_directories_than_the_queue_holds_comes_to_rest(watch, heard, home, folder):
    room = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if room > 20_000:
        pytest.skip(f"the kernel's queue holds {room} events: too many directories for a test")
    for n in range(room + 500):
        (folder / f"d{n}").mkdir()
    watch.start([root_of(home)])
    if watch.check(0.0) != [] or watch.health.problems:
        pytest.skip(f"too few watches allowed here: {watch.health.problems}")
    with watch._observer.reader._lock, (folder / "a").open("ab", 0) as a, (folder / "b").open("ab", 0) as b:
        for _ in range(room):
            a.write(b"\n")
            b.write(b"\n")
    assert heard.wait(lambda: "overflow" in heard.troubles)

    assert heard.hears_of(folder / f"d{room}" / "a.jsonl"), "the watches are as they were"
    assert watch.health.overflows == 1, "left to itself, watchdog 7.1 rebuilds and overflows three times a second"
    assert watch.check(1.0) == ["watch_restarted"]
    assert heard.hears_of(folder / f"d{room}" / "a.jsonl")
    assert watch.check(2.0) == []


@pytest.mark.fault(45)
@linux_only
def test_watchdogs_warnings_are_kept_quiet(watch, heard, home, folder):
    for n in range(100):
        (folder / f"d{n}").mkdir()
    watch.start([root_of(home)])
    (emitter,) = watch._observer.emitters
    with warnings.catch_warnings(record=True) as raised:
        emitter._inotify._add_all_callbacks(os.fsencode(folder))  # what happens when it meets directories twice

    assert raised == []
    assert heard.hears_of(folder / "a.jsonl")


IN_NAMESPACE = """
import json, sys, threading
from pathlib import Path
from sessiond.errors import SessiondError
from sessiond.intake.scan import Root
from sessiond.intake.watch import make_watch
home, limits, mode = sys.argv[1], Path("/proc/sys/user"), sys.argv[3]
limits.joinpath(sys.argv[2]).write_text(sys.argv[4])
hinted = threading.Event()
troubles = []
watch = make_watch(mode, lambda path: hinted.set() if path.endswith("late.jsonl") else None, troubles.append)
report = {}
def tell(name):
    health = watch.health
    report[name] = {"mode": health.mode, "problems": health.problems, "complete": health.is_complete,
                    "states": [root.state for root in health.roots]}
try:
    watch.start([Root("heron", home, "projects")])
except SessiondError as error:
    report["error"] = str(error)
else:
    report["first"] = watch.check(0.0)
    tell("limited")
    limits.joinpath(sys.argv[2]).write_text("10000")
    report["second"] = watch.check(1.0)
    report["third"] = watch.check(100.0)
    tell("raised")
    Path(home, "projects", "d99", "late.jsonl").write_text("{}")
    report["hinted"] = hinted.wait(10)
    report["troubles"] = troubles
    watch.stop()
print(json.dumps(report))
"""


def in_namespace(home: Path, limit: str, mode: str, value: int) -> dict:
    for n in range(100):
        (home / "projects" / f"d{n}").mkdir()
    command = ["unshare", "-Ur", sys.executable, "-c", IN_NAMESPACE, str(home), limit, mode, str(value)]
    try:
        probe = subprocess.run(
            ["unshare", "-Ur", "sh", "-c", f"echo {value} > /proc/sys/user/{limit}"], capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if probe.returncode != 0:
        pytest.skip(f"user namespaces are refused here: {probe.stderr.decode().strip()}")
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.fault(40)
@linux_only
def test_a_watch_limit_is_named_with_numbers_and_a_way_out_and_left_when_it_is_raised(home):
    report = in_namespace(home, "max_inotify_watches", "auto", 50)

    assert report["first"] == ["watch_limit"]
    assert report["limited"]["mode"] == "native"
    assert not report["limited"]["complete"]
    problem = report["limited"]["problems"]["watch_limit"]
    assert problem.startswith("50/101 directories watched; ")
    assert "sudo sysctl fs.inotify.max_user_watches=" in problem
    assert report["second"] == [], "not tried again at once"
    assert report["third"] == ["watch_restarted"]
    assert report["raised"]["problems"] == {}
    assert report["raised"]["complete"]
    assert report["hinted"]


@pytest.mark.fault(40)
@linux_only
def test_no_room_for_even_one_watch_leaves_the_root_to_sweeps(home):
    report = in_namespace(home, "max_inotify_watches", "auto", 0)

    assert report["limited"]["states"] == ["unwatched"]
    assert report["limited"]["problems"]["watch_limit"].startswith("0/101 directories watched")
    assert report["raised"]["states"] == ["watched"]
    assert report["hinted"]


@pytest.mark.fault(41)
@linux_only
def test_without_an_inotify_instance_auto_polls_says_so_and_comes_back(home):
    report = in_namespace(home, "max_inotify_instances", "auto", 0)

    assert report["limited"]["mode"] == "poll"
    assert report["limited"]["states"] == ["unwatched"]
    assert "fs.inotify.max_user_instances" in report["limited"]["problems"]["watch_unavailable"]
    assert report["raised"] == {"mode": "native", "problems": {}, "complete": True, "states": ["watched"]}
    assert "watch_restarted" in report["troubles"]
    assert report["hinted"]


@pytest.mark.fault(41)
@linux_only
def test_without_an_inotify_instance_native_refuses_with_a_way_out(home):
    report = in_namespace(home, "max_inotify_instances", "native", 0)

    assert "fs.inotify.max_user_instances" in report["error"]
    assert "watch.mode" in report["error"]


OPENED_LATER = """
import json, os, sys, threading
from pathlib import Path
import sessiond.intake.watching.inotify, sessiond.intake.watch  # while the code can be read
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
from sessiond.intake.scan import Root
home = sys.argv[1]
closed = Path(home, "projects", "closed")
hinted = threading.Event()
watch = sessiond.intake.watch.make_watch("auto", lambda path: hinted.set(), lambda reason: None)
closed.chmod(0)
watch.start([Root("heron", home, "projects")])
report = {"closed": watch.check(0.0), "problems": watch.health.problems}
closed.chmod(0o700)
report["noticed"] = watch.check(60.0)
report["mended"] = watch.check(62.0)
(closed / "a.jsonl").write_text("{}")
report["hinted"] = hinted.wait(10)
report["state"] = watch.health.is_complete
closed.parent.chmod(0)
watch.start([Root("heron", home, "projects")])
report["root_closed"] = [(root.state, root.detail) for root in watch.health.roots]
closed.parent.chmod(0o700)
watch.stop()
print(json.dumps(report))
"""


@linux_only
def test_a_directory_opened_later_gets_its_watch():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = Path(os.path.realpath(folder), "home")
        (home / "projects" / "closed").mkdir(parents=True)
        if os.getuid() == 0:
            for path in (home, *home.rglob("*")):
                os.chown(path, 65534, 65534)
        run = subprocess.run(
            [sys.executable, "-c", OPENED_LATER, str(home)], cwd=PROJECT, capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)

    assert (report["closed"], report["problems"]) == ([], {}), "the sweep names it; it is no fault of the watch"
    assert (report["noticed"], report["mended"]) == ([], ["watch_restarted"])
    assert report["hinted"]
    assert report["state"] is True
    assert report["root_closed"] == [["unwatched", "Permission denied"]]


# --- polling --------------------------------------------------------------------------------------


def test_polling_needs_no_thread_and_says_so(heard, home, tmp_path):
    before = set(threading.enumerate())
    watch = make_watch("poll", heard.hint, heard.trouble)
    watch.start([root_of(home), root_of(tmp_path / "none")])

    assert set(threading.enumerate()) == before
    assert watch.health.mode == "poll"
    assert [root.state for root in watch.health.roots] == ["unwatched", "absent"]
    assert not watch.health.is_complete
    assert watch.check(0.0) == []
    watch.stop()


TABLE = r"""rootfs / ext4 rw 0 0
server:/export /srv nfs4 rw 0 0
tmpfs /srv/here tmpfs rw 0 0
C:\134 /mnt/c 9p rw 0 0
host#/x /mnt/with\040blank fuse.sshfs rw 0 0
/dev/sdb /mnt/over ext4 rw 0 0
//box/share /mnt/over cifs rw 0 0
"""


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    ("path", "kind", "remote"),
    [
        ("/home/me", "ext4", False),
        ("/srv", "nfs4", True),
        ("/srv/me", "nfs4", True),
        ("/srvother", "ext4", False),
        ("/srv/here/me", "tmpfs", False),
        ("/mnt/c/Users", "9p", True),
        ("/mnt/with blank/x", "fuse.sshfs", True),
        ("/mnt/over/x", "cifs", True),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_longest_mount_point(tmp_path, path, kind, remote):
    table = tmp_path / "mounts"
    table.write_text(TABLE)

    assert mounts.file_system(path, table) == kind
    assert mounts.is_remote(kind) is remote


def test_without_a_table_nothing_is_remote(tmp_path):
    assert mounts.file_system("/", tmp_path / "none") is None
    assert not mounts.is_remote(None)


@pytest.mark.fault(48)
@pytest.mark.parametrize(("mode", "expected"), [("auto", "unwatched"), ("native", "watched")])
def test_roots_on_a_network_file_system_are_left_to_sweeps_unless_native_is_asked(
    heard, home, tmp_path, monkeypatch, mode, expected
):
    table = tmp_path / "mounts"
    table.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {home} nfs4 rw 0 0\n")
    monkeypatch.setattr(mounts, "TABLE", table)
    local = tmp_path / "local"
    (local / "projects").mkdir(parents=True)
    watch = make_watch(mode, heard.hint, heard.trouble)
    watch.start([root_of(home), root_of(local)])
    try:
        assert [root.state for root in watch.health.roots] == [expected, "watched"]
        if mode == "auto":
            assert "nfs4" in watch.health.roots[0].detail
        assert watch.check(0.0) == []
        assert watch.health.problems == {}
        assert watch.health.is_complete is (mode == "native")
    finally:
        watch.stop()


def test_a_watch_that_is_not_started_is_at_rest(heard):
    watch = make_watch("auto", heard.hint, heard.trouble)

    assert watch.check(0.0) == []
    assert watch.health.roots == ()
    watch.stop()


def test_health_names_every_root_by_its_folder(watch, home, tmp_path):
    watch.start([root_of(home), root_of(tmp_path / "none")])

    assert watch.health.roots == (
        WatchedRoot(str(home / "projects"), "watched"),
        WatchedRoot(str(tmp_path / "none" / "projects"), "absent"),
    )
