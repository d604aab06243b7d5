"""Where things lie, and that the folders they lie in are ours alone."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessiond import paths
from sessiond.errors import ConfigError, Forbidden

on_linux = pytest.mark.skipif(sys.platform == "darwin", reason="the XDG defaults of Linux")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@on_linux
def test_without_any_variable_everything_is_below_the_home(tmp_path):
    found = paths.resolve({"HOME": str(tmp_path)})

    state = tmp_path / ".local/state/sessiond"
    assert found.state_dir == state
    assert found.store == state / "store.db"
    assert found.search == state / "search.db"
    assert found.lock == state / "lock"
    assert paths.config_dir({"HOME": str(tmp_path)}) == tmp_path / ".config/sessiond"


def test_mac_keeps_its_state_in_application_support(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert paths.state_dir({"HOME": str(tmp_path)}) == tmp_path / "Library/Application Support/sessiond"
    assert paths.system_config_dir() == Path("/Library/Application Support/sessiond")


def test_xdg_variables_are_honoured(tmp_path):
    (tmp_path / "run").mkdir()
    env = {
        "HOME": "/home/nobody-here",
        "XDG_STATE_HOME": str(tmp_path / "s"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "c"),
    }
    found = paths.resolve(env)

    assert found.state_dir == tmp_path / "s/sessiond"
    assert found.runtime_dir == tmp_path / "run/sessiond"
    assert paths.config_dir(env) == tmp_path / "c/sessiond"


@on_linux
def test_relative_xdg_values_are_ignored(tmp_path):
    env = {"HOME": str(tmp_path), "XDG_STATE_HOME": "s", "XDG_RUNTIME_DIR": "r", "XDG_CONFIG_HOME": "./c"}
    assert paths.resolve(env) == paths.resolve({"HOME": str(tmp_path)})
    assert paths.config_dir(env) == tmp_path / ".config/sessiond"


def test_a_runtime_dir_that_is_not_ours_is_not_used(tmp_path):
    env = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(foreign_folder(tmp_path)),
    }
    assert paths.resolve(env).runtime_dir == tmp_path / "sessiond/run"


def test_a_runtime_dir_that_is_not_there_is_not_used(tmp_path):
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "gone")}
    assert paths.resolve(env).runtime_dir == tmp_path / "sessiond/run"


def test_our_own_variables_win_over_all(tmp_path):
    env = {
        "SESSIOND_STATE_DIR": str(tmp_path / "s"),
        "SESSIOND_RUNTIME_DIR": str(tmp_path / "r"),
        "XDG_STATE_HOME": "/elsewhere",
        "XDG_RUNTIME_DIR": str(tmp_path),
        "STATE_DIRECTORY": "/var/lib/sessiond",
    }
    found = paths.resolve(env)
    assert (found.state_dir, found.runtime_dir) == (tmp_path / "s", tmp_path / "r")


def test_a_throw_away_state_never_shares_the_real_daemons_socket(tmp_path):
    env = {"SESSIOND_STATE_DIR": str(tmp_path / "s"), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert paths.resolve(env).socket == tmp_path / "s/run/sessiond.sock"


def test_relative_and_tilde_overrides_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert paths.state_dir({"SESSIOND_STATE_DIR": "scratch"}) == tmp_path / "scratch"
    assert paths.state_dir({"SESSIOND_STATE_DIR": "~/x", "HOME": "/home/ann"}) == Path("/home/ann/x")


@on_linux
def test_only_a_system_units_state_directory_counts(tmp_path):
    env = {"HOME": str(tmp_path)}
    assert paths.state_dir({**env, "STATE_DIRECTORY": "/var/lib/sessiond:/var/lib/x"}) == Path("/var/lib/sessiond")
    # What systemd 252 hands to a user unit: the user's shell would never look there.
    user_unit = {**env, "STATE_DIRECTORY": f"{tmp_path}/.config/sessiond"}
    assert paths.state_dir(user_unit) == tmp_path / ".local/state/sessiond"


def test_a_store_elsewhere_takes_its_search_index_with_it(tmp_path):
    found = paths.resolve({"SESSIOND_STATE_DIR": str(tmp_path)}, store=Path("/data/journal.db"))
    assert (found.store, found.search) == (Path("/data/journal.db"), Path("/data/search.db"))
    assert found.lock == tmp_path / "lock"


@pytest.mark.fault(70)
def test_a_socket_path_too_long_to_bind_becomes_a_short_one(tmp_path):
    long = tmp_path / ("d" * 120)
    found = paths.resolve({"SESSIOND_STATE_DIR": str(long)})

    assert len(os.fsencode(found.socket)) <= paths.MAX_SOCKET_BYTES
    assert found.runtime_dir == found.socket.parent
    assert found == paths.resolve({"SESSIOND_STATE_DIR": str(long)})
    assert found.socket != paths.resolve({"SESSIOND_STATE_DIR": f"{long}e"}).socket
    paths.make_private(found.runtime_dir)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(found.socket))
        found.socket.unlink()
    finally:
        found.runtime_dir.rmdir()


def test_a_private_folder_is_made_with_its_parents(tmp_path):
    paths.make_private(tmp_path / "a/b/c")
    assert [mode(tmp_path / p) for p in ("a", "a/b", "a/b/c")] == [0o700] * 3


@pytest.mark.parametrize("before", [0o755, 0o770, 0o777, 0o500])
def test_the_mode_of_our_own_folder_is_repaired(tmp_path, before):
    folder = tmp_path / "d"
    folder.mkdir()
    folder.chmod(before)
    paths.make_private(folder)
    assert mode(folder) == 0o700


def test_someone_elses_folder_is_refused_and_left_alone(tmp_path):
    folder = foreign_folder(tmp_path)
    before = mode(folder)
    with pytest.raises(Forbidden, match="belongs to") as caught:
        paths.make_private(folder)
    assert caught.value.exit_code == 77
    assert "SESSIOND_STATE_DIR" in str(caught.value)
    assert mode(folder) == before


def test_a_link_of_our_own_to_our_own_folder_is_fine(tmp_path):
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    paths.make_private(tmp_path / "link")
    assert mode(tmp_path / "real") == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link away")
def test_someone_elses_link_to_our_folder_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o755)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    os.lchown(link, 65534, 65534)
    with pytest.raises(Forbidden, match="belongs to"):
        paths.make_private(link)
    assert mode(tmp_path / "real") == 0o755


def test_a_folder_shared_by_all_is_never_made_private(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(Forbidden, match="shared by all users") as caught:
        paths.make_private(folder)
    assert str(folder / "sessiond") in str(caught.value)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(ConfigError, match="is not a folder"):
        paths.make_private(tmp_path / "f")
    with pytest.raises(ConfigError, match="is not a folder"):
        paths.make_private(tmp_path / "f/below")


def test_a_folder_that_cannot_be_made_is_a_permission_matter(tmp_path):
    (tmp_path / "shut").mkdir(mode=0o500)
    folder = tmp_path / "shut/x"
    with pytest.raises(Forbidden) as caught, without_roots_powers():
        paths.make_private(folder)

    assert f"cannot use the folder {folder}: permission denied (make it writable" in str(caught.value)


def test_paths_are_shown_the_way_people_write_them():
    env = {"HOME": "/home/ann"}
    assert paths.shown(Path("/home/ann/.config/x"), env) == "~/.config/x"
    assert paths.shown(Path("/etc/x"), env) == "/etc/x"
    assert paths.shown(Path("/home/ann"), env) == "/home/ann"
    assert paths.shown(Path("/home/anna/x"), env) == "/home/anna/x"
    assert paths.expand("~/x", env) == Path("/home/ann/x")
    assert paths.expand("~", env) == Path("/home/ann")
    assert paths.expand("~other/x", env) == Path("~other/x")


def test_without_a_home_variable_the_password_database_knows():
    assert paths.user_home({}).is_absolute()
    assert paths.user_home({"HOME": "relative"}) == paths.user_home({})


def test_the_clients_way_in_stays_light():
    code = "import sys, sessiond.paths; print([m for m in ('pydantic', 'structlog', 'rich', 'platformdirs') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def foreign_folder(tmp_path: Path) -> Path:
    """A folder of someone else: root can make one, and everyone else knows one."""
    if os.getuid():
        return Path("/usr")
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    os.chown(folder, 65534, 65534)
    return folder


@contextmanager
def without_roots_powers():
    """Root may write anywhere, so root tries as nobody."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
