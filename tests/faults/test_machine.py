"""Whatever happens to agents' files and to sessiond, in any order: it has stored what the model says it owes.

The machine does things to real files and to a real process (engines.py), has the model (model.py) look whenever sessiond
has, and compares all that is stored. While it watches natively it may look after every single step, so it is waited
for after each; polling, several things may happen between two looks, and so they may while it is down.
"""

from __future__ import annotations

import json
import os
import shutil
import string
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from lab import Lab

from .engines import Daemon, Nursery
from .model import File, Model, folder, stem
from .stored import digested, order_read, stored, unlike_indexed

FOLDERS, NAMES = ("a", "b"), ("s1", "s2", "s3", "s4")
PLACES = [f"{folder}/{name}.jsonl" for folder in FOLDERS for name in NAMES]
SIZES = st.sampled_from([0, 20, 300, 1300])
SOME = st.integers(0, 10**6)  # which of what there is, whatever there is

has_files = precondition(lambda self: self.model.files)
is_running = precondition(lambda self: self.running is not None)


class Machine(RuleBasedStateMachine):
    """`mode` native or poll; `is_named`: lines have ids of their own. What `engine` starts is what is tested."""

    mode = "poll"
    is_named = True
    engine = None  # set by `machine`
    can_set_clock = True
    steps: ClassVar[Counter[str]] = Counter()

    LINES = st.lists(
        st.tuples(st.sampled_from(["ask", "ask", "answer", "answer", "junk", "blank"]), SIZES), min_size=1, max_size=4
    )

    @initialize(there=st.lists(LINES, min_size=1, max_size=3))
    def begin(self, there):
        self.folder = Path(tempfile.mkdtemp(prefix="sd"))
        self.lab = Lab(self.folder)
        for name in FOLDERS:
            (self.lab.claude / "projects" / name).mkdir(parents=True)
        self.model = Model()
        self.number = 0
        self.rest: dict[str, bytes] = {}  # what would finish the unfinished line of a file
        self.before: dict[str, bytes] = {}  # what deleted files held
        self.running = None
        self.is_wrong = False
        for place, drawn in zip(PLACES[1::3], there, strict=False):
            self._put(place, self._lines([("ask", 1300), *drawn]))
        self._start()
        type(self).steps["examples"] += 1

    def teardown(self):
        if hasattr(self, "folder"):
            try:
                if not self.is_wrong:
                    self.restart(gently=False)
                    self.analyze()
                    self._count()
            finally:
                if self.running is not None:
                    self.running.kill()
                shutil.rmtree(self.folder)

    def _count(self):
        """What it came to, for those who ask whether anything happened at all."""
        events, generations = self.model.events.values(), [g for s in self.model.sources for g in s.generations]
        type(self).steps.update(
            lines=sum(each.read.count(b"\n") for each in generations),
            generations=len(generations),
            evicted_generations=sum(each.gone_to > 0 for each in generations),
            evicted_events=sum(each.is_evicted for each in events),
            superseded_events=sum(not each.place[0].is_open for each in events),
        )

    # --- sessiond -------------------------------------------------------------------------------

    def _start(self):
        self._run()
        self._look()

    def _run(self):
        self.model.start()
        chunk = "1MiB" if self.is_named else "4KiB"  # in one piece: whose record it is depends on who is read first
        self.running = self.engine(folder=str(self.folder), mode=self.mode, chunk=chunk, clock=self.model.clock)

    def _look(self):
        self.running.do("settle")
        self.model.look(order_read(self.lab, self._root, list(self.model.files)))
        self._check()
        self._agree(
            {"not in the index as in the store": unlike_indexed(self.lab)}, {"not in the index as in the store": []}
        )

    def _done(self):
        """After each thing done to a file."""
        type(self).steps["steps"] += 1
        if self.running is not None and self.looks_by_itself:
            self._look()

    @property
    def looks_by_itself(self):
        return self.mode == "native" or not self.can_set_clock

    def _check(self):
        self._agree(stored(self.lab, self._root), owed(self.model))

    def _check_digests(self):
        told = {name: counted for name, counted in self.model.analyze().items() if counted}
        self._agree({"digests": digested(self.lab)}, {"digests": told})

    def _agree(self, found: dict, expected: dict) -> None:
        self.is_wrong = True
        for name, wanted in expected.items():
            differences = difference(found[name], wanted)
            assert not differences, "\n".join([name, *differences])
        self.is_wrong = False

    # --- files ----------------------------------------------------------------------------------

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

    # --- what sessiond does ---------------------------------------------------------------------

    @is_running
    @rule()
    def scan(self):
        type(self).steps["steps"] += 1
        self._look()

    @is_running
    @rule()
    def kill(self):
        type(self).steps["steps"] += 1
        self.running.kill()
        self.running = None

    @is_running
    @rule(drawn=LINES, times=st.integers(1, 40), after=st.integers(0, 25))
    def kill_while_reading(self, drawn, times, after):
        """Lines come to every file, and it dies over them: of each file it has some, up to the end of a line."""
        type(self).steps["steps"] += 1
        self._look()
        for place in sorted(self.model.files):
            if self.model.files[place].readable:
                self._write(place, self.rest.pop(place, b"") + b"".join(self._lines(drawn) for _ in range(times)))
        self.running.begin("settle")
        time.sleep(after / 1000)
        self.running.kill()
        self.running = None
        places, stops = self._reached()
        self.model.look(places, stops)
        self._check()

    def _reached(self):
        """How far it got with each file; it must be the end of a line, at or after where it was."""
        with self.lab.store() as db:
            query = "SELECT path, read_offset FROM _source WHERE state = 'live'"
            reached = {os.fsdecode(path): offset for path, offset in db.execute(query)}
        stops = {}
        for place in order_read(self.lab, self._root, list(self.model.files)):
            source = next((each for each in self.model.sources if each.path == place), None)
            stop = reached.get(self._root + place)
            if stop is None or (source is not None and stop == len(source.now.read)):
                continue  # it did not come to this one
            assert self.model.files[place].data[:stop].endswith(b"\n")
            stops[place] = stop
        return list(stops), stops

    @rule(gently=st.booleans())
    def restart(self, gently):
        type(self).steps["steps"] += 1
        if self.running is not None and gently:
            self.running.stop()
        elif self.running is not None:
            self.running.kill()
        self._start()

    @is_running
    @rule(verb=st.sampled_from(["analyze", "evict"]), distilled=st.booleans(), after=st.integers(0, 25))
    def kill_in_a_pass(self, verb, distilled, after):
        """Some of it may have been done: done again, it is whole."""
        type(self).steps["steps"] += 1
        self._look()
        if distilled:
            self.analyze()
        self.running.begin(verb, **({"what": "sessions"} if verb == "evict" else {}))
        time.sleep(after / 1000)
        self.running.kill()
        self._run()
        self.evict(distilled=False) if verb == "evict" else self.analyze()
        self._look()  # it did so once by itself, when it started

    @precondition(lambda self: self.can_set_clock)
    @rule(hours=st.sampled_from([-26, -1, 1, 26, 9600]))
    def clock_jump(self, hours):
        type(self).steps["steps"] += 1
        self.model.set_clock(self.model.clock + hours)
        if self.running is not None:
            self.running.do("set_clock", hours=self.model.clock)
            self._look()  # a jump makes it look, in its own time

    @is_running
    @rule()
    def analyze(self):
        type(self).steps["steps"] += 1
        self.running.do("analyze")
        self._check_digests()
        self._check()

    @is_running
    @rule(distilled=st.booleans())
    def evict(self, distilled):
        if distilled:
            self.analyze()
        type(self).steps["steps"] += 1
        self.running.do("evict", what="sessions")
        for session in self.model.old():
            self.model.evict(session)
        self._check()

    @precondition(lambda self: self.running is not None and self.can_set_clock)
    @rule(distilled=st.booleans())
    def evict_superseded(self, distilled):
        if distilled:
            self.analyze()
        type(self).steps["steps"] += 1
        self.running.do("evict", what="superseded")
        self.model.evict_superseded()
        self._check()


