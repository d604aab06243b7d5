"""What a session's digest shows at a glance: each signal with the events that stand for it. Pure, deterministic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.model import Kind, Outcome
from sessiond.passes._digest_state import EVIDENCE, Digest, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator

RETRY_STORM = "retry_storm"
REPEATED_ERROR = "repeated_error"
ABANDONED = "abandoned"
CLEAN_PASS = "clean_pass"  # noqa: S105 - not that kind of pass
RECOVERY = "recovery"

# Once is chance, twice may be the same slip; the third time the error is a property of the work.
REPEATED_TIMES = 3
# Of one kind in one session: the first few tell the story, and the error snippets have the rest.
EACH = 5
_DETAIL_CHARS = 500
_CALLS = (Kind.TOOL_CALL, Kind.EDIT, Kind.TEST_RUN)


def signals(digest: Digest) -> list[Signal]:
    """The signals of one session, always in the same order. Those of its ending want its outcome set."""
    found = [*_storms(digest), *_repeated(digest), *_recoveries(digest)]
    found += _abandoned(digest)
    found += _clean_pass(digest)
    return found


def _signal(name: str, seqs: list[int], detail: str, fingerprint: str | None = None) -> Signal:
    evidence = sorted(set(seqs))[:EVIDENCE]
    words = detail if len(detail) <= _DETAIL_CHARS else detail[: _DETAIL_CHARS - 1] + "…"
    return Signal(signal=name, seqs=evidence, detail=words, fingerprint=fingerprint)


def _storms(digest: Digest) -> Iterator[Signal]:
    for storm in digest.fold.storms[:EACH]:
        if storm["what"] == "retry":
            yield _signal(RETRY_STORM, storm["seqs"], f"{storm['count']} retries in quick succession")
        else:
            tool = storm["tool"] or "the same call"
            detail = f"{tool} failed {storm['count']} times in a row with nothing changed in between"
            yield _signal(RETRY_STORM, storm["seqs"], detail)


def _repeated(digest: Digest) -> list[Signal]:
    pairs = zip(digest.error_snippets, digest.fold.errors, strict=True)
    often = [(error, known) for error, known in pairs if error["count"] >= REPEATED_TIMES]
    often.sort(key=lambda pair: (-pair[0]["count"], pair[0]["first_seq"]))
    return [
        _signal(REPEATED_ERROR, known["seqs"], f"{error['count']} times: {error['sample']}", error["fingerprint"])
        for error, known in often[:EACH]
    ]


def _recoveries(digest: Digest) -> list[Signal]:
    found = []
    for error in digest.error_snippets:
        recovery = error["recovered_by"]
        if recovery is None:
            continue
        done = [each["summary"] for each in recovery["actions"]]
        between = f"after: {'; '.join(done)}" if done else "with nothing done in between"
        detail = f"{error['sample']}: gone {between}"
        seqs = [error["last_seq"], recovery["seq"], *(each["seq"] for each in recovery["actions"][-3:])]
        found.append(_signal(RECOVERY, seqs, detail, error["fingerprint"]))
    return found[:EACH]


def _abandoned(digest: Digest) -> list[Signal]:
    if digest.outcome != Outcome.ABANDONED:
        return []
    seqs = [digest.fold.state_seq] if digest.fold.state_seq else []
    return [_signal(ABANDONED, seqs, digest.outcome_reason or "left unfinished")]


def _clean_pass(digest: Digest) -> list[Signal]:
    """Work that went through at the first try: calls were made and came back, none failed, nobody stepped in."""
    calls = sum(digest.kinds.get(kind, 0) for kind in _CALLS)
    went_wrong = (
        digest.error_snippets
        or digest.retries
        or digest.tests["failed"]
        or digest.kinds.get(Kind.ERROR)
        or digest.human_interventions["count"]
        or digest.open_calls
        or digest.open_calls_more
        or any(tool["errors"] for tool in digest.tools.values())
    )
    if digest.outcome != Outcome.SUCCESS or not calls or went_wrong:
        return []
    seqs = [seq for seq in (digest.tests["last_seq"], digest.fold.state_seq) if seq]
    passed = digest.tests["passed"]
    tests = f", {passed} test run{'' if passed == 1 else 's'} passed" if passed else ""
    return [_signal(CLEAN_PASS, seqs, f"{calls} call{'' if calls == 1 else 's'}, none failed{tests}")]
