"""The daemon under load: many writers, kills, evictions, reloads, status queries. No line is lost or doubled, and a
daemon that was left alone for a while holds no more memory and no more descriptors than at its beginning.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field
from functools import partial

import pytest

from lab import AtWork, Lab, until, user_line
from sessiond.errors import SessiondError
from sessiond.store.connect import rows, value

CONFIG = """
[retention]
soft_cap = "{cap}"
min_age = "0s"
keep_free = "0"
[analyze]
interval = "2s"
quiet_after = "0s"
max_delay = "5s"
[evict]
interval = "3s"
"""
WORDS = [f"{word}{number}" for word in ("alder", "birch", "cedar", "dogwood", "elm") for number in range(400)]


class Writers(AtWork):
    """Each appends lines to a file of its own, some in two pieces, at a steady pace; now and then it begins a new file."""

    def __init__(self, lab: Lab, count: int, lines_per_second: float, seed: int) -> None:
        self.lines: dict[str, int] = {}
        self._lab = lab
        self._pause = 1 / lines_per_second
        super().__init__(partial(self._write, number, seed) for number in range(count))

    def _write(self, number: int, seed: int) -> None:
        chance = random.Random(seed * 1000 + number)
        begun = 0
        while not self._stop.is_set():
            name = f"w{number}-{begun}"
            begun += 1
            self.lines[name] = 0
            with self._lab.claude_file(name, slug=f"-p{number % 10}").open("ab", buffering=0) as file:
                for _ in range(chance.randrange(50, 400)):
                    if self._stop.is_set():
                        break
                    self._append(file, name, chance)

    def _append(self, file, name: str, chance: random.Random) -> None:
        at = self.lines[name]
        text = " ".join(chance.choices(WORDS, k=chance.choice((3, 30, 300))))
        line = user_line(at, f"line {at} {text}", session=name)
        cut = chance.randrange(len(line)) if chance.random() < 0.3 else 0
        file.write(line[:cut])
        self._stop.wait(self._pause * chance.uniform(0.5, 1.5))
        file.write(line[cut:])  # also after the stop: every line that was begun is finished
        self.lines[name] = at + 1


@dataclass(slots=True)
class Seen:
    """What was seen of one daemon while it lived."""

    memory: list[int] = field(default_factory=list)  # kB
    descriptors: list[int] = field(default_factory=list)
    slowest_status: float = 0.0
    statuses: int = 0

    def look(self, lab: Lab, pid: int) -> None:
        began = time.monotonic()
        if lab.status() is not None:
            self.slowest_status = max(self.slowest_status, time.monotonic() - began)
            self.statuses += 1
        with open(f"/proc/{pid}/status") as file:
            self.memory += [int(line.split()[1]) for line in file if line.startswith("VmRSS")]
        self.descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))


def start(lab: Lab) -> subprocess.Popen:
    process = lab.start_daemon()
    until(lambda: answers(lab) or process.poll() is not None, 60, "the daemon's answer")
    assert process.poll() is None, (lab.folder / "daemon.log").read_text()[-3000:]
    return process


def answers(lab: Lab) -> bool:
    try:
        return lab.status() is not None
    except SessiondError:  # one that is being killed hangs up
        return False


def soak(lab: Lab, *, writers: int, pace: float, killing: float, living: float, cap: str) -> dict[str, object]:
    chance = random.Random(5)
    lab.write_config(CONFIG.format(cap=cap))
    kills, seen = 0, Seen()
    with Writers(lab, writers, pace, seed=3) as work:
        ends = time.monotonic() + killing
        while time.monotonic() < ends:
            process = start(lab)
            time.sleep(chance.uniform(0.0, min(20.0, killing / 5)))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        process = start(lab)
        ends = time.monotonic() + living
        while time.monotonic() < ends:
            seen.look(lab, process.pid)
            if chance.random() < 0.1:
                os.kill(process.pid, signal.SIGHUP)
            time.sleep(living / 100)
    lab.ingest_through_daemon()
    until(lambda: (told := lab.status()) and not told["paused_by"] and not told["sources"]["lag_bytes"], 120)
    # What is counted is a second old at times: counting many files takes long.
    until(lambda: lab.status()["counters"]["lines"] == sum(work.lines.values()), 60, "every line counted, and once")
    told = lab.status()
    process.terminate()
    assert process.wait(30) == 0
    lab.analyze()
    evicted = assert_every_line_is_there_once(lab, work.lines)
    assert told["counters"]["data_loss"] == 0
    assert_flat(seen)
    return {
        "writers": writers,
        "lines": sum(work.lines.values()),
        "files": len(work.lines),
        "kills": kills,
        "evicted lines": evicted,
        "statuses": seen.statuses,
        "slowest status (ms)": round(seen.slowest_status * 1000),
        "memory (MB)": (seen.memory[len(seen.memory) // 5] // 1024, seen.memory[-1] // 1024),
        "descriptors": (min(seen.descriptors), max(seen.descriptors)),
    }


def assert_every_line_is_there_once(lab: Lab, lines: dict[str, int]) -> int:
    """What was evicted is covered by its digest; what was not is there, line for line. Returns the lines evicted."""
    gone = 0
    with lab.store() as db:
        assert rows(db, "PRAGMA integrity_check") == [("ok",)]
        for name, written in lines.items():
            if not written:
                continue
            found = rows(db, "SELECT id, events, evicted_events FROM _session WHERE uid = ?", (f"claude:{name}",))
            assert found, name
            ((row, events, evicted),) = found
            assert events == written, name
            query = "SELECT summary FROM _event WHERE session_id = ? ORDER BY seq"
            said = [int(summary.split()[1]) for (summary,) in rows(db, query, (row,))]
            assert said == list(range(evicted, written)), name
            assert (
                value(db, "SELECT data ->> 'kinds' ->> 'user_msg' FROM _digest WHERE session_id = ?", (row,)) == written
            )
            gone += evicted
    return gone


def assert_flat(seen: Seen) -> None:
    """The first fifth is growing up: caches fill, the index merges for the first time."""
    settled = seen.memory[len(seen.memory) // 5 :]
    third = len(settled) // 3
    early, late = sorted(settled[:third])[third // 2], sorted(settled[-third:])[third // 2]
    assert late < early * 1.15 + 8192, f"memory grew from {early} to {late} kB: {settled}"
    assert max(seen.descriptors[-third:]) <= max(seen.descriptors[:third]) + 3, seen.descriptors


def test_short_soak_loses_and_doubles_nothing(lab):
    figures = soak(lab, writers=20, pace=20, killing=3, living=6, cap="3MiB")

    assert figures["evicted lines"] > 0
    assert figures["kills"] >= 2


@pytest.mark.long
def test_ten_minutes_of_load(lab):
    figures = soak(lab, writers=100, pace=4, killing=240, living=360, cap="48MiB")
    print("\n", figures)

    assert figures["evicted lines"] > 0
    assert figures["kills"] >= 10


def test_flatness_can_fail():
    leaking = Seen(memory=[60_000 + 1000 * at for at in range(100)], descriptors=[20] * 100)
    with pytest.raises(AssertionError, match="memory grew"):
        assert_flat(leaking)
    leaking = Seen(memory=[60_000] * 100, descriptors=list(range(20, 120)))
    with pytest.raises(AssertionError):
        assert_flat(leaking)
    assert_flat(Seen(memory=[60_000] * 100, descriptors=[20] * 100))
