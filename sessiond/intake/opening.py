"""The store is opened: checked, and where it is damaged set aside and made again before anything is read or written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from sessiond.adapters import adapters
from sessiond.errors import ConfigError
from sessiond.intake import identity
from sessiond.intake.content import Compressed, Content, Plain
from sessiond.intake.opened import opened
from sessiond.intake.reindex import reindex
from sessiond.log.light import structlog
from sessiond.store import connect, damage, rebuild, tombstones
from sessiond.store.connect import value
from sessiond.store.salvage import TO_DERIVE

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sessiond.intake.parse import Wording
    from sessiond.paths import Paths
    from sessiond.store.sources import Source
    from sessiond.store.writer import Writer
    from sessiond.trouble import Troubles


class Damaged(ConfigError):
    """The store is damaged, and the configuration says to leave it as it is. Not to be started again and again."""


def open_store(
    paths: Paths,
    make_writer: Callable[[], Writer],
    *,
    on_corrupt: str,
    seconds: float,
    now: Callable[[], datetime],
    tick: Callable[[], None],
) -> Writer:
    """The store, whole. A damaged one is set aside, never deleted; Damaged where `on_corrupt` says to stop."""
    reason = damage.find(paths.store, paths.search, seconds)
    for _ in range(2):
        if reason is not None:
            _make_again(paths, reason, on_corrupt, now, tick)
        try:
            writer = make_writer()
        except (apsw.CorruptError, apsw.NotADBError) as error:  # in what there was no time to look at
            reason = type(error).__name__
        else:
            _keep_tombstones(paths)
            return writer
    return make_writer()


def _make_again(
    paths: Paths, reason: str, on_corrupt: str, now: Callable[[], datetime], tick: Callable[[], None]
) -> None:
    log = structlog.get_logger()
    if on_corrupt == "stop":
        raise Damaged(
            f"{paths.store} is damaged ({reason}), and store.on_corrupt is stop: it was left as it is",
            hint="put a copy of it in its place, or set store.on_corrupt to rebuild",
        )
    log.error("store_damaged", reason=reason, path=str(paths.store))
    report = rebuild.rebuild(paths.store, reason, now(), is_there=is_there, tick=tick)
    log.error("store_rebuilt", **{name: each for name, each in report.items() if name not in _WORDS})


_WORDS = ("damaged", "partly_read_again")  # lists of sessions: the report has them


def _keep_tombstones(paths: Paths) -> None:
    """Of a store that was there before there were copies."""
    if not tombstones.copy_path(paths.store).exists():
        with connect.reading(paths.store) as db:
            tombstones.keep_copy(db, paths.store)


_TO_DERIVE = f"SELECT value FROM _meta WHERE name = '{TO_DERIVE}'"


def derive_lost(
    writer: Writer, db: apsw.Connection, wording: Wording, longest: int, now: datetime, tick: Callable[[], None]
) -> None:
    """Sessions of which a rebuild found all bytes and not all rows: what the bytes say is made anew. Before intake
    begins; a kill meanwhile leaves them to the next start.
    """
    found = value(db, _TO_DERIVE)
    if found is None:
        return
    log = structlog.get_logger()
    known = [uid for uid in orjson.loads(found) if value(db, "SELECT 1 FROM _session WHERE uid = ?", (uid,))]
    report = reindex(
        writer,
        db,
        adapters(),
        wording,
        longest,
        known,
        now,
        is_stopping=lambda: _ticked(tick),
        on_failure=lambda uid, error: log.error("reindex_failed", session=uid, exc_info=error),
    )
    writer.call(lambda writer_db: writer_db.execute("DELETE FROM _meta WHERE name = ?", (TO_DERIVE,)) and None)
    log.info("lost_rows_derived", sessions=report["sessions"], events=report["events"])


def _ticked(tick: Callable[[], None]) -> bool:
    tick()
    return False


def name_rebuild(db: apsw.Connection, troubles: Troubles) -> None:
    """Say what a rebuild saved and lost, across restarts, until somebody has acknowledged it."""
    report = rebuild.last_report(db)
    told = None if report is None else rebuild.words(report)
    troubles.report("store_rebuilt", told, _way_out(report) if report else None)


def _way_out(report: dict[str, Any]) -> str:
    return (
        f"when you have read it: sessiond status --acknowledge; the old one is yours to remove: rm {report['aside']}*"
    )


def is_there(source: Source) -> bool:
    """Whether a file that was read is still the same, so that all of it can be read once more."""
    if not os.path.isabs(source.path):
        return False
    try:
        with opened(source.path, source.below.count("/")) as fd:
            stat = os.fstat(fd)
            content: Content = Compressed(fd, stat) if source.reader == "zstd" else Plain(fd, stat.st_size)
            return source.reader == "snapshot" or identity.why_new(content, stat, source.checkpoint) is None
    except OSError:
        return False
