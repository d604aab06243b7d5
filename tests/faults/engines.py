"""What the state machine drives: sessiond in a process of its own, so that a kill takes all it knew.

`Child` is intake and passes, forked from a process that has loaded everything but done nothing (a start takes some
50 ms); its wall clock can be set. `Daemon` is the real one, asked over its socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lab import Lab, until
from sessiond import log, paths as places
from sessiond.adapters import adapters, register_flavors
from sessiond.config import load as configuration
from sessiond.intake.pipeline import Pipeline
from sessiond.passes.clocks import Clocks
from sessiond.trouble import Troubles
from sessiond.upkeep import Upkeep

ROOT = Path(__file__).resolve().parent.parent.parent
QUIET = '[watch]\nmode = "{mode}"\nscan_interval = "{every}"\npoll_interval = "{every}"\n[limits]\nchunk = "{chunk}"\n'
AGED = QUIET + '[retention]\nmax_age = "1ms"\nsoft_cap = "900MiB"\nkeep_free = "1MiB"\n'
# Over its budget whatever there is, and everything is too young: only older contents may go.
CROWDED = QUIET + (
    '[retention]\nsoft_cap = "4KiB"\nhard_cap = "900MiB"\nkeep_free = "1MiB"\nmin_age = "9000d"\nlow_water = "50%"\n'
)


class Dead(ConnectionError):
    """It does not answer any more."""


# --- in the child -------------------------------------------------------------------------------


class Served:
    """The pipeline with its passes, one verb at a time."""

    def __init__(self, folder: str, mode: str, chunk: str, clock: float) -> None:
        log.setup(level="error", format="json")
        self._lab = Lab(Path(folder))
        self._ahead = timedelta(hours=clock)
        self._text = {"mode": mode, "chunk": chunk, "every": "1h"}
        self._config = self._load(AGED)
        troubles = Troubles(self._now, lambda _, __: None)
        places.make_private(self._lab.paths.state_dir)
        self._pipeline = Pipeline(self._config, self._lab.paths, troubles, self._lab.env, mode=mode, now=self._now)
        self._clocks = Clocks(self._now, time.monotonic, 600.0)
        self._upkeep = Upkeep(
            lambda: self._config,
            self._lab.paths,
            self._pipeline,
            troubles,
            is_clock_doubtful=self._is_clock_doubtful,
            now=self._now,
        )
        self._pipeline.start()

    def _now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def _is_clock_doubtful(self) -> bool:
        self._clocks.look()
        return self._clocks.is_doubtful

    def _load(self, text: str):
        self._lab.write_config(text.format(**self._text))
        return configuration.load(None, self._lab.env, set(adapters()), system_dir=self._lab.folder / "etc").config

    def do(self, verb: str, **params) -> object:
        return getattr(self, verb)(**params)

    def settle(self) -> None:
        # A storm of those who ask is answered once a second; this one asks for every step.
        self._pipeline.loop._pace._was_hurried = False
        ticket = self._pipeline.ask()["ticket"]
        until(lambda: self._pipeline.asked({"ticket": ticket})["done"])

    def analyze(self) -> object:
        return self._upkeep.do("analyze", {})

    def evict(self, what: str) -> object:
        self._config = self._load(AGED if what == "sessions" else CROWDED)
        return self._upkeep.do("evict", {})

    def set_clock(self, hours: float) -> None:
        self._ahead = timedelta(hours=hours)

    def stop(self) -> None:
        self._pipeline.stop()


def serve(link: socket.socket, begin: dict) -> None:
    """Answer verbs until told to stop, or killed."""
    with link, link.makefile("rw") as lines:

        def say(**told) -> None:
            lines.write(json.dumps(told) + "\n")
            lines.flush()

        served = Served(**begin)
        say(pid=os.getpid())
        for line in lines:
            try:
                say(report=served.do(**json.loads(line)))
            except Exception as error:
                say(error=repr(error))


def fork_on_demand(control: socket.socket) -> None:
    """Fork a child for each connection that is handed over. Single-threaded itself, and it never opens a store."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    register_flavors()
    while True:
        message, (*fds,), _, _ = socket.recv_fds(control, 65536, 1)
        if not fds:
            return
        (fd,) = fds
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                serve(socket.socket(fileno=fd), json.loads(message))
            finally:
                os._exit(0)
        os.close(fd)


# --- in the test --------------------------------------------------------------------------------


class Nursery:
    """The process that children are forked from."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        command = [sys.executable, "-m", "faults.engines", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env)
        theirs.close()

    def born(self, **begin) -> Child:
        ours, theirs = socket.socketpair()
        socket.send_fds(self._control, [json.dumps(begin).encode()], [theirs.fileno()])
        theirs.close()
        return Child(ours)

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()


class Child:
    def __init__(self, link: socket.socket) -> None:
        link.settimeout(60)
        self._link = link
        self._lines = link.makefile("rw")
        self._pid = self._hear()["pid"]

    def _hear(self) -> dict:
        try:
            line = self._lines.readline()
        except ConnectionError:
            line = ""
        if not line:
            raise Dead
        told = json.loads(line)
        assert "error" not in told, told["error"]
        return told

    def begin(self, verb: str, **params) -> None:
        """Have it do something, without waiting for it."""
        self._lines.write(json.dumps({"verb": verb, **params}) + "\n")
        self._lines.flush()

    def do(self, verb: str, **params) -> object:
        self.begin(verb, **params)
        return self._hear()["report"]

    def kill(self) -> None:
        """It is dead when this returns: the end of its connection comes when its last thread has gone."""
        os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(Dead):
            while True:
                self._hear()
        self._lines.close()
        self._link.close()

    def stop(self) -> None:
        self.do("stop")
        self.kill()


class Daemon:
    """The real daemon. Its clock is the machine's, and it evicts by age alone."""

    def __init__(self, folder: str, mode: str, chunk: str, clock: float) -> None:
        assert clock == 0
        self._lab = Lab(Path(folder))
        # It sweeps all the time: whoever asks is then answered at once.
        config = AGED.format(mode=mode, chunk=chunk, every="50ms")
        self._process = self._lab.start_daemon(config=config + '[analyze]\ninterval = "1h"\n[evict]\ninterval = "1h"\n')
        until(lambda: self._process.poll() is not None or self._lab.status(), what="the daemon's answer")

    def begin(self, verb: str, **params) -> None:
        self._ask(verb)

    def do(self, verb: str, **params) -> None:
        ask, ticket = self._ask(verb)
        until(lambda: self._lab.call(ask, ticket=ticket)["done"], seconds=60)

    def _ask(self, verb: str) -> tuple[str, int]:
        if verb == "settle":
            return "ingested", self._lab.call("ingest")["ticket"]
        return "worked", self._lab.call("work", verb=verb, params={})["ticket"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(20) == 0


if __name__ == "__main__":
    fork_on_demand(socket.socket(fileno=int(sys.argv[1])))
