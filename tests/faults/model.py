"""What sessiond owes, as rules over bytes. Pure: no file is touched here and nothing of sessiond is imported.

`files` is the disk, as the machine left it; `look` is the moment at which sessiond looks at all of it. What is owed:

- Only what a look finds. A content that was overwritten, cut off or deleted between two looks was never seen.
- Of each content that a look finds (a generation): its bytes up to the last LF, as they were when read. The unfinished
  rest is pending; once its file is gone, or another content lies in its place, it is archived behind those bytes.
- A content is the one read before if it is the same inode with the same first kilobyte and the same 256 bytes before
  the cursor (what was changed between those is not noticed), or begins with all that was read. Else: a new generation.
- A path not known is a known file moved there, if that one's inode and bytes are there, or its session's name and
  bytes and its own path is empty. What lies at the old path then is another file. (Where the two are in different
  folders it depends on which is looked at first: the machine leaves that out.)
- A content of which not even the first line is finished is not looked at yet.
- A record is one event, in the session whose file began first (of its time, then its name), until that one is evicted.
- Evicting takes the bytes and events of sessions that are digested to the end, and nothing brings those back.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

HEAD, MARKER = 1024, 256
NEVER = "~"


@dataclass
class File:
    inode: int
    data: bytes
    readable: bool = True


@dataclass(eq=False)
class Session:
    name: str
    discovered: float  # by the wall clock, as far as that was set ahead or back
    is_covered: bool = True  # a digest speaks of every event that there ever was
    is_frozen: bool = False  # events of it were evicted: nobody can take any from it
    inserted: int = 0
    base: Counter[str] = field(default_factory=Counter)  # what its digest says of the events that have left


@dataclass(eq=False)
class Generation:
    source: Source
    number: int
    read: bytes = b""
    tail: bytes = b""  # archived though it is no complete line
    gone_to: int = 0  # bytes before this were evicted
    is_open: bool = True
    lines: Counter[bytes] = field(default_factory=Counter)
    rejects: set[tuple[int, int]] = field(default_factory=set)

    @property
    def archived(self) -> bytes:
        return (self.read + self.tail)[self.gone_to :]


@dataclass(eq=False)
class Source:
    path: str
    session: Session
    inode: int
    first_ts: str = NEVER
    pending: bytes = b""
    is_gone: bool = False
    generations: list[Generation] = field(default_factory=list)

    @property
    def now(self) -> Generation:
        return self.generations[-1]

    def is_still(self, file: File) -> bool:
        read = self.now.read
        at = max(0, len(read) - MARKER)
        is_marked = file.data[:HEAD][: len(read)] == read[:HEAD] and file.data[at : len(read)] == read[at:]
        return file.data.startswith(read) or (is_marked and file.inode == self.inode)


@dataclass(eq=False)
class Event:
    source: Source  # that it was first seen in
    session: Session
    kind: str
    place: tuple[Generation, int, int]
    is_evicted: bool = False

    @property
    def is_live(self) -> bool:
        return self.place[0].is_open and not self.is_evicted


class Record(NamedTuple):
    name: str | None
    ts: str
    kind: str
    spent: tuple[str | None, int, int] | None  # the response's name, tokens in and out


def meaning(line: bytes) -> Record | None:
    """What a line of the machine's says; None where it is no record."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    kind = {"user": "user_msg", "assistant": "assistant_msg"}[told["type"]]
    usage = told["message"].get("usage")
    spent = None if usage is None else (told["message"].get("id"), usage["input_tokens"], usage["output_tokens"])
    return Record(told.get("uuid"), told["timestamp"], kind, spent)


