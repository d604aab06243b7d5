"""The clients by package name, into a folder of ours: kept between runs, never committed, `make clean` forgets it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from realclients.clients import Client
from realclients.clients.mycode import Mycode

NODE = "node@22"  # npm's own package: most clients need a newer Node.js than systems have
_TIMEOUT_SECONDS = 400


class NotInstalled(Exception):
    """Why a client is left out."""


def install(client: Client, folder: Path) -> str:
    """Install it unless it is there; its version. Raises NotInstalled with the reason."""
    if not client.executable(folder).exists():
        print(f"installing {client.package}", flush=True)
        if isinstance(client, Mycode):
            _install_venv(client, folder / client.flavor)
        else:
            _install_node(folder)
            _install_npm(folder, client.flavor, [f"{client.package}@{version}" for version in client.versions])
    if not client.executable(folder).exists():
        raise NotInstalled(f"{client.package} came without {client.program}")
    return client.version(folder)


def node_path(folder: Path) -> str:
    """A PATH with our Node.js first, and nothing of the caller's set-up."""
    return os.pathsep.join([str(folder / "node" / "node_modules" / ".bin"), "/usr/local/bin", "/usr/bin", "/bin"])


def _install_node(folder: Path) -> None:
    if not (folder / "node" / "node_modules" / ".bin" / "node").exists():
        _install_npm(folder, "node", [NODE])


def _install_npm(folder: Path, name: str, packages: Sequence[str]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("there is no npm")
    target = folder / name
    home = target / "home"  # what runs after an install stays in the folder
    home.mkdir(parents=True, exist_ok=True)
    own = str(folder / "node" / "node_modules" / ".bin")
    env = {**os.environ, "HOME": str(home), "PATH": own + os.pathsep + os.environ.get("PATH", "")}
    env |= {"npm_config_cache": str(folder / "npm-cache"), "npm_config_update_notifier": "false"}
    settings = Path.home() / ".npmrc"
    if settings.exists():
        env["npm_config_userconfig"] = str(settings)  # which registry: the caller's
    flags = ["--loglevel=error", "--no-audit", "--no-fund", "--no-save", "--prefix", str(target)]
    reasons = []
    for package in packages:
        reason = _run([npm, "install", *flags, package], env)
        if reason is None:
            return
        reasons.append(f"{package}: {reason}")
    raise NotInstalled("; ".join(reasons))


def _install_venv(client: Mycode, target: Path) -> None:
    python = _find_python(client.python)
    if python is None:
        raise NotInstalled(f"{client.package} needs Python {'.'.join(map(str, client.python))}, and there is none")
    venv = target / "venv"
    packages = [str(venv / "bin" / "pip"), "install", "--quiet", *client.requirements]
    for words in ([python, "-m", "venv", "--clear", str(venv)], packages):
        reason = _run(words, os.environ)
        if reason is not None:
            raise NotInstalled(reason)


def _find_python(least: tuple[int, int]) -> str | None:
    names = [shutil.which(f"python3.{minor}") for minor in range(15, least[1] - 1, -1)]
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python"))
    for each in [sys.executable, *names, *map(str, reversed(pyenv))]:
        if each is None:
            continue
        code = f"import sys; sys.exit(sys.version_info < {least})"
        if subprocess.run([each, "-c", code], capture_output=True).returncode == 0:
            return each
    return None


def _run(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """None when it went well, else the line that says why not."""
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"not done in {_TIMEOUT_SECONDS} s"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stderr + done.stdout).splitlines() if "notarget" in line or "rror" in line]
    return (lines or ["exit code " + str(done.returncode)])[-1 if len(lines) < 2 else 1][:200]
