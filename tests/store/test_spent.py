"""What was spent, in groups small enough to price: every token once, in its own quarter of an hour."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from conformance_homes import EXPECTED, lay_out
from grok_files import CHILD, PARENT, answer, folder, meta, prompt, turn
from sessiond.store.connect import rows
from sessiond.store.reader import Wanted
from sessiond.store.spent import QUARTER_SECONDS, Tokens, models, spent

IN_VIEW = """
SELECT sum(ifnull(input_tokens, 0)), sum(ifnull(output_tokens, 0)), sum(ifnull(cache_read_tokens, 0)),
       sum(ifnull(cache_write_tokens, 0)) FROM usage WHERE NOT is_in_parent
"""


def said(number: int, ts: str | None, session: str = "s1", model: str | None = "m-1", cwd: str = "/w/kite", **spent_):
    """A response as Claude Code writes it."""
    usage = {"input_tokens": 0, "output_tokens": 0, **spent_}
    text = [{"type": "text", "text": "ok"}]
    message = {"id": f"{session}-m{number}", "role": "assistant", "model": model, "content": text, "usage": usage}
    record = {
        "type": "assistant", "uuid": f"{session}-{number}", "parentUuid": None, "sessionId": session, "cwd": cwd,
        "isSidechain": False, "version": "2.1.0", "gitBranch": "main", "timestamp": ts, "message": message,
    }  # fmt: skip
    return json.dumps(record).encode() + b"\n"


def take_in(lab, *lines: bytes, session: str = "s1") -> None:
    lab.claude_file(session).write_bytes(b"".join(lines))
    lab.ingest()


def asked(lab, steps=(), **wanted):
    with lab.store() as db:
        return list(spent(db, Wanted(**wanted), steps))


def quarter(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) // QUARTER_SECONDS


def test_responses_of_one_quarter_of_an_hour_are_one_group(lab):
    take_in(
        lab,
        said(1, "2026-01-02T03:00:00.000Z", input_tokens=1, output_tokens=10),
        said(2, "2026-01-02T03:14:59.999Z", cache_read_input_tokens=100, cache_creation_input_tokens=1000),
        said(3, "2026-01-02T03:15:00.000Z", output_tokens=5),
    )

    assert [(each.quarter, each.tokens) for each in asked(lab)] == [
        (quarter("2026-01-02T03:00Z"), Tokens(1, 10, 100, 1000)),
        (quarter("2026-01-02T03:15Z"), Tokens(0, 5, 0, 0)),
    ]


def test_a_response_without_a_time_counts_where_its_session_was_active_last(lab):
    take_in(lab, said(1, None, output_tokens=5), said(2, "2026-01-02T23:50:00.000Z"))

    assert [(each.quarter, each.tokens.output) for each in asked(lab)] == [(quarter("2026-01-02T23:45Z"), 5)]
    assert len(asked(lab, since="2026-01-02T23:50:00.000Z")) == 1
    assert asked(lab, until="2026-01-02T23:50:00.000Z") == []


def test_responses_that_spent_nothing_make_no_group(lab):
    take_in(lab, said(1, "2026-01-02T03:00:00.000Z", model="<synthetic>"))

    assert asked(lab) == []


def test_long_prompts_are_apart_from_short_ones(lab):
    take_in(
        lab,
        said(1, "2026-01-02T03:00:00.000Z", input_tokens=100, output_tokens=9999),
        said(2, "2026-01-02T03:00:01.000Z", input_tokens=1, cache_read_input_tokens=50, cache_creation_input_tokens=50),
        said(3, "2026-01-02T03:00:02.000Z", input_tokens=501),
    )

    found = asked(lab, steps=[100, 500])

    assert [(each.step, each.tokens.input) for each in found] == [(0, 100), (1, 1), (2, 501)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [1, 2, 4]),
        ({"since": "2026-01-02T03:00:00.000Z"}, [2, 4]),
        ({"until": "2026-01-02T03:00:00.000Z"}, [1]),
        ({"models": ["m-1"]}, [1, 4]),
        ({"models": ["m"]}, []),
        ({"repos": ["kite"]}, [1, 2]),
        ({"repos": ["/w/sail", "kite"]}, [1, 2, 4]),
        ({"repos": ["ite"]}, []),
        ({"agents": ["claude"], "branches": ["main"]}, [1, 2, 4]),
        ({"agents": ["codex"]}, []),
        ({"outcomes": ["fail"]}, []),
    ],
)
def test_groups_can_be_narrowed(lab, wanted, found):
    take_in(
        lab,
        said(1, "2026-01-01T03:00:00.000Z", output_tokens=1),
        said(2, "2026-01-02T03:00:00.000Z", output_tokens=2, model="m-2"),
    )
    take_in(lab, said(1, "2026-01-03T03:00:00.000Z", "s2", cwd="/w/sail", output_tokens=4), session="s2")

    assert [each.tokens.output for each in asked(lab, **wanted)] == found


def test_a_child_whose_parent_states_its_tokens_is_left_out(lab):
    (folder(lab) / "updates.jsonl").write_bytes(prompt("count", 1) + answer("7", 3) + turn(4, spent=100))
    (folder(lab, CHILD) / "updates.jsonl").write_bytes(prompt("count them", 2, CHILD) + turn(4, CHILD, spent=40))
    (folder(lab) / "subagents" / CHILD).mkdir(parents=True)
    (folder(lab) / "subagents" / CHILD / "meta.json").write_text(meta())
    lab.ingest()

    assert [(each.session_uid, each.tokens.input) for each in asked(lab)] == [(f"grok:{PARENT}", 100)]


def test_models_are_those_of_the_responses(lab):
    take_in(
        lab, *(said(number, None, model=name, output_tokens=1) for number, name in enumerate(("b", "a", "b", None)))
    )

    with lab.store() as db:
        assert models(db) == ["a", "b"]


def test_every_token_of_real_sessions_is_there_once(lab, fixtures):
    for flavor, wanted in EXPECTED.values():
        if "files" in wanted:
            lay_out(lab, flavor, wanted["files"])
    lab.ingest()

    with lab.store() as db:
        found = [each.tokens for each in spent(db, Wanted(), [128_000, 200_000])]
        assert [tuple(map(sum, zip(*found, strict=True)))] == rows(db, IN_VIEW)
