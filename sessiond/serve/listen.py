"""The socket's file: bound where no one else can reach it, and never at the cost of what is not ours.

Whoever binds holds the instance lock already, so a leftover here is that of a daemon that was killed.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

from sessiond.errors import Busy, Forbidden, SessiondError
from sessiond.serve import protocol

if TYPE_CHECKING:
    from pathlib import Path

_BACKLOG = 64
_PROBE_SECONDS = 0.5


def bind(path: Path) -> socket.socket:
    """A listening, non-blocking socket at `path`, mode 0600, in a folder of ours alone.

    It is bound and made private under another name and then renamed, so whoever sees it is answered.
    """
    protocol.check_path(path)
    temporary = path.with_name("~" + path.name)
    try:
        _make_private_folder(path)
        _clear_leftover(path)
        _clear_leftover(temporary)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(temporary))
            temporary.chmod(0o600)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            temporary.rename(path)
        except BaseException:
            listener.close()
            raise
    except PermissionError as error:
        raise Forbidden(f"the socket {path} cannot be made: {error.strerror}") from error
    except OSError as error:
        raise SessiondError(f"the socket {path} cannot be made: {error.strerror or error}") from error
    return listener


def identity(path: Path) -> tuple[int, int] | None:
    """Which socket stands at `path` now, to know later whether it is still the same one."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return (facts.st_dev, facts.st_ino) if stat.S_ISSOCK(facts.st_mode) else None


def _make_private_folder(path: Path) -> None:
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.geteuid():
        raise Forbidden(f"{folder} belongs to another user", hint="set SESSIOND_RUNTIME_DIR to a folder of your own")
    if not facts.st_mode & 0o077:
        return
    # Only a folder that holds nothing else is evidently meant for us: never take /run or a home from others.
    if {entry.name.removeprefix("~") for entry in folder.iterdir()} <= {path.name}:
        folder.chmod(0o700)
    elif facts.st_mode & 0o022:
        raise Forbidden(f"others may write to {folder}", hint=f"chmod 700 {folder}, or set SESSIOND_RUNTIME_DIR")


def _clear_leftover(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise SessiondError(f"{path} is in the way, and it is no socket", hint="move it away")
    if facts.st_uid != os.geteuid():
        raise Forbidden(f"{path} belongs to another user", hint="set SESSIOND_RUNTIME_DIR to a folder of your own")
    if _is_answered(path):
        raise Busy(f"another process answers at {path}", hint="sessiond status")
    path.unlink()


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (BlockingIOError, TimeoutError):
            return True  # its backlog is full: someone listens, only slowly
        return True
