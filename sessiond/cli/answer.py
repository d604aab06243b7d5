"""What every verb that reads has in common: the store opened read-only, the masker, and how fresh it all is."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sessiond import paths as places
from sessiond.cli import freshness, terminal
from sessiond.cli.output import print_json
from sessiond.config.files import read, store_path
from sessiond.errors import ConfigError, UsageError
from sessiond.mask import Masker
from sessiond.units import parse_span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import apsw

    from sessiond.cli.freshness import Freshness
    from sessiond.paths import Paths


OUTCOME_AFTER = timedelta(minutes=30)


class Answer(NamedTuple):
    db: apsw.Connection
    paths: Paths
    masker: Masker
    fresh: Freshness
    outcome_after: timedelta

    def words(self, text: str | None) -> str:
        """Text from outside as it may be shown: without secrets, without anything a terminal would act upon."""
        return terminal.plain(self.masker.mask(text)) if text else ""

    def path(self, text: str | None) -> str:
        """The same for a path, below the home with `~`."""
        return terminal.shown_path(self.masker.mask(text)) if text else ""

    def print_json(self, value: Any) -> None:
        print_json(self.masker.mask_json(value))

    def print_line(self, value: dict[str, Any]) -> None:
        """One of many: JSON Lines."""
        print_json(self.masker.mask_json(value), is_line=True)

    def print_object(self, value: dict[str, Any]) -> None:
        """An object says itself until when it holds, and whether anything may be missing."""
        self.print_json({**value, "as_of": self.fresh.as_of, "complete": self.fresh.is_complete})


@contextmanager
def answering(config_file: Path | None) -> Iterator[Answer]:
    """The store for as long as the verb needs it; afterwards one line on stderr if the answer may be old.

    Not after a mistake in the call itself: there is no answer then that could be.
    """
    # Late: only verbs that read the store pay for SQLite.
    from sessiond.store import connect, migrations, reader

    paths, masker = locate(config_file)
    outcome_after = _outcome_after(config_file)
    fresh = freshness.look(paths)
    db = connect.open_reader(paths.store)
    try:
        migrations.check_readable(db, paths.store)
        reader.register_flavors(db)  # those of the store: loading every adapter would double the time of a short answer
        yield Answer(db, paths, masker, fresh, outcome_after)
    except (UsageError, click.UsageError):
        fresh = freshness.UNSAID
        raise
    finally:
        db.close()
        fresh.say()


def locate(config_file: Path | None) -> tuple[Paths, Masker]:
    """Where the store is and what must not be shown. Without pydantic: a verb should not wait for it."""
    env = places.environment()
    table = read(config_file, env).table
    return places.resolve(env, store_path(config_file, env)), _masker(table)


def _outcome_after(config_file: Path | None) -> timedelta:
    """analyze.outcome_after; a mistake in it is the daemon's to refuse."""
    section = read(config_file, places.environment()).table.get("analyze")
    try:
        return parse_span(section["outcome_after"]) if isinstance(section, dict) else OUTCOME_AFTER
    except (KeyError, ValueError):
        return OUTCOME_AFTER


def _masker(table: dict[str, Any]) -> Masker:
    section = table.get("privacy")
    patterns = section.get("mask", ()) if isinstance(section, dict) else ()
    try:
        return Masker(patterns)
    except (re.error, TypeError) as error:
        # Nothing is shown rather than something that was meant to be masked.
        raise ConfigError(f"privacy.mask cannot be used: {error}", hint="sessiond config check") from None
