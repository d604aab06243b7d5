"""Claude Code's own rules: whose file is whose, who said what, what counts as a turn, what is never kept."""

from __future__ import annotations

import base64
import copy
from collections import Counter
from pathlib import Path, PurePosixPath

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from sessiond.adapters.base import NeedMore, Reader
from sessiond.adapters.claude import ADAPTER
from sessiond.errors import BadRecord
from sessiond.model import Event, Fact, Kind, Line, Link, Role, Session, Unknown, Usage
from tests.adapters.harness import SAMPLES, SHARED_FIXTURES, faults_of, read, samples_of

SID = "11111111-2222-4333-8444-555555555555"


def parse(record, carry=None):
    return ADAPTER.parse(Line(0, orjson.dumps(record)), {} if carry is None else carry)


def events(record, carry=None):
    return [each for each in parse(record, carry) if isinstance(each, Event)]


def only(record, carry=None):
    (event,) = events(record, carry)
    return event


def user(content, **more):
    return {"type": "user", "uuid": "u", "parentUuid": "p", "message": {"role": "user", "content": content}, **more}


def assistant(content, **more):
    message = {"id": "m", "model": "claude-opus-4-7", "content": content, **more.pop("message", {})}
    return {"type": "assistant", "uuid": "a", "parentUuid": "p", "message": message, **more}


def result(content, **block):
    return [{"type": "tool_result", "tool_use_id": "t", "content": content, **block}]


def call(name, **given_input):
    return [{"type": "tool_use", "id": "t", "name": name, "input": given_input}]


# --- whose file is whose --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "session", "role", "member"),
    [
        (f"projects/-a/{SID}.jsonl", SID, "main", f"{SID}.jsonl"),
        ("projects/-a/forked-by-hand.jsonl", "forked-by-hand", "main", "forked-by-hand.jsonl"),
        (f"projects/-a/{SID}/subagents/agent-x1.jsonl", SID, "subagent", f"{SID}/subagents/agent-x1.jsonl"),
        (
            f"projects/-a/{SID}/subagents/agent-acompact-9.jsonl",
            SID,
            "subagent",
            f"{SID}/subagents/agent-acompact-9.jsonl",
        ),
        (
            f"projects/-a/{SID}/subagents/workflows/w/agent-x.jsonl",
            SID,
            "subagent",
            f"{SID}/subagents/workflows/w/agent-x.jsonl",
        ),
        (
            f"projects/-a/{SID}/subagents/d/subagents/agent-x.jsonl",
            SID,
            "subagent",
            f"{SID}/subagents/d/subagents/agent-x.jsonl",
        ),
        (f"projects/-a/{SID}/subagents/agent-x1.meta.json", SID, "sidecar", f"{SID}/subagents/agent-x1.meta.json"),
    ],
)
def test_a_transcript_belongs_to_the_session_its_path_names(path, session, role, member):
    claim = ADAPTER.claims(PurePosixPath(path), [b'{"sessionId": "another", "cwd": "/w"}'])

    assert (claim.session_id, claim.role, claim.member) == (session, role, member)
    assert claim.cwd == (None if role == "sidecar" else "/w")
    assert claim.reader is (Reader.SNAPSHOT if role == "sidecar" else Reader.TAIL)


@pytest.mark.parametrize(
    "path",
    [
        "history.jsonl",
        "projects/stray.jsonl",
        "projects/-a/sessions-index.json",
        f"projects/-a/{SID}.jsonl.wakatime",
        f"projects/-a/{SID}.jsonl.lock",
        f"projects/-a/{SID}.jsonl.bak",
        f"projects/-a/.{SID}.jsonl",
        f"projects/-a/{SID}/tool-results/x.txt",
        f"projects/-a/{SID}/tool-results/x.jsonl",
        f"projects/-a/{SID}/subagents/workflows/w/journal.jsonl",
        f"projects/-a/{SID}/subagents/notes.meta.json",
        "projects/-a/agent-x.meta.json",
        "todos/x.jsonl",
        "shell-snapshots/a/b.jsonl",
    ],
)
def test_what_lies_beside_transcripts_is_left_alone(path):
    assert not ADAPTER.wants(PurePosixPath(path))
    assert ADAPTER.claims(PurePosixPath(path), []) is None


