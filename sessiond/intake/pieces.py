r"""Where records begin and end among bytes: at b"\n", and at NULs.

A power cut leaves NULs where a line was being written, and the next record right behind them. No JSON holds a NUL, so a
run of them ends what stands before it and is no part of what follows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_END = re.compile(rb"[\0\n]")
_TEXT = re.compile(rb"[^\0\n]+")
_TEXT_OR_RUN = re.compile(rb"[^\0]+|\0+")


def first_end(data: bytes) -> int:
    """Where the first record ends; -1 where none does."""
    found = _END.search(data)
    return found.start() if found else -1


def after_last_end(data: bytes) -> int:
    """Up to here every record is complete."""
    return max(data.rfind(b"\n"), data.rfind(b"\0")) + 1


def texts(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of every record in bytes that begin at `at`."""
    return ((at + found.start(), found[0]) for found in _TEXT.finditer(data))


def texts_and_runs(line: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of what a line is made of: records, and the runs of NULs around them."""
    return ((at + found.start(), found[0]) for found in _TEXT_OR_RUN.finditer(line))
