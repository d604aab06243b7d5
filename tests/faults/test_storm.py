"""Row 39: more happens than the kernel's queue of events holds. What it dropped is found all the same, once each.

The real daemon is stopped (SIGSTOP) while processes write, so that nobody reads the queue and it overflows for real.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from lab import Lab, append, until, user_line
from sessiond.store.connect import rows, value

QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify's queue is Linux's")


@pytest.fixture
def room() -> int:
    """How many events the kernel keeps for one reader."""
    found = int(QUEUE.read_text())
    if found > 200_000:
        pytest.skip(f"the kernel's queue holds {found} events: too many to fill in a test")
    return found


def overflows(lab: Lab) -> int:
    return lab.status()["counters"]["overflows"]


class Storm:
    """Processes that write, each `lines` lines into `files` files of its own; `written` counts over all of them."""

    def __init__(self, lab: Lab, name: str, *, writers: int, files: int, lines: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._counter = context.Value("q", 0)
        self.processes = [
            context.Process(target=write, args=(str(lab.folder), f"{name}{each}", files, lines, self._counter))
            for each in range(writers)
        ]
        for process in self.processes:
            process.start()

    @property
    def written(self) -> int:
        return self._counter.value

    @property
    def is_over(self) -> bool:
        return not any(process.is_alive() for process in self.processes)

    def wait_for(self, more: int) -> None:
        """Until so many more lines were written, or all of them."""
        wanted = self.written + more
        until(lambda: self.written >= wanted or self.is_over, 120, f"{more} more lines")


def place(lab: Lab, writer: str, number: int) -> Path:
    """Every second file in a folder of its own."""
    return lab.claude_file(f"{writer}x{number}", f"-{writer}" if number % 2 else f"-{writer}-{number}")


def write(lab_folder: str, writer: str, files: int, lines: int, counter) -> None:
    """Line after line into one file after the other, so that no two events are alike and can be made one.

    Now and then a file is replaced by a longer one.
    """
    lab, chance = Lab(Path(lab_folder)), random.Random(writer)
    lengths = [0] * files
    for number in range(lines):
        at = number % files
        path = place(lab, writer, at)
        data = user_line(lengths[at], f"line {number}", session=path.stem)
        lengths[at] += 1
        if lengths[at] > 2 and chance.random() < 0.01:
            fresh = path.with_suffix(".tmp")
            shutil.copyfile(path, fresh)
            append(fresh, data)
            fresh.rename(path)
        else:
            append(path, data)
        if number % 100 == 99:
            with counter.get_lock():
                counter.value += 100


def blow(storm: Storm, lab: Lab, daemon, room: int, *, must_overflow: bool) -> int:
    """The daemon stands still while more is written than the queue holds, again and again; how often."""
    stops = 0
    while not storm.is_over:
        before = overflows(lab)
        daemon.send_signal(signal.SIGSTOP)
        storm.wait_for(2 * room)
        daemon.send_signal(signal.SIGCONT)
        stops += 1
        until(lambda: lab.status() or daemon.poll() is not None, what="an answer after the pause")
        assert daemon.poll() is None, (lab.folder / "daemon.log").read_text()[-3000:]
        if must_overflow and stops == 1:
            until(lambda: overflows(lab) > before, 60, "the overflow was noticed")  # noqa: B023
        storm.wait_for(room // 4)
    assert {process.exitcode for process in storm.processes} == {0}
    return stops


def assert_each_line_once(lab: Lab, sessions: int, lines: int) -> None:
    with lab.store() as db:
        assert value(db, "SELECT count(*) FROM _session") == sessions
        assert value(db, "SELECT count(*) FROM _event") == lines
        assert value(db, "SELECT count(DISTINCT generation_id * 1000000000 + start) FROM _event") == lines
        assert value(db, "SELECT count(*) FROM _reject") == 0
        paths = [Path(os.fsdecode(path)) for (path,) in rows(db, "SELECT path FROM _source ORDER BY path")]
    assert len(paths) == sessions
    for path in paths[:: max(1, len(paths) // 200)]:
        assert lab.archived(path) == path.read_bytes()


@pytest.mark.fault(39)
def test_lines_whose_events_were_lost_are_stored_at_once_and_the_loss_is_counted(lab, room):
    names = [f"s{number}" for number in range(20)]
    files = [lab.claude_file(name) for name in names]
    with lab.daemon(config='[watch]\nscan_interval = "1h"\n') as daemon:  # nothing but the overflow can bring a sweep
        lab.ingest_through_daemon()
        assert overflows(lab) == 0
        daemon.send_signal(signal.SIGSTOP)
        handles = [file.open("ab", 0) for file in files]
        filler = [(lab.claude / "projects" / "-w" / name).open("ab", 0) for name in ("x", "y")]
        for number in range(room // 2 + 100):  # by turns, or the kernel makes one event of them
            for file in filler:
                file.write(b"x")
            if number % 100 == 0:
                for handle, name in zip(handles, names, strict=True):
                    handle.write(user_line(number // 100, session=name))
        late = lab.claude_file("late", slug="-made-while-it-was-full")
        append(late, user_line(0, session="late"))
        for handle in (*handles, *filler):
            handle.close()
        daemon.send_signal(signal.SIGCONT)
        lines = 20 * len(range(0, room // 2 + 100, 100)) + 1
        until(lambda: lab.status()["store"]["events"] == lines, 25, "every line")
        assert overflows(lab) >= 1
        until(lambda: lab.status()["watch"]["mode"] == "native" and lab.status()["state"] == "ready")
        append(late, user_line(1, session="late"))
        until(lambda: lab.status()["store"]["events"] == lines + 1, what="its folder, made meanwhile, is watched")
        counted = overflows(lab)
        assert lab.cli("reload").returncode == 0
        assert overflows(lab) == counted, "a reload does not forget it"
    assert '"watch_overflowed"' in (lab.folder / "daemon.log").read_text()
    assert_each_line_once(lab, 21, lines + 1)


@pytest.mark.long
@pytest.mark.fault(39)
def test_storm_of_240_000_appends_over_4000_files_while_the_queue_overflows(lab, room):
    """First into folders that are watched: there an overflow must be noticed. Then into new ones: those may have the
    watch built anew before it has read so far, and what it had not read goes with it.
    """
    writers, files, each = 4, 500, 30_000
    lines = 2 * writers * each
    for writer in range(writers):
        for number in range(files):
            place(lab, f"known{writer}", number)
    with lab.daemon() as daemon:
        lab.ingest_through_daemon()
        began = time.monotonic()
        stops = blow(
            Storm(lab, "known", writers=writers, files=files, lines=each), lab, daemon, room, must_overflow=True
        )
        stops += blow(
            Storm(lab, "new", writers=writers, files=files, lines=each), lab, daemon, room, must_overflow=False
        )
        written = time.monotonic() - began
        until(lambda: lab.status()["store"]["events"] >= lines, 300, "every line")
        stored = time.monotonic() - began
        asked = time.monotonic()
        lab.ingest_through_daemon()
        searchable = time.monotonic() - asked
        memory = megabytes_at_most(daemon.pid)
        print(
            f"\nstorm: {lines} appends over {2 * writers * files} files in {written:.0f} s, stopped {stops} times, "
            f"{overflows(lab)} overflows, all stored after {stored:.0f} s, `ingest` answered after {searchable:.1f} s, "
            f"memory at most {memory:.0f} MB"
        )
        assert memory < 150
    assert_each_line_once(lab, 2 * writers * files, lines)


def megabytes_at_most(pid: int) -> float:
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
