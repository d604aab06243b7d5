"""Row 51: killed with -9 exactly before and exactly after each step that matters, from reading to vacuum and migration.

The steps are sessiond's own functions, wrapped from outside in a process of its own (this file, run as a program) that
forks for every kill. What the dead left is looked at as it is, then a new start goes on, and in the end everything is what
one undisturbed reading gives. `tests/test_kills.py` kills the real daemon at random moments.
"""

# ruff: noqa: E402 - run as a program it must find its neighbours first

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1)]  # run as a program it has no conftest

from lab import Lab, append, until, user_line
from sessiond.store import connect, migrations
from sessiond.store.connect import rows, value
from sessiond.upkeep import Upkeep
from tests.faults.agreement import differences, inconsistencies, lab_in_memory, told
from tests.faults.lossy_disk import PlainFile

CONFIG = """
[retention]
soft_cap = "256KiB"
low_water = "160KiB"
hard_cap = "64MiB"
min_age = "0s"
keep_free = "0"
[analyze]
quiet_after = "0s"
"""
SESSIONS = 4
POINTS = {
    "read": "sessiond.intake.tail.read",
    "source": "sessiond.store.commit._place_source",
    "bytes": "sessiond.store.commit._write_bytes",
    "events": "sessiond.store.commit.write_records",
    "outbox": "sessiond.store.commit.write_outbox",
    "cursor": "sessiond.store.sources.advance",
    "counters": "sessiond.store.commit.Counts.save",
    "commit": "COMMIT of store.db",
    "told": "sessiond.store.writer.Writer._committed",
    "checkpoint": "sessiond.store.connect.truncate_wal",
    "page of a checkpoint": "page written to store.db",
    "search entry": "sessiond.store.fts.apply_entry",
    "search commit": "COMMIT of search.db",
    "search position": "sessiond.store.search.SearchIndex._reached",
    "outbox trim": "sessiond.store.search._trim",
    "digest": "sessiond.store.digests.save",
    "frames merged": "sessiond.store.merge._replace",
    "eviction mark": "sessiond.store.evict._mark_rows",
    "eviction frames": "sessiond.store.evict._delete_frames",
    "eviction events": "sessiond.store.evict._delete_events",
    "vacuum": "sessiond.store.space._vacuum_some",
    "search merge": "sessiond.store.fts.merge_to_the_end",
    "search vacuum": "sessiond.store.fts.give_back",
}
MIGRATION = {
    "copy": "sessiond.store.migrations._back_up",
    "steps": "sessiond.store.migrations.take_steps",
    "the last statement of a step": "end of a migration's SQL",
    "migration commit": "COMMIT of store.db",
}


# --- the program: kills itself --------------------------------------------------------------------


class Countdown:
    """Dies at the n-th time that it is asked."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def arm(where: str, when: str, count: int) -> None:
    die = Countdown(count)
    if where.startswith("COMMIT of "):
        _arm_commit(where.removeprefix("COMMIT of "), when, die)
    elif where.startswith("end of a migration"):
        _arm_migration(when, die)
    elif where.startswith("page written to "):
        _arm_pages(where.removeprefix("page written to "), when, die)
    else:
        _arm_function(where, when, die)


def _arm_function(where: str, when: str, die: Callable[[], None]) -> None:
    parts = where.split(".")
    owner: Any = importlib.import_module(".".join(parts[:3]))
    for name in parts[3:-1]:
        owner = getattr(owner, name)
    real = getattr(owner, parts[-1])

    def killed(*words: Any, **named: Any) -> Any:
        if when == "before":
            die()
        result = real(*words, **named)
        if when == "after":
            die()
        return result

    setattr(owner, parts[-1], killed)


def _arm_commit(name: str, when: str, die: Callable[[], None]) -> None:
    @contextmanager
    def transaction(db: apsw.Connection):
        is_it = os.path.basename(db.filename) == name
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        if is_it and when == "before":
            die()
        db.execute("COMMIT")
        if is_it and when == "after":
            die()

    connect.transaction = transaction
    migrations.transaction = transaction


def _arm_migration(when: str, die: Callable[[], None]) -> None:
    """Half-way in the schema's own SQL: tables are made, and the version does not say so yet."""
    apsw.connection_hooks.append(lambda db: db.create_scalar_function("die", die))
    *before, last = migrations.STEPS
    if when == "before":
        first, rest = last.split(";", 1)
        last = f"{first};SELECT die();{rest}"
    else:
        last += ";SELECT die();"
    migrations.STEPS = (*before, last)


def _arm_pages(name: str, when: str, die: Callable[[], None]) -> None:
    class File(PlainFile):
        def xWrite(self, data: bytes, offset: int) -> None:
            if when == "before":
                die()
            super().xWrite(data, offset)
            if when == "after":
                die()

    class Disk(apsw.VFS):
        def xOpen(self, path: Any, flags: list[int]) -> apsw.VFSFile:
            named = path.filename() if isinstance(path, apsw.URIFilename) else path
            return (File if os.path.basename(named or "") == name else PlainFile)("unix", path, flags)

    globals()["_disk"] = Disk("dying", base="unix", makedefault=True)


