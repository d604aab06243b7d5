"""What was forgotten, known by keyed hashes alone: of its uid, and of the paths of its files.

The key is this store's own and random, so that nobody without the store can try names against the hashes.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING

from sessiond.model import Fact, utc
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    import apsw

    from sessiond.model import Record
    from sessiond.store.resolve import Place
    from sessiond.store.sources import Source

HASH_BYTES = 16
_KEY = "SELECT value FROM _meta WHERE name = 'tombstone_key'"
_ANY = "SELECT 1 FROM _tombstone WHERE hash IN (SELECT unhex(value) FROM json_each(?)) LIMIT 1"


class Forgotten(RuntimeError):
    """A file of a session that was forgotten. Nothing of it may be stored."""


def bury(db: apsw.Connection, uids: Iterable[str], paths: Iterable[bytes], now: datetime) -> None:
    """From now on nothing of these is taken in again."""
    db.execute("INSERT OR IGNORE INTO _meta VALUES ('tombstone_key', ?)", (secrets.token_hex(32),))
    key = bytes.fromhex(value(db, _KEY))
    hashes = [_hash_uid(key, uid) for uid in uids] + [_hash_path(key, path) for path in paths]
    db.executemany("INSERT OR IGNORE INTO _tombstone VALUES (?, ?)", [(each, utc(now)) for each in hashes])


def is_path_forgotten(db: apsw.Connection, path: str) -> bool:
    key = _key(db)
    return key is not None and _is_any(db, [_hash_path(key, os.fsencode(path))])


def is_any_forgotten(db: apsw.Connection, uids: Iterable[str]) -> bool:
    key = _key(db)
    return key is not None and _is_any(db, [_hash_uid(key, uid) for uid in uids])


def refuse(db: apsw.Connection, source: Source, parsed: Sequence[tuple[Place, Sequence[Record]]]) -> None:
    """Forgotten, where this is a file of a forgotten session, or of a sub-agent of one.

    Asked inside the transaction that would store it: whoever read the file may have looked before it was forgotten.
    """
    key = _key(db)
    if key is None:
        return
    uids = [source.uid, *(_parents(source, parsed) if source.is_sidechain else ())]
    if _is_any(db, [_hash_path(key, os.fsencode(source.path)), *(_hash_uid(key, uid) for uid in uids)]):
        raise Forgotten("this session was forgotten")


def _parents(source: Source, parsed: Sequence[tuple[Place, Sequence[Record]]]) -> list[str]:
    facts = (each for _, records in parsed for each in records if isinstance(each, Fact))
    return [f"{source.flavor}:{fact.value}" for fact in facts if fact.name == "parent"]


def _key(db: apsw.Connection) -> bytes | None:
    for (key,) in rows(db, _KEY):
        return bytes.fromhex(key)
    return None


def _is_any(db: apsw.Connection, hashes: Sequence[bytes]) -> bool:
    listed = ", ".join(f'"{each.hex()}"' for each in hashes)
    return value(db, _ANY, (f"[{listed}]",)) is not None


def _hash_uid(key: bytes, uid: str) -> bytes:
    return blake2b(uid.encode("utf-8", "surrogateescape"), key=key, digest_size=HASH_BYTES, person=b"uid").digest()


def _hash_path(key: bytes, path: bytes) -> bytes:
    return blake2b(path, key=key, digest_size=HASH_BYTES, person=b"path").digest()
