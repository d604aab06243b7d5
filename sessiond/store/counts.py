"""The numbers of `status`: cheap to ask at any size, since everything that grows is counted as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.store.connect import rows

if TYPE_CHECKING:
    import apsw

_SOURCES = """
SELECT count(*), ifnull(sum(size), 0), ifnull(sum(pending_bytes * (state = 'live')), 0), ifnull(sum(state = 'gone'), 0),
       ifnull(sum(state = 'excluded'), 0), ifnull(sum(NOT is_restorable), 0)
  FROM _source WHERE state <> 'foreign'
"""
_SESSIONS = """
SELECT count(*),
       ifnull(sum(ingested_at IS NULL AND analyzed_at IS NULL AND evicted_at IS NULL), 0),
       ifnull(sum(ingested_at IS NOT NULL AND analyzed_at IS NULL AND evicted_at IS NULL), 0),
       ifnull(sum(analyzed_at IS NOT NULL AND evicted_at IS NULL), 0),
       ifnull(sum(evicted_at IS NOT NULL), 0),
       ifnull(sum(events - evicted_events), 0)
  FROM _session
"""
_AGENTS = """
SELECT flavor, count(*), sum(ended_at >= :today) FROM _session
 WHERE events > 0 AND NOT is_sidechain GROUP BY flavor ORDER BY flavor
"""
_FILES = """
SELECT flavor, count(*), ifnull(sum(size), 0) FROM _source WHERE state = 'live' GROUP BY flavor ORDER BY flavor
"""
COUNTERS = ("lines", "events", "replays", "repaired", "overflows", "data_loss")


def sources(db: apsw.Connection) -> dict[str, Any]:
    files, size, pending, gone, excluded, not_restorable = rows(db, _SOURCES)[0]
    unknown = rows(db, "SELECT flavor || ':' || name, records FROM _unknown ORDER BY records DESC, 1 LIMIT 50")
    return {
        "files": files,
        "bytes": size,
        "pending_bytes": pending,
        "gone": gone,
        "excluded": excluded,
        "not_restorable": not_restorable,
        "unknown_types": dict(unknown),
    }


def sessions(db: apsw.Connection) -> dict[str, int]:
    names = ("total", "discovered", "ingested", "analyzed", "evicted", "events")
    return dict(zip(names, rows(db, _SESSIONS)[0], strict=True))


def agents(db: apsw.Connection, today: str) -> dict[str, dict[str, int]]:
    """Per flavor: sessions, those active since `today`, files and bytes."""
    found = {
        flavor: {"sessions": sessions, "sessions_today": today_, "files": 0, "bytes": 0}
        for flavor, sessions, today_ in rows(db, _AGENTS, {"today": today})
    }
    for flavor, files, size in rows(db, _FILES):
        empty = {"sessions": 0, "sessions_today": 0, "files": 0, "bytes": 0}
        found[flavor] = {**found.get(flavor, empty), "files": files, "bytes": size}
    return found


def counters(db: apsw.Connection) -> dict[str, int]:
    found = dict(rows(db, "SELECT name, value FROM _counter ORDER BY name"))
    return {**dict.fromkeys(COUNTERS, 0), **{k: v for k, v in found.items() if k != "search_trimmed"}}