def test_a_flat_sub_agent_file_waits_for_the_line_that_names_its_session():
    path = PurePosixPath("projects/-a/agent-b52b.jsonl")
    with pytest.raises(NeedMore):
        ADAPTER.claims(path, [])
    with pytest.raises(NeedMore):
        ADAPTER.claims(path, [b'{"type": "file-history-snapshot"}', b"junk with sessionId"])

    claim = ADAPTER.claims(path, [b'{"type": "x"}', orjson.dumps({"sessionId": SID})])

    assert (claim.session_id, claim.role, claim.member) == (SID, "subagent", "agent-b52b.jsonl")


def test_homes_follow_the_agents_own_variable():
    home = Path("/home/ada")
    assert ADAPTER.homes({}, home) == [home / ".claude", home / ".config/claude"]
    assert ADAPTER.homes({"CLAUDE_CONFIG_DIR": "/a, ~/b,,"}, home) == [Path("/a"), home / "b"]
    assert ADAPTER.homes({"CLAUDE_CONFIG_DIR": ""}, home) == [home / ".claude", home / ".config/claude"]
    assert ADAPTER.folders(Path("/a")) == [Path("/a/projects")]


def test_a_session_is_resumed_by_its_native_id():
    session = Session(session_uid=f"claude:{SID}", flavor="claude", native_session_id=SID)
    assert ADAPTER.resume(session) == ["claude", "--resume", SID]


def test_a_file_of_a_sub_agent_is_a_side_chain_whatever_its_records_say():
    path = PurePosixPath(f"projects/-a/{SID}/subagents/agent-x1.jsonl")
    carry = dict(ADAPTER.claims(path, []).seed)

    event = only(user("Count the files", parentUuid=None, isSidechain=False), carry)

    assert (event.role, event.is_sidechain, event.is_turn, event.parent_key) == (Role.AGENT, True, False, "s:agent:x1")


# --- who said it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "kind", "role", "is_turn"),
    [
        (user("hello"), Kind.USER_MSG, Role.USER, True),
        (user("<b>html</b> please"), Kind.USER_MSG, Role.USER, True),
        (user("hello", origin={"kind": "human"}, promptSource="sdk"), Kind.USER_MSG, Role.USER, True),
        (user("hello", origin={"kind": "task-notification"}), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("hello", origin={"kind": "peer", "from": "x"}), Kind.USER_MSG, Role.AGENT, False),
        (user("hello", promptSource="system"), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("hello", isSidechain=True), Kind.USER_MSG, Role.AGENT, False),
        (user("hello", isMeta=True), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("hello", isCompactSummary=True), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("This session is being continued from a previous conversation that"), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("[Request interrupted by user]"), Kind.HUMAN_INTERVENTION, Role.USER, False),
        (user("<bash-input>ls</bash-input>"), Kind.HUMAN_INTERVENTION, Role.USER, False),
        (user("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>"), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("<local-command-stdout>Bye!</local-command-stdout>"), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("<local-command-caveat>Caveat: x</local-command-caveat>"), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("Caveat: The messages below were generated"), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("<task-notification><status>done</status></task-notification>"), Kind.LIFECYCLE, Role.SYSTEM, False),
        (user("<teammate-message teammate_id='x'>hi</teammate-message>"), Kind.USER_MSG, Role.AGENT, False),
        (user("<command-name>/exit</command-name>"), Kind.LIFECYCLE, Role.USER, False),
        (user("<command-name>/compact</command-name>\n<command-args>now</command-args>"), Kind.LIFECYCLE, Role.USER, False),
        (user("<command-name>/deploy</command-name>"), Kind.USER_MSG, Role.USER, True),
        (user("<command-name>/deploy</command-name>", isSidechain=True), Kind.USER_MSG, Role.AGENT, False),
    ],
)  # fmt: skip
def test_only_what_a_person_asked_of_the_agent_is_a_turn(record, kind, role, is_turn):
    event = only(record)
    assert (event.kind, event.role, event.is_turn) == (kind, role, is_turn)


