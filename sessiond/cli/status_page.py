"""The page of `status` and of the live screen: the daemon's own numbers, as lines for a person.

Whatever the daemon (an older or newer one) does not tell is left out, not guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sessiond.cli import status_upkeep, times
from sessiond.cli.terminal import cut, pad, plain, shown_path, width_of
from sessiond.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sessiond.cli.terminal import Terminal

    Status = Mapping[str, Any]

LABEL = 10
LOSS = "data_loss"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
BAR = 24
STATES = {
    "ready": ("●", "*", "green", "is ready"),
    "backfilling": ("◐", "~", "cyan", "is reading history"),
    "degraded": ("▲", "!", "yellow", "is degraded"),
    "paused": ("■", "#", "red", "is paused"),
}


def print_page(to: Terminal, status: Status) -> None:
    for line in page_lines(to, status, times.now()):
        to.line(line)


def page_lines(to: Terminal, status: Status, now: datetime) -> list[str]:
    """The whole page; every line fits the terminal."""
    return [_headline(to, status, now), "", *body_lines(to, status, now), *trouble_lines(to, status, now)]


def body_lines(to: Terminal, status: Status, now: datetime) -> list[str]:
    rows = [
        ("agents", _agents(to, status)),
        ("history", _history(to, status, now)),
        ("store", _store(to, status)),
        ("sessions", _sessions(status)),
        ("intake", _filled(to, _intake(status))),
        ("passes", _filled(to, status_upkeep.pass_facts(status, now))),
        ("config", _config(status, now)),
    ]
    lines: list[str] = []
    for label, texts in rows:
        for number, text in enumerate(texts):
            head = "  " + pad(label if number == 0 else "", LABEL)
            lines.append(to.style(head, "dim") + (text if "\x1b" in text else to.fit(text, LABEL + 2)))
    return lines


def trouble_lines(to: Terminal, status: Status, now: datetime) -> list[str]:
    """What is wrong, since when, and what to do; nothing where all is well."""
    lines: list[str] = []
    for each in status.get("degraded") or ():
        name, detail = plain(str(each.get("name"))), plain(str(each.get("detail") or ""))
        begun = times.when(each.get("since"), now)
        mark = to.glyph("▲", "!")
        head = f"  {mark} {name}" + (f", since {begun}" if begun else "")
        lines += ["", to.style(to.fit(head, 0), "yellow", "bold")]
        lines += [f"    {line}" for line in _wrapped(to, detail)]
        if name == LOSS:
            losses = status_upkeep.loss_lines(to, status, now)
            lines += [to.fit(f"    {line}", 0) for line in losses]
        if each.get("fix"):
            lines += [f"    {line}" for line in _wrapped(to, f"fix: {plain(str(each['fix']))}")]
    error = (status.get("config") or {}).get("error")
    if error and not any(each.get("name") == "configuration" for each in status.get("degraded") or ()):
        lines += ["", to.style(f"  {to.glyph('▲', '!')} the configuration was not taken over", "yellow", "bold")]
        lines += [f"    {line}" for line in _wrapped(to, plain(str(error)))]
    return lines


def _wrapped(to: Terminal, text: str) -> list[str]:
    if to.width is None:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        if line and width_of(line) + 1 + width_of(word) > to.width - 4:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def state_words(to: Terminal, status: Status) -> str:
    """As in "● sessiond 0.1.0 is ready", in the state's colour."""
    state = str(status.get("state"))
    shape, letter, colour, words = STATES.get(state, ("●", "*", "yellow", f"is {plain(state)}"))
    if state == "paused":
        words = status_upkeep.paused_words(status)
    name = f"sessiond {plain(str(status.get('version') or ''))}".rstrip()
    return to.style(to.glyph(shape, letter), colour) + " " + to.style(f"{name} {words}", "bold")


def _headline(to: Terminal, status: Status, now: datetime) -> str:
    up = times.since(status.get("started_at"), now)
    facts = [f"up {up}" if up else "", f"pid {status['pid']}" if status.get("pid") else ""]
    words = state_words(to, status)
    room = None if to.width is None else to.width - width_of(_ANSI.sub("", words))
    about = "".join(f" · {fact}" for fact in facts if fact)
    return words + to.style(about if room is None else cut(about, max(room, 0)), "dim")


def _agents(to: Terminal, status: Status) -> list[str]:
    agents = sorted(status.get("agents") or (), key=lambda each: not each.get("found"))
    found = [each for each in agents if each.get("found")]
    name_width = max((width_of(plain(str(each["flavor"]))) for each in agents), default=0)
    homes = [_homes(each) for each in found]
    facts = [_agent_facts(each) for each in found]
    home_width = max(map(width_of, homes), default=0)
    if to.width is not None:
        # The homes are what a person knows already: they are cut before any number is.
        room = to.width - LABEL - 2 - name_width - max(map(len, facts), default=0) - 4
        home_width = max(min(home_width, 30, room), min(home_width, 8))
    lines = []
    for each, home, told in zip(found, homes, facts, strict=True):
        name = pad(plain(str(each["flavor"])), name_width)
        lines.append(f"{name}  {pad(cut(home, home_width), home_width)}  {told}")
    missing = [each for each in agents if not each.get("found")]
    if missing:
        names = ", ".join(plain(str(each["flavor"])) for each in missing)
        lines.append(f"not found: {names}" if found else f"none found yet; looked for {names}")
    if missing and not found:
        lines += [f"{pad(plain(str(each['flavor'])), name_width)}  {_homes(each)}" for each in missing]
    return lines


