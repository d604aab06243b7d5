"""Codex rollouts beyond the samples: mirrors in either order, forks in either order, tokens, prompts, results.

There is no store here. `Lineage` is the smallest thing that resolves keys the way the store promises to: one
owner for each lineage key, the session with the smaller (first record's time, id), in whatever order they come.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path, PurePosixPath

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sessiond.adapters._codex_text import clean, prompt_of, without_userinfo
from sessiond.adapters._codex_tools import read_call, read_result
from sessiond.adapters.base import NeedMore, Reader
from sessiond.adapters.codex import ADAPTER
from sessiond.errors import BadRecord
from sessiond.model import Event, Fact, Kind, Line, Link, Patch, Role, Session, Unknown, Usage
from tests.adapters.harness import SAMPLES, SHARED_FIXTURES, complete_lines, faults_of, head_of, read, saved

PARENT = "019e0000-0000-7000-8000-000000000001"
CHILD = "019e0000-8000-7000-8000-000000000002"
TURNS = [f"019e0000-{n}000-7000-8000-00000000000a" for n in range(1, 8)]  # begun before CHILD was
OWN_TURN = "019e0000-8001-7000-8000-00000000000b"


class Rollout:
    """Writes the lines of a rollout, one second apart."""

    def __init__(self, session_id=PARENT, *, at="2026-05-01T10:00:00", **meta):
        self.lines, self.day, self.seconds = [], at[:17], int(at[17:19])
        self.meta(session_id, **meta)

    def add(self, kind, payload, **beside):
        record = {"timestamp": f"{self.day}{self.seconds % 60:02d}.000Z", "type": kind, "payload": payload, **beside}
        self.lines.append(orjson.dumps(record))
        self.seconds += 1
        return self

    def meta(self, session_id, **more):
        return self.add("session_meta", {"id": session_id, "cwd": "/w", "cli_version": "0.125.0", **more})

    def event(self, kind, **payload):
        return self.add("event_msg", {"type": kind, **payload})

    def item(self, kind, **payload):
        return self.add("response_item", {"type": kind, **payload})

    def says(self, role, text):
        return self.item("message", role=role, content=[{"type": "input_text", "text": text}])

    def turn(self, turn_id, prompt, answer=None, total=None, last=None):
        """A whole turn as of 2026; `turn_id` None: as of 2025."""
        if turn_id:
            self.event("task_started", turn_id=turn_id)
        self.says("user", prompt).event("user_message", message=prompt)
        self.event("agent_message", message=answer or f"re {prompt}").says("assistant", answer or f"re {prompt}")
        return self.tokens(total, last) if total else self

    def tokens(self, total, last=None, **more):
        info = {"total_token_usage": numbers(*total), "last_token_usage": numbers(*(last or total))}
        return self.event("token_count", info={**info, **more})

    def replay(self, other, *, skip=()):
        """Copies another rollout's lines as a fork does, with new times."""
        for line in other.lines:
            record = orjson.loads(line)
            if record["payload"].get("type") not in skip:
                self.add(record["type"], record["payload"])
        return self

    @property
    def data(self):
        return b"".join(line + b"\n" for line in self.lines)


def numbers(tokens_in=0, cached=0, out=0, reasoning=0):
    return {
        "input_tokens": tokens_in,
        "cached_input_tokens": cached,
        "output_tokens": out,
        "reasoning_output_tokens": reasoning,
    }


def records_of(data):
    data = data.data if isinstance(data, Rollout) else data
    reading = read(ADAPTER, complete_lines(data), {})
    assert reading.rejects == []
    return [record for _, records in reading.records for record in records]


def events_of(data):
    return [record for record in records_of(data) if isinstance(record, Event)]


def facts_of(data):
    return {record.name: record.value for record in records_of(data) if isinstance(record, Fact)}


def spoken_in(data):
    return [
        (e.kind.value, e.text) for e in events_of(data) if e.kind in (Kind.USER_MSG, Kind.ASSISTANT_MSG, Kind.THINKING)
    ]


class Lineage:
    """Sessions of one lineage, taken in one after the other."""

    def __init__(self):
        self.owners, self.usage, self.sessions = {}, {}, {}

    def take(self, data):
        records = records_of(data)
        meta = orjson.loads(data.split(b"\n")[0])
        rank = (meta["timestamp"], meta["payload"]["id"])
        once = set()
        for record in records:
            if isinstance(record, Event) and record.key.startswith("l:"):
                if rank <= self.owners.get(record.key, (rank, None))[0]:
                    self.owners[record.key] = (rank, record)
            elif isinstance(record, Usage) and (record.once is None or record.once not in once):
                once.add(record.once)
                self.usage[record.key] = min(
                    self.usage.get(record.key, (rank, record)), (rank, record), key=lambda u: u[0]
                )
        return self

    def events(self, session_id):
        return [event for rank, event in self.owners.values() if rank[1] == session_id]

    def prompts(self, session_id):
        return [event.text for event in self.events(session_id) if event.kind is Kind.USER_MSG]

    def tokens(self, session_id):
        """Uncached input, cache, output."""
        spent = [u for rank, u in self.usage.values() if rank[1] == session_id]
        return [
            sum(n or 0 for n in ns)
            for ns in zip(*((u.input_tokens, u.cache_read_tokens, u.output_tokens) for u in spent), strict=True)
        ] or [0, 0, 0]


