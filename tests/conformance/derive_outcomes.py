"""The outcome of every fixture session, by its format page and design.md section 2, once it has long been quiet.

Run it: `python tests/conformance/derive_outcomes.py` (`--check` writes nothing and exits 1 on a difference).
The rules below are one reading, the tables READ and EVIDENCE another, made by looking at every session's end; they
must agree, or nothing is written. NOTES says where a page leaves room.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import derive
import derive_mycode
import derive_skill
from derive import FIXTURES, HERE
from tally import Event, Session, utc

OWN_SUBAGENTS = {"codex", "grok"}  # all events of such a session are side-chain, and they are its main chain
COMMIT = re.compile(r"(?:^|[;&|\n(]\s*)(?:git (?:-C \S+ )?commit\b|gh pr create\b)")
HIVE_STATUS = {"completed": "success", "failed": "fail", "cancelled": "abandoned", "paused": "unknown"}
HIVE_BUS = {"execution_completed": "success", "execution_failed": "fail"}


@dataclass(frozen=True)
class Verdict:
    outcome: str
    basis: str | None
    reason: str


# By eye: how a session ends, for all that do not end on an answer (native ids, cut where that is enough to tell).
READ = {
    "fail": ("c1d0a6cf", "00000000a004", "0c5c7fd0", "f2a74de4", "tdd-20260418-b"),
    "abandoned": (
        *("sidechain-inline", "permission-prompt-aborted", "dag_fork", "ses_stage0_small", "queued_system_messages"),
        *("d737f9cd", "schema-drift", "019cc1e9"),  # codex; the other drift, schema_drift, is claude's
        *("00000000a003", "00000000a008", "01a1ed5c-e26e"),
        *("6513270e", "a6a3a450", "5e9c0ffe@hive/state-sequence/01", "5e9c0ffe@hive/state-sequence/03"),
        *("63616e63656c", "70656e64", "70726f76", "mycode:21d"),
    ),
    "unknown": (
        *("2c5941bd", "4e27c414", "93a9705e", "dag_resume", "schema_drift", "741790a4"),
        *("fa1ac8bf", "parent-session", "child-session", "sibling-a", "sibling-b"),
        *("269e0d37", "5e9c0ffe@hive/state-sequence/02", "review-20260504", "zero-time", "636c6561", "656d7074"),
    ),
}
EVIDENCE = ("33210c2e", "a6e4c2a0", "ef958aa1", "019e1625", "00000000a001", "6e6f726d", "mycode:21a")

ANY = ["success", "fail", "abandoned", "unknown"]
PLACEHOLDERS = "a coverage sample whose ids and texts are placeholders: it decides nothing"
STATED_UNKNOWN = "the agent's own word, and it keeps the terminal rules out; but an unknown may have no basis"
DEAD_PROCESS = (
    "abandoned where the pass finds its pid dead; unknown where a process has that pid or the host is another"
)
# `also`: outcomes that are as good, with any basis; `also_basis`: as good a basis for the outcome itself.
NOTES: dict[str, dict[str, Any]] = {
    "claude:ses_stage0_small": {"also": ANY, "why": PLACEHOLDERS},
    "codex:019fc8be": {"also": ANY, "why": PLACEHOLDERS},
    "claude:93a9705e": {"also": ["success"], "why": "equal first times: it ends on an answer if it owns its records"},
    "claude:sidechain-inline": {
        "also": ["unknown"],
        "why": "a fragment: the main chain is one open Task call, and no prompt; both rules hold, the open call is named first",
    },
    "claude:741790a4": {"why": "only the sub-agent's file is there: nothing on the main chain, so never prompted"},
    "claude:71c9afe9": {
        "also": ["fail"],
        "why": "answered; then the person's own `!pytest` failed, which the page maps to intervention and lifecycle, no test_run",
    },
    "claude:326189cf": {
        "also_basis": ["evidence"],
        "why": "a Stop hook ran pytest, 167 passed: a lifecycle, no test_run",
    },
    "claude:ef958aa1": {
        "also_basis": ["terminal"],
        "why": "its sub-agents committed, the main chain itself only merged",
    },
    "claude:33210c2e": {
        "also_basis": ["terminal"],
        "why": "the answer is an unfinished line, no record: it ends on `mise run test`, passing, if that counts as a test",
    },
    "claude:a6e4c2a0": {
        "why": "the answer is an unfinished line, no record: last are a passing test, then a clean lint"
    },
    "claude:11110000": {"why": "the text says end_turn, its Workflow call was answered; no word after that result"},
    "codex:84b6da18": {
        "also": ["fail"],
        "why": "cargo test failed two prompts before the end, with no later pass; but flat era: last item an answer -> success",
    },
    "codex:spawn-test": {
        "also": ["abandoned"],
        "why": "task_complete without error; two calls have no output but collab_*_end",
    },
    "codex:rollout-2026-08-03T11": {
        "also": ["unknown"],
        "why": "unknown format: one bare call without result, or no event",
    },
    "hive:session_20260905_101501": {"also_basis": [None], "why": STATED_UNKNOWN},
    "hive:session_20260910_081500_5e9c0ffe@hive/state-sequence/02": {"also_basis": [None], "why": STATED_UNKNOWN},
    "skill:review": {"also_basis": [None], "why": STATED_UNKNOWN},
    "skill:zero-time": {"also_basis": [None], "why": STATED_UNKNOWN},
    "hive:session_20260906": {"also": ["unknown"], "why": DEAD_PROCESS},
    "hive:session_20260910_081500_5e9c0ffe@hive/state-sequence/01": {"also": ["unknown"], "why": DEAD_PROCESS},
    "hive:session_20260910_081500_5e9c0ffe@hive/state-sequence/03": {"also": ["unknown"], "why": DEAD_PROCESS},
    "hive:session_20260907": {
        "also_basis": ["terminal"],
        "why": "a queen has no status; execution_completed is its word, which wins over the failing test before it",
    },
}


def every_session() -> Iterator[tuple[str, Session]]:
    """(home, session) of every home of the expected_*.json."""
    readers: list[tuple[Any, dict[str, dict[str, str]]]] = [
        (derive.derive_claude, derive.claude_homes()),
        (derive.derive_codex, derive.codex_homes()),
        (derive.derive_grok, derive.grok_homes()),
        (derive.derive_hive, derive.hive_homes()),
        *((getattr(derive, f"derive_{name}"), derive.real_home(name)) for name in ("gemini", "pi", "qwen")),
    ]
    for reader, homes in readers:
        for home, files in homes.items():
            for session in reader.sessions(FIXTURES, home, list(files)).values():
                yield home, session
    for reader in (derive_mycode, derive_skill):
        for home, files in reader.homes().items():
            for session in reader.sessions(FIXTURES, list(files)).values():
                yield home, session


def verdict(session: Session) -> Verdict:
    flavor = session.uid.partition(":")[0]
    if flavor == "hive":
        return said_by_hive(session)
    if flavor == "skill":
        last = session.sources[0].records[-1][1]["final_status"]
        return Verdict(session.stated["outcome"], "stated", f"last line says {last}")
    chain = [event for event in session.events if flavor in OWN_SUBAGENTS or not event.sidechain]
    if not chain:
        return Verdict("unknown", None, "nothing on the main chain" if session.events else "no events of its own")
    return terminal(chain, session)


def said_by_hive(session: Session) -> Verdict:
    """A graph run states its status; a queen's bus says how the execution ended."""
    for source in session.sources:
        if source.path.endswith("state.json"):
            status = json.loads((FIXTURES / source.path).read_bytes())["status"]
            if status == "active":
                return Verdict("abandoned", "terminal", "still active, its process is gone")
            return Verdict(HIVE_STATUS[status], "stated", f"state says {status}")
    ends = [r["type"] for source in session.sources for _, r in source.records if r.get("type") in HIVE_BUS]
    return Verdict(HIVE_BUS[ends[-1]], "stated", f"bus says {ends[-1]}")