class Model:
    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.sources: list[Source] = []
        self.sessions: dict[str, Session] = {}
        self.events: dict[object, Event] = {}
        self.usage: dict[object, tuple[Source, Session, int, int]] = {}
        self.clock = self.trusted_clock = 0.0  # hours that the wall clock was set ahead by: now, and at the start
        self.is_clock_doubtful = False

    # --- a look ---------------------------------------------------------------------------------

    def look(self, order: list[str] | None = None, stops: dict[str, int] | None = None) -> None:
        """Sessiond has seen all files, in this order; of one it was killed over no more than `stops` says."""
        for path in self.files if order is None else order:
            if self.files[path].readable:
                self._look_at(path, None if stops is None else stops[path])
        for source in self.sources:
            if source.path not in self.files and not source.is_gone:
                source.is_gone = True
                source.now.tail = source.pending

    def _look_at(self, path: str, stop: int | None) -> None:
        file = self.files[path]
        end = file.data.rfind(b"\n") + 1
        source = next((each for each in self.sources if each.path == path), None)
        if (source is None or not source.now.read) and file.data and not end:
            return
        source = source or self._moved(path, file) or self._new(path, file)
        source.path, source.is_gone = path, False
        if not source.is_still(file):
            if self._has_new_name(source, file):
                self._look_at(path, stop)
                return
            source.now.tail, source.now.is_open = source.pending, False
            source.generations.append(Generation(source, len(source.generations) + 1))
            source.session.is_covered = False
        now = source.now
        now.tail = b""
        now.gone_to = min(now.gone_to, len(now.read))
        source.inode, source.pending = file.inode, file.data[max(end, len(now.read)) :]
        for line in file.data[len(now.read) : end if stop is None else stop].splitlines(keepends=True):
            self._take_in(source, len(now.read), line[:-1])
            now.read += line

    def _has_new_name(self, source: Source, file: File) -> bool:
        """Whether another file took its place, and it lies beside that under a new name."""
        path, known = source.path, {each.path for each in self.sources}
        for name, other in list(self.files.items()):
            is_it = file.inode != source.inode == other.inode and folder(name) == folder(path)
            if is_it and name not in known and other.readable:
                self._look_at(name, None)
        return source.path != path

    def _moved(self, path: str, file: File) -> Source | None:
        for source in sorted(self.sources, key=lambda each: each.inode != file.inode):
            is_it = bool(source.now.read) and source.inode == file.inode
            is_named = source.session.name == stem(path) and source.path not in self.files
            if (is_it or is_named) and file.data.startswith(source.now.read):
                return source
        return None

    def _new(self, path: str, file: File) -> Source:
        session = self.sessions.setdefault(stem(path), Session(stem(path), self.clock))
        source = Source(path, session, file.inode)
        source.generations.append(Generation(source, 1))
        self.sources.append(source)
        return source

    def _take_in(self, source: Source, start: int, line: bytes) -> None:
        now, record = source.now, meaning(line)
        if record is None:
            now.rejects |= {(start, len(line))} if line.strip() else set()
            return
        source.first_ts = record.ts if source.first_ts == NEVER else source.first_ts
        now.lines[line] += 1
        self._name(source, record.name or (source, line, now.lines[line]), record.kind, (now, start, len(line)))
        if record.spent is not None:
            self._spend(source, record.spent[0] or (source.session, line), *record.spent[1:])

    def _name(self, source: Source, key: object, kind: str, place: tuple[Generation, int, int]) -> None:
        known, session = self.events.get(key), source.session
        if known is None or (known.session is not session and self._can_take(source, known.source, known.session)):
            if known is not None:
                known.session.is_covered = False
            self.events[key] = Event(source, session, kind, place)
            session.inserted += 1
            session.is_covered = False
        elif known.session is session and not known.is_evicted:
            before = known.place[0]
            if before is not place[0] and (before.source is source or not before.is_open):
                known.place = place
                session.is_covered = False

    def _spend(self, source: Source, key: object, given: int, answered: int) -> None:
        by, session, *most = self.usage.get(key, (source, source.session, given, answered))
        if session is not source.session and self._can_take(source, by, session):
            by, session = source, source.session
        self.usage[key] = (by, session, max(most[0], given), max(most[1], answered))

    def _can_take(self, source: Source, by: Source, owner: Session) -> bool:
        return not owner.is_frozen and (source.first_ts, source.session.name) < (by.first_ts, owner.name)

    # --- passes ---------------------------------------------------------------------------------

    def analyze(self) -> dict[str, Counter[str]]:
        """All sessions; what each digest must then count, by kind of event."""
        for session in self.sessions.values():
            session.is_covered = True
        return {each.name: each.base + self._live(each) for each in self.sessions.values()}

    def _live(self, session: Session) -> Counter[str]:
        return Counter(each.kind for each in self.events.values() if each.session is session and each.is_live)

    def generations(self, session: Session) -> list[Generation]:
        return [each for source in self.sources if source.session is session for each in source.generations]

    def start(self) -> None:
        self.trusted_clock, self.is_clock_doubtful = self.clock, False

    def set_clock(self, hours: float) -> None:
        """Once it jumped by more than a day it is doubtful, until it has gone steadily for longer than a test takes."""
        self.clock = hours
        self.is_clock_doubtful |= abs(self.clock - self.trusted_clock) > 24

    def old(self) -> list[Session]:
        """Who goes for its age; nobody while the clock is doubtful."""
        found = [] if self.is_clock_doubtful else list(self.sessions.values())
        return [each for each in found if each.is_covered and each.discovered <= self.clock and self._is_there(each)]

    def _is_there(self, session: Session) -> bool:
        stored = any(each.session is session and not each.is_evicted for each in self.events.values())
        return stored or any(each.archived for each in self.generations(session))

    def evict(self, session: Session) -> None:
        session.base += self._live(session)
        session.is_frozen |= session.inserted > 0
        for event in self.events.values():
            event.is_evicted |= event.session is session
        for each in self.generations(session):
            self._empty(each)

    def evict_superseded(self) -> None:
        """Older contents of digested sessions. Their events lose their names too: no digest speaks of them."""
        for session in self.sessions.values():
            older = [each for each in self.generations(session) if not each.is_open]
            if session.is_covered and any(each.archived for each in older):
                for each in older:
                    self._empty(each)
                    each.rejects = set()
                left = [key for key, event in self.events.items() if event.session is session and not event.is_evicted]
                for key in left:
                    if self.events[key].place[0] in older:
                        del self.events[key]

    def _empty(self, generation: Generation) -> None:
        generation.gone_to += len(generation.archived)
        generation.rejects = {each for each in generation.rejects if each[0] >= generation.gone_to}


def folder(path: str) -> str:
    return path.rpartition("/")[0]


def stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".jsonl")