def in_every_order(*files):
    """The lineages that come of reading these files in each order; their owners must be the same."""
    data = [file.data if isinstance(file, Rollout) else file for file in files]
    found = []
    for order in itertools.permutations(data):
        lineage = Lineage()
        for each in order:
            lineage.take(each)
        found.append(lineage)
    for lineage in found[1:]:
        assert {k: v[0] for k, v in lineage.owners.items()} == {k: v[0] for k, v in found[0].owners.items()}
        assert {k: v[0] for k, v in lineage.usage.items()} == {k: v[0] for k, v in found[0].usage.items()}
    return found


def tokens_alone(data):
    lineage = Lineage().take(data.data if isinstance(data, Rollout) else data)
    return lineage.tokens(next(iter(lineage.usage.values()))[0][1]) if lineage.usage else None


# --- whose file it is -----------------------------------------------------------------------------

META = orjson.dumps({"type": "session_meta", "payload": {"id": PARENT, "cwd": "/w"}})
SUB_AGENT = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}


@pytest.mark.parametrize(
    ("path", "session_id", "member"),
    [
        (
            f"sessions/2026/05/01/rollout-2026-05-01T10-00-00-{CHILD}.jsonl",
            CHILD,
            f"rollout-2026-05-01T10-00-00-{CHILD}.jsonl",
        ),
        (
            f"archived_sessions/rollout-2026-05-01T10-00-00-{CHILD}.jsonl",
            CHILD,
            f"rollout-2026-05-01T10-00-00-{CHILD}.jsonl",
        ),
        (
            f"sessions/2026/05/01/rollout-2026-05-01T10-00-00-{CHILD}.jsonl.zst",
            CHILD,
            f"rollout-2026-05-01T10-00-00-{CHILD}.jsonl",
        ),
        (
            f"sessions/2026/08/01/rollout-2026-08-01T10-00-00-{CHILD}_{PARENT}.jsonl",
            CHILD,
            f"rollout-2026-08-01T10-00-00-{CHILD}_{PARENT}.jsonl",
        ),
        ("archived_sessions/parent.jsonl", PARENT, "parent.jsonl"),
    ],
)
def test_a_session_is_known_by_its_name_wherever_and_however_it_is_kept(path, session_id, member):
    claim = ADAPTER.claims(PurePosixPath(path), [META])
    assert (claim.session_id, claim.member, claim.cwd) == (session_id, member, "/w")
    assert claim.reader is (Reader.ZSTD if path.endswith(".zst") else Reader.TAIL)


def test_a_file_without_a_name_of_its_own_waits_for_its_first_line():
    with pytest.raises(NeedMore):
        ADAPTER.claims(PurePosixPath("sessions/notes.jsonl"), [])
    assert ADAPTER.claims(PurePosixPath("sessions/notes.jsonl"), [b'{"type":"x"}', b"junk"]).session_id == "notes"
    assert ADAPTER.claims(PurePosixPath(f"sessions/{CHILD}.jsonl"), []).session_id == CHILD


@pytest.mark.parametrize(
    "source", [SUB_AGENT, {"subagent": "review"}, {"subagent": {"other": "guardian"}}, {"internal": "guardian"}]
)
def test_a_thread_that_an_agent_started_is_a_side_chain(source):
    rollout = Rollout(CHILD, source=source)
    assert ADAPTER.claims(PurePosixPath(f"sessions/{CHILD}.jsonl"), rollout.lines).is_sidechain
    assert all(event.is_sidechain for event in events_of(rollout.turn(OWN_TURN, "look")))


@pytest.mark.parametrize("source", ["cli", "vscode", "exec", {"custom": "x"}, None])
def test_a_persons_fork_is_no_side_chain(source):
    rollout = Rollout(CHILD, source=source, forked_from_id=PARENT)
    assert not ADAPTER.claims(PurePosixPath(f"sessions/{CHILD}.jsonl"), rollout.lines).is_sidechain
    assert [e.is_turn for e in events_of(rollout.turn(OWN_TURN, "go on")) if e.kind is Kind.USER_MSG] == [True]


def test_internal_threads_are_marked():
    marked = {json.dumps(s): facts_of(Rollout(source=s)).get("internal") for s in (
        {"subagent": "compact"}, {"subagent": "memory_consolidation"}, {"subagent": {"other": "guardian"}}, {"internal": "guardian"}, {"subagent": "review"}, SUB_AGENT, "cli")}  # fmt: skip
    assert list(marked.values()) == ["1", "1", "1", "1", None, None, None]


def test_a_flat_file_is_timeless_and_tells_its_folder_late():
    file = next((SAMPLES / "codex/sessions/2025/08/20").glob("*.jsonl"))
    claim = ADAPTER.claims(PurePosixPath("sessions/2025/08/20", file.name), head_of(file.read_bytes()))
    assert (claim.timeless, claim.cwd, claim.is_sidechain) == (True, "/home/ada/parser", False)


def test_where_codex_keeps_things():
    assert ADAPTER.homes({}, Path("/home/ada")) == [Path("/home/ada/.codex")]
    assert ADAPTER.homes({"CODEX_HOME": "/srv/codex"}, Path("/home/ada")) == [Path("/srv/codex")]
    assert ADAPTER.folders(Path("/c")) == [Path("/c/sessions"), Path("/c/archived_sessions")]
    assert [ADAPTER.wants(PurePosixPath(path)) for path in (
        "sessions/2026/a.jsonl", "archived_sessions/a.jsonl.zst", "session_index.jsonl", "history.jsonl", "sessions/rollout-compress-1.tmp", "auth.json")] == [True, True, False, False, False, False]  # fmt: skip
    session = Session(session_uid=f"codex:{PARENT}", flavor="codex", native_session_id=PARENT)
    assert ADAPTER.resume(session) == ["codex", "resume", PARENT]


