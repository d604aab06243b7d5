"""What the daemon says about itself: `status`, `freshness`, the live screen, one line for the service manager."""

from __future__ import annotations

import os
import shutil
import threading
import time
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from sessiond import __version__
from sessiond.intake.inbox import Lane
from sessiond.model import utc
from sessiond.store import counts, evict, space
from sessiond.store.connect import WAL_RESET_HINT, reading, wal_reset_bug

if TYPE_CHECKING:
    from sessiond.daemon import Daemon

# Counting ten thousand sessions takes a while; however many ask, it may take no more than a twentieth of the time.
KEPT_SECONDS = 0.05
KEPT_TIMES = 20
QUICK_SECONDS = 0.005
SETTLED_SECONDS = 0.5  # many times the grain of a file's mtime
LOSSES = 20  # reports that are shown; the counter tells them all
LINKS = 50  # second names of files that are shown


NEVER: dict[str, Any] = {"last_at": None, "last_result": None, "next_at": None}


class _Counted(NamedTuple):
    version: tuple[Any, ...] | None  # of what was counted; None where that cannot be told
    good_until: float
    took: float
    sources: dict[str, Any]
    sessions: dict[str, int]
    counters: dict[str, int]
    agents: dict[str, dict[str, int]]
    losses: list[dict[str, Any]]


