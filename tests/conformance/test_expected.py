"""The expectations themselves: they follow from the raw files, agree with what was counted by hand, and with what
the model server of the real clients says that it served. (Whether sessiond agrees is another test's business.)
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[2] / "shared" / "fixtures"

pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the shared fixture folder is not beside this project")

# Counted from the lines by eye, not by derive.py: home, session, field, value.
BY_HAND = [
    ("claude", "claude:a6e4c2a0fbd1-compaction", "events.lifecycle", 8),
    ("claude", "claude:a6e4c2a0fbd1-compaction", "event_total", 50),
    ("claude", "claude:10a740e118e0-progress", "event_total", 19),
    ("claude", "claude:71c9afe9-d9cc-4583-86b3-e62ba682b83a", "events.lifecycle", 6),
    ("claude", "claude:4379d1bf-ccb1-414e-a856-9791b73f3af2", "turns", 1),
    ("claude", "claude:sidechain-inline-1.0.35", "sidechain_events", 8),
    ("claude", "claude:task_non_sdk", "output_tokens", 1163),
    ("claude", "claude:29ccd257-68b1-427f-ae5f-6524b7cb6f20", "input_tokens", 4468),
    ("claude", "claude:permission-prompt-aborted", "events.human_intervention", 2),
    ("claude", "claude:eb000000-0000-4000-8000-000000000001", "events.lifecycle", 1),
    ("claude", "claude:11110000-0000-4000-8000-000000000001", "events.completion", 3),
    ("claude", "claude:741790a4-4fe2-4644-9a51-fb4482074060", "sidechain_events", 17),
    ("claude", "claude:ef958aa1-0e93-49f0-bb71-150f63befcd1", "sidechain_events", 117),
    ("claude", "claude:7acd37a8-2745-4b58-a8a9-46164b22ad9e", "turns", 6),
    ("claude", "claude:789e105f-ae33-486d-9271-0696266f072d", "cache_write_tokens", 35691),
    ("claude", "claude:dag_within_fork", "event_total", 3),
    ("claude", "claude:schema_drift", "event_total", 1),
    ("claude", "claude:truncated", "rejects", {"not_json": 1}),
    ("codex with archived-fork", "codex:0199812e-64f0-7f73-91fc-095dda01c36e", "output_tokens", 8337 + 335),
    ("codex with archived-fork", "codex:0199812e-64f0-7f73-91fc-095dda01c36e", "tool_result_errors", 12),
    (
        "codex with archived-fork",
        "codex:019cc1e9-6537-70a3-a8cd-d2957e043dd4",
        "events.human_intervention",
        4,
    ),
    ("codex with archived-fork", "codex:84b6da18-7357-4ad0-89d6-64f637ddde0d", "event_total", 32),
    # The last running totals, less those of the parent (or of the prefix that both siblings repeat).
    ("codex with archived-fork", "codex:child-session", "output_tokens", 55895 - 38414),
    ("codex with archived-fork", "codex:sibling-b-session", "output_tokens", 38477 - 38414),
    ("codex with live-fork", "codex:child-session", "output_tokens", 109637 - 102678),
    ("codex/incremental/turn-2", "codex:a1b2c3d4-e5f6-7890-abcd-ef1234567890", "event_total", 12),
    ("codex/incremental/turn-spawn-skill", "codex:spawn-test-uuid", "event_total", 11),
    ("hive", "hive:session_20260904_101501_52e6b438", "event_total", 19),
    ("hive", "hive:session_20260904_101501_52e6b438", "input_tokens", 1200 + 1500 + 1600 + 2000),
    ("hive", "hive:session_20260904_101531_f2a74de4", "events.error", 2),  # the node and the run, not the state again
    ("hive", "hive:session_20260904_101531_f2a74de4", "events.human_intervention", 1),
    ("hive", "hive:session_20260906_101501_a6a3a450", "events.lifecycle", 2),  # run_started, and the node that ended
    ("hive", "hive:session_20260907_101501_d23f0824", "input_tokens", 5100 - 4096 - 512),
    ("hive", "hive:session_20260907_101501_d23f0824", "events.lifecycle", 5),
    ("hive/state-sequence/04-completed", "hive:session_20260910_081500_5e9c0ffe", "event_total", 3),
    # What the programs were made to do (SOURCES), and the lines of a fork that are its own.
    ("grok/.grok", "grok:019f7a00-0000-7000-8000-00000000a001", "input_tokens", 75812),
    ("grok/.grok", "grok:019f7a00-0000-7000-8000-00000000a001", "event_total", 23),
    ("grok/.grok", "grok:019f7a00-0000-7000-8000-00000000a003", "events.retry", 9),
    ("grok/.grok", "grok:019f7a00-0000-7000-8000-00000000a004", "events.error", 2),
    ("grok/.grok", "grok:019f7a00-0000-7000-8000-00000000a005", "input_tokens", 49455 - 1024),
    ("grok/.grok", "grok:019f7a00-0000-7000-8000-00000000a006", "event_total", 4),
    ("grok/.grok", "grok:019f7a00-0000-7000-8000-00000000a006", "input_tokens", 15973),
    ("grok/.grok", "grok:01a1ed5c-c18c-7b51-9891-73a24cb2f2ed", "events.human_intervention", 2),
    ("grok/.grok", "grok:01a1ed5c-e26e-7af1-a165-ece1bdc39bc5", "events.human_intervention", 2),
    ("grok/.grok", "grok:01a1ed5c-abd5-76b1-86d6-bfeec9ea3301", "tool_result_errors", 3),
    ("grok/.grok", "grok:01a1ed5e-729c-7450-9a0e-aa498693a67f", "turns", 0),
    ("grok/.grok", "grok:01a1ed5e-729c-7450-9a0e-aa498693a67f", "sidechain_events", 7),
    ("grok/agentsview-goldens", "grok:019f6000-0000-7000-8000-000000000001", "event_total", 9),
    ("grok/agentsview-goldens", "grok:019f6000-0000-7000-8000-000000000002", "event_total", 6),
    ("real/pi", "pi:01a1ed76-333b-7362-9533-690afe583758", "event_total", 14),
    ("real/pi", "pi:01a1ed76-588a-7075-bdbb-fc253cbe4685", "events.error", 1),
    ("real/qwen", "qwen:37d7c674-0c07-4434-b4fb-1e34ac2a1352", "event_total", 15),
    ("real/qwen", "qwen:cc3715c7-3674-49b2-bd1d-81855f9d9c01", "sidechain_events", 5),
    ("real/gemini", "gemini:d4a29714-0146-4de1-8f95-d849038eeb50", "event_total", 16),
    ("real/gemini", "gemini:c0555f96-9e0f-4695-b73b-16433130dfc8", "sources", 2),
]


def expected() -> dict:
    files = sorted(HERE.glob("expected_*.json"))
    return {home: value for file in files for home, value in json.loads(file.read_text()).items()}


def test_expectations_follow_from_the_raw_files():
    run = subprocess.run([sys.executable, HERE / "derive.py", "--check"], capture_output=True, text=True)

    assert run.returncode == 0, run.stderr or "expected_*.json is stale: run tests/conformance/derive.py"


@pytest.mark.parametrize(("home", "uid", "name", "value"), BY_HAND)
def test_what_was_counted_by_hand(home, uid, name, value):
    report = expected()[home]["sessions"][uid]
    group, _, kind = name.rpartition(".")

    assert (report[group].get(kind, 0) if group else report[name]) == value


@pytest.mark.parametrize("client", ["claude", "codex", "grok"])
def test_tokens_are_those_the_model_server_served(client):
    home = expected()[f"real/{client}"]
    runs = [run for run in json.loads((FIXTURES / "real" / "expected.json").read_text()) if run["client"] == client]

    assert len(runs) >= 4
    for run in runs:
        stems = [Path(name).parent.name if client == "grok" else Path(name).stem for name in run["files"]]
        reports = [
            report
            for uid, report in home["sessions"].items()
            if any(s.endswith(uid.partition(":")[2]) for s in stems) and not report.get("is_sidechain")
        ]
        for ours, theirs in (
            ("input_tokens", "tok_input"),
            ("output_tokens", "tok_output"),
            ("cache_read_tokens", "tok_cached"),
        ):
            assert sum(report[ours] for report in reports) == run["served"][theirs], (run["session_no"], ours)


# What the clients' files have that the server did not count, or lack: (client, session number) -> field -> served less found.
EXPLAINED = {
    ("gemini", 8): {"tool_calls": 1},  # killed in the middle of the call: it was never written
    # A side job (memory extraction): one line of the client's, `aux` to the server, which counts no tokens of those.
    ("qwen", 7): {"tok_input": -(13278 - 512), "tok_cached": -512, "tok_output": -4},
}


@pytest.mark.parametrize("client", ["pi", "qwen", "gemini"])
def test_what_the_model_server_served_is_there_or_its_absence_explained(client):
    home = expected()[f"real/{client}"]
    runs = [run for run in json.loads((FIXTURES / "real" / "expected.json").read_text()) if run["client"] == client]

    assert len(runs) == len(home["sessions"])
    for run in runs:
        heads = "".join((FIXTURES / "real" / name).read_text()[:300] for name in run["files"])
        (report,) = (report for uid, report in home["sessions"].items() if uid.partition(":")[2] in heads)
        kinds, served = report["events"], run["served"]
        found = {
            "prompts": report["turns"],
            "tool_calls": report["calls"],
            "thinking": kinds.get("thinking", 0),
            "texts": kinds.get("assistant_msg", 0),
            "api_errors": kinds.get("error", 0) + kinds.get("retry", 0),
            "tok_input": report["input_tokens"],
            "tok_cached": report["cache_read_tokens"],
            "tok_output": report["output_tokens"],
        }
        less = {name: served.get(name, 0) - value for name, value in found.items() if served.get(name, 0) != value}
        assert less == EXPLAINED.get((client, run["session_no"]), {})
