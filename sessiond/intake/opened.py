"""Opening an agent's file: read only, never through a link, never anything but a regular file, never blocking."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_FILE = frozenset({errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP})  # opening a socket, or a device that is none
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRegular(OSError):
    """A FIFO, socket, device or directory that is named like a session file."""


@contextmanager
def opened(path: str, depth: int) -> Iterator[int]:
    """A descriptor of the file. Its last `depth` folders are opened one by one, so that none of them can be
    swapped for a link between a look at the path and its use.
    """
    *folders, name = path.rsplit("/", depth + 1)
    parent = os.open(folders[0] or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders[1:]:
            below = os.open(folder, _FLAGS | os.O_DIRECTORY, dir_fd=parent)
            os.close(parent)
            parent = below
        fd = os.open(name, _FLAGS, dir_fd=parent)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise NotRegular(path) from error
        raise
    finally:
        os.close(parent)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotRegular(path)
        yield fd
    finally:
        os.close(fd)
