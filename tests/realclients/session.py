"""One scenario of one client: it is asked, watched, judged, its files deleted and restored, and asked once more."""

from __future__ import annotations

import json
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from lab import Lab
from realclients import isolation, judge
from realclients.clients import Client
from realclients.judge import Asked, Check, Found
from realclients.mock import scripts
from realclients.mock.server import Mock
from realclients.mock.wires.shape import Tokens
from realclients.scenarios import Ask, Scenario
from realclients.visibility import Stored, Visibility
from sessiond.model import Session
from sessiond.store import reader, totals

RUN_SECONDS = 60.0  # of one call of a client
FLUSH_SECONDS = 0.5  # a killed client may lose what it had not written: give the laziest flush timer its time


@dataclass
class Bench:
    """What a client's scenarios have in common."""

    client: Client
    executable: Path
    path: str  # with our Node.js in it
    lab: Lab
    mock: Mock
    visibility: Visibility
    numbers: Iterator[int]
    known: set[str] = field(default_factory=set)  # sessions of the scenarios before


@dataclass
class Outcome:
    scenario: str
    seconds: float = 0.0
    found: Found | None = None
    served: Tokens = field(default_factory=Tokens)
    checks: list[Check] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    is_restored: bool | None = None
    is_resumed: bool | None = None

    @property
    def counted(self) -> tuple[int, int]:
        """How many events were found and how many served, of the kinds that can be counted; at the end of it all."""
        last = {check.name.rpartition(": ")[2]: check for check in self.checks}
        counts = [last[name] for name in judge.COUNTED if name in last]
        return sum(_int(check.found) for check in counts), sum(_int(check.expected) for check in counts)

    @property
    def wrong(self) -> list[Check]:
        return [check for check in self.checks if not check.is_right]


def play(bench: Bench, scenario: Scenario) -> Outcome:
    """Play it to its end. What breaks in the middle of it is one more wrong check: the other scenarios go on."""
    began = time.monotonic()
    outcome = Outcome(scenario.name)
    run = _Run(bench, scenario.name)
    try:
        _play(run, scenario, outcome)
    except Exception as error:
        traceback.print_exc()
        outcome.checks.append(Check("played to its end", "", f"{type(error).__name__}: {error}", is_right=False))
    outcome.seconds = time.monotonic() - began
    bench.known |= {session.session_uid for session in run.sessions()}
    return outcome


def _play(run: _Run, scenario: Scenario, outcome: Outcome) -> None:
    bench = run.bench
    measured = len(bench.visibility.stored)
    for ask in scenario.asks:
        if bench.client.resumes_refused or not run.is_refused:
            outcome.checks += run.ask(ask)
    outcome.found = run.judge(outcome)
    restored = _restores(run, outcome.found)
    outcome.is_restored = all(check.is_right for check in restored)
    outcome.checks += restored
    if scenario.is_resumed and outcome.found.sessions:
        on_the_way, resumed = _delete_and_go_on(run, outcome.found)
        outcome.found = run.judge(outcome, "after restore: ")
        outcome.checks += [*on_the_way, *resumed]
        outcome.is_resumed = all(check.is_right for check in resumed)
    outcome.stored = bench.visibility.stored[measured:]
    outcome.checks += judge.judge_visibility(outcome.stored, bench.visibility.take_late())


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