class Ending:
    """What a chain of events has come to, one event after the other.

    `last` is the last thing that settles a turn (or begins one); `talk` is text that no call has followed: words before
    a call are no answer. `open` holds the calls that nobody answered and after which the agent did not go on.
    """

    def __init__(self) -> None:
        self.prompted = self.worked = self.talk = self.tested_since_edit = False
        self.last = "nothing"
        self.last_test: str | None = None
        self.open: dict[str, str] = {}
        self.tests: set[str] = set()

    def turn(self, last: str) -> None:
        self.last, self.talk, self.open = last, False, {}

    def add(self, event: Event) -> None:
        if event.kind == "user_msg" or (event.kind == "human_intervention" and event.is_turn):
            self.prompted = True
            self.turn("prompt")
        elif event.call:
            self.begin_call(event)
        elif event.kind == "tool_result":
            self.end_call(event)
        elif event.kind == "assistant_msg":
            self.worked = self.talk = True
            self.open = {}
        elif event.kind in ("error", "completion", "human_intervention"):
            self.turn(event.kind)

    def begin_call(self, event: Event) -> None:
        assert event.call
        self.worked, self.talk = True, False
        self.open[event.call] = event.kind
        if event.kind == "test_run":
            self.tests.add(event.call)
        if event.kind == "edit":
            self.tested_since_edit = False
            self.last = "prompt" if self.last == "pass" else self.last

    def end_call(self, event: Event) -> None:
        self.open.pop(event.answers or "", None)
        if event.answers in self.tests:
            self.last = self.last_test = "fail" if event.is_error else "pass"
            self.tested_since_edit = not event.is_error
            self.talk = False


