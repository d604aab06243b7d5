"""Row 52: the power goes. The real pipeline, its passes and its index work on a disk that notes every write and sync; then
the disk is made again as it could have been left at a random moment, and sessiond goes on from there.

The work is recorded in a process of its own (this file, run as a program): there every connection goes through the
recorder, and nothing in sessiond knows of it.
"""

# ruff: noqa: E402 - run as a program it must find its neighbours first

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1)]  # run as a program it has no conftest

from lab import Lab, append, until, user_line
from sessiond.store import connect, writer as writing
from sessiond.store.connect import rows, value
from sessiond.upkeep import Upkeep
from tests.faults.agreement import differences, inconsistencies, lab_in_memory, told
from tests.faults.lossy_disk import Image, Recorder, images

CONFIG = """
[retention]
soft_cap = "320KiB"
low_water = "200KiB"
hard_cap = "64MiB"
min_age = "0s"
keep_free = "0"
[analyze]
quiet_after = "0s"
"""
FILES, ROUNDS, LINES = 6, 12, 8


def line(name: str, number: int) -> bytes:
    noise = random.Random(f"{name} {number}").randbytes(250).hex()
    return user_line(number, f"hello {name} {number} {noise}", session=name)


# --- the work that is recorded: runs as a program ------------------------------------------------


