"""A damaged store is set aside and a new one put in its place, with everything that could be salvaged.

Every step can be taken again: the mark (see `damage`) is written first and removed last, the new store is made under
another name and takes its place whole. The old one is only moved, never written to and never deleted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from sessiond.errors import ConfigError
from sessiond.model import utc
from sessiond.store import connect, damage, migrations, tombstones
from sessiond.store.connect import value
from sessiond.store.pages import Pages
from sessiond.store.salvage import TIER_1, NothingToRead, salvage

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from sessiond.store.sources import Source

SUFFIXES = ("", "-wal", "-shm")
_REPORT = "SELECT value FROM _meta WHERE name = 'salvaged'"


def rebuild(
    store: Path,
    reason: str,
    now: datetime,
    *,
    is_there: Callable[[Source], bool] = lambda _: False,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Set this store aside and make a new one; the report, which the new one keeps until it is acknowledged.

    ConfigError, and nothing is touched, where it is a newer program's.
    """
    mark = damage.read_mark(store)
    if mark is None or mark.aside is None:
        _refuse_newer(store)
        mark = damage.mark(store, reason, connect.free_name(store, now).name)
    aside = store.with_name(str(mark.aside))
    if aside.exists() and store.exists():  # all but the last step was taken before
        damage.clear_mark(store)
        return last_report_of(store) or {}
    connect.move_aside(store, aside)
    report = _make(store, aside, mark.reason, now, is_there, tick)
    damage.clear_mark(store)
    return report


def _refuse_newer(store: Path) -> None:
    try:
        with Pages(store) as found:
            version = found.version or 0
    except OSError:
        return
    if migrations.may_be_newer(version):
        raise ConfigError(
            f"{store} is damaged, and was written by a newer sessiond (schema {version}, this one knows"
            f" {migrations.VERSION})",
            hint="upgrade sessiond, or point store.path elsewhere",
        )


def _make(
    store: Path,
    aside: Path,
    reason: str,
    now: datetime,
    is_there: Callable[[Source], bool],
    tick: Callable[[], None],
) -> dict[str, Any]:
    """Everything first; without the bytes and events if there is no room for them; nothing if nothing can be read."""
    new = store.with_name(store.name + ".rebuilding")
    facts = {"at": utc(now), "reason": reason, "aside": str(aside), "acknowledged_at": None}
    failures: list[str] = []
    for leave_out in (frozenset[str](), frozenset(TIER_1), None):
        db = _begin(new)
        try:
            if leave_out is None:
                with connect.transaction(db):
                    migrations.take_steps(db, 0)
                found: dict[str, Any] = {"is_whole": False, "kinds": {}, "read_again": 0, "damaged": []}
            else:
                found = salvage(aside, db, is_there=is_there, now=utc(now), tick=tick, leave_out=leave_out)
        except Exception as error:  # noqa: BLE001 - whatever was wrong with it: the sources are still there
            db.close()
            failures.append("nothing in it can be read" if _is_empty(error) else type(error).__name__)
            continue
        report = {**facts, **found, "failures": failures}
        with connect.transaction(db):
            tombstones.put_back(db, store)
            db.execute("INSERT OR REPLACE INTO _meta VALUES ('salvaged', ?)", (orjson.dumps(report).decode(),))
        _put_in_place(db, new, store)
        return report
    raise AssertionError("unreachable")


def _is_empty(error: Exception) -> bool:
    return isinstance(error, NothingToRead | FileNotFoundError)


def _begin(new: Path) -> apsw.Connection:
    """An empty database that nothing depends on yet: until it is in place, a crash only means to begin again."""
    for suffix in (*SUFFIXES, "-journal"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = apsw.Connection(os.fspath(new), flags=apsw.SQLITE_OPEN_READWRITE)
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA journal_mode = MEMORY")
    db.execute("PRAGMA foreign_keys = OFF")
    return db


def _put_in_place(db: apsw.Connection, new: Path, store: Path) -> None:
    db.close()
    fd = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    new.rename(store)
    damage.sync_folder(store.parent)


# --- the report ---------------------------------------------------------------------------------


def last_report(db: apsw.Connection) -> dict[str, Any] | None:
    """What the last rebuild saved and lost, if nobody has acknowledged it yet."""
    found = value(db, _REPORT)
    report = None if found is None else dict(orjson.loads(found))
    return report if report is not None and report.get("acknowledged_at") is None else None


def last_report_of(store: Path) -> dict[str, Any] | None:
    with connect.reading(store) as db:
        return last_report(db)


def acknowledge(db: apsw.Connection, now: datetime) -> int:
    """Somebody has read it. It stays on record."""
    report = last_report(db)
    if report is None:
        return 0
    report["acknowledged_at"] = utc(now)
    db.execute("INSERT OR REPLACE INTO _meta VALUES ('salvaged', ?)", (orjson.dumps(report).decode(),))
    return 1


def words(report: dict[str, Any]) -> str:
    """A report as one sentence for people."""
    kinds = report.get("kinds") or {}
    kept = [f"{each['kept']} {word}" for word, each in kinds.items() if each["kept"] and word in _TOLD]
    lost = [
        f"{each['lost']} {word}" if each["lost"] else f"pages of {word}"
        for word, each in kinds.items()
        if each["lost"] or each["lost_pages"]
    ]
    told = [f"the store was damaged ({report.get('reason')}) and was made again"]
    told.append(f"salvaged: {', '.join(kept)}" if kept else "nothing could be salvaged")
    told += [f"not readable: {', '.join(lost)}"] if lost else []
    told += [f"{report['read_again']} sessions are read again from their files"] if report.get("read_again") else []
    told += [f"{report['derived']} are derived again from the archive"] if report.get("derived") else []
    if report.get("damaged"):
        told.append(f"{len(report['damaged'])} sessions are incomplete, such as {report['damaged'][0]}")
    return "; ".join(told) + f". The old one is {report.get('aside')}"


_TOLD = ("sessions", "events", "digests", "forgotten")
