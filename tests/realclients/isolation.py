"""What a client may reach: loopback alone, an environment built from nothing; and nothing of it is left running."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lab import until

MARK = "REALCLIENTS_RUN"  # in the environment of everything a client starts, wherever it puts itself
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def leave_network() -> bool:
    """Move this process into a network of its own that has loopback alone. False where that is not allowed.

    Before any thread is started: only the calling thread and what it starts afterwards are moved.
    """
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is None or unshare(_CLONE_NEWNET) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
    return True


def environment(home: Path, path: str, proxy: str | None) -> dict[str, str]:
    env = {"PATH": path, "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8", "TZ": "UTC", "SHELL": "/bin/bash"}
    env[MARK] = str(home)
    if proxy is not None:
        names = [name for each in ("HTTP_PROXY", "HTTPS_PROXY") for name in (each, each.lower())]
        env |= dict.fromkeys(names, proxy) | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    return env


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: dict[str, str],
    log: Path,
    seconds: float,
    kill: signal.Signals | None = None,
    kill_when: Callable[[], object] | None = None,
) -> int | str:
    """Run a client to its end, or kill it when the time for that has come; its exit code, or why there is none."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            if kill is not None and kill_when is not None:
                with contextlib.suppress(AssertionError):
                    until(lambda: kill_when() or process.poll() is not None, seconds)
                _signal_group(process.pid, kill)
                return process.wait(10)
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"still running after {seconds:.0f} s"
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            kill_strays(env[MARK])


def kill_strays(mark: str) -> None:
    """What a client started in a session of its own, found by the mark in its environment (where /proc tells it)."""
    for pid in _marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