@pytest.mark.parametrize(
    ("attachment", "kind", "is_turn"),
    [
        ({"prompt": "and this", "commandMode": "prompt"}, Kind.USER_MSG, True),
        ({"prompt": [{"type": "text", "text": "and this"}]}, Kind.USER_MSG, True),
        ({"prompt": "and this", "commandMode": "prompt", "origin": {"kind": "human"}}, Kind.USER_MSG, True),
        ({"prompt": "and this", "commandMode": "prompt", "origin": {"kind": "coordinator"}}, Kind.LIFECYCLE, False),
        ({"prompt": "and this", "commandMode": "task-notification"}, Kind.LIFECYCLE, False),
        ({"prompt": "<task-notification>x</task-notification>", "commandMode": "prompt"}, Kind.LIFECYCLE, False),
        ({"prompt": "ls", "commandMode": "bash"}, Kind.HUMAN_INTERVENTION, False),
        ({"prompt": "and this", "isMeta": True}, Kind.LIFECYCLE, False),
    ],
)
def test_a_prompt_typed_while_the_agent_works_is_found_in_its_attachment(attachment, kind, is_turn):
    record = {"type": "attachment", "uuid": "q", "attachment": {"type": "queued_command", **attachment}}
    event = only(record)
    assert (event.kind, event.is_turn) == (kind, is_turn)


def test_a_prompt_of_many_blocks_is_one_turn_and_its_text_stands_for_it():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "A" * 8_000_000}}
    found = events(user([image, {"type": "text", "text": "see?"}, {"type": "text", "text": "well?"}]))

    assert [event.kind for event in found] == [Kind.USER_MSG] * 3
    assert [event.is_turn for event in found] == [False, True, False]
    assert found[0].summary == "image/jpeg, 6.0 MB"
    assert [event.is_turn for event in events(user([image]))] == [True]


def test_text_that_comes_with_a_tool_result_is_not_a_persons():
    found = events(user([*result("ok"), {"type": "text", "text": "Tool loaded."}]))
    assert [(event.kind, event.is_turn) for event in found] == [(Kind.TOOL_RESULT, False), (Kind.LIFECYCLE, False)]


# --- results and denials ----------------------------------------------------------------------------

SAID = "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to proceed, the user said:\n{}"


@pytest.mark.parametrize(
    ("content", "more", "kind", "is_turn", "summary"),
    [
        (SAID.format("use uv"), {}, Kind.HUMAN_INTERVENTION, True, "use uv"),
        (SAID.format("use uv\n\nNote: The user's next message may"), {}, Kind.HUMAN_INTERVENTION, True, "use uv"),
        ("The user doesn't want to take this action right now.", {}, Kind.HUMAN_INTERVENTION, False, "The user doesn't want to take this action right now."),
        ("Permission prompt was aborted.", {}, Kind.HUMAN_INTERVENTION, False, "Permission prompt was aborted."),
        ("[Request interrupted by user for tool use]", {}, Kind.HUMAN_INTERVENTION, False, "[Request interrupted by user for tool use]"),
        ("No.", {"toolDenialKind": "user-rejected"}, Kind.HUMAN_INTERVENTION, False, "No."),
        ("Tool call interrupted by a crash", {"toolDenialKind": "interrupted"}, Kind.TOOL_RESULT, False, "Tool call interrupted by a crash"),
        ("Claude requested permissions to write, but you haven't granted it yet.", {}, Kind.TOOL_RESULT, False, "Claude requested permissions to write, but you haven't granted it yet."),
        ("<tool_use_error>File has not been read yet.</tool_use_error>", {}, Kind.TOOL_RESULT, False, "File has not been read yet."),
    ],
)  # fmt: skip
def test_a_denial_is_a_persons_doing_and_any_other_failure_the_tools(content, more, kind, is_turn, summary):
    event = only(user(result(content, is_error=True), **more))
    assert (event.kind, event.is_turn, event.summary) == (kind, is_turn, summary)
    assert event.is_error is (kind is Kind.TOOL_RESULT)
    assert event.parent_key == "s:call:t"


