"""A file's content by offset, plain or compressed, behind one small interface."""

from __future__ import annotations

import errno
import os
import sys
from collections import OrderedDict
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CLOSE_BEHIND = 64 * 2**10  # how much of a decompressed stream is kept for the identity check of the next read


class Content(Protocol):
    """`size` is None where it is not known before the end was read (a compressed file)."""

    size: int | None

    def read_at(self, offset: int, length: int) -> bytes:
        """These bytes; fewer only where the file ends."""


class Plain:
    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size: int | None = size

    def read_at(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        while 0 < len(data) < length:  # a signal or a slow file system may cut a read short
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def next_data(self, offset: int) -> int:
        """Where the next byte that is really on the disk begins: a hole reads as zeros, however large it is."""
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except (OSError, AttributeError):
            return offset


class Compressed:
    """The decompressed bytes of a .zst file. Reads go forward; one that goes back begins again.

    Streams of the last few files are kept (`_STREAMS`), so that reading one in many chunks decompresses it once.
    """

    def __init__(self, fd: int, stat: os.stat_result) -> None:
        self.size: int | None = None
        self._fd = fd
        self._key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)

    def read_at(self, offset: int, length: int) -> bytes:
        stream = _STREAMS.pop(self._key, None)
        if stream is None or offset < stream.oldest:
            stream = _Stream()
        try:
            return stream.read_at(self._fd, offset, length)
        except zstd.ZstdError as error:
            stream = _Stream()
            raise OSError(errno.EBADMSG, "not zstd, or damaged") from error
        finally:
            _STREAMS[self._key] = stream
            while len(_STREAMS) > 4:
                _STREAMS.popitem(last=False)


class _Stream:
    def __init__(self) -> None:
        self._inflate = zstd.ZstdDecompressor()
        self._position = 0  # in the compressed file
        self._buffer = bytearray()
        self.oldest = 0  # offset of the buffer's first byte

    def read_at(self, fd: int, offset: int, length: int) -> bytes:
        while self.oldest + len(self._buffer) < offset + length and self._fill(fd):
            surplus = min(offset - self.oldest, len(self._buffer)) - CLOSE_BEHIND
            if surplus > 0:
                del self._buffer[:surplus]
                self.oldest += surplus
        start = offset - self.oldest
        return bytes(self._buffer[start : start + length])

    def _fill(self, fd: int) -> bool:
        if self._inflate.eof:  # a file may hold several frames, one after the other
            rest = self._inflate.unused_data
            self._inflate = zstd.ZstdDecompressor()
            if rest:
                self._buffer += self._inflate.decompress(rest, max_length=2**20)
                return True
        data = b""
        if self._inflate.needs_input:
            data = os.pread(fd, 2**17, self._position)
            if not data:
                return False
            self._position += len(data)
        self._buffer += self._inflate.decompress(data, max_length=2**20)
        return True


_STREAMS: OrderedDict[tuple[int, int, int, int], _Stream] = OrderedDict()