# --- one event for each thing said, whatever the order of its two records -------------------------


@pytest.mark.parametrize("turn_id", [None, TURNS[0]])
@pytest.mark.parametrize(
    "order", ["item", "event", "item event", "event item", "item event item event", "event item event item"]
)
def test_an_answer_written_on_both_sides_is_said_once(order, turn_id):
    rollout = Rollout().event("task_started", turn_id=turn_id)
    for side in order.split():
        rollout.says("assistant", "Done.") if side == "item" else rollout.event("agent_message", message="Done.")
    times = 2 if order.count(" ") == 3 else 1
    assert spoken_in(rollout) == [("assistant_msg", "Done.")] * times


@pytest.mark.parametrize("turn_id", [None, TURNS[0]])
@pytest.mark.parametrize("order", ["item", "event", "ui", "item event", "event item", "item ui"])
def test_a_prompt_written_on_both_sides_is_asked_once(order, turn_id):
    rollout = (
        Rollout().event("task_started", turn_id=turn_id).says("user", "<environment_context>x</environment_context>")
    )
    for prompt in ("first", "second", "second"):
        for side in order.split():
            if side == "item":
                rollout.says("user", prompt)
            elif side == "event":
                rollout.event("user_message", message=prompt)
            else:
                rollout.event(
                    "item_completed", item={"type": "UserMessage", "content": [{"type": "text", "text": prompt}]}
                )
        rollout.says("assistant", f"re {prompt}")
    prompts = [event for event in events_of(rollout) if event.kind is Kind.USER_MSG]
    assert [event.text for event in prompts] == ["first", "second", "second"]
    assert all(event.is_turn and event.role is Role.USER for event in prompts)
    assert len({event.key for event in events_of(rollout)}) == len(events_of(rollout))