def record(folder: Path, synchronous: str) -> None:
    lab = Lab(folder)
    lab.write_config(CONFIG)
    disk = Recorder(lab.paths.state_dir)
    _promise_what_is_committed(disk)
    _use(synchronous)
    numbers = Counter[str]()
    for start in range(0, ROUNDS, ROUNDS // 2):  # a restart in between: the last connection takes the WAL along
        pipeline = lab.pipeline()
        config = pipeline.config
        pipeline.start()
        upkeep = Upkeep(lambda config=config: config, lab.paths, pipeline, lab.troubles)
        for round_ in range(start, start + ROUNDS // 2):
            for file in range(FILES):
                if (round_ + file) % 3:  # some are quiet for a while, are let go, and go on later
                    _write_more(lab, f"p{file}", numbers)
                    pipeline.loop._hint(str(lab.claude_file(f"p{file}")))  # as the watch does
            until(lambda: _is_all_stored(lab), what="everything stored")
            pipeline.search.catch_up_now(10)
            if round_ % 2:
                upkeep.do("analyze", {})
                _promise_digests(lab, disk)
            if round_ % 4 == 3:
                _promise_evictions(upkeep.do("evict", {})["evicted"], lab, disk)
        pipeline.stop()
    disk.save(folder / "ops")


def _write_more(lab: Lab, name: str, numbers: Counter[str]) -> None:
    append(lab.claude_file(name), b"".join(line(name, numbers[name] + more) for more in range(LINES)))
    numbers[name] += LINES


def _is_all_stored(lab: Lab) -> bool:
    with lab.store() as db:
        return dict(rows(db, "SELECT path, read_offset FROM _source")) == {
            os.fsencode(path): path.stat().st_size for path in lab.claude.rglob("*.jsonl")
        }


def _promise_what_is_committed(disk: Recorder) -> None:
    real = writing.Writer._committed

    def committed(self, batches):
        real(self, batches)
        for batch in batches:
            disk.note("read", batch.source.path, batch.chunk.checkpoint.offset)

    writing.Writer._committed = committed


def _promise_digests(lab: Lab, disk: Recorder) -> None:
    with lab.store() as db:
        for uid, seq in rows(db, "SELECT uid, digested_seq FROM _session ORDER BY uid"):
            disk.note("digested", uid, seq)


def _promise_evictions(uids: list[str], lab: Lab, disk: Recorder) -> None:
    with lab.store() as db:
        for uid in uids:
            disk.note("evicted", uid, value(db, "SELECT evicted_seq FROM _session WHERE uid = ?", (uid,)))


def _use(synchronous: str) -> None:
    """The proof that these tests can fail: the same work with a store that syncs less."""
    if synchronous == "FULL":
        return
    real = connect._set_up

    def set_up(db, cache_kib):
        real(db, cache_kib)
        db.execute(f"PRAGMA synchronous = {synchronous}")

    connect._set_up = set_up


@pytest.fixture
def lab():
    with lab_in_memory() as machine:
        yield machine


# --- what is left after a cut ---------------------------------------------------------------------


class Work:
    """One recording, and what one reading of the same files gives."""

    def __init__(self, lab: Lab, synchronous: str = "FULL") -> None:
        self.lab = lab
        argv = [sys.executable, __file__, str(lab.folder), synchronous]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        self.ops = pickle.loads((lab.folder / "ops").read_bytes())
        self.begins = next(at for at, op in enumerate(self.ops) if op[0] == "promise")

    def one_reading(self) -> dict[str, tuple]:
        self.clear()
        self.lab.ingest()
        self.lab.analyze()
        return told(self.lab)

    def clear(self) -> None:
        shutil.rmtree(self.lab.paths.state_dir, ignore_errors=True)
        self.lab.paths.state_dir.mkdir(parents=True, mode=0o700)

    def cuts(self, number: int, seed: int) -> list[int]:
        return random.Random(seed).choices(range(self.begins, len(self.ops) + 1), k=number)


def lost_promises(lab: Lab, image: Image) -> list[tuple]:
    """What had been acknowledged before the cut and is not there after it."""
    promised = {(what, name): number for what, name, number in image.promises}  # the last of each counts
    try:
        with lab.store() as db:
            stored = {
                **{("read", name.decode()): at for name, at in rows(db, "SELECT path, read_offset FROM _source")},
                **{("digested", uid): seq for uid, seq in rows(db, "SELECT uid, digested_seq FROM _session")},
                **{("evicted", uid): seq for uid, seq in rows(db, "SELECT uid, evicted_seq FROM _session")},
            }
    except Exception as error:  # not even a store
        return [(type(error).__name__,)]
    return [(*key, number, stored.get(key)) for key, number in promised.items() if stored.get(key, -1) < number]


def cut_the_power(lab: Lab, number: int, seed: int) -> dict[str, object]:
    began = time.monotonic()
    work = Work(lab)
    expected = work.one_reading()
    manners, evicted = Counter[str](), 0
    for image in images(work.ops, work.cuts(number, seed), seed):
        work.clear()
        image.restore(lab.paths.state_dir)
        where = f"seed {seed}, cut at {image.at} of {len(work.ops)}, {image.manner}"
        assert lost_promises(lab, image) == [], where
        assert inconsistencies(lab) == [], where
        lab.ingest()
        lab.analyze()
        assert differences(lab, expected, is_settled=False) == [], where
        lab.evict()  # goes on with what was on its way out
        assert differences(lab, expected) == [], where
        manners[image.manner] += 1
        evicted += any(what == "evicted" for what, *_ in image.promises)
    return {
        "cuts": number,
        "after an eviction": evicted,
        **manners,
        "operations": len(work.ops),
        "commits lost": 0,
        "inconsistencies": 0,
        "seconds": round(time.monotonic() - began),
    }


@pytest.mark.fault(52)
def test_power_loss_takes_no_acknowledged_commit_and_leaves_everything_consistent(lab):
    cut_the_power(lab, 30, seed=1)


@pytest.mark.long
@pytest.mark.fault(52)
def test_three_hundred_power_losses(lab):
    print("\n", cut_the_power(lab, 300, seed=2))


@pytest.mark.fault(52)
@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_store_that_syncs_less_would_lose_commits_and_be_found_out(lab, synchronous):
    work = Work(lab, synchronous)
    lost = 0
    for image in images(work.ops, work.cuts(80, seed=3), seed=3):
        work.clear()
        image.restore(lab.paths.state_dir)
        lost += bool(lost_promises(lab, image))
    assert lost


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2])
