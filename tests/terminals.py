"""A verb of sessiond on a terminal of its own: what a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from typing import Any


def shown(env: dict[str, str], *words: str, width: int = 80, **options: Any) -> bytes:
    """Everything that `sessiond WORDS...` writes to a terminal of that width, stderr included unless told otherwise."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = {"TERM": "xterm", "LANG": "C.UTF-8", "TZ": "UTC", **env}
    argv = [sys.executable, "-m", "sessiond", *words]
    process = subprocess.Popen(argv, stdin=far, stdout=far, env=env, **{"stderr": far, **options})
    os.close(far)
    pieces: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(near, pieces))
    reader.start()
    process.wait(60)
    reader.join(60)
    os.close(near)
    return b"".join(pieces)


def read_all(fd: int, pieces: list[bytes]) -> None:
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:  # how Linux says that the other end is closed
            return
        if not piece:
            return
        pieces.append(piece)