def test_a_prompt_with_an_image_is_asked_once():
    rollout = Rollout().item("message", role="user", content=[
        {"type": "input_text", "text": "<image name=[Image #1]>"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_text", "text": "</image>"}, {"type": "input_text", "text": "[Image #1] what is this?"}])  # fmt: skip
    rollout.event("user_message", message="[Image #1] what is this?", images=["data:image/png;base64,AAAA"])
    assert [event.is_turn for event in events_of(rollout) if event.kind is Kind.USER_MSG] == [True]
    assert not any("base64" in event.text + event.summary for event in events_of(rollout))


@pytest.mark.parametrize("turn_id", [None, TURNS[0]])
@pytest.mark.parametrize("events_first", [True, False])
def test_thinking_in_parts_is_one_thought_on_either_side(events_first, turn_id):
    rollout = Rollout().event("task_started", turn_id=turn_id)
    for thought in ("one", "two"):
        parts = [f"{thought} a", f"{thought} b"]
        item = {"summary": [{"type": "summary_text", "text": part} for part in parts], "encrypted_content": "x"}
        if not events_first:
            rollout.item("reasoning", **item)
        for part in parts:
            rollout.event("agent_reasoning", text=part)
        if events_first:
            rollout.tokens((1, 0, 1, 0)).item("reasoning", **item)
    thoughts = [e for e in events_of(rollout) if e.kind is Kind.THINKING]
    texts = {e.key: e.text for e in thoughts}
    texts.update({r.key: r.text for r in records_of(rollout) if isinstance(r, Patch)})
    assert list(texts.values()) == ["one a\n\none b", "two a\n\ntwo b"]


def test_thinking_that_only_the_ui_shows_is_kept():
    rollout = Rollout().event("agent_reasoning", text="one").event("agent_message", message="a")
    rollout.event("agent_reasoning", text="two").event("agent_reasoning_raw_content", text="raw")
    assert [text for _, text in spoken_in(rollout)] == ["one", "a", "two"]
    assert [r.text for r in records_of(rollout) if isinstance(r, Patch)] == ["two\n\nraw"]


def test_a_compaction_is_one_event_in_either_order_and_two_are_two():
    whole, told = ("compacted", {"message": ""}), ("event_msg", {"type": "context_compacted"})
    for first, second in ((whole, told), (told, whole)):
        rollout = Rollout().add(*first).add(*second)
        assert [event.summary for event in events_of(rollout)][1:] == ["context compacted"]
    rollout = Rollout().add(*whole)
    rollout.seconds += 30
    assert [event.summary for event in events_of(rollout.add(*told))][1:] == ["context compacted"] * 2


def test_a_compacted_line_is_never_decoded():
    line = (
        b'{"timestamp":"2026-05-01T10:00:00.000Z","ordinal":7,"type":"compacted","payload":{"message":"'
        + b"x" * 9_000_000
    )
    [event] = ADAPTER.parse(Line(0, line), {})
    assert (event.kind, event.ts, event.text) == (Kind.LIFECYCLE, "2026-05-01T10:00:00.000Z", "")
    with pytest.raises(BadRecord):
        ADAPTER.parse(Line(0, line.replace(b'"compacted"', b'"response_item"')), {})


# --- tokens ---------------------------------------------------------------------------------------


def test_re_emitted_and_interleaved_totals_count_once_and_resets_go_on():
    rollout = Rollout().turn(TURNS[0], "go", total=(100, 40, 10, 2))
    rollout.tokens((100, 40, 10, 2)).tokens((250, 100, 25, 5), (150, 60, 15, 3))
    rollout.event("entered_review_mode").tokens((30, 0, 3, 0)).event("exited_review_mode").tokens(
        (250, 100, 25, 5), (150, 60, 15, 3)
    )
    rollout.event("token_count", info=None).tokens((70, 20, 7, 1))  # resumed: the counter began anew
    assert tokens_alone(rollout) == [60 + 90 + 30 + 50, 40 + 60 + 0 + 20, 10 + 15 + 3 + 7]


def test_without_last_the_difference_of_totals_counts():
    rollout = Rollout()
    for total in ((100, 40, 10, 2), (250, 100, 25, 5), (30, 10, 3, 1)):
        rollout.event("token_count", info={"total_token_usage": numbers(*total)})
    assert tokens_alone(rollout) == [60 + 90 + 20, 40 + 60 + 10, 10 + 15 + 3]


def test_a_full_context_marker_is_no_usage():
    zero = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 258400}
    rollout = Rollout().event("token_count", info={"total_token_usage": zero, "last_token_usage": zero})
    assert not [record for record in records_of(rollout) if isinstance(record, Usage)]


def test_cache_writes_are_part_of_the_input_too():
    usage = {**numbers(100, 60, 10, 4), "cache_write_input_tokens": 30}
    [found] = [
        r
        for r in records_of(
            Rollout().event("token_count", info={"total_token_usage": usage, "last_token_usage": usage})
        )
        if isinstance(r, Usage)
    ]
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (10, 60, 30)
    assert (found.output_tokens, found.reasoning_tokens) == (10, 4)


@pytest.mark.parametrize("records_first", [True, False])
def test_two_sources_of_tokens_count_once(records_first):
    rollout = Rollout().event("task_started", turn_id=TURNS[0])
    for n, (total, last) in enumerate((((100, 0, 10, 0), (100, 0, 10, 0)), ((300, 50, 30, 0), (200, 50, 20, 0)))):
        record = {"response_id": f"r{n}", "usage": numbers(*last), "thread_token_usage": numbers(*total)}
        if records_first:
            rollout.add("token_usage_record", record).tokens(total, last)
        else:
            rollout.tokens(total, last).add("token_usage_record", record)
    assert tokens_alone(rollout) == [250, 50, 30]


def test_tokens_belong_to_what_the_model_said_before_them():
    rollout = Rollout().turn(TURNS[0], "go").item("function_call", name="x", arguments="{}", call_id="c")
    rollout.item("function_call_output", call_id="c", output="ok").tokens((9, 0, 1, 0))
    call = next(e for e in events_of(rollout) if e.kind is Kind.TOOL_CALL)
    assert [r.event_key for r in records_of(rollout) if isinstance(r, Usage)] == [call.key]


# --- forks, sub-agents, reviews -------------------------------------------------------------------


def parent_rollout(turn_ids, **meta):
    rollout = Rollout(PARENT, **meta)
    for n, turn_id in enumerate(turn_ids, 1):
        rollout.turn(turn_id, f"step {n}", total=(100 * n, 10 * n, n, 0), last=(100, 10, 1, 0))
    return rollout


@pytest.mark.parametrize("with_turn_ids", [True, False])
@pytest.mark.parametrize("second_meta", [True, False])
def test_a_fork_owns_only_what_came_after_it(with_turn_ids, second_meta):
    turn_ids = TURNS[:2] if with_turn_ids else [None, None]
    parent = parent_rollout(turn_ids)
    child = Rollout(CHILD, at="2026-05-02T10:00:00", forked_from_id=PARENT)
    child.replay(parent, skip=() if second_meta else ("session_meta",))
    child.turn(OWN_TURN if with_turn_ids else None, "mine", total=(900, 20, 5, 0), last=(700, 0, 3, 0))
    parent.turn(TURNS[2] if with_turn_ids else None, "yours", total=(300, 30, 3, 0), last=(100, 10, 1, 0))
    for lineage in in_every_order(parent, child):
        assert lineage.prompts(PARENT) == ["step 1", "step 2", "yours"]
        assert lineage.prompts(CHILD) == ["mine"]
        assert lineage.tokens(PARENT) == [270, 30, 3]
        assert lineage.tokens(CHILD) == [700, 0, 3]


def test_the_same_words_after_a_fork_are_said_twice():
    parent = parent_rollout(TURNS[:1])
    child = Rollout(CHILD, at="2026-05-02T10:00:00", forked_from_id=PARENT).replay(parent).turn(OWN_TURN, "continue")
    parent.turn(TURNS[1], "continue")
    for lineage in in_every_order(parent, child):
        assert lineage.prompts(PARENT) == ["step 1", "continue"]
        assert lineage.prompts(CHILD) == ["continue"]
        assert Counter(e.kind for e in lineage.events(CHILD)) == {
            Kind.LIFECYCLE: 1,
            Kind.USER_MSG: 1,
            Kind.ASSISTANT_MSG: 1,
        }


@pytest.mark.parametrize("with_turn_ids", [True, False])
def test_a_fork_of_a_fork_owns_only_its_own(with_turn_ids):
    ids = [*TURNS[:2], OWN_TURN] if with_turn_ids else [None] * 3
    first = parent_rollout(ids[:1])
    second = Rollout(CHILD, at="2026-05-02T10:00:00", forked_from_id=PARENT).replay(first).turn(ids[1], "two")
    third = (
        Rollout("019e0000-9000-7000-8000-000000000003", at="2026-05-03T10:00:00", forked_from_id=CHILD)
        .replay(second)
        .turn(ids[2], "three")
    )
    for lineage in in_every_order(first, second, third):
        assert [lineage.prompts(s) for s in (PARENT, CHILD, "019e0000-9000-7000-8000-000000000003")] == [
            ["step 1"],
            ["two"],
            ["three"],
        ]


def test_records_left_out_of_a_copy_change_no_other_name():
    parent = (
        Rollout(PARENT).event("task_started", turn_id=TURNS[0]).add("turn_context", {"turn_id": TURNS[0], "model": "m"})
    )
    parent.says("user", "count").event("user_message", message="count").item(
        "reasoning", summary=[], encrypted_content="abc"
    )
    parent.item("function_call", name="shell", arguments="{}", call_id="c1").item(
        "function_call_output", call_id="c1", output="3"
    )
    parent.event("agent_message", message="looking").says("assistant", "looking").says("assistant", "three")
    child = Rollout(CHILD, at="2026-05-02T10:00:00", source=SUB_AGENT, parent_thread_id=PARENT)
    child.replay(parent, skip=("reasoning", "function_call", "function_call_output")).turn(OWN_TURN, "and now?")
    for lineage in in_every_order(parent, child):
        assert Counter(e.kind for e in lineage.events(CHILD)) == {
            Kind.LIFECYCLE: 1,
            Kind.USER_MSG: 1,
            Kind.ASSISTANT_MSG: 1,
        }


def test_a_copy_of_the_last_turns_alone_is_known_and_not_paid_twice():
    parent = parent_rollout(TURNS[:3])
    child = Rollout(CHILD, at="2026-05-02T10:00:00", source=SUB_AGENT, parent_thread_id=PARENT).meta(PARENT)
    for line in parent.lines[13:]:  # the meta and two turns of six lines are left out
        record = orjson.loads(line)
        child.add(record["type"], record["payload"])
    child.turn(OWN_TURN, "scout", total=(40, 0, 4, 0))
    for lineage in in_every_order(parent, child):
        assert lineage.prompts(CHILD) == ["scout"]
        assert lineage.tokens(PARENT) == [270, 30, 3]
        assert lineage.tokens(CHILD) == [40, 0, 4]


@pytest.mark.parametrize("turn_id", [None, "turn-1", "0"])
def test_a_sub_agent_that_starts_clean_shares_nothing_with_its_parent(turn_id):
    parent = Rollout(PARENT).turn(turn_id, "do it", total=(5, 0, 1, 0))
    child = Rollout(CHILD, at="2026-05-02T10:00:00", source=SUB_AGENT, parent_thread_id=PARENT).turn(
        turn_id, "do it", total=(5, 0, 1, 0)
    )
    for lineage in in_every_order(parent, child):
        assert lineage.prompts(PARENT) == lineage.prompts(CHILD) == ["do it"]
        assert lineage.tokens(PARENT) == lineage.tokens(CHILD) == [5, 0, 1]


def test_a_sub_agent_that_repeats_its_parent_names_as_the_parent_does_also_without_turn_ids():
    parent = parent_rollout([None, None])
    child = Rollout(CHILD, at="2026-05-02T10:00:00", source=SUB_AGENT, parent_thread_id=PARENT)
    child.replay(parent).turn(None, "scout", total=(210, 20, 3, 0), last=(10, 0, 1, 0))
    for lineage in in_every_order(parent, child):
        assert lineage.prompts(CHILD) == ["scout"]
        assert lineage.tokens(CHILD) == [10, 0, 1]


def test_a_counter_is_no_turn_id_to_trust():
    parent = parent_rollout(["0", "1"])
    child = Rollout(CHILD, at="2026-05-02T10:00:00", forked_from_id=PARENT).replay(parent).turn("2", "left")
    parent.turn("2", "right").turn("3", "go on")
    child.turn("3", "go on")
    for lineage in in_every_order(parent, child):
        assert lineage.prompts(PARENT)[2:] == ["right", "go on"]
        assert lineage.prompts(CHILD) == ["left", "go on"]


def test_a_sub_agent_repeats_its_parents_person_and_hears_its_parent():
    child = (
        Rollout(CHILD, source=SUB_AGENT, parent_thread_id=PARENT)
        .replay(parent_rollout(TURNS[:1]))
        .turn(OWN_TURN, "scout")
    )
    prompts = [(e.text, e.role, e.is_turn) for e in events_of(child) if e.kind is Kind.USER_MSG]
    assert prompts == [("step 1", Role.USER, True), ("scout", Role.AGENT, False)]
    assert (facts_of(child)["title"], facts_of(child)["parent"]) == ("scout", PARENT)


def test_inherited_records_of_a_paginated_sub_agent_are_told_by_their_ordinal():
    child = Rollout(CHILD, source=SUB_AGENT, parent_thread_id=PARENT, subagent_history_start_ordinal=3)
    child.add("event_msg", {"type": "user_message", "message": "person"}, ordinal=2)
    child.add("event_msg", {"type": "user_message", "message": "agent"}, ordinal=3)
    assert [(e.text, e.is_turn) for e in events_of(child) if e.kind is Kind.USER_MSG] == [
        ("person", True),
        ("agent", False),
    ]


def test_a_later_meta_changes_nothing_about_the_session():
    rollout = Rollout(PARENT, timestamp="2026-05-01T09:00:00Z", git={"branch": "main"}).turn(TURNS[0], "go")
    first = facts_of(rollout)
    rollout.meta(PARENT, cwd="/x", timestamp="2026-06-01T09:00:00Z").meta(CHILD, cwd="/y", git={"branch": "other"})
    assert facts_of(rollout) == first
    assert "parent" not in first
    assert (first["cwd"], first["started_at"], first["git_branch"]) == ("/w", "2026-05-01T09:00:00.000Z", "main")


def test_a_review_is_paid_once():
    """In 0.77 its counts stand in its own file and in its parent's."""
    files = sorted((SAMPLES / "codex/sessions/2025/12/20").glob("*.jsonl"))
    for lineage in in_every_order(*(file.read_bytes() for file in files)):
        assert lineage.tokens("019b0000-0000-7000-8000-000000000001") == [400 + 80 + 50, 100 + 70, 5 + 8 + 10]
        assert lineage.tokens("019b0000-1000-7000-8000-000000000002") == [0, 0, 0]


def test_the_sample_of_a_fork_has_its_owners():
    parent, child = "019e3000-0000-7000-8000-000000000001", "019e3000-9000-7000-8000-000000000002"
    files = [
        next((SAMPLES / "codex").rglob(f"*{each}.jsonl")).read_bytes()
        for each in (parent, child, "019e3000-6000-7000-8000-000000000003")
    ]
    for lineage in in_every_order(*files):
        assert lineage.prompts(parent) == ["Sort the list", "Again, backwards"]
        assert lineage.prompts(child) == ["Again, backwards"]
        assert lineage.tokens(parent) == [1000 + 1100, 900, 10 + 20]
        assert lineage.tokens(child) == [600, 900, 15]
        assert lineage.tokens("019e3000-6000-7000-8000-000000000003") == [700, 0, 7]


# --- real files -----------------------------------------------------------------------------------

needs_fixtures = pytest.mark.skipif(not SHARED_FIXTURES.is_dir(), reason="no fixtures at ../shared/fixtures")


@needs_fixtures
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [  # worked out apart: the sum of `last` over different totals, for the second file beyond the common prefix
        (
            "archived-fork-33ce-3869-parent",
            "archived-fork-33ce-3869-child",
            ([1210579, 12149120, 38414], [493008, 1400576, 17481]),
        ),
        (
            "live-fork-4d90-52bf-parent",
            "live-fork-4d90-52bf-child",
            ([1151858, 23737856, 102678], [156480, 1646080, 6959]),
        ),
        ("missing-parent-sibling-a", "missing-parent-sibling-b", ([1703587, 13549696, 55895], [2727, 303, 63])),
    ],
)
def test_real_fork_families_are_paid_once(first, second, expected):
    files = [(SHARED_FIXTURES / "codex/archived_sessions" / f"{name}.jsonl").read_bytes() for name in (first, second)]
    ids = [orjson.loads(data.split(b"\n")[0])["payload"]["id"] for data in files]
    for lineage in in_every_order(*files):
        assert tuple(lineage.tokens(each) for each in ids) == expected


@needs_fixtures
def test_a_real_counter_that_was_reset_counts_both_parts():
    [file] = (SHARED_FIXTURES / "codex/sessions/2025/09/25").glob("*T08-02-05*")
    # the last total before the reset, and the only one after it
    assert tokens_alone(file.read_bytes()) == [1355071 - 1307776 + 37208 - 2432, 1307776 + 2432, 8337 + 335]


def _real_sessions():
    file = SHARED_FIXTURES / "real/expected.json"
    sessions = json.loads(file.read_bytes()) if file.is_file() else []
    return [pytest.param(each, id=f"codex-{each['session_no']:02d}") for each in sessions if each["client"] == "codex"]


@needs_fixtures
@pytest.mark.parametrize("session", _real_sessions())
def test_real_files_say_what_the_server_served(session):
    events, tokens = [], Counter()
    for name in session["files"]:
        data = (SHARED_FIXTURES / "real" / name).read_bytes()
        events += events_of(data)
        tokens.update(dict(zip(("in", "cached", "out"), tokens_alone(data), strict=True)))
    served, found = session["served"], session["found"]
    kinds = Counter(event.kind for event in events)
    calls = sum(kinds[kind] for kind in (Kind.TOOL_CALL, Kind.TEST_RUN, Kind.EDIT, Kind.DECISION))
    assert kinds[Kind.USER_MSG] == found["prompts"]
    assert sum(event.is_turn for event in events) == served["prompts"]
    assert (calls, kinds[Kind.THINKING], kinds[Kind.ASSISTANT_MSG]) == (
        served["tool_calls"],
        served["thinking"],
        served["texts"],
    )
    assert kinds[Kind.TOOL_RESULT] == found.get("tool_results", 0)
    assert sum(event.is_error for event in events if event.kind is Kind.TOOL_RESULT) == found.get("tool_errors", 0)
    assert kinds[Kind.ERROR] == found.get("error_messages", 0)
    assert [tokens[n] for n in ("in", "cached", "out")] == [served[f"tok_{n}"] for n in ("input", "cached", "output")]


# --- words and results ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("plain", "plain"),
        ("<environment_context>\n<cwd>/w</cwd>\n</environment_context>", ""),
        ("<environment_context>x</environment_context>\n\nfix it", "fix it"),
        ("<user_instructions>a</user_instructions><environment_context>b</environment_context> go", "go"),
        ("# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>", ""),
        ("# AGENTS.md instructions for /w\n\nno end", ""),
        ("<permissions instructions>\nx\n</permissions instructions>", ""),
        ('<codex_internal_context source="goal">x</codex_internal_context>', ""),
        ("<turn_aborted>\ncut off", ""),
        ("You are `/root/scout`, an agent", ""),
        ("# Context from my IDE setup:\n\n## Open tabs:\n- a\n\n## My request for Codex:\n fix a ", "fix a"),
        ("<div>why is this centred?</div>", "<div>why is this centred?</div>"),
    ],
)
def test_what_a_person_asked(text, asked):
    assert prompt_of(text) == asked


