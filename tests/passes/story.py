"""Sessions told in a few words: each method adds one event, and gives its seq."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from sessiond.model import Kind, Role, Step, utc
from sessiond.passes.digest import EMPTY, Digest, finish, fold
from sessiond.passes.outcome import Verdict, verdict

BEGIN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


class Print(NamedTuple):
    id: str
    line: str


def first_line_print(text: str, tool: str | None) -> Print | None:
    """An error is known by its first line without numbers: enough to tell errors apart here."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not line:
        return None
    return Print(blake2b(re.sub(r"\d+", "0", line).encode(), digest_size=8).hexdigest(), line)


class Story:
    def __init__(self, *, is_sidechain: bool = False) -> None:
        self.steps: list[Step] = []
        self.is_sidechain = is_sidechain
        self.now = BEGIN

    def add(self, kind: Kind, summary: str = "", *, after_s: float = 1, **fields) -> int:
        self.now += timedelta(seconds=after_s)
        seq = len(self.steps) + 1
        given = {"ts": utc(self.now), "is_sidechain": self.is_sidechain, **fields}
        self.steps.append(Step(seq, kind, summary=summary, **given))
        return seq

    def prompt(self, text: str = "please", **fields) -> int:
        is_turn = not (self.is_sidechain or fields.get("is_sidechain"))
        fields = {"is_turn": is_turn, "role": Role.USER if is_turn else Role.AGENT, **fields}
        return self.add(Kind.USER_MSG, text, **fields)

    def answer(self, text: str = "done", **fields) -> int:
        return self.add(Kind.ASSISTANT_MSG, text, role=Role.ASSISTANT, **fields)

    def completion(self, **fields) -> int:
        return self.add(Kind.COMPLETION, "turn ended", role=Role.ASSISTANT, **fields)

    def call(self, summary: str = "ls", *, tool: str | None = "Bash", kind: Kind = Kind.TOOL_CALL, **fields) -> int:
        return self.add(kind, summary, tool=tool, role=Role.ASSISTANT, **fields)

    def result(self, call: int | None, text: str = "fine", **fields) -> int:
        detail = fields.pop("detail", text if fields.get("is_error") else None)
        line = text.splitlines()[0] if text else ""
        return self.add(Kind.TOOL_RESULT, line, parent_seq=call, role=Role.TOOL, detail=detail, **fields)

    def ran(self, command: str = "ls", output: str = "fine", *, fails: bool = False, **fields) -> int:
        call = self.call(command, **fields)
        self.result(call, output, is_error=fails, is_sidechain=self.steps[-1].is_sidechain)
        return call

    def tested(self, output: str = "3 passed in 0.1s", *, fails: bool = False, **fields) -> int:
        command = fields.pop("command", "pytest -q")
        call = self.call(command, kind=Kind.TEST_RUN, **fields)
        self.result(call, output, is_error=fails, detail=output, is_sidechain=self.steps[-1].is_sidechain)
        return call

    def edited(self, path: str = "/w/app.py", *, fails: bool = False, **fields) -> int:
        call = self.call(path, tool="Edit", kind=Kind.EDIT, files=(path,), **fields)
        self.result(call, "not found" if fails else "updated", is_error=fails)
        return call

    def error(self, text: str = "API error 500: overloaded", **fields) -> int:
        return self.add(Kind.ERROR, text, detail=text, role=Role.SYSTEM, is_error=True, **fields)

    def intervention(self, text: str = "[Request interrupted by user]", **fields) -> int:
        return self.add(Kind.HUMAN_INTERVENTION, text, **{"role": Role.USER, **fields})

    def lifecycle(self, text: str, **fields) -> int:
        return self.add(Kind.LIFECYCLE, text, role=Role.SYSTEM, **fields)

    def without_times(self) -> Story:
        self.steps = [replace(step, ts=None) for step in self.steps]
        return self

    # --- what comes of it ---

    def digest(self, **options) -> Digest:
        return fold(EMPTY, self.steps, fingerprint=first_line_print, **options)

    def verdict(self) -> Verdict:
        return verdict(self.digest(), stated=None, is_quiet=True, is_sub_agent=self.is_sidechain)

    def finished(self) -> Digest:
        return finish(self.digest(), title="a title", models=["model-a"], outcome=self.verdict())
