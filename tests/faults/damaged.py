"""A store with a history to lose, the places in it that can be hit, and what must be true once it was made again."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import apsw

from lab import Lab, user_line
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
