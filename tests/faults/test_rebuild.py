"""Row 57, how a damaged store is made again: killed half-way, without room, under the daemon, where the user says stop."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import pytest

from lab import Lab, append, until, user_line
from sessiond.errors import ConfigError
from sessiond.store import damage, migrations, rebuild
from sessiond.store.connect import value
from tests.faults.damaged import (
    LIVE,
    PAGE,
    PLACES,
    RESTLESS,
    hit,
    look_over,
    pages_of,
    set_aside,
    zero,
)


class Killed(BaseException):
    pass


@pytest.mark.fault(57)
@pytest.mark.parametrize("step", ["move_aside", "salvage", "_put_in_place", "clear_mark", "half moved"])
def test_kill_while_it_is_made_again_is_made_good_by_the_next_start(history, monkeypatch, step):
    lab = history.restore()
    damaged = hit(lab.paths.store, 1, zero)

    def killed(store, aside=None, *_, **__):
        if step == "half moved":
            store.rename(aside)
        raise Killed

    owner, name = {
        "move_aside": (rebuild.connect, "move_aside"),
        "half moved": (rebuild.connect, "move_aside"),
        "clear_mark": (rebuild.damage, "clear_mark"),
    }.get(step, (rebuild, step))
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        with pytest.raises(Killed):
            lab.ingest()

    lab.ingest()

    aside = look_over(history)
    assert (lab.paths.state_dir / aside).read_bytes() == damaged
    assert not list(lab.paths.state_dir.glob("*.rebuilding*"))
    assert damage.read_mark(lab.paths.store) is None


@pytest.mark.fault(57)
def test_without_room_for_the_bytes_the_distilled_is_saved(history, monkeypatch):
    lab = history.restore()
    hit(lab.paths.store, 1, zero)
    real = rebuild.salvage

    def salvage(*args, leave_out, **kept):
        if not leave_out:
            raise apsw.FullError("no room")
        return real(*args, leave_out=leave_out, **kept)

    monkeypatch.setattr(rebuild, "salvage", salvage)
    lab.ingest()

    assert look_over(history, gone_are_whole=False)
    assert lab.digest("claude:gone3") == history.digests["claude:gone3"]
    assert lab.digest("claude:evicted-gone") == history.digests["claude:evicted-gone"]


@pytest.mark.fault(57)
@pytest.mark.parametrize("version", [0, 1, 2**24 + 2])
def test_version_that_does_not_go_with_the_tables_is_damage(history, version):
    lab = history.restore()
    data = bytearray(lab.paths.store.read_bytes())
    data[60:64] = version.to_bytes(4, "big")
    lab.paths.store.write_bytes(data)

    lab.ingest()

    assert look_over(history)


@pytest.mark.fault(57)
def test_every_damaged_store_is_kept(history):
    lab = history.restore()
    for word in (b"one", b"two", b"three"):
        lab.paths.store.write_bytes(word * 1000)
        lab.ingest()

    assert {path.read_bytes()[:3] for path in set_aside(lab)} == {b"one", b"two", b"thr"}


@pytest.mark.fault(57)
def test_pause_outlives_the_store(history):
    lab = history.restore()
    with lab.upkeep() as upkeep:
        upkeep.do("pause", {"until": "forever"})
    hit(lab.paths.store, 1, zero)

    with lab.upkeep() as upkeep:
        assert upkeep._pipeline.paused_until == "forever"


@pytest.mark.fault(57)
def test_check_gives_up_in_time(history, monkeypatch):
    lab = history.restore()
    monkeypatch.setattr(damage, "STEPS_BETWEEN_LOOKS", 1)

    assert damage.check(lab.paths.store, 0.0) is None


@pytest.mark.fault(57)
@pytest.mark.fault(59)
def test_damaged_store_of_an_older_schema_is_salvaged_and_brought_up_to_date(tmp_path):
    lab = Lab(tmp_path)
    lab.paths.state_dir.mkdir(parents=True, mode=0o700)
    dump = Path(__file__).parent.parent / "store" / "schema_1.sql"
    db = apsw.Connection(str(lab.paths.store))
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute(dump.read_text())
    db.close()
    hit(lab.paths.store, pages_of(lab.paths.store, "_event_seq", "leaf")[0], zero)

    lab.ingest()

    assert len(lab.events("claude:s1")) == 5
    assert lab.sessions()["claude:s1"].cost.output_tokens == 12
    with lab.store() as db:
        assert value(db, "PRAGMA user_version") == migrations.VERSION


@pytest.mark.fault(57)
@pytest.mark.fault(59)
def test_damaged_store_of_a_newer_program_is_left_to_that_program(history):
    lab = history.restore()
    db = apsw.Connection(str(lab.paths.store))
    db.execute("CREATE TABLE _of_the_future (a)")
    db.pragma("user_version", migrations.VERSION + 1)
    db.close()
    damaged = hit(lab.paths.store, pages_of(lab.paths.store, "_event", "leaf")[0], zero)

    with pytest.raises(ConfigError, match="newer"):
        lab.ingest()

    assert lab.paths.store.read_bytes() == damaged
    assert not set_aside(lab)


# --- the daemon ---------------------------------------------------------------------------------


def troubles(lab: Lab) -> dict[str, str]:
    return {each["name"]: each["detail"] for each in lab.status()["degraded"]}


@pytest.mark.fault(57)
def test_rebuild_is_told_until_somebody_has_read_it(history):
    lab = history.restore()
    hit(lab.paths.store, pages_of(lab.paths.store, "_event", "leaf")[-1], zero)
    for _ in range(2):  # a restart does not make it go away
        with lab.daemon():
            until(lambda: len(lab.sessions()) > len(LIVE) and lab.status()["state"] == "degraded")
            told = troubles(lab)["store_rebuilt"]
            assert "salvaged: " in told
            assert "read again" in told
            assert lab.cli("health").returncode == 1
    (aside,) = set_aside(lab)
    assert str(aside) in told
    with lab.daemon():
        (named,) = lab.status()["store"]["set_aside"]
        assert named["path"] == str(aside)
        assert named["bytes"] >= aside.stat().st_size

        done = lab.cli("status", "--acknowledge")

        assert "1 " in done.stderr
        assert "store_rebuilt" not in troubles(lab)
        until(lambda: lab.cli("health").returncode == 0)
    with lab.daemon():
        assert "store_rebuilt" not in troubles(lab)
    assert aside.exists()


@pytest.mark.fault(57)
@pytest.mark.parametrize("place", ["header", "leaf of events"])
def test_store_is_left_alone_where_the_user_says_so(history, place):
    lab = history.restore()
    lab.write_config(RESTLESS + '[store]\non_corrupt = "stop"\n')
    damaged = hit(lab.paths.store, PLACES[place](lab.paths.store), zero)
    before = {path.name: path.read_bytes() for path in lab.paths.state_dir.glob("store.db*")}

    refused = lab.cli("run")

    assert refused.returncode == 78, "a service manager must not start it again and again"
    assert "damaged" in refused.stderr
    assert "on_corrupt" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert lab.paths.store.read_bytes() == damaged
    for name in ("store.db", "store.db.forgotten", "store.db.ballast"):
        assert (lab.paths.state_dir / name).exists() == (name in before)
    assert not set_aside(lab)


@pytest.mark.fault(57)
@pytest.mark.parametrize("on_corrupt", ["rebuild", "stop"])
def test_damage_met_while_running_ends_the_writing_and_the_next_start_mends_it(history, on_corrupt):
    lab = history.restore()
    path = lab.claude_file("live4")
    before = path.read_bytes()
    try:
        with lab.daemon(config=RESTLESS + f'[store]\non_corrupt = "{on_corrupt}"\n') as process:
            until(lambda: lab.status()["state"] == "ready")
            data = lab.paths.store.read_bytes()
            inside = [*pages_of(lab.paths.store, "_event", "leaf")[-3:], *pages_of(lab.paths.store, "_key", "leaf")]
            with lab.paths.store.open("r+b") as file:
                for number in inside:
                    file.seek((number - 1) * PAGE)
                    file.write(b"\xa5" * PAGE)
            append(path, user_line(3, "after the damage", session="live4"))

            assert process.wait(20) == 75, "whoever looks after it starts it again"

        log = (lab.folder / "daemon.log").read_text()
        assert "store_damaged" in log
        assert "Traceback" not in log.split("store_damaged")[-1]
        assert len(data) <= lab.paths.store.stat().st_size, "nothing is gone"
        if on_corrupt == "stop":
            assert lab.cli("run").returncode == 78
            lab.write_config(RESTLESS)
        with lab.daemon():
            until(lambda: len(lab.events("claude:live4")) == 4)
            assert "store_rebuilt" in troubles(lab)
        assert lab.archived(path) == path.read_bytes()
        assert len(set_aside(lab)) == 1
    finally:
        path.write_bytes(before)


@pytest.mark.fault(57)
def test_error_of_something_else_does_not_condemn_the_store(history):
    lab = history.restore()
    with lab.upkeep() as upkeep:
        pipeline = upkeep._pipeline
        pipeline.suspect(apsw.CorruptError("of the index, say"))
        assert pipeline.damaged is None

        with lab.paths.store.open("r+b") as file:
            file.seek((pages_of(lab.paths.store, "_event", "leaf")[0] - 1) * PAGE)
            file.write(bytes(PAGE))
        pipeline.suspect(apsw.CorruptError("of the store"))

        assert pipeline.damaged is not None
        assert [each["name"] for each in lab.troubles.listing()] == ["store_damaged"]
        with pytest.raises(Exception, match="damaged"):
            upkeep.do("pin", {"uids": ["claude:live5"]})
    lab.ingest()
    assert set_aside(lab)


@pytest.mark.fault(60)
def test_store_removed_under_load_ends_the_daemon_and_the_next_one_has_everything_once(lab):
    paths = [lab.claude_file(f"s{number}") for number in range(6)]
    with lab.daemon() as process:
        written = 0
        while process.poll() is None:
            for number, path in enumerate(paths):
                append(path, user_line(written, f"line {written}", session=f"s{number}"))
            written += 1
            time.sleep(0.002)
            if written == 50:
                until(lambda: lab.sessions())
                lab.paths.store.unlink()
            assert written < 100_000, "it does not notice"
        assert process.returncode == 75
    assert not lab.paths.store.exists(), "nothing was made in its place by the one that ended"
    with lab.daemon():
        lab.ingest_through_daemon()
        assert "store_rebuilt" in troubles(lab)
        for number, path in enumerate(paths):
            assert lab.archived(path) == path.read_bytes()
            assert len(lab.events(f"claude:s{number}")) == written


@pytest.mark.fault(60)
def test_nothing_is_written_into_a_removed_store(lab):
    lab.claude_file().write_bytes(user_line(0))
    with lab.upkeep() as upkeep:
        pipeline = upkeep._pipeline
        lab.paths.store.rename(lab.folder / "elsewhere")
        with pytest.raises(Exception, match="the store was removed"):
            pipeline.writer.call(lambda db: db.execute("DELETE FROM _session"))
        (lab.folder / "elsewhere").rename(lab.paths.store)
