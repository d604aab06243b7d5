"""Sessions within sessions: what a later file says of a sub-agent holds for all of it, and no total counts it twice."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from grok_files import CHILD, PARENT, answer, call, folder, meta, prompt, result, summary, turn
from sessiond.model import Role
from sessiond.store import totals
from sessiond.store.connect import rows

if TYPE_CHECKING:
    from lab import Lab

UID, CHILD_UID = f"grok:{PARENT}", f"grok:{CHILD}"


def write(lab: Lab, what: str) -> None:
    parent, child = folder(lab), folder(lab, CHILD)
    if what == "parent":
        (parent / "updates.jsonl").write_bytes(prompt("count", 1) + answer("7", 3) + turn(4, spent=100))
    elif what == "child":
        lines = prompt("count them", 2, CHILD) + answer("7", 3, CHILD) + turn(4, CHILD, spent=40)
        (child / "updates.jsonl").write_bytes(lines)
    elif what == "summary":
        (child / "summary.json").write_text(summary(CHILD, session_kind="subagent"))
    else:
        (parent / "subagents" / CHILD).mkdir(parents=True, exist_ok=True)
        (parent / "subagents" / CHILD / "meta.json").write_text(meta())


def what_is_seen(lab: Lab) -> tuple:
    child = lab.sessions()[CHILD_UID]
    events = [(e.kind.value, e.role, e.is_sidechain) for e in lab.events(CHILD_UID)]
    with lab.store() as db:
        total = totals.total(db)
        together = totals.total(db, [UID, CHILD_UID])
    tokens = (child.cost.input_tokens, total.input_tokens, together.output_tokens)
    return child.parent_uid, child.is_sidechain, child.cost.turns, total.turns, events, tokens


@pytest.mark.parametrize("order", list(permutations(["parent", "child", "summary", "meta"])))
def test_a_sub_agent_is_one_whatever_file_comes_first(order, lab):
    for what in order:
        write(lab, what)
        lab.ingest()

    events = [
        ("user_msg", Role.AGENT, True),
        ("assistant_msg", Role.ASSISTANT, True),
        ("completion", Role.ASSISTANT, True),
    ]
    assert what_is_seen(lab) == (UID, True, 0, 1, events, (40, 100, 1))


def test_words_that_come_after_it_was_known_are_no_persons_either(lab):
    for what in ("child", "meta"):
        write(lab, what)
        lab.ingest()
    with (folder(lab, CHILD) / "updates.jsonl").open("ab") as file:
        file.write(prompt("once more", 9, CHILD, index=1))
    lab.ingest()

    assert lab.sessions()[CHILD_UID].cost.turns == 0
    last = lab.events(CHILD_UID)[-1]
    assert (last.summary, last.role, last.is_sidechain) == ("once more", Role.AGENT, True)


def test_a_change_of_what_it_is_can_be_seen_by_those_who_follow(lab):
    write(lab, "child")
    lab.ingest()
    before = lab.sessions()[CHILD_UID].revision
    write(lab, "meta")
    lab.ingest()

    assert lab.sessions()[CHILD_UID].revision > before


def test_a_child_counts_where_its_parent_states_nothing(lab):
    """The parent's turn was killed, or its file is gone: then the tokens are in no other number."""
    for what in ("child", "meta"):
        write(lab, what)
    (folder(lab) / "updates.jsonl").write_bytes(prompt("count", 1) + turn(4, reason="cancelled", elapsed_ms=5))
    lab.ingest()

    with lab.store() as db:
        assert totals.total(db).input_tokens == 40
        assert rows(db, "SELECT is_in_parent FROM usage WHERE output_tokens IS NOT NULL") == [(0,)]


def test_other_programs_can_leave_out_what_stands_twice(lab):
    for what in ("parent", "child", "meta"):
        write(lab, what)
    lab.ingest()

    with lab.store() as db:
        found = rows(db, "SELECT session_uid, input_tokens, is_in_parent FROM usage ORDER BY input_tokens")
    assert found == [(CHILD_UID, 40, 1), (UID, 100, 0)]


@pytest.mark.parametrize("fork", ["00000000-0000-4000-8000-000000000009", "ffffffff-0000-4000-8000-000000000009"])
@pytest.mark.parametrize("parent_first", [True, False])
def test_a_fork_never_owns_its_parents_lines(fork, parent_first, lab):
    """Copied lines keep their times, so the ids would decide: and a user may choose any."""
    own = prompt("a", 1) + call(2) + result(3) + turn(4, spent=100)
    copied = b"".join(
        line(*given, fork, writer=PARENT, **more)
        for line, given, more in (
            (prompt, ("a", 1), {}),
            (call, (2, "call_0"), {}),
            (result, (3, "call_0"), {}),
            (turn, (4,), {"spent": 100}),
        )
    )
    copied += prompt("b", 20_000, fork, index=1) + answer("c", 20_001, fork) + turn(20_002, fork, spent=7)
    files = [(folder(lab) / "updates.jsonl", own), (folder(lab, fork) / "updates.jsonl", copied)]
    for path, data in files if parent_first else reversed(files):
        path.write_bytes(data)
        lab.ingest()

    sessions = lab.sessions()
    assert [e.kind.value for e in lab.events(UID)] == ["user_msg", "tool_call", "tool_result", "completion"]
    assert [e.kind.value for e in lab.events(f"grok:{fork}")] == ["user_msg", "assistant_msg", "completion"]
    assert sessions[f"grok:{fork}"].parent_uid == UID
    assert (sessions[UID].cost.input_tokens, sessions[f"grok:{fork}"].cost.input_tokens) == (100, 7)
    assert (sessions[UID].cost.turns, sessions[f"grok:{fork}"].cost.turns) == (1, 1)
