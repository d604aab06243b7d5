"""Row 53: the disk is full, for real. A small tmpfs in a mount namespace of its own is the disk; where the kernel
allows none, these tests are left out. Each scenario runs as a program inside the namespace: this file again.
"""

# ruff: noqa: E402 - run as a program it must find its neighbours first

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1, 0)]  # run as a program it has no conftest

from test_evict import MIB, words, write_session

from lab import Lab, append, until, user_line
from namespaces import inside, mount_tmpfs
from sessiond.store import space
from sessiond.store.connect import rows, value


def status(lab: Lab) -> dict:
    found = lab.status()
    assert found is not None, "the daemon does not answer any more"
    return found


def troubles(found: dict) -> set[str]:
    return {each["name"] for each in found["degraded"]}


def is_at_rest(found: dict) -> bool:
    return found["state"] in ("ready", "degraded") and not found["sources"]["lag_bytes"] and found["paused_by"] is None


# --- scenarios ----------------------------------------------------------------------------------


def filled_by_others(lab: Lab) -> None:
    """Somebody else fills the disk, and later makes room again."""
    lab.write_config('[retention]\nsoft_cap = "40MiB"\nmin_age = "24h"\nkeep_free = "0"\n')
    filler = lab.paths.state_dir / "of-somebody-else"
    for number in range(4):
        write_session(lab, f"s{number:02d}", 2 * MIB, timedelta(hours=2))
    with lab.daemon():
        until(lambda: status(lab)["sessions"]["total"] == 4 and is_at_rest(status(lab)), what="the history")
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        live = lab.claude_file("live")
        lines = [user_line(number, words(number, 4096), session="live") for number in range(600)]
        append(live, b"".join(lines))
        until(lambda: status(lab)["paused_by"] is not None, what="the pause")
        until(lambda: troubles(status(lab)) & {"store_full", "over_budget"}, what="its name")
        assert lab.cli("health").returncode == 1
        assert len(lab.events("claude:live")) < 600
        filler.unlink()
        until(lambda: "claude:live" in lab.sessions() and len(lab.events("claude:live")) == 600, 120, "going on")
        until(lambda: status(lab)["paused_by"] is None and "store_full" not in troubles(status(lab)), 90)
        assert status(lab)["counters"]["lines"] == 4 * 512 + 600
        assert lab.archived(live) == live.read_bytes()
    with lab.store() as db:
        assert rows(db, "PRAGMA integrity_check") == [("ok",)]
        assert value(db, "SELECT count(*) FROM _loss") == 0


def history_larger_than_the_disk(lab: Lab) -> None:
    """120 MiB of history that does not compress, onto a disk of 64 MiB: old sessions must make room for newer ones."""
    lab.write_config(
        '[retention]\nsoft_cap = "200MiB"\nmin_age = "0s"\nkeep_free = "4MiB"\n[analyze]\nquiet_after = "0s"\n'
    )
    for number in range(60):
        write_session(lab, f"s{number:02d}", 2 * MIB, timedelta(days=90 - number))
        os.utime(lab.claude_file(f"s{number:02d}"), (0, 1_700_000_000 + number))
    with lab.daemon():
        until(lambda: status(lab)["sessions"]["total"] == 60 and is_at_rest(status(lab)), 240, "all of it was taken in")
        assert status(lab)["counters"]["lines"] == 60 * 512
    assert_each_line_was_told_once(lab, 60)


def assert_each_line_was_told_once(lab: Lab, sessions: int) -> None:
    lab.analyze()
    with lab.store() as db:
        assert rows(db, "PRAGMA integrity_check") == [("ok",)]
        assert value(db, "SELECT count(*) FROM _loss") == 0
        assert value(db, "SELECT count(*) FROM _session WHERE evicted_at IS NOT NULL") > 0
        for uid, events, evicted, last in rows(
            db, "SELECT uid, events, evicted_events, next_seq - 1 FROM _session WHERE uid LIKE 'claude:s%'"
        ):
            assert events == last, uid
            kept = value(
                db, "SELECT count(*) FROM _event JOIN _session AS s ON s.id = session_id WHERE uid = ?", (uid,)
            )
            assert kept == events - evicted, uid
    for number in range(sessions):
        digest = lab.digest(f"claude:s{number:02d}")
        assert (digest["kinds"]["user_msg"], digest["kinds"]["assistant_msg"]) == (256, 256), number


# --- the tests ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.fault(53)
def test_disk_that_others_filled_is_waited_for_and_every_line_is_stored_once(lab):
    inside(__file__, "filled_by_others", lab)


@pytest.mark.long
@pytest.mark.fault(53)
def test_history_larger_than_the_disk_evicts_its_way_through(lab):
    inside(__file__, "history_larger_than_the_disk", lab)


if __name__ == "__main__":
    machine = Lab(Path(sys.argv[2]))
    mount_tmpfs(machine.paths.state_dir)
    assert space.total(machine.paths) == 0
    globals()[sys.argv[1]](machine)
