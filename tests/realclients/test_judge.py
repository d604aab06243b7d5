"""The judge finds what is wrong: a store that lost, doubled or misnamed something never passes. Part of `make test`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from realclients.clients import CLIENTS
from realclients.judge import LIMIT_SECONDS, Asked, Found, judge, judge_visibility
from realclients.mock.ledger import Served, ServedCall
from realclients.mock.scripts import Place
from realclients.mock.wires.shape import Tokens
from realclients.visibility import Stored, Write
from sessiond.model import Cost, Kind, Role, Session, SessionEvent

UID = "claude:s1"
SPENT = Tokens(input=1000, output=20, cache_read=512, cache_write=64)
SESSION = Session(UID, "claude", "s1", cwd="/w", cost=Cost(turns=1))


def _event(seq: int, kind: Kind, **fields) -> SessionEvent:
    return SessionEvent(UID, seq, kind, **fields)


EVENTS = (
    _event(1, Kind.USER_MSG, role=Role.USER),
    _event(2, Kind.THINKING),
    _event(3, Kind.EDIT),
    _event(4, Kind.TOOL_RESULT, parent_seq=3, is_error=True),
    _event(5, Kind.ASSISTANT_MSG),
    _event(6, Kind.COMPLETION),
)
SERVED = (
    Served(
        1,
        Place("tools", 1, "/w", 0, (1,)),
        thoughts=1,
        calls=[ServedCall("edit", "Edit", is_edit=True, is_test=False, is_failing=True)],
        tokens=replace(SPENT, output=5),
        is_finished=True,
    ),
    Served(2, Place("tools", 1, "/w", 1, (1,)), texts=1, tokens=Tokens(output=15), is_finished=True),
    Served(3, Place("tools", 1, "/w", 2, (1,)), texts=1, tokens=Tokens(output=99), is_finished=True, is_aside=True),
)


def _wrong(*, events=EVENTS, session=SESSION, tokens=SPENT, served=SERVED, killed=()) -> set[str]:
    found = Found([session], {UID: events}, tokens)
    checks = judge(CLIENTS["claude"], Asked((1,), frozenset(killed)), served, found, "/w")
    return {check.name for check in checks if not check.is_right}


def test_what_was_served_is_right():
    assert _wrong() == set()


@pytest.mark.parametrize(
    ("lost", "names"),
    [
        (1, {"prompts"}),
        (2, {"thinking"}),
        (3, {"calls", "edits", "results without their call"}),
        (4, {"results", "failed results"}),
        (5, {"answers"}),
        (6, {"completions"}),
    ],
)
def test_every_lost_event_is_noticed(lost, names):
    assert _wrong(events=[event for event in EVENTS if event.seq != lost]) == names


def test_doubled_events_are_noticed():
    assert _wrong(events=[*EVENTS, replace(EVENTS[3], seq=7)]) == {
        "results",
        "failed results",
        "results without their call",
    }


def test_misnamed_events_are_noticed():
    assert _wrong(events=[replace(e, kind=Kind.TOOL_CALL) if e.seq == 3 else e for e in EVENTS]) == {"edits"}
    assert _wrong(events=[replace(e, is_error=False) for e in EVENTS]) == {"failed results"}
    assert _wrong(events=[replace(e, is_sidechain=e.seq == 2) for e in EVENTS]) == {"sub-agent events"}
    assert _wrong(events=[*EVENTS, _event(7, Kind.ERROR)]) == {"errors"}


def test_wrong_facts_and_tokens_are_noticed():
    assert _wrong(session=replace(SESSION, cwd=None)) == {"cwd"}
    assert _wrong(session=replace(SESSION, cost=Cost(turns=2))) == {"turns"}
    assert _wrong(tokens=replace(SPENT, output=119)) == {"tokens output"}
    assert _wrong(tokens=replace(SPENT, input=2000, cache_read=0)) == {"tokens input", "tokens cache_read"}


def test_killed_call_may_stay_without_a_result():
    open_call = [event for event in EVENTS if event.kind is not Kind.TOOL_RESULT]
    served = [replace(SERVED[0], calls=[replace(SERVED[0].calls[0], is_failing=False)]), *SERVED[1:]]

    assert _wrong(events=open_call, served=served, killed={1}) == set()
    assert _wrong(events=open_call, served=served) == {"results"}


def test_late_write_and_file_never_taken_in_are_noticed():
    late = Stored(Write("/h/a.jsonl", 10, 0), LIMIT_SECONDS + 0.1, is_in_new_home=False)

    wrong = [check.name for check in judge_visibility([late], ["/h/b.jsonl"]) if not check.is_right]

    assert wrong == ["visible within", "files not taken in"]
    assert [check.name for check in judge_visibility([], []) if not check.is_right] == ["writes seen"]
