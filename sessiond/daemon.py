"""Builds the parts, starts them in order, stops them in reverse. The only module that knows every stage.

Order: lock, configuration, store, search, watch and first sweep, passes, socket. Ready means: cursors are known and
the watch is armed; history is read afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import apsw

from sessiond import __version__, log as logging, memory, notify, paths as places
from sessiond.adapters import adapters, load_errors, register_flavors
from sessiond.config import load as configuration
from sessiond.errors import Busy, SessiondError
from sessiond.intake.pipeline import Pipeline
from sessiond.lock import InstanceLock
from sessiond.log.light import structlog
from sessiond.mask import Masker
from sessiond.model import utc
from sessiond.passes.schedule import Schedule
from sessiond.report import Report
from sessiond.serve.server import Server
from sessiond.store import reader
from sessiond.store.connect import WAL_RESET_HINT, reading, wal_reset_bug
from sessiond.store.damage import BRIEF_SECONDS
from sessiond.trouble import Troubles
from sessiond.upkeep import Upkeep
from sessiond.work import Tickets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sessiond.config.load import Loaded
    from sessiond.paths import Paths

Screen = "Callable[[Callable[[], dict[str, Any]]], AbstractContextManager[None]]"
STOP_SECONDS = 1.0  # what a pass may take to notice; a digest or a session under way is small
INDEX_SECONDS = 600.0  # what a command waits for the search index to have all that it did
START_SECONDS = 60.0  # what the service manager is asked for, again and again, while the store is made again
ALIVE_SECONDS = 30.0  # how often the lock file is touched: what "down since" is told by, and memory given back


class Daemon:
    """One running instance. `serve()` works until it is told to stop."""

    def __init__(self, config_file: Path | None, *, is_quiet: bool = False) -> None:
        self._config_file = config_file
        self._env = places.environment()
        self._is_quiet = is_quiet
        self._log = structlog.get_logger()
        self._wake = threading.Event()
        self._stop_asked = False
        self._reload_asked = False
        self._dump_asked = False
        self._exit_code = 0
        self.started_at = datetime.now(UTC)
        self.notifier = notify.Notifier(self._env)
        self.troubles = Troubles(lambda: datetime.now(UTC), self._say_trouble)
        self.config_error: str | None = None
        self._reload_lock = threading.Lock()

    # --- start and stop -------------------------------------------------------------------------

    def serve(self, screen: Callable[[Callable[[], dict[str, Any]]], AbstractContextManager[None]] | None) -> int:
        with ExitStack() as stack:
            self._start(stack)
            with screen(self.report.status) if screen is not None else _nothing():
                self._watch_over()
            self.notifier.stopping()
            self._log.info("stopping")
        self._log.info("stopped")
        return self._exit_code

    def _start(self, stack: ExitStack) -> None:
        at = places.resolve(self._env)
        mended = _make_state_private(at)
        places.make_private(at.runtime_dir)
        self.lock = InstanceLock(at.lock)
        self.lock.acquire(socket=at.socket, version=__version__, started_at=utc(self.started_at))
        stack.callback(self.lock.release)
        register_flavors()
        for name, error in load_errors.items():
            self.troubles.report(
                f"adapter_{name}", f"the plug-in {name} cannot be used: {error}", "update or remove it"
            )
        self.loaded = self._load()
        self.loaded_at = datetime.now(UTC)
        self.paths = places.resolve(self._env, self.loaded.config.store.path)
        mended += _make_store_private(self.paths)
        stack.callback(logging.flush, 1.0)
        self._apply()
        if mended:
            self._log.warning("access_closed", hint="others could have read these until now", files=mended)
        self._install_signals(stack)
        self.pipeline = Pipeline(
            self.loaded.config, self.paths, self.troubles, self._env, beat=self._beat, tick=self._still_opening
        )
        stack.callback(self.pipeline.stop)
        self.report = Report(self)
        self.pipeline.start()
        self._start_passes(stack)
        self._start_socket(stack)
        sqlite = apsw.sqlite_lib_version()
        self._log.info("started", pid=os.getpid(), version=__version__, sqlite=sqlite, agents=len(self.pipeline.roots))
        if wal_reset_bug():
            self._log.warning("sqlite_has_wal_reset_bug", sqlite=sqlite, hint=WAL_RESET_HINT)
        self.notifier.ready("watching")

    def _apply(self) -> None:
        """What the configuration says about the daemon itself; the rest is the pipeline's."""
        settings = self.loaded.config.log
        self._mask = Masker(self.loaded.config.privacy.mask)
        level = "error" if self._is_quiet else settings.level
        logging.setup(level=level, format=settings.format, mask=self._mask.mask)
        for warning in self.loaded.warnings:
            self._log.warning("configuration_warning", detail=warning)

    def _start_passes(self, stack: ExitStack) -> None:
        self.schedule = Schedule(on_failure=self._pass_failed, on_success=self._pass_went_well)
        self.upkeep = Upkeep(
            lambda: self.loaded.config,
            self.paths,
            self.pipeline,
            self.troubles,
            is_clock_doubtful=lambda: self.schedule.clock_doubtful,
            clock_ahead=lambda: self.schedule.clock_ahead,
            is_stopping=self.schedule.stopping.is_set,
        )
        self.upkeep.start()
        config = self.loaded.config
        self.schedule.add("analyze", config.analyze.interval, lambda: self.upkeep.analyze().words())
        self.schedule.add("evict", config.evict.interval, lambda: self.upkeep.evict().words())
        self.schedule.start()
        stack.callback(self.schedule.stop, STOP_SECONDS)
        self.schedule.request("forget", self.upkeep.finish_forgetting)
        self.tickets = Tickets(lambda verb, params: self.schedule.request(verb, lambda: self.upkeep.do(verb, params)))

    def _start_socket(self, stack: ExitStack) -> None:
        methods = {
            "work": self.tickets.give,
            "worked": self.tickets.look,
            "status": lambda _: self.report.status(),
            "freshness": lambda _: self.report.freshness(),
            "reload": lambda _: self.reload(),
            "ingest": lambda _: self.pipeline.ask(),
            "ingested": self.pipeline.asked,
            "changes": self._changes,
            "check_index": self._check_index,
        }
        self.server = Server(
            self.paths.socket,
            methods,
            version=__version__,
            on_error=self._say_error,
            reply_filter=self._masked,
        )
        self.server.start()
        stack.callback(self.server.stop)

    def _masked(self, reply: Any) -> Any:
        return self._mask.mask_json(reply)  # by the rules of now: a reload may bring others

    # --- while it runs --------------------------------------------------------------------------

    def _watch_over(self) -> None:
        """The main thread: signals, the lock, the socket and the store must stay what they are."""
        store_inode = os.stat(self.paths.store).st_ino
        touched = 0.0
        while not self._stop_asked:
            self._wake.wait(1.0)
            self._wake.clear()
            if self._reload_asked:
                self._reload_asked = False
                self._reload_quietly()
            if self._dump_asked:
                self._dump_asked = False
                self._log.info("state", status=self.report.status())
            if not self._is_in_place(store_inode):
                self._exit_code = Busy.exit_code
                return
            if time.monotonic() - touched > ALIVE_SECONDS:
                touched = time.monotonic()
                os.utime(self.paths.lock)
                memory.give_back()
            self.schedule.tick()
            self._name_clock()
            self._look_at_room()
            self._refresh()
            self.notifier.status(self.report.line())

    def _refresh(self) -> None:
        try:
            self.report.refresh()
        except apsw.Error as error:  # counted again in a second; a damaged store is another matter
            self.pipeline.suspect(error)

    def _look_at_room(self) -> None:
        try:
            if self.upkeep.is_eviction_due():
                self.schedule.hurry("evict")
            self.upkeep.look_at_wal()
        except (OSError, apsw.Error) as error:  # a store that is locked or gone is looked after elsewhere
            self.pipeline.suspect(error)
            self.troubles.report("room", f"{type(error).__name__} while measuring the store", "it is tried again")
        else:
            self.troubles.report("room", None)

    def _name_clock(self) -> None:
        detail = "the clock jumped by more than a day: nothing is let go for its age yet"
        self.troubles.report("clock", detail if self.schedule.clock_doubtful else None, "it goes on by itself")

    def _is_in_place(self, store_inode: int) -> bool:
        """A store or lock that was removed under us must not be written on: whoever starts next gets a fresh one.
        Nor a damaged store: whoever starts next sets it aside.
        """
        if self.pipeline.damaged is not None:
            self._log.error("store_damaged", reason=self.pipeline.damaged, hint="starting again sets it aside")
            return False
        try:
            is_there = os.stat(self.paths.store).st_ino == store_inode
        except FileNotFoundError:
            is_there = False
        if not is_there or not self.lock.is_intact():
            self._log.error("store_or_lock_removed", hint="starting again makes a new one from the agents' files")
            return False
        if not self.server.is_in_place():
            self.troubles.report("socket", f"{self.paths.socket} was removed", "restart the daemon")
        return True

    def _still_opening(self) -> None:
        """A damaged store is being read, which takes as long as it is large."""
        self.notifier.extend_timeout(START_SECONDS)

    def _beat(self) -> None:
        if self._beat_every is not None and time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self._beat_every
            self.notifier.watchdog()

    _next_beat = 0.0

    @property
    def _beat_every(self) -> float | None:
        return notify.watchdog_interval(self._env)

    # --- configuration --------------------------------------------------------------------------

    def _load(self) -> Loaded:
        loaded = configuration.load(self._config_file, self._env, set(adapters()))
        folder = places.resolve(self._env, loaded.config.store.path).store.parent
        if folder.is_dir():  # what "auto" comes to is known only with the disk: a mistake must show now
            loaded.config.retention.caps(shutil.disk_usage(folder).total)
        return loaded

    def reload(self) -> dict[str, Any]:
        """Take over a changed configuration; the old one stays in force when the new one is bad."""
        with self._reload_lock:
            self.notifier.reloading()
            try:
                loaded = self._load()
                self.pipeline.reconfigure(loaded.config)
            except SessiondError as error:
                self.config_error = str(error)
                self.troubles.report("configuration", str(error), "sessiond config check")
                raise
            finally:
                self.notifier.ready()
            self.loaded, self.loaded_at, self.config_error = loaded, datetime.now(UTC), None
            self.schedule.set_interval("analyze", loaded.config.analyze.interval)
            self.schedule.set_interval("evict", loaded.config.evict.interval)
            self._apply()
            self.troubles.report("configuration", None)
            self._log.info("configuration_loaded", files=len(loaded.files))
            path = None if loaded.path is None else str(loaded.path)
            return {"ok": True, "path": path, "warnings": list(loaded.warnings)}

    def _reload_quietly(self) -> None:
        try:
            self.reload()
        except SessiondError:
            self._log.error("configuration_rejected", hint="sessiond config check says why")

    def _changes(self, params: dict[str, Any]) -> dict[str, Any]:
        after, limit = params.get("after", 0), params.get("limit", 100)
        if not isinstance(after, int) or not isinstance(limit, int) or not 0 < limit <= 1000:
            raise SessiondError("changes takes after (a revision) and limit (1 to 1000)")
        with reading(self.paths.store) as db:
            found = reader.changes(db, after, limit)
        return {"changes": [{"session_uid": uid, "revision": revision} for uid, revision in found]}

    def _check_index(self, _: dict[str, Any]) -> dict[str, Any]:
        self.pipeline.search.check()
        return {"ok": True}

    # --- signals and words ----------------------------------------------------------------------

    def _install_signals(self, stack: ExitStack) -> None:
        handlers: dict[signal.Signals, Any] = {
            signal.SIGTERM: self._on_stop,
            signal.SIGINT: self._on_stop,
            signal.SIGHUP: self._on_reload,
            signal.SIGUSR1: self._on_dump,
            signal.SIGPIPE: signal.SIG_IGN,
        }
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))

    def _on_stop(self, *_: object) -> None:
        if self._stop_asked:  # asked twice: now means now; the store takes no harm
            os._exit(130)
        self._stop_asked = True
        self._wake.set()

    def _on_reload(self, *_: object) -> None:
        self._reload_asked = True
        self._wake.set()

    def _on_dump(self, *_: object) -> None:
        self._dump_asked = True
        self._wake.set()

    def _say_trouble(self, name: str, detail: str | None) -> None:
        if detail is None:
            self._log.info("recovered", trouble=name)
        else:
            self._log.warning("degraded", trouble=name, detail=detail)

    def _pass_failed(self, name: str, error: Exception) -> None:
        self.pipeline.suspect(error)
        self._log.error("pass_failed", name=name, exc_info=error)
        self.troubles.report(f"pass_{name}", f"{type(error).__name__}; it is tried again", "the log says why")

    def _pass_went_well(self, name: str) -> None:
        self.troubles.report(f"pass_{name}", None)

    def _say_error(self, error: Exception) -> None:
        self.pipeline.suspect(error)
        self._log.error("request_failed", exc_info=error)


