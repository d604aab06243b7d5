"""The first run over a long history: what a new user waits for, and what it costs meanwhile.

    python benchmarks/history.py [--size 5GB] [--fixtures ../shared/fixtures]

Prints a Markdown table against the targets of the design. Runs the real daemon over a scratch home.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from corpus import replay

from sessiond import paths as places
from sessiond.errors import SessiondError
from sessiond.serve.client import Client
from sessiond.store.connect import reading, rows
from sessiond.units import format_size, parse_size

ROOT = Path(__file__).resolve().parent.parent


def line(number: int) -> bytes:
    record = {
        "type": "user", "uuid": f"live-{number}", "sessionId": "live", "cwd": "/live", "isSidechain": False,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()), "parentUuid": None,
        "message": {"role": "user", "content": f"live line {number}"},
    }  # fmt: skip
    return json.dumps(record).encode() + b"\n"


class Live(threading.Thread):
    """Appends a line a few times a second and measures when a reader of the store sees it."""

    def __init__(self, home: Path, store: Path) -> None:
        super().__init__(daemon=True)
        self.path = home / ".claude" / "projects" / "-live" / "live.jsonl"
        self.store = store
        self.seconds: list[float] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        number = 0
        while not self.stopping.wait(0.2):
            began = time.monotonic()
            with self.path.open("ab") as file:
                file.write(line(number))
            number += 1
            while self._seen() < number and time.monotonic() - began < 30:
                time.sleep(0.01)
            self.seconds.append(time.monotonic() - began)

    def _seen(self) -> int:
        try:
            with reading(self.store) as db:
                return rows(db, "SELECT ifnull(max(events), 0) FROM _session WHERE uid = 'claude:live'")[0][0]
        except SessiondError:
            return 0  # there is no store yet


def rss_kb(pid: int) -> int:
    for each in Path(f"/proc/{pid}/status").read_text().splitlines():
        if each.startswith("VmRSS"):
            return int(each.split()[1])
    return 0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--size", default="5GB", type=parse_size)
    options.add_argument("--fixtures", default=ROOT.parent / "shared" / "fixtures", type=Path)
    options.add_argument("--keep", action="store_true", help="leave the scratch folder")
    chosen = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sdb"))
    env = {**os.environ, "HOME": str(folder / "home")}
    env |= {"SESSIOND_STATE_DIR": str(folder / "s"), "SESSIOND_RUNTIME_DIR": str(folder / "r")}
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "SESSIOND_CONFIG"):
        env.pop(name, None)
    try:
        files, size = replay(chosen.fixtures, folder / "home", chosen.size)
        print(f"corpus: {files} files, {format_size(size)}", flush=True)
        measure(folder, env, size)
    finally:
        if not chosen.keep:
            shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, env: dict[str, str], size: int) -> None:
    where = places.resolve(env)
    client = Client(where.socket)
    began = time.monotonic()
    daemon = subprocess.Popen([sys.executable, "-m", "sessiond", "run"], env=env, stderr=subprocess.DEVNULL, cwd=ROOT)
    asked: list[float] = []
    today = None
    most = 0
    live = Live(folder / "home", where.store)
    try:
        while True:
            at = time.monotonic()
            try:
                status = client.call("status")
            except SessiondError:
                time.sleep(0.02)
                continue
            asked.append(time.monotonic() - at)
            most = max(most, rss_kb(daemon.pid))
            if today is None and sum(each["sessions_today"] for each in status["agents"]):
                today = time.monotonic() - began
                live.start()
            if status["history"]["percent"] == 100.0 and status["sources"]["waiting"] == 0:
                break
            time.sleep(0.1)
        spent = time.monotonic() - began
        live.stopping.set()
        live.join(40)
        caught = time.monotonic()
        ticket = client.call("ingest")["ticket"]
        while not client.call("ingested", ticket=ticket)["done"]:
            time.sleep(0.05)
        caught = time.monotonic() - caught
        most = max(most, rss_kb(daemon.pid))
    finally:
        daemon.terminate()
        daemon.wait(30)
    disk = sum(each.stat().st_blocks * 512 for each in where.state_dir.rglob("*") if each.is_file())
    lag, asked = sorted(live.seconds), sorted(asked)
    late = asked[len(asked) * 99 // 100]
    table = [
        ("today's sessions listed after", f"{today:.1f} s", "5 s"),
        (f"live append visible, median / worst of {len(lag)}", f"{middle(lag)} / {lag[-1] * 1000:.0f} ms", "1 s"),
        (f"`status`, median / p99 of {len(asked)}", f"{middle(asked)} / {late * 1000:.0f} ms", "50 ms"),
        ("memory, at most", f"{most / 1024:.0f} MB", "150 MB"),
        ("history read after", f"{spent:.0f} s ({size / spent / 1e6:.0f} MB/s)", ""),
        ("search caught up after", f"{caught:.1f} s more", ""),
        ("store and index on disk", f"{disk / size:.2f}x of the source bytes", "0.45x"),
    ]
    print("\n| what | measured | target |\n|---|---|---|")
    print("\n".join(f"| {what} | {measured} | {target} |" for what, measured, target in table))


def middle(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f}"


if __name__ == "__main__":
    main()
