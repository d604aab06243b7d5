"""Where things lie: store, socket, lock, configuration. Besides this module only adapters know a directory.

Light on purpose (no pydantic, no platformdirs, which costs 10 ms to import): every client call begins here.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sessiond.errors import ConfigError, Forbidden, SessiondError

if TYPE_CHECKING:
    from collections.abc import Mapping

APP = "sessiond"
MAX_SOCKET_BYTES = 100  # the kernels take 108 (Linux) and 104 (macOS), the final NUL included
_SHARED_TEMP = "/tmp"  # noqa: S108 - not $TMPDIR: the daemon and a shell may differ in it, and both must meet here


def environment() -> Mapping[str, str]:
    """The process's environment; the only place that touches it. Everything else takes a mapping."""
    return os.environ


@dataclass(frozen=True, slots=True)
class Paths:
    state_dir: Path
    runtime_dir: Path  # of the socket
    store: Path
    search: Path
    lock: Path
    socket: Path


def resolve(env: Mapping[str, str], store: Path | None = None) -> Paths:
    """Where everything of this user lives; creates nothing. `store` is `[store] path` where that is set.

    The same environment gives the same answer to daemon and client, so they find each other.
    """
    state = state_dir(env)
    runtime = runtime_dir(env, state)
    socket = runtime / f"{APP}.sock"
    if len(os.fsencode(socket)) > MAX_SOCKET_BYTES:
        runtime = _short_dir(state)
        socket = runtime / f"{APP}.sock"
    database = store or state / "store.db"
    return Paths(
        state_dir=state,
        runtime_dir=runtime,
        store=database,
        search=database.with_name("search.db"),
        lock=state / "lock",
        socket=socket,
    )


def user_home(env: Mapping[str, str]) -> Path:
    home = env.get("HOME", "")
    return Path(home if os.path.isabs(home) else pwd.getpwuid(os.getuid()).pw_dir)


def expand(text: str, env: Mapping[str, str]) -> Path:
    """A path as a person writes it: `~` is the home; what is still relative stays so."""
    if text == "~" or text.startswith("~/"):
        return user_home(env) / text[2:]
    return Path(text)


def shown(path: Path, env: Mapping[str, str]) -> str:
    """A path as a person reads it: below the home with `~`."""
    home = user_home(env)
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)


def state_dir(env: Mapping[str, str]) -> Path:
    if chosen := _chosen(env, "SESSIOND_STATE_DIR"):
        return chosen
    # A system unit's own directory. A user unit's is ignored: before systemd 254 it lies in ~/.config, and
    # the user's shell, which does not see the variable, would look for the store elsewhere.
    system = env.get("STATE_DIRECTORY", "").partition(":")[0]
    if system.startswith("/var/lib/"):
        return Path(system)
    if base := _xdg(env, "XDG_STATE_HOME"):
        return base / APP
    if sys.platform == "darwin":
        return user_home(env) / "Library" / "Application Support" / APP
    return user_home(env) / ".local" / "state" / APP


def runtime_dir(env: Mapping[str, str], state: Path) -> Path:
    if chosen := _chosen(env, "SESSIOND_RUNTIME_DIR"):
        return chosen
    if env.get("SESSIOND_STATE_DIR"):
        return state / "run"  # a throw-away run must not meet the real daemon on its socket
    system = env.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if system.startswith("/run/") and not system.startswith("/run/user/"):
        return Path(system)
    base = _xdg(env, "XDG_RUNTIME_DIR")
    return base / APP if base and _is_ours(base) else state / "run"


def config_dir(env: Mapping[str, str]) -> Path:
    return (_xdg(env, "XDG_CONFIG_HOME") or user_home(env) / ".config") / APP


def system_config_dir() -> Path:
    return Path("/Library/Application Support" if sys.platform == "darwin" else "/etc") / APP


def _chosen(env: Mapping[str, str], name: str) -> Path | None:
    text = env.get(name, "")
    return Path(os.path.abspath(expand(text, env))) if text else None


def _xdg(env: Mapping[str, str], name: str) -> Path | None:
    """The specification: a relative value is to be ignored."""
    path = Path(env.get(name, ""))
    return path if path.is_absolute() else None


