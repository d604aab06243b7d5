"""Where the pages allow another reading: session -> field -> which other values are as good, and why.

`also` lists them; ANY means that the fixture decides nothing there. Fields are those of the reports in
expected_*.json, a kind being "events.<kind>" (a kind that is not listed is 0).
"""

from __future__ import annotations

from typing import Any

from tally import TOKENS

ANY = None
Readings = dict[str, dict[str, Any]]


def also(why: str, **fields: Any) -> Readings:
    """Field names with a double underscore for the dot: events__lifecycle."""
    return {name.replace("__", "."): {"also": values, "why": why} for name, values in fields.items()}


RESUMED, ORIGINAL = (
    "claude:789e105f-ae33-486d-9271-0696266f072d",
    "claude:93a9705e-bc6a-406d-8dce-8acc014dedbd",
)
TIE = "equal first times, so the native id decides and the copy owns; the original may own if the time-less summary line counts as first"
PLACEHOLDERS = "synthetic coverage: 45 records share one placeholder uuid, so the fixture decides nothing here"
IDE = "an IDE context block is no envelope on the page (user_msg), but it is injected (lifecycle)"
COUNTED = (
    *("event_total", "calls", "results_joined", "tool_result_errors", "turns", "sidechain_events", "retries"),
    *("ended_at", "replayed_records", "title", *TOKENS),
)
KINDS = (
    *(
        "user_msg",
        "assistant_msg",
        "thinking",
        "tool_call",
        "tool_result",
        "error",
        "test_run",
        "edit",
        "retry",
    ),
    *("human_intervention", "decision", "lifecycle", "completion"),
)


def nothing_decided(why: str) -> Readings:
    names = [*COUNTED, *(f"events.{kind}" for kind in KINDS)]
    return {name: {"also": ANY, "why": why} for name in names}


BY_SESSION: dict[str, Readings] = {
    RESUMED: also(
        TIE,
        events__user_msg=[1],
        events__assistant_msg=[1],
        event_total=[4],
        turns=[1],
        input_tokens=[10],
        output_tokens=[95],
        cache_write_tokens=[17936],
        parent_uid=[ORIGINAL],
        replayed_records=[2],
        started_at=["2025-07-19T22:32:45.364Z"],
    ),
    ORIGINAL: also(
        TIE,
        events__user_msg=[1],
        events__assistant_msg=[1],
        event_total=[2],
        turns=[1],
        input_tokens=[4],
        output_tokens=[5],
        cache_write_tokens=[17755],
        cache_read_tokens=[0],
        parent_uid=[None],
        replayed_records=[0],
        started_at=["2025-07-19T22:21:00.576Z"],
        ended_at=["2025-07-19T22:21:04.265Z"],
    ),
    "claude:ses_stage0_small": nothing_decided(PLACEHOLDERS),
    "claude:dag_within_fork": also(
        "one uuid, two messages: the record is a replay, but its response id (e, req_2) is found in no other session",
        input_tokens=[30],
        output_tokens=[16],
        event_total=[4],
        events__completion=[2],
        started_at=["2025-07-01T10:04:00.000Z"],
    ),
    "claude:5ed31c36-bca8-40fd-8d24-f1a1f0af7901": also(IDE, events__user_msg=[1], events__lifecycle=[1]),
    "claude:7acd37a8-2745-4b58-a8a9-46164b22ad9e": also(IDE, events__user_msg=[6], events__lifecycle=[3]),
    "claude:10a740e118e0-progress": also(
        "/ide is not among the local commands the page names, though it is one",
        events__user_msg=[1],
        events__lifecycle=[7],
        turns=[1],
    ),
    "claude:1af7fc5e-8455-4414-9ccd-011d40f70b2a": also(
        '"you haven\'t granted it yet": a permission was missing, but no person said no',
        events__human_intervention=[1],
        events__tool_result=[11],
        tool_result_errors=[0],
    ),
    "claude:33210c2e180b-api-errors": also(
        "`mise run test` is a task named test, no test runner by name",
        events__test_run=[0],
        events__tool_call=[12],
    ),
    "claude:a6e4c2a0fbd1-compaction": also(
        "`mise run test` is a task named test, no test runner by name",
        events__test_run=[1],
        events__tool_call=[6],
    ),
    "claude:03eb5929-52b3-4b13-ada3-b93ae35806b8": also(
        "six text blocks hold only two newlines", events__assistant_msg=[8], event_total=[35]
    ),
    "claude:c1d0a6cf-1f6c-4bb0-9a5a-2b0c2f5f9d10": also(
        "its only usage is the zeros of an API error message", **{name: [None] for name in TOKENS}
    ),
    "hive:session_20260904_101531_f2a74de4": also(
        "one verdict RETRY in the log; progress.total_retries, which the page takes, counts node attempts: 3",
        retries=[3],
    ),
    "codex:019e1625-789d-76c0-80ab-3724b5ddb799": also(
        "4 write_stdin results state a non-zero exit, and exec_command_end the same of the 4 calls that began those "
        'processes; "write_stdin failed: stdin is closed" has no mark that the page names',
        tool_result_errors=[4, 5, 9],
    ),
    "codex:019fc8be-3658-7ca3-9e29-000000000000": nothing_decided(
        PLACEHOLDERS.replace("45 records share", "most records have")
    ),
    "codex:rollout-2026-08-03T11-00-00-schema-drift": also(
        "a bare function_call without an id line before it: flat era or unknown",
        events__tool_call=[0],
        event_total=[0],
        calls=[0],
    ),
    "grok:ba14ea9c-aeef-4303-8b22-22a17222e4b5": also(
        "a turn whose process was killed, closed at the next resume: a failed turn, an interrupt, or bookkeeping",
        events__error=[0],
        events__human_intervention=[1],
        events__lifecycle=[2],
    ),
    "codex:d737f9cd-6391-49d6-a3b4-10a0b53c33a3": also(
        '"Search error: ... HTTP 400" has no mark that the page names', tool_result_errors=[1]
    ),
    "gemini:d4a29714-0146-4de1-8f95-d849038eeb50": also(
        "three commands exit with 1, 2 and 3, which the client calls a success; it marks only the missing file",
        tool_result_errors=[1],
    ),
    "qwen:f3880224-524b-4d1b-a2b0-cd3552faee2b": also(
        "a side job of the client (memory extraction) spent 13278 more: its own line says so, no answer shows it",
        input_tokens=[12729],
        output_tokens=[26],
        cache_read_tokens=[0],
    ),
}
FLAT = (
    "84b6da18-7357-4ad0-89d6-64f637ddde0d",
    "d7a9e0da-90d6-4fd8-bb06-4f3ccabcdf8a",
    "d737f9cd-6391-49d6-a3b4-10a0b53c33a3",
)
FORKS = ("child-session", "sibling-a-session", "sibling-b-session")


