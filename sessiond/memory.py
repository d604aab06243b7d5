"""Keeping the process small: glibc gives every thread an arena of its own and returns little of it."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def stay_small() -> None:
    """One arena for all threads, and big blocks straight from the kernel, so that freed memory goes back to it.

    The reading thread makes what the writing thread frees: with an arena each, neither would ever shrink.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no arenas to limit
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, 256 * 1024)
    mallopt(_M_TRIM_THRESHOLD, 1024 * 1024)


def give_back() -> None:
    """Return to the kernel what is free in between; it costs milliseconds. For now and then.

    A long history leaves holes all over the arena, and left to itself glibc gives back only what lies at its end.
    """
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):  # musl has none to give back
            ctypes.CDLL(None).malloc_trim(0)
