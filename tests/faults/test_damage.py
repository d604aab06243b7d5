"""Row 57: a damaged store is set aside, never deleted, made again, and loudly reported.

A history with sessions whose files are there, gone, evicted and forgotten is damaged in one place after the other. Whatever
was hit: what the files still say is all there, once; what only the store held is there as far as it can be read; and
nothing that was forgotten comes back.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from lab import append, settle, user_line
from tests.faults.damaged import (
    GONE,
    LIVE,
    PAGE,
    PLACES,
    WAYS,
    History,
    hit,
    kinds,
    look_over,
    of,
    pages_of,
    placed,
    set_aside,
    zero,
)

# Of bytes inside of a value SQLite keeps no checksum: an archived piece that was written over is what `verify` finds.
UNSEEN = {("overflow of frames", "bytes flipped all over")}
# Everything with its head flipped, and of the rest what was hard at some time; the others take their time with the long.
QUICK = {
    "its head flipped": PLACES,
    "zeroed": ("header", "leaf of events", "inner page of names", "meta"),
    "bytes flipped all over": ("leaf of files", "leaf of generations", "leaf of events"),
}
HITS = [
    pytest.param(place, way, marks=() if place in QUICK[way] else pytest.mark.long)
    for way in WAYS
    for place in PLACES
    if (place, way) not in UNSEEN
]


@pytest.mark.fault(57)
@pytest.mark.parametrize(("place", "way"), HITS, ids=lambda each: each)
def test_damaged_page_costs_nothing_that_can_be_had(history, place, way):
    lab = history.restore()
    damaged = hit(lab.paths.store, PLACES[place](lab.paths.store), WAYS[way])

    lab.ingest()

    aside = look_over(history)
    if aside is not None:
        kept = lab.paths.state_dir / aside
        assert kept.read_bytes() == damaged, "it is kept as it was found"
        assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.fault(57)
@pytest.mark.parametrize("left", [100, PAGE, 40 * PAGE, 0.5, -PAGE, -120 * PAGE - 1500], ids=str)
def test_truncated_store_is_made_again_from_what_is_left_of_it(history, left):
    lab = history.restore()
    size = lab.paths.store.stat().st_size
    os.truncate(lab.paths.store, int(size * left) if isinstance(left, float) else left if left > 0 else size + left)

    lab.ingest()

    assert look_over(history, gone_are_whole=False), "it must not pass for whole"


@pytest.mark.fault(57)
@pytest.mark.parametrize("left", ["nothing", "zeros", "other words"])
def test_store_that_is_none_any_more_is_made_again_from_the_files(history, left):
    lab = history.restore()
    size = lab.paths.store.stat().st_size
    garbage = {"nothing": b"", "zeros": bytes(size), "other words": b"this is no database" * (size // 19)}[left]
    lab.paths.store.write_bytes(garbage)

    lab.ingest()

    aside = look_over(history, gone_are_whole=False)
    assert (lab.paths.state_dir / aside).read_bytes() == garbage


@pytest.mark.fault(57)
@pytest.mark.fault(60)
def test_store_that_was_removed_is_made_again_and_that_is_said(history):
    lab = history.restore()
    lab.paths.store.unlink()

    lab.ingest()

    assert "it is gone" in lab.troubles.listing()[0]["detail"]
    assert look_over_without_aside(history)


def look_over_without_aside(history: History) -> bool:
    lab = history.lab
    sessions = lab.sessions()
    return {f"claude:{name}" for name in LIVE} <= sessions.keys() and "claude:forgotten" not in sessions


@pytest.mark.fault(57)
@pytest.mark.parametrize("table", ["_event", "_key", "_digest", "_session", "_fact"])
def test_what_was_hit_of_sessions_that_are_gone_is_derived_from_their_bytes(history, table):
    lab = history.restore()
    hit(lab.paths.store, pages_of(lab.paths.store, table, "leaf")[0], zero)

    lab.ingest()

    assert "derived again" in lab.troubles.listing()[0]["detail"]
    assert look_over(history, gone_are_whole=False)
    now = lab.event_rows()
    for name in GONE:
        assert placed(of(now, name)) == placed(of(history.events, name)), name
        assert kinds(lab, name) == kinds(history, name), name


# --- the WAL ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_flight(history):
    """The same with commits that are in the WAL alone, as a kill leaves it."""
    lab = history.restore()
    path = lab.claude_file("live3")
    before = path.read_bytes()
    pipeline = lab.pipeline()
    pipeline.start()
    try:
        for number in range(3, 12):
            append(path, user_line(number, f"late {number} " + "and more " * 900, session="live3"))
            settle(pipeline)
        only = lab.claude_file("only-in-the-wal")
        only.write_bytes(user_line(0, "nowhere else", session="only-in-the-wal"))
        settle(pipeline)
        only.unlink()
        settle(pipeline)
        assert lab.paths.store.with_name("store.db-wal").stat().st_size > 20 * PAGE
        kept = lab.folder / "in-flight"
        shutil.copytree(lab.paths.state_dir, kept)
        events = lab.event_rows()
    finally:
        pipeline.stop()
        after = path.read_bytes()
        path.write_bytes(before)
    return kept, events, before, after


def flip(path: Path, at: int, count: int = 16) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + count] = bytes(each ^ 0xFF for each in data[at : at + count])
    path.write_bytes(data)


def harm(folder: Path, name: str) -> None:
    store, wal, shm = (folder / f"store.db{suffix}" for suffix in ("", "-wal", "-shm"))
    if name.startswith("deleted"):
        wal.unlink()
    if name in ("deleted with its index", "without its index"):
        shm.unlink()
    if name == "garbage":
        wal.write_bytes(b"garbage!" * (wal.stat().st_size // 8))
    if name == "truncated":
        os.truncate(wal, wal.stat().st_size // 2 + 100)
    if name == "header flipped":
        flip(wal, 0)
    if name == "frame flipped":
        flip(wal, 32 + 24 + 3 * (PAGE + 24) + 50)
    if name == "index garbage":
        shm.write_bytes(b"garbage!" * (shm.stat().st_size // 8))
    if name.endswith("and the store zeroed"):
        store.write_bytes(bytes(store.stat().st_size))
    if name == "and a page zeroed":
        leaves = pages_of(store, "_event", "leaf")
        hit(store, leaves[len(leaves) // 2], zero)
    if name.endswith("and the header zeroed"):
        store.write_bytes(bytes(100) + store.read_bytes()[100:])


WALS = ["whole", "deleted", "deleted with its index", "without its index", "garbage", "truncated", "header flipped",
        "frame flipped", "index garbage", "and the store zeroed", "and the header zeroed", "and a page zeroed"]  # fmt: skip


WHOLE_WALS = ("whole", "without its index", "index garbage", "and the header zeroed", "and a page zeroed")


@pytest.mark.fault(57)
@pytest.mark.parametrize("name", WALS)
def test_damaged_wal_costs_nothing_that_the_files_have(history, in_flight, name):
    kept, events, before, after = in_flight
    lab = history.lab
    lab.claude_file("live3").write_bytes(after)
    shutil.rmtree(lab.paths.state_dir)
    shutil.copytree(kept, lab.paths.state_dir)
    harm(lab.paths.state_dir, name)
    was, history.events = history.events, events
    try:
        lab.ingest()

        look_over(history, gone_are_whole=not name.endswith("the store zeroed"))
        if name in WHOLE_WALS:
            assert [event.summary for event in lab.events("claude:only-in-the-wal")] == ["nowhere else"]
    finally:
        history.events = was
        lab.claude_file("live3").write_bytes(before)


# --- at random ----------------------------------------------------------------------------------


def spoil(data: bytearray, chance: random.Random) -> None:
    """Anything that may happen to a page or two: bytes flipped, zeros, noise, another page's content, the end cut off."""
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(data) // PAGE) * PAGE
        way = chance.randrange(6)
        if way == 0:
            for _ in range(chance.choice((1, 4, 64))):
                data[at + chance.randrange(PAGE)] ^= 1 << chance.randrange(8)
        elif way == 1:
            data[at : at + PAGE] = bytes(PAGE)
        elif way == 2:
            data[at : at + PAGE] = chance.randbytes(PAGE)
        elif way == 3:
            other = chance.randrange(len(data) // PAGE) * PAGE
            data[at : at + PAGE] = data[other : other + PAGE]
        elif way == 4:
            start = at + chance.randrange(PAGE - 64)
            data[start : start + 64] = chance.randbytes(64)
        else:
            del data[max(PAGE, len(data) - chance.randrange(20 * PAGE)) :]


def look_over_random(history: History) -> bool:
    """Was it found out? If so the files' sessions are all there, once; in any case what is there fits together."""
    lab = history.lab
    try:
        lab.analyze()
        lab.event_rows()
        lab.sessions()
    except UnicodeDecodeError as error:  # of which SQLite says nothing: found out by who reads it
        with lab.upkeep() as upkeep:
            upkeep._pipeline.suspect(error)
        lab.ingest()
        assert set_aside(lab)
    is_found = bool(set_aside(lab))
    if is_found:
        look_over(history, gone_are_whole=False)
    assert "claude:forgotten" not in lab.sessions()
    return is_found


@pytest.mark.fault(57)
def test_random_damage_is_survived(history):
    assert run_at_random(history, range(3))


@pytest.mark.long
@pytest.mark.fault(57)
def test_much_random_damage_is_survived(history):
    rounds = 600
    found = run_at_random(history, range(1000, 1000 + rounds))
    print(f"{rounds} damaged stores: {found} set aside and made again, {rounds - found} where SQLite finds no fault")


def run_at_random(history: History, seeds: range) -> int:
    found = 0
    for seed in seeds:
        lab = history.restore()
        data = bytearray(lab.paths.store.read_bytes())
        spoil(data, random.Random(seed))
        lab.paths.store.write_bytes(data)
        try:
            lab.ingest()
            found += look_over_random(history)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    return found
