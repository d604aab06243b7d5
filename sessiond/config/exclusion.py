"""`[privacy] exclude`: which folders sessiond keeps nothing of. Where in doubt, a path is excluded."""

from __future__ import annotations

import os
import posixpath
import re
import sys
import unicodedata
from typing import TYPE_CHECKING

from sessiond.paths import environment, expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The usual file systems of macOS do not tell "Secret" from "secret", so neither may a privacy rule there.
_FLAGS = re.DOTALL | (re.IGNORECASE if sys.platform == "darwin" else 0)


def check_glob(pattern: str, env: Mapping[str, str]) -> str:
    """The pattern with `~` filled in; ValueError for one that could never match an absolute path."""
    text = str(expand(pattern.strip(), env))
    if not pattern.strip() or not text.startswith(("/", "**")):
        name = text.strip("/") or "secret"
        raise ValueError(
            f'"{pattern}" is no absolute path; begin with / or ~, or write "**/{name}" for any folder of that name'
        )
    if ".." in text.split("/"):
        raise ValueError(f'"{pattern}" contains ".."; write the path that it leads to')
    return text


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Matches the path itself and all below it. `*` and `?` stay within a folder, `**` crosses folders."""
    parts = [part for part in _normal(pattern).split("/") if part]
    while parts and parts[-1] == "**":
        parts.pop()  # "/x/secret/**" is meant to cover /x/secret as well
    regex = ""
    for at, part in enumerate(parts):
        if part != "**":
            regex += "/" + _part_regex(part)
        elif at == 0 or parts[at - 1] != "**":
            regex += "(?:/[^/]+)*"
    return re.compile(regex + r"(?:/.*)?\Z", _FLAGS)


def _part_regex(part: str) -> str:
    def translate(match: re.Match[str]) -> str:
        piece = match[0]
        if piece.startswith("*"):
            return "[^/]*"
        if piece == "?":
            return "[^/]"
        if piece.startswith("[") and len(piece) > 1:
            inner = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            return f"[^/{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
        return re.escape(piece)

    return re.sub(r"\*+|\?|\[[!^]?[^\]]+\]|.", translate, part, flags=re.DOTALL)


def _normal(path: str) -> str:
    # normpath() keeps a double slash at the start, as POSIX allows; here it means nothing.
    return unicodedata.normalize("NFC", re.sub(r"\A/+", "/", posixpath.normpath(path)))


class Exclusion:
    """Answers for each path whether a rule covers it, under its own name or under the one it resolves to."""

    def __init__(self, patterns: Iterable[str], env: Mapping[str, str] | None = None) -> None:
        globs = [check_glob(pattern, environment() if env is None else env) for pattern in patterns]
        # A rule may name a link (~/secret -> /data/secret) while the agent reports the real folder.
        globs += [_resolved(each) for each in globs]
        self._rules = tuple(glob_regex(each) for each in dict.fromkeys(globs))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def matches(self, path: str) -> bool:
        if not self._rules or not path.startswith("/"):
            return False
        names = dict.fromkeys((_normal(path), _normal(_real(path))))
        return any(rule.match(name) for name in names for rule in self._rules)


def _resolved(glob: str) -> str:
    """The glob with the links in its fixed beginning followed."""
    parts = glob.split("/")
    fixed = next((at for at, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    start = "/".join(parts[:fixed])
    return "/".join([_real(start) if start else start, *parts[fixed:]])


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL in what an agent wrote
        return path
