"""What a graph run did: a line per step and per finished node, and a file per message. None of them has a time of its
own but the calls; the file's is the last activity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.adapters._hive_fields import digest, later, mappings, read_call, read_result, said, string
from sessiond.adapters.base import count_of, time_of
from sessiond.adapters.wording import clip, first_line, one_line
from sessiond.model import Event, Fact, Kind, Role, Usage, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry, Line, Record

_VERDICTS = {"RETRY": Kind.RETRY, "ESCALATE": Kind.HUMAN_INTERVENTION}  # any other: decision


def step(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:
    """One call of the model and what came of it. Its index begins again with each attempt and each resume, so a step
    is known by its span, or by all that it says.
    """
    name = f"step:{string(record.get('span_id')) or '~' + digest(line.data)}"
    calls = mappings(record.get("tool_calls"))
    began = next((ts for call in calls if (ts := time_of(call.get("start_timestamp")))), None)
    events: list[Event] = []
    text = said(record.get("llm_text"))
    if text.strip():
        key = session_key(f"{name}:text")
        summary = first_line(text) or one_line(text)
        events.append(Event(Kind.ASSISTANT_MSG, key, ts=began, role=Role.ASSISTANT, summary=summary, text=clip(text)))
    said_key = events[0].key if events else None
    for number, call in enumerate(calls):
        events += _call(call, f"{name}:{number}", said_key)
    ended = events[-1].ts if events else None
    carry["ts"] = ended or carry.get("ts")
    events += _verdict(record, name, ended)
    spent = Usage(
        session_key(name),
        event_key=events[0].key if events else None,
        ts=began or carry["ts"],  # not far off: what it cost belongs to a day
        input_tokens=count_of(record.get("input_tokens")),
        output_tokens=count_of(record.get("output_tokens")),
    )
    is_known = (spent.input_tokens, spent.output_tokens) != (None, None)
    return [*events, spent] if is_known else [*events]


def _call(call: dict[str, Any], name: str, parent_key: Any) -> list[Event]:
    ts = time_of(call.get("start_timestamp"))
    does, (summary, text, failed) = read_call(call), read_result(call)
    key = session_key(f"{name}:call")
    return [
        Event(
            does.kind,
            key,
            parent_key,
            ts,
            Role.ASSISTANT,
            tool=does.name,
            summary=does.summary,
            text=does.text,
            files=does.files,
        ),
        Event(
            Kind.TOOL_RESULT,
            session_key(f"{name}:result"),
            key,
            later(ts, call.get("duration_s")),
            Role.TOOL,
            tool=does.name,
            summary=summary,
            text=text,
            is_error=failed,
        ),
    ]


def _verdict(record: dict[str, Any], name: str, ts: str | None) -> list[Event]:
    found: list[Event] = []
    verdict, node = string(record.get("verdict"), 40), one_line(string(record.get("node_id")))
    if verdict.strip():
        feedback = said(record.get("verdict_feedback"))
        words = f"{node}: {verdict}" if node else verdict
        kind = _VERDICTS.get(verdict, Kind.DECISION)
        summary = one_line(f"{words}: {feedback}" if feedback else words)
        key = session_key(f"{name}:verdict")
        found.append(Event(kind, key, ts=ts, role=Role.SYSTEM, summary=summary, text=clip(feedback)))
    error = said(record.get("error"))
    if error.strip():
        text = clip("\n".join(filter(None, (error, said(record.get("stacktrace"))))))
        key = session_key(f"{name}:error")
        summary = first_line(error) or one_line(error)
        found.append(Event(Kind.ERROR, key, ts=ts, role=Role.SYSTEM, summary=summary, text=text, is_error=True))
    return found


def finished_node(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:  # noqa: ARG001 - one of many readers
    key = session_key(f"node:{string(record.get('span_id')) or '~' + digest(line.data)}")
    node = string(record.get("node_name")) or string(record.get("node_id")) or "node"
    error, reasons = said(record.get("error")), said(record.get("attention_reasons"))
    failed = record.get("success") is False
    status = "failed" if failed else string(record.get("exit_status"), 80) or "finished"
    text = clip("\n".join(filter(None, (error, said(record.get("stacktrace")), reasons))))
    attempt = count_of(record.get("attempt")) or 1
    words = f"node {node} {status}" + (f" after {attempt} attempts" if attempt > 1 else "")
    return [
        Event(
            Kind.ERROR if failed else Kind.LIFECYCLE,
            key,
            role=Role.SYSTEM,
            summary=one_line(f"{words}: {error}" if error else words),
            text=text,
            is_error=failed,
        )
    ]


def message_part(record: dict[str, Any], line: Line, carry: Carry) -> list[Record]:  # noqa: ARG001 - one of many readers
    """Of a message's file only what a person said: the steps tell the rest, and telling it twice would count it twice.
    A folder that is used again counts its messages from 0 again.
    """
    if record.get("role") != "user" or record.get("is_client_input") is not True or record.get("inherited_from"):
        return []
    text = said(record.get("content"))
    seq = count_of(record.get("seq")) or 0
    key = session_key(f"part:{string(record.get('run_id'))}:{seq}:{digest(text)}")
    summary = first_line(text) or one_line(text) or "image"
    event = Event(Kind.USER_MSG, key, role=Role.USER, summary=summary, text=clip(text), is_turn=True)
    return [event, Fact("title", summary, rank=min(10 + seq, 100_000), first=True)]
