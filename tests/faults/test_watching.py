"""Rows 40 to 45, 48 and 49: whatever becomes of the watch, each line is stored, and status says what is not as it should be.

The limits are the kernel's own: those scenarios run as programs in a namespace, this file again.
"""

# ruff: noqa: E402 - run as a program it must find its neighbours first

from __future__ import annotations

import ctypes
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1)]  # run as a program it has no conftest

from watchdog import events as watchdog
from watchdog.observers.api import BaseObserver, EventEmitter

from lab import Lab, append, settle, until, user_line
from namespaces import inside, set_limit
from sessiond.intake.scan import Pace, Root
from sessiond.intake.watch import PollWatch, WatchHealth, make_watch
from sessiond.intake.watching import mounts, observer as watching
from sessiond.store.connect import value

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="inotify and its limits are Linux's")


def troubles(lab: Lab) -> dict[str, str]:
    return {each["name"]: each["detail"] for each in lab.status()["degraded"]}


def lines_stored(lab: Lab) -> int:
    with lab.store() as db:
        return value(db, "SELECT count(*) FROM _event")


def one_line_each(lab: Lab, names: list[str], number: int = 0) -> list[Path]:
    """A line more in a session of each name, each in a folder of its own."""
    files = [lab.claude_file(name, slug=f"-{name}") for name in names]
    for file, name in zip(files, names, strict=True):
        append(file, user_line(number, session=name))
    return files


# --- rows 40 and 41: the kernel's limits ----------------------------------------------------------

NAMES = [f"n{number:03d}" for number in range(100)]


def few_watches(lab: Lab) -> None:
    one_line_each(lab, NAMES)
    set_limit("max_inotify_watches", 50)
    with lab.daemon(config='[watch]\npoll_interval = "500ms"\n'):
        until(lambda: "watch_limit" in troubles(lab), what="the limit has a name")
        watched, _, rest = troubles(lab)["watch_limit"].partition("/")
        assert 0 < int(watched) <= 50
        assert int(rest.split(" ")[0]) >= 101, "of the directories that there are"
        assert "sudo sysctl fs.inotify.max_user_watches=" in rest
        assert lab.cli("health").returncode == 1
        assert lab.status()["watch"]["mode"] == "native", "what is watched stays watched"
        until(lambda: lines_stored(lab) == 100)
        one_line_each(lab, NAMES, 1)
        until(lambda: lines_stored(lab) == 200, 15, "the sweeps see the rest, and sooner than every 30 s")


def no_instance(lab: Lab) -> None:
    one_line_each(lab, NAMES[:1])
    set_limit("max_inotify_instances", 0)
    with lab.daemon(config='[watch]\npoll_interval = "200ms"\n'):
        assert lab.status()["watch"]["mode"] == "poll"
        assert "fs.inotify.max_user_instances" in troubles(lab)["watch_unavailable"]
        assert lab.cli("health").returncode == 1
        until(lambda: lines_stored(lab) == 1)
        one_line_each(lab, NAMES[:1], 1)
        until(lambda: lines_stored(lab) == 2, what="the next sweep sees it")
        lab.write_config('[watch]\nmode = "native"\n')
        refused = lab.cli("reload")
        assert refused.returncode != 0
        assert "no native watch" in refused.stderr
        assert "configuration" in troubles(lab)
        one_line_each(lab, NAMES[:1], 2)
        until(lambda: lines_stored(lab) == 3, what="the old configuration stays in force")
    process = lab.start_daemon()
    assert process.wait(20) == 1, "native and nothing else was asked for"
    assert "watch.mode" in (lab.folder / "daemon.log").read_text()


@linux_only
@pytest.mark.fault(40)
def test_with_too_few_watches_all_is_read_and_the_limit_is_named(lab):
    inside(__file__, "few_watches", lab)


@linux_only
@pytest.mark.fault(41)
def test_without_inotify_it_polls_and_says_so_and_a_reload_that_insists_is_refused(lab):
    inside(__file__, "no_instance", lab)


# --- row 42: a thread that dies, a loop that hangs ------------------------------------------------


def end_dispatcher(watch) -> None:
    watch._observer.event_queue.put(("no event",))  # cannot be unpacked: the thread ends with a ValueError
    watch._observer.join(10)


