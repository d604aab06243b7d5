"""Adapters of other packages: loaded with care, and asked with care ever after.

Built-in adapters are tested with the rest; a plug-in may fail in any way, at any time. What it fails at costs its own
files and nobody else's: intake asks `wants` for every file of every agent in one sweep. What `parse` raises is
no business of this module: ingest rejects the line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from sessiond.adapters.base import NeedMore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.metadata import EntryPoint
    from pathlib import Path, PurePosixPath

    from sessiond.adapters.base import Adapter, Claim
    from sessiond.model import Carry, Line, Record, Session

_FLAVOR = re.compile(r"[a-z][a-z0-9_-]{0,31}")
Answer = TypeVar("Answer")
_METHODS = ("homes", "folders", "wants", "claims", "parse", "resume")


def load(point: EntryPoint, taken: Mapping[str, Adapter], errors: dict[str, str]) -> Adapter | None:
    """The adapter that an entry point names; None, and why in `errors`, where there is none to be had."""
    try:
        adapter = point.load()
        wrong = _what_is_wrong(adapter)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may fail in any way; the rest must work
        wrong = _in_words(error)
    if wrong is None and adapter.flavor in taken:
        wrong = f"flavor {adapter.flavor!r} is taken by another adapter"
    if wrong is not None:
        errors[point.name] = wrong
        return None
    return Plugin(point.name, adapter, errors)


def _what_is_wrong(adapter: object) -> str | None:
    if isinstance(adapter, type):
        return f"{adapter.__name__} is a class; the entry point must name an instance of it"
    missing = [name for name in _METHODS if not callable(getattr(adapter, name, None))]
    if missing:
        return f"no adapter: it has no {', '.join(missing)}"
    flavor, version = getattr(adapter, "flavor", None), getattr(adapter, "version", None)
    if not isinstance(flavor, str) or not _FLAVOR.fullmatch(flavor):
        return f"flavor {str(flavor)[:80]!r} is not a lower-case word"
    if isinstance(version, bool) or not isinstance(version, int):
        return f"version {str(version)[:80]!r} is not a whole number"
    return None


def _in_words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


class Plugin:
    """An adapter of another package: what it raises is noted under its entry point, and taken as "nothing here"."""

    def __init__(self, name: str, adapter: Adapter, errors: dict[str, str]) -> None:
        self._name = name
        self._adapter = adapter
        self._errors = errors
        self.flavor = adapter.flavor
        self.version = adapter.version

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        return self._ask("homes", lambda: list(self._adapter.homes(env, user_home)), [])

    def folders(self, home: Path) -> Sequence[Path]:
        return self._ask("folders", lambda: self._folders_below(home), [])

    def wants(self, path: PurePosixPath) -> bool:
        return self._ask("wants", lambda: bool(self._adapter.wants(path)), otherwise=False)

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        try:
            return self._adapter.claims(path, head)
        except NeedMore:
            raise
        except Exception as error:
            self._note("claims", error)
            raise NeedMore from error  # the file waits for a mended plug-in

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        return self._adapter.parse(line, carry)

    def resume(self, session: Session) -> Sequence[str] | None:
        return self._ask("resume", lambda: self._adapter.resume(session), None)

    def _folders_below(self, home: Path) -> list[Path]:
        folders = list(self._adapter.folders(home))
        if any(home not in folder.parents for folder in folders):
            raise ValueError("a folder to watch must lie below the home")
        return folders

    def _ask(self, what: str, ask: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way; the rest must work
            self._note(what, error)
            return otherwise

    def _note(self, what: str, error: Exception) -> None:
        self._errors[self._name] = f"{what}: {_in_words(error)}"
