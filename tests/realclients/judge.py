"""What should be in the store by what the mock served, and what is. Pure: it takes both and gives a list of checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from realclients.clients import Client
from realclients.mock.ledger import Served
from realclients.mock.wires.shape import Tokens
from realclients.visibility import Stored
from sessiond.model import Kind, Role, Session, SessionEvent

COUNTED = ("prompts", "answers", "thinking", "calls")  # the checks that count events one by one
CALLS = (Kind.TOOL_CALL, Kind.EDIT, Kind.TEST_RUN, Kind.DECISION)
LIMIT_SECONDS = 1.0  # from the client's write to the store
NEW_HOME_SECONDS = 2.0  # the same, of an agent's first session ever: the daemon looks for new homes once a second


@dataclass(frozen=True)
class Check:
    name: str
    expected: object
    found: object
    is_right: bool

    @classmethod
    def same(cls, name: str, expected: object, found: object) -> Check:
        return cls(name, expected, found, expected == found)


@dataclass(frozen=True)
class Found:
    """What the store holds of one scenario."""

    sessions: Sequence[Session]
    events: Mapping[str, Sequence[SessionEvent]]  # by session
    tokens: Tokens

    def all_events(self) -> Iterable[SessionEvent]:
        return (event for events in self.events.values() for event in events)


@dataclass(frozen=True)
class Asked:
    """What was asked in one scenario: the prompts' numbers, and which of them were killed."""

    numbers: tuple[int, ...]
    killed: frozenset[int] = frozenset()


def judge(client: Client, asked: Asked, served: Sequence[Served], found: Found, folder: str) -> list[Check]:
    answers = [each for each in served if each.status == 200 and each.is_finished and not each.is_aside]
    killed = [answer for answer in answers if answer.place is not None and answer.place.number in asked.killed]
    kept = answers if client.keeps_open_calls else [answer for answer in answers if answer not in killed]
    calls = [call for answer in kept for call in answer.calls]
    # A call that never came back, unless the client makes up a result for it when it goes on.
    dangling = sum(len(answer.calls) for answer in killed if answer in kept)
    kinds = Counter(event.kind for event in found.all_events())
    errors = sum(event.is_error for event in found.all_events() if event.kind is Kind.TOOL_RESULT)
    results = kinds[Kind.TOOL_RESULT]
    failing = sum(call.is_failing for call in calls)
    return [
        Check.same("cwd", {folder}, {session.cwd for session in found.sessions}),
        Check.same("prompts", _prompts(client, asked, answers), _said_by_a_person(found)),
        Check.same("turns", _prompts(client, asked, answers), sum(s.cost.turns or 0 for s in found.sessions)),
        Check.same("answers", sum(answer.texts for answer in answers), kinds[Kind.ASSISTANT_MSG]),
        Check.same("thinking", sum(answer.thoughts for answer in answers), kinds[Kind.THINKING]),
        Check.same("calls", len(calls), sum(kinds[kind] for kind in CALLS)),
        Check.same("edits", sum(call.is_edit for call in calls), kinds[Kind.EDIT]),
        Check.same("test runs", sum(call.is_test for call in calls), kinds[Kind.TEST_RUN]),
        _between("results", len(calls) - dangling, results, len(calls)),
        _between("failed results", failing, errors, failing + dangling),
        Check.same("results without their call", 0, _loose_results(found)),
        *_ends(client, answers, kinds),
        *_troubles(client, asked, served, kinds),
        *_sub_agents(client, served, found),
        *_spent(client, asked, served, found),
    ]


def _prompts(client: Client, asked: Asked, answers: Sequence[Served]) -> int:
    if client.keeps_first_prompt:
        return len(asked.numbers)
    answered = {each.place.number for each in answers if each.place is not None}
    first = next((at for at, number in enumerate(asked.numbers) if number in answered), len(asked.numbers))
    lost = sum(number in asked.killed for number in asked.numbers[:first])
    return len(asked.numbers) - lost


def _said_by_a_person(found: Found) -> int:
    return sum(
        event.kind is Kind.USER_MSG and event.role is Role.USER and not event.is_sidechain
        for event in found.all_events()
    )