class Report:
    """Reads the live parts and the store; never waits for either."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._kept: _Counted | None = None
        self._counting = threading.Lock()

    def freshness(self) -> dict[str, Any]:
        """What every answer from the store must be read with."""
        loop = self._daemon.pipeline.loop
        return {
            "state": self.state(),
            "paused_by": loop.paused_by,
            "degraded": [each["name"] for each in self._daemon.troubles.listing()],
            "lag_bytes": loop.lag_bytes,
            "lag_seconds": round(loop.lag_seconds, 3),
            "history_percent": self._daemon.pipeline.history()["percent"],
            "as_of": utc(datetime.now(UTC)),
        }

    def state(self) -> str:
        loop = self._daemon.pipeline.loop
        if loop.paused_by is not None:
            return "paused"
        if loop.last_sweep.at is None or loop.history.left:
            return "backfilling"
        return "degraded" if self._daemon.troubles else "ready"

    def line(self) -> str:
        loop = self._daemon.pipeline.loop
        state = self.state()
        if state == "backfilling":
            return f"reading history: {self._daemon.pipeline.history()['percent']} %"
        names = ", ".join(each["name"] for each in self._daemon.troubles.listing())
        return f"{state}: {names or str(loop.last_sweep.found) + ' files'}"

    def _counted(self) -> _Counted:
        """The numbers of the store: counted now where that is quick, else as of the last `refresh`."""
        kept = self._kept
        if kept is None or (kept.took < QUICK_SECONDS and time.monotonic() >= kept.good_until):
            self.refresh()
        return self._kept or self._count()

    def refresh(self) -> None:
        """Count again if it is time; called every second by the daemon's main thread, so that no client waits."""
        kept = self._kept
        if kept is not None and (time.monotonic() < kept.good_until or kept.version == (self._version() or ())):
            return
        if self._counting.acquire(blocking=kept is None):
            try:
                self._kept = self._count()
            finally:
                self._counting.release()

    def _version(self) -> tuple[Any, ...] | None:
        """Differs after every commit, and at midnight: an idle daemon need not count what it has counted.

        None just after a commit: the next one might leave the same time behind.
        """
        store = self._daemon.paths.store
        try:
            facts = [os.stat(path) for path in (store, f"{store}-wal")]
        except OSError:
            return None
        if max(each.st_mtime for each in facts) > time.time() - SETTLED_SECONDS:
            return None
        return (_today(), *((each.st_mtime_ns, each.st_size) for each in facts))

    def _count(self) -> _Counted:
        version, began = self._version(), time.monotonic()
        with reading(self._daemon.paths.store) as db:
            found = (
                counts.sources(db),
                counts.sessions(db),
                counts.counters(db),
                counts.agents(db, _today()),
                list(islice(evict.losses(db), LOSSES)),
            )
        took = time.monotonic() - began
        return _Counted(version, began + took + max(KEPT_SECONDS, KEPT_TIMES * took), took, *found)

    def status(self) -> dict[str, Any]:
        daemon = self._daemon
        pipeline, loop = daemon.pipeline, daemon.pipeline.loop
        counted = self._counted()
        counters = dict(counted.counters)
        counters |= {name: pipeline.counters[name] for name in ("overflows", "vanished")}
        rejected = counters.pop("rejected", 0)
        return {
            "version": __version__,
            "sqlite": _sqlite(),
            "pid": os.getpid(),
            "started_at": utc(daemon.started_at),
            "as_of": utc(datetime.now(UTC)),
            "complete": self.state() == "ready",
            "state": self.state(),
            "paused_by": loop.paused_by,
            "paused_until": pipeline.paused_until,
            "degraded": daemon.troubles.listing(),
            "watch": self._watch(),
            "sources": {
                **counted.sources,
                "lag_bytes": loop.lag_bytes,
                "lag_seconds": round(loop.lag_seconds, 3),
                "rejected": rejected,
                "special": loop.last_sweep.special,
                "ignored": loop.last_sweep.ignored,
                "future_mtime": loop.last_sweep.ahead,
                "links": dict(islice(loop.links.items(), LINKS)),
                "waiting": loop.inbox.waiting(Lane.LIVE) + loop.inbox.waiting(Lane.BACKFILL),
            },
            "sessions": {name: n for name, n in counted.sessions.items() if name != "events"},
            "store": self._store(counted.sessions["events"]),
            "data_loss": counted.losses,
            "passes": {"scan": self._scan(), **self._passes()},
            "counters": counters,
            "socket": daemon.server.counters(),
            "config": self._config(),
            "agents": self._agents(counted.agents),
            "history": pipeline.history(),
        }

    def _watch(self) -> dict[str, Any]:
        health = self._daemon.pipeline.loop.watch.health
        told = {root.folder: (root.state, root.detail or None) for root in health.roots}
        roots = []
        for root in self._daemon.pipeline.roots:
            state, detail = told.get(root.folder, ("absent", None))
            roots.append({"flavor": root.flavor, "folder": root.folder, "state": state, "detail": detail})
        return {"mode": health.mode, "roots": roots}

    def _store(self, events: int) -> dict[str, Any]:
        daemon = self._daemon
        disk = shutil.disk_usage(daemon.paths.store.parent)
        caps = daemon.loaded.config.retention.caps(disk.total)
        return {
            "path": str(daemon.paths.store),
            "bytes": space.total(daemon.paths),
            "wal_bytes": space.wal_bytes(daemon.paths),
            "soft_cap": caps.soft_cap,
            "low_water": caps.low_water,
            "hard_cap": caps.hard_cap,
            "keep_free": caps.keep_free,
            "free": disk.free,
            "events": events,
            "set_aside": [{"path": str(path), "bytes": size} for path, size in space.set_aside(daemon.paths)],
        }

    def _scan(self) -> dict[str, Any]:
        loop = self._daemon.pipeline.loop
        last = loop.last_sweep
        if last.at is None:
            return NEVER
        next_at = datetime.fromtimestamp(time.time() + loop.next_sweep_in, UTC)
        result = f"{last.found} files in {last.seconds * 1000:.0f} ms"
        return {"last_at": utc(last.at), "last_result": result, "next_at": utc(next_at)}

    def _passes(self) -> dict[str, Any]:
        """When each ran and runs next; `did` is from the last time that it had anything to do."""
        never = {"did_at": None, "did": None}
        did = self._daemon.upkeep.did
        return {name: {**each, **did.get(name, never)} for name, each in self._daemon.schedule.report().items()}

    def _config(self) -> dict[str, Any]:
        daemon = self._daemon
        path = daemon.loaded.path
        return {
            "path": None if path is None else str(path),
            "loaded_at": utc(daemon.loaded_at),
            "error": daemon.config_error,
        }

    def _agents(self, found: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
        empty = {"sessions": 0, "sessions_today": 0, "files": 0, "bytes": 0}
        return [
            {
                "flavor": flavor,
                "homes": homes,
                "found": any(os.path.isdir(home) for home in homes),
                **found.get(flavor, empty),
            }
            for flavor, homes in self._daemon.pipeline.homes.items()
        ]


def _sqlite() -> dict[str, Any]:
    is_in_it = wal_reset_bug()
    return {
        "version": apsw.sqlite_lib_version(),
        "wal_reset_bug": is_in_it,
        "warning": f"this SQLite has the WAL-reset bug: {WAL_RESET_HINT}" if is_in_it else None,
    }


def _today() -> str:
    """Midnight where the user is."""
    now = datetime.now().astimezone()
    return utc(now.replace(hour=0, minute=0, second=0, microsecond=0))
