"""P1: the daemon is killed with -9 at random moments while several files grow; afterwards every line is there once."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial

import pytest

from lab import AtWork, Lab, user_line

FILES = 5


class Writers(AtWork):
    """Threads that append lines in small, unaligned pieces, as fast as a busy agent would, until told to stop."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.paths = [lab.claude_file(f"k{number}") for number in range(FILES)]
        self.lines = [0] * FILES
        super().__init__(partial(self._write, number, seed) for number in range(FILES))

    def _write(self, number: int, seed: int) -> None:
        chance = random.Random(seed * FILES + number)
        with self.paths[number].open("ab", buffering=0) as file:
            while not self._stop.is_set():
                line = user_line(
                    self.lines[number],
                    f"line {self.lines[number]} é{'x' * chance.choice((0, 10, 3000))}",
                    session=f"k{number}",
                )
                cut = chance.randrange(len(line))
                file.write(line[:cut])
                if chance.random() < 0.2:
                    time.sleep(chance.random() * 0.01)
                file.write(line[cut:])
                self.lines[number] += 1
                time.sleep(chance.random() * 0.02)


def kill_again_and_again(lab: Lab, kills: int, seed: int) -> dict[str, float]:
    chance = random.Random(seed)
    began = time.monotonic()
    with Writers(lab, seed) as writers:
        for _ in range(kills):
            process = lab.start_daemon()
            # From before the lock is taken, over the first sweep, to well into live reading.
            time.sleep(chance.uniform(0.05, 0.6))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    lab.ingest()
    for number, path in enumerate(writers.paths):
        data = path.read_bytes()
        assert lab.archived(path) == data
        assert data.count(b"\n") == writers.lines[number]
        said = [event.summary.split(" é")[0] for event in lab.events(f"claude:k{number}")]
        assert said == [f"line {n}" for n in range(writers.lines[number])]
        assert [event.parent_seq for event in lab.events(f"claude:k{number}")][1:] == list(
            range(1, writers.lines[number])
        )
    return {"kills": kills, "lines": sum(writers.lines), "seconds": time.monotonic() - began}


@pytest.mark.fault(51)
def test_fifty_kills_lose_nothing_and_double_nothing(lab):
    kill_again_and_again(lab, 50, seed=1)


@pytest.mark.long
@pytest.mark.fault(51)
def test_a_thousand_kills(lab):
    print("\n", kill_again_and_again(lab, 1000, seed=2))