def _is_ours(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _short_dir(state: Path) -> Path:
    from hashlib import blake2s  # noqa: PLC0415 - only for the rare long path; every client call pays for imports

    name = blake2s(os.fsencode(state) + b"\0%d" % os.getuid(), digest_size=6).hexdigest()
    return Path(_SHARED_TEMP) / f"{APP}-{name}"


def make_private(directory: Path) -> bool:
    """Afterwards the directory exists, is ours and has mode 0700; else Forbidden, with what is in the way.

    True if others could have looked into it until now.

    Missing parents are made 0700 too. Nothing is changed about a directory that is not ours, or is shared.
    """
    try:
        make_folders(directory)
        link = directory.lstat()
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot_use(directory, error) from error
    try:
        found = os.fstat(fd)
        # The owner of a link counts as well: whoever owns it can point it elsewhere tomorrow.
        for owner in (link.st_uid, found.st_uid):
            if owner != os.getuid():
                raise Forbidden(
                    f"{directory} belongs to {_name(owner)}, and you are {_name(os.getuid())}",
                    hint=f"run sessiond as {_name(owner)}, or choose another folder with SESSIOND_STATE_DIR "
                    "or SESSIOND_RUNTIME_DIR",
                )
        if found.st_mode & stat.S_ISVTX or directory == Path("/"):
            raise Forbidden(f"{directory} is shared by all users", hint=f"use a folder in it: {directory / APP}")
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(fd, 0o700)
        return bool(found.st_mode & 0o077)
    except OSError as error:
        raise _cannot_use(directory, error) from error
    finally:
        os.close(fd)


def make_files_private(directory: Path, beginnings: tuple[str, ...] = ("",)) -> list[str]:
    """Afterwards every file in it whose name begins so is ours alone (0600); else Forbidden, naming one that is not.

    Returns the names of those that others could have read. For folders that we made private before: in any other,
    what is checked here could be exchanged a moment later.
    """
    try:
        with os.scandir(directory) as entries:
            return [each.name for each in entries if each.name.startswith(beginnings) and _close_to_others(each)]
    except OSError as error:
        raise _cannot_use(directory, error) from error


def _close_to_others(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
        if found.st_uid != os.getuid():
            raise Forbidden(
                f"{entry.path} belongs to {_name(found.st_uid)}, and you are {_name(os.getuid())}",
                hint="it may be somebody's trap: look at it, then move it away",
            )
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o077:
            return False
        os.chmod(entry.path, 0o600)
    except FileNotFoundError:  # a WAL that its last reader has just removed
        return False
    return True


def check_shared_folder(directory: Path) -> None:
    """Forbidden where others could exchange what we put into this folder; for one that is not ours to make private."""
    try:
        found = directory.stat()
    except FileNotFoundError:
        return  # it is made when it is needed, and private
    except OSError as error:
        raise _cannot_use(directory, error) from error
    if found.st_uid not in (0, os.getuid()):
        raise Forbidden(f"{directory} belongs to {_name(found.st_uid)}", hint="choose another folder: store.path")
    if found.st_mode & stat.S_IWOTH:
        raise Forbidden(
            f"everybody may write to {directory}, where the store is to lie",
            hint=f"use a folder in it: {directory / APP}, or chmod o-w {directory}",
        )


def make_folders(directory: Path) -> None:
    """The directory and its missing parents, each 0700: mkdir's own `parents` would make those as the umask has it."""
    for path in [*reversed(directory.parents), directory]:
        if not path.exists():
            # Someone may make it at the same time; what matters is checked on what is there then.
            path.mkdir(mode=0o700, exist_ok=True)


def _cannot_use(directory: Path, error: OSError) -> SessiondError:
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return Forbidden(
            f"cannot use the folder {directory}: {reason}",
            hint="make it writable, or choose another with SESSIOND_STATE_DIR or SESSIOND_RUNTIME_DIR",
        )
    if isinstance(error, FileExistsError | NotADirectoryError):
        return ConfigError(f"{directory} is not a folder", hint="move away what is in its place")
    return SessiondError(f"cannot use the folder {directory}: {reason}")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