def difference(found, wanted) -> list[str]:
    """Only where they differ: all that is stored is too much to read."""
    if isinstance(wanted, dict):
        names = sorted(set(found) | set(wanted), key=str)
        return [
            f"{name}: stored {found.get(name)}, owed {wanted.get(name)}"
            for name in names
            if found.get(name) != wanted.get(name)
        ]
    there, owed = Counter(found), Counter(wanted)
    return [f"stored {each}" for each in there - owed] + [f"owed {each}" for each in owed - there]


def owed(model: Model) -> dict:
    """What the model says, in the words of `stored`."""
    generations = [each for source in model.sources for each in source.generations]
    unfinished = [each for each in generations if each.tail and each.gone_to <= len(each.read)]
    return {
        "sources": {
            each.path: ("gone" if each.is_gone else "live", each.session.name, each.now.number, len(each.now.read))
            for each in model.sources
        },
        "pending": {each.path: each.pending for each in model.sources if not each.is_gone},
        "archive": {(each.source.path, each.number): (each.gone_to, each.archived) for each in generations},
        "rejects": {
            *((each.source.path, each.number, *reject, "not_json") for each in generations for reject in each.rejects),
            *((e.source.path, e.number, len(e.read), len(e.tail), "unterminated") for e in unfinished),
        },
        "events": sorted(
            (event.session.name, place[0].source.path, place[0].number, *place[1:], event.kind, not place[0].is_open)
            for event in model.events.values()
            for place in (event.place,)
            if not event.is_evicted
        ),
        "usage": sorted((session.name, *numbers) for _, session, *numbers in model.usage.values()),
        "sessions": {
            each.name: sum(event.session is each for event in model.events.values()) for each in model.sessions.values()
        },
    }


# --- running it ---------------------------------------------------------------------------------

CASES = [(mode, is_named) for mode in ("native", "poll") for is_named in (True, False)]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


def run(mode: str, is_named: bool, engine, *, examples: int, steps: int, can_set_clock: bool = True) -> Counter:
    attributes = {"mode": mode, "is_named": is_named, "engine": staticmethod(engine), "steps": Counter()}
    made = type("Machine", (Machine,), {**attributes, "can_set_clock": can_set_clock})
    limits = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=SLOW, print_blob=True
    )
    began = time.monotonic()
    run_state_machine_as_test(made, settings=limits)
    made.steps["seconds"] = round(time.monotonic() - began)
    return made.steps


@pytest.mark.parametrize(("mode", "is_named"), CASES)
def test_what_is_stored_is_what_the_model_owes(nursery, mode, is_named):
    run(mode, is_named, nursery.born, examples=10, steps=30)


@pytest.mark.long
@pytest.mark.parametrize(("mode", "is_named"), CASES)
def test_thousands_of_steps(nursery, mode, is_named):
    print("\n", mode, is_named, dict(run(mode, is_named, nursery.born, examples=150, steps=50)))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["native", "poll"])
def test_steps_of_the_real_daemon(mode):
    told = run(mode, True, Daemon, examples=30, steps=40, can_set_clock=False)
    print("\n", mode, dict(told))
