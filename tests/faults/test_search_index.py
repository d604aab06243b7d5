"""The search index is damaged in any way, removed, killed half-way or left ahead of the store: that is found, has a name
in `status` while it is mended, and queries are answered meanwhile, with a notice.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from lab import Lab, append, settle, until, user_line
from sessiond.store import find, fts, search
from sessiond.store.connect import open_reader, open_writer, rows, value
from tests.faults.agreement import lab_in_memory

TESTS = Path(__file__).resolve().parents[1]
PAGE = 4096
EVENTS = 400


@pytest.fixture
def lab():
    with lab_in_memory() as machine:
        yield machine


@pytest.fixture
def filled(lab, monkeypatch):
    """A stopped machine with an index of every kind of page."""
    monkeypatch.setattr(search, "RETRY_SECONDS", 0.01)
    noise = random.Random(1)
    lines = (
        user_line(number, f"frobnicate w{number} {noise.randbytes(600).hex(' ', 3)}", session="s1")
        for number in range(EVENTS)
    )
    lab.claude_file().write_bytes(b"".join(lines))
    lab.ingest()
    with lab.upkeep() as upkeep:
        upkeep._pipeline.search.catch_up_now(10)
    _leave_free_pages(lab)
    return lab


def _leave_free_pages(lab: Lab) -> None:
    db = open_writer(lab.paths.search)
    db.execute("CREATE TABLE passing (x BLOB); INSERT INTO passing VALUES (zeroblob(40000)); DROP TABLE passing")
    db.close()


def found(lab: Lab) -> set[str]:
    """What a search for the word in every prompt finds: the second word of each."""
    hits = []
    with find.Index(lab.paths.search) as index, lab.store() as db:
        index.ask(lambda asked: hits.extend(find._matches(asked, "frobnicate")))
        said = dict(rows(db, "SELECT id, summary FROM _event"))
    return {said[id_].split()[1] for id_, _ in hits if id_ in said}


EVERYTHING = {f"w{number}" for number in range(EVENTS)}


def written(lab: Lab) -> set[str]:
    lines = lab.claude_file().read_bytes().splitlines()
    return {json.loads(line)["message"]["content"].split()[1] for line in lines}


@contextmanager
def running(lab: Lab):
    """The pipeline in this process; `lab.said` is what was named, in order."""
    pipeline = lab.pipeline()
    lab.said = []
    lab.troubles._say = lambda name, detail: lab.said.append((name, detail))
    pipeline.start()
    try:
        yield pipeline
    finally:
        pipeline.stop()


def mended(pipeline, seconds: float = 30) -> None:
    """The index was looked at, and made again where it had to be."""
    done = threading.Event()
    pipeline.search.ask(lambda _: done.set())
    assert done.wait(seconds), "the index is at rest"


def names(lab: Lab) -> list[str | None]:
    return [detail for name, detail in lab.said if name == "search_index"]


# --- damage -------------------------------------------------------------------------------------


def kinds_of_pages(path) -> dict[str, int]:
    """One page of each kind: the header with the schema, each table's inner, leaf and overflow pages, lists of free pages
    and of what points where.
    """
    with apsw.Connection(str(path)) as db:
        size = value(db, "PRAGMA page_count")
        kinds = {
            f"{name} {kind}": page
            for name, kind, page in rows(
                db, "SELECT name, pagetype, max(pageno) FROM dbstat GROUP BY 1, 2 ORDER BY 1, 2"
            )
        }
        used = {page for (page,) in rows(db, "SELECT pageno FROM dbstat")}
    kinds["pointer map"] = 2
    kinds["free"] = max(set(range(3, size + 1)) - used)
    return kinds


def write_over(path, page: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(data)


def copies(lab: Lab, damages):
    """Each of these damages done to a fresh copy of the same stopped machine, with a line to be taken in."""
    state = lab.paths.state_dir
    whole = state.with_name("whole")
    shutil.copytree(state, whole)
    append(lab.claude_file(), user_line(EVENTS, "frobnicate later"))
    for name, damage in damages:
        shutil.rmtree(state)
        shutil.copytree(whole, state)
        damage(lab.paths.search)
        yield name


def assert_mended(lab: Lab, name: str, *, is_harmless: bool = False) -> None:
    with running(lab) as pipeline:
        until(lambda: len(lab.events("claude:s1")) == len(written(lab)), what="the last line")
        pipeline.search.catch_up_now(30)
        mended(pipeline)
        assert names(lab)[-1:] in ([None], []), (name, "and the trouble is over", names(lab))
        assert is_harmless or any(names(lab)), (name, "it has a name")
        assert found(lab) == written(lab), name
    index = open_reader(lab.paths.search)
    fts.check(index)
    index.close()


@pytest.mark.parametrize("content", ["zeros", "noise"])
def test_page_of_any_kind_is_found_out_and_everything_can_be_searched_again(filled, content):
    kinds = kinds_of_pages(filled.paths.search)
    assert {"fts_data leaf", "fts_data internal", "fts_idx leaf", "_position leaf", "sqlite_schema leaf"} <= {*kinds}
    data = bytes(PAGE) if content == "zeros" else random.Random(2).randbytes(PAGE)
    damages = [(kind, lambda path, page=page: write_over(path, page, data)) for kind, page in kinds.items()]
    for kind in copies(filled, damages):
        # A page that holds nothing may hold anything.
        assert_mended(filled, kind, is_harmless=kind == "free")


def test_index_that_is_cut_off_emptied_or_something_else_is_made_again(filled):
    size = filled.paths.search.stat().st_size
    damages = [
        *((f"cut to {left}", lambda path, left=left: os.truncate(path, left)) for left in (0, 50, PAGE, size // 2, size - 7)),
        ("zeroed", lambda path: path.write_bytes(bytes(size))),
        ("header zeroed", lambda path: write_over(path, 1, bytes(100))),
        ("other text", lambda path: path.write_bytes(b"not a database at all\n" * 900)),
        ("removed", lambda path: path.unlink()),
        ("another schema", lambda path: _execute(path, "PRAGMA user_version = 9")),
        ("a table is missing", lambda path: _execute(path, "DROP TABLE digests")),
        ("another store's", lambda path: _execute(path, "UPDATE _position SET store_id = 'x'")),
        ("behind", lambda path: _execute(path, "UPDATE _position SET position = 0")),
        ("ahead", lambda path: _execute(path, "UPDATE _position SET position = 1000000")),
        ("unfinished", lambda path: _execute(path, "DELETE FROM _position")),
    ]  # fmt: skip
    for name in copies(filled, damages):
        assert_mended(filled, name)


def _execute(path, statement: str) -> None:
    db = open_writer(path)
    db.execute(statement)
    db.close()


def test_any_byte_of_the_header_may_flip(filled):
    def flip(path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    for at in copies(
        filled, [(at, lambda path, at=at: flip(path, at)) for at in (3, 16, 18, 19, 20, 21, 31, 39, 47, 55, 59, 63)]
    ):
        assert_mended(filled, f"byte {at}", is_harmless=True)  # some bytes mean nothing, or are put right by SQLite


# --- while it runs ------------------------------------------------------------------------------


def test_index_removed_under_the_daemon_is_made_again(filled):
    with filled.daemon():
        for path in filled.paths.state_dir.glob("search.db*"):
            path.unlink()
        append(filled.claude_file(), user_line(EVENTS, "frobnicate later"))
        until(lambda: found(filled) == EVERYTHING | {"later"}, 30, "everything in an index that readers find")
        until(lambda: not filled.status()["degraded"])
    log = (filled.folder / "daemon.log").read_text()
    assert "the index was removed; it is being made again" in log
    assert "recovered" in log


def test_damage_under_the_daemon_is_found_by_the_first_query_that_meets_it(filled):
    """The daemon itself remembers the pages that it needs; whoever asks reads them from the disk."""
    with filled.daemon():
        filled.ingest_through_daemon()
        assert len(json.loads(filled.cli("search", "frobnicate", "--json").stdout)) == EVENTS
        page = kinds_of_pages(filled.paths.search)["fts_data internal"]
        write_over(filled.paths.search, page, bytes(PAGE))

        said = filled.cli("search", "frobnicate", "--json")

        assert said.returncode == 0
        assert json.loads(said.stdout) == []
        assert "the search index is damaged (CorruptError): not all was searched" in said.stderr
        until(lambda: found(filled) == EVERYTHING, 30, "everything found again")
    assert "search_index" in (filled.folder / "daemon.log").read_text()


def test_queries_are_answered_with_a_notice_while_the_index_is_made_again(filled, monkeypatch):
    """What is in it so far is found: evicted sessions by their digests first, then event by event."""
    monkeypatch.setattr(search, "REBUILT", 100)
    filled.paths.search.unlink()
    go_on = threading.Event()
    pipeline = filled.pipeline()
    real = pipeline.search._rebuild["fts"]

    def slowly(db):
        for number, text in enumerate(real(db)):
            if number == 250:
                go_on.wait(30)
            yield text

    pipeline.search._rebuild["fts"] = slowly
    pipeline.start()
    try:
        until(lambda: len(found(filled)) == 200, what="some of it in the index")
        (trouble,) = filled.troubles.listing()
        assert (trouble["name"], trouble["detail"]) == ("search_index", "rebuilding: it was missing, or never finished")
        said = filled.cli("search", "frobnicate", "--json")
        assert said.returncode == 0
        assert len(json.loads(said.stdout)) == 200
        assert "the search index is being made again: only what is in it so far was searched" in said.stderr
        ticket = pipeline.ask()["ticket"]
        assert not pipeline.asked({"ticket": ticket})["done"], "what was asked for is not searchable yet"
        go_on.set()
        settle(pipeline)
        assert found(filled) == EVERYTHING
        assert filled.troubles.listing() == []
        assert "search index" not in filled.cli("search", "frobnicate").stderr
    finally:
        go_on.set()
        pipeline.stop()


# --- killed, ahead ------------------------------------------------------------------------------


DIES_IN_A_REBUILD = """
import os, pathlib, signal, sys, threading
sys.path.insert(0, os.getcwd())
from lab import Lab
from sessiond.store import search

