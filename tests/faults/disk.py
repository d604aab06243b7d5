"""The agents' files of the state machine: real ones, each noted for the model, and the lines that are written to them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine

from lab import Lab

from .model import File, Model, folder, stem

FOLDERS, NAMES = ("a", "b"), ("s1", "s2", "s3", "s4")
PLACES = [f"{folder}/{name}.jsonl" for folder in FOLDERS for name in NAMES]


class Disk(RuleBasedStateMachine):
    """A file is known by its place, its path below the agent's folder. `is_named`: lines have ids of their own."""

    is_named = True

    def set_up(self, folder: Path) -> None:
        self.folder = folder
        self.lab = Lab(folder)
        for name in FOLDERS:
            (self.lab.claude / "projects" / name).mkdir(parents=True)
        self.model = Model()
        self.number = 0
        self.rest: dict[str, bytes] = {}  # what would finish the unfinished line of a file
        self.before: dict[str, bytes] = {}  # what deleted files held

    @property
    def _root(self):
        return str(self.lab.claude / "projects") + "/"

    def _line(self, size: int, letter: str = "x", *, answer: bool = False, like: int | None = None) -> bytes:
        number = self.number if like is None else like
        self.number += like is None
        text = f"{number:06d} " + letter * size
        at = f"{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        told = {"type": "user", "timestamp": f"2020-01-02T{at}.000Z", "cwd": "/w"}
        told["message"] = {"role": "user", "content": text}
        if answer:
            told["type"] = "assistant"
            told["message"] = {"role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
            told["message"]["usage"] = {"input_tokens": number % 7 + 1, "output_tokens": number % 5 + 1}
        if self.is_named:
            told["uuid"] = f"u{number:06d}"
            if answer:  # a response is written in several records
                told["message"]["id"] = f"m{number // 3}"
        else:
            told["timestamp"] = "2020-01-02T03:04:05.000Z"
            told["message"] = json.loads(json.dumps(told["message"]).replace(f"{number:06d}", f"{number % 3:06d}"))
            if answer:
                told["message"]["usage"] = {"input_tokens": 3, "output_tokens": 4}
        return json.dumps(told).encode() + b"\n"

    def _lines(self, drawn) -> bytes:
        made = {"junk": b"{no json\n", "blank": b" \n"}
        return b"".join(made.get(what) or self._line(size, answer=what == "answer") for what, size in drawn)

    def _one(self, some: int, of: list[str] | None = None) -> str | None:
        found = sorted(self.model.files) if of is None else of
        return found[some % len(found)] if found else None

    @property
    def _open(self) -> list[str]:
        """Those that may be written: root writes what it likes."""
        return sorted(place for place, file in self.model.files.items() if file.readable)

    def _put(self, place: str, data: bytes) -> None:
        """All of it at once, as another inode: over what is there, or new."""
        number = 0
        while True:
            aside = self.folder / "home" / f"aside{number}"
            aside.write_bytes(data)
            if not self._is_known_elsewhere(aside.stat().st_ino, place):
                break
            number += 1  # and the one before stays, to hold its inode
        aside.rename(self._root + place)
        for each in range(number):
            (self.folder / "home" / f"aside{each}").unlink()
        self._noted(place)

    def _is_known_elsewhere(self, inode: int, place: str) -> bool:
        """Whether a file of another folder had this inode at the last look, and another file has its name now."""
        return any(
            inode == source.inode and source.path in self.model.files and folder(source.path) != folder(place)
            for source in self.model.sources
        )

    def _is_shared(self, to: str, data: bytes, inode: int = 0, *, leaving: str = "") -> bool:
        """Whether this would be a second file of a session with a named record of the first: which of the two has the
        event depends on which is read first.
        """
        named, lines = self._sessions(to, inode), set(data.splitlines(keepends=True))
        others = [(each.session.name, each.now.read) for each in self.model.sources if each.path not in {to, leaving}]
        for place, file in self.model.files.items():
            if place not in {to, leaving}:
                others += [(name, file.data) for name in self._sessions(place, file.inode)]
        return self.is_named and any(name in named and lines & set(held.splitlines(True)) for name, held in others)

    def _sessions(self, place: str, inode: int) -> set[str]:
        """What a file here may turn out to be part of."""
        found = [each for each in self.model.sources if each.path == place or each.inode == inode]
        return {stem(place), *(each.session.name for each in found)}

    def _is_taken_away(self, place: str) -> bool:
        """Whether the file that was here at the last look lies in another folder now."""
        known = [each.inode for each in self.model.sources if each.path == place]
        return any(file.inode in known and folder(other) != folder(place) for other, file in self.model.files.items())

    def _noted(self, place: str, *, like: os.stat_result | None = None) -> None:
        path = Path(self._root + place)
        stat = path.stat()
        if like is not None and stat.st_mtime_ns == like.st_mtime_ns:  # where the file system's clock is coarse
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**6))
        known = self.model.files.get(place)
        readable = known.readable if known is not None and known.inode == stat.st_ino else True
        self.model.files[place] = File(stat.st_ino, path.read_bytes() if readable else known.data, readable)

    def _write(self, place: str, data: bytes, at: int | None = None) -> None:
        path = self._root + place
        like = os.stat(path)
        flags = os.O_WRONLY | (os.O_APPEND if at is None else 0)
        fd = os.open(path, flags)
        try:
            assert (os.write(fd, data) if at is None else os.pwrite(fd, data, at)) == len(data)
        finally:
            os.close(fd)
        self._noted(place, like=like)
