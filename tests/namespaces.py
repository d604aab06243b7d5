"""A kernel's limits without root: a scenario runs as a program in a user and mount namespace of its own.

There it may mount a small disk or lower an inotify limit and harms nobody. Where the kernel refuses such namespaces, the
test is left out and says why.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import Lab

TESTS = Path(__file__).resolve().parent


def inside(program: str, scenario: str, lab: Lab, *words: str, seconds: float = 400) -> str:
    """Run `program scenario FOLDER WORDS...` as root of its own little world; what it printed."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here: no namespace to be had")
    allowed = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(lab.user_home)], capture_output=True, text=True
    )
    if allowed.returncode:
        pytest.skip(f"this kernel lets nobody mount in a namespace of his own: {allowed.stderr.strip()}")
    argv = ["unshare", "-rm", sys.executable, program, scenario, str(lab.folder), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds)
    log = lab.folder / "daemon.log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text()[-3000:] if log.exists() else "")
    return done.stdout


def mount_tmpfs(at: Path, options: str = "size=64m") -> None:
    """A disk of its own in that place, for the rest of the namespace's life."""
    at.mkdir(mode=0o700, parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", str(at)], check=True)


def set_limit(name: str, value: int) -> None:
    """A limit of this user namespace, such as max_inotify_watches."""
    Path("/proc/sys/user", name).write_text(str(value))
