"""A throw-away machine: agents' homes, a state folder, and the real pipeline over them. What most tests stand on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sessiond import paths as places
from sessiond.adapters import adapters, register_flavors
from sessiond.config import load as configuration
from sessiond.errors import NotRunning
from sessiond.intake.pipeline import Pipeline
from sessiond.serve.client import Client
from sessiond.store import archive, digests, reader
from sessiond.store.connect import open_reader, rows
from sessiond.trouble import Troubles
from sessiond.upkeep import Upkeep

FIXTURES = Path(__file__).resolve().parent.parent.parent / "shared" / "fixtures"


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user_home = folder / "home"
        self.user_home.mkdir(parents=True, exist_ok=True)
        self.env = {
            "HOME": str(self.user_home),
            "SESSIOND_STATE_DIR": str(folder / "state"),
            "SESSIOND_RUNTIME_DIR": str(folder / "run"),
            "PATH": os.environ.get("PATH", ""),
        }
        self.claude = self.user_home / ".claude"
        self.codex = self.user_home / ".codex"
        self.grok = self.user_home / ".grok"
        register_flavors()

    # --- agents' files ---

    def home_of(self, flavor: str) -> Path:
        return self.user_home / f".{flavor}"

    def claude_file(self, name: str = "s1", slug: str = "-w") -> Path:
        path = self.claude / "projects" / slug / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def codex_file(self, name: str) -> Path:
        path = self.codex / "sessions" / "2026" / "01" / "02" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    # --- sessiond ---

    def write_config(self, text: str) -> None:
        path = self.user_home / ".config" / "sessiond" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @property
    def paths(self) -> places.Paths:
        return places.resolve(self.env)

    def pipeline(self, mode: str = "poll") -> Pipeline:
        places.make_private(self.paths.state_dir)
        loaded = configuration.load(None, self.env, set(adapters()), system_dir=self.folder / "etc")
        self.troubles = Troubles(lambda: datetime.now(UTC), lambda _, __: None)
        return Pipeline(loaded.config, self.paths, self.troubles, self.env, mode=mode)

    def ingest(self) -> dict:
        """One sweep, as `sessiond ingest` does it without a daemon."""
        pipeline = self.pipeline()
        try:
            return pipeline.run_once(lambda _: None)
        finally:
            pipeline.stop()

    @contextmanager
    def upkeep(self):
        """The store without intake, and what can be done with it by hand."""
        pipeline = self.pipeline()
        try:
            pipeline.start_store()
            config = pipeline.config
            yield Upkeep(lambda: config, self.paths, pipeline, self.troubles)
        finally:
            pipeline.stop()

    def analyze(self) -> dict:
        with self.upkeep() as upkeep:
            return upkeep.do("analyze", {})

    def evict(self, **params) -> dict:
        with self.upkeep() as upkeep:
            return upkeep.do("evict", params)

    def digest(self, uid: str) -> dict | None:
        with self.store() as db:
            return digests.by_uid(db, uid)

    def disk_bytes(self) -> int:
        """What `du` says of the state folder."""
        told = subprocess.run(["du", "-sk", str(self.paths.state_dir)], capture_output=True, text=True, check=True)
        return int(told.stdout.split()[0]) * 1024

    def start_daemon(self, *, config: str | None = None) -> subprocess.Popen:
        """The real daemon in a process of its own; not yet ready when this returns."""
        if config is not None:
            self.write_config(config)
        with (self.folder / "daemon.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "sessiond", "run"],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @contextmanager
    def daemon(self, *, config: str | None = None):
        process = self.start_daemon(config=config)
        try:
            until(lambda: self.status() or process.poll() is not None, what="the daemon's answer")
            assert process.poll() is None, (self.folder / "daemon.log").read_text()
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(10)

    def call(self, method: str, **params):
        return Client(self.paths.socket).call(method, **params)

    def status(self) -> dict | None:
        try:
            return self.call("status")
        except NotRunning:
            return None

    def ingest_through_daemon(self) -> None:
        ticket = self.call("ingest")["ticket"]
        until(lambda: self.call("ingested", ticket=ticket)["done"])

    def cli(self, *words: str, **kept) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "sessiond", *words], env=self.env, capture_output=True, text=True, timeout=60, **kept
        )

    @contextmanager
    def store(self):
        db = open_reader(self.paths.store)
        try:
            yield db
        finally:
            db.close()

    # --- what came of it ---

    def sessions(self) -> dict[str, object]:
        with self.store() as db:
            return {s.session_uid: s for s in reader.sessions(db, reader.Wanted(everything=True))}

    def events(self, uid: str, **wanted) -> list:
        with self.store() as db:
            return list(reader.events(db, uid, **wanted))

    def archived(self, path: Path) -> bytes:
        """The archive of the newest generation of this file."""
        with self.store() as db:
            query = "SELECT generation_id FROM _source WHERE path = ?"
            for (generation,) in rows(db, query, (os.fsencode(path),)):
                return b"".join(data for _, data in archive.stream(db, generation))
        return b""  # not even its first line is complete

    def rejects(self) -> list[tuple[int, int, str]]:
        with self.store() as db:
            return rows(db, "SELECT start, length, reason FROM _reject ORDER BY generation_id, start")

    def event_rows(self) -> list[tuple]:
        """Every event as P2 compares it: place, kind, fields, and the parent by its place."""
        query = """
        SELECT s.uid, f.below, g.number, e.start, e.length, e.block, e.ts, e.kind, e.role, e.tool, e.summary, e.is_error,
               e.is_sidechain, e.is_turn, p.start, p.block
          FROM _event AS e JOIN _session AS s ON s.id = e.session_id
          JOIN _generation AS g ON g.id = e.generation_id JOIN _source AS f ON f.id = g.source_id
          LEFT JOIN _event AS p ON p.session_id = e.session_id AND p.seq = e.parent_seq
         ORDER BY s.uid, f.below, g.number, e.start, e.block
        """
        with self.store() as db:
            return rows(db, query)

    def usage_rows(self) -> list[tuple]:
        query = """
        SELECT s.uid, u.ts, u.model, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens,
               u.duration_ms
          FROM _usage AS u JOIN _session AS s ON s.id = u.session_id ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, u.hash
        """
        with self.store() as db:
            return rows(db, query)


def user_line(number: int, text: str = "hello", *, session: str = "s1", **fields) -> bytes:
    """A prompt as Claude Code writes it."""
    record = {
        "parentUuid": None if number == 0 else f"u{session}-{number - 1}",
        "isSidechain": False,
        "cwd": "/w",
        "sessionId": session,
        "version": "2.1.0",
        "gitBranch": "main",
        "type": "user",
        "message": {"role": "user", "content": text},
        "uuid": f"u{session}-{number}",
        "timestamp": f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}.{number // 3600:03d}Z",
    }
    return json.dumps({**record, **fields}, ensure_ascii=False).encode() + b"\n"


class AtWork:
    """Threads that work until the `with` block they were made for is left; each looks at `_stop` for that."""

    def __init__(self, works) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in works]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def until(condition, seconds: float = 20.0, what: str = "the condition"):
    """Wait for a condition with a deadline; returns what it returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {seconds} s")
        time.sleep(0.01)
    return found


def settle(pipeline: Pipeline) -> None:
    """Everything written until now is stored and searchable."""
    ticket = pipeline.ask()["ticket"]
    until(lambda: pipeline.asked({"ticket": ticket})["done"])


def states(lab: Lab) -> dict[str, str]:
    """Path -> state of every file ever seen."""
    with lab.store() as db:
        return {os.fsdecode(path): state for path, state in rows(db, "SELECT path, state FROM _source")}
