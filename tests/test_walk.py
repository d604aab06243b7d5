"""The whole way: append a line, read it back through the real daemon; stop anywhere, start again, find the same."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from lab import append, until, user_line


@pytest.mark.parametrize("mode", ["native", "poll"])
def test_appended_line_is_seen_while_the_daemon_runs(lab, mode):
    path = lab.claude_file()
    path.write_bytes(user_line(0, "before"))
    with lab.daemon(config=f'[watch]\nmode = "{mode}"\npoll_interval = "100ms"\n'):
        until(lambda: lab.sessions())
        append(path, user_line(1, "while it runs"))
        until(lambda: len(lab.events("claude:s1")) == 2)
        other = lab.claude_file("s2", slug="-a-new-folder")
        other.write_bytes(user_line(0, "new folder", session="s2"))
        until(lambda: "claude:s2" in lab.sessions())
        assert lab.status()["watch"]["mode"] == mode
    append(path, user_line(2, "while it was off"))
    with lab.daemon():
        until(lambda: len(lab.events("claude:s1")) == 3)
    assert [e.summary for e in lab.events("claude:s1")] == ["before", "while it runs", "while it was off"]


@pytest.mark.parametrize("mode", ["native", "poll"])
@pytest.mark.fault(35)
def test_home_that_comes_later_and_is_replaced(lab, mode):
    """Row 35."""
    with lab.daemon(config=f'[watch]\nmode = "{mode}"\npoll_interval = "100ms"\n'):
        assert lab.status()["state"] == "ready"
        lab.claude_file().write_bytes(user_line(0, "one"))
        until(lambda: lab.sessions())
        lab.claude.rename(lab.user_home / "old")
        lab.claude_file("s2").write_bytes(user_line(0, "two", session="s2"))
        until(lambda: "claude:s2" in lab.sessions())
        append(lab.claude_file("s2"), user_line(1, "three", session="s2"))
        until(lambda: len(lab.events("claude:s2")) == 2)


@pytest.mark.fault(65)
def test_second_instance_names_the_first_and_exits_75(lab):
    with lab.daemon() as process:
        second = lab.cli("run")
        assert second.returncode == 75
        assert f"pid {process.pid}" in second.stderr
        assert second.stderr.count("\n") == 1


@pytest.mark.fault(63)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_within_two_seconds(lab, number):
    """Row 63, with work under way."""
    for at in range(20):
        lab.claude_file(f"s{at}").write_bytes(b"".join(user_line(n, session=f"s{at}") for n in range(2000)))
    with lab.daemon() as process:
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(5) == 0
        assert time.monotonic() - began < 2
    assert not lab.paths.socket.exists()
    assert lab.cli("status").returncode == 69


@pytest.mark.fault(64)
def test_bad_configuration_is_kept_out_and_named(lab):
    """Row 64."""
    with lab.daemon(config="[watch]\nscan_interval = '10s'\n") as process:
        for bad in ("[watch\n", "[watch]\nscan_interval = 'soon'\n", "[wacth]\n", '[retention]\nsoft_cap = "0"\n'):
            lab.write_config(bad)
            process.send_signal(signal.SIGHUP)
            until(lambda: lab.status()["config"]["error"])
            health = lab.cli("health", "-v")
            assert health.returncode == 1
            assert "configuration" in health.stdout + health.stderr
            lab.write_config("")
            assert lab.cli("reload").returncode == 0
            assert lab.status()["config"]["error"] is None
        assert lab.cli("health").returncode == 0


def test_reload_takes_over_new_roots_and_goes_on(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    other = lab.folder / "elsewhere"
    with lab.daemon():
        until(lambda: lab.sessions())
        (other / "projects" / "-x").mkdir(parents=True)
        (other / "projects" / "-x" / "s9.jsonl").write_bytes(user_line(0, "from another home", session="s9"))
        lab.write_config(f'[sources.claude]\nroots = ["{lab.claude}", "{other}"]\n')
        assert lab.cli("reload").returncode == 0
        until(lambda: "claude:s9" in lab.sessions())
        append(path, user_line(1, "still here"))
        until(lambda: len(lab.events("claude:s1")) == 2)


@pytest.mark.fault(26)
@pytest.mark.fault(27)
def test_what_cannot_be_read_is_named_and_the_rest_goes_on(lab):
    """Rows 26, 27, 33: a FIFO, a link out of the root, a folder named like a file, garbage, a giant line, NULs."""
    folder = lab.claude_file().parent
    os.mkfifo(folder / "fifo.jsonl")
    (folder / "link.jsonl").symlink_to("/etc/passwd")
    (folder / "folder.jsonl").mkdir()
    (folder / "away").symlink_to("/etc")
    lab.claude_file("bad").write_bytes(
        b"{broken\n"
        + b"x" * 9_000_000
        + b"\n"
        + bytes(5000)
        + b"\n[]\n"
        + b'{"a": NaN}\n'
        + b"\xff\xfe\n"
        + user_line(0, "after", session="bad")
    )
    lab.claude_file("good").write_bytes(user_line(0, "fine", session="good"))
    with lab.daemon():
        lab.ingest_through_daemon()
        until(lambda: lab.status()["sources"]["rejected"] == 6)
        status = lab.status()
        assert status["sources"]["special"] == 2
        assert status["state"] == "ready"
    assert [e.summary for e in lab.events("claude:bad")] == ["after"]
    assert [e.summary for e in lab.events("claude:good")] == ["fine"]
    assert sorted({reason for *_, reason in lab.rejects()}) == ["not_json", "not_object", "nul", "too_long", "utf8"]
    assert lab.archived(lab.claude_file("bad")) == lab.claude_file("bad").read_bytes()


def test_store_that_vanishes_ends_the_daemon(lab):
    """Row 60: nothing is written to a file that no one can see."""
    with lab.daemon() as process:
        lab.paths.store.unlink()
        assert process.wait(10) == 75


def test_log_holds_nothing_that_people_wrote(lab):
    lab.claude_file().write_bytes(user_line(0, "XyzzyPlugh") + b'{"XyzzyPlugh\n')
    with lab.daemon(config='[log]\nlevel = "debug"\n') as process:
        until(lambda: lab.sessions())
        process.send_signal(signal.SIGUSR1)
        until(lambda: b'"state"' in (lab.folder / "daemon.log").read_bytes())
    log = (lab.folder / "daemon.log").read_text()
    assert "XyzzyPlugh" not in log
    assert "started" in [json.loads(line)["event"] for line in log.splitlines()]


def test_second_sweep_writes_nothing(lab):
    for number in range(30):
        lab.claude_file(f"s{number}").write_bytes(user_line(0, session=f"s{number}"))
    lab.ingest()
    store = lab.paths.store
    before = (store.read_bytes(), store.stat().st_mtime_ns)
    result = lab.ingest()
    assert (result["lines"], result["events"]) == (0, 0)
    assert store.read_bytes() == before[0]


def test_verbs_without_a_daemon_say_so_and_answer(lab):
    lab.claude_file().write_bytes(user_line(0, "hello there"))
    assert lab.cli("ingest").returncode == 0
    listed = lab.cli("sessions", "--json")
    assert [each["session_uid"] for each in json.loads(listed.stdout)] == ["claude:s1"]
    assert "not running" in listed.stderr
    assert listed.stderr.count("\n") == 1


@pytest.mark.fault(57)
def test_damaged_store_is_set_aside_and_made_again(lab):
    """Row 57: never deleted, loudly reported, rebuilt from the files that are still there."""
    lab.claude_file().write_bytes(user_line(0, "still there"))
    lab.ingest()
    damaged = b"this is no database" * 1000
    lab.paths.store.write_bytes(damaged)
    with lab.daemon():
        until(lambda: lab.events("claude:s1"))
        assert "store_rebuilt" in [each["name"] for each in lab.status()["degraded"]]
        assert lab.cli("health").returncode == 1
    (aside,) = lab.paths.state_dir.glob("store.db.damaged-*")
    assert aside.read_bytes() == damaged
    lab.paths.store.write_bytes(damaged)
    lab.write_config('[store]\non_corrupt = "stop"\n')
    refused = lab.cli("run")
    assert refused.returncode == 78
    assert "damaged" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert lab.paths.store.read_bytes() == damaged


def test_file_deleted_while_it_is_watched_is_gone_and_can_come_back(lab):
    path = lab.claude_file()
    path.write_bytes(user_line(0, "kept"))
    with lab.daemon(config='[watch]\nmode = "native"\n'):
        until(lambda: lab.sessions())
        path.unlink()
        until(lambda: lab.sessions()["claude:s1"].source_gone_at)
        path.write_bytes(user_line(0, "kept") + user_line(1, "more"))
        until(lambda: len(lab.events("claude:s1")) == 2)
        assert lab.sessions()["claude:s1"].source_gone_at is None


def test_restore_brings_sub_agents_that_are_sessions_of_their_own(lab):
    def rollout(number: int, source: object) -> None:
        uuid = f"0190aaaa-bbbb-7ccc-8ddd-{number:012d}"
        meta = {"id": uuid, "cwd": "/w", "timestamp": "2026-01-02T03:04:05.000Z", "source": source}
        line = json.dumps({"timestamp": "2026-01-02T03:04:05.000Z", "type": "session_meta", "payload": meta}) + "\n"
        lab.codex_file(f"rollout-2026-01-02T03-04-05-{uuid}").write_text(line)

    rollout(1, "cli")
    rollout(2, {"subagent": {"thread_spawn": {"parent_thread_id": "0190aaaa-bbbb-7ccc-8ddd-000000000001", "depth": 1}}})
    rollout(3, {"subagent": {"thread_spawn": {"parent_thread_id": "0190aaaa-bbbb-7ccc-8ddd-000000000002", "depth": 2}}})
    rollout(4, "cli")
    assert lab.cli("ingest").returncode == 0
    to = lab.folder / "back"
    done = lab.cli("restore", "codex:0190aaaa-bbbb-7ccc-8ddd-000000000001", "--to", str(to))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name[-9:-6] for path in to.rglob("*.jsonl")) == ["001", "002", "003"]
