"""`sessiond events`: what happened in a session, step by step; with `--payload` the exact records."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from sessiond.cli import options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.visible import visible_events
from sessiond.errors import SessiondError
from sessiond.store import archive, glance, reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.cli.terminal import Terminal
    from sessiond.model import SessionEvent

GLYPHS = {
    "user_msg": ("▶", ">", "cyan"), "assistant_msg": ("●", "*", "green"), "thinking": ("…", ".", "dim"),
    "tool_call": ("▸", "-", "blue"), "tool_result": ("◂", "=", "dim"), "error": ("✗", "x", "red"),
    "test_run": ("◆", "t", "blue"), "edit": ("✎", "e", "blue"), "retry": ("↻", "r", "yellow"),
    "human_intervention": ("◼", "h", "yellow"), "decision": ("?", "?", "yellow"), "lifecycle": ("·", ".", "dim"),
    "completion": ("✓", "+", "green"),
}  # fmt: skip
KIND_WIDTH = 13
_PLACE = re.compile(r"(.+)#([0-9]{1,15})")


class Wish(NamedTuple):
    """Which events of the session."""

    first: int
    last: int | None
    kinds: Sequence[str]
    since: str | None
    until: str | None
    limit: int | None
    everything: bool
    visible: bool


@click.command(
    "events",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond events", "the newest session of this repository"),
        ("sessiond events 3f2a --kind edit --kind test_run", "edits and tests only"),
        ("sessiond events 3f2a#142 -C 5", "what led to it, and what came of it"),
        ("sessiond events 3f2a#142 --payload | jq", "the agent's own record"),
    ),
)
@click.argument("uid", required=False, metavar="[UID[#SEQ]]")
@options.kinds
@options.span
@click.option(
    "-C", "--context", "around", type=click.IntRange(min=0), metavar="N", help="With UID#SEQ: N before and after."
)
@click.option("-a", "--all", "everything", is_flag=True, help="Also what the agent has since rewritten.")
@click.option("--visible", is_flag=True, help="Only what the agent would see if it were resumed now.")
@click.option("--payload", is_flag=True, help="The exact records, byte for byte and unmasked, one per line.")
@options.limit
@click.option("--json", "as_json", is_flag=True, help="JSON Lines: one object for each event.")
@click.pass_obj
def command(
    config_file: Path | None,
    /,
    uid: str | None,
    kinds: Sequence[str],
    since: str | None,
    until: str | None,
    around: int | None,
    everything: bool,
    visible: bool,
    payload: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """What happened in a session, step by step: all of it, or with -n the last N events.

    UID may be the beginning of one; UID#SEQ is a single event. Without it: the newest session of the repository
    you are in.
    """
    place = _PLACE.fullmatch(uid or "")
    if around is not None and place is None:
        raise click.UsageError("-C needs an event to look around (write UID#SEQ)")
    with answering(config_file) as answer:
        if around is None and uid is not None and reader.is_uid(answer.db, uid):
            place = None  # an agent may call a session anything, `x#1` too
        found = options.chosen(answer, place[1] if place else uid)
        first, last = _range(answer, found, int(place[2]), around or 0) if place else (0, None)
        is_told = _say_what_left(answer, found)
        events = _events(answer, found, Wish(first, last, kinds, since, until, limit, everything, visible))
        if payload:
            _write_payloads(answer, events)
        elif as_json:
            for event in events:
                answer.print_line(event.to_dict())
        else:
            is_any = _print(answer, terminal.stdout(), events, int(place[2]) if place and around else None)
            if not is_any and not is_told:
                terminal.say_note("no such events")


def _say_what_left(answer: Answer, uid: str) -> bool:
    left = glance.evicted(answer.db, uid)
    if left is None:
        return False
    seq, at = left
    when = f" {times.when(at, times.now())}" if at else ""
    terminal.say_note(f"events 1 to {seq:,} were let go{when}; what they came to: sessiond show {uid}")
    return True


def _range(answer: Answer, uid: str, seq: int, around: int) -> tuple[int, int]:
    there = glance.seq_range(answer.db, uid)
    if there is None or not there[0] <= seq <= there[1]:
        left = glance.evicted(answer.db, uid)
        if left is not None and 1 <= seq <= left[0]:
            raise SessiondError(f"event {seq} was let go; what it was part of: sessiond show {uid}")
        hint = f"it has events {there[0]} to {there[1]}" if there else "it has no events"
        raise SessiondError(f"there is no event {uid}#{seq}", hint=hint)
    return max(0, seq - around), seq + around


def _events(answer: Answer, uid: str, wish: Wish) -> Iterator[SessionEvent]:
    is_timed = wish.since is not None or wish.until is not None
    is_filtered = is_timed or wish.visible
    found = reader.events(
        answer.db,
        uid,
        first=wish.first,
        last=wish.last,
        kinds=wish.kinds,
        limit=None if is_filtered else wish.limit,
        superseded=wish.everything,
    )
    if is_timed:
        found = (each for each in found if each.ts is not None and (wish.since or "") <= each.ts < (wish.until or "~"))
    if wish.visible:
        found = visible_events(answer.db, uid, found)
    return found if not is_filtered or wish.limit is None else iter(list(found)[-wish.limit :])


def _write_payloads(answer: Answer, events: Iterator[SessionEvent]) -> None:
    """Each record once, although several events may have come of it."""
    written: set[str | None] = set()
    missing = 0
    is_screen = terminal.stdout().is_screen
    for event in events:
        if event.payload_ref in written:
            continue
        written.add(event.payload_ref)
        try:
            record = reader.payload(answer.db, event) + b"\n"
            if is_screen:  # the same JSON, but nothing in it that the terminal would act upon
                record = terminal.plain_json(record.decode("utf-8", "replace")).encode()
            sys.stdout.buffer.write(record)
        except archive.Missing:
            missing += 1
    sys.stdout.buffer.flush()
    if missing:
        records = times.count(missing, "record") + (" is" if missing == 1 else " are")
        raise SessiondError(f"{records} no longer in the archive", hint="the agent's own file may still have them")


def _print(answer: Answer, to: Terminal, events: Iterator[SessionEvent], marked: int | None) -> bool:
    """Whether there was any."""
    day = None
    is_any = False
    for event in events:
        is_any = True
        moment = times.parse(event.ts)
        here = None if moment is None else f"{moment.astimezone():%A, %d %B %Y}"
        if to.is_screen and here is not None and here != day:
            to.line(to.style(here, "bold"))
            day = here
        to.line(_line(answer, to, event, is_marked=event.seq == marked))
    return is_any


def _line(answer: Answer, to: Terminal, event: SessionEvent, *, is_marked: bool) -> str:
    moment = times.parse(event.ts)
    clock = "" if moment is None else f"{moment.astimezone():{'%H:%M:%S' if to.is_screen else '%Y-%m-%d %H:%M:%S'}}"
    shape, letter, colour = GLYPHS.get(event.kind.value, ("·", ".", "dim"))
    indent = "  " if event.is_sidechain else ""
    seq = f"{event.seq:>5}"
    kind = terminal.pad(event.kind.value, KIND_WIDTH)
    error = "FAILED " if event.is_error and event.kind != "error" else ""
    tool = f"{answer.words(event.tool)}: " if event.tool else ""
    spent = f"  [{times.short_number(event.tokens)} tok]" if event.tokens else ""
    clock = terminal.pad(clock, 8 if to.is_screen else 19)
    used = sum(map(terminal.width_of, (seq, clock, indent, kind, error, tool, spent))) + 8
    words = answer.words(event.summary)
    words = to.fit(words, used) if to.width is not None else words
    return "".join(
        (
            to.style(seq, "mark" if is_marked else "dim"), "  ", to.style(clock, "dim"), "  ", indent,
            to.style(to.glyph(shape, letter), "red" if event.is_error else colour), " ", to.style(kind, colour), " ",
            to.style(error, "red", "bold"), to.style(tool, "bold"), words, to.style(spent, "dim"),
        )
    ).rstrip()  # fmt: skip
