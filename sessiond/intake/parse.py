"""Lines of one chunk -> records ready to be stored. The only place where an adapter's code runs.

A line that cannot be used is rejected, never fatal; whatever an adapter does with it, the lines around it count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sessiond.errors import BadRecord
from sessiond.intake.repo import find_repo
from sessiond.model import Carry, Chunk, Event, Fact, Kind, Line, Patch, Record, Reject, Unknown, Usage
from sessiond.store.keys import hash_bytes
from sessiond.store.resolve import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiond.adapters.base import Adapter

SUMMARY_CHARS = 200
SUMMARY_SOURCE_CHARS = 2000  # what a summary is made of: masked first, so that a cut never hides half a secret
ERROR_HEAD, ERROR_TAIL = 1200, 800  # of an error's text: what it says first, and what a traceback says last
SAID_CHARS = 1000
REPORT_CHARS = 600
# One of these is in the last lines of what a test runner prints.
REPORT_WORDS = (" passed", " failed", "FAIL", "test result:", "\nOK")


@dataclass(frozen=True, slots=True)
class Wording:
    """What becomes of text on its way into the store: masked and cut for people, cut for the search index."""

    mask: Callable[[str], str]
    domain: Callable[[str], str | None] = lambda _: None
    index_chars: int = 2000

    def summary(self, text: str) -> str:
        line = " ".join(self.mask(text[:SUMMARY_SOURCE_CHARS]).split())
        return line if len(line) <= SUMMARY_CHARS else line[: SUMMARY_CHARS - 1] + "…"

    def indexed(self, text: str) -> str:
        if len(text) <= self.index_chars:
            return text
        head = self.index_chars * 3 // 4
        return text[:head] + "\n" + text[head - self.index_chars :]

    def detail(self, event: Event, summary: str) -> str | None:
        """What a digest will want to know of the text besides the summary; for most events nothing."""
        text, kind = event.text, event.kind
        if event.is_error or kind is Kind.ERROR:
            return self._ends(text)
        if kind is Kind.ASSISTANT_MSG or (kind is Kind.USER_MSG and event.is_turn):
            return self._head(text) if len(text) > len(summary) else None
        if kind is Kind.TOOL_RESULT and any(word in text[-REPORT_CHARS:] for word in REPORT_WORDS):
            return self.mask(text[-2 * REPORT_CHARS :])[-REPORT_CHARS:]
        return None

    def _head(self, text: str) -> str:
        return self.mask(text[: 2 * SAID_CHARS])[:SAID_CHARS]

    def _ends(self, text: str) -> str | None:
        if len(text) <= ERROR_HEAD + ERROR_TAIL:
            return self.mask(text) or None
        head, tail = text[: 2 * ERROR_HEAD], text[-2 * ERROR_TAIL :]
        return self.mask(head)[:ERROR_HEAD] + "\n...\n" + self.mask(tail)[-ERROR_TAIL:]

    def record(self, record: Record) -> list[Record]:
        if isinstance(record, Event):
            summary, text = self.summary(record.summary), self.indexed(record.text)
            files = tuple(map(self.mask, record.files)) if record.files else ()
            detail, tool = self.detail(record, summary), self._name(record.tool)
            if (summary, text, files, detail, tool) != (record.summary, record.text, record.files, None, record.tool):
                record = replace(record, summary=summary, text=text, files=files, detail=detail, tool=tool)
        elif isinstance(record, Patch):
            record = replace(
                record,
                summary=None if record.summary is None else self.summary(record.summary),
                tool=self._name(record.tool),
                text=None if record.text is None else self.indexed(record.text),
                detail=None if record.text is None else self._ends(record.text),
            )
        elif isinstance(record, Fact):
            return self.facts(record)
        elif isinstance(record, Usage):
            if (model := self._name(record.model)) != record.model:
                record = replace(record, model=model)
        elif isinstance(record, Unknown):
            record = replace(record, name=self.mask(record.name))
        return [record]

    def _name(self, name: str | None) -> str | None:
        """Of a tool or a model: the agent's word as well, and kept for ever."""
        return self.mask(name) if name else name

    def facts(self, fact: Fact) -> list[Record]:
        """A working directory also tells the repository, and that its domain."""
        value = self.mask(fact.value)
        if fact.name == "title":
            value = self.summary(fact.value)
        found: list[Record] = [replace(fact, value=value)]
        if fact.name == "cwd":
            repo = find_repo(fact.value)
            found.append(replace(fact, name="repo", value=self.mask(repo)))
            domain = self.domain(repo)
            if domain is not None:
                found.append(replace(fact, name="domain", value=domain))
        return found


def parse(
    adapter: Adapter, chunk: Chunk, carry: Carry, wording: Wording
) -> tuple[list[tuple[Place, list[Record]]], list[Reject], Carry]:
    """The records of each line, the rejects of the chunk, and the carry after it."""
    parsed: list[tuple[Place, list[Record]]] = []
    rejects = list(chunk.rejects)
    for line in chunk.lines:
        trial = dict(carry)  # a line that fails leaves no trace in the carry
        try:
            records = [each for record in adapter.parse(line, trial) for each in wording.record(record)]
        except BadRecord as error:
            rejects.append(Reject(line.offset, line.length, error.reason))
            continue
        except Exception:  # noqa: BLE001 - an adapter may fail in any way; one line is all it may cost
            rejects.append(Reject(line.offset, line.length, "adapter_error"))
            continue
        carry = trial
        if records:
            parsed.append((_place(line, records), records))
    return parsed, rejects, carry


def _place(line: Line, records: list[Record]) -> Place:
    is_keyless = any(isinstance(record, Event) and record.key is None for record in records)
    return Place(line.offset, line.length, hash_bytes(line.data) if is_keyless else None)
