"""`status`, `health`, `reload`, `ingest` and the stale-answer line, against a real socket."""

from __future__ import annotations

import copy
import os
import re
import time
from datetime import UTC, datetime

import pytest

from sessiond.errors import ConfigError
from sessiond.lock import InstanceLock

from .conftest import SHOP

STATUS = {
    "version": "1.2.3", "pid": 4711, "started_at": "2026-01-01T00:00:00.000Z", "state": "ready", "paused_by": None,
    "degraded": [],
    "watch": {"mode": "native", "roots": [{"flavor": "claude", "folder": "/h/.claude/projects", "state": "watched"}]},
    "sources": {"files": 412, "bytes": 10**9, "lag_bytes": 0, "lag_seconds": 0, "pending_bytes": 0, "rejected": 3,
                "gone": 0, "excluded": 0, "unknown_types": {}},
    "sessions": {"total": 1204, "discovered": 0, "ingested": 84, "analyzed": 1100, "evicted": 20},
    "store": {"path": "/h/state/store.db", "bytes": 2**30, "soft_cap": 2**32, "low_water": 3 * 2**30,
              "hard_cap": 6 * 2**30, "events": 1_204_331},
    "passes": {"scan": {"last_at": "2026-01-01T00:00:00.000Z", "last_result": "ok", "next_at": None}},
    "counters": {"lines": 1, "events": 1, "replays": 0, "repaired": 0, "overflows": 0, "data_loss": 0},
    "config": {"path": "/h/config.toml", "loaded_at": "2026-01-01T00:00:00.000Z", "error": None},
    "agents": [
        {"flavor": "codex", "homes": ["/h/.codex"], "found": False, "files": 0, "bytes": 0, "sessions": 0, "sessions_today": 0},
        {"flavor": "claude", "homes": ["/h/.claude"], "found": True, "files": 412, "bytes": 10**9, "sessions": 1204, "sessions_today": 12},
    ],
    "history": {"total_bytes": 10**9, "done_bytes": 10**9, "percent": 100.0, "reached": None, "seconds_left": None},
}  # fmt: skip
TROUBLE = {
    "name": "watch_limit",
    "since": "2026-01-01T00:00:00.000Z",
    "detail": "49 of 100 folders are watched",
    "fix": "sudo sysctl fs.inotify.max_user_watches=524288",
}
FRESH = {
    "state": "ready", "paused_by": None, "degraded": [], "lag_bytes": 0, "lag_seconds": 0.0, "history_percent": 100.0,
    "as_of": "2026-01-02T03:04:05.000Z",
}  # fmt: skip


def status(**changes) -> dict:
    return {**copy.deepcopy(STATUS), **changes}


# --- status and health ---


def test_status_is_a_page(sessiond, daemon):
    with daemon(status=status()):
        said = sessiond("status")

    assert said.code == 0
    assert said.out.splitlines()[0].startswith("● sessiond 1.2.3 is ready · up ")
    for words in ("/h/.claude", "412 files", "12 sessions today", "not found: codex", "history   all read\n",
                  "1 GiB of 4 GiB · 1,204,331 events", "1,204 · 1,100 analyzed · 84 ingested · 20 evicted",
                  "watching 1 folder (native) · up to date · 3 lines rejected", "/h/config.toml"):  # fmt: skip
        assert words in said.out


def test_status_names_what_is_wrong_since_when_and_the_way_out(sessiond, daemon):
    with daemon(status=status(state="degraded", degraded=[TROUBLE])):
        said = sessiond("status")

    assert said.code == 0
    assert "▲ sessiond 1.2.3 is degraded" in said.out
    assert "▲ watch_limit, since " in said.out
    assert "    49 of 100 folders are watched\n    fix: sudo sysctl fs.inotify.max_user_watches=524288\n" in said.out