@pytest.mark.parametrize(
    ("output", "is_error", "denied", "text", "summary"),
    [
        ('{"output":"a\\nb\\n","metadata":{"exit_code":0,"duration_seconds":0.1}}', False, False, "a\nb\n", "a"),
        ('{"output":"","metadata":{"exit_code":3}}', True, False, "", "exit code 3"),
        ("Exit code: 1\nWall time: 1.2 seconds\nOutput:\nno rg\n", True, False, "no rg\n", "no rg"),
        ("Exit code: 0\nWall time: 1 seconds\nTotal output lines: 3\nOutput:\nExit code: 1\n", False, False, "Exit code: 1\n", "Exit code: 1"),
        ("Chunk ID: a\nProcess exited with code 2\nOutput:\n", True, False, "", "exit code 2"),
        ("Chunk ID: a\nProcess running with session ID 4\nOutput:\n", False, False, "", "still running"),
        ("failed in sandbox MacosSeatbelt with execution error: x", True, False, None, None),
        ("write_stdin failed: stdin is closed", True, False, None, None),
        ("apply_patch verification failed: no such line", True, False, None, None),
        ('exec_command failed for `rm`: CreateProcess { message: "Rejected(\\"rejected by user\\")" }', True, True, None, None),
        ("exec failed: rejected by user approval settings", True, False, None, None),
        ("Wall time: 6.4 seconds\naborted by user", True, True, None, "aborted by user"),
        ("the report says: aborted by user", False, False, None, None),
        ("Plan updated", False, False, "Plan updated", "Plan updated"),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}], False, False, "a\n[image]", "a"),
        ({"content": "no", "success": False}, True, False, "no", "no"),
        ({"type": "input_text", "text": "a.txt"}, False, False, "a.txt", "a.txt"),
        (None, False, False, "", "no output"),
        ("", False, False, "", "no output"),
    ],
)  # fmt: skip
def test_how_a_call_ended(output, is_error, denied, text, summary):
    result = read_result(output)
    assert (result.is_error, result.denied) == (is_error, denied)
    assert text is None or result.text == text
    assert summary is None or result.summary == summary


