"""The fold: a digest and the events that came after it make a digest, and that is all there is to know (P5).

Events are taken one by one and in order, and nothing is looked at but the digest and the event at hand. So a session
may be digested in any number of steps, and go on after its older events have left. `finish` adds what is known of the
session elsewhere; it never changes what a later fold makes of later events.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sessiond.model import Kind
from sessiond.passes._digest_calls import Calls, Settled, is_by_person, is_call
from sessiond.passes._digest_ending import Ending, tells_pull_request
from sessiond.passes._digest_errors import Errors, Fingerprint
from sessiond.passes._digest_state import (
    DECISIONS,
    INTERVENTIONS,
    LINE_CHARS,
    NAME_CHARS,
    VERSION,
    Digest,
    Note,
)
from sessiond.passes._digest_words import Keeper
from sessiond.passes.signals import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sessiond.model import Step
    from sessiond.passes.outcome import Verdict

__all__ = ["EMPTY", "VERSION", "Digest", "Fingerprint", "finish", "fold"]

EMPTY = Digest()
"""Nothing folded yet. `fold` never changes the digest it is given."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# Somebody who is away for longer than this is not at work on the session.
_ACTIVE_GAP_MS = 5 * 60 * 1000
_MODELS = 20


def fold(
    digest: Digest,
    steps: Iterable[Step],
    *,
    fingerprint: Callable[[str, str | None], Fingerprint | None],
    mask: Callable[[str], str] = lambda text: text,
) -> Digest:
    """The digest of all that `digest` covers and of these events, given in the order of their seq.

    However a session is cut into such steps, the last digest is the same. Events that `digest` covers already are
    passed over.
    """
    folding = _Folding(digest.copy(), fingerprint, mask)
    for step in steps:
        if step.seq > folding.digest.through_seq:
            folding.take(step)
    return folding.digest


def finish(
    digest: Digest,
    *,
    title: str | None,
    models: Sequence[str],
    outcome: Verdict,
    partial: str | None = None,
    mask: Callable[[str], str] = lambda text: text,
) -> Digest:
    """The digest with what is not folded: the session's title and models, how it ended, and what follows from that."""
    keep = Keeper(mask)
    done = digest.copy()
    done.title = None if title is None else keep.line(title)
    done.models = [keep.line(each, NAME_CHARS) for each in models[:_MODELS]]
    done.outcome, done.outcome_basis = outcome.outcome.value, outcome.basis
    done.outcome_reason = None if outcome.reason is None else keep.line(outcome.reason, 2 * LINE_CHARS)
    done.partial = None if partial is None else keep.line(partial)
    done.signals = signals(done)
    return done


class _Folding:
    def __init__(
        self,
        digest: Digest,
        fingerprint: Callable[[str, str | None], Fingerprint | None],
        mask: Callable[[str], str],
    ) -> None:
        self.digest = digest
        self._keep = Keeper(mask)
        self._errors = Errors(digest, self._keep, fingerprint)
        self._calls = Calls(digest, self._keep, self._errors)
        self._ending = Ending(digest, self._keep)

    def take(self, step: Step) -> None:
        digest, kind = self.digest, step.kind
        digest.through_seq = step.seq
        digest.kinds[kind.value] = digest.kinds.get(kind.value, 0) + 1
        digest.turns += step.is_turn
        self._tick(step)
        counts = self._ending.begins(step)
        settled = self._settled(step)
        if kind is Kind.DECISION:
            self._decided(step)
        elif kind is Kind.HUMAN_INTERVENTION:
            self._intervened(step)
        elif kind is Kind.RETRY:
            digest.retries += 1
            self._errors.retried(step.seq, digest.fold.last_ms)
        if tells_pull_request(step):
            digest.fold.pull_request_seq = step.seq
        if counts:
            self._ending.goes_on(step, settled, is_call=is_call(step))

    def _settled(self, step: Step) -> Settled | None:
        """What the event makes of a call, its own or another; and its error, where it is one."""
        if is_call(step):
            return self._calls.opened(step)
        if step.kind is Kind.TOOL_RESULT:
            return self._calls.closed(step)
        if step.kind is Kind.HUMAN_INTERVENTION:
            refuses = is_by_person(step) and self._calls.is_about_call(step)
            return self._calls.closed(step) if refuses else None
        call = self._calls.ended(step)
        if step.is_error or step.kind is Kind.ERROR:
            self._errors.happened(step, tool=call.tool, call_key=call.key)
        return None

    def _tick(self, step: Step) -> None:
        now_ms = _milliseconds(step.ts)
        if now_ms is None:
            return
        digest, memory = self.digest, self.digest.fold
        if memory.first_ms is None or now_ms < memory.first_ms:
            memory.first_ms, digest.started_at = now_ms, step.ts
        # A time that goes back, as between the files of a session, has been counted.
        if memory.last_ms is None or now_ms > memory.last_ms:
            if memory.last_ms is not None:
                memory.active_ms += min(now_ms - memory.last_ms, _ACTIVE_GAP_MS)
            memory.last_ms, digest.ended_at = now_ms, step.ts
        digest.duration_s = (memory.last_ms - memory.first_ms) / 1000
        digest.active_s = memory.active_ms / 1000

    def _decided(self, step: Step) -> None:
        if len(self.digest.decisions) < DECISIONS:
            self.digest.decisions.append(Note(seq=step.seq, summary=self._keep.line(step.summary)))
        else:
            self.digest.decisions_more += 1

    def _intervened(self, step: Step) -> None:
        seen = self.digest.human_interventions
        seen["count"] += 1
        if len(seen["items"]) < INTERVENTIONS:
            seen["items"].append(Note(seq=step.seq, summary=self._keep.line(step.summary)))


def _milliseconds(ts: str | None) -> int | None:
    if ts is None:
        return None
    try:
        time = datetime.fromisoformat(ts)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (time - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return None
