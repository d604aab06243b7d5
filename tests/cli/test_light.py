"""The client path stays light: what `status`, `health` and `reload` import, and how long they take."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from .conftest import ROOT

HEAVY = {"pydantic", "structlog", "rich", "apsw", "watchdog", "apscheduler", "orjson", "platformdirs"}
PROBE = """
import sys
from sessiond.cli import main
main(sys.argv[1:])
print("\\n".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


@pytest.mark.parametrize("verb", ["status", "health", "reload", "--help", "--version"])
def test_client_path_imports_nothing_heavy(lab, daemon, verb):
    answers = {"status": {"state": "ready", "version": "1"}, "reload": {"ok": True, "path": None, "warnings": []}}
    with daemon(**answers):
        argv = [sys.executable, "-c", PROBE, verb]
        done = subprocess.run(argv, capture_output=True, text=True, env=lab.env, cwd=ROOT, timeout=30)

    imported = set(done.stderr.splitlines())
    assert "click" in imported, done.stderr
    assert not imported & HEAVY


@pytest.mark.parametrize("verb", ["sessions", "show", "events", "search"])
def test_reading_verbs_start_without_pydantic_and_rich(journal, verb):
    argv = [
        sys.executable,
        "-c",
        PROBE,
        verb,
        *({"show": ["a3f9c2d1-0000-4000-8000-000000000001"], "search": ["cart"]}.get(verb, [])),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, env=journal.env, cwd=ROOT, timeout=30)

    imported = set(done.stderr.splitlines())
    assert "apsw" in imported, done.stderr
    assert not imported & {"pydantic", "structlog", "rich", "watchdog"}


def test_status_takes_at_most_ten_times_a_bare_interpreter(lab, daemon):
    with daemon(status={"state": "ready", "version": "1"}):
        taken = [(_timed(lab, "-c", "pass"), _timed(lab, "-m", "sessiond", "status")) for _ in range(12)]
    bare, status = (min(each) for each in zip(*taken, strict=True))  # what it takes, not what else the machine did

    assert status <= 10 * bare


def _timed(lab, *args: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *args], check=True, capture_output=True, env=lab.env, cwd=ROOT, timeout=30)
    return time.perf_counter() - began