def end_emitter(watch) -> None:
    emitter = next(iter(watch._observer.emitters))
    emitter.queue_events = lambda *_: 1 / 0
    append(Path(emitter.watch.path, "wake.txt"), b"x")
    emitter.join(10)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.fault(42)
@linux_only
@pytest.mark.parametrize("end", [end_dispatcher, end_emitter])
def test_a_watch_whose_thread_died_is_replaced_and_what_was_written_meanwhile_is_found(lab, end):
    lab.write_config('[watch]\nscan_interval = "1h"\n')  # nothing but the mending can bring a sweep
    session = lab.claude_file()
    append(session, user_line(0))
    pipeline = lab.pipeline("native")
    try:
        pipeline.start()
        until(lambda: len(lab.sessions()) == 1)
        end(pipeline.loop.watch)
        append(session, user_line(1))
        until(lambda: lines_stored(lab) == 2, what="the line that no thread heard of")
        until(lambda: pipeline.loop.watch.health.is_complete)
        append(session, user_line(2))
        until(lambda: lines_stored(lab) == 3, what="a hint from the new watch")
    finally:
        pipeline.stop()


@linux_only
@pytest.mark.fault(39)
def test_while_lost_events_may_have_been_of_folders_the_watch_is_not_taken_for_whole(lab):
    """Building it anew is put off in a storm; until then sweeps must not become rare."""
    watch = make_watch("native", lambda _: None, lambda _: None)
    lab.claude_file()
    watch.start([Root("claude", str(lab.claude), "projects")])
    try:
        watch._overflowed()
        assert not watch.health.is_complete
        assert watch.check(0.0) == ["watch_restarted"]
        assert watch.health.is_complete
        watch._overflowed()
        assert watch.check(29.0) == [], "not again so soon"
        assert not watch.health.is_complete
        assert watch.check(30.0) == ["watch_restarted"]
        assert (watch.health.is_complete, watch.health.overflows) == (True, 2)
    finally:
        watch.stop()


@pytest.mark.fault(39)
def test_a_sweep_that_took_long_does_not_put_off_the_next_that_is_called_for():
    """One that the machine slept through, or a slow disk: in a storm of calls there is a pause of ten times as long."""
    pace = Pace(base=30.0)
    pace.hurry("directory_changed")
    pace.begin(0.0)
    pace.finish(4.0, changed=True, watched=True)
    pace.hurry("overflow")
    assert pace.wait(4.0) == 30.0, "no longer than if nobody had called"
    pace.hurry("asked")
    assert pace.wait(4.0) == 0.0, "somebody is waiting for it"
    assert set(pace.begin(4.0)) == {"overflow", "asked"}


class Told(PollWatch):
    """A watch that says of itself what the test says."""

    problems: dict[str, str] = {}  # noqa: RUF012 - replaced, never changed

    @property
    def health(self) -> WatchHealth:
        return replace(super().health, problems=self.problems)


@pytest.mark.fault(40)
@pytest.mark.parametrize("name", ["watch_limit", "watch_incomplete", "watch_unavailable"])
def test_what_was_the_matter_with_the_watch_is_told_as_long_as_it_is_and_no_longer(lab, name):
    pipeline = lab.pipeline()
    watch = pipeline.loop.watch = Told()
    try:
        pipeline.start()
        watch.problems = {name: "5/9 directories watched"}
        until(lambda: [each["name"] for each in lab.troubles.listing()] == [name])
        watch.problems = {}
        until(lambda: not lab.troubles, what="the end of it")
    finally:
        pipeline.stop()


class Manager:
    """The service manager's end of the notification socket."""

    def __init__(self, lab: Lab) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(lab.folder / "notify"))
        lab.env |= {"NOTIFY_SOCKET": str(lab.folder / "notify"), "WATCHDOG_USEC": "400000"}

    def hears(self, word: str, seconds: float) -> bool:
        """Whether it comes within the time; what comes before it is passed over."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                if word in self._socket.recv(4096).decode().split("\n"):
                    return True
            except TimeoutError:
                return False
        return False

    def close(self) -> None:
        self._socket.close()


@contextmanager
def dead_disk(at: Path):
    """A file system that answers nothing, like a server that is gone: whoever looks into it waits."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"dead", os.fsencode(at), b"fuse", 0, options):
        os.close(device)
        print(f"skipped: {os.strerror(ctypes.get_errno())}")
        sys.exit(0)
    try:
        yield
    finally:
        os.close(device)  # from now on whoever waits is told that there is nobody