def run(
    config_file: Path | None,
    *,
    screen: Callable[[Callable[[], dict[str, Any]]], AbstractContextManager[None]] | None = None,
) -> int:
    """The daemon, in the foreground, until a signal. The exit code."""
    memory.stay_small()
    return Daemon(config_file, is_quiet=screen is not None).serve(screen)


def ingest_once(config_file: Path | None, on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """One sweep without a daemon: everything written before the call is stored and searchable when it returns."""
    env = places.environment()
    at = places.resolve(env)
    _make_state_private(at)
    register_flavors()
    with InstanceLock(at.lock).acquire(socket=None, version=__version__, started_at=utc(datetime.now(UTC))):
        config = configuration.load(config_file, env, set(adapters())).config
        paths = places.resolve(env, config.store.path)
        _make_store_private(paths)
        troubles = Troubles(lambda: datetime.now(UTC), lambda _, __: None)
        pipeline = Pipeline(config, paths, troubles, env, mode="poll", check_seconds=BRIEF_SECONDS)
        try:
            return pipeline.run_once(on_progress)
        finally:
            pipeline.stop()


def work_once(config_file: Path | None, verb: str, params: dict[str, Any]) -> dict[str, Any]:
    """Work on the store without a daemon, under the lock."""
    env = places.environment()
    at = places.resolve(env)
    _make_state_private(at)
    register_flavors()
    now = utc(datetime.now(UTC))
    with InstanceLock(at.lock).acquire(socket=None, version=__version__, started_at=now, keeps_time=True):
        config = configuration.load(config_file, env, set(adapters())).config
        paths = places.resolve(env, config.store.path)
        _make_store_private(paths)
        troubles = Troubles(lambda: datetime.now(UTC), lambda _, __: None)
        pipeline = Pipeline(config, paths, troubles, env, mode="poll", check_seconds=BRIEF_SECONDS)
        try:
            pipeline.start_store()
            report = Upkeep(lambda: config, paths, pipeline, troubles).do(verb, params)
            pipeline.search.catch_up_now(INDEX_SECONDS)
            return report
        finally:
            pipeline.stop()


def _make_state_private(at: Paths) -> list[str]:
    """P8, before anything is opened: the state folder and all that lies in it. What was open to others until now."""
    folder = [str(at.state_dir)] if places.make_private(at.state_dir) else []
    return folder + places.make_files_private(at.state_dir)


def _make_store_private(paths: Paths) -> list[str]:
    """The same for a store that the user keeps elsewhere, in a folder that need not be ours alone."""
    folder = paths.store.parent
    if folder == paths.state_dir:
        return []
    places.check_shared_folder(folder)
    return places.make_files_private(folder, (paths.store.name, paths.search.name)) if folder.is_dir() else []


@contextmanager
def _nothing() -> Iterator[None]:
    yield


if __name__ == "__main__":
    sys.exit(run(None))
