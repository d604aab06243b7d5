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


def write(lab_folder: str, writer: int, files: int, lines: int) -> None:
    """Line after line into one file after the other, so that no two events are alike and can be made one.

    Half of the files lie in folders that are made on the way; now and then a file is replaced by a longer one.
    """
    lab, chance = Lab(Path(lab_folder)), random.Random(writer)
    names = [f"w{writer}x{number}" for number in range(files)]
    lengths = dict.fromkeys(names, 0)
    for number in range(lines):
        name = names[number % files]
        slug = f"-w{writer}" if number % 2 else f"-w{writer}-{number % files}"
        path = lab.claude_file(name, slug)
        data = user_line(lengths[name], f"line {number}", session=name)
        lengths[name] += 1
        if lengths[name] > 2 and chance.random() < 0.01:
            fresh = path.with_suffix(".tmp")
            shutil.copyfile(path, fresh)
            append(fresh, data)
            fresh.rename(path)
        else:
            append(path, data)


def storm(lab: Lab, writers: int, files: int, lines: int) -> list[multiprocessing.Process]:
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=write, args=(str(lab.folder), each, files, lines)) for each in range(writers)]
    for process in started:
        process.start()
    return started


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
    writers, files, each = 4, 1000, 60_000
    lines = writers * each
    with lab.daemon() as daemon:
        began = time.monotonic()
        processes = storm(lab, writers, files, each)
        pauses = 0
        while any(process.is_alive() for process in processes):
            daemon.send_signal(signal.SIGSTOP)
            for _ in range(15):
                if any(process.is_alive() for process in processes):
                    time.sleep(0.1)  # the storm's own time: nobody reads the queue
            daemon.send_signal(signal.SIGCONT)
            pauses += 1
            until(lambda: lab.status() or daemon.poll() is not None, what="an answer after the pause")
            assert daemon.poll() is None, (lab.folder / "daemon.log").read_text()[-3000:]
            time.sleep(0.3)  # and some in which it is read
        written = time.monotonic() - began
        assert [process.exitcode for process in processes] == [0] * writers
        until(lambda: lab.status()["store"]["events"] >= lines, 300, "every line")
        stored = time.monotonic() - began
        ticket = lab.call("ingest")["ticket"]
        until(lambda: lab.call("ingested", ticket=ticket)["done"], 120, "all of it is searchable")
        found = overflows(lab)
        memory = int(
            next(x for x in Path(f"/proc/{daemon.pid}/status").read_text().splitlines() if "VmHWM" in x).split()[1]
        )
        print(
            f"\nstorm: {lines} appends over {writers * files} files in {written:.0f} s, stopped {pauses} times, "
            f"{found} overflows, all stored after {stored:.0f} s, memory at most {memory // 1024} MB"
        )
        assert found >= 1
        assert memory < 150 * 1024
    assert_each_line_once(lab, writers * files, lines)
