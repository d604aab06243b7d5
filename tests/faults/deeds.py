"""What may happen to an agent's file, as rules of the state machine."""

from __future__ import annotations

import os
import string

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from .disk import PLACES, Disk

SIZES = st.sampled_from([0, 20, 300, 1300])
SOME = st.integers(0, 10**6)  # which of what there is, whatever there is
LINES = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "answer", "answer", "junk", "blank"]), SIZES), min_size=1, max_size=4
)

has_files = precondition(lambda self: self.model.files)


class Deeds(Disk):
    """Whoever is told `_done` may look at the files: each rule does one thing, by one system call."""

    def _done(self) -> None:
        raise NotImplementedError

    @precondition(lambda self: len(self.model.files) < len(PLACES))
    @rule(some=SOME, drawn=LINES, how=st.sampled_from(["new", "again", "more", "less", "empty"]))
    def create(self, some, drawn, how):
        """Also where a file was before; also with what it held."""
        place = self._one(some, [each for each in PLACES if each not in self.model.files])
        if self._is_taken_away(place):
            return
        before = self.before.get(place, b"")
        kept = {"again": before, "more": before, "less": before[: some % (len(before) + 1)]}.get(how, b"")
        if self._is_shared(place, kept):
            return
        self.rest.pop(place, None)
        self._put(place, kept + (self._lines(drawn) if how in {"new", "more"} else b""))
        self._done()

    @has_files
    @rule(some=SOME, drawn=LINES)
    def append(self, some, drawn):
        place = self._one(some, self._open)
        if place is None:
            return
        self._write(place, self.rest.pop(place, b"") + self._lines(drawn))
        self._done()

    @has_files
    @rule(some=SOME, size=SIZES, cut=SOME)
    def partial_append(self, some, size, cut):
        place = self._one(some, self._open)
        if place is None:
            return
        line = self.rest.pop(place, b"") or self._line(size)
        at = 1 + cut % (len(line) - 1) if len(line) > 1 else 1
        self._write(place, line[:at])
        if line[at:]:
            self.rest[place] = line[at:]
        self._done()

    @has_files
    @rule(some=SOME, to=SOME, how=st.sampled_from(["zero", "line", "anywhere"]))
    def truncate(self, some, to, how):
        place = self._one(some, self._open)
        if place is None:
            return
        data = self.model.files[place].data
        size = 0 if how == "zero" else to % (len(data) + 1)
        if how == "line":
            size = data.rfind(b"\n", 0, size) + 1
        like = os.stat(self._root + place)
        os.truncate(self._root + place, size)
        self.rest.pop(place, None)
        self._noted(place, like=like)
        self._done()

    @has_files
    @rule(some=SOME, which=st.sampled_from([0, -1, -1, 1, 2]), letter=st.sampled_from(string.ascii_lowercase[:5]))
    def rewrite_same_size(self, some, which, letter):
        """A line becomes another one of its length, in place; an unfinished one too."""
        place = self._one(some, self._open)
        if place is None:
            return
        lines = self.model.files[place].data.splitlines(keepends=True)
        if not lines:
            return
        which %= len(lines)
        line, at = lines[which], sum(map(len, lines[:which]))
        other = line
        if line.startswith(b'{"type"') and line.endswith(b"\n"):
            size = len(line) - len(self._line(0, like=0))
            other = self._line(max(size, 0), letter) if b'"user"' in line else line
        if len(other) != len(line) or other == line:
            other = line.replace(b"xx", 2 * letter.encode())
        self._write(place, other, at)
        self._done()

    @has_files
    @rule(some=SOME, drawn=LINES, how=st.sampled_from(["extended", "different", "shuffled"]))
    def replace(self, some, drawn, how):
        """By a rename over it, as editors do."""
        place = self._one(some)
        lines = self.model.files[place].data.splitlines(keepends=True)
        kept = {"extended": lines, "shuffled": lines[1:][::-1]}.get(how, [])
        if how != "extended":
            self.rest.pop(place, None)
            kept = [each for each in kept if each.endswith(b"\n")]
        self._put(place, b"".join(kept) + self.rest.pop(place, b"") + self._lines(drawn))
        self._done()

    @has_files
    @rule(some=SOME, to=st.sampled_from(PLACES))
    def rename(self, some, to):
        place = self._one(some)
        if place == to or self._is_taken_away(to) or self._is_known_elsewhere(self.model.files[place].inode, to):
            return
        if self._is_shared(to, self.model.files[place].data, self.model.files[place].inode, leaving=place):
            return
        os.rename(self._root + place, self._root + to)
        self.model.files[to] = self.model.files.pop(place)
        self.rest.pop(to, None)
        if place in self.rest:
            self.rest[to] = self.rest.pop(place)
        self._done()

    @has_files
    @rule(some=SOME)
    def delete(self, some):
        place = self._one(some)
        os.unlink(self._root + place)
        self.before[place] = self.model.files.pop(place).data
        self.rest.pop(place, None)
        self._done()

    @has_files
    @rule(some=SOME, to=st.sampled_from(PLACES))
    def copy(self, some, to):
        place = self._one(some)
        if place == to or self._is_taken_away(to) or self._is_shared(to, self.model.files[place].data):
            return
        self._put(to, self.model.files[place].data)
        self.rest.pop(to, None)
        if place in self.rest:
            self.rest[to] = self.rest[place]
        self._done()

    @has_files
    @rule(some=SOME)
    def chmod(self, some):
        """To and fro. Root reads what it likes."""
        place = self._one(some)
        path, file = self._root + place, self.model.files[place]
        os.chmod(path, 0o600 if os.stat(path).st_mode & 0o777 == 0 else 0)
        file.readable = os.access(path, os.R_OK)
        self._done()

    @has_files
    @rule(some=SOME, when=st.sampled_from([0, 10**9, 2 * 10**9, 7 * 10**9]))
    def touch(self, some, when):
        place = self._one(some)
        os.utime(self._root + place, (when, when))
        self._done()