def test_status_shows_how_far_history_is_read(sessiond, daemon):
    history = {
        "total_bytes": 4 * 2**30,
        "done_bytes": 2**30,
        "percent": 25.0,
        "reached": "2025-06-01T12:00:00Z",
        "seconds_left": 90,
    }
    with daemon(status=status(state="backfilling", history=history)):
        said = sessiond("status")

    assert "25 % · 1 GiB of 4 GiB · back to 2025-06-01 · about 1m 30s left" in said.out


def test_status_without_agents_says_where_it_looked(sessiond, daemon):
    agents = [{**agent, "found": False} for agent in STATUS["agents"]]
    with daemon(status=status(agents=agents)):
        said = sessiond("status")

    assert "none found yet; looked for codex, claude" in said.out
    assert "/h/.codex" in said.out
    assert "/h/.claude" in said.out


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_status_fits_the_terminal(screen, daemon, width):
    with daemon(status=status(state="degraded", degraded=[TROUBLE])):
        lines = re.sub(r"\x1b\[[0-9;]*m", "", screen("status", width=width)).splitlines()

    assert len(lines) > 10
    assert max(map(len, lines)) <= width


def test_status_of_another_version_shows_what_it_has(sessiond, daemon):
    with daemon(status={"state": "hibernating", "version": "99"}):
        said = sessiond("status")

    assert said.code == 0
    assert "sessiond 99 is hibernating" in said.out


def test_status_makes_escapes_visible(sessiond, daemon):
    with daemon(status=status(degraded=[{**TROUBLE, "detail": "\x1b[2Jgone"}])):
        assert "\\x1b[2Jgone" in sessiond("status").out


def test_status_json_is_what_the_daemon_said_and_how_fresh(sessiond, daemon):
    with daemon(status=status()):
        told = sessiond("status", "--json").json

    assert told["complete"] is True
    assert told.pop("as_of")
    assert told == {**STATUS, "complete": True}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({}, 0, "all is well\n"),
        ({"state": "backfilling"}, 0, "all is well\n"),
        ({"state": "paused", "paused_by": "disk"}, 1, "paused: disk\n"),
        (
            {"state": "backfilling", "degraded": [TROUBLE]},
            1,
            f"watch_limit: {TROUBLE['detail']} (fix: {TROUBLE['fix']})\n",
        ),
    ],
)
def test_health_is_an_exit_code(sessiond, daemon, changes, code, words):
    with daemon(status=status(**changes)):
        assert sessiond("health") == (code, "", "")
        assert sessiond("health", "-v") == (code, words, "")


def test_health_without_a_daemon_is_69(sessiond):
    assert sessiond("health") == (69, "", "")
    assert sessiond("health", "-v").err.startswith("sessiond: the daemon is not running")


# --- reload ---


def test_reload_says_what_was_read_and_warned_about(sessiond, daemon):
    with daemon(reload={"ok": True, "path": "/h/config.toml", "warnings": ["sources.cluade names no installed agent"]}):
        said = sessiond("reload")

    assert (said.code, said.out) == (0, "configuration reloaded from /h/config.toml\n")
    assert said.err == "warning: sources.cluade names no installed agent\n"


def test_reload_of_a_bad_configuration_is_78(sessiond, daemon):
    def refuse(_):
        raise ConfigError("retention.soft_cap is 0", hint="use 16MiB or more")

    with daemon(reload=refuse):
        said = sessiond("reload")

    assert said == (78, "", "sessiond: retention.soft_cap is 0 (use 16MiB or more)\n")


def test_reload_without_a_daemon_is_69(sessiond):
    assert sessiond("reload").code == 69


# --- ingest ---


def test_ingest_asks_the_daemon_until_it_is_done(sessiond, daemon):
    asked = []

    def ingested(params):
        asked.append(params["ticket"])
        result = {
            "sweep_ms": 1.5,
            "files": 87,
            "bytes": 1,
            "lines": 12345,
            "events": 1,
            "sessions": 1,
            "rejected": 3,
            "seconds": 1.2,
        }
        return {"done": len(asked) == 3, "history": {"total_bytes": 10, "done_bytes": 5}, **result}

    with daemon(ingest={"ticket": 7}, ingested=ingested):
        said = sessiond("ingest")

    assert asked == [7, 7, 7]
    assert said == (0, "12,345 lines of 87 files taken in, 3 rejected (1.2s)\n", "")


