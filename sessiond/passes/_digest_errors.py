"""Errors in the fold: which ones, how often, what was done next, what made them go away, and storms of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sessiond.passes._digest_state import (
    ACTIONS,
    ERRORS,
    EVIDENCE,
    NAME_CHARS,
    SAMPLE_CHARS,
    Action,
    ErrorMemory,
    Recovery,
    Snippet,
    Storm,
)
from sessiond.passes._digest_words import moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiond.model import Step
    from sessiond.passes._digest_state import Digest
    from sessiond.passes._digest_words import Keeper

# A person who sees the same thing fail a second time tries once more, and looks for the cause after the third:
# four times without a change in between is going in circles.
STORM_FAILURES = 4
# Clients wait longer before each new request; five within ten minutes means that the service is really down.
STORM_RETRIES = 5
STORM_WINDOW_MS = 10 * 60 * 1000
STORMS = 5


class Fingerprint(Protocol):
    """What makes an error the same error: `id`, and one line of it as a sample."""

    @property
    def id(self) -> str: ...
    @property
    def line(self) -> str: ...


class Errors:
    def __init__(
        self, digest: Digest, keep: Keeper, fingerprint: Callable[[str, str | None], Fingerprint | None]
    ) -> None:
        self._digest = digest
        self._memory = digest.fold
        self._keep = keep
        self._fingerprint = fingerprint
        self._places = {each["fingerprint"]: at for at, each in enumerate(digest.error_snippets)}

    def happened(
        self, step: Step, *, tool: str | None, call_key: str | None = None, is_test: bool = False
    ) -> str | None:
        """Take in one error. What came after an earlier one like it did not help: that is forgotten."""
        text = self._keep.text(step.detail or step.summary)
        found = self._fingerprint(text, tool)
        if found is None:
            return None
        name = found.id[:NAME_CHARS]
        at = self._places.get(name)
        if at is None:
            if len(self._digest.error_snippets) >= ERRORS:
                self._digest.errors_more += 1
                return None
            at = self._add(name, self._keep.line(found.line, SAMPLE_CHARS), tool, step)
        snippet = self._digest.error_snippets[at]
        snippet["count"] += 1
        snippet["last_seq"], snippet["last_at"] = step.seq, moment(step.ts)
        snippet["followed_by"] = snippet["recovered_by"] = None
        known = self._memory.errors[at]
        known["seqs"] = [*known["seqs"], step.seq][:EVIDENCE]
        if name not in self._memory.unfollowed:
            self._memory.unfollowed.append(name)
        self.belongs_to(name, call_key, is_test=is_test)
        return name

    def _add(self, name: str, sample: str, tool: str | None, step: Step) -> int:
        at = self._places[name] = len(self._digest.error_snippets)
        self._digest.error_snippets.append(
            Snippet(
                fingerprint=name,
                sample=sample,
                count=0,
                tool=tool,
                first_seq=step.seq,
                last_seq=step.seq,
                first_at=moment(step.ts),
                last_at=moment(step.ts),
                followed_by=None,
                recovered_by=None,
            )
        )
        self._memory.errors.append(ErrorMemory(seqs=[], key=None, is_test=False))
        return at

    def belongs_to(self, name: str, call_key: str | None, *, is_test: bool) -> None:
        """The call whose success will show that this error is gone; None: no call can show it."""
        known = self._memory.errors[self._places[name]]
        known["key"], known["is_test"] = call_key, is_test
        if name not in self._memory.unrecovered:
            self._memory.unrecovered.append(name)

    def last_seq(self, name: str) -> int:
        return self._digest.error_snippets[self._places[name]]["last_seq"]

    # --- what came after --------------------------------------------------------------------------

    def succeeded(self, action: Action, call_key: str, *, is_work: bool, is_passed_test: bool) -> None:
        """A call went well. One that began before an error says nothing about it."""
        memory, snippets = self._memory, self._digest.error_snippets
        for name in memory.unfollowed.copy():
            snippet = snippets[self._places[name]]
            if snippet["last_seq"] < action["seq"]:
                snippet["followed_by"] = Action(**action)
                memory.unfollowed.remove(name)
        for name in memory.unrecovered.copy():
            at = self._places[name]
            known, since = memory.errors[at], snippets[at]["last_seq"]
            is_same = known["key"] == call_key or (known["is_test"] and is_passed_test)
            if is_same and since < action["seq"]:
                between = [Action(**each) for each in memory.recent if since < each["seq"]]
                snippets[at]["recovered_by"] = Recovery(seq=action["seq"], actions=between[-ACTIONS:])
                memory.unrecovered.remove(name)
        if is_work:
            memory.recent = [*memory.recent, action][-ACTIONS:]
        if is_work or call_key == memory.run_key:
            self._new_run(None)

    # --- storms -----------------------------------------------------------------------------------

    def failed_again(self, tool: str | None, call_key: str, seq: int) -> None:
        """A call failed; the same one in a row, with no work done in between, makes a storm."""
        memory = self._memory
        if memory.run_key != call_key:
            self._new_run(call_key)
        memory.run_count += 1
        memory.run_seqs = [*memory.run_seqs, seq][:EVIDENCE]
        if memory.run_count == STORM_FAILURES:
            memory.run_storm = self._storm("call", tool, memory.run_count, memory.run_seqs)
        elif memory.run_storm is not None:
            storm = memory.storms[memory.run_storm]
            storm["count"], storm["seqs"] = memory.run_count, memory.run_seqs.copy()

    def _new_run(self, call_key: str | None) -> None:
        memory = self._memory
        memory.run_key, memory.run_seqs, memory.run_count, memory.run_storm = call_key, [], 0, None

    def retried(self, seq: int, now_ms: int | None) -> None:
        memory = self._memory
        memory.retries_at = [*memory.retries_at, [seq, now_ms]][-STORM_RETRIES:]
        first_ms = memory.retries_at[0][1]
        is_storm = (
            len(memory.retries_at) == STORM_RETRIES
            and now_ms is not None
            and first_ms is not None
            and now_ms - first_ms <= STORM_WINDOW_MS
        )
        if not is_storm:
            memory.retry_storm = None
        elif memory.retry_storm is not None:
            memory.storms[memory.retry_storm]["count"] += 1
        else:
            seqs = [each for each, _ in memory.retries_at if each is not None]
            memory.retry_storm = self._storm("retry", None, STORM_RETRIES, seqs)

    def _storm(self, what: str, tool: str | None, count: int, seqs: list[int]) -> int | None:
        storms = self._memory.storms
        if len(storms) >= STORMS:
            return None
        storms.append(Storm(what=what, tool=tool, count=count, seqs=seqs[:EVIDENCE]))
        return len(storms) - 1
