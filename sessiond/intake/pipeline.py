"""The stages of intake put together: writer, search index, register, loop; built from a configuration, and rebuilt."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from sessiond.adapters import adapters
from sessiond.config.exclusion import Exclusion
from sessiond.errors import SessiondError, UsageError
from sessiond.intake import opening, rederive, tail
from sessiond.intake.ingest import Ingest
from sessiond.intake.loop import IntakeLoop
from sessiond.intake.parse import Wording
from sessiond.intake.register import Register
from sessiond.intake.scan import Pace, Root, Seen
from sessiond.intake.watch import make_watch
from sessiond.intake.watching import mounts
from sessiond.log.light import structlog
from sessiond.mask import Masker
from sessiond.model import moment, parse_utc, utc
from sessiond.paths import expand, user_home
from sessiond.store import connect, counts, damage, digests, sources, space
from sessiond.store.connect import value
from sessiond.store.search import SearchIndex
from sessiond.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import apsw

    from sessiond.config.settings import Config
    from sessiond.intake.progress import Ticket
    from sessiond.paths import Paths
    from sessiond.store.commit import Batch
    from sessiond.trouble import Troubles

KEPT_TICKETS = 64
FOREVER = "forever"
CHUNK_SECONDS = 2.0  # what one chunk takes to be read, at the most


class Pipeline:
    """From the agents' files to the store and its index. `start` and `stop` once; `reconfigure` any time between."""

    def __init__(
        self,
        config: Config,
        paths: Paths,
        troubles: Troubles,
        env: Mapping[str, str],
        *,
        beat: Callable[[], None] = lambda: None,
        tick: Callable[[], None] = lambda: None,
        check_seconds: float = damage.CLEAN_SECONDS,
        mode: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._config = config
        self._paths = paths
        self._troubles = troubles
        self._env = env
        self._beat = beat
        self._tick = tick  # called now and then while opening takes long
        self.damaged: str | None = None  # what was found out about the store while it was in use
        self._mode = mode
        self._now = now
        self._log = structlog.get_logger()
        self._tickets: dict[int, tuple[Ticket, dict[str, int], float]] = {}
        self._counted: Counter[str] = Counter()  # by the loops before this one
        self.homes: dict[str, list[str]] = {}
        self.writer = self._open_store(check_seconds)
        self._db = connect.open_reader(paths.store)  # the loop's own
        self.search = SearchIndex(
            paths.search,
            paths.store,
            self.writer,
            rebuild=self._texts,
            digests=digests.texts,
            on_trouble=self._search_trouble,
            on_failure=self.suspect,
            wal_limit=self._wal_limit(),
        )
        self.loop = self._build()
        self._take_up_pause()
        opening.name_rebuild(self._db, troubles)

    def _room(self) -> Callable[[], bool]:
        """Whether there is room to take in more; asked before every chunk."""
        caps = self._config.retention.caps(shutil.disk_usage(self._paths.store.parent).total)
        least = space.least_free(caps.keep_free, space.reserve(caps.soft_cap))
        return lambda: space.free(self._paths) >= least

    def _wal_limit(self) -> int:
        soft_cap = self._config.retention.caps(shutil.disk_usage(self._paths.store.parent).total).soft_cap
        return space.reserve(soft_cap)

    def start(self) -> None:
        self.start_store()
        self.loop.start()

    def start_store(self) -> None:
        """Only what writes, for work on the store itself: nothing is read."""
        self.writer.start()
        limit = self._wal_limit()
        self.writer.maintain(lambda db: connect.limit_wal(db, limit))
        self.writer.limit(batch_bytes=limit // 2, has_room=self._room())
        self.search.start()
        opening.derive_lost(self.writer, self._db, self._wording, self._config.limits.line, self._now(), self._tick)

    def stop(self) -> None:
        """In reverse: no more reading, then what was read is written, then the index stops where it is."""
        self.loop.stop()
        self.search.stop()
        self._db.close()
        self.writer.stop()

    def reconfigure(self, config: Config) -> None:
        """Go on under another configuration. The store stays where it is: moving it takes a restart."""
        if config.store.path != self._config.store.path:
            raise SessiondError("store.path changed", hint="it takes a restart of the daemon")
        self.loop.stop()
        self.writer.drain()
        tickets, pauses = self.loop.open_tickets, self.loop.pauses
        before, self._config = self._config, config
        try:
            self._go_on(tickets, pauses)
        except SessiondError:
            self._config = before
            self._go_on(tickets, pauses)
            raise

    def _go_on(self, tickets: list[Ticket], pauses: dict[str, datetime | None]) -> None:
        """Another loop, with what the one before had promised. SessiondError also where it cannot be watched for."""
        loop = self._build()
        self._counted, self.loop = self.counters, loop
        self.loop.adopt(tickets)
        for name, until in pauses.items():
            self.loop.pause(name, until)
        self.loop.start()

    @property
    def counters(self) -> Counter[str]:
        """What was counted since the start and is in no table; a reload does not begin anew."""
        loop = self.loop
        return self._counted + Counter(overflows=loop.watch.health.overflows, vanished=loop.vanished)

    @property
    def config(self) -> Config:
        return self._config

    @property
    def roots(self) -> list[Root]:
        return list(self.loop.roots)

    def _open_store(self, check_seconds: float) -> Writer:
        """The store; one that is damaged is set aside, never deleted, and made again from what can be read of it."""
        mounts.refuse_remote_store(self._paths.store)
        return opening.open_store(
            self._paths,
            lambda: Writer(
                self._paths.store,
                on_commit=self._committed,
                on_failure=self._failed,
                on_damage=lambda error: self.suspect(error, is_store=True),
                now=self._now,
            ),
            on_corrupt=self._config.store.on_corrupt,
            seconds=check_seconds,
            now=self._now,
            tick=self._tick,
        )

    def suspect(self, error: BaseException, *, is_store: bool = False) -> None:
        """Somebody met this error. If the store is damaged, nothing more is written, and the next start mends it.

        `is_store`: it can only be the store; else the store is looked at first.
        """
        if self.damaged is not None or not damage.is_damage(error):
            return
        reason = type(error).__name__
        if not is_store:
            found = damage.check(self._paths.store, damage.UNCLEAN_SECONDS, is_suspect=True)
            if found is None:
                return
            reason = found
        self.damaged = reason
        self.writer.refuse()
        if self._config.store.on_corrupt == "rebuild":
            damage.mark(self._paths.store, reason)
        self._troubles.report(
            "store_damaged", f"the store is damaged ({reason}): nothing more is written to it", "restart the daemon"
        )

    # --- pausing --------------------------------------------------------------------------------

    def pause(self, name: str) -> None:
        """Read nothing more, for this reason, until `resume`."""
        self.loop.pause(name)

    def resume(self, name: str) -> None:
        self.loop.resume(name)

    def pause_by_hand(self, params: dict[str, Any]) -> dict[str, Any]:
        """The user's own pause, until a time or "forever", across restarts. Once it returns nothing is read."""
        until = params.get("until", FOREVER)
        self.loop.pause("user", _until(until))
        self.writer.call(lambda db: _keep_pause(db, until))
        deadline = time.monotonic() + CHUNK_SECONDS
        while self.loop.is_reading and time.monotonic() < deadline:
            time.sleep(0.005)
        return {"paused_by": self.loop.paused_by, "paused_until": until}

    def unpause(self, _: dict[str, Any]) -> dict[str, Any]:
        """End the user's own pause; `paused_by` says what else is in the way."""
        was_paused = self.paused_until is not None
        self.writer.call(lambda db: _keep_pause(db, None))
        self.loop.resume("user")
        return {"was_paused": was_paused, "paused_by": self.loop.paused_by}

    @property
    def paused_until(self) -> str | None:
        """Until when the user has paused, as ISO-8601 or "forever"; None where he has not."""
        pauses = self.loop.pauses
        if "user" not in pauses:
            return None
        until = pauses["user"]
        return FOREVER if until is None else utc(until)

    def _take_up_pause(self) -> None:
        """The user's pause of an earlier run, unless its time is over."""
        text = value(self._db, "SELECT value FROM _meta WHERE name = 'paused_until'")
        until = None if text is None else _until(text)
        if text is not None and (until is None or until > self._now()):
            self.loop.pause("user", until)

    def leave_alone(self, paths: list[str]) -> None:
        """The sessions of these files were forgotten."""
        self.loop.leave_alone(paths)

    # --- asking ---------------------------------------------------------------------------------

    def ask(self) -> dict[str, Any]:
        """Sweep now; `asked` tells when all that was found is stored and searchable."""
        self._refuse_while_paused()
        number = max(self._tickets, default=0) + 1
        self._tickets[number] = (self.loop.ask(), self._totals(), time.monotonic())
        while len(self._tickets) > KEPT_TICKETS:
            del self._tickets[min(self._tickets)]
        return {"ticket": number}

    def asked(self, params: dict[str, Any]) -> dict[str, Any]:
        found = self._tickets.get(params.get("ticket", -1))
        if found is None:
            raise UsageError("there is no such ticket", hint="ask again: sessiond ingest")
        ticket, before, began = found
        if ticket.is_stored and ticket.position is None:
            ticket.position = self._newest_position()
        if ticket.position is None or self.search.position < ticket.position:
            self._refuse_while_paused()
            return {"done": False, "history": self.history()}
        after = self._totals()
        return {
            **{name: after[name] - before[name] for name in ("lines", "events", "rejected")},
            "done": True,
            "history": self.history(),
            "files": self.loop.last_sweep.found,
            "bytes": self.loop.history.total_bytes,
            "sessions": after["sessions"],
            "sweep_ms": round(self.loop.last_sweep.seconds * 1000, 1),
            "seconds": round(time.monotonic() - began, 3),
            "complete": not self._troubles,
            "degraded": self._troubles.listing(),
            "as_of": utc(datetime.now(UTC)),
        }

    def _refuse_while_paused(self) -> None:
        """A promise that cannot be kept is not made; a full disk alone is tried again all the time."""
        by = self.loop.paused_by
        if by == "user":
            until = self.paused_until
            when = "" if until in (None, FOREVER) else f" until {until}"
            raise SessiondError(f"sessiond is paused by you{when}: nothing is taken in", hint="sessiond unpause")
        if by == "keep_free":
            raise _too_full()
        if by not in (None, "store_full"):
            raise SessiondError(f"sessiond is paused ({by}): nothing is taken in", hint="sessiond status says why")

    def run_once(self, on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """One sweep to its end, then what it came to."""
        self.start()
        number = self.ask()["ticket"]
        while not (state := self.asked({"ticket": number}))["done"]:
            on_progress(state)
            if self.loop.paused_by == "keep_free":
                raise _too_full()
            time.sleep(0.02)
        on_progress(state)
        del state["done"], state["history"]
        return state

    def history(self) -> dict[str, Any]:
        """How far the first reading of old files is."""
        history = self.loop.history
        total, done = history.total_bytes, history.done_bytes
        is_done = self.loop.last_sweep.at is not None and not history.left
        spent = (history.ended or time.monotonic()) - history.began
        left = None if is_done or not done else spent / done * (total - done)
        reached = history.reached_ns
        return {
            "total_bytes": total,
            "done_bytes": done,
            "percent": 100.0 if is_done else (round(100 * done / total, 1) if total else 0.0),
            "reached": None if reached is None else utc(moment(reached)),
            "seconds_left": None if left is None else round(left),
        }

    def _totals(self) -> dict[str, int]:
        with connect.reading(self._paths.store) as db:
            sessions = counts.sessions(db)
            counters = counts.counters(db)
        return {
            "lines": counters["lines"],
            "rejected": counters.get("rejected", 0),
            "events": sessions["events"],
            "sessions": sessions["total"],
        }

    def _newest_position(self) -> int:
        with connect.reading(self._paths.store) as db:
            return int(value(db, "SELECT seq FROM sqlite_sequence WHERE name = '_outbox'") or 0)

    # --- building -------------------------------------------------------------------------------

    def _build(self) -> IntakeLoop:
        config = self._config
        limits = tail.Limits(config.limits.line, config.limits.archive_line, config.limits.chunk)
        roots = self._find_roots()
        exclusion = Exclusion(config.privacy.exclude, self._env)
        register = Register(self._db, adapters(), roots, exclusion.matches if exclusion else None, limits)
        self._wording = Wording(Masker(config.privacy.mask).mask, config.domain, config.search.max_chars)
        known = {
            path: Seen(device, inode, size, mtime_ns)
            for path, device, inode, size, mtime_ns, state in sources.known_files(self._db)
            if state != sources.GONE
        }
        pace = Pace(base=config.watch.scan_interval.total_seconds(), poll=config.watch.poll_interval.total_seconds())
        mode: Any = self._mode or config.watch.mode
        return IntakeLoop(
            roots,
            lambda root, below: adapters()[root.flavor].wants(PurePosixPath(below)),
            Ingest(adapters(), register, self.writer, limits, self._wording, known),
            self.writer,
            lambda on_hint, on_trouble: make_watch(mode, on_hint, on_trouble),
            pace,
            self._troubles,
            beat=self._beat,
            has_room=self._room(),
            suspect=self.suspect,
            now=self._now,
            log=self._log,
        )

    def _find_roots(self) -> list[Root]:
        roots: list[Root] = []
        self.homes = {}
        for flavor, adapter in adapters().items():
            settings = self._config.source(flavor)
            if not settings.enabled:
                continue
            chosen = settings.roots
            if chosen is None:
                homes = list(adapter.homes(self._env, user_home(self._env)))
            else:
                homes = [expand(str(each), self._env) for each in chosen]
            self.homes[flavor] = [str(home) for home in homes]
            roots += [
                Root(flavor, str(home), "" if folder == Path(home) else os.path.relpath(folder, home))
                for home in homes
                for folder in adapter.folders(Path(home))
            ]
        return roots

    # --- called by the writer and the index -----------------------------------------------------

    def _committed(self, batches: list[Batch]) -> None:
        self.loop.stored(batch.source.path for batch in batches)
        self.search.wake()
        for reason, files in Counter(batch.chunk.restarted for batch in batches if batch.chunk.restarted).items():
            self._log.info("generation_began", reason=reason, files=files)

    def _failed(self, batch: Batch, error: Exception) -> None:
        self.loop.failed(batch.source.path, batch.size, error)

    def _texts(self, db: apsw.Connection) -> Any:
        return rederive.texts(db, adapters(), self._wording, self._config.limits.line)

    def _search_trouble(self, name: str, detail: str | None) -> None:
        self._troubles.report(name, detail, "it mends itself; sessiond status shows when it is done")


def _until(text: str) -> datetime | None:
    return None if text == FOREVER else parse_utc(text)


def _keep_pause(db: apsw.Connection, until: str | None) -> None:
    if until is None:
        db.execute("DELETE FROM _meta WHERE name = 'paused_until'")
    else:
        db.execute("INSERT OR REPLACE INTO _meta VALUES ('paused_until', ?)", (until,))


def _too_full() -> SessiondError:
    return SessiondError("the disk is too full: not all was taken in", hint="make room, or lower retention.keep_free")
