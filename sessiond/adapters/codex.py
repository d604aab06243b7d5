"""OpenAI Codex CLI: one rollout file per thread below `sessions` (by day) and `archived_sessions`.

Three eras, one reader. *Flat* (until September 2025): bare response items without times. *Wrapped*: every record
in an envelope of timestamp, type and payload, most facts written twice, as a response item and as a UI event.
*Paginated* (2026): the same with an ordinal, and `item_completed` for the UI events. The file decides by what
it holds, line by line, so files of any mixture read alike. How records are named is told in `_codex_reading`.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.adapters._codex_events import compacted, event_msg
from sessiond.adapters._codex_items import inter_agent, response_item
from sessiond.adapters._codex_reading import Reading, digest
from sessiond.adapters._codex_session import is_side, session_meta, turn_context
from sessiond.adapters._codex_text import content_text, working_directory
from sessiond.adapters._codex_usage import token_usage_record
from sessiond.adapters.base import Claim, NeedMore, Reader, decode, text_of, time_of
from sessiond.model import Carry, Line, Record, Session, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE
)
_TREES = ("sessions/", "archived_sessions/")
_SUFFIXES = (".jsonl", ".jsonl.zst")
_SKIPPED = {"world_state", "security_risk_score", "inter_agent_communication_metadata"}

# The envelope of a wrapped record, up to its payload: enough to know a compaction, which may be gigabytes long.
_ENVELOPE = re.compile(rb'\s*\{\s*((?:"(?:timestamp|ordinal|type)"\s*:\s*(?:"[^"\\]*"|\d+)\s*,\s*)+)"payload"')
_TIMESTAMP = re.compile(rb'"timestamp"\s*:\s*"([^"\\]*)"')
_COMPACTED = re.compile(rb'"type"\s*:\s*"compacted"')


class Codex:
    """Reads rollouts of every version; nothing but the rollouts."""

    flavor = "codex"
    version = 1

    def homes(self, env: Mapping[str, str], user_home: Path) -> Sequence[Path]:
        home = env.get("CODEX_HOME")
        return [Path(home)] if home else [user_home / ".codex"]

    def folders(self, home: Path) -> Sequence[Path]:
        return [home / "sessions", home / "archived_sessions"]

    def wants(self, path: PurePosixPath) -> bool:
        name = str(path)
        return name.startswith(_TREES) and name.endswith(_SUFFIXES)

    def claims(self, path: PurePosixPath, head: Sequence[bytes]) -> Claim | None:
        if not self.wants(path):
            return None
        member = path.name.removesuffix(".zst")
        uuid = _UUID.search(member)
        if uuid is None and not head:
            raise NeedMore
        meta, cwd, is_flat = _first_words(head)
        own_id = meta.get("id")
        return Claim(
            session_id=uuid[0].lower() if uuid else own_id if isinstance(own_id, str) and own_id else member[:-6],
            member=member,
            reader=Reader.ZSTD if path.name.endswith(".zst") else Reader.TAIL,
            cwd=cwd,
            cwd_in_records=True,
            is_sidechain=is_side(meta),
            timeless=is_flat,
        )

    def parse(self, line: Line, carry: Carry) -> list[Record]:
        data = line.data
        if b'"compacted"' in data[:200]:
            envelope = _ENVELOPE.match(data, 0, 200)
            if envelope is not None and _COMPACTED.search(envelope[1]) is not None:
                return _compacted_line(data, envelope, carry)
        record = decode(line)
        kind, payload = record.get("type"), record.get("payload")
        if isinstance(payload, dict):
            ordinal = record.get("ordinal")
            reading = Reading(carry, time_of(record.get("timestamp")), ordinal if isinstance(ordinal, int) else None)
            carry["wrapped"] = True
            kind = text_of(kind)
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(payload, reading)
            elif kind not in _SKIPPED:
                reading.records.append(Unknown(kind[:80] or "untyped"))
            return reading.records
        return _flat(record, kind, carry)

    def resume(self, session: Session) -> Sequence[str] | None:
        return ["codex", "resume", session.native_session_id]


# --- whose file it is -----------------------------------------------------------------------------


def _first_words(head: Sequence[bytes]) -> tuple[dict[str, Any], str | None, bool]:
    """The file's own meta, its cwd where the first lines tell, and whether it is of the flat era."""
    records = (record for record in map(_loaded, head) if isinstance(record, dict))
    # The first record alone, so that it does not matter how many lines were there when the file was found.
    first = next(records, {})
    is_flat = _is_flat_meta(first)
    meta = first if is_flat else first.get("payload") if first.get("type") == "session_meta" else None
    if not isinstance(meta, dict):
        return {}, None, False
    cwd = _named_cwd(meta, first)
    while cwd is None and is_flat and (record := next(records, None)) is not None:
        cwd = _named_cwd(meta, record)
    return meta, cwd, is_flat


def _loaded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _named_cwd(meta: dict[str, Any], record: dict[str, Any]) -> str | None:
    cwd = meta.get("cwd")
    if isinstance(cwd, str) and cwd:
        return cwd
    return working_directory(content_text(record.get("content"))) if record.get("role") == "user" else None


def _is_flat_meta(record: dict[str, Any]) -> bool:
    return "type" not in record and isinstance(record.get("id"), str) and isinstance(record.get("timestamp"), str)


# --- the other shapes of a line -------------------------------------------------------------------


def _compacted_line(data: bytes, envelope: re.Match[bytes], carry: Carry) -> list[Record]:
    """A compaction holds the whole history again, images and all: it is never decoded."""
    stamp = _TIMESTAMP.search(envelope[1])
    reading = Reading(carry, time_of(stamp[1].decode("utf-8", "replace")) if stamp else None)
    payload = data[envelope.end() :]  # a copy in a fork has another time before it
    identity = digest(repr(payload[:4096]), repr(payload[-1024:]), str(len(payload)))
    compacted(reading, "whole", "context", identity)
    return reading.records


def _flat(record: dict[str, Any], kind: Any, carry: Carry) -> list[Record]:
    """The flat era: the time of the first line stands for all."""
    if _is_flat_meta(record) and "id" not in carry:
        carry["started"] = time_of(record["timestamp"])
        reading = Reading(carry, carry["started"])
        session_meta(record, reading)
        return reading.records
    reading = Reading(carry, carry.get("started"))
    if isinstance(kind, str):
        response_item(record, reading)
    elif record.get("record_type") is None and not _is_flat_meta(record):
        reading.records.append(Unknown("untyped"))
    return reading.records


_HANDLERS: dict[str, Callable[[dict[str, Any], Reading], None]] = {
    "session_meta": session_meta,
    "turn_context": turn_context,
    "response_item": response_item,
    "event_msg": event_msg,
    "token_usage_record": token_usage_record,
    "inter_agent_communication": inter_agent,
}

ADAPTER = Codex()