search.REBUILT = 100
pipeline = Lab(pathlib.Path(sys.argv[1])).pipeline()
real = pipeline.search._rebuild["fts"]

def killed(db):
    for number, text in enumerate(real(db)):
        if number == 250:
            os.kill(os.getpid(), signal.SIGKILL)
        yield text

pipeline.search._rebuild["fts"] = killed
pipeline.start()
threading.Event().wait(30)
"""


@pytest.mark.fault(51)
def test_rebuild_that_was_killed_is_begun_anew(filled):
    filled.paths.search.unlink()
    program = subprocess.run([sys.executable, "-c", DIES_IN_A_REBUILD, str(filled.folder)], cwd=TESTS, timeout=60)
    assert program.returncode == -signal.SIGKILL
    assert len(found(filled)) == 200
    with find.Index(filled.paths.search) as index:
        assert index.notice == find.UNFINISHED
    assert_mended(filled, "killed")


def test_index_ahead_of_a_store_that_was_put_back_is_made_again_whatever_is_read_meanwhile(filled, monkeypatch):
    """By the time the index is looked at, intake could have taken the store past the position of the index: then
    nothing would show that the two are not of one history.
    """
    store = filled.paths.store
    older = store.with_name("older")
    shutil.copy(store, older)
    for number in range(3):  # each a position of its own
        append(filled.claude_file(), user_line(EVENTS + number, f"frobnicate before{number}"))
        filled.ingest()
    older.rename(store)
    other = filled.claude_file("other")
    other.write_bytes(b"".join(user_line(number, f"frobnicate other{number}", session="other") for number in range(9)))
    real = fts.open_index

    def late(path):
        threading.Event().wait(0.5)  # a slow disk
        return real(path)

    monkeypatch.setattr(fts, "open_index", late)
    with running(filled) as pipeline:
        until(lambda: len(filled.events("claude:other")) == 9, what="the history")
        for number in range(9, 15):
            append(other, user_line(number, f"frobnicate other{number}", session="other"))
            pipeline.loop._hint(str(other))
            until(lambda number=number: len(filled.events("claude:other")) == number + 1, what="the next position")
        assert pipeline.search.catch_up_now(10)
        mended(pipeline)
        assert "rebuilding: it is ahead of the store" in names(filled)
        assert found(filled) == (
            EVERYTHING | {f"before{number}" for number in range(3)} | {f"other{number}" for number in range(15)}
        )


@pytest.mark.long
def test_flips_anywhere_leave_no_index_that_cannot_be_asked(filled):
    """A flipped byte of a word makes another word of it, and nothing can tell; whatever breaks the index is found."""
    chance = random.Random(3)
    size = filled.paths.search.stat().st_size

    def flip(path) -> None:
        data = bytearray(path.read_bytes())
        data[chance.randrange(size)] ^= 1 << chance.randrange(8)
        path.write_bytes(data)

    rebuilt = whole = partly = 0
    for _ in copies(filled, [("flip", flip)] * 300):
        with running(filled) as pipeline:
            until(lambda: len(filled.events("claude:s1")) == EVENTS + 1, what="the last line")
            pipeline.search.catch_up_now(30)
            mended(pipeline)
            there = found(filled)
        rebuilt += any(names(filled))
        whole += there == written(filled)
        partly += there != written(filled)
        assert len(there) >= EVENTS - 5
        assert there == written(filled) or not any(names(filled)), "what was made again is whole"
    print("\n", {"flips": 300, "found and made again": rebuilt, "answers whole": whole, "an answer short": partly})
