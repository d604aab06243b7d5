"""A small real journal, the verbs in this process or as a program of their own, and a terminal of any width."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import terminals
from sessiond import paths as places
from sessiond.cli import main
from sessiond.serve.server import Server

ROOT = Path(__file__).resolve().parent.parent.parent
SECRET = "ghp_" + "0123456789abcdefghij0123456789abcdef"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe"
SHOP, BLOG = "a3f9c2d1-0000-4000-8000-000000000001", "a3f9c2d1-1000-4000-8000-000000000002"


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def sessiond(lab, monkeypatch, capfd):
    """`sessiond("status", "--json")`: a verb in this process, with the lab's environment."""
    for name in ("NO_COLOR", "COLUMNS", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "SESSIOND_CONFIG", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TZ", "UTC")

    def call(*args: str) -> Said:
        capfd.readouterr()
        code = main(list(args))
        return Said(code, *capfd.readouterr())

    return call


@pytest.fixture
def program(lab):
    """`program("status")`: the same as a process, as a shell would run it."""

    def call(*args: str, **options) -> subprocess.CompletedProcess:
        argv = [sys.executable, "-m", "sessiond", *args]
        options.setdefault("env", lab.env)
        options.setdefault("cwd", ROOT)
        return subprocess.run(argv, capture_output=True, timeout=30, **options)

    return call


@pytest.fixture
def screen(lab):
    """`screen("sessions", width=60)`: what a person sees on a terminal of that width, colours and all."""

    def call(*args: str, width: int = 80, cwd: Path = ROOT, **env: str) -> str:
        env = {**lab.env, "PYTHONPATH": str(ROOT), **env}
        shown = terminals.shown(env, *args, width=width, stderr=subprocess.DEVNULL, cwd=cwd)
        return shown.decode().replace("\r\n", "\n")

    return call


@pytest.fixture
def daemon(lab):
    """`with daemon(status=...)`: a real socket that answers with what a daemon would say."""

    @contextmanager
    def start(**answers):
        paths = lab.paths
        places.make_private(paths.state_dir)
        places.make_private(paths.runtime_dir)
        methods = {name: (each if callable(each) else lambda _, each=each: each) for name, each in answers.items()}
        server = Server(paths.socket, methods, version="9.8.7", on_error=lambda error: None)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    return start


@pytest.fixture
def shop(lab) -> Path:
    return _repo(lab, "shop")


@pytest.fixture
def journal(lab, shop):
    """Two sessions, one in each of two repositories; the newer one has seen everything."""
    write_session(lab, SHOP, shop, _shop_records(shop))
    write_session(lab, BLOG, _repo(lab, "blog"), [("2026-01-01T08:00:00.000Z", _prompt("Write about kites"))])
    lab.ingest()
    return lab


def _repo(lab, name: str) -> Path:
    repo = lab.folder.resolve() / "work" / name
    (repo / ".git").mkdir(parents=True, exist_ok=True)
    return repo


def write_session(lab, session: str, cwd: Path, records: list[tuple[str, dict]]) -> Path:
    path = lab.claude_file(session, slug="-work-" + cwd.name)
    with path.open("ab") as file:
        for number, (ts, record) in enumerate(records):
            common = {
                "parentUuid": f"{session}-{number - 1}" if number else None, "isSidechain": False, "cwd": str(cwd),
                "sessionId": session, "version": "2.1.0", "gitBranch": "main", "uuid": f"{session}-{number}",
                "timestamp": ts,
            }  # fmt: skip
            file.write(json.dumps({**common, **record}).encode() + b"\n")
    return path


def _prompt(text: str) -> dict:
    return {"type": "user", "message": {"role": "user", "content": text}}


def _says(*blocks: dict, message: str, stop: str | None = None) -> dict:
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 10,
    }
    body = {"id": message, "role": "assistant", "model": "claude-opus-4-7", "content": list(blocks), "usage": usage}
    return {"type": "assistant", "message": {**body, "stop_reason": stop}}


def _result(call: str, text: str, *, is_error: bool = False) -> dict:
    block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def _shop_records(repo: Path) -> list[tuple[str, dict]]:
    edit = {
        "type": "tool_use",
        "id": "c1",
        "name": "Edit",
        "input": {"file_path": f"{repo}/src/cart.py", "old_string": "a", "new_string": "b"},
    }
    shell = {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": "curl https://shop.test"}}
    records = [
        _prompt("Make the cart remember its items"),
        _says(edit, message="m1"),
        _result("c1", "done"),
        _says(shell, message="m2"),
        _result("c2", "connection refused", is_error=True),
        _prompt(f"use the token {SECRET} and mind {ESCAPE}"),
        _says({"type": "text", "text": "The cart remembers now."}, message="m3", stop="end_turn"),
    ]
    return [(f"2026-01-02T03:04:{number:02d}.000Z", record) for number, record in enumerate(records)]
