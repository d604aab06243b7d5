"""Gemini's messages, each written again under its id when a call, a result or its tokens are added: the last wins.

The first line of a message makes its events, named by the message's id; a later one makes events of what is new and
patches what has changed. To know which is which, the carry holds hashes of the latest few events. A line that
comes when its hash is gone is taken for new, and the store drops what it has under that name.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sessiond.adapters._parts import TOOLS, call_key, parts_of, read_result, read_tokens, result_key, text_of_parts
from sessiond.adapters.base import mapping_of, string_of, time_of
from sessiond.adapters.wording import clip, first_line, one_line, task_ref_in
from sessiond.model import Event, Fact, Key, Kind, Patch, Role, Unknown, Usage, session_key

if TYPE_CHECKING:
    from sessiond.model import Carry, Record

_REMEMBERED = 64  # events; only the latest message is ever written again
_DONE = frozenset({"success", "error", "cancelled"})
_CANCELLED = "Request cancelled"


def parse_message(message: dict[str, Any], carry: Carry) -> list[Record]:
    name = message.get("type")
    if name == "user":
        events = _user(message, carry)
        if any(event.kind is not Kind.USER_MSG for event in events):
            return _told(events, carry, is_repeated=True)
        return [*_told(events, carry), *_first_prompt(message, carry)]
    if name == "gemini":
        return _answer(message, carry)
    if name in ("info", "warning", "error"):
        return _told([_notice(message, name)], carry)
    return [Unknown(f"message/{name[:80]}" if isinstance(name, str) and name else "(no type)")]


def _key(message: dict[str, Any], part: str) -> Key | None:
    name = string_of(message.get("id"))
    return session_key(f"message:{name}#{part}") if name is not None else None


def _text(content: Any) -> str:
    return text_of_parts(parts_of(content))


# --- events of a message --------------------------------------------------------------------------


def _user(message: dict[str, Any], carry: Carry) -> list[Event]:
    answers = [mapping_of(part.get("functionResponse")) for part in parts_of(message.get("content"))]
    answers = [answer for answer in answers if answer]
    ts, is_side = time_of(message.get("timestamp")), "parent" in carry
    if answers:  # of the calls before; told again, and better, where the calls are
        return [_result(each, each.get("id"), None, None, ts, carry) for each in answers]
    text = _text(message.get("content"))
    shown = _text(message.get("displayContent")) or text
    return [
        Event(
            Kind.USER_MSG,
            _key(message, "text"),
            ts=ts,
            role=Role.USER,
            summary=one_line(shown),
            text=text,
            is_turn=not is_side,
            is_sidechain=is_side,
        )
    ]


def _answer(message: dict[str, Any], carry: Carry) -> list[Record]:
    ts, is_side = time_of(message.get("timestamp")), "parent" in carry
    events: list[Event] = []
    for part, kind, text in (
        ("thoughts", Kind.THINKING, _thoughts(message.get("thoughts"))),
        ("text", Kind.ASSISTANT_MSG, _text(message.get("content"))),
    ):
        if text:
            words = one_line(text)
            key = _key(message, part)
            events.append(
                Event(kind, key, ts=ts, role=Role.ASSISTANT, summary=words, text=clip(text), is_sidechain=is_side)
            )
    calls = message.get("toolCalls")
    for at, call in enumerate(calls if isinstance(calls, list) else ()):
        events += _call(message, at, mapping_of(call), carry)
    return _told(events, carry) + _spent(message, events, carry)


def _thoughts(thoughts: Any) -> str:
    """One train of thought, in however many pieces it was streamed; a subject begins a new line."""
    said = ""
    for thought in thoughts[:5_000] if isinstance(thoughts, list) else ():
        subject, words = (string_of(mapping_of(thought).get(name)) or "" for name in ("subject", "description"))
        said += f"\n{subject}\n{words}" if subject else f" {words}"
    return said.strip()


def _call(message: dict[str, Any], at: int, call: dict[str, Any], carry: Carry) -> list[Event]:
    given = TOOLS.read(call.get("name"), mapping_of(call.get("args")))
    event = Event(
        given.kind,
        call_key(call.get("id")) or _key(message, f"call{at}"),
        ts=time_of(message.get("timestamp")),
        role=Role.ASSISTANT,
        tool=given.tool or None,
        summary=given.summary,
        text=given.text,
        is_sidechain="parent" in carry,
        files=given.files,
    )
    status, parts = call.get("status"), parts_of(call.get("result"))
    if not parts and not (isinstance(status, str) and status in _DONE):
        return [event]  # still running
    own = (mapping_of(part.get("functionResponse")) for part in parts)
    answer = next((each for each in own if each), {})
    ts = time_of(call.get("timestamp")) or event.ts
    return [event, _result(answer, call.get("id"), status, call.get("resultDisplay"), ts, carry)]


def _result(answer: dict[str, Any], call_id: Any, status: Any, shown: Any, ts: str | None, carry: Carry) -> Event:
    result = read_result(mapping_of(answer.get("response")), status, shown)
    return Event(
        result.kind,
        result_key(call_id),
        parent_key=call_key(call_id),
        ts=ts,
        role=Role.USER if result.kind is Kind.HUMAN_INTERVENTION else Role.TOOL,
        tool=(string_of(answer.get("name")) or "")[:80] or None,
        summary=result.summary,
        text=result.text,
        is_sidechain="parent" in carry,
        is_error=result.is_error,
    )


def _notice(message: dict[str, Any], name: str) -> Event:
    """What the client showed the person: an error, or a word in passing."""
    text = _text(message.get("content"))
    kind, role = Kind.LIFECYCLE, Role.SYSTEM
    if name == "error":
        kind = Kind.ERROR
    elif text.startswith(_CANCELLED):
        kind, role = Kind.HUMAN_INTERVENTION, Role.USER
    return Event(
        kind,
        _key(message, "text"),
        ts=time_of(message.get("timestamp")),
        role=role,
        summary=first_line(text) or name,
        text=text,
        is_error=name == "error",
    )


def _first_prompt(message: dict[str, Any], carry: Carry) -> list[Record]:
    text = _text(message.get("displayContent")) or _text(message.get("content"))
    title = one_line(text)
    if "prompted" in carry or not title:
        return []
    carry["prompted"] = True
    ref = task_ref_in(text)
    return [Fact("title", title, 9, first=True), *([Fact("task_ref", ref, 5, first=True)] if ref else ())]


def _spent(message: dict[str, Any], events: list[Event], carry: Carry) -> list[Record]:
    tokens = mapping_of(message.get("tokens"))
    counted = read_tokens(*(tokens.get(name) for name in ("input", "output", "thoughts", "cached", "tool", "total")))
    key, model = _key(message, "usage"), string_of(message.get("model"))
    found: list[Record] = []
    if model is not None and model != carry.get("model"):
        carry["model"] = model[:200]
        found.append(Fact("model", carry["model"]))
    if counted is None or key is None:
        return found
    spent = Usage(
        key=key,
        event_key=events[0].key if events else None,
        ts=time_of(message.get("timestamp")),
        model=model,
        input_tokens=counted.input,
        output_tokens=counted.output,
        cache_read_tokens=counted.cached,
        reasoning_tokens=counted.thought,
    )
    if _seen_before(carry, key, repr(spent)) != "same":
        found.append(spent)
    return found


# --- what is new, what has changed ----------------------------------------------------------------


def _told(events: list[Event], carry: Carry, *, is_repeated: bool = False) -> list[Record]:
    """The events that are new, and patches for those that read otherwise now. A mere repetition patches nothing."""
    found: list[Record] = []
    for event in events:
        if event.key is None:
            found.append(event)
            continue
        what = f"{event.kind}\0{event.tool}\0{event.is_error}\0{event.summary}\0{event.text}"
        before = _seen_before(carry, event.key, what, keep=is_repeated)
        if before == "never":
            found.append(event)
        elif before == "otherwise" and not is_repeated:
            found.append(
                Patch(
                    event.key,
                    kind=event.kind,
                    role=event.role,
                    tool=event.tool,
                    summary=event.summary,
                    text=event.text,
                    is_error=event.is_error,
                )
            )
    return found


def _seen_before(carry: Carry, key: Key, what: str, *, keep: bool = False) -> str:
    """Whether what stands under a key is `same`, was there `otherwise`, or `never`; remembers how it is now.

    With `keep` what was remembered stays.
    """
    name, now = (blake2b(each.encode("utf-8", "replace"), digest_size=6).hexdigest() for each in (key, what))
    remembered = string_of(carry.get("seen")) or ""
    pairs = dict(pair.split("=", 1) for pair in remembered.split() if "=" in pair)
    was = pairs.pop(name, None)
    pairs[name] = was if keep and was is not None else now
    carry["seen"] = " ".join(f"{each}={pairs[each]}" for each in list(pairs)[-_REMEMBERED:])
    return "never" if was is None else "same" if was == now else "otherwise"
