"""What was forgotten, known by keyed hashes alone: of its uid, and of the paths of its files.

The key is this store's own and random, so that nobody without the store can try names against the hashes.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING

import orjson

from sessiond.model import Fact, utc
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

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


def keep_copy(db: apsw.Connection, store: Path) -> None:
    """Write them to a file of their own as well: were the store ever lost, they must not be."""
    key = value(db, _KEY)
    if key is None:
        return
    hashes = rows(db, "SELECT hash, forgotten_at FROM _tombstone ORDER BY hash")
    told = {"key": key, "tombstones": {each.hex(): at for each, at in hashes}}
    path = copy_path(store)
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(orjson.dumps(told))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def put_back(db: apsw.Connection, store: Path) -> int:
    """Have a store know again what its copy says; how many. The copy was written after every forgetting, so what a
    damaged store still had of them is in it too, and made with the same key.
    """
    try:
        told = orjson.loads(copy_path(store).read_bytes())
        key = bytes.fromhex(told["key"]).hex()
        hashes = [(bytes.fromhex(each), str(at)) for each, at in told["tombstones"].items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0
    db.execute("INSERT OR REPLACE INTO _meta VALUES ('tombstone_key', ?)", (key,))
    db.executemany("INSERT OR IGNORE INTO _tombstone VALUES (?, ?)", hashes)
    return len(hashes)


def copy_path(store: Path) -> Path:
    return store.with_name(store.name + ".forgotten")


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
