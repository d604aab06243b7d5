"""Qwen's records of what was said: prompts, answers, calls and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessiond.adapters._parts import TOOLS, agent_name, call_key, parts_of, read_result, text_of_parts, thought_line
from sessiond.adapters._qwen_usage import of_answer
from sessiond.adapters.base import mapping_of, string_of, time_of
from sessiond.adapters.wording import clip, one_line
from sessiond.model import Event, Key, Kind, Link, Role, global_key, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry, Record

# Written in the user's name by the client itself.
_INJECTED = frozenset(
    {"notification", "background_task_completed", "cron", "goal_runtime", "goal_turn_end", "agent_bootstrap"}
)
_STEERING = "mid_turn_user_message"
_STEERING_PREFIX = "[User message received during tool execution]: "


def agent_key(agent_id: Any) -> Key | None:
    """What the root of a side chain knows of the call that started it."""
    name = agent_name(agent_id)
    return session_key("agent:" + name) if name is not None else None


@dataclass(slots=True)
class Envelope:
    """What all records share; `event` makes the events of a record's parts."""

    record: dict[str, Any]
    uuid: str | None
    parent_key: Key | None
    ts: str | None
    is_sidechain: bool

    @classmethod
    def of(cls, record: dict[str, Any], carry: Carry) -> Envelope:
        get = record.get
        uuid, parent = string_of(get("uuid")), string_of(get("parentUuid"))
        agent = agent_name(get("agentId")) or agent_name(carry.get("agent"))
        is_sidechain = get("isSidechain") is True or agent is not None
        parent_key = global_key(parent) if parent is not None and parent != uuid else None
        if parent_key is None and is_sidechain:
            parent_key = agent_key(agent)
        return cls(record, uuid, parent_key, time_of(get("timestamp")), is_sidechain)

    @property
    def payload(self) -> dict[str, Any]:
        return mapping_of(self.record.get("systemPayload"))

    def event(self, kind: Kind, part: int = 0, *, role: Role, summary: str, **fields: Any) -> Event:
        given = {"parent_key": self.parent_key, "is_sidechain": self.is_sidechain, **fields}
        key = global_key(f"{self.uuid}#{part}") if self.uuid is not None else None
        return Event(kind=kind, key=key, ts=self.ts, role=role, summary=summary, **given)

    def links(self, last: Event | None = None) -> list[Record]:
        """The record's own name: for its last event, or for its parent where it made none."""
        if self.uuid is None:
            return []
        return [Link(global_key(self.uuid), last.key if last is not None else self.parent_key, self.ts)]

    def alone(self, event: Event) -> list[Record]:
        return [event, *self.links(event)]


def parse_user(env: Envelope, _carry: Carry) -> list[Record]:
    text = text_of_parts(parts_of(mapping_of(env.record.get("message")).get("parts")))
    shown = string_of(env.payload.get("displayText")) or text
    subtype, provenance = string_of(env.record.get("subtype")), string_of(env.record.get("provenance"))
    if subtype == _STEERING:
        text = shown = shown.strip().removeprefix(_STEERING_PREFIX)
    elif (subtype in _INJECTED) or (provenance not in (None, "real_user")):
        return env.alone(env.event(Kind.LIFECYCLE, role=Role.SYSTEM, summary=one_line(shown), text=text))
    is_turn = not env.is_sidechain
    role = Role.USER if is_turn else Role.AGENT
    return env.alone(env.event(Kind.USER_MSG, role=role, summary=one_line(shown), text=clip(text), is_turn=is_turn))


def parse_assistant(env: Envelope, carry: Carry) -> list[Record]:
    records: list[Record] = []
    events: list[Event] = []
    for at, part in enumerate(parts_of(mapping_of(env.record.get("message")).get("parts"))):
        made = _part(env, at, part)
        if made is not None:
            events.append(made)
            records += [made, *_call_link(env, part, made)]
    first_key = events[0].key if events else None
    spent = None if env.is_sidechain else of_answer(env.record, env.ts, first_key, carry)
    return [*records, *env.links(events[-1] if events else None), *([spent] if spent else ())]


def _part(env: Envelope, at: int, part: dict[str, Any]) -> Event | None:
    call = mapping_of(part.get("functionCall"))
    if call:
        given = TOOLS.read(call.get("name"), mapping_of(call.get("args")))
        return env.event(
            given.kind,
            at,
            role=Role.ASSISTANT,
            tool=given.tool or None,
            summary=given.summary,
            text=given.text,
            files=given.files,
        )
    if part.get("thought") is True:
        text = string_of(part.get("text")) or ""
        return env.event(Kind.THINKING, at, role=Role.ASSISTANT, summary=thought_line(text), text=clip(text))
    text = text_of_parts([part])
    return env.event(Kind.ASSISTANT_MSG, at, role=Role.ASSISTANT, summary=one_line(text), text=text) if text else None


def _call_link(env: Envelope, part: dict[str, Any], event: Event) -> list[Record]:
    key = call_key(mapping_of(part.get("functionCall")).get("id"))
    return [Link(key, event.key, env.ts)] if key is not None and event.key is not None else []


def parse_result(env: Envelope, _carry: Carry) -> list[Record]:
    """One event for each answer; what the client knows of the call stands beside them."""
    told = mapping_of(env.record.get("toolCallResult"))
    parts = parts_of(mapping_of(env.record.get("message")).get("parts"))
    answers = [answer for answer in (mapping_of(part.get("functionResponse")) for part in parts) if answer]
    events = []
    for at, answer in enumerate(answers or [{"id": told.get("callId")}]):
        result = read_result(mapping_of(answer.get("response")), told.get("status"), told.get("resultDisplay"))
        events.append(
            env.event(
                result.kind,
                at,
                role=Role.USER if result.kind is Kind.HUMAN_INTERVENTION else Role.TOOL,
                tool=(string_of(answer.get("name")) or "")[:80] or None,
                summary=result.summary,
                text=result.text,
                is_error=result.is_error,
                parent_key=call_key(answer.get("id")) or call_key(told.get("callId")) or env.parent_key,
            )
        )
    return [*events, *env.links(events[-1])]