@pytest.mark.parametrize(
    ("name", "raw", "kind", "summary"),
    [
        ("shell", '{"command":["bash","-lc","cargo test -q"]}', Kind.TEST_RUN, "cargo test -q"),
        ("shell", '{"command":["grep","pytest","x"]}', Kind.TOOL_CALL, "grep pytest x"),
        ("exec_command", '{"cmd":"ls"}', Kind.TOOL_CALL, "ls"),
        ("shell_command", '{"command":"npm test"}', Kind.TEST_RUN, "npm test"),
        ("container.exec", '{"command":["ls"]}', Kind.TOOL_CALL, "ls"),
        ("shell", "not json", Kind.TOOL_CALL, "not json"),
        (
            "shell",
            '{"command":["bash","-lc","apply_patch <<\'EOF\'\\n*** Begin Patch\\n*** Delete File: a b.py\\n*** End Patch\\nEOF"]}',
            Kind.EDIT,
            "edit a b.py",
        ),
        ("apply_patch", '{"input":"*** Begin Patch\\n*** Add File: a\\n+x\\n*** End Patch"}', Kind.EDIT, "edit a"),
        ("apply_patch", "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** End Patch", Kind.EDIT, "edit a, b"),
        ("update_plan", '{"explanation":"smaller steps","plan":[]}', Kind.DECISION, "plan: smaller steps"),
        ("request_user_input", '{"questions":[{"question":"Which one?"}]}', Kind.DECISION, "asked: Which one?"),
        ("mcp__db__query", '{"sql":"select 1"}', Kind.TOOL_CALL, 'mcp__db__query {"sql":"select 1"}'),
    ],
)
def test_what_a_call_does(name, raw, kind, summary):
    call = read_call(name, raw)
    assert (call.kind, call.summary) == (kind, summary)