def test_a_denial_within_a_side_chain_is_no_turn():
    event = only(user(result(SAID.format("use uv"), is_error=True), isSidechain=True))
    assert (event.kind, event.is_turn) == (Kind.HUMAN_INTERVENTION, False)


def test_words_about_a_denial_in_a_result_that_did_not_fail_are_only_words():
    event = only(user(result("The user doesn't want to proceed, says the log")))
    assert (event.kind, event.is_error) == (Kind.TOOL_RESULT, False)


def test_a_tracebacks_last_line_is_its_summary():
    text = 'Exit code 1\nTraceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: no kite\n'
    assert only(user(result(text, is_error=True))).summary == "Exit code 1: ValueError: no kite"


def test_results_in_every_shape_give_one_event_each():
    shapes = [
        None,
        "",
        "text",
        [],
        [{"type": "text", "text": "a"}],
        ["b"],
        {"x": "c"},
        7,
        [None, 7, {"type": "tool_reference", "tool_name": "Grep"}],
    ]
    found = events(user([block for shape in shapes for block in result(shape)]))
    assert [event.kind for event in found] == [Kind.TOOL_RESULT] * len(shapes)
    assert [event.text for event in found][2:7] == ["text", "", "a", "b", "c"]


def test_a_shared_result_record_does_not_guess_which_call_started_the_agent():
    record = user([*result("a"), *result("b")], toolUseResult={"agentId": "f1"})
    assert not [each for each in parse(record) if isinstance(each, Link) and each.key == "s:agent:f1"]


# --- answers, calls, tokens -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "kind", "summary", "files"),
    [
        (call("Bash", command="ls -l\npwd", description="List"), Kind.TOOL_CALL, "ls -l pwd", ()),
        (call("Bash", command="uv run pytest | tail -3"), Kind.TEST_RUN, "uv run pytest | tail -3", ()),
        (call("Bash", command="git commit -m 'pytest'"), Kind.TOOL_CALL, "git commit -m 'pytest'", ()),
        (call("Read", file_path="/a.py"), Kind.TOOL_CALL, "/a.py", ()),
        (call("Write", content="x = 1", file_path="/a.py"), Kind.EDIT, "/a.py", ("/a.py",)),
        (call("MultiEdit", file_path="/a.py", edits=[]), Kind.EDIT, "/a.py", ("/a.py",)),
        (call("NotebookEdit", notebook_path="/a.ipynb", new_source="1"), Kind.EDIT, "/a.ipynb", ("/a.ipynb",)),
        (call("Edit"), Kind.EDIT, "Edit", ()),
        (call("Grep", path="src", pattern="def x"), Kind.TOOL_CALL, "def x", ()),
        (call("Agent", prompt="long", description="Short"), Kind.TOOL_CALL, "Short", ()),
        (call("ExitPlanMode", plan="# Plan\n1. fly"), Kind.DECISION, "# Plan 1. fly", ()),
        (call("AskUserQuestion", questions=[{"question": "A?"}, {"question": "B?"}]), Kind.DECISION, "A? / B?", ()),
        (call("TodoWrite", todos=[{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]), Kind.TOOL_CALL, "1/2 done, now: b", ()),
        (call("mcp__kite__fly", height=3, mood="high"), Kind.TOOL_CALL, "high", ()),
        ([{"type": "server_tool_use", "id": "t", "name": "web_search", "input": {"query": "wind"}}], Kind.TOOL_CALL, "wind", ()),
    ],
)  # fmt: skip
def test_a_call_is_named_by_what_it_does(blocks, kind, summary, files):
    records = parse(assistant(blocks))
    (event,) = (each for each in records if isinstance(each, Event))
    assert (event.kind, event.summary, event.files, event.tool) == (kind, summary, files, blocks[0]["name"])
    assert Link("s:call:t", "g:a#0", None) in records


