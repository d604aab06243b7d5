"""mycode: what its samples do not show. Whose file is whose, meta.json, clears and rewinds, and privacy beside a file."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath

import pytest

from lab import Lab, append, until
from sessiond.adapters.base import NeedMore, Reader, visible_offsets
from sessiond.adapters.mycode import ADAPTER
from sessiond.model import Line, Session
from tests.adapters.harness import complete_lines

META = {
    "cwd": "/home/ada/kite",
    "title": "Fix the tail",
    "created_at": "2026-05-01T09:00:00+00:00",
    "updated_at": "2026-05-01T09:30:00+00:00",
}


def lines_of(*records: dict) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def user(text: str, **meta) -> dict:
    return {"role": "user", "content": [{"type": "text", "text": text}], **({"meta": meta} if meta else {})}


def answer(text: str, **meta) -> dict:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "meta": {"model": "wren-5", **meta}}


def call(call_id: str, command: str) -> dict:
    block = {"type": "tool_use", "id": call_id, "name": "bash", "input": {"command": command}}
    return {"role": "assistant", "content": [block], "meta": {"model": "wren-5"}}


def result(call_id: str, output: str) -> dict:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "output": output}]}


def compact(**meta) -> dict:
    return {"role": "compact", "content": [{"type": "text", "text": "sum"}], "meta": meta}


def rewind(to) -> dict:
    return {"role": "rewind", "meta": {"rewind_to": to, "created_at": "2026-05-01T09:01:00+00:00"}}


@pytest.fixture
def folder(lab) -> Path:
    path = lab.user_home / ".mycode" / "sessions" / "s1"
    path.mkdir(parents=True)
    return path


def write_meta(folder: Path, **changed) -> None:
    (folder / "meta.json").write_text(json.dumps(META | changed, indent=2))


# --- places ---------------------------------------------------------------------------------------


def test_home_is_where_mycode_looks():
    home = Path("/home/ada")
    assert ADAPTER.homes({}, home) == [home / ".mycode"]
    assert ADAPTER.homes({"MYCODE_HOME": "~/elsewhere"}, home) == [home / "elsewhere"]
    assert ADAPTER.homes({"MYCODE_HOME": "/srv/mycode"}, home) == [Path("/srv/mycode")]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("sessions/0f5e/messages.jsonl", True),
        ("sessions/0f5e/meta.json", True),
        ("0f5e/messages.jsonl", True),  # the store of an SDK user's own program
        ("sessions/0f5e/lock", False),
        ("sessions/0f5e/meta.json.tmp", False),
        ("sessions/0f5e/tool-output/bash-call_1.log", False),
        ("sessions/0f5e/tool-output/messages.jsonl", False),
        ("sessions/index.json", False),
        ("messages.jsonl", False),
    ],
)
def test_only_messages_and_meta_of_a_session_are_wanted(path, wanted):
    assert ADAPTER.wants(PurePosixPath(path)) is wanted


def test_first_record_tells_whether_records_have_times():
    def is_timeless(*records):
        return ADAPTER.claims(PurePosixPath("sessions/s/messages.jsonl"), lines_of(*records).split(b"\n")[:-1]).timeless

    assert is_timeless(user("a"))
    assert is_timeless(rewind(0))
    assert not is_timeless(user("a", created_at="2026-05-01T09:00:00+00:00"))
    assert not is_timeless()


def test_in_a_store_of_any_name_files_called_like_ours_may_be_somebody_elses():
    log, meta = PurePosixPath("s1/messages.jsonl"), PurePosixPath("s1/meta.json")
    assert ADAPTER.claims(log, [b'{"from": "bob"}']) is None
    assert ADAPTER.claims(log, lines_of(user("a")).split(b"\n")[:1]).session_id == "s1"
    assert ADAPTER.claims(meta, [b"{", b'  "colour": 1,']) is None
    assert ADAPTER.claims(meta, json.dumps(META, indent=2).encode().split(b"\n")[:-1]).reader is Reader.SNAPSHOT
    for path in (log, meta):
        with pytest.raises(NeedMore):
            ADAPTER.claims(path, [])


def test_a_store_of_an_sdk_users_own_program_is_read_where_it_is_configured(lab):
    store = lab.user_home / "app" / "agent-store"
    (store / "s1").mkdir(parents=True)
    (store / "s1" / "messages.jsonl").write_bytes(lines_of(user("hello"), answer("hi")))
    (store / "notes.jsonl").write_text("{}\n")
    lab.write_config('[sources.mycode]\nroots = ["~/app/agent-store"]\n')
    lab.ingest()

    session = lab.sessions()["mycode:s1"]
    assert [event.kind for event in lab.events("mycode:s1")] == ["user_msg", "assistant_msg", "completion"]
    assert (session.title, session.cwd) == ("hello", None)
    assert ADAPTER.resume(session) is None  # mycode itself would not find it


def test_resume_is_mycodes_own_command():
    def resume(**fields):
        return ADAPTER.resume(Session("mycode:0f5e", "mycode", "0f5e", **fields))

    assert resume() == ["mycode", "--session", "0f5e"]
    assert resume(source_path="/home/ada/.mycode/sessions/0f5e/messages.jsonl") == ["mycode", "--session", "0f5e"]


# --- meta.json ------------------------------------------------------------------------------------


def test_meta_caught_half_written_is_taken_when_it_is_whole(lab, folder):
    (folder / "messages.jsonl").write_bytes(lines_of(user("hello")))
    (folder / "meta.json").write_text(json.dumps(META, indent=2)[:60])
    lab.ingest()
    assert lab.sessions()["mycode:s1"].title == "hello"
    assert [reason for _, _, reason in lab.rejects()] == ["not_json"]

    write_meta(folder)
    lab.ingest()

    session = lab.sessions()["mycode:s1"]
    assert (session.title, session.cwd, session.task_ref) == ("Fix the tail", "/home/ada/kite", "Fix the tail")
    assert lab.rejects() == []


def test_meta_on_one_line_without_its_newline_is_read(lab, folder):
    (folder / "meta.json").write_text(json.dumps(META))
    lab.ingest()
    assert lab.sessions()["mycode:s1"].cwd == "/home/ada/kite"


def test_new_chat_is_no_title(lab, folder):
    write_meta(folder, title="New chat")
    (folder / "messages.jsonl").touch()
    lab.ingest()
    assert lab.sessions()["mycode:s1"].title is None


def test_times_of_a_session_whose_records_have_none(lab, folder):
    write_meta(folder)
    (folder / "messages.jsonl").write_bytes(lines_of(user("hello"), answer("hi")))
    os.utime(folder / "messages.jsonl", (1777628000, 1777628000))  # 2026-05-01T09:33:20Z
    lab.ingest()

    session = lab.sessions()["mycode:s1"]
    assert session.started_at == "2026-05-01T09:00:00.000Z"
    assert session.ended_at == "2026-05-01T09:33:20.000Z"
    assert [event.ts for event in lab.events("mycode:s1")] == [None] * 3


def test_model_is_the_answers_and_not_the_stale_one_of_meta(lab, folder):
    write_meta(folder, model="finch")
    (folder / "messages.jsonl").write_bytes(lines_of(user("hello")))
    lab.ingest()
    assert lab.sessions()["mycode:s1"].model == "finch"
    append(folder / "messages.jsonl", lines_of(answer("hi")))
    lab.ingest()
    assert lab.sessions()["mycode:s1"].model == "wren-5"


# --- records --------------------------------------------------------------------------------------


def test_equal_lines_without_a_time_are_two_messages(lab, folder):
    spent = {"input_tokens": 5, "output_tokens": 1}
    turn = lines_of(user("yes"), answer("ok", usage=spent))
    (folder / "messages.jsonl").write_bytes(turn + turn)
    lab.ingest()
    kinds = [event.kind for event in lab.events("mycode:s1")]
    assert kinds == ["user_msg", "assistant_msg", "completion"] * 2
    cost = lab.sessions()["mycode:s1"].cost
    assert (cost.turns, cost.input_tokens, cost.output_tokens) == (2, 10, 2)
    assert [event.tokens for event in lab.events("mycode:s1")] == [None, 6, None] * 2


def test_a_call_id_used_again_leads_to_the_newest_call(lab, folder):
    records = [
        *(call("call_1", "ls one"), result("call_1", "first")),
        *(call("call_1", "ls two"), result("call_1", "second")),
    ]
    (folder / "messages.jsonl").write_bytes(lines_of(*records))
    lab.ingest()
    events = {event.seq: event for event in lab.events("mycode:s1")}
    found = [(events[e.parent_seq].summary, e.summary) for e in events.values() if e.kind == "tool_result"]
    assert found == [("ls one", "first"), ("ls two", "second")]
    assert [e.tool for e in events.values()] == ["bash"] * 4


def test_a_session_read_line_by_line_is_the_session_read_at_once(lab, folder, tmp_path):
    records = [user("a"), call("c", "pytest"), result("c", "1 failed\n\n[exit code: 1]"), answer("b"), user("a")]
    (folder / "messages.jsonl").write_bytes(lines_of(*records))
    lab.ingest()
    other = Lab(tmp_path / "other")
    path = other.user_home / ".mycode/sessions/s1/messages.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    for record in records:
        append(path, lines_of(record))
        other.ingest()
    assert other.event_rows() == lab.event_rows()
    assert other.sessions()["mycode:s1"].started_at is not None  # timeless was found out with the first line


def test_a_blob_never_becomes_text():
    blob = "QUJD" * 5_000
    record = {
        "role": "user",
        "content": [
            {"type": "image", "data": blob, "mime_type": "image/png"},
            {"type": "tool_result", "tool_use_id": "c", "output": "seen", "content": [{"type": "image", "data": blob}]},
        ],
    }
    prompt, *_, seen = ADAPTER.parse(Line(0, json.dumps(record).encode()), {})
    assert (prompt.summary, prompt.text) == ("image/png, 15 kB", "image/png, 15 kB")
    assert (seen.summary, seen.text) == ("seen", "seen")


def test_tool_output_is_clipped():
    record = result("c", "x y" * 100_000 + "\n\n[exit code: 3]")
    (event,) = ADAPTER.parse(Line(0, json.dumps(record).encode()), {})
    assert len(event.text) < 20_100
    assert event.is_error
    assert event.summary.startswith("exit code 3: x yx y")


@pytest.mark.parametrize(
    ("output", "is_error", "kind", "failed"),
    [
        ("ok\n\n[exit code: 0]", False, "tool_result", False),
        ("(empty)\n\n[exit code: -9]", False, "tool_result", True),
        ("it said [exit code: 1] once", False, "tool_result", False),
        ("error: permission denied", True, "tool_result", True),
        ("error: permission denied by user", True, "human_intervention", False),
        ("error: cancelled", True, "human_intervention", False),
        ("error: cancelled", False, "tool_result", False),
        ("error: tool call was interrupted", True, "tool_result", True),
    ],
)
def test_what_a_result_is(output, is_error, kind, failed):
    record = result("c", output)
    record["content"][0]["is_error"] = is_error
    (event,) = ADAPTER.parse(Line(0, json.dumps(record).encode()), {})
    assert (event.kind, event.is_error) == (kind, failed)


# --- what is seen when it is resumed --------------------------------------------------------------


def seen(*records: dict) -> list[int]:
    """The numbers of the records that are seen."""
    lines = complete_lines(lines_of(*records))
    offsets = visible_offsets(ADAPTER, lines)
    return [number for number, line in enumerate(lines) if line.offset in offsets]


OLD, NEW = {"compacted_count": 4}, {"trigger": "auto"}


def test_without_a_compaction_a_rewind_counts_messages():
    assert seen(user("0"), answer("1"), user("2"), answer("3")) == [0, 1, 2, 3]
    assert seen(user("0"), answer("1"), user("2"), answer("3"), rewind(2), user("5")) == [0, 1, 5]
    assert seen(user("0"), answer("1"), user("2"), rewind(2), user("4"), rewind(1), user("6")) == [0, 6]
    assert seen(user("0"), rewind(0)) == []
    assert seen(user("0"), rewind(99), rewind("x"), rewind(None), user("4")) == [0, 4]


def test_up_to_07_the_summary_counts_as_two_messages():
    start = (user("0"), answer("1"), compact(**OLD))
    assert seen(*start) == [2]
    assert seen(*start, user("3"), answer("4"), rewind(2), user("6")) == [2, 6]
    assert seen(*start, user("3"), answer("4"), rewind(3), user("6")) == [2, 3, 6]
    assert seen(*start, user("3"), rewind(0), user("5")) == [5]  # not even the summary is left
    assert seen(user("0"), rewind(0), user("2"), compact(**OLD), user("4")) == [3, 4]
    assert seen(*start, user("3"), compact(**OLD), user("5")) == [4, 5]


def test_later_the_summary_is_one_message_of_the_list_that_rewinds_count_in():
    start = (user("0"), answer("1"), compact(**NEW))
    assert seen(*start) == [2]
    assert seen(*start, user("3"), answer("4"), rewind(3), user("6")) == [2, 6]
    assert seen(*start, user("3"), rewind(2), user("5")) == [0, 1, 5]  # back before the compaction
    assert seen(*start, user("3"), compact(**NEW), user("5"), rewind(4), user("7")) == [2, 3, 7]


def test_the_newest_record_tells_which_version_goes_on():
    old = (user("0"), answer("1"), compact(**OLD), user("3"), rewind(2))
    assert seen(*old, user("5")) == [2, 5]
    assert seen(*old, user("5", created_at="2026-05-01T09:00:00+00:00")) == [0, 1, 5]


def test_a_line_that_mycode_skips_is_not_counted():
    data = lines_of(user("0")) + b"broken\n\n[1]\n" + lines_of(answer("1"), user("2"), rewind(2))
    assert visible_offsets(ADAPTER, complete_lines(data)) == {0, data.index(b'{"role": "assistant"')}


# --- privacy --------------------------------------------------------------------------------------


def everything_stored(lab) -> bytes:
    return b"".join(path.read_bytes() for path in lab.paths.state_dir.rglob("*") if path.is_file())


def test_rules_are_asked_with_the_folder_that_meta_names(lab, folder):
    lab.write_config('[privacy]\nexclude = ["/secret/**"]\n')
    other = folder.parent / "s2"
    other.mkdir()
    write_meta(folder, cwd="/secret/plans")
    write_meta(other)
    for each in (folder, other):
        (each / "messages.jsonl").write_bytes(lines_of(user("XyzzyPlugh" if each == folder else "visible")))
    lab.ingest()

    assert list(lab.sessions()) == ["mycode:s2"]
    assert b"XyzzyPlugh" not in everything_stored(lab)
    assert lab.sessions()["mycode:s2"].events == 1


def test_while_meta_says_nothing_yet_nothing_is_stored(lab, folder):
    """It is asked again as soon as meta.json was read, although the messages have not changed since."""
    lab.write_config('[privacy]\nexclude = ["/secret/**"]\n')
    (folder / "messages.jsonl").write_bytes(lines_of(user("hello")))
    (folder / "meta.json").write_text(json.dumps(META, indent=2)[:20])
    pipeline = lab.pipeline()
    pipeline.start()
    try:
        take_all(pipeline)
        assert lab.sessions() == {}
        write_meta(folder)
        take_all(pipeline)
        take_all(pipeline)
    finally:
        pipeline.stop()
    assert lab.sessions()["mycode:s1"].events == 1


def take_all(pipeline) -> None:
    ticket = pipeline.ask()["ticket"]
    until(lambda: pipeline.asked({"ticket": ticket})["done"])


def test_without_meta_the_path_is_asked(lab, folder):
    lab.write_config(f'[privacy]\nexclude = ["{folder}/**"]\n')
    other = folder.parent / "s2"
    other.mkdir()
    for each in (folder, other):
        (each / "messages.jsonl").write_bytes(lines_of(user("hello")))
    lab.ingest()
    assert list(lab.sessions()) == ["mycode:s2"]
