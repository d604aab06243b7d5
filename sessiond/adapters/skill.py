"""hyperguild's skill log: each line of <session>.jsonl is one finished skill, with its attempts and how it ended.

There is no usual place: the folder that holds the files is named in the configuration. Two programs may write to
one file in different generations of the format, so nothing is taken for granted of a line because of another one.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters.base import Claim, NeedMore, count_of, decode, time_of
from sessiond.adapters.wording import clip, first_line, one_line, searchable
from sessiond.model import Event, Fact, Key, Kind, Role, Unknown, Usage, parse_utc, session_key, utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path, PurePosixPath

    from sessiond.model import Carry, Line, Record, Session

_LOG = ".jsonl"
_NAME_LIMIT = 200
_VALUE_LIMIT = 4_096
_LONGEST_MS = 10 * 365 * 86_400_000  # of one invocation; beyond that the number is nonsense
_SELF = "self"  # the orchestrator itself, whichever model that was

# Both vocabularies; the project's own aggregator takes them for synonyms.
_ENDINGS = {
    **dict.fromkeys(("pass", "ok"), (Kind.COMPLETION, "success")),
    **dict.fromkeys(("fail", "error"), (Kind.ERROR, "fail")),
    **dict.fromkeys(("skip", "skipped"), (Kind.LIFECYCLE, "unknown")),
}


class Skill:
    flavor = "skill"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:  # noqa: ARG002 - the protocol's
        return []

    def folders(self, home: Path) -> Sequence[Path]:
        return [home]

    def wants(self, path: PurePosixPath) -> bool:
        name = path.name
        return len(path.parts) == 1 and name.endswith(_LOG) and not name.startswith(".")

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        """The folder is flat and so are many others: the first line that can be read says whether it is ours."""
        if not self.wants(path):
            return None
        entries = [entry for entry in map(_entry, head) if entry is not None]
        if not entries:
            raise NeedMore
        if not all(isinstance(entries[0].get(name), str) for name in ("session_id", "skill", "final_status")):
            return None
        cwd = next((root for entry in entries if (root := _value(entry.get("project_root")))), None)
        session_id = path.name.removesuffix(_LOG)
        return Claim(session_id, path.name, cwd=cwd, cwd_may_come=False, seed={"id": session_id})

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        entry = decode(line)
        number = carry["lines"] = carry.get("lines", 0) + 1
        if not isinstance(entry.get("skill"), str) or not isinstance(entry.get("final_status"), str):
            return [Unknown("(no skill)")]
        ts = time_of(entry.get("timestamp"))
        # A line without a time may come twice and be two invocations.
        name = blake2b(line.data, digest_size=12).hexdigest() + (f":{number}" if ts is None else "")
        invocation = _Invocation(entry, name, ts)
        return [*invocation.events(), *invocation.spent(), *_facts(invocation, carry)]

    def resume(self, session: Session) -> Sequence[str] | None:  # noqa: ARG002 - nobody can go on with a log
        return None


def _entry(data: bytes) -> dict[str, Any] | None:
    try:
        entry = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None


def _value(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= _VALUE_LIMIT else None


def _words(value: Any) -> str:
    return value if isinstance(value, str) else ""


class _Invocation:
    """One line. All its events are children of the first, which stands for the invocation."""

    def __init__(self, entry: dict[str, Any], name: str, ts: str | None) -> None:
        self.entry = entry
        self.ts = ts
        self.skill = entry["skill"][:_NAME_LIMIT]
        phase = one_line(_words(entry.get("phase")), 80)
        self.label = f"{one_line(self.skill, 80)}/{phase}" if phase else one_line(self.skill, 80)
        self.status = entry["final_status"]
        self.key = session_key(name)
        self._name = name
        attempts = entry.get("attempts")
        self._attempts = [each for each in attempts if isinstance(each, dict)] if isinstance(attempts, list) else []

    def events(self) -> list[Record]:
        found: list[Record] = [self._event(Kind.TOOL_CALL, self.label or "skill", self._said(), key=self.key)]
        for number, attempt in enumerate(self._attempts, 1):
            found += self._attempt(attempt, number)
        if (path := _value(self.entry.get("file_path"))) is not None:
            found.append(self._event(Kind.EDIT, one_line(path), files=(path,)))
        ending = _ENDINGS.get(self.status)
        if ending is None:
            return [*found, Unknown(f"final_status/{self.status}"[:_NAME_LIMIT])]
        message = _words(self.entry.get("message"))
        kind = ending[0]
        summary = f"{self.label}: {first_line(message) or self.status}"
        return [*found, self._event(kind, summary, clip(message), is_error=kind is Kind.ERROR)]

    def _attempt(self, attempt: dict[str, Any], place: int) -> list[Record]:
        number = count_of(attempt.get("attempt")) or place
        found: list[Record] = []
        if number > 1:
            by = [one_line(_words(attempt.get(name)), 80) for name in ("model", "tier")]
            what = ", ".join(each for each in (f"attempt {number}", *by) if each)
            found.append(self._event(Kind.RETRY, f"{what}: {self.label}", clip(_words(attempt.get("output_summary")))))
        if output := _words(attempt.get("runner_output")):
            # In the phase that writes a failing test a failing run is what was wanted: `verified` knows.
            is_verified = attempt.get("verified") is True
            summary = f"{first_line(output) or one_line(output)} ({'verified' if is_verified else 'not verified'})"
            found.append(self._event(Kind.TEST_RUN, summary, clip(output), is_error=not is_verified))
        return found

    def _said(self) -> str:
        told = [
            searchable([attempt.get(name) for name in ("output_summary", "verdict", "feedback")])
            for attempt in self._attempts[:50]
        ]
        return clip("\n".join(each for each in (searchable(self.entry.get("input")), *told) if each))

    def _event(
        self,
        kind: Kind,
        summary: str,
        text: str = "",
        *,
        key: Key | None = None,
        is_error: bool = False,
        files: tuple[str, ...] = (),
    ) -> Event:
        return Event(
            kind=kind,
            key=key,
            parent_key=None if key is not None else self.key,
            ts=self.ts,
            role=Role.SYSTEM if kind is Kind.LIFECYCLE else Role.ASSISTANT,
            tool=self.skill if kind in (Kind.TOOL_CALL, Kind.TEST_RUN, Kind.EDIT) else None,
            summary=summary,
            text=text,
            is_error=is_error,
            files=files,
        )

    @property
    def duration_ms(self) -> int | None:
        duration = count_of(self.entry.get("duration_ms"))
        return duration if duration is not None and duration <= _LONGEST_MS else None

    @property
    def began_at(self) -> str | None:
        """The time of a line is that of its end."""
        if self.ts is None:
            return None
        return utc(parse_utc(self.ts) - timedelta(milliseconds=self.duration_ms or 0))

    def spent(self) -> list[Record]:
        if not self.duration_ms:
            return []
        return [Usage(session_key(f"usage:{self._name}"), ts=self.ts, duration_ms=self.duration_ms)]


def _facts(invocation: _Invocation, carry: Carry) -> list[Record]:
    entry = invocation.entry
    found: list[Record] = []
    if "begun" not in carry:
        carry["begun"] = True
        found.append(Fact("turns_unknown", "1"))
        if (native_id := _value(carry.get("id"))) is not None:
            found += [Fact("task_ref", native_id), Fact("title", native_id, 9, first=True)]
    if (root := _value(entry.get("project_root"))) is not None:
        found.append(Fact("cwd", root))
    if (model := _value(entry.get("model_used"))) is not None:
        found.append(Fact("model", model, 5 if model == _SELF else 0))
    began_at = invocation.began_at
    if began_at is not None and began_at < carry.get("began_at", "~"):
        carry["began_at"] = began_at
        found.append(Fact("started_at", began_at))
    outcome = _ENDINGS.get(invocation.status, (None, "unknown"))[1]
    status = one_line(invocation.status, 80) or "no status"
    reason = f"the last skill, {invocation.label}, ended with {status}"
    return [
        *found,
        Fact("outcome", outcome),
        Fact("outcome_basis", "stated"),
        Fact("outcome_reason", reason),
    ]


ADAPTER = Skill()
