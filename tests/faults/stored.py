"""All that the store holds, what the model says of it in the same words, and how the two differ."""

from __future__ import annotations

import json
import os
from collections import Counter

from lab import Lab
from sessiond.store import archive
from sessiond.store.connect import open_reader, rows, snapshot

from .model import Model

_SOURCES = """
SELECT f.path, f.state, s.native_id, g.number, f.read_offset, f.pending
  FROM _source AS f JOIN _session AS s ON s.id = f.session_id JOIN _generation AS g ON g.id = f.generation_id
"""
_GENERATIONS = (
    "SELECT f.path, g.number, g.id, g.evicted_to FROM _source AS f JOIN _generation AS g ON g.source_id = f.id"
)
_REJECTS = """
SELECT f.path, g.number, r.start, r.length, r.reason
  FROM _reject AS r JOIN _generation AS g ON g.id = r.generation_id JOIN _source AS f ON f.id = g.source_id
"""
_EVENTS = """
SELECT s.native_id, f.path, g.number, e.start, e.length, e.kind, g.closed_at IS NOT NULL
  FROM _event AS e JOIN _session AS s ON s.id = e.session_id
  JOIN _generation AS g ON g.id = e.generation_id JOIN _source AS f ON f.id = g.source_id
"""
_USAGE = """
SELECT s.native_id, u.input_tokens, u.output_tokens FROM _usage AS u JOIN _session AS s ON s.id = u.session_id
"""
_ORDER = """
SELECT f.path FROM _source AS f LEFT JOIN _frame AS r ON r.generation_id = f.generation_id
 GROUP BY f.id ORDER BY max(r.id), f.id
"""


def stored(lab: Lab, root: str) -> dict:
    with lab.store() as db, snapshot(db):
        named = {path: os.fsdecode(path).removeprefix(root) for (path,) in rows(db, "SELECT path FROM _source")}
        sources = rows(db, _SOURCES)
        return {
            "sources": {named[path]: (*rest,) for path, *rest, _ in sources},
            "pending": {named[path]: pending for path, state, *_, pending in sources if state == "live"},
            "archive": {
                (named[path], number): (evicted_to, b"".join(data for _, data in archive.stream(db, id_)))
                for path, number, id_, evicted_to in rows(db, _GENERATIONS)
            },
            "rejects": {(named[path], *rest) for path, *rest in rows(db, _REJECTS)},
            "events": sorted(
                (name, named[path], *rest[:-1], bool(rest[-1])) for name, path, *rest in rows(db, _EVENTS)
            ),
            "usage": sorted(rows(db, _USAGE)),
            "sessions": dict(rows(db, "SELECT native_id, events FROM _session")),
        }


def unlike_indexed(lab: Lab) -> list[int]:
    """Events that are searched for but not stored, or the other way round."""
    with lab.store() as db:
        there = {id_ for (id_,) in rows(db, "SELECT id FROM _event")}
    index = open_reader(lab.paths.search)
    try:
        return sorted(there ^ {id_ for (id_,) in rows(index, "SELECT rowid FROM fts")})
    finally:
        index.close()


def order_read(lab: Lab, root: str, places: list[str]) -> list[str]:
    """These files in the order in which they gave their last lines: frames are numbered as they are written."""
    with lab.store() as db:
        found = [os.fsdecode(path).removeprefix(root) for (path,) in rows(db, _ORDER)]
    number = {place: at for at, place in enumerate(found)}
    return sorted(places, key=lambda place: number.get(place, -1))


def digested(lab: Lab) -> dict[str, Counter[str]]:
    """How many events of each kind the digests speak of."""
    query = "SELECT s.native_id, d.data FROM _digest AS d JOIN _session AS s ON s.id = d.session_id"
    with lab.store() as db:
        told = {name: Counter(json.loads(data)["kinds"]) for name, data in rows(db, query)}
    return {name: counted for name, counted in told.items() if counted}


def difference(found, wanted) -> list[str]:
    """Only where they differ: all that is stored is too much to read."""
    if isinstance(wanted, dict):
        names = sorted(set(found) | set(wanted), key=str)
        return [
            f"{name}: stored {found.get(name)}, owed {wanted.get(name)}"
            for name in names
            if found.get(name) != wanted.get(name)
        ]
    there, owed = Counter(found), Counter(wanted)
    return [f"stored {each}" for each in there - owed] + [f"owed {each}" for each in owed - there]


def owed(model: Model) -> dict:
    """What the model says, in the words of `stored`."""
    generations = [each for source in model.sources for each in source.generations]
    unfinished = [each for each in generations if each.tail and each.gone_to <= len(each.read)]
    return {
        "sources": {
            each.path: ("gone" if each.is_gone else "live", each.session.name, each.now.number, len(each.now.read))
            for each in model.sources
        },
        "pending": {each.path: each.pending for each in model.sources if not each.is_gone},
        "archive": {(each.source.path, each.number): (each.gone_to, each.archived) for each in generations},
        "rejects": {
            *((each.source.path, each.number, *reject, "not_json") for each in generations for reject in each.rejects),
            *((e.source.path, e.number, len(e.read), len(e.tail), "unterminated") for e in unfinished),
        },
        "events": sorted(
            (event.session.name, place[0].source.path, place[0].number, *place[1:], event.kind, not place[0].is_open)
            for event in model.events.values()
            for place in (event.place,)
            if not event.is_evicted
        ),
        "usage": sorted((session.name, *numbers) for _, session, *numbers in model.usage.values()),
        "sessions": {
            each.name: sum(event.session is each for event in model.events.values()) for each in model.sessions.values()
        },
    }
