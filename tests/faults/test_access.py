"""Point 8 of the matrix's issue, first half (P8): a second user gets at nothing, and what was left open is closed.

The second user is a number that nobody has: only root can become him, so most of this is left out elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab import Lab, until, user_line
from sessiond import paths as places

STRANGER = 61_235
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")

# Everything that a stranger could try with a path; what he got is printed. All imports are done before he is one.
INTRUDE = """
import json, os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
def listen(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(path)
        try:
            return connection.recv(65536).decode()  # a refusal comes unasked
        except TimeoutError:
            connection.sendall(b'{"jsonrpc":"2.0","id":1,"method":"status"}\\n')
            return connection.recv(65536).decode()
tries = {
    "read": lambda path: os.close(os.open(path, os.O_RDONLY)),
    "write": lambda path: os.close(os.open(path, os.O_WRONLY)),
    "list": os.listdir,
    "make": lambda path: os.mkdir(os.path.join(path, "trap")),
    "connect": listen,
}
got = {}
for what, path in json.load(sys.stdin):
    try:
        got[f"{what} {path}"] = repr(tries[what](path))
    except PermissionError:
        pass
print(json.dumps(got))
"""


def as_stranger(tries: list[tuple[str, Path]]) -> dict[str, str]:
    """What a second user gets of this; nothing where he is refused."""
    given = json.dumps([(what, str(path)) for what, path in tries])
    done = subprocess.run(
        [sys.executable, "-c", INTRUDE, str(STRANGER)], input=given, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def all_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def own_folders(lab: Lab) -> list[Path]:
    return [lab.paths.state_dir, lab.paths.runtime_dir, lab.user_home / ".config" / "sessiond"]


@pytest.fixture
def lab(lab):
    lab.folder.chmod(0o755)  # mkdtemp's own 0700 would hide everything behind it
    return lab


def fill(lab: Lab) -> None:
    """A state folder with all that is ever in it: a store set aside, a copy from before an upgrade, a drop-in."""
    lab.claude_file().write_bytes(user_line(0, "one"))
    lab.ingest()
    lab.paths.store.write_bytes(b"no database at all" * 500)
    lab.ingest()
    copy = lab.paths.store.with_name("store.db.before-schema-2")
    shutil.copyfile(lab.paths.store, copy)
    copy.chmod(0o600)
    assert lab.cli("exclude", "/srv/private").returncode == 0


def names_in(folder: Path) -> set[str]:
    return {path.name.partition(".damaged")[0] for path in folder.iterdir()}


EVERYTHING = {"store.db", "store.db-wal", "store.db-shm", "search.db", "search.db-wal", "search.db-shm", "lock"}
EVERYTHING |= {"store.db.ballast", "store.db.before-schema-2"}


@pytest.mark.fault(69)
@needs_root
def test_second_user_can_neither_read_nor_list_nor_connect(lab):
    fill(lab)
    with lab.daemon():
        folders = own_folders(lab)
        files = [path for folder in folders for path in all_below(folder)]
        assert names_in(lab.paths.state_dir) >= EVERYTHING
        assert list(lab.paths.state_dir.glob("store.db.damaged-*"))
        assert lab.paths.socket in files
        assert any(path.name == "80-exclude.toml" for path in files)
        tries = [(what, path) for path in files for what in ("read", "write")] + [("connect", lab.paths.socket)]
        assert as_stranger([*tries, *((what, folder) for folder in folders for what in ("list", "make"))]) == {}

        for folder in (*folders, *(path for path in files if path.is_dir())):
            folder.chmod(0o755)  # the first wall is down: somebody opened the folders
        assert as_stranger([each for each in tries if not each[1].is_dir()]) == {}

        lab.paths.socket.chmod(0o666)  # and the second
        (answer,) = as_stranger([("connect", lab.paths.socket)]).values()
        assert "this daemon serves another user" in answer
        assert "sessions" not in answer


# --- modes --------------------------------------------------------------------------------------


def open_to_all(folder: Path) -> None:
    folder.chmod(0o755)
    for path in all_below(folder):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.parametrize("verb", ["run", "analyze"])
def test_modes_that_are_too_open_are_repaired_before_anything_is_read(lab, verb):
    fill(lab)
    with lab.daemon() as process:
        process.kill()  # so that WALs and the socket are left behind
        process.wait()
    left = {path.name for path in lab.paths.state_dir.iterdir()}
    assert {"store.db-wal", "store.db-shm", "search.db-wal"} <= left
    open_to_all(lab.paths.state_dir)
    open_to_all(lab.paths.runtime_dir)

    if verb == "run":
        with lab.daemon():
            assert_private(lab)
            assert mode(lab.paths.runtime_dir) == 0o700
            assert mode(lab.paths.socket) == 0o600
        told = [json.loads(line) for line in (lab.folder / "daemon.log").read_text().splitlines()]
        (closed,) = [each for each in told if each["event"] == "access_closed"]
        assert {"store.db", "store.db-wal", "search.db", "lock", str(lab.paths.state_dir)} <= set(closed["files"])
    else:
        assert lab.cli(verb).returncode == 0
        assert_private(lab)


def assert_private(lab: Lab) -> None:
    folder = lab.paths.state_dir
    assert mode(folder) == 0o700
    found = {path.name: oct(mode(path)) for path in folder.iterdir() if path.is_file() and mode(path) != 0o600}
    assert found == {}


def test_umask_of_nothing_changes_nothing(lab):
    fill(lab)
    shutil.rmtree(lab.paths.state_dir)
    shutil.rmtree(lab.user_home / ".config")
    umask = os.umask(0)
    try:
        with lab.daemon():
            lab.ingest_through_daemon()
            assert lab.cli("exclude", "/srv/x").returncode == 0
            assert lab.cli("restore", "claude:s1", "--to", str(lab.folder / "back")).returncode == 0
            folders = [*own_folders(lab), lab.folder / "back"]
            everything = [*folders, *(path for folder in folders for path in all_below(folder))]
            open_ones = {str(path): oct(mode(path)) for path in everything if mode(path) & 0o077}
            assert open_ones == {}
            assert EVERYTHING - names_in(lab.paths.state_dir) == {"store.db.before-schema-2"}
    finally:
        os.umask(umask)


@needs_root
@pytest.mark.parametrize(
    ("verb", "what"),
    [("run", each) for each in ("state", "run", "store.db", "lock", "search.db", "store.db-wal", "store.db.ballast")]
    + [("ingest", "state"), ("ingest", "lock"), ("analyze", "store.db")],
)
def test_what_belongs_to_somebody_else_is_refused_and_left_alone(lab, verb, what):
    lab.ingest()
    target = {"state": lab.paths.state_dir, "run": lab.paths.runtime_dir}.get(what, lab.paths.state_dir / what)
    if what == "run":
        target.mkdir(exist_ok=True)
    elif not target.exists():
        target.write_bytes(b"x" * 4096)
    target.chmod(0o777)
    os.chown(target, STRANGER, STRANGER)
    before = {path: path.read_bytes() for path in lab.paths.state_dir.iterdir() if path.is_file()}

    refused = lab.cli(verb)

    assert refused.returncode == 77, refused.stderr
    assert refused.stderr.count("\n") == 1
    assert f"{target} belongs to user {STRANGER}" in refused.stderr
    assert "(" in refused.stderr, "and the way out"
    assert {path: path.read_bytes() for path in before} == before
    assert mode(target) == 0o777


@needs_root
def test_store_elsewhere_is_as_private_and_no_folder_of_others_is_taken(lab):
    folder = lab.folder / "big disk"
    folder.mkdir(mode=0o755)
    (folder / "of the user").write_text("his")
    (folder / "of the user").chmod(0o644)
    lab.claude_file().write_bytes(user_line(0))
    lab.write_config(f'[store]\npath = "{folder}/journal.db"\n')
    with lab.daemon() as process:
        lab.ingest_through_daemon()
        process.kill()
        process.wait()
    for path in folder.glob("*.db*"):
        path.chmod(0o666)
    with lab.daemon():
        assert {path.name for path in folder.iterdir()} > {"journal.db", "search.db", "journal.db.ballast"}
        assert {path.name for path in folder.iterdir() if mode(path) != 0o600} == {"of the user"}
        files = [path for path in folder.iterdir() if path.name != "of the user"]
        assert as_stranger([(what, path) for path in files for what in ("read", "write")]) == {}
        assert mode(folder) == 0o755, "it is the user's"
    for owner, opened, words in ((0, 0o777, "everybody may write to"), (STRANGER, 0o755, "belongs to user")):
        os.chown(folder, owner, owner)
        folder.chmod(opened)
        refused = lab.cli("run" if owner else "analyze")
        assert refused.returncode == 77
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1


# --- a shared place for the socket --------------------------------------------------------------


@contextmanager
def shared_place():
    """The state folder's path is too long for a socket, so that lies in the /tmp that all share."""
    folder = Path(tempfile.mkdtemp(prefix="sd"))
    lab = Lab(folder)
    lab.env["SESSIOND_STATE_DIR"] = str(folder / ("long" * 30))
    del lab.env["SESSIOND_RUNTIME_DIR"]
    at = lab.paths.runtime_dir
    assert at.parent == Path(places._SHARED_TEMP)
    try:
        yield lab, at
    finally:
        if at.is_symlink() or at.is_file():
            at.unlink()
        shutil.rmtree(at, ignore_errors=True)
        shutil.rmtree(folder)


@needs_root
@pytest.mark.parametrize("trap", ["folder", "link to his folder", "link to our folder", "file", "dangling link"])
def test_trap_in_the_shared_place_is_refused_and_nothing_is_said_to_it(trap):
    with shared_place() as (lab, at):
        ours = lab.folder / "ours"
        ours.mkdir(mode=0o755)
        his = lab.folder / "his"
        his.mkdir(mode=0o777)
        os.chown(his, STRANGER, STRANGER)
        if trap == "folder":
            at.mkdir(mode=0o777)
        elif trap == "file":
            at.write_text("")
        else:
            at.symlink_to({"link to his folder": his, "link to our folder": ours}.get(trap, lab.folder / "nowhere"))
        os.chown(at, STRANGER, STRANGER, follow_symlinks=False)

        refused = lab.cli("run")

        assert refused.returncode in (77, 78), refused.stderr
        assert refused.stderr.count("\n") == 1
        assert "SESSIOND_RUNTIME_DIR" in refused.stderr or "move away" in refused.stderr
        assert mode(ours) == 0o755
        assert list(ours.iterdir()) == list(his.iterdir()) == []
        assert not (lab.folder / "nowhere").exists()


@needs_root
def test_client_does_not_talk_to_a_daemon_of_somebody_else():
    """He was there first and listens: he must not hear what is asked, nor be believed."""
    with shared_place() as (lab, at):
        at.mkdir(mode=0o777)
        os.chown(at, STRANGER, STRANGER)
        with imposter(lab.paths.socket) as heard:
            for words in (["status"], ["health"], ["reload"], ["analyze"]):
                asked = lab.cli(*words)
                assert asked.returncode == 77, (words, asked.stderr, asked.stdout)
                assert "another user" in asked.stderr or words == ["health"]
            listed = lab.cli("sessions")
            assert "all is well" not in listed.stdout + listed.stderr
            assert heard.read_bytes() == b""


IMPOSTER = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
with socket.socket(socket.AF_UNIX) as listener, open(sys.argv[2], "ab", buffering=0) as heard:
    listener.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o777)
    listener.listen(8)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        connection.settimeout(5)
        request = connection.recv(65536)
        heard.write(request)
        reply = b'{"jsonrpc":"2.0","sessiond":{"version":"0","protocol":1},"id":1,"result":{"state":"all is well"}}\\n'
        if request:
            connection.sendall(reply)
        connection.close()
"""


@contextmanager
def imposter(path: Path):
    """A stranger's process that answers at our socket's path; the file of what it was told."""
    with tempfile.TemporaryDirectory() as folder:
        heard = Path(folder) / "heard"
        heard.touch()
        heard.chmod(0o666)
        Path(folder).chmod(0o755)
        argv = [sys.executable, "-c", IMPOSTER, str(path), str(heard), str(STRANGER)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline() == b"ready\n"
                yield heard
            finally:
                process.kill()


def test_shared_place_is_private_once_it_is_ours():
    with shared_place() as (lab, at):
        with lab.daemon() as process:
            assert mode(at) == 0o700
            assert mode(lab.paths.socket) == 0o600
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
        assert not lab.paths.socket.exists()
        with socket.socket(socket.AF_UNIX) as dead:  # a leftover of ours, and open to all
            dead.bind(str(lab.paths.socket))
        at.chmod(0o777)
        with lab.daemon():
            assert (mode(at), mode(lab.paths.socket)) == (0o700, 0o600)
            until(lambda: lab.status())
