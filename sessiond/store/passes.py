"""What the passes did lately: a short record, for `status` and for people who ask what went where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from sessiond.model import utc
from sessiond.store.connect import rows

if TYPE_CHECKING:
    from datetime import datetime

    import apsw

KEPT = 50  # of each pass


def keep(db: apsw.Connection, name: str, report: dict[str, Any], now: datetime) -> None:
    insert = "INSERT INTO _pass (name, ended_at, report) VALUES (?, ?, ?)"
    db.execute(insert, (name, utc(now), orjson.dumps(report).decode()))
    newest = "SELECT id FROM _pass WHERE name = :name ORDER BY id DESC LIMIT :kept"
    db.execute(f"DELETE FROM _pass WHERE name = :name AND id NOT IN ({newest})", {"name": name, "kept": KEPT})


def lately(db: apsw.Connection, name: str, limit: int = KEPT) -> list[dict[str, Any]]:
    """The newest reports of a pass, newest first."""
    query = "SELECT ended_at, report FROM _pass WHERE name = ? ORDER BY id DESC LIMIT ?"
    return [{"ended_at": at, **orjson.loads(report)} for at, report in rows(db, query, (name, limit))]
