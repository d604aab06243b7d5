"""What the two derivations share: lines read from disk, times, sessions and how they are summed up.

Nothing here imports sessiond: this is the second reading that the program is compared with.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
CALLS = ("tool_call", "edit", "test_run", "decision")

_RUNNERS = (
    r"pytest|py\.test|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|python3? -m (?:pytest|unittest)"
    r"|(?:go|cargo|dotnet|swift|deno|bun|mvn|gradle|\./gradlew|make|just|rake) test\b"
    r"|cargo nextest|make check|(?:npm|pnpm|yarn)(?: run)? test\b|mise (?:run|r) test\b"
)
# Only where a command may begin: a file called test_x.py or a search for "pytest" runs nothing.
_TEST_COMMAND = re.compile(rf"(?:^|[;&|\n(]\s*)(?:\w+=\S+ )*(?:uv run |npx |poetry run |time )?(?:{_RUNNERS})(?![\w-])")


def is_test_command(command: str) -> bool:
    return _TEST_COMMAND.search(command.strip()) is not None


def utc(value: Any) -> str | None:
    """ISO-8601, UTC, milliseconds; None for anything that is no time."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclass
class Source:
    """One file: its complete lines that are JSON objects, what was rejected, and how long its unfinished tail is."""

    path: str
    records: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    rejects: Counter[str] = field(default_factory=Counter)
    tail_bytes: int = 0


def read(root: Path, path: str) -> Source:
    source = Source(path)
    *lines, tail = (root / path).read_bytes().split(b"\n")
    source.tail_bytes = len(tail)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            source.rejects["not_json"] += 1
            continue
        if isinstance(value, dict):
            source.records.append((number, value))
        else:
            source.rejects["not_object"] += 1
    return source


@dataclass
class Event:
    kind: str
    ts: str | None = None
    sidechain: bool = False
    is_error: bool = False
    is_turn: bool = False
    call: str | None = None  # this event is the call with that id
    answers: str | None = None  # this event is the result of that call


@dataclass
class Session:
    uid: str
    first_time: str = "9999"  # of its first record that has one: the first half of the ownership rule
    sources: list[Source] = field(default_factory=list)
    sidecars: int = 0
    events: list[Event] = field(default_factory=list)
    usage: dict[Any, dict[str, int | None]] = field(default_factory=dict)
    retries: int = 0
    replays: int = 0
    parent_uid: str | None = None
    cwd: str | None = None
    title: dict[str, str] | None = None
    stated: dict[str, Any] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[str, str]:
        return (self.first_time, self.uid)

    def raise_usage(self, key: Any, numbers: dict[str, int | None]) -> None:
        row = self.usage.setdefault(key, dict.fromkeys(TOKENS))
        for name, value in numbers.items():
            if value is not None:
                row[name] = max(row[name] or 0, value)

    def report(self) -> dict[str, Any]:
        times = [event.ts for event in self.events if event.ts]
        calls = {event.call for event in self.events if event.call}
        rejects: Counter[str] = sum((source.rejects for source in self.sources), Counter())
        return {
            "events": dict(Counter(event.kind for event in self.events)),
            "event_total": len(self.events),
            "calls": sum(event.call is not None for event in self.events),
            "results_joined": sum(event.answers in calls for event in self.events if event.answers),
            "tool_result_errors": sum(e.is_error for e in self.events if e.kind == "tool_result"),
            "turns": sum(event.is_turn for event in self.events),
            "sidechain_events": sum(event.sidechain for event in self.events),
            "retries": self.retries,
            "replayed_records": self.replays,
            "parent_uid": self.parent_uid,
            "cwd": folder_mark(self.cwd),
            "title": self.title,
            "started_at": min(times, default=None),
            "ended_at": max(times, default=None),
            "sources": len(self.sources),
            "sidecars": self.sidecars,
            "source_bytes_unfinished": sum(source.tail_bytes for source in self.sources),
            "rejects": dict(rejects),
            **{name: total(row[name] for row in self.usage.values()) for name in TOKENS},
            **self.stated,
        }


def folder_mark(cwd: str | None) -> str | None:
    """A folder by its last part and a hash: the path is of the machine that a fixture was written on, and not ours."""
    return cwd and f"{cwd.rsplit('/', 1)[-1]} ({blake2b(cwd.encode(), digest_size=4).hexdigest()})"


def total(values: Any) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def totals(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rows = list(reports.values())
    kinds: Counter[str] = sum((Counter(row["events"]) for row in rows), Counter())
    rejects: Counter[str] = sum((Counter(row["rejects"]) for row in rows), Counter())
    added = (
        "event_total",
        "calls",
        "tool_result_errors",
        "turns",
        "sidechain_events",
        "retries",
        "sources",
        *TOKENS,
    )
    return {
        "sessions": len(rows),
        "sessions_with_events": sum(row["event_total"] > 0 for row in rows),
        "events": dict(kinds),
        "rejects": dict(rejects),
        **{name: total(row[name] for row in rows) for name in added},
    }
