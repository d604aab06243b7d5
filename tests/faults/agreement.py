"""After whatever happened: does the store agree with itself, with the files it was read from, and with one reading of them?

For sessions of one file each, all of whose lines make one event.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import Lab
from sessiond.store import connect
from sessiond.store.connect import rows


def told(lab: Lab) -> dict[str, tuple]:
    """Of every session: its events by seq, and its digest."""
    found = {}
    for uid in lab.sessions():
        events = {event.seq: (event.kind, event.summary, event.parent_seq, event.ts) for event in lab.events(uid)}
        found[uid] = (events, lab.digest(uid))
    return found


def inconsistencies(lab: Lab) -> list[str]:
    """Where the store does not agree with itself, or with the files it was read from."""
    with lab.store() as db:
        found = [told for (told,) in rows(db, "PRAGMA integrity_check") if told != "ok"]
        found += [str(row) for row in rows(db, "PRAGMA foreign_key_check")]
        query = """
        SELECT f.path, f.read_offset, g.evicted_to, s.next_seq - 1, s.evicted_events, s.evicted_seq,
               (SELECT count(*) FROM _event WHERE session_id = s.id AND seq > s.evicted_seq),
               EXISTS (SELECT 1 FROM _leaving WHERE session_id = s.id)
          FROM _source AS f JOIN _generation AS g ON g.id = f.generation_id JOIN _session AS s ON s.id = f.session_id
        """
        for path, read, evicted_to, last_seq, evicted, evicted_seq, kept, is_leaving in rows(db, query):
            data = Path(path.decode()).read_bytes()[:read]
            lines = data.count(b"\n")
            if lines != last_seq or data[-1:] not in (b"", b"\n"):
                found.append(f"{path}: {lines} lines up to the cursor, {last_seq} events")
            if evicted != evicted_seq or kept != last_seq - evicted_seq:
                found.append(f"{path}: {kept} events of {last_seq}, {evicted} evicted through {evicted_seq}")
            if not is_leaving and lab.archived(Path(path.decode())) != data[evicted_to:]:
                found.append(f"{path}: the archive is not what was read")
    return found


def differences(lab: Lab, expected: dict[str, tuple], *, is_settled: bool = True) -> list[str]:
    """Where it is not what one reading gives, but for what was let go; the index included. `is_settled`: an evict pass
    was there, so that nothing is on its way out any more.
    """
    here, found = told(lab), []
    with lab.store() as db:
        evicted = dict(rows(db, "SELECT uid, evicted_seq FROM _session"))
        leaving = {uid for (uid,) in rows(db, "SELECT uid FROM _leaving JOIN _session ON id = session_id")}
        ids = {id_ for (id_,) in rows(db, "SELECT id FROM _event")}
        found += [word for (word,) in rows(db, "PRAGMA integrity_check") if word != "ok"]
    if is_settled:
        found += [f"{uid} is still leaving" for uid in sorted(leaving)]
    for uid, (events, digest) in expected.items():
        there, distilled = here.get(uid, ({}, None))
        gone = 0 if uid in leaving else evicted.get(uid, 0)  # of one that is leaving some may still be there
        wanted = {seq: event for seq, event in events.items() if seq > gone}
        if (
            distilled != digest
            or not wanted.items() >= there.items()
            or any(seq not in there for seq in wanted if seq > evicted.get(uid, 0))
        ):
            found.append(f"{uid} differs")
    index = connect.open_reader(lab.paths.search)
    try:
        if {id_ for (id_,) in rows(index, "SELECT rowid FROM fts WHERE fts MATCH 'hello'")} != ids:
            found.append("the index does not hold the events")
    finally:
        index.close()
    return found


@contextmanager
def lab_in_memory() -> Iterator[Lab]:
    """Where the disk itself is not the question: no waiting for it, if there is a file system in memory with room."""
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
    folder = Path(tempfile.mkdtemp(prefix="sd", dir=memory if has_room else None))
    try:
        yield Lab(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
