"""Row 57: a damaged store is set aside, never deleted, made again, and loudly reported.

A history with sessions whose files are there, gone, evicted and forgotten is damaged in one place after the other. Whatever
was hit: what the files still say is all there, once; what only the store held is there as far as it can be read; and
nothing that was forgotten comes back.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import apsw
import pytest

from lab import Lab, append, settle, until, user_line
from sessiond.errors import ConfigError
from sessiond.store import damage, migrations, rebuild
from sessiond.store.connect import rows, value

PAGE = 4096
LIVE = [f"live{number}" for number in range(45)]
GONE = [f"gone{number}" for number in range(15)]
LONG = 160  # lines of the sessions that make tables large enough for inner pages
RESTLESS = '[analyze]\noutcome_after = "1s"\n[retention]\nmin_age = "0s"\nkeep_free = "1MiB"\n'


class History:
    """A machine with a past; `restore` puts its store back as it was before it was damaged."""

    def __init__(self) -> None:
        self.lab = Lab(Path(tempfile.mkdtemp(prefix="sd")))
        self._kept = self.lab.folder / "kept"
        self.bytes: dict[str, bytes] = {}
        self._write()
        self._distil()
        self.events = self.lab.event_rows()
        self.digests = {uid: self.lab.digest(uid) for uid in self.lab.sessions()}
        self.names = {uid.partition(":")[2] for uid in self.digests}
        self._leave_room()
        shutil.copytree(self.lab.paths.state_dir, self._kept)

    def _write(self) -> None:
        lab, noise = self.lab, random.Random(5)
        for name in [*GONE, "evicted", "evicted-gone", "forgotten", *LIVE]:
            lines = LONG if name in ("gone0", "live0", "live1") else 3
            words = (noise.randbytes(100).hex() if lines == LONG else "a word" for _ in range(lines))
            said = [user_line(number, f"{name} {number} {text}", session=name) for number, text in enumerate(words)]
            self.bytes[name] = b"".join(said)
            lab.claude_file(name).write_bytes(self.bytes[name])
            if name in ("gone14", "forgotten"):
                lab.ingest()  # in this order: rows of those that are gone lie before those of the others

    def _distil(self) -> None:
        lab = self.lab
        lab.write_config(RESTLESS)
        lab.ingest()
        lab.analyze()
        with lab.upkeep() as upkeep:
            upkeep.do("forget", {"uids": ["claude:forgotten"]})
            upkeep.do("pin", {"uids": ["claude:gone1", "claude:live2"]})
        self._evict("evicted", "evicted-gone")
        for name in (*GONE, "evicted-gone"):
            lab.claude_file(name).unlink()
        lab.ingest()

    def _evict(self, *names: str) -> None:
        from sessiond.model import utc
        from sessiond.store import evict

        with self.lab.upkeep() as upkeep:
            pipeline = upkeep._pipeline
            for name in names:
                with self.lab.store() as db:
                    row = value(db, "SELECT id FROM _session WHERE uid = ?", (f"claude:{name}",))
                now = pipeline._now()
                assert evict.let_go(pipeline.writer, row, now, active_before=utc(now)), name

    def _leave_room(self) -> None:
        """Free pages, as a store has them after something was deleted."""
        db = apsw.Connection(str(self.lab.paths.store))
        db.execute("CREATE TABLE extra (a); INSERT INTO extra VALUES (randomblob(400000)); DROP TABLE extra")
        assert value(db, "PRAGMA freelist_count") > 50
        db.close()

    def restore(self) -> Lab:
        lab = self.lab
        shutil.rmtree(lab.paths.state_dir)
        shutil.copytree(self._kept, lab.paths.state_dir)
        lab.write_config(RESTLESS)
        return lab


@pytest.fixture(scope="module")
def history():
    made = History()
    yield made
    shutil.rmtree(made.lab.folder)


# --- where to hit -------------------------------------------------------------------------------


def pages_of(store: Path, name: str, kind: str) -> list[int]:
    """The pages of a table or an index of one kind (leaf, internal, overflow), in the order of its rows."""
    db = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    found = rows(db, "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY path", (name, kind))
    db.close()
    return [number for (number,) in found]


def freelist_trunk(store: Path) -> int:
    return int.from_bytes(store.read_bytes()[32:36], "big")


PLACES = {
    "header": lambda store: 1,
    "schema": lambda store: pages_of(store, "sqlite_schema", "leaf")[1],
    "pointer map": lambda store: 2,
    "freelist": freelist_trunk,
    "inner page of events": lambda store: pages_of(store, "_event", "internal")[0],
    "leaf of events": lambda store: pages_of(store, "_event", "leaf")[-1],
    "inner page of names": lambda store: pages_of(store, "_key", "internal")[0],
    "leaf of names": lambda store: pages_of(store, "_key", "leaf")[3],
    "leaf of sessions": lambda store: pages_of(store, "_session", "leaf")[-1],
    "leaf of files": lambda store: pages_of(store, "_source", "leaf")[-1],
    "root of frames": lambda store: pages_of(store, "_frame", "internal")[0],
    "overflow of frames": lambda store: pages_of(store, "_frame", "overflow")[-2],
    "leaf of generations": lambda store: pages_of(store, "_generation", "leaf")[-1],
    "leaf of digests": lambda store: pages_of(store, "_digest", "leaf")[-1],
    "tombstones": lambda store: pages_of(store, "_tombstone", "leaf")[0],
    "meta": lambda store: pages_of(store, "_meta", "leaf")[0],
    "inner page of an index": lambda store: pages_of(store, "_event_seq", "internal")[0],
    "leaf of an index": lambda store: pages_of(store, "_event_seq", "leaf")[0],
    "index of uids": lambda store: pages_of(store, "sqlite_autoindex__session_1", "leaf")[0],
}


def flip_head(page: bytearray) -> None:
    for at in range(12):
        page[at] ^= 0xFF


def flip_some(page: bytearray) -> None:
    for at in range(8, len(page), 97):
        page[at] ^= 0x5A


def zero(page: bytearray) -> None:
    page[:] = bytes(len(page))


WAYS = {"its head flipped": flip_head, "bytes flipped all over": flip_some, "zeroed": zero}


def hit(store: Path, number: int, way) -> bytes:
    data = bytearray(store.read_bytes())
    page = data[(number - 1) * PAGE : number * PAGE]
    way(page)
    data[(number - 1) * PAGE : number * PAGE] = page
    store.write_bytes(data)
    return bytes(data)


# --- what must be true afterwards ---------------------------------------------------------------


def look_over(history: History, *, gone_are_whole: bool = True) -> str | None:
    """Everything that must hold, whatever was hit; the name of the store that was set aside."""
    lab = history.lab
    lab.analyze()
    sessions = lab.sessions()
    assert "claude:forgotten" not in sessions, "what was forgotten came back"
    for name in LIVE:
        path = lab.claude_file(name)
        assert lab.archived(path) == path.read_bytes(), name
    now = lab.event_rows()
    assert len(set(now)) == len(now)
    for name in LIVE:
        assert placed(of(now, name)) == placed(of(history.events, name)), name
    if gone_are_whole:
        for name in GONE:
            assert sessions[f"claude:{name}"].source_gone_at, name
            assert lab.archived(lab.claude_file(name)) == history.bytes[name], name
            assert placed(of(now, name)) == placed(of(history.events, name)), name
            assert lab.digest(f"claude:{name}") == history.digests[f"claude:{name}"], name
        assert sessions["claude:gone1"].pinned
        assert kinds(lab, "evicted-gone") == kinds(history, "evicted-gone")
    assert kinds(lab, "evicted") == kinds(history, "evicted"), "told twice, or not at all"
    with lab.store() as db:
        assert value(db, "PRAGMA integrity_check") == "ok"
        assert rows(db, "PRAGMA foreign_key_check") == []
        events = value(db, "SELECT count(*) FROM _event")
    lab.ingest()
    with lab.store() as db:
        assert value(db, "SELECT count(*) FROM _event") == events, "read twice"
    asides = set_aside(lab)
    is_told = "store_rebuilt" in [each["name"] for each in lab.troubles.listing()]
    assert is_told == bool(asides)
    assert len(asides) < 2
    return asides[0].name if asides else None


def of(events: list[tuple], name: str) -> list[tuple]:
    return [row for row in events if row[0] == f"claude:{name}"]


def placed(events: list[tuple]) -> list[tuple]:
    """Without the number of the content: the row that says it may be what was hit."""
    return [(uid, below, *rest) for uid, below, _, *rest in events]


def kinds(where, name: str) -> dict | None:
    digest = where.digest(f"claude:{name}") if isinstance(where, Lab) else where.digests[f"claude:{name}"]
    return None if digest is None else digest["kinds"]


def set_aside(lab: Lab) -> list[Path]:
    found = sorted(lab.paths.state_dir.glob("store.db.damaged-*"))
    return [path for path in found if not path.name.endswith(("-wal", "-shm"))]


# --- the tests ----------------------------------------------------------------------------------


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


# --- how it is done -----------------------------------------------------------------------------


class Killed(BaseException):
    pass


@pytest.mark.fault(57)
@pytest.mark.parametrize("step", ["move_aside", "salvage", "_put_in_place", "clear_mark", "half moved"])
def test_kill_while_it_is_made_again_is_made_good_by_the_next_start(history, monkeypatch, step):
    lab = history.restore()
    damaged = hit(lab.paths.store, 1, zero)

    def killed(store, aside=None, *_, **__):
        if step == "half moved":
            store.rename(aside)
        raise Killed

    owner, name = {
        "move_aside": (rebuild.connect, "move_aside"),
        "half moved": (rebuild.connect, "move_aside"),
        "clear_mark": (rebuild.damage, "clear_mark"),
    }.get(step, (rebuild, step))
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        with pytest.raises(Killed):
            lab.ingest()

    lab.ingest()

    aside = look_over(history)
    assert (lab.paths.state_dir / aside).read_bytes() == damaged
    assert not list(lab.paths.state_dir.glob("*.rebuilding*"))
    assert damage.read_mark(lab.paths.store) is None


@pytest.mark.fault(57)
def test_without_room_for_the_bytes_the_distilled_is_saved(history, monkeypatch):
    lab = history.restore()
    hit(lab.paths.store, 1, zero)
    real = rebuild.salvage

    def salvage(*args, leave_out, **kept):
        if not leave_out:
            raise apsw.FullError("no room")
        return real(*args, leave_out=leave_out, **kept)

    monkeypatch.setattr(rebuild, "salvage", salvage)
    lab.ingest()

    assert look_over(history, gone_are_whole=False)
    assert lab.digest("claude:gone3") == history.digests["claude:gone3"]
    assert lab.digest("claude:evicted-gone") == history.digests["claude:evicted-gone"]


@pytest.mark.fault(57)
@pytest.mark.parametrize("version", [0, 1, 2**24 + 2])
def test_version_that_does_not_go_with_the_tables_is_damage(history, version):
    lab = history.restore()
    data = bytearray(lab.paths.store.read_bytes())
    data[60:64] = version.to_bytes(4, "big")
    lab.paths.store.write_bytes(data)

    lab.ingest()

    assert look_over(history)


@pytest.mark.fault(57)
def test_every_damaged_store_is_kept(history):
    lab = history.restore()
    for word in (b"one", b"two", b"three"):
        lab.paths.store.write_bytes(word * 1000)
        lab.ingest()

    assert {path.read_bytes()[:3] for path in set_aside(lab)} == {b"one", b"two", b"thr"}


@pytest.mark.fault(57)
def test_pause_outlives_the_store(history):
    lab = history.restore()
    with lab.upkeep() as upkeep:
        upkeep.do("pause", {"until": "forever"})
    hit(lab.paths.store, 1, zero)

    with lab.upkeep() as upkeep:
        assert upkeep._pipeline.paused_until == "forever"


@pytest.mark.fault(57)
def test_check_gives_up_in_time(history, monkeypatch):
    lab = history.restore()
    monkeypatch.setattr(damage, "STEPS_BETWEEN_LOOKS", 1)

    assert damage.check(lab.paths.store, 0.0) is None


@pytest.mark.fault(57)
@pytest.mark.fault(59)
def test_damaged_store_of_an_older_schema_is_salvaged_and_brought_up_to_date(tmp_path):
    lab = Lab(tmp_path)
    lab.paths.state_dir.mkdir(parents=True, mode=0o700)
    dump = Path(__file__).parent.parent / "store" / "schema_1.sql"
    db = apsw.Connection(str(lab.paths.store))
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute(dump.read_text())
    db.close()
    hit(lab.paths.store, pages_of(lab.paths.store, "_event_seq", "leaf")[0], zero)

    lab.ingest()

    assert len(lab.events("claude:s1")) == 5
    assert lab.sessions()["claude:s1"].cost.output_tokens == 12
    with lab.store() as db:
        assert value(db, "PRAGMA user_version") == migrations.VERSION


@pytest.mark.fault(57)
@pytest.mark.fault(59)
def test_damaged_store_of_a_newer_program_is_left_to_that_program(history):
    lab = history.restore()
    db = apsw.Connection(str(lab.paths.store))
    db.execute("CREATE TABLE _of_the_future (a)")
    db.pragma("user_version", migrations.VERSION + 1)
    db.close()
    damaged = hit(lab.paths.store, pages_of(lab.paths.store, "_event", "leaf")[0], zero)

    with pytest.raises(ConfigError, match="newer"):
        lab.ingest()

    assert lab.paths.store.read_bytes() == damaged
    assert not set_aside(lab)


# --- the daemon ---------------------------------------------------------------------------------


def troubles(lab: Lab) -> dict[str, str]:
    return {each["name"]: each["detail"] for each in lab.status()["degraded"]}


@pytest.mark.fault(57)
def test_rebuild_is_told_until_somebody_has_read_it(history):
    lab = history.restore()
    hit(lab.paths.store, pages_of(lab.paths.store, "_event", "leaf")[-1], zero)
    for _ in range(2):  # a restart does not make it go away
        with lab.daemon():
            until(lambda: len(lab.sessions()) > len(LIVE) and lab.status()["state"] == "degraded")
            told = troubles(lab)["store_rebuilt"]
            assert "salvaged: " in told
            assert "read again" in told
            assert lab.cli("health").returncode == 1
    (aside,) = set_aside(lab)
    assert str(aside) in told
    with lab.daemon():
        (named,) = lab.status()["store"]["set_aside"]
        assert named["path"] == str(aside)
        assert named["bytes"] >= aside.stat().st_size

        done = lab.cli("status", "--acknowledge")

        assert "1 " in done.stderr
        assert "store_rebuilt" not in troubles(lab)
        until(lambda: lab.cli("health").returncode == 0)
    with lab.daemon():
        assert "store_rebuilt" not in troubles(lab)
    assert aside.exists()


@pytest.mark.fault(57)
@pytest.mark.parametrize("place", ["header", "leaf of events"])
def test_store_is_left_alone_where_the_user_says_so(history, place):
    lab = history.restore()
    lab.write_config(RESTLESS + '[store]\non_corrupt = "stop"\n')
    damaged = hit(lab.paths.store, PLACES[place](lab.paths.store), zero)
    before = {path.name: path.read_bytes() for path in lab.paths.state_dir.glob("store.db*")}

    refused = lab.cli("run")

    assert refused.returncode == 78, "a service manager must not start it again and again"
    assert "damaged" in refused.stderr
    assert "on_corrupt" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert lab.paths.store.read_bytes() == damaged
    for name in ("store.db", "store.db.forgotten", "store.db.ballast"):
        assert (lab.paths.state_dir / name).exists() == (name in before)
    assert not set_aside(lab)


@pytest.mark.fault(57)
@pytest.mark.parametrize("on_corrupt", ["rebuild", "stop"])
def test_damage_met_while_running_ends_the_writing_and_the_next_start_mends_it(history, on_corrupt):
    lab = history.restore()
    path = lab.claude_file("live4")
    before = path.read_bytes()
    try:
        with lab.daemon(config=RESTLESS + f'[store]\non_corrupt = "{on_corrupt}"\n') as process:
            until(lambda: lab.status()["state"] == "ready")
            data = lab.paths.store.read_bytes()
            inside = [*pages_of(lab.paths.store, "_event", "leaf")[-3:], *pages_of(lab.paths.store, "_key", "leaf")]
            with lab.paths.store.open("r+b") as file:
                for number in inside:
                    file.seek((number - 1) * PAGE)
                    file.write(b"\xa5" * PAGE)
            append(path, user_line(3, "after the damage", session="live4"))

            assert process.wait(20) == 75, "whoever looks after it starts it again"

        log = (lab.folder / "daemon.log").read_text()
        assert "store_damaged" in log
        assert "Traceback" not in log.split("store_damaged")[-1]
        assert len(data) <= lab.paths.store.stat().st_size, "nothing is gone"
        if on_corrupt == "stop":
            assert lab.cli("run").returncode == 78
            lab.write_config(RESTLESS)
        with lab.daemon():
            until(lambda: len(lab.events("claude:live4")) == 4)
            assert "store_rebuilt" in troubles(lab)
        assert lab.archived(path) == path.read_bytes()
        assert len(set_aside(lab)) == 1
    finally:
        path.write_bytes(before)


@pytest.mark.fault(57)
def test_error_of_something_else_does_not_condemn_the_store(history):
    lab = history.restore()
    with lab.upkeep() as upkeep:
        pipeline = upkeep._pipeline
        pipeline.suspect(apsw.CorruptError("of the index, say"))
        assert pipeline.damaged is None

        with lab.paths.store.open("r+b") as file:
            file.seek((pages_of(lab.paths.store, "_event", "leaf")[0] - 1) * PAGE)
            file.write(bytes(PAGE))
        pipeline.suspect(apsw.CorruptError("of the store"))

        assert pipeline.damaged is not None
        assert [each["name"] for each in lab.troubles.listing()] == ["store_damaged"]
        with pytest.raises(Exception, match="damaged"):
            upkeep.do("pin", {"uids": ["claude:live5"]})
    lab.ingest()
    assert set_aside(lab)


@pytest.mark.fault(60)
def test_store_removed_under_load_ends_the_daemon_and_the_next_one_has_everything_once(lab):
    paths = [lab.claude_file(f"s{number}") for number in range(6)]
    with lab.daemon() as process:
        written = 0
        while process.poll() is None:
            for number, path in enumerate(paths):
                append(path, user_line(written, f"line {written}", session=f"s{number}"))
            written += 1
            time.sleep(0.002)
            if written == 50:
                until(lambda: lab.sessions())
                lab.paths.store.unlink()
            assert written < 100_000, "it does not notice"
        assert process.returncode == 75
    assert not lab.paths.store.exists(), "nothing was made in its place by the one that ended"
    with lab.daemon():
        lab.ingest_through_daemon()
        assert "store_rebuilt" in troubles(lab)
        for number, path in enumerate(paths):
            assert lab.archived(path) == path.read_bytes()
            assert len(lab.events(f"claude:s{number}")) == written


@pytest.mark.fault(60)
def test_nothing_is_written_into_a_removed_store(lab):
    lab.claude_file().write_bytes(user_line(0))
    with lab.upkeep() as upkeep:
        pipeline = upkeep._pipeline
        lab.paths.store.rename(lab.folder / "elsewhere")
        with pytest.raises(Exception, match="the store was removed"):
            pipeline.writer.call(lambda db: db.execute("DELETE FROM _session"))
        (lab.folder / "elsewhere").rename(lab.paths.store)


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
