"""Rows 59, 61, 62 and 83: stores of other versions, stores that cannot be written, cursors that are lost, and a daemon
that is not of the client's version.
"""

# ruff: noqa: E402 - run as a program it must find its neighbours first

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1)]  # run as a program it has no conftest

from lab import Lab, append, until, user_line
from namespaces import inside, mount_tmpfs
from sessiond.serve import protocol
from sessiond.store import migrations
from sessiond.store.connect import rows, value

SCHEMA_1 = Path(__file__).parent.parent / "store" / "schema_1.sql"


def old_store(lab: Lab) -> None:
    lab.paths.state_dir.mkdir(parents=True, mode=0o700)
    db = apsw.Connection(str(lab.paths.store))
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute(SCHEMA_1.read_text())
    db.close()
    lab.paths.store.chmod(0o600)


def set_version(lab: Lab, number: int) -> bytes:
    """The store as a program of another version would have left it."""
    db = apsw.Connection(str(lab.paths.store))
    db.execute("CREATE TABLE _of_the_future (a)")
    db.pragma("user_version", number)
    db.close()
    return lab.paths.store.read_bytes()


# --- the store is of another version ------------------------------------------------------------


@pytest.mark.fault(59)
@pytest.mark.fault(83)
def test_daemon_brings_an_older_store_up_to_date_and_keeps_a_copy(lab):
    old_store(lab)
    with lab.daemon():
        until(lambda: lab.status()["state"] in ("ready", "degraded"))
        assert lab.status()["degraded"] == []
        assert len(lab.events("claude:s1")) == 5
    copy = lab.paths.store.with_name(f"store.db.before-schema-{migrations.VERSION}")
    assert copy.stat().st_mode & 0o777 == 0o600
    with apsw.Connection(str(copy)) as before:
        assert value(before, "PRAGMA user_version") == 1
        assert value(before, "SELECT count(*) FROM _event") == 5
        assert value(before, "PRAGMA integrity_check") == "ok"


@pytest.mark.fault(59)
@pytest.mark.parametrize("verb", ["run", "ingest", "sessions"])
def test_newer_store_is_refused_and_not_touched(lab, verb):
    lab.claude_file().write_bytes(user_line(0))
    lab.ingest()
    before = set_version(lab, migrations.VERSION + 1)

    refused = lab.cli(verb)

    assert refused.returncode == 78
    assert "newer sessiond" in refused.stderr
    assert "upgrade sessiond" in refused.stderr
    assert lab.paths.store.read_bytes() == before
    assert not list(lab.paths.state_dir.glob("store.db.*-*")), "no copy, nothing set aside"


@pytest.mark.fault(83)
@pytest.mark.parametrize("verb", [["sessions"], ["show", "s1"], ["events", "s1"], ["errors"], ["cost"]], ids=" ".join)
def test_client_that_is_newer_than_the_store_names_the_way_out(lab, verb):
    """The package was upgraded and the old daemon still runs: its store is not this program's yet."""
    old_store(lab)

    told = lab.cli(*verb)

    assert told.returncode == 1
    assert "older sessiond" in told.stderr
    assert "restart the daemon" in told.stderr
    with apsw.Connection(str(lab.paths.store)) as db:
        assert value(db, "PRAGMA user_version") == 1, "only the daemon changes it"


# --- the daemon is of another version -----------------------------------------------------------

FUTURE_DAEMON = """
import sys
from sessiond.serve import protocol
protocol.PROTOCOL = 2
import sessiond
sessiond.__version__ = "99.0"
from sessiond.cli import main
sys.argv = ["sessiond", "run"]
sys.exit(main())
"""


@pytest.mark.fault(83)
def test_old_client_and_new_daemon_tell_each_other_apart(lab):
    """A daemon that speaks a protocol to come: the client of today says so, and what to do."""
    with (lab.folder / "daemon.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-c", FUTURE_DAEMON], env=lab.env, stdout=log, stderr=log)
    try:
        until(lab.paths.socket.exists)
        for verb in ("status", "health", "reload"):
            told = lab.cli(verb, *(["-v"] if verb == "health" else []))
            assert told.returncode == 1, verb
            assert "protocol 2" in told.stderr, verb
            assert "restart" in told.stderr, verb
        assert lab.cli("sessions").returncode == 0, "what only reads the store needs no daemon"
    finally:
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.fault(83)
def test_new_client_is_told_of_a_verb_that_an_old_daemon_lacks(lab):
    with lab.daemon(), pytest.raises(Exception, match="does not know 'of_the_future'.*restart"):
        lab.call("of_the_future")


REQUESTS = [
    b'{"jsonrpc":"2.0","id":1,"method":"status"}',
    b'{"jsonrpc":"2.0","id":2,"method":"no such method"}',
    b'{"jsonrpc":"2.0","id":3,"method":"work","params":{"verb":"nonsense"}}',
    b'{"jsonrpc":"1.0"}',
    b"[]",
    b"no JSON at all",
    b'{"jsonrpc":"2.0","id":4,"method":"status","params":[1]}',
    b"x" * (protocol.MAX_REQUEST_BYTES + 1),
]