@pytest.mark.parametrize(
    ("payload", "patches"),
    [
        ({"type": "exec_command_end", "call_id": "c", "exit_code": 1}, [(None, True)]),
        ({"type": "exec_command_end", "call_id": "c", "exit_code": 0}, []),
        ({"type": "patch_apply_end", "call_id": "c", "success": False}, [(None, True)]),
        (
            {"type": "patch_apply_end", "call_id": "c", "success": False, "status": "declined"},
            [(Kind.HUMAN_INTERVENTION, True)],
        ),
        ({"type": "mcp_tool_call_end", "call_id": "c", "result": {"Err": "x"}}, [(None, True)]),
        ({"type": "mcp_tool_call_end", "call_id": "c", "result": {"Ok": {"isError": True}}}, [(None, True)]),
        ({"type": "mcp_tool_call_end", "call_id": "c", "result": {"Ok": {"isError": False}}}, []),
        (
            {
                "type": "item_completed",
                "item": {"type": "CommandExecution", "id": "c", "status": "declined", "exit_code": -1},
            },
            [(Kind.HUMAN_INTERVENTION, True)],
        ),
        ({"type": "item_completed", "item": {"type": "FileChange", "id": "c", "status": "failed"}}, [(None, True)]),
    ],
)
def test_late_facts_reach_the_result(payload, patches):
    found = [r for r in records_of(Rollout().add("event_msg", payload)) if isinstance(r, Patch)]
    assert [(patch.kind, patch.is_error) for patch in found] == patches
    assert {patch.key for patch in found} <= {"s:result:c"}


