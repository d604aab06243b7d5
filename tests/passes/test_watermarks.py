"""The watermark mistakes of other programs, each by name: what a 0 means, which bytes are counted, who is protected,
when a pause ends, and that a clean-up ends at all.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

import apsw
import pytest

from lab import Lab, append, until, user_line
from sessiond.passes import plan
from sessiond.passes.schedule import Schedule
from sessiond.store import evict, space
from sessiond.store.connect import rows, value
from sessiond.upkeep import Upkeep

from .test_evict import MIB, words, write_session

ROOMY = '[retention]\nsoft_cap = "900MiB"\nkeep_free = "1MiB"\n'
TIGHT = '[retention]\nsoft_cap = "2MiB"\nhard_cap = "900MiB"\nmin_age = "24h"\nkeep_free = "1MiB"\n'
MISTAKES = {
    'soft_cap = "0"': "retention.soft_cap",
    "soft_cap = 0": "retention.soft_cap",
    'soft_cap = "-1GiB"': "retention.soft_cap",
    'soft_cap = "plenty"': "retention.soft_cap",
    'hard_cap = "0B"': "retention.hard_cap",
    'low_water = "0%"': "retention.low_water",
    'low_water = "100%"': "retention.low_water",
    'low_water = "0"': "retention.low_water",
    'soft_cap = "1GiB"\nlow_water = "2GiB"': "retention.low_water",
    'soft_cap = "2GiB"\nhard_cap = "1GiB"': "retention.hard_cap",
    'max_age = "0s"': "retention.max_age",
    "max_age = 0": "retention.max_age",
    'max_age = "-30d"': "retention.max_age",
    'max_age = "a while"': "retention.max_age",
    'min_age = "-1h"': "retention.min_age",
    'keep_free = "-1"': "retention.keep_free",
}


def names(lab: Lab) -> set[str]:
    return {each["name"] for each in lab.status()["degraded"]}


def pin(upkeep: Upkeep, *uids: str) -> None:
    upkeep.do("pin", {"uids": list(uids)})


# --- what may be written in the file ------------------------------------------------------------


@pytest.mark.parametrize(("text", "key"), MISTAKES.items())
def test_bad_watermark_is_refused_and_named(lab, text, key):
    lab.write_config(f"[retention]\n{text}\n")
    with pytest.raises(Exception, match=key) as refused:
        lab.pipeline()
    assert refused.value.exit_code == 78


@pytest.mark.parametrize("text", ['soft_cap = "0"', 'max_age = "0s"', 'low_water = "2GiB"\nsoft_cap = "1GiB"'])
def test_daemon_does_not_start_with_a_bad_watermark(lab, text):
    process = lab.start_daemon(config=f"[retention]\n{text}\n")
    assert process.wait(20) == 78
    assert "retention." in (lab.folder / "daemon.log").read_text()
    assert not lab.paths.store.exists()


def test_bad_watermark_at_reload_changes_nothing_and_is_named(lab):
    write_session(lab, "old", MIB, timedelta(days=90))
    with lab.daemon(config=ROOMY):
        lab.ingest_through_daemon()
        before = lab.status()["store"]
        for text, key in MISTAKES.items():
            lab.write_config(f"[retention]\n{text}\n")
            assert lab.cli("reload").returncode == 78, text
            found = lab.status()
            assert key in found["config"]["error"], text
            assert "configuration" in names(lab)
            assert found["store"]["soft_cap"] == before["soft_cap"]
        assert lab.cli("evict", "--json").returncode == 0
        assert found["sessions"]["evicted"] == 0
        lab.write_config(ROOMY)
        assert lab.cli("reload").returncode == 0
        assert lab.status()["config"]["error"] is None


def test_min_age_of_nothing_is_allowed_and_means_any_age(lab):
    lab.write_config('[retention]\nsoft_cap = "2MiB"\nmin_age = "0s"\nkeep_free = "0"\n')
    write_session(lab, "just-now", 4 * MIB, timedelta(0))
    lab.ingest()
    lab.analyze()
    assert lab.evict()["evicted"] == ["claude:just-now"]


# --- which bytes --------------------------------------------------------------------------------


def test_bytes_counted_are_those_that_du_counts(lab):
    write_session(lab, "a", 3 * MIB, timedelta(days=3))
    with lab.daemon(config=ROOMY):
        lab.ingest_through_daemon()
        append(lab.claude_file("a"), user_line(9001, session="a"))  # so that there are WALs
        lab.ingest_through_daemon()
        files = [lab.paths.state_dir / name for name in ("store.db", "store.db-wal", "search.db", "search.db-wal")]
        assert all(path.stat().st_blocks for path in files)
        assert space.ballast_path(lab.paths).stat().st_blocks * 512 >= space.reserve(900 * MIB)

        def is_same() -> bool:
            told = subprocess.run(
                ["du", "-s", "--block-size=1", lab.paths.state_dir], capture_output=True, text=True, check=True
            )
            counted = int(told.stdout.split()[0]) - sum(
                space.blocks(path)
                for path in (lab.paths.state_dir, *lab.paths.state_dir.iterdir())
                if not path.name.startswith(("store.db", "search.db"))
            )
            return counted == lab.status()["store"]["bytes"]

        until(is_same, what="du and status agree")


@pytest.mark.parametrize("kind", ["rejected", "copied", "after it left"])
def test_bytes_that_make_no_event_leave_too(lab, kind):
    """Else a file of junk, or the copy that a resume leaves, would fill the disk for good."""
    lab.write_config('[retention]\nsoft_cap = "1MiB"\nhard_cap = "900MiB"\nmin_age = "0s"\nkeep_free = "1MiB"\n')
    junk = b"".join(b"junk " + words(number, 8192).encode() + b"\n" for number in range(256))
    summary = b'{"type": "summary", "summary": "x", "leafUuid": "u"}\n'
    if kind == "copied":
        write_session(lab, "a", 2 * MIB, timedelta(days=3))
        copy = lab.claude_file("a").read_bytes().replace(b'"sessionId": "a"', b'"sessionId": "b"')
        lab.claude_file("b").write_bytes(copy)
    else:
        first = user_line(0, session="a") if kind == "after it left" else summary
        lab.claude_file("a").write_bytes(first + junk)
    lab.ingest()
    lab.analyze()
    lab.evict()
    if kind == "after it left":
        append(lab.claude_file("a"), junk.replace(b"junk", b"more"))
        lab.ingest()
        lab.analyze()
        lab.evict()
    with lab.store() as db:
        assert value(db, "SELECT ifnull(sum(length(data)), 0) FROM _frame") < MIB
    lab.ingest()
    with lab.store() as db:
        assert value(db, "SELECT ifnull(sum(length(data)), 0) FROM _frame") < MIB, "and does not come back"


# --- a clean-up ends, and takes no more than it must --------------------------------------------


def test_reader_in_the_way_makes_nothing_more_leave_than_was_planned(lab):
    """The file cannot shrink while somebody reads: that is no reason to let the next session go, and the next."""
    lab.write_config('[retention]\nsoft_cap = "6MiB"\nhard_cap = "200MiB"\nmin_age = "1h"\nkeep_free = "1MiB"\n')
    for number in range(6):
        write_session(lab, f"s{number}", MIB, timedelta(days=30 - number))
    lab.ingest()
    lab.analyze()
    planned = [each["session_uid"] for each in lab.evict(dry_run=True)["plan"]]
    assert 0 < len(planned) < 6
    with lab.upkeep() as upkeep, lab.store() as db:
        db.execute("BEGIN")
        assert value(db, "SELECT count(*) FROM _event")
        report = upkeep.do("evict", {})
        db.execute("ROLLBACK")
    assert report["evicted"] == planned
    assert len(report["rounds"]) <= 2
    lab.evict()
    assert lab.disk_bytes() <= 6 * MIB * 80 // 100


def test_database_that_cannot_be_vacuumed_keeps_nobody_waiting(lab):
    lab.write_config(ROOMY)
    write_session(lab, "a", MIB, timedelta(days=3))
    lab.ingest()
    db = apsw.Connection(str(lab.paths.store))
    db.execute(
        "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM; DELETE FROM _frame; PRAGMA journal_mode = WAL"
    )
    db.close()
    with lab.upkeep() as upkeep:
        assert space.give_back_store(upkeep._pipeline.writer)


def test_dry_run_is_what_the_run_does_then(lab):
    lab.write_config(
        '[retention]\nsoft_cap = "4MiB"\nhard_cap = "5MiB"\nmin_age = "24h"\nmax_age = "60d"\nkeep_free = "0"\n'
    )
    for number, age in enumerate((90, 20, 10, 0.5, 0.2)):
        write_session(lab, f"s{number}", 2 * MIB, timedelta(days=age))
    lab.ingest()
    lab.analyze()
    planned = lab.evict(dry_run=True)
    before = lab.sessions()
    assert lab.evict(dry_run=True)["plan"] == planned["plan"]
    assert lab.sessions() == before, "nothing was changed"
    assert lab.evict()["evicted"] == [each["session_uid"] for each in planned["plan"]]


# --- who is protected ---------------------------------------------------------------------------


def test_active_session_is_safe_whatever_its_other_files_look_like(lab):
    lab.write_config(TIGHT)
    write_session(lab, "s1", 4 * MIB, timedelta(days=9))
    side = lab.claude_file("s1").with_suffix("") / "subagents" / "agent-1.jsonl"
    side.parent.mkdir(parents=True)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    side.write_bytes(user_line(0, "look", session="s1", uuid="side", isSidechain=True, agentId="1", timestamp=now))
    lab.ingest()
    lab.analyze()
    assert len({event.is_sidechain for event in lab.events("claude:s1")}) == 2, "both files are of that session"
    report = lab.evict()
    assert report["evicted"] == []
    assert [each["what"] for each in report["unreachable"]["held_by"]][0] == "young"


@pytest.mark.fault(76)
def test_session_that_wakes_up_between_plan_and_deed_stays(lab, monkeypatch):
    lab.write_config(TIGHT)
    write_session(lab, "s1", 4 * MIB, timedelta(days=9))
    lab.ingest()
    lab.analyze()
    real = evict.let_go

    def late(writer, row, *args, **more):
        writer.call(lambda db: db.execute("UPDATE _session SET next_seq = next_seq + 1, analyzed_at = NULL"))
        return real(writer, row, *args, **more)

    monkeypatch.setattr(evict, "let_go", late)
    assert lab.evict()["evicted"] == []
    with lab.store() as db:
        assert value(db, "SELECT count(*) FROM _frame") > 0


@pytest.mark.parametrize(("active", "discovered", "goes"), [(90, 90, True), (90, 5, False), (5, 90, False)])
def test_backstop_needs_both_last_activity_and_discovery_to_be_older(lab, active, discovered, goes):
    lab.write_config(f'{ROOMY}max_age = "30d"\n')
    write_session(lab, "s1", MIB, timedelta(days=active))
    lab.ingest()
    lab.analyze()
    with lab.upkeep() as upkeep:
        at = (datetime.now(UTC) - timedelta(days=discovered)).isoformat()
        upkeep._pipeline.writer.call(lambda db: db.execute("UPDATE _session SET discovered_at = ?", (at,)))
        assert upkeep.do("evict", {})["evicted"] == (["claude:s1"] if goes else [])


@pytest.mark.fault(73)
def test_clock_that_jumped_by_more_than_a_day_lets_nothing_go_for_its_age(lab):
    lab.write_config(f'{ROOMY}max_age = "30d"\n')
    write_session(lab, "s1", MIB, timedelta(days=90))
    lab.ingest()
    lab.analyze()
    ahead = timedelta(0)
    monotonic = 0.0
    begun = datetime.now(UTC)
    schedule = Schedule(
        lambda: begun + ahead + timedelta(seconds=monotonic),
        lambda: monotonic,
        on_failure=lambda *_: None,
        on_success=lambda _: None,
    )
    with lab.upkeep() as upkeep:
        long_ago = "2020-01-01T00:00:00.000Z"
        upkeep._pipeline.writer.call(lambda db: db.execute("UPDATE _session SET discovered_at = ?", (long_ago,)))
        upkeep._is_clock_doubtful = lambda: schedule.clock_doubtful
        ahead = timedelta(days=2)
        assert upkeep.do("evict", {"dry_run": True})["plan"] == []
        assert upkeep.do("evict", {})["evicted"] == []
        monotonic = 601.0
        assert not schedule.clock_doubtful
        assert upkeep.do("evict", {})["evicted"] == ["claude:s1"]


# --- the daemon ---------------------------------------------------------------------------------


def test_protected_bytes_over_budget_are_named_in_status(lab):
    write_session(lab, "young", 4 * MIB, timedelta(hours=2))
    with lab.daemon(config=TIGHT):
        until(lambda: "over_budget" in names(lab), what="over_budget")
        (told,) = (each for each in lab.status()["degraded"] if each["name"] == "over_budget")
        assert "young" in told["detail"] or "not distilled" in told["detail"]
        assert lab.cli("health").returncode == 1


def test_ingest_that_crosses_soft_cap_brings_an_eviction_at_once(lab):
    write_session(lab, "old", 2 * MIB, timedelta(days=30))
    lab.ingest()
    lab.analyze()
    with lab.daemon(
        config='[retention]\nsoft_cap = "6MiB"\nhard_cap = "90MiB"\nkeep_free = "1MiB"\n[evict]\ninterval = "9h"\n'
    ):
        assert lab.status()["sessions"]["evicted"] == 0
        write_session(lab, "new", 6 * MIB, timedelta(hours=1))
        until(lambda: lab.status()["sessions"]["evicted"] == 1, 30, "the old session left")
        assert lab.sessions()["claude:old"].evicted_at


@pytest.mark.parametrize("way_out", ["unpin", "reload"])
def test_over_hard_cap_ingest_pauses_and_goes_on_by_itself(lab, way_out):
    config = '[retention]\nsoft_cap = "3MiB"\nhard_cap = "4MiB"\nkeep_free = "1MiB"\n[evict]\ninterval = "9h"\n'
    lab.write_config(config)
    write_session(lab, "kept", 5 * MIB, timedelta(days=30))
    lab.ingest()
    lab.analyze()
    with lab.upkeep() as upkeep:
        pin(upkeep, "claude:kept")
    with lab.daemon():
        until(lambda: lab.status()["paused_by"] == "hard_cap", what="the pause")
        assert lab.cli("health").returncode == 1
        live = lab.claude_file("live")
        append(live, b"".join(user_line(number, f"line {number}", session="live") for number in range(200)))
        until(lambda: lab.status()["passes"]["evict"]["runs"] >= 1, what="an evict pass")
        assert lab.status()["paused_by"] == "hard_cap"
        assert lab.cli("ingest").returncode == 1, "a promise that cannot be kept is not made"
        assert "claude:live" not in lab.sessions()
        if way_out == "unpin":
            assert lab.cli("unpin", "kept").returncode == 0
        else:
            lab.write_config(config.replace("3MiB", "300MiB").replace("4MiB", "400MiB"))
            assert lab.cli("reload").returncode == 0
        until(lambda: lab.status()["paused_by"] is None, what="going on")
        until(lambda: "claude:live" in lab.sessions() and len(lab.events("claude:live")) == 200, what="the lines")
        assert lab.archived(live) == live.read_bytes()
        assert (lab.sessions()["claude:kept"].evicted_at is not None) == (way_out == "unpin")


def test_loss_by_on_overflow_evict_shows_until_it_is_acknowledged(lab):
    lab.write_config(ROOMY)
    write_session(lab, "a", 3 * MIB, timedelta(days=3))
    lab.ingest()
    lab.analyze()
    append(lab.claude_file("a"), user_line(9001, session="a"))
    lab.ingest()
    with lab.upkeep() as upkeep:  # such as no version of ours can read: it cannot be folded any further
        upkeep._pipeline.writer.call(lambda db: db.execute("UPDATE _digest SET data = '[]'"))
    config = '[retention]\nsoft_cap = "1MiB"\nhard_cap = "2MiB"\nkeep_free = "0"\non_overflow = "evict"\n'
    with lab.daemon(config=config):
        until(lambda: "data_loss" in names(lab), what="the loss")
        found = lab.status()
        assert [each["session_uid"] for each in found["data_loss"]] == ["claude:a"]
        assert found["counters"]["data_loss"] == 1
        assert lab.cli("health").returncode == 1
        assert lab.cli("status", "--acknowledge").returncode == 0
        assert "data_loss" not in names(lab)
        until(lambda: lab.status()["data_loss"] == [])
    with lab.store() as db:
        assert rows(db, "SELECT count(*), count(acknowledged_at) FROM _loss") == [(1, 1)]


def test_pause_that_came_too_late_is_ended(lab):
    """Measured before the pass ended, paused after: nobody else would ever end it."""
    lab.write_config(ROOMY)
    write_session(lab, "a", MIB, timedelta(days=3))
    lab.ingest()
    with lab.upkeep() as upkeep:
        upkeep.evict()
        assert not upkeep.is_eviction_due()
        upkeep._pipeline.pause("hard_cap")
        assert upkeep.is_eviction_due()
        upkeep.evict()
        assert upkeep._pipeline.loop.paused_by is None


def test_full_disk_does_not_pass_for_one_with_room():
    """WALs are given back and needed again: with them counted as room, a full disk would never be seen."""
    from sessiond.config.retention import Caps

    caps = Caps(soft_cap=1024 * MIB, low_water=800 * MIB, hard_cap=1500 * MIB, keep_free=2 * MIB)
    wals = 13 * MIB
    full = space.Usage(used=64 * MIB, slack=wals, free=0, index=MIB, wals=wals, ballast=16 * MIB, index_need=0)
    assert plan.lacking(full, caps) == 18 * MIB, "keep_free, and a reserve to work in"
    assert plan.needed(full, caps) > 2 * MIB
    without_ballast = space.Usage(used=48 * MIB, slack=0, free=10 * MIB, index=MIB, wals=0, ballast=0, index_need=0)
    assert plan.lacking(without_ballast, caps) == 24 * MIB, "it must come back"


def test_nothing_is_taken_in_without_room_and_all_of_it_once_there_is(lab):
    append(lab.claude_file(), user_line(0))
    lab.write_config('[retention]\nkeep_free = "900PiB"\n')
    done = lab.cli("ingest")
    assert done.returncode == 1
    assert "the disk is too full" in done.stderr
    lab.write_config("")
    assert lab.cli("ingest").returncode == 0
    assert len(lab.events("claude:s1")) == 1


def test_store_that_cannot_be_measured_is_named_and_the_daemon_goes_on(lab):
    from sessiond.daemon import Daemon

    daemon = Daemon(None)

    class Upkeep:
        def is_eviction_due(self):
            raise OSError("no")

        def look_at_wal(self):
            pass

    class Pipeline:
        def suspect(self, error):
            assert isinstance(error, OSError)

    daemon.upkeep, daemon.pipeline = Upkeep(), Pipeline()
    daemon._look_at_room()
    assert [each["name"] for each in daemon.troubles.listing()] == ["room"]
    Upkeep.is_eviction_due = lambda _: False
    daemon._look_at_room()
    assert not daemon.troubles