def work(lab: Lab) -> None:
    """What a daemon does in a day: reads, indexes, distils, lets go, gives room back."""
    pipeline = lab.pipeline()
    try:
        pipeline.start()
        config = pipeline.config
        upkeep = Upkeep(lambda: config, lab.paths, pipeline, lab.troubles)
        until(lambda: _is_all_stored(lab), what="everything stored")
        pipeline.search.catch_up_now(10)
        upkeep.do("analyze", {})
        upkeep.do("evict", {})
    finally:
        pipeline.stop()


def _is_all_stored(lab: Lab) -> bool:
    with lab.store() as db:
        return dict(rows(db, "SELECT path, read_offset FROM _source")) == {
            os.fsencode(path): path.stat().st_size for path in lab.claude.rglob("*.jsonl")
        }


def write(lab: Lab, name: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        noise = random.Random(f"{name} {number}").randbytes(400).hex()
        append(lab.claude_file(name), user_line(number, f"hello {name} {number} {noise}", session=name))


class Machine:
    """The same half-read files and the same store for every kill."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.state, self.base = lab.paths.state_dir, lab.folder / "base"
        lab.write_config(CONFIG)
        for number in range(SESSIONS):
            write(lab, f"k{number}", 0, 12)
            lab.ingest()  # a frame each: there is something to merge
            write(lab, f"k{number}", 12, 6)
        lab.ingest()
        shutil.copytree(self.state, self.base)
        for number in range(SESSIONS + 1):
            write(lab, f"k{number}", 18, 20) if number < SESSIONS else write(lab, f"k{number}", 0, 10)
        shutil.rmtree(self.state)
        lab.ingest()
        lab.analyze()
        self.expected = told(lab)

    def kill(self, where: str, when: str, count: int) -> list[str]:
        """What is wrong after that kill; nothing should be."""
        shutil.rmtree(self.state)
        shutil.copytree(self.base, self.state)
        if not died(lambda: (arm(where, when, count), work(self.lab))):
            return ["it was never reached"]
        wrong = inconsistencies(self.lab)
        work(self.lab)
        return wrong + inconsistencies(self.lab) + differences(self.lab, self.expected)


def died(run: Callable[[], object]) -> bool:
    """Run it in a child; True if that was killed."""
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(status := os.waitpid(child, 0)[1]) and os.WTERMSIG(status) == signal.SIGKILL


def kill_migration(lab: Lab, where: str, when: str) -> list[str]:
    """An older store, killed while it is brought up to date."""
    lab.write_config(
        CONFIG.replace("256KiB", "64MiB").replace("160KiB", "32MiB").replace('"64MiB"\nmin', '"128MiB"\nmin')
    )
    shutil.rmtree(lab.paths.state_dir, ignore_errors=True)
    lab.paths.state_dir.mkdir(parents=True, mode=0o700)
    dump = Path(__file__).resolve().parents[1] / "store" / "schema_1.sql"
    db = apsw.Connection(str(lab.paths.store))
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute(dump.read_text())
    db.close()
    if not died(lambda: (arm(where, when, 1), lab.ingest())):
        return ["it was never reached"]
    lab.ingest()
    lab.analyze()
    with lab.store() as db:
        wrong = [word for (word,) in rows(db, "PRAGMA integrity_check") if word != "ok"]
        if value(db, "PRAGMA user_version") != migrations.VERSION:
            wrong.append("it is of an older schema")
    kinds = [event.kind.value for event in lab.events("claude:s1")]
    if kinds != ["user_msg", "tool_call", "tool_result", "assistant_msg", "completion"]:
        wrong.append(f"its events are {kinds}")
    with apsw.Connection(str(lab.paths.store.with_name(f"store.db.before-schema-{migrations.VERSION}"))) as copy:
        if (before := value(copy, "PRAGMA user_version")) != 1 or value(copy, "SELECT count(*) FROM _event") != 5:
            wrong.append(f"the copy is not what was there before (schema {before})")
    return wrong


def main(folder: Path, counts: list[int]) -> None:
    table: dict[str, list[str]] = {}
    machine = Machine(Lab(folder / "a"))
    for name, where in POINTS.items():
        for when in ("before", "after"):
            for count in counts:
                table[f"{when} {name} {count}"] = machine.kill(where, when, count)
    shutil.rmtree(folder / "a")
    for name, where in MIGRATION.items():
        for when in ("before", "after"):
            table[f"{when} {name}"] = kill_migration(Lab(folder / "b"), where, when)
    print(json.dumps(table))


# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture
def lab():
    with lab_in_memory() as machine:
        yield machine


def kill_everywhere(lab: Lab, counts: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, __file__, str(lab.folder), counts], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout)


@pytest.mark.fault(51)
def test_kill_before_and_after_every_step_loses_nothing_and_doubles_nothing(lab):
    table = kill_everywhere(lab, "1")
    assert {name: wrong for name, wrong in table.items() if wrong} == {}
    assert len(table) == 2 * (len(POINTS) + len(MIGRATION))


@pytest.mark.long
@pytest.mark.fault(51)
def test_kill_at_later_rounds_of_every_step(lab):
    began = time.monotonic()
    table = kill_everywhere(lab, "1,2,3,5,8")
    wrong = {name: each for name, each in table.items() if each and each != ["it was never reached"]}
    reached = sum(each != ["it was never reached"] for each in table.values())
    print("\n", {"kills": reached, "wrong": len(wrong), "seconds": round(time.monotonic() - began)})
    assert wrong == {}
    assert reached > 3 * len(POINTS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(each) for each in sys.argv[2].split(",")])