def unsettled(uid: str, report: dict[str, Any]) -> Readings:
    """What of one session's report may differ: the general cases first, its own on top."""
    found: Readings = {}
    if not report["event_total"]:
        found |= also("no event: nothing to count", turns=[None], retries=[None])
    flavor, _, native = uid.partition(":")
    if flavor == "codex":
        found |= codex_in_general(native, report)
    if flavor == "hive":
        found |= hive_in_general(report)
    if flavor == "grok":
        why = "the page takes created_at and last_active_at of summary.json; a chat history has no time but its mtime"
        found |= also(why, started_at=ANY, ended_at=ANY)
    if flavor in ("qwen", "gemini") and report["input_tokens"] is not None:
        found |= also("the format has no such number: unknown, or none", cache_write_tokens=[0])
    return found | BY_SESSION.get(uid, {})


def codex_in_general(native: str, report: dict[str, Any]) -> Readings:
    found = also("page section 8 takes the meta's own timestamp", started_at=[report["meta_timestamp"]])
    found |= also("the last own record need not be an event (page section 8)", ended_at=[report["last_record_at"]])
    if report["input_tokens"] is not None and report["cache_write_tokens"] is None:
        found |= also("no such number in this version: unknown, or none", cache_write_tokens=[0])
    fewer = {
        "events__lifecycle": [report["events"].get("lifecycle", 0) - 1],
        "event_total": [report["event_total"] - 1],
    }
    if native in FLAT:
        found |= also("whether the flat id line is a session_meta", **fewer)
        found |= also("the page takes the file's mtime", ended_at=ANY)
    if native in FORKS:
        found |= also("whether the turn_context after a fork's meta is its own or a replay", **fewer)
    if native.startswith("sibling-"):
        found |= also("the parent is no session here", parent_uid=[None])
    return found


def hive_in_general(report: dict[str, Any]) -> Readings:
    found = also(
        "local times without a zone: they depend on the machine; a log without times is as old as its file",
        started_at=ANY,
        ended_at=ANY,
    )
    if report["turns"] is None:
        said = report["events"].get("user_msg", 0)
        found |= also("null once the fact turns_unknown is heeded; what was said is counted until then", turns=[said])
    return found
