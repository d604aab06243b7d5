"""Rows 46, 47 and 80: ten thousand files cost next to nothing at rest, and a long history neither delays nor bloats.

The caps are those of the design; the long tests print what they measured.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import Lab, append, until, user_line
from sessiond.report import Report

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measured through /proc")
MIB = 2**20
IDLE_CPU_PERCENT, IDLE_MB, BUSY_MB = 0.3, 80, 150
START_SECONDS = 10.0


def megabytes(pid: int, what: str) -> float:
    """VmRSS or VmHWM, the most it ever was."""
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith(f"{what}:"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def idle_percent(pid: int, seconds: float) -> float:
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)  # the time that is measured
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)


def write_history(lab: Lab, files: int, folders: int, size: int) -> int:
    """Sessions of a year ago; how many lines that is."""
    lines = max(1, size // 500)
    body = b"".join(user_line(number, "what a day " * 10, session="@@@@@@") for number in range(lines))
    for number in range(files):
        name = f"s{number:05d}"
        path = lab.claude_file(name, slug=f"-w{number % folders}")
        path.write_bytes(body.replace(b"@@@@@@", name.encode()))
        os.utime(path, (1_700_000_000 + number,) * 2)
    return files * lines


def is_read(lab: Lab, lines: int) -> bool:
    found = lab.status()
    return found["counters"]["lines"] >= lines and found["state"] in ("ready", "degraded")


# --- row 46: at rest ------------------------------------------------------------------------------


@pytest.mark.fault(46)
def test_five_hundred_files_at_rest_are_cheap(lab):
    write_history(lab, 500, 100, 500)
    lab.ingest()
    lab.analyze()
    began = time.monotonic()
    with lab.daemon() as daemon:
        until(lambda: lab.status()["state"] == "ready")
        assert time.monotonic() - began < START_SECONDS
        time.sleep(0.5)  # the last of the start
        assert idle_percent(daemon.pid, 3) < 4 * IDLE_CPU_PERCENT  # with a sweep in it, or a neighbour's cold cache
        assert megabytes(daemon.pid, "VmRSS") < IDLE_MB


@pytest.mark.fault(46)
def test_a_store_that_did_not_change_is_not_counted_again(lab, monkeypatch):
    """Counting ten thousand sessions every second was three times what a daemon at rest may take."""
    append(lab.claude_file(), user_line(0))
    lab.ingest()
    report = Report(SimpleNamespace(paths=lab.paths))
    counts = []
    count = report._count
    monkeypatch.setattr(report, "_count", lambda: counts.append(1) or count())

    def refresh(times: int) -> int:
        for _ in range(times):
            report.refresh()
            report._kept = report._kept._replace(good_until=0.0)
        return len(counts)

    wal = lab.paths.store.with_name("store.db-wal")
    wal.touch()
    assert refresh(3) == 3, "just after a commit the next one could leave the same time behind"
    for path in (wal, lab.paths.store):
        os.utime(path, (1_700_000_000,) * 2)
    assert refresh(5) == 4
    append(lab.claude_file(), user_line(1))
    lab.ingest()
    wal.touch()
    assert refresh(1) == 5
    assert report._kept.sessions["events"] == 2


@pytest.mark.long
@pytest.mark.fault(46)
def test_ten_thousand_files_at_rest(lab):
    lines = write_history(lab, 10_000, 2000, 2500)
    with lab.daemon(config='[analyze]\nquiet_after = "0s"\ninterval = "5s"\n') as daemon:
        until(lambda: is_read(lab, lines), 300)
        until(lambda: lab.status()["sessions"]["analyzed"] == 10_000, 300, "all are distilled")
        until(lambda: megabytes(daemon.pid, "VmRSS") <= IDLE_MB, 60, f"back to {IDLE_MB} MB after the first reading")
        after_reading, most = megabytes(daemon.pid, "VmRSS"), megabytes(daemon.pid, "VmHWM")
    began = time.monotonic()
    with lab.daemon(config="") as daemon:
        until(lambda: lab.status()["state"] == "ready", 60)
        start = time.monotonic() - began
        time.sleep(5)  # the last of the start
        percent = idle_percent(daemon.pid, 150)  # two sweeps, two looks at the coverage, two passes
        at_rest = megabytes(daemon.pid, "VmRSS")
        sweep = lab.status()["passes"]["scan"]["last_result"]
        overflows = lab.status()["counters"]["overflows"]
    print(
        f"\n10,000 files: start {start:.1f} s, at rest {percent:.2f} % of a core and {at_rest:.0f} MB; after the first "
        f"reading and analyzing {after_reading:.0f} MB, at most {most:.0f} MB; last sweep {sweep}"
    )
    assert start < START_SECONDS
    assert percent <= IDLE_CPU_PERCENT
    assert at_rest <= IDLE_MB
    assert most <= BUSY_MB
    assert overflows == 0


@pytest.mark.long
@pytest.mark.fault(46)
@pytest.mark.fault(43)
def test_a_hundred_thousand_folders_are_watched_soon(lab):
    allowed = min(
        int(Path(f"/proc/sys/{name}").read_text())
        for name in ("fs/inotify/max_user_watches", "user/max_inotify_watches")
    )
    if allowed < 110_000:
        pytest.skip(f"only {allowed} watches are allowed here")
    projects = lab.claude / "projects"
    for number in range(1000):
        (projects / f"-w{number}").mkdir(parents=True)
        for below in range(99):
            (projects / f"-w{number}" / f"d{below}").mkdir()
    began = time.monotonic()
    with lab.daemon() as daemon:
        start = time.monotonic() - began
        until(lambda: lab.status()["state"] == "ready", 60)
        swept = time.monotonic() - began
        last = lab.claude_file("last", slug="-w999")
        append(last, user_line(0, session="last"))
        until(lambda: lab.status()["store"]["events"] == 1, what="a line in one of them")
        found = lab.status()
        print(
            f"\n100,000 folders: answers after {start:.1f} s, swept after {swept:.1f} s, "
            f"{megabytes(daemon.pid, 'VmRSS'):.0f} MB, {found['passes']['scan']['last_result']}"
        )
        assert found["degraded"] == []
        assert found["watch"]["mode"] == "native"
        assert found["counters"]["overflows"] == 0, "setting the watches causes no events of its own"
    assert swept < START_SECONDS


# --- rows 47 and 80: a long history at the first start --------------------------------------------


class Manager:
    """The service manager: what it was told, and what had been read by then."""

    def __init__(self, lab: Lab) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(lab.folder / "notify"))
        self._socket.settimeout(60)
        lab.env["NOTIFY_SOCKET"] = str(lab.folder / "notify")
        self.told: list[str] = []

    def wait_for(self, word: str) -> None:
        while not any(line.startswith(word) for line in self.told):
            self.told += self._socket.recv(4096).decode().split("\n")

    def close(self) -> None:
        self._socket.close()


def first_start(lab: Lab, lines: int, address_space: int) -> dict[str, float]:
    """Over a long history, with so much memory to address and no more."""
    manager = Manager(lab)
    began = time.monotonic()
    process = lab.start_daemon(config='[retention]\nsoft_cap = "900GiB"\nkeep_free = "0"\n')
    resource.prlimit(process.pid, resource.RLIMIT_AS, (address_space, address_space))
    try:
        manager.wait_for("READY=1")
        ready = time.monotonic() - began
        at_ready = lab.status()
        assert at_ready["state"] == "backfilling"
        assert at_ready["counters"]["lines"] < lines / 2, "ready before the history is read"
        assert not [line for line in manager.told if line.startswith("STATUS=reading history")]
        manager.wait_for("STATUS=reading history: ")
        live = lab.claude_file("live", slug="-now")
        append(live, user_line(0, session="live"))
        asked = time.monotonic()
        until(lambda: "claude:live" in lab.sessions(), 30, "what happens now goes before history")
        seen = time.monotonic() - asked
        is_still_reading = lab.status()["state"] == "backfilling"
        until(lambda: is_read(lab, lines + 1), 600, "the history")
        took = time.monotonic() - began
        found = lab.status()
        assert found["counters"]["lines"] == lines + 1
        assert found["degraded"] == []
        assert is_still_reading, "the history was too short to prove anything"
        return {"ready": ready, "live": seen, "took": took, "most": megabytes(process.pid, "VmHWM")}
    finally:
        process.terminate()
        assert process.wait(10) == 0, (lab.folder / "daemon.log").read_text()[-3000:]
        manager.close()


@pytest.mark.fault(47)
@pytest.mark.fault(80)
def test_a_history_is_read_after_ready_behind_what_is_live_and_within_bounds(lab):
    lines = write_history(lab, 200, 100, 100_000)
    found = first_start(lab, lines, 400 * MIB)
    assert found["ready"] < START_SECONDS
    assert found["most"] < BUSY_MB


@pytest.mark.long
@pytest.mark.fault(47)
@pytest.mark.fault(80)
def test_a_gigabyte_of_history_in_ten_thousand_files(lab):
    lines = write_history(lab, 10_000, 2000, 100_000)
    found = first_start(lab, lines, 500 * MIB)
    print(
        f"\n10,000 files of 100 kB: ready after {found['ready']:.1f} s, a live line visible after "
        f"{1000 * found['live']:.0f} ms, all read after {found['took']:.0f} s, at most {found['most']:.0f} MB"
    )
    assert found["ready"] < START_SECONDS
    assert found["live"] < 5
    assert found["most"] < BUSY_MB


@pytest.mark.fault(80)
def test_lines_of_many_megabytes_fit_into_little_memory(lab):
    """The worst that is still parsed (8 MiB of four-byte characters), and one that is too long for that."""
    path = lab.claude_file()
    with path.open("wb") as file:
        file.write(user_line(0))
        file.write(user_line(1, "\N{GRINNING FACE}" * 650_000))
        file.write(b'{"type": "user", "x": "')
        for _ in range(64):
            file.write(b"y" * MIB)
        file.write(b'"}\n')
        file.write(user_line(2))
    process = lab.start_daemon(config='[retention]\nkeep_free = "0"\n')
    resource.prlimit(process.pid, resource.RLIMIT_AS, (400 * MIB, 400 * MIB))
    try:
        until(lambda: lab.status() and is_read(lab, 3), 60)
        assert [reason for _, _, reason in lab.rejects()] == ["too_long"]
        assert lab.status()["degraded"] == []
        assert len(lab.events("claude:s1")) == 3
        assert megabytes(process.pid, "VmHWM") < BUSY_MB
    finally:
        process.terminate()
        assert process.wait(10) == 0