def hung_disk(lab: Lab) -> None:
    one_line_each(lab, ["s1"])
    hangs = lab.claude / "projects" / "hangs"
    hangs.mkdir()
    manager = Manager(lab)
    with lab.daemon():
        until(lambda: lines_stored(lab) == 1)
        for _ in range(5):
            assert manager.hears("WATCHDOG=1", 10), "a sign of life, again and again"
        with dead_disk(hangs):
            (lab.claude / "projects" / "new").mkdir()  # brings a sweep
            until(lambda: not manager.hears("WATCHDOG=1", 2), 30, "no sign of life: the loop is stuck")
            assert lab.status()["pid"], "the others are not"
        assert manager.hears("WATCHDOG=1", 10), "the loop goes on"
        until(lambda: "unreadable" in troubles(lab), what="the folder that nobody can look into")
        one_line_each(lab, ["s1"], 1)
        until(lambda: lines_stored(lab) == 2)
    manager.close()
    print("done")


@linux_only
@pytest.mark.fault(42)
def test_a_loop_that_hangs_gives_no_sign_of_life(lab):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("there is no /dev/fuse: no disk to hang on")
    told = inside(__file__, "hung_disk", lab)
    if told.startswith("skipped"):
        pytest.skip(f"no disk to hang on: {told}")
    assert told == "done\n"


# --- row 44: folders made and filled at once ------------------------------------------------------


@pytest.mark.fault(44)
@pytest.mark.parametrize("heard", ["all", "folders alone", "nothing"])
def test_files_in_folders_made_a_moment_before_are_all_read(lab, monkeypatch, heard):
    """A folder is watched only after it was made: what was written into it before is nobody's event."""
    lab.write_config('[watch]\nscan_interval = "1h"\npoll_interval = "300ms"\n')
    if heard == "folders alone":
        dispatch = watching.Handler.dispatch
        monkeypatch.setattr(
            watching.Handler, "dispatch", lambda self, event: dispatch(self, event) if event.is_directory else None
        )
    lab.claude_file()  # its folders: a root that comes brings a sweep by itself
    pipeline = lab.pipeline("poll" if heard == "nothing" else "native")
    try:
        pipeline.start()
        settle(pipeline)
        for number in range(100):
            (file,) = one_line_each(lab, [f"s{number}"])
            below = file.with_suffix("") / "subagents" / f"agent-{number}.jsonl"
            below.parent.mkdir(parents=True)
            append(below, user_line(1, session=f"s{number}", isSidechain=True, agentId=str(number)))
        until(lambda: lines_stored(lab) == 200, what="both lines in each of 300 new folders")
    finally:
        pipeline.stop()


# --- row 45: a flood of warnings ------------------------------------------------------------------


@linux_only
@pytest.mark.fault(45)
def test_a_thousand_folders_that_come_twice_do_not_fill_the_log(lab):
    """For each that it still knows by its old name watchdog warns with the repr of all its watches: 100 MB in all."""
    here, away = lab.claude / "projects" / "-w", lab.user_home / "away"
    for number in range(1000):
        (here / f"d{number}").mkdir(parents=True)
    with lab.daemon(config='[log]\nlevel = "debug"\n'):
        until(lambda: lab.status()["state"] == "ready")
        for number in range(3):
            here.rename(away)
            away.rename(here)
            append(lab.claude_file("s"), user_line(number, session="s"))
            until(lambda: lab.status()["store"]["events"] == number + 1)  # noqa: B023
    log = (lab.folder / "daemon.log").read_bytes()
    assert b"Callback with id" not in log
    assert len(log) < 20_000, log[:2000]


# --- row 48: no events ----------------------------------------------------------------------------


