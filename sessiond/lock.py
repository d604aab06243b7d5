"""One instance per state folder: a file lock that is held for life and that the kernel frees, however we die.

The file says who holds it. It is never removed: whoever unlinked it could let two in, each with its own file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sessiond.errors import Busy, Forbidden, SessiondError

if TYPE_CHECKING:
    from pathlib import Path

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # CLOEXEC: a child must not keep the lock alive after us
_MAX_BYTES = 64 * 1024
# How long a lock that is taken is tried again: `read_holder` takes it for an instant to see whether it is
# free, and a holder needs an instant to write its name.
_PATIENCE_SECONDS = 0.25
_RETRY_SECONDS = 0.01


class Holder(NamedTuple):
    """Who holds the lock. No `socket`: a command at work without a daemon. No `pid`: not written yet."""

    pid: int | None = None
    socket: str | None = None
    version: str | None = None
    started_at: str | None = None


class InstanceLock:
    """The lock at `path`: free, until `acquire`; ours, until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._time_ns: int | None = None

    def acquire(
        self, *, socket: str | os.PathLike[str] | None, version: str, started_at: str, keeps_time: bool = False
    ) -> Self:
        """Hold the lock and say so in the file; Busy, naming the holder, if it is taken.

        The file's time tells when sessiond took in anything last; one who only works on the store `keeps_time`.
        """
        if self._fd is not None:
            raise RuntimeError("the lock is held already")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (fd := self._try()) is None:
            if time.monotonic() > deadline:
                raise _busy(read_holder(self.path) or Holder())
            time.sleep(_RETRY_SECONDS)
        self._fd = fd
        self._time_ns = os.fstat(fd).st_mtime_ns if keeps_time else None
        _write(fd, Holder(os.getpid(), None if socket is None else os.fspath(socket), version, started_at))
        return self

    def release(self) -> None:
        """Let others in. The file stays, emptied; releasing twice is harmless."""
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                os.ftruncate(fd, 0)
                if self._time_ns is not None:
                    os.utime(fd, ns=(self._time_ns, self._time_ns))
            finally:
                os.close(fd)

    def is_intact(self) -> bool:
        """Whether `path` still names the file we hold: once it is removed, another instance could get in."""
        return self._fd is not None and _is_at(self.path, self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _try(self) -> int | None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot(f"the folder {self.path.parent} cannot be made", error) from error
        fd = _open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if _flock(fd, fcntl.LOCK_EX) and _is_at(self.path, fd):
                os.fchmod(fd, 0o600)
                held, fd = fd, -1
                return held
        finally:
            if fd >= 0:
                os.close(fd)
        return None


def read_holder(path: Path) -> Holder | None:
    """Who holds the lock at this moment; None if no one does, whatever a killed holder left in the file."""
    try:
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        while not _flock(fd, fcntl.LOCK_SH):
            holder = _read(fd)
            if _is_running(holder.pid) or time.monotonic() > deadline:
                return holder
            time.sleep(_RETRY_SECONDS)  # just taken: the name in the file is still that of the one before
        return None
    finally:
        os.close(fd)


def _open(path: Path, flags: int) -> int:
    try:
        fd = os.open(path, flags | _FLAGS, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _cannot(f"the lock file {path} cannot be opened", error) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise SessiondError(f"{path} is in the way: the lock must be a regular file", hint="move it away")
    return fd


def _cannot(what: str, error: OSError) -> SessiondError:
    kind = Forbidden if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else SessiondError
    return kind(f"{what}: {error.strerror}")


def _flock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise SessiondError(
            f"this file system does not lock files: {error.strerror}",
            hint="set SESSIOND_STATE_DIR to a folder on a local disk",
        ) from error
    return True


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _write(fd: int, holder: Holder) -> None:
    # Emptied, then written in one piece: a reader sees the old name, nothing, or the whole of the new one.
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(holder._asdict()).encode() + b"\n", 0)


def _read(fd: int) -> Holder:
    try:
        value: Any = json.loads(os.pread(fd, _MAX_BYTES, 0))
        return Holder(**{name: value.get(name) for name in Holder._fields})
    except (ValueError, AttributeError):
        return Holder()


def _is_running(pid: int | None) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _busy(holder: Holder) -> Busy:
    who = "" if holder.pid is None else f" (pid {holder.pid})"
    if holder.socket is None and holder.pid is not None:
        return Busy(f"another sessiond command is at work{who}", hint="try again when it is done")
    where = "" if holder.socket is None else f", socket {holder.socket}"
    who = who.removesuffix(")") + where + ")" if who else ""
    return Busy(f"sessiond is already running{who}", hint="sessiond status")