def _agent_facts(agent: Mapping[str, Any]) -> str:
    today = agent.get("sessions_today") or 0
    files = times.count(agent.get("files") or 0, "file").rjust(12)
    sessions = f"{times.count(today, 'session')} today" if today else times.count(agent.get("sessions") or 0, "session")
    return f"{files}  {format_size(agent.get('bytes') or 0).rjust(9)}  {sessions}"


def _homes(agent: Mapping[str, Any]) -> str:
    return ", ".join(shown_path(home) for home in agent.get("homes") or ())


def _history(to: Terminal, status: Status, now: datetime) -> list[str]:
    history = status.get("history")
    if not history:
        return []
    percent = float(history.get("percent") or 0)
    total = history.get("total_bytes") or 0
    if percent >= 100:
        return ["all read"]
    facts = [f"{min(99, int(percent))} %"]
    if total:
        facts.append(f"{format_size(history.get('done_bytes') or 0)} of {format_size(total)}")
    if history.get("reached"):
        facts.append(f"back to {times.when(history['reached'], now)}")
    if history.get("seconds_left") is not None:
        facts.append(f"about {format_duration(history['seconds_left'])} left")
    return _bar(to, percent / 100, " · ".join(facts), "cyan")


def _store(to: Terminal, status: Status) -> list[str]:
    store = status.get("store")
    if not store:
        return []
    used, cap = store.get("bytes") or 0, store.get("soft_cap") or 0
    facts = [format_size(used) + (f" of {format_size(cap)}" if cap else "")]
    if store.get("events") is not None:
        facts.append(times.count(store["events"], "event"))
    share = used / cap if cap else 0.0
    colour = "green" if share < 0.8 else "yellow" if share <= 1 else "red"
    lines = [*_bar(to, share, " · ".join(facts), colour), shown_path(store.get("path"))]
    sqlite = status.get("sqlite") or {}
    if sqlite.get("version"):
        warning = plain(str(sqlite.get("warning") or ""))
        lines.append(f"SQLite {plain(str(sqlite['version']))}" + (f": {warning}" if warning else ""))
    return lines


def _bar(to: Terminal, share: float, words: str, colour: str) -> list[str]:
    room = BAR if to.width is None or to.width >= 72 else 10
    return [to.style(to.bar(share, room), colour) + "  " + to.fit(words, LABEL + room + 4)]


def _sessions(status: Status) -> list[str]:
    sessions = status.get("sessions")
    if not sessions:
        return []
    states = [
        f"{sessions[name]:,} {name}" for name in ("analyzed", "ingested", "discovered", "evicted") if sessions.get(name)
    ]
    return [f"{sessions.get('total', 0):,}" + "".join(f" · {each}" for each in states)]


def _filled(to: Terminal, facts: list[str]) -> list[str]:
    """The facts one after the other, on as many lines as they need."""
    lines: list[str] = []
    for fact in facts:
        if lines and (to.width is None or width_of(f"{lines[-1]} · {fact}") <= to.width - LABEL - 2):
            lines[-1] += f" · {fact}"
        else:
            lines.append(fact)
    return lines


def _intake(status: Status) -> list[str]:
    watch, sources = status.get("watch") or {}, status.get("sources") or {}
    roots = watch.get("roots") or ()
    present = sum(root.get("state") != "absent" for root in roots)
    facts = [
        f"watching {times.count(present, 'folder')}" + (f" ({plain(str(watch['mode']))})" if watch.get("mode") else "")
    ]
    lag_bytes, lag_seconds = sources.get("lag_bytes") or 0, sources.get("lag_seconds") or 0
    facts.append(f"{format_size(lag_bytes)} behind ({format_duration(lag_seconds)})" if lag_bytes else "up to date")
    facts += [f"{times.count(sources[name], noun)} {words}" for name, noun, words in _PASSED_OVER if sources.get(name)]
    unknown = sources.get("unknown_types") or {}
    if unknown:
        facts.append(times.count(len(unknown), "unknown record type"))
    return facts


_PASSED_OVER = (("rejected", "line", "rejected"), ("gone", "file", "gone"), ("excluded", "file", "excluded"))


def _config(status: Status, now: datetime) -> list[str]:
    config = status.get("config")
    if not config:
        return []
    loaded = times.when(config.get("loaded_at"), now)
    where = shown_path(config.get("path")) or "defaults (sessiond config init writes a file to begin with)"
    return [where + (f" · loaded {loaded}" if loaded and config.get("path") else "")]