@pytest.mark.fault(48)
@pytest.mark.parametrize("mode", ["native", "poll"])
def test_the_life_of_a_file_is_told_the_same_with_and_without_events(lab, mode):
    with lab.daemon(config=f'[watch]\nmode = "{mode}"\npoll_interval = "200ms"\n'):
        assert lab.status()["watch"]["mode"] == mode
        a, b = one_line_each(lab, ["a", "b"])  # the root itself is new
        until(lambda: lines_stored(lab) == 2)
        append(a, user_line(1, session="a")[:20])
        append(a, user_line(1, session="a")[20:])
        until(lambda: lines_stored(lab) == 3, what="an append in two halves")
        os.truncate(b, 0)
        append(b, user_line(7, session="b"))
        until(lambda: lines_stored(lab) == 4, what="cut and written anew")
        fresh = a.with_suffix(".tmp")
        fresh.write_bytes(a.read_bytes() + user_line(2, session="a"))
        fresh.rename(a)
        until(lambda: lines_stored(lab) == 5, what="replaced by a longer one")
        moved = lab.claude_file("a", slug="-moved")
        a.rename(moved)
        append(moved, user_line(3, session="a"))
        until(lambda: lines_stored(lab) == 6, what="moved and gone on with")
        b.unlink()
        until(lambda: lab.status()["sources"]["gone"] == 1, what="deleted")
        assert troubles(lab) == {}
        assert lab.archived(moved) == moved.read_bytes()
    assert [event.seq for event in lab.events("claude:a")] == [1, 2, 3, 4]
    assert len(lab.events("claude:b")) == 1, "the line that was cut off is superseded"


NETWORK = ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.rclone", "davfs", "glusterfs", "vboxsf", "drvfs"]
LOCAL = ["ext4", "btrfs", "xfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.gocryptfs", "fuse.fuse-overlayfs", "lxfs"]


@pytest.mark.fault(48)
@pytest.mark.parametrize("kind", [*NETWORK, *LOCAL])
def test_a_store_on_a_network_file_system_is_refused_before_anything_is_made_there(lab, monkeypatch, kind):
    state = lab.paths.state_dir
    table = lab.folder / "mounts"
    table.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {os.path.realpath(lab.folder)}/state {kind} rw 0 0\n")
    monkeypatch.setattr(mounts, "TABLE", table)
    append(lab.claude_file(), user_line(0))
    if kind in LOCAL:
        lab.ingest()
        assert len(lab.sessions()) == 1
        return
    with pytest.raises(Exception, match=f"{lab.paths.store} would lie on a network file system .{kind}.") as refused:
        lab.ingest()
    assert refused.value.exit_code == 78
    assert "store.path" in refused.value.hint
    assert list(state.iterdir()) == []


def sessiond_with(lab: Lab, mount: str, *words: str) -> list[str]:
    """A command line for sessiond that finds a line more in the kernel's table than is true."""
    table = lab.folder / "table"
    table.write_text(f"{Path('/proc/self/mounts').read_text()}{mount} rw 0 0\n")
    over = f'mount --bind "{table}" /proc/$$/mounts && exec "{sys.executable}" -m sessiond "$@"'
    return ["sh", "-c", over, "sh", *words]