def test_the_result_of_a_tool_of_the_provider_joins_its_call():
    block = {
        "type": "web_search_tool_result",
        "tool_use_id": "t",
        "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
    }
    event = only(assistant([block]))
    assert (event.kind, event.is_error, event.parent_key) == (Kind.TOOL_RESULT, True, "s:call:t")


def test_a_call_without_a_uuid_is_still_found_by_its_result():
    record = assistant(call("Bash", command="ls"))
    del record["uuid"]
    assert only(record).key == "s:call:t"


@pytest.mark.parametrize(
    ("message_id", "request_id", "uuid", "key"),
    [
        ("m", "r", "a", "g:usage:m:r"),
        ("m", None, "a", "g:usage:m"),
        (None, "r", "a", "g:usage::r"),
        (None, None, "a", "g:usage:a"),
    ],
)
def test_usage_is_known_by_its_response(message_id, request_id, uuid, key):
    record = assistant("hi", message={"id": message_id, "usage": {"output_tokens": 5}}, requestId=request_id, uuid=uuid)
    (usage,) = (each for each in parse(record) if isinstance(each, Usage))
    assert (usage.key, usage.output_tokens, usage.input_tokens, usage.event_key) == (key, 5, None, "g:a#0")


def test_reasoning_is_part_of_the_output_and_zero_means_unknown():
    def of(number):
        spent = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": number}}
        return next(
            e for e in parse(assistant("hi", message={"usage": spent})) if isinstance(e, Usage)
        ).reasoning_tokens

    assert (of(4), of(0), of("x")) == (4, None, None)


def test_usage_without_any_name_is_counted_once_per_line():
    def of(number):
        record = {"type": "assistant", "message": {"content": "hi", "usage": {"output_tokens": number}}}
        return next(each for each in parse(record) if isinstance(each, Usage)).key

    assert of(1) == of(1) != of(2)


@pytest.mark.parametrize("usage", [None, [], "x", {}, {"output_tokens": "5"}, {"output_tokens": -1}])
def test_usage_that_says_nothing_is_none(usage):
    assert not [each for each in parse(assistant("hi", message={"usage": usage})) if isinstance(each, Usage)]


