"""Whatever happens to agents' files and to sessiond, in any order: it has stored what the model says it owes.

The machine does things to real files and to a real process (engines.py), has the model (model.py) look whenever sessiond
has, and compares all that is stored. While it watches natively it may look after every single step, so it is waited
for after each; polling, several things may happen between two looks, and so they may while it is down.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from .deeds import LINES, Deeds
from .disk import PLACES
from .engines import Daemon, Nursery
from .stored import difference, digested, order_read, owed, stored, unlike_indexed

is_running = precondition(lambda self: self.running is not None)


class Machine(Deeds):
    """`mode` native or poll. What `engine` starts is what is tested."""

    mode = "poll"
    engine = None  # set by `run`
    can_set_clock = True
    steps: ClassVar[Counter[str]] = Counter()

    @initialize(there=st.lists(LINES, min_size=1, max_size=3))
    def begin(self, there):
        self.set_up(Path(tempfile.mkdtemp(prefix="sd")))
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
    run(mode, is_named, nursery.born, examples=12, steps=30)


@pytest.mark.long
@pytest.mark.parametrize(("mode", "is_named"), CASES)
def test_thousands_of_steps(nursery, mode, is_named):
    print("\n", mode, is_named, dict(run(mode, is_named, nursery.born, examples=150, steps=50)))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["native", "poll"])
def test_steps_of_the_real_daemon(mode):
    told = run(mode, True, Daemon, examples=30, steps=40, can_set_clock=False)
    print("\n", mode, dict(told))