def store_on_nfs(lab: Lab) -> None:
    mount = f"server:/home {lab.paths.state_dir} nfs4"
    for verb in ("run", "ingest"):
        argv = sessiond_with(lab, mount, verb)
        done = subprocess.run(argv, env=lab.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 78, done.stderr
        assert "network file system (nfs4)" in done.stderr
        assert "store.path" in done.stderr
        assert not lab.paths.store.exists()
    elsewhere = lab.folder / "disk" / "store.db"
    elsewhere.parent.mkdir(mode=0o700)
    lab.write_config(f'[store]\npath = "{elsewhere}"\n')
    argv = sessiond_with(lab, mount, "ingest")
    done = subprocess.run(argv, env=lab.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert elsewhere.exists(), "the way out that it named is one"


def home_on_nfs(lab: Lab) -> None:
    lab.write_config('[watch]\npoll_interval = "200ms"\n')
    session = lab.claude_file()
    process = subprocess.Popen(sessiond_with(lab, f"server:/home {lab.user_home} nfs4", "run"), env=lab.env)
    try:
        until(lab.status)
        append(session, user_line(0))
        until(lambda: lines_stored(lab) == 1, what="the line, without an event")
        found = lab.status()
        assert found["degraded"] == [], "nothing is amiss"
        (root,) = (each for each in found["watch"]["roots"] if each["folder"] == str(lab.claude / "projects"))
        assert root["state"] == "unwatched"
        assert root["detail"] == "polled: nfs4 does not tell what others write"
    finally:
        process.terminate()
        assert process.wait(10) == 0


@linux_only
@pytest.mark.fault(48)
def test_a_home_on_nfs_is_polled_and_status_says_why(lab):
    inside(__file__, "home_on_nfs", lab)


@linux_only
@pytest.mark.fault(48)
def test_the_daemon_does_not_start_with_its_store_on_nfs(lab):
    append(lab.claude_file(), user_line(0))
    inside(__file__, "store_on_nfs", lab)


# --- row 49: events of any kind, number and order -------------------------------------------------


class DeafEmitter(EventEmitter):
    def queue_events(self, timeout: float) -> None:
        self.stopped_event.wait(timeout)


FILE = [watchdog.FileCreatedEvent, watchdog.FileModifiedEvent, watchdog.FileDeletedEvent, watchdog.FileClosedEvent]
FOLDER = [watchdog.DirCreatedEvent, watchdog.DirModifiedEvent, watchdog.DirDeletedEvent]


def told_anyhow(chance: random.Random, paths: list[Path], about: str) -> list[watchdog.FileSystemEvent]:
    """Of each path at least one event: of any kind, or only of its folder, some twice, in any order."""
    told: list[watchdog.FileSystemEvent] = []
    for path in paths:
        way = chance.randrange(4)
        if way == 0 and about == "files and folders":
            told.append(chance.choice(FOLDER)(str(path.parent)))
        elif way == 1:
            told.append(watchdog.FileMovedEvent(str(chance.choice(paths)), str(path)))
        else:
            told.append(chance.choice(FILE)(str(path)))
    told += chance.choices(told, k=chance.randrange(len(told)))
    chance.shuffle(told)
    return told


def live(lab: Lab, chance: random.Random, tell) -> None:
    """Some files grow, move and go, in five rounds; `tell` hears which paths that was about."""
    files = {name: lab.claude_file(name) for name in "abcdef"}
    length = dict.fromkeys(files, 0)
    for part in range(5):
        touched = []
        for name in chance.sample(sorted(files), 4):
            for _ in range(chance.randrange(1, 4)):
                append(files[name], user_line(length[name], session=name))
                length[name] += 1
            touched.append(files[name])
        if part == 3:
            moved = lab.claude_file("a", slug="-moved")
            files["a"].rename(moved)
            touched += [files["a"], moved]
            files["a"] = moved
        tell(touched, sum(length.values()))


@pytest.mark.fault(49)
@pytest.mark.parametrize(("seed", "about"), [(0, "files"), (1, "files"), (2, "files and folders")])
def test_events_shuffled_merged_doubled_and_of_the_wrong_kind_give_the_same_rows(
    lab, tmp_path, monkeypatch, seed, about
):
    lab.write_config('[watch]\nscan_interval = "1h"\n')  # nothing but the events can bring a look
    monkeypatch.setattr(watching, "new_observer", lambda _: BaseObserver(DeafEmitter))
    lab.claude_file()  # its folders
    pipeline = lab.pipeline("native")
    chance = random.Random(seed)

    def tell(touched: list[Path], lines: int) -> None:
        for event in told_anyhow(chance, touched, about):
            pipeline.loop.watch._handler.dispatch(event)
        until(lambda: lines_stored(lab) == lines, what=f"{lines} lines")

    try:
        pipeline.start()
        settle(pipeline)
        live(lab, random.Random(seed), tell)
    finally:
        pipeline.stop()
    plain = Lab(tmp_path / "plain")
    live(plain, random.Random(seed), lambda *_: plain.ingest())

    assert lab.event_rows() == plain.event_rows()
    assert lab.rejects() == plain.rejects() == []


if __name__ == "__main__":
    globals()[sys.argv[1]](Lab(Path(sys.argv[2])))
