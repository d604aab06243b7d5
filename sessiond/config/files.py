"""Finds the configuration files, reads them and lays one over the other; knows nothing of what the keys mean.

In order: the system's config.d, then the main file (--config, else $SESSIOND_CONFIG, else the user's own), then the
config.d beside it. Tables merge key by key, anything else replaces. Light: no pydantic, so every client may use it.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sessiond.errors import ConfigError
from sessiond.paths import config_dir, expand, shown, system_config_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MAX_FILE_BYTES = 2**20
Key = tuple[str, ...]
# Lists of files that add up, where all others replace each other: a privacy rule must not be lost by another file.
ADDED_UP = frozenset({("privacy", "exclude"), ("privacy", "mask")})


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong, on a line of its own: the fact, and what to do."""

    fact: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.fact} ({self.hint})" if self.hint else self.fact


@dataclass(frozen=True, slots=True)
class Located:
    main: Path
    is_named: bool  # by --config or $SESSIOND_CONFIG: then it has to exist
    drop_ins: Path


@dataclass(slots=True)
class Merged:
    located: Located
    table: dict[str, Any] = field(default_factory=dict)
    origins: dict[Key, Path] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)


def locate(config_file: Path | None, env: Mapping[str, str]) -> Located:
    """The main file and the folder of drop-ins beside it, whether they exist or not."""
    named = config_file or (expand(env["SESSIOND_CONFIG"], env) if env.get("SESSIOND_CONFIG") else None)
    main = named.absolute() if named else config_dir(env) / "config.toml"
    return Located(main, is_named=named is not None, drop_ins=main.parent / "config.d")


def read(config_file: Path | None, env: Mapping[str, str], system_dir: Path | None = None) -> Merged:
    """All files, laid one over the other. ConfigError names every file that cannot be read."""
    merged = Merged(locate(config_file, env))
    problems: list[Problem] = []
    main, drop_ins = merged.located.main, merged.located.drop_ins
    try:
        paths = _toml_files((system_dir or system_config_dir()) / "config.d", env)
        paths += [main] if merged.located.is_named or main.exists() else []
        paths += [path for path in _toml_files(drop_ins, env) if path != main]
    except OSError as error:  # a folder above the main file is shut
        raise_all([Problem(f"{shown(main, env)} cannot be looked for: {_reason(error)}")])
    for path in paths:
        try:
            _lay_over(merged.table, _read_toml(path, env), path, merged.origins)
            merged.files.append(path)
        except ConfigError as error:
            problems.append(Problem(error.fact, error.hint))
    raise_all(problems)
    return merged


def store_path(config_file: Path | None, env: Mapping[str, str], system_dir: Path | None = None) -> Path | None:
    """`[store] path` alone, for those who only read the store; None where it is "auto"."""
    section = read(config_file, env, system_dir).table.get("store")
    value = section.get("path", "auto") if isinstance(section, dict) else "auto"
    if value == "auto":
        return None
    path = expand(value, env) if isinstance(value, str) else None
    if path is None or not path.is_absolute():
        raise ConfigError(f'store.path: "{value}" is not an absolute path', hint='begin with / or ~ or write "auto"')
    return path


def raise_all(problems: Iterable[Problem]) -> None:
    """One ConfigError for all of them, a line each; nothing where there is none."""
    match list(problems):
        case []:
            return
        case [one]:
            raise ConfigError(one.fact, hint=one.hint)
        case several:
            raise ConfigError("\n".join(map(str, several)))


def _toml_files(folder: Path, env: Mapping[str, str]) -> list[Path]:
    try:
        # A name that begins with a dot is an editor's, not the user's.
        return sorted(p for p in folder.iterdir() if p.suffix == ".toml" and not p.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(f"{shown(folder, env)} cannot be read: {_reason(error)}", hint=_access_hint(error)) from error


def _lay_over(below: dict[str, Any], above: dict[str, Any], path: Path, origins: dict[Key, Path], at: Key = ()) -> None:
    for name, value in above.items():
        key = (*at, name)
        if isinstance(value, dict):
            if not isinstance(below.get(name), dict):
                below[name] = {}
            origins.setdefault(key, path)  # an empty table may be the mistake that is to be named
            _lay_over(below[name], value, path, origins, key)
        elif key in ADDED_UP and isinstance(value, list) and isinstance(below.get(name), list):
            below[name] = [*below[name], *(each for each in value if each not in below[name])]
            origins[key] = path
        else:
            below[name] = value
            origins[key] = path


def _read_toml(path: Path, env: Mapping[str, str]) -> dict[str, Any]:
    name = shown(path, env)
    try:
        # Not blocking: a FIFO in the place of the file would hold up a reload, and the daemon with it, for ever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) and not path.is_dir():
                raise ConfigError(f"{name} is not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name} does not exist", hint="`sessiond config init` writes one to begin with") from None
    except IsADirectoryError:
        raise ConfigError(f"{name} is a folder, not a file") from None
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {_reason(error)}", hint=_access_hint(error)) from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{name} is larger than 1 MiB", hint="this cannot be a configuration")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}, line {line}: not UTF-8 text", hint="save the file as UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(name, text, str(error)) from None
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply") from None


def _syntax_error(name: str, text: str, message: str) -> ConfigError:
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    lines = text.split("\n")
    if found is None or found[2] is None:
        last = max((at for at, line in enumerate(lines, 1) if line.strip()), default=1)
        line, column = last, len(lines[last - 1]) + 1
    else:
        line, column = int(found[2]), int(found[3])
    what = found[1] if found else message
    return ConfigError(
        f"{name}, line {line}, column {column}: {what[:1].lower()}{what[1:]}", hint=_quotes_hint(lines[line - 1])
    )


def _quotes_hint(line: str) -> str | None:
    """The usual slip: `soft_cap = 4GiB`."""
    bare = re.fullmatch(r"""\s*([\w.-]+)\s*=\s*([\w~/.%*+-][^"'#\[\]{}]*?)\s*(?:#.*)?""", line)
    return f'put the value in quotes: {bare[1]} = "{bare[2]}"' if bare else None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _access_hint(error: OSError) -> str | None:
    return "make it readable for you" if isinstance(error, PermissionError) else None
