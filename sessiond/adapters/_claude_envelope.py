"""What all records of a Claude Code transcript share: who it is, where it hangs, when, on which chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessiond.adapters.base import time_of
from sessiond.model import Event, Link, global_key, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry, Key, Kind, Record, Role

Json = dict[str, Any]
NAME_LIMIT = 80


def string(value: Any) -> str | None:
    """A non-empty string, or None."""
    return value if isinstance(value, str) and value else None


def mapping(value: Any) -> Json:
    """A JSON object, or an empty one: old, new and foreign writers put other things in its place."""
    return value if isinstance(value, dict) else {}


def call_key(tool_use_id: Any) -> Key | None:
    """What a tool result knows of its call."""
    return session_key("call:" + tool_use_id) if isinstance(tool_use_id, str) and tool_use_id else None


def agent_key(agent_id: Any) -> Key | None:
    """What the root of a side chain knows of the call that started it."""
    return session_key("agent:" + agent_id) if isinstance(agent_id, str) and agent_id else None


@dataclass(slots=True)
class Envelope:
    """One record, read once; `event` makes the events of its blocks."""

    record: Json
    uuid: str | None
    parent_key: Key | None
    ts: str | None
    is_sidechain: bool

    @classmethod
    def of(cls, record: Json, carry: Carry) -> Envelope:
        get = record.get
        uuid, flag, agent_id = get("uuid"), get("isSidechain"), get("agentId") or carry.get("agent")
        is_sidechain = "agent" in carry or (flag if isinstance(flag, bool) else bool(agent_id))
        # A compaction starts a new chain; what it goes on from is written apart.
        parent = get("logicalParentUuid") or get("parentUuid")
        parent_key: Key | None = None
        if isinstance(parent, str) and parent:
            parent_key = global_key(parent) if parent != uuid else None
        elif is_sidechain:
            parent_key = agent_key(agent_id)
        return cls(record, string(uuid), parent_key, time_of(get("timestamp")), is_sidechain)

    def key(self, block: int) -> Key | None:
        return global_key(f"{self.uuid}#{block}") if self.uuid is not None else None

    def event(
        self,
        kind: Kind,
        block: int = 0,
        *,
        role: Role,
        summary: str,
        text: str = "",
        tool: str | None = None,
        is_error: bool = False,
        is_turn: bool = False,
        parent_key: Key | None = None,
        key: Key | None = None,
        files: tuple[str, ...] = (),
    ) -> Event:
        return Event(
            kind=kind,
            key=key or self.key(block),
            parent_key=parent_key or self.parent_key,
            ts=self.ts,
            role=role,
            tool=tool,
            summary=summary,
            text=text,
            is_sidechain=self.is_sidechain,
            is_error=is_error,
            is_turn=is_turn,
            files=files,
        )

    def links(self, last: Event | None = None) -> list[Record]:
        """The record's own name: for its last block event, or for its parent where it made none."""
        if self.uuid is None:
            return []
        parent_key = last.key if last is not None else self.parent_key
        return [Link(global_key(self.uuid), parent_key, self.ts)]

    def alone(self, event: Event) -> list[Record]:
        """All that a record with a single event emits."""
        return [event, *self.links(event)]
