"""Drop-ins that commands write: config.d/*.toml beside the user's own file, which is never touched. No pydantic."""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from sessiond.config.exclusion import check_glob
from sessiond.config.files import read
from sessiond.errors import Forbidden, SessiondError, UsageError
from sessiond.paths import make_folders, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

EXCLUDE = "80-exclude.toml"
_HEADER = """\
# Written by `sessiond exclude`, which also takes lines out of it: --remove.
"""


class Rule(NamedTuple):
    pattern: str
    file: Path


class Excluded(NamedTuple):
    """`privacy.exclude` file by file, in the order in which they are read. All of them hold."""

    drop_in: Path
    lists: dict[Path, list[str]]

    @property
    def rules(self) -> list[Rule]:
        """Each pattern once, with the first file that has it."""
        found: dict[str, Rule] = {}
        for path, patterns in self.lists.items():
            for pattern in patterns:
                found.setdefault(pattern, Rule(pattern, path))
        return list(found.values())

    @property
    def patterns(self) -> list[str]:
        return [rule.pattern for rule in self.rules]

    @property
    def own(self) -> list[str]:
        """What the drop-in has."""
        return self.lists.get(self.drop_in, [])


def excluded(config_file: Path | None, env: Mapping[str, str], system_dir: Path | None = None) -> Excluded:
    """The rules as the files have them now."""
    merged = read(config_file, env, system_dir)
    found = Excluded(merged.located.drop_ins / EXCLUDE, {})
    for path in merged.files:
        section = tomllib.loads(path.read_text("utf-8-sig")).get("privacy")
        if isinstance(section, dict) and isinstance(section.get("exclude"), list):
            found.lists[path] = [str(each) for each in section["exclude"]]
    return found


def add(now: Excluded, patterns: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Exclude these too; returns those that are new. UsageError for one that could never match."""
    for pattern in patterns:
        try:
            check_glob(pattern, env)
        except ValueError as error:
            fact, _, hint = str(error).partition("; ")
            raise UsageError(fact, hint=hint or None) from None
    known = {check_glob(each, env) for each in now.patterns}
    new = [each.strip() for each in dict.fromkeys(patterns) if check_glob(each, env) not in known]
    if new:
        _write_rules(now, [*now.own, *new], env)
    return new


def remove(now: Excluded, pattern: str, env: Mapping[str, str]) -> None:
    """Take it out of the drop-in; a rule of another file is the user's to take out, and where is said."""
    elsewhere = [path for path, patterns in now.lists.items() if pattern in patterns and path != now.drop_in]
    if elsewhere:
        raise SessiondError(
            f'"{pattern}" is a rule of {shown(elsewhere[0], env)}', hint="edit that file, then: sessiond reload"
        )
    if pattern not in now.own:
        raise SessiondError(f'there is no rule "{pattern}"', hint="sessiond exclude --list shows them all")
    _write_rules(now, [each for each in now.own if each != pattern], env)


def _write_rules(now: Excluded, own: list[str], env: Mapping[str, str]) -> None:
    if own:
        write(now.drop_in, {"privacy": {"exclude": own}}, _HEADER, env)
    else:
        now.drop_in.unlink(missing_ok=True)


def write(path: Path, table: dict[str, Any], header: str, env: Mapping[str, str]) -> None:
    """The whole file, private, and at once: nobody ever reads half of it."""
    import tomli_w  # noqa: PLC0415 - only who writes pays for it

    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_folders(path.parent)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(header + tomli_w.dumps(table, multiline_strings=False))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        kind = Forbidden if isinstance(error, PermissionError) else SessiondError
        raise kind(f"cannot write {shown(path, env)}: {error.strerror}") from None