class _Run:
    """A scenario under way: its folder, the numbers of its prompts, the calls of its client."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        self.folder = bench.lab.folder / "work" / name
        self.folder.mkdir(parents=True)
        self.numbers: list[int] = []
        self.killed: set[int] = set()

    def ask(self, ask: Ask) -> list[Check]:
        """One call of the client: a new session, or on with the one that sessiond names the resume command of."""
        bench, number = self.bench, next(self.bench.numbers)
        words = scripts.prompt("Please go on with your work.", ask.script, number, str(self.folder))
        main = self.main_session()
        arguments = bench.client.new(words) if main is None else bench.client.go_on(self._resume(main), words)
        before = tuple(self.numbers) if main is not None else ()
        self.numbers.append(number)
        if ask.kill is not None:
            self.killed.add(number)
        exit_code = self._call(arguments, ask)
        bench.visibility.settle()
        is_well = exit_code == 0 or ask.kill is not None or ask.script == "fatal"
        return [Check(f"{ask.script}: exit code", 0, exit_code, is_well), *self._remembers(number, before)]

    @property
    def is_refused(self) -> bool:
        served = self.bench.mock.ledger.of(set(self.numbers))
        return bool(served) and all(each.status != 200 for each in served)

    def _call(self, arguments: Sequence[str], ask: Ask) -> int | str:
        bench = self.bench
        bench.mock.ledger.stalled.clear()
        proxy = bench.mock.url if bench.client.uses_proxy else None
        env = isolation.environment(bench.lab.user_home, bench.path, proxy) | bench.client.env(bench.mock.url)
        return isolation.run(
            [str(bench.executable), *arguments],
            cwd=self.folder,
            env=env,
            log=bench.lab.folder / f"{self.folder.name}.log",
            seconds=RUN_SECONDS,
            kill=ask.kill,
            kill_when=self._is_in_the_middle,
        )

    def _is_in_the_middle(self) -> bool:
        if not self.bench.mock.ledger.stalled.is_set() and not (self.folder / scripts.STARTED).exists():
            return False
        time.sleep(FLUSH_SECONDS)
        return True

    def _remembers(self, number: int, before: tuple[int, ...]) -> list[Check]:
        """A session that went on shows the model what was said before."""
        if not before:
            return []
        served = self.bench.mock.ledger.of({number})
        history = {each for one in served if one.place is not None for each in one.place.history}
        told = set(before) - self.killed  # a prompt that was never answered may be dropped
        return [Check("goes on with", sorted(told), sorted(history - {number}), bool(served) and told <= history)]

    def _resume(self, session: Session) -> Sequence[str]:
        shown = self.bench.lab.cli("show", session.session_uid, "--json")
        argv: list[str] = json.loads(shown.stdout)["resume"]
        assert argv, f"sessiond knows no way to go on with {session.session_uid}"
        return argv[1:]

    def sessions(self) -> list[Session]:
        found = _sessions(self.bench.lab)
        return [session for uid, session in found.items() if uid not in self.bench.known]

    def main_session(self) -> Session | None:
        return next((session for session in self.sessions() if not session.is_sidechain), None)

    def judge(self, outcome: Outcome, when: str = "") -> Found:
        served = self.bench.mock.ledger.of(set(self.numbers))
        found = _find(self.bench.lab, self.sessions())
        asked = Asked(tuple(self.numbers), frozenset(self.killed))
        checks = judge.judge(self.bench.client, asked, served, found, str(self.folder))
        outcome.checks += [Check(when + c.name, c.expected, c.found, c.is_right) for c in checks]
        outcome.served = judge.spent(self.bench.client, asked, served)
        return found


def _sessions(lab: Lab) -> dict[str, Session]:
    return cast("dict[str, Session]", lab.sessions())


def _find(lab: Lab, sessions: Sequence[Session]) -> Found:
    uids = [session.session_uid for session in sessions]
    with lab.store() as db:
        events = {uid: list(reader.events(db, uid)) for uid in uids}
        cost = totals.total(db, uids)
    parts = (cost.input_tokens, cost.output_tokens, cost.cache_read_tokens, cost.cache_write_tokens)
    return Found(sessions, events, Tokens(*(part or 0 for part in parts)))


def _restores(run: _Run, found: Found) -> list[Check]:
    """`sessiond restore` writes what the client wrote, byte for byte."""
    lab, checks = run.bench.lab, []
    for session in found.sessions:
        to = lab.folder / "restored" / session.session_uid.replace(":", "-")
        files = _restore(lab, session.session_uid, to)
        home = _home(session, files, to)
        different = [str(path) for path in files if path.read_bytes() != (home / path.relative_to(to)).read_bytes()]
        checks.append(Check("restored files that differ", [], different, bool(files) and not different))
    return checks or [Check("sessions", ">= 1", 0, is_right=False)]


def _home(session: Session, files: Sequence[Path], to: Path) -> Path:
    """The agent's home: what the session's own file has above its path in the agent's layout."""
    source = Path(session.source_path or "")
    for path in files:
        below = path.relative_to(to)
        if source.parts[-len(below.parts) :] == below.parts:
            return Path(*source.parts[: -len(below.parts)])
    raise AssertionError(f"{source} is not among the restored files {files}")


def _restore(lab: Lab, uid: str, to: Path) -> list[Path]:
    done = lab.cli("restore", uid, "--to", str(to), "--json")
    assert done.returncode == 0, done.stderr
    return [Path(file["path"]) for file in json.loads(done.stdout)["files"]]


def _delete_and_go_on(run: _Run, found: Found) -> tuple[list[Check], list[Check]]:
    """The client's files go, `sessiond restore` writes them to where they were, and the client goes on with them.

    What is asked of sessiond on the way, and of the client in the end.
    """
    bench = run.bench
    originals = {session.session_uid: _originals(bench.lab, session) for session in found.sessions}
    files = [path for _, paths in originals.values() for path in paths]
    with bench.visibility.apart():
        for session in found.sessions:
            _delete(bench.client, originals[session.session_uid][1], Path(session.source_path or ""))
        bench.lab.ingest_through_daemon()  # a sweep: the daemon knows that they are gone
        gone = all(_sessions(bench.lab)[uid].source_gone_at is not None for uid in originals)
        tops = [session.session_uid for session in found.sessions if not session.is_sidechain]
        for uid in tops:
            _restore(bench.lab, uid, originals[uid][0])
        left_out = [str(path) for path in files if not path.exists()]
        for uid, (home, paths) in originals.items():
            if not any(path.exists() for path in paths):
                _restore(bench.lab, uid, home)
    checks = run.ask(Ask("plain"))
    same = {session.session_uid for session in run.sessions()} == set(originals)
    asked_of_sessiond = [
        Check.same("sources seen to be gone", True, gone),
        Check.same("sub-agents' files not restored with their session", [], left_out),
    ]
    return asked_of_sessiond, [Check.same("it is the same session", True, same), *checks]


def _originals(lab: Lab, session: Session) -> tuple[Path, list[Path]]:
    """The agent's home and the session's files in it: those that a restore writes."""
    to = lab.folder / "dry" / session.session_uid.replace(":", "-")
    files = _restore(lab, session.session_uid, to)
    home = _home(session, files, to)
    return home, [home / path.relative_to(to) for path in files]


def _delete(client: Client, files: Sequence[Path], source: Path) -> None:
    if client.session_folder:
        shutil.rmtree(source.parent)
    for path in files:
        path.unlink(missing_ok=True)