def test_what_the_client_wrote_in_the_models_name_costs_nothing_and_completes_nothing():
    message = {"model": "<synthetic>", "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
    assert [type(each) for each in parse(assistant("API Error: 500", message=message))] == [Event, Link]


def test_thinking_never_shows_its_signature():
    block = {"type": "thinking", "thinking": "hm", "signature": "SIGNATURE"}
    event = only(assistant([block]))
    assert (event.kind, event.text, event.summary) == (Kind.THINKING, "hm", "hm")


@pytest.mark.parametrize(("stop", "completions"), [("end_turn", 1), ("tool_use", 0), (None, 0)])
def test_a_turn_is_complete_where_the_agent_says_so(stop, completions):
    found = events(
        assistant([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], message={"stop_reason": stop})
    )
    assert Counter(event.kind for event in found) == Counter({Kind.ASSISTANT_MSG: 2, Kind.COMPLETION: completions})


def test_a_response_that_ends_a_turn_without_a_word_completes_nothing():
    assert [
        e.kind for e in events(assistant([{"type": "thinking", "thinking": "x"}], message={"stop_reason": "end_turn"}))
    ] == [Kind.THINKING]


# --- system, chains, facts --------------------------------------------------------------------------


@pytest.mark.parametrize(("attempt", "kind"), [(1, Kind.RETRY), (10, Kind.ERROR), (None, Kind.RETRY)])
def test_a_failed_request_is_a_retry_until_the_last_one(attempt, kind):
    event = only({"type": "system", "uuid": "s", "subtype": "api_error", "retryAttempt": attempt, "maxRetries": 10})
    assert (event.kind, event.is_error) == (kind, kind is Kind.ERROR)


@pytest.mark.parametrize(
    ("subtype", "kind"),
    [
        ("error", Kind.ERROR),
        ("api_refusal", Kind.ERROR),
        ("model_refusal_fallback", Kind.ERROR),
        ("away_summary", Kind.LIFECYCLE),
        ("local_command", Kind.LIFECYCLE),
        ("not yet thought of", Kind.LIFECYCLE),
        (None, Kind.LIFECYCLE),
    ],
)
def test_system_records_are_one_event_each(subtype, kind):
    assert only({"type": "system", "uuid": "s", "subtype": subtype, "content": "x"}).kind is kind


def test_a_record_that_is_its_own_parent_is_no_loop():
    assert parse({"type": "progress", "uuid": "p", "parentUuid": "p"}) == [Link("g:p", None, None)]


def test_an_unknown_type_is_counted_and_stays_in_the_chain():
    assert parse({"type": "x" * 500, "uuid": "n", "parentUuid": "p"}) == [Unknown("x" * 80), Link("g:n", "g:p", None)]
    assert parse({"uuid": "n"}) == [Unknown("(no type)")]


@pytest.mark.parametrize(
    "record",
    [
        {"type": "summary", "summary": "Title of another session", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "u", "snapshot": {"timestamp": "1999-01-01T00:00:00.000Z"}},
        {"type": "queue-operation", "operation": "remove", "content": "never sent"},
        {"type": "api-request-blob", "message": {"role": "user", "content": "again"}},
        {"type": "cost-state", "modelUsage": {"m": {"inputTokens": 5}}},
    ],
)
def test_records_that_only_repeat_others_mean_nothing(record):
    assert parse(record) == []


def test_a_mode_is_a_decision_only_when_it_changes():
    carry = {}
    emitted = [parse({"type": "mode", "mode": mode}, carry) for mode in ("normal", "normal", "plan", "plan", "normal")]
    assert [[each.summary for each in records] for records in emitted] == [
        [],
        [],
        ["mode: normal -> plan"],
        [],
        ["mode: plan -> normal"],
    ]


def test_a_long_session_says_each_fact_once():
    carry = {}
    more = {"cwd": "/w", "gitBranch": "main", "version": "2.1.0", "timestamp": "2026-01-01T00:00:00.000Z"}
    facts = [[f for f in parse(user(f"prompt {n}", **more), carry) if isinstance(f, Fact)] for n in range(100)]
    assert [fact.name for fact in facts[0]] == ["cwd", "last_cwd", "git_branch", "version", "title"]
    assert not any(facts[1:])
    assert len(orjson.dumps(carry)) < 300


def test_the_first_folder_stays_and_the_last_one_is_known_beside_it():
    carry = {}
    facts = [f for cwd in ("/a", "/b", "/a") for f in parse(user("x", cwd=cwd), carry) if isinstance(f, Fact)]
    assert [(f.name, f.value) for f in facts if f.name.endswith("cwd")] == [
        ("cwd", "/a"),
        ("last_cwd", "/a"),
        ("last_cwd", "/b"),
        ("last_cwd", "/a"),
    ]


def test_titles_rank_by_who_gave_them():
    ranks = {
        name: parse({"type": kind, name: "T"})[0].rank
        for kind, name in (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("agent-name", "agentName"))
    }
    assert ranks == {"customTitle": 0, "aiTitle": 1, "agentName": 2}


# --- bounds and breakage ------------------------------------------------------------------------------


def test_no_base64_reaches_a_summary_or_the_search_index():
    data = base64.b64encode(b"\x89PNG" * 3_000).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    records = [
        user([image, {"type": "text", "text": "look"}]),
        user(result([image, {"type": "text", "text": "seen"}])),
        user(result({"nested": image})),
        assistant(call("Paint", canvas={"picture": data})),
        {"type": "attachment", "uuid": "q", "attachment": {"type": "queued_command", "prompt": [image]}},
    ]
    for record in records:
        for event in events(record):
            assert data[:100] not in event.text
            assert data[:100] not in event.summary


def test_text_is_bounded_and_keeps_both_ends():
    text = "begin " + "x " * 1_000_000 + "end"
    for event in (
        only(user(text)),
        only(user(result(text))),
        only(assistant(text)),
        only(assistant(call("Write", content=text))),
    ):
        assert len(event.text) <= 20_010
        assert event.text.startswith("begin ")
        assert event.text.endswith("end")
        assert len(event.summary) <= 300


def test_a_line_separator_within_a_string_does_not_split_it():
    data = '{"type":"user","uuid":"u","message":{"content":"one\u2028two"}}'.encode()
    (event,) = (each for each in ADAPTER.parse(Line(0, data), {}) if isinstance(each, Event))
    assert (event.text, event.summary) == ("one\u2028two", "one two")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "content", "id", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
LINES = [orjson.loads(line.data) for sample in samples_of(ADAPTER, SAMPLES / "claude") for line in sample.lines]


def _paths(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _paths(child, (*path, key))


@st.composite
def mutated(draw):
    record = copy.deepcopy(draw(st.sampled_from(LINES)))
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([path for path in _paths(record) if path]))
        place = record
        for key in way:
            place = place[key]
        place[last] = draw(JSON)
        if not record:
            break
    return record


@settings(max_examples=400, deadline=None)
@given(mutated() | st.dictionaries(st.sampled_from(["type", "message", "uuid", "attachment"]), JSON))
def test_any_json_object_is_read_or_rejected_but_never_breaks_the_adapter(record):
    carry = {}
    try:
        records = parse(record, carry)
    except BadRecord:
        return
    assert [fault for each in records for fault in faults_of(each)] == []
    orjson.dumps(carry)


# --- what was really served ---------------------------------------------------------------------------


def _served():
    listing = SHARED_FIXTURES / "real" / "expected.json"
    if not listing.exists():
        return [pytest.param(None, marks=pytest.mark.skip("no fixtures at ../shared/fixtures/real"))]
    rows = [row for row in orjson.loads(listing.read_bytes()) if row["client"] == "claude"]
    return [pytest.param(row, id=f"session {row['session_no']}") for row in rows]


@pytest.mark.parametrize("row", _served())
def test_a_real_session_is_found_as_it_was_served(row):
    wanted = {str(PurePosixPath(file).relative_to("claude")) for file in row["files"]}
    samples = [s for s in samples_of(ADAPTER, SHARED_FIXTURES / "real/claude") if str(s.path) in wanted]
    emitted = [r for s in samples for _, rs in read(ADAPTER, s.lines, s.carry).records for r in rs]
    found = [each for each in emitted if isinstance(each, Event)]
    kinds = Counter(event.kind for event in found)
    spent = {}
    for usage in (each for each in emitted if isinstance(each, Usage)):
        numbers = (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        )
        spent[usage.key] = tuple(max(a, b or 0) for a, b in zip(spent.get(usage.key, (0,) * 4), numbers, strict=True))
    totals = tuple(map(sum, zip(*spent.values(), strict=True)))
    served = row["served"]

    assert len(samples) == len(wanted)
    assert sum(event.is_turn for event in found) == served["prompts"]
    assert kinds[Kind.ASSISTANT_MSG] == served["texts"]
    assert kinds[Kind.THINKING] == served["thinking"]
    assert sum(kinds[k] for k in (Kind.TOOL_CALL, Kind.EDIT, Kind.TEST_RUN, Kind.DECISION)) == served["tool_calls"]
    assert kinds[Kind.TOOL_RESULT] == row["found"]["tool_results"]
    assert sum(e.is_error for e in found if e.kind is Kind.TOOL_RESULT) == row["found"]["tool_errors"]
    assert kinds[Kind.RETRY] + kinds[Kind.ERROR] == served.get("api_errors", 0)
    assert len(spent) == served["answers"]
    assert totals == tuple(served[f"tok_{name}"] for name in ("input", "output", "cached", "created"))