def terminal(chain: list[Event], session: Session) -> Verdict:
    ending = Ending()
    escapes = set(shell_escapes(session))
    for event in chain:
        if event.kind != "human_intervention" or event.ts not in escapes:
            ending.add(event)
    if not ending.prompted and not ending.worked:
        return Verdict("unknown", None, "never prompted")
    if ending.open:
        return Verdict("abandoned", "terminal", f"open call ({', '.join(sorted(set(ending.open.values())))})")
    if not ending.talk and ending.last == "human_intervention":
        return Verdict("abandoned", "terminal", "interrupted")
    if not ending.talk and ending.last == "error":
        return Verdict("fail", "terminal", "ends on an error")
    if not ending.talk and ending.last in ("nothing", "prompt"):
        return Verdict("abandoned", "terminal", "prompt without an answer")
    # The flat era of codex has a line of its own on the page: an assistant message as last item is enough.
    if ending.last_test == "fail" and not is_flat(session):
        return Verdict("fail", "terminal", "the last test failed")
    how = "ends on an answer" if ending.talk or ending.last == "completion" else "ends on a passing test"
    if ending.tested_since_edit:
        return Verdict("success", "evidence", f"{how}; a test passed after the last edit")
    if committed(session):
        return Verdict("success", "evidence", f"{how}; a commit was made")
    return Verdict("success", "terminal", how)


def is_flat(session: Session) -> bool:
    return session.uid.startswith("codex:") and "payload" not in session.sources[0].records[0][1]


def shell_escapes(session: Session) -> Iterator[str | None]:
    """When a person ran a command of their own (`!cmd`): an intervention, but no interrupt."""
    for source in session.sources:
        for _, record in source.records:
            message = record.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            if isinstance(content, str) and content.startswith("<bash-input>"):
                yield utc(record.get("timestamp"))


def committed(session: Session) -> bool:
    """A commit or a PR by a call that did not fail, a sub-agent's too: it is part of the session."""
    calls = {event.call for event in session.events if event.call}
    failed = {event.answers for event in session.events if event.is_error}
    given = (found for source in session.sources for _, record in source.records for found in commands(record))
    return any(call in calls - failed and COMMIT.search(command) for call, command in given)


def commands(value: Any) -> Iterator[tuple[str, str]]:
    """(call id, command) of every call in a record, whatever the agent calls them."""
    if isinstance(value, list):
        for each in value:
            yield from commands(each)
    if not isinstance(value, dict):
        return
    name = value.get("call_id") or value.get("toolCallId") or value.get("id")
    for key in ("input", "arguments", "rawInput", "args"):
        given = value.get(key)
        if isinstance(given, str) and given.startswith("{"):
            given = json.loads(given)
        command = (given.get("command") or given.get("cmd")) if isinstance(given, dict) else None
        if isinstance(name, str) and command:
            yield name, command if isinstance(command, str) else str(command[-1])
    for each in value.values():
        yield from commands(each)


def by_eye(key: str) -> tuple[str, str | None]:
    outcomes = [outcome for outcome, names in READ.items() if any(name in key for name in names)]
    assert len(outcomes) < 2, f"{key} is in two lists"
    outcome = outcomes[0] if outcomes else "success"
    is_running = "a6a3a450" in key or "-active" in key
    if key.startswith(("hive:", "skill:")):
        return outcome, "terminal" if is_running else "stated"
    if outcome == "unknown":
        return outcome, None
    return outcome, "evidence" if any(name in key for name in EVIDENCE) else "terminal"


def notes(key: str) -> dict[str, Any]:
    found = [note for name, note in NOTES.items() if key.startswith(name)]
    assert len(found) < 2, f"{key} has two notes"
    if not found:
        return {}
    note = {"confidence": "arguable"} | found[0]
    if "also" in note:
        note["also"] = [outcome for outcome in note["also"] if outcome != by_eye(key)[0]]
    return note


def by_key() -> dict[str, Verdict]:
    """uid -> verdict; where homes hold different states of one session, "uid@home" -> verdict."""
    found: dict[str, dict[str, Verdict]] = {}
    for home, session in every_session():
        found.setdefault(session.uid, {})[home] = verdict(session)
    keyed: dict[str, Verdict] = {}
    for uid, by_home in found.items():
        if len(set(by_home.values())) == 1:
            keyed[uid] = next(iter(by_home.values()))
        else:
            keyed |= {f"{uid}@{home}": each for home, each in by_home.items()}
    return keyed


def main() -> int:
    keyed = by_key()
    differ = {key: (each, by_eye(key)) for key, each in keyed.items() if (each.outcome, each.basis) != by_eye(key)}
    assert not differ, f"the rules and the eye differ: {differ}"
    for name in (*NOTES, *EVIDENCE, *(each for names in READ.values() for each in names)):
        assert any(name in key for key in keyed), f"no session is called {name}"
    result = {
        key: {"outcome": each.outcome, "basis": each.basis, "reason": each.reason, "confidence": "sure"} | notes(key)
        for key, each in keyed.items()
    }
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    path = HERE / "expected_outcomes.json"
    if path.exists() and path.read_text() == text:
        return 0
    if "--check" in sys.argv:
        return 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