def test_ingest_json_is_an_object(sessiond, daemon):
    with daemon(ingest={"ticket": 1}, ingested={"done": True, "sweep_ms": 2.0, "lines": 0, "files": 1, "rejected": 0}):
        told = sessiond("ingest", "--json").json

    assert told["sweep_ms"] == 2.0
    assert {"as_of", "complete", "seconds"} <= told.keys()
    assert "done" not in told


def test_ingest_draws_a_bar_on_a_terminal_and_cleans_up(lab, daemon):
    import io

    from sessiond.cli.ingest import Progress
    from sessiond.cli.terminal import Terminal

    class Tty(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    stream = Tty()
    progress = Progress(Terminal(stream))
    progress.tell({"history": {"total_bytes": 2**20, "done_bytes": 2**19, "seconds_left": 3}})
    progress.clear()

    assert "██████████████░░░░░░░░░░░░░░" in stream.getvalue()
    assert "512 KiB of 1 MiB, about 3s left" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


# --- how old is the answer? ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "paused", "paused_by": "disk"}, "sessiond is paused (disk)"),
        ({"state": "backfilling", "history_percent": 58.3}, "history is 58 % read"),
        ({"state": "backfilling", "history_percent": 99.96}, "history is 99 % read"),
        (
            {"state": "degraded", "degraded": ["watch_limit", "search_index"]},
            "sessiond is degraded (watch_limit, search_index)",
        ),
        ({"lag_bytes": 3 * 2**20, "lag_seconds": 12.0}, "the newest 3 MiB are not in yet (12s behind)"),
    ],
)
def test_an_answer_that_may_be_incomplete_says_why(sessiond, journal, daemon, changes, words):
    with daemon(freshness={**FRESH, **changes}):
        said = sessiond("sessions")
        shown = sessiond("show", SHOP, "--json")

    assert said.err == f"{words}: this may be incomplete. See: sessiond status\n"
    assert shown.json["complete"] is False


def test_a_fresh_answer_says_nothing(sessiond, journal, daemon):
    with daemon(freshness={**FRESH, "lag_bytes": 200, "lag_seconds": 0.1}):
        said = sessiond("sessions")
        shown = sessiond("show", SHOP, "--json").json

    assert said.err == ""
    assert shown["complete"] is True
    assert shown["as_of"] == FRESH["as_of"]


def test_without_a_daemon_the_lock_tells_since_when(sessiond, journal):
    with InstanceLock(journal.paths.lock).acquire(socket=journal.paths.socket, version="1", started_at="x"):
        pass
    three_hours_ago = time.time() - 3 * 3600
    os.utime(journal.paths.lock, (three_hours_ago, three_hours_ago))

    said = sessiond("sessions")
    shown = sessiond("show", SHOP, "--json").json

    assert said.code == 0
    assert said.err == "sessiond is not running (down since 3h ago); this may be old. Start it: sessiond run\n"
    assert datetime.fromisoformat(shown["as_of"]) == datetime.fromtimestamp(int(three_hours_ago * 1000) / 1000, UTC)


def test_a_command_at_work_is_told(sessiond, journal):
    with InstanceLock(journal.paths.lock).acquire(socket=None, version="1", started_at="x"):
        said = sessiond("sessions")

    assert said.err == f"another sessiond command is at work (pid {os.getpid()}); this may be incomplete\n"


def test_a_daemon_that_hangs_does_not_hold_up_the_answer(sessiond, journal, daemon):
    import threading

    release = threading.Event()
    with daemon(freshness=lambda _: release.wait(10)):
        with InstanceLock(journal.paths.lock).acquire(socket=journal.paths.socket, version="1", started_at="x"):
            began = time.monotonic()
            said = sessiond("sessions")
            took = time.monotonic() - began
        release.set()

    assert f"the daemon (pid {os.getpid()}) does not answer; this may be old" in said.err
    assert SHOP in said.out
    assert took < 1.0