def test_a_call_and_its_result_are_joined_by_their_id():
    rollout = (
        Rollout()
        .turn(TURNS[0], "go")
        .item("function_call", name="x", arguments="{}", call_id="c")
        .item("function_call_output", call_id="c", output="ok")
    )
    call, result = events_of(rollout)[-2:]
    links = {r.key: r.parent_key for r in records_of(rollout) if isinstance(r, Link)}
    assert links == {"s:call:c": call.key, "s:result:c": result.key}
    assert result.parent_key == "s:call:c"
    assert call.parent_key == events_of(rollout)[-3].key


@pytest.mark.parametrize(
    ("payload", "kind", "is_error"),
    [
        ({"type": "task_complete", "turn_id": "t"}, Kind.COMPLETION, False),
        ({"type": "turn_complete", "turn_id": "t", "error": {"message": "429"}}, Kind.ERROR, True),
        ({"type": "turn_aborted", "reason": "interrupted"}, Kind.HUMAN_INTERVENTION, False),
        ({"type": "turn_aborted", "reason": "replaced"}, Kind.HUMAN_INTERVENTION, False),
        ({"type": "turn_aborted", "reason": "budget_limited"}, Kind.LIFECYCLE, False),
        ({"type": "error", "message": "no quota"}, Kind.ERROR, True),
        ({"type": "stream_error", "message": "reconnecting 1/5"}, Kind.RETRY, True),
        (
            {"type": "guardian_assessment", "id": "g", "status": "approved", "action": {"command": "rm x"}},
            Kind.DECISION,
            False,
        ),
        ({"type": "item_completed", "item": {"type": "Plan", "text": "1. do"}}, Kind.DECISION, False),
        ({"type": "item_completed", "item": {"type": "HookPrompt", "text": "x"}}, Kind.LIFECYCLE, False),
        ({"type": "collab_agent_spawn_end", "new_thread_id": CHILD}, Kind.LIFECYCLE, False),
        ({"type": "warning", "message": "x"}, None, False),
    ],
)
def test_what_a_ui_event_is(payload, kind, is_error):
    events = events_of(Rollout().add("event_msg", payload))[1:]
    assert [(event.kind, event.is_error) for event in events] == ([(kind, is_error)] if kind else [])


def test_what_is_not_known_is_counted_by_its_name():
    rollout = (
        Rollout()
        .add("hologram", {})
        .event("sung")
        .item("dance")
        .event("item_completed", item={"type": "Opera"})
        .add("world_state", {})
    )
    assert [r.name for r in records_of(rollout) if isinstance(r, Unknown)] == [
        "hologram",
        "event_msg/sung",
        "response_item/dance",
        "item_completed/Opera",
    ]


def test_a_fact_is_said_when_it_changes():
    rollout = Rollout(git={"branch": "main", "repository_url": "https://u:p@git.example/a/b.git"})
    for model in ("m1", "m1", "m2", "m2"):
        rollout.add("turn_context", {"model": model, "cwd": "/w", "approval_policy": "never"})
    said = [(r.name, r.value) for r in records_of(rollout) if isinstance(r, Fact)]
    assert said == [
        ("cwd", "/w"),
        ("version", "0.125.0"),
        ("git_branch", "main"),
        ("repository_url", "https://git.example/a/b.git"),
        ("model", "m1"),
        ("last_cwd", "/w"),
        ("model", "m2"),
    ]


def test_only_what_a_context_changes_is_told():
    rollout = Rollout()
    for model, policy in (("m1", "never"), ("m1", "never"), ("m2", "never"), ("m2", "on-request")):
        rollout.add("turn_context", {"model": model, "cwd": "/w", "approval_policy": policy})
    told = [(event.kind, event.summary) for event in events_of(rollout)[1:]]
    assert told == [
        (Kind.LIFECYCLE, "model m1"),
        (Kind.LIFECYCLE, "model m1 -> m2"),
        (Kind.DECISION, "policy never -> on-request"),
    ]


def test_nothing_unreadable_is_indexed():
    blob = "data:image/png;base64," + "A" * 500
    assert clean(f"see {blob} here") == "see [data] here"
    assert clean("gAAAAAB" + "x" * 100) == "[encrypted]"
    assert len(clean("é" * 100_000)) < 20_100
    assert without_userinfo("https://me:secret@h:8080/a.git") == "https://h:8080/a.git"


# --- anything at all ------------------------------------------------------------------------------

_LINES = [
    line.data for file in sorted((SAMPLES / "codex").rglob("*.jsonl")) for line in complete_lines(file.read_bytes())
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=20)
    | st.sampled_from(["session_meta", "turn_context", "event_msg", "response_item", "user_message", "<environment_context>", PARENT, "7"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def mutated_lines(draw):
    """Lines of the samples in any order, each with some values replaced or taken away."""
    lines = []
    for data in draw(st.lists(st.sampled_from(_LINES), min_size=1, max_size=8)):
        record = orjson.loads(data)
        for _ in range(draw(st.integers(0, 3))):
            place, at = record, None
            while isinstance(place, dict | list) and place:
                container, at = (
                    place,
                    draw(st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1)),
                )
                place = container[at]
                if draw(st.booleans()):
                    break
            if at is not None:
                container[at] = draw(_JSON)
        lines.append(orjson.dumps(record))
    return lines


@given(mutated_lines())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_object_gives_records_or_is_rejected(lines):
    carry = {}
    for line in lines:
        try:
            records = ADAPTER.parse(Line(0, line), carry)
        except BadRecord:
            continue
        assert [fault for record in records for fault in faults_of(record)] == []
        carry = saved(carry)
        assert all(value is None or isinstance(value, str | int) for value in carry.values())
        assert len(orjson.dumps(carry)) < 20_000
