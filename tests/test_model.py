from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from sessiond.adapters import adapters, register_flavors
from sessiond.model import Cost, Kind, Outcome, Role, Session, SessionEvent, State

register_flavors()
text = st.none() | st.text(st.characters(codec="utf-8"), max_size=20)
counts = st.none() | st.integers(0, 2**53)
sessions = st.builds(
    Session,
    session_uid=st.text(st.characters(codec="utf-8"), min_size=1, max_size=10).map("claude:".__add__),
    flavor=st.just("claude"),
    native_session_id=st.text(max_size=10),
    repo=text,
    title=text,
    outcome=st.sampled_from(Outcome),
    state=st.sampled_from(State),
    cost=st.builds(
        Cost, input_tokens=counts, output_tokens=counts, turns=counts, wall_clock_s=st.none() | st.floats(0, 1e9)
    ),
    pinned=st.booleans(),
    revision=st.integers(0, 2**40),
)
events = st.builds(
    SessionEvent,
    session_uid=st.just("codex:x"),
    seq=st.integers(1, 2**40),
    kind=st.sampled_from(Kind),
    role=st.none() | st.sampled_from(Role),
    summary=st.text(st.characters(codec="utf-8"), max_size=20),
    tokens=counts,
    is_error=st.booleans(),
)


@given(sessions | events)
def test_to_json_and_back(noun):
    text = noun.to_json()
    assert type(noun).from_json(text) == noun
    assert list(json.loads(text)) == sorted(json.loads(text))


@given(sessions)
def test_unknown_fields_are_left_out_on_the_way_back(session):
    value = {**session.to_dict(), "from_the_future": 1, "cost": {**session.to_dict()["cost"], "euros": 3}}
    assert Session.from_dict(value) == session


@pytest.mark.parametrize(
    "change",
    [
        {"flavor": "nosuch", "session_uid": "nosuch:x"},
        {"outcome": "splendid"},
        {"session_uid": "codex:x"},
        {"session_uid": "x"},
        {"state": "lost"},
    ],
)
def test_what_is_no_session_is_refused(change):
    good = Session("claude:x", "claude", "x").to_dict()
    with pytest.raises(ValueError):
        Session.from_dict({**good, **change})


@pytest.mark.parametrize("change", [{"kind": "dance"}, {"role": "ghost"}, {"session_uid": "nosuch:x"}])
def test_what_is_no_event_is_refused(change):
    good = SessionEvent("claude:x", 1, Kind.EDIT).to_dict()
    with pytest.raises(ValueError):
        SessionEvent.from_dict({**good, **change})


@pytest.mark.parametrize("text", ["[]", "1", '"x"', "{"])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ValueError):
        Session.from_json(text)


def test_flavors_are_those_of_the_adapters():
    assert {"claude", "codex"} <= set(adapters())
    assert all(adapter.flavor == flavor for flavor, adapter in adapters().items())