@pytest.mark.fault(83)
def test_every_reply_says_which_protocol_it_is(lab):
    with lab.daemon():
        for request in REQUESTS:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(str(lab.paths.socket))
                connection.sendall(request + b"\n")
                reply = json.loads(connection.makefile("rb").readline())
            assert reply["sessiond"]["protocol"] == protocol.PROTOCOL, request[:40]
            assert reply["sessiond"]["version"], request[:40]


# --- the store cannot be written ----------------------------------------------------------------


def without_privileges(lab: Lab, *words: str) -> subprocess.CompletedProcess:
    """As this user, but held by permissions even if he is root: in a user namespace he has no power over these files."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode:
        pytest.skip("this kernel lets nobody make a user namespace")
    argv = ["unshare", "-U", sys.executable, "-m", "sessiond", *words]
    return subprocess.run(argv, env=lab.env, capture_output=True, text=True, timeout=60)


@pytest.mark.fault(61)
@pytest.mark.parametrize("verb", ["run", "ingest"])
def test_state_folder_that_cannot_be_written_is_named(lab, verb):
    lab.claude_file().write_bytes(user_line(0))
    lab.ingest()
    before = lab.paths.store.read_bytes()
    lab.user_home.chmod(0o700)
    where = lab.folder / "closed"
    where.mkdir()
    where.chmod(0o500)
    lab.env["SESSIOND_STATE_DIR"] = str(where / "state")

    refused = without_privileges(lab, verb)

    assert refused.returncode == 77, refused.stderr
    assert str(where) in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "SESSIOND_STATE_DIR" in refused.stderr
    lab.env["SESSIOND_STATE_DIR"] = str(lab.folder / "state")
    assert lab.paths.store.read_bytes() == before


@pytest.mark.fault(61)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["state_dir", "store"])
def test_state_of_another_owner_is_refused(lab, what):
    lab.claude_file().write_bytes(user_line(0))
    lab.ingest()
    before = lab.paths.store.read_bytes()
    os.chown(getattr(lab.paths, what), 61_235, 61_235)

    refused = lab.cli("run")

    assert refused.returncode == 77
    assert "belongs to" in refused.stderr
    assert lab.paths.store.read_bytes() == before


@pytest.mark.fault(61)
def test_read_only_file_system_is_named(lab):
    inside(__file__, "read_only", lab)


def read_only(lab: Lab) -> None:
    """In a namespace: the disk of the state folder becomes read-only, at first before the start and then while running."""
    state = lab.paths.state_dir
    mount_tmpfs(state)
    path = lab.claude_file()
    path.write_bytes(user_line(0))
    lab.ingest()
    before = lab.paths.store.read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True)
    for verb in ("run", "ingest"):
        refused = lab.cli(verb)
        assert refused.returncode == 77, (verb, refused.returncode, refused.stderr)
        assert "read-only" in refused.stderr.lower(), refused.stderr
        assert refused.stderr.count("\n") == 1, refused.stderr
    assert lab.paths.store.read_bytes() == before
    subprocess.run(["mount", "-o", "remount,rw", str(state)], check=True)
    append(path, user_line(1))
    lab.ingest()
    assert len(lab.events("claude:s1")) == 2


# --- the cursor is lost -------------------------------------------------------------------------

LOST = {
    "rows deleted": "PRAGMA foreign_keys = OFF; DELETE FROM _source",
    "set back": """
        UPDATE _source SET read_offset = 0, head = x'', head_bytes = 0, marker = x'', checksum = 0, size = 0,
                           mtime_ns = 0, generation_id = NULL, carry = seed
    """,
}


@pytest.mark.fault(62)
@pytest.mark.parametrize("name", LOST)
def test_lost_cursor_costs_a_reading_and_no_row_comes_twice(lab, name):
    for number in range(4):
        said = [user_line(line, f"line {line}", session=f"s{number}") for line in range(20)]
        lab.claude_file(f"s{number}").write_bytes(b"".join(said) + b'{"no json\n')
    lab.ingest()
    before = told(lab)
    db = apsw.Connection(str(lab.paths.store))
    db.execute(LOST[name])
    db.close()

    lab.ingest()

    assert told(lab) == before
    for number in range(4):
        path = lab.claude_file(f"s{number}")
        assert lab.archived(path) == path.read_bytes()
        append(path, user_line(20, "one more", session=f"s{number}"))
    lab.ingest()
    assert [len(events) for events in told(lab).values()] == [21] * 4


def told(lab: Lab) -> dict[str, list[tuple]]:
    """What anybody sees of every session."""
    with lab.store() as db:
        query = "SELECT seq, ts, kind, summary FROM events WHERE session_uid = ? AND NOT is_superseded ORDER BY seq"
        return {uid: rows(db, query, (uid,)) for uid in lab.sessions()}


if __name__ == "__main__":
    {"read_only": read_only}[sys.argv[1]](Lab(Path(sys.argv[2])))
