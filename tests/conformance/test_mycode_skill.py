"""mycode and skill over their real files, against the independent reading of derive_mycode.py and derive_skill.py."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import FIXTURES, Lab
from sessiond.cli.visible import visible_events
from sessiond.store import restore
from sessiond.store.connect import rows
from tests.conformance.test_conformance import differences, found

HERE = Path(__file__).resolve().parent
EXPECTED = {
    home: (flavor, wanted)
    for flavor in ("mycode", "skill")
    for home, wanted in json.loads((HERE / f"expected_{flavor}.json").read_text()).items()
}
STATED = ("outcome", "model", "task_ref", "wall_clock_s")
LABELS = {
    "normal": "6e6f726d616c00000000000000000000",
    "compact": "636f6d70616374000000000000000000",
    "rewind": "726577696e6400000000000000000000",
    "interrupted": "696e7465727275707465640000000000",
    "cancelled": "63616e63656c6c656400000000000000",
    "reused": "72657573656400000000000000000000",
    "cleared": "636c6561726564000000000000000000",
}


def agent_home(lab: Lab, flavor: str) -> Path:
    return lab.user_home / (".mycode" if flavor == "mycode" else "brain/sessions")


def lay_out(lab: Lab, flavor: str, files: dict[str, str]) -> None:
    lab.write_config('[sources.skill]\nroots = ["~/brain/sessions"]\n')
    for fixture, below in files.items():
        target = agent_home(lab, flavor) / below
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FIXTURES / fixture, target)


def with_stated(lab: Lab) -> dict[str, dict]:
    """Besides what is compared for every agent: what these two state."""
    result = found(lab)
    for uid, session in lab.sessions().items():
        result[uid] |= {
            "outcome": session.outcome,
            "model": session.model,
            "task_ref": session.task_ref,
            "wall_clock_s": session.cost.wall_clock_s,
        }
    return result


def stated_differences(wanted: dict, got: dict) -> list[str]:
    found = []
    for name in STATED:
        also = wanted["unsettled"].get(name, {"also": ()})["also"]
        if name in wanted and got[name] != wanted[name] and got[name] not in also:
            found.append(f"{name}: expected {wanted[name]!r}, found {got[name]!r}")
    return found


@pytest.mark.parametrize("home", EXPECTED)
def test_every_session_is_what_the_files_say(home, lab, fixtures):
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])

    lab.ingest()

    got = with_stated(lab)
    assert sorted(got) == sorted(wanted["sessions"])
    for report in wanted["sessions"].values():
        report["title"] = report["title"] and report["title"].strip()  # a title is one line: no blanks at its ends
    wrong = {
        uid: [*differences(each, got[uid]), *stated_differences(each, got[uid])]
        for uid, each in wanted["sessions"].items()
    }
    assert not {uid: each for uid, each in wrong.items() if each}, json.dumps(wrong, indent=1, ensure_ascii=False)


@pytest.mark.parametrize("home", EXPECTED)
def test_the_order_of_files_changes_nothing(home, fixtures, tmp_path):
    flavor, wanted = EXPECTED[home]
    outcomes = []
    for seed in range(3):
        lab = Lab(tmp_path / str(seed))
        files = list(wanted["files"].items())
        random.Random(seed).shuffle(files)
        for step in range(0, len(files), 5):
            lay_out(lab, flavor, dict(files[step : step + 5]))
            lab.ingest()
        outcomes.append((lab.event_rows(), lab.usage_rows(), titles_and_times(lab)))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])


def titles_and_times(lab: Lab) -> list[tuple]:
    return sorted((s.session_uid, s.title, s.cwd, s.model, s.started_at) for s in lab.sessions().values())


@pytest.mark.parametrize("home", EXPECTED)
def test_every_file_comes_back_byte_for_byte(home, lab, fixtures):
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])
    lab.ingest()

    with lab.store() as db:
        for uid in lab.sessions():
            restore.write(db, restore.plan(db, uid), lab.folder / "restored")

    for fixture, below in wanted["files"].items():
        assert (lab.folder / "restored" / below).read_bytes() == (FIXTURES / fixture).read_bytes()


@pytest.mark.parametrize("flavor", ["mycode", "skill"])
def test_expectations_follow_from_the_raw_files(flavor, fixtures):
    run = subprocess.run([sys.executable, HERE / f"derive_{flavor}.py", "--check"], capture_output=True, text=True)

    assert run.returncode == 0, run.stderr or f"expected_{flavor}.json is stale: run derive_{flavor}.py"


# Counted from the lines by eye.
BY_HAND = [
    ("mycode", "mycode:" + LABELS["normal"], "event_total", 20),
    ("mycode", "mycode:" + LABELS["normal"], "input_tokens", 410 + 136 + 88 + 124 + 205),
    ("mycode", "mycode:" + LABELS["interrupted"], "input_tokens", 31 + 44),
    ("mycode", "mycode:" + LABELS["interrupted"], "tool_result_errors", 2),
    ("mycode", "mycode:" + LABELS["compact"], "output_tokens", 11 + 20 + 18 + 40),
    ("mycode", "mycode:" + LABELS["cancelled"], "tool_result_errors", 1),
    ("mycode 0.21", "mycode:21b", "turns", 3),
    ("skill", "skill:tdd-20260418-b", "event_total", 2 + 2 + 4 + 1 + 2),
    ("skill", "skill:review-20260504", "started_at", "2026-04-20T09:29:32.400Z"),
]


@pytest.mark.parametrize(("home", "uid", "name", "value"), BY_HAND)
def test_what_was_counted_by_hand(home, uid, name, value):
    assert EXPECTED[home][1]["sessions"][uid][name] == value


def test_tokens_are_those_the_model_server_served(fixtures):
    runs = [run for run in json.loads((FIXTURES / "real/expected.json").read_text()) if run["client"] == "mycode"]
    reports = EXPECTED["real/mycode"][1]["sessions"]
    assert len(runs) == 5
    for run in runs:
        report = reports["mycode:" + run["files"][0].split("/")[-2]]
        for ours, theirs in (
            ("input_tokens", "tok_input"), ("output_tokens", "tok_output"), ("cache_read_tokens", "tok_cached"),
            ("turns", "prompts"), ("calls", "tool_calls"),
        ):  # fmt: skip
            assert report[ours] == run["served"][theirs], (run["session_no"], ours)


@pytest.mark.parametrize(
    ("home", "native_id", "seen"),
    [
        ("mycode", LABELS["rewind"], ["one", "two again, differently"]),
        ("mycode 0.21", "21b", ["one", "three"]),
        ("mycode", LABELS["compact"], []),  # all before the summary is gone
        ("mycode 0.21", "21c", []),
        ("mycode", LABELS["normal"], ["Fix the greeting typo — run the tests ✓", "What changed?"]),
    ],
)
def test_what_would_be_seen_if_it_were_resumed(home, native_id, seen, lab, fixtures):
    lay_out(lab, "mycode", EXPECTED[home][1]["files"])
    lab.ingest()
    uid = f"mycode:{native_id}"

    with lab.store() as db:
        events = list(visible_events(db, uid, lab.events(uid)))

    prompts = [event.summary.partition(" ")[2] for event in events if event.kind == "user_msg"]
    assert prompts == seen
    assert not any(event.summary.startswith("rewound") for event in events)
    if not seen:
        assert [event.kind for event in events] == ["lifecycle"]


def test_an_agent_that_only_appends_shows_everything(lab, fixtures):
    lay_out(lab, "skill", EXPECTED["skill"][1]["files"])
    lab.ingest()
    with lab.store() as db:
        for uid in lab.sessions():
            assert list(visible_events(db, uid, lab.events(uid))) == lab.events(uid)


def test_a_session_cleared_and_used_again_keeps_what_was_there(lab, fixtures):
    """The `reused` fixture: 697 bytes, then 0, then 696 with other content, with or without a look in between."""
    final = (FIXTURES / "mycode/.mycode/sessions" / LABELS["reused"] / "messages.jsonl").read_bytes()
    before = final.replace(b"after clear", b"before clear").replace(
        b"chatcmpl-1794984120183", b"chatcmpl-1794984120175"
    )
    assert (len(before), len(final)) == (697, 696)
    for number, looks_between in enumerate((True, False)):
        uid = f"mycode:s{number}"
        path = lab.user_home / f".mycode/sessions/s{number}/messages.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(before)
        lab.ingest()
        with path.open("r+b") as file:  # truncated in place: the same inode
            file.truncate(0)
        if looks_between:
            lab.ingest()
            assert lab.events(uid) == []
        with path.open("ab") as file:
            file.write(final)
        lab.ingest()

        assert [e.summary for e in lab.events(uid) if e.kind == "user_msg"] == ["SCENARIO:mc_follow after clear"]
        everything = lab.events(uid, superseded=True)
        assert [e.summary for e in everything if e.kind == "user_msg"] == [
            "SCENARIO:mc_follow before clear",
            "SCENARIO:mc_follow after clear",
        ]
        assert [e.seq for e in everything] == list(range(1, 7))
        session = lab.sessions()[uid]
        assert (session.cost.input_tokens, session.cost.output_tokens) == (410, 22)  # both were paid for


def test_a_deleted_session_is_kept_and_said_to_be_gone(lab, fixtures):
    lay_out(lab, "mycode", EXPECTED["mycode 0.21"][1]["files"])
    lab.ingest()
    before = lab.events("mycode:21a")

    shutil.rmtree(lab.user_home / ".mycode/sessions/21a")
    lab.ingest()

    assert lab.sessions()["mycode:21a"].source_gone_at is not None
    assert lab.sessions()["mycode:21b"].source_gone_at is None
    assert lab.events("mycode:21a") == before


def test_lines_longer_than_the_tools_own_reader_can_take(lab, fixtures):
    lay_out(lab, "skill", EXPECTED["skill"][1]["files"])
    lab.ingest()
    with lab.store() as db:
        (length,) = rows(db, "SELECT max(length) FROM _event")[0]
    assert length > 64 * 1024
    assert lab.rejects() == []