def _between(name: str, least: int, found: int, most: int) -> Check:
    return Check(name, least if least == most else f"{least}-{most}", found, least <= found <= most)


def _loose_results(found: Found) -> int:
    """Results that lead to no call, or to one that has its result already."""
    loose = 0
    for events in found.events.values():
        calls = {event.seq for event in events if event.kind in CALLS}
        for event in events:
            if event.kind is Kind.TOOL_RESULT:
                loose += event.parent_seq not in calls
                calls.discard(event.parent_seq or 0)
    return loose


def _ends(client: Client, answers: Sequence[Served], kinds: Counter[Kind]) -> Iterable[Check]:
    if client.marks_end:
        yield Check.same("completions", sum(not answer.calls for answer in answers), kinds[Kind.COMPLETION])


def _troubles(client: Client, asked: Asked, served: Sequence[Served], kinds: Counter[Kind]) -> Iterable[Check]:
    """API errors: those that went away are retries, those that stayed end the turn with an error."""
    retried = sum(each.status >= 429 for each in served)
    refused = sum(each.status == 400 for each in served)
    troubles = kinds[Kind.RETRY] + kinds[Kind.ERROR]
    if retried and client.keeps_retries:
        yield Check("retries", f">= {retried}", troubles, troubles >= retried)
    if refused and client.keeps_refusals:
        yield Check("errors", ">= 1", kinds[Kind.ERROR], kinds[Kind.ERROR] >= 1)
    if not retried and not refused and not asked.killed:  # a client may close a turn that was killed as a failed one
        yield Check.same("errors", 0, troubles)


def _sub_agents(client: Client, served: Sequence[Served], found: Found) -> Iterable[Check]:
    subs = sum(each.place is not None and each.place.script == "sub" for each in served)
    sidechain = sum(event.is_sidechain for event in found.all_events())
    if not subs:
        yield Check.same("sub-agent events", 0, sidechain)
        return
    yield Check("sub-agent events", ">= 4", sidechain, sidechain >= 4)
    tops = [session.session_uid for session in found.sessions if not session.is_sidechain]
    parents = {session.parent_uid for session in found.sessions if session.is_sidechain}
    yield Check("sub-agent's parent", tops, sorted(map(str, parents)), len(tops) == 1 and parents <= set(tops))


def _spent(client: Client, asked: Asked, served: Sequence[Served], found: Found) -> Iterable[Check]:
    total = spent(client, asked, served)
    for name in ("input", "output", "cache_read", "cache_write"):
        yield Check.same(f"tokens {name}", getattr(total, name), getattr(found.tokens, name))


def spent(client: Client, asked: Asked, served: Sequence[Served]) -> Tokens:
    """The tokens that the client's files can tell of: those of answers that it heard to their end."""
    lost = frozenset[int]() if client.keeps_tokens_of_killed else asked.killed
    told = [each for each in served if each.is_finished and (client.keeps_asides or not each.is_aside)]
    return add(each.tokens for each in told if each.place is not None and each.place.number not in lost)


def add(tokens: Iterable[Tokens]) -> Tokens:
    every = list(tokens)
    return Tokens(**{field.name: sum(getattr(each, field.name) for each in every) for field in fields(Tokens)})


def judge_visibility(stored: Sequence[Stored], unseen: Sequence[str]) -> list[Check]:
    return [
        Check("writes seen", ">= 1", len(stored), bool(stored)),
        _within("visible within", LIMIT_SECONDS, [each for each in stored if not each.is_in_new_home]),
        _within("visible in a new home within", NEW_HOME_SECONDS, [each for each in stored if each.is_in_new_home]),
        Check.same("files not taken in", [], list(unseen)),
    ]


def _within(name: str, limit: float, stored: Sequence[Stored]) -> Check:
    slowest = max(stored, key=lambda each: each.seconds, default=None)
    if slowest is None:
        return Check(name, limit, None, is_right=True)
    return Check(name, limit, f"{slowest.seconds:.3f} ({slowest.write.path})", slowest.seconds <= limit)
