"""A digest for people: the rows of `show` that say what a session came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.cli import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sessiond.cli.terminal import Terminal

    Digest = dict[str, Any]
    Words = Callable[[str | None], str]
    Rows = Iterator[tuple[str, str]]

SHOWN = 4


def rows(digest: Digest, to: Terminal, words: Words) -> Rows:
    """(label, text); the label is empty where a row goes on with the one before."""
    yield from _tests(digest, to)
    yield from _commands(digest, to, words)
    yield from _errors(digest, to, words)
    yield from _listed(
        "decided", [words(each["summary"]) for each in digest["decisions"]], digest["decisions_more"], to
    )
    stops = digest["human_interventions"]
    yield from _listed("stopped", [words(each["summary"]) for each in stops["items"]], 0, to, count=stops["count"])
    yield from _listed(
        "open", [_call(each, words) for each in digest["open_calls"]], digest.get("open_calls_more", 0), to
    )
    signals = [f"{each['signal']} ({words(each['detail'])})" for each in digest["signals"]]
    yield from _listed("signals", signals, 0, to)
    if digest["partial"]:
        yield "partial", to.style(words(digest["partial"]), "yellow")


def said(digest: Digest, words: Words) -> Rows:
    """What was asked first and last, and what was answered last."""
    first, last = digest["first_prompt"], digest["last_prompt"]
    for label, text in (
        ("asked", first),
        ("then", last if last != first else None),
        ("answered", digest["last_answer"]),
    ):
        if text:
            yield label, words(" ".join(text.split()))


def _tests(digest: Digest, to: Terminal) -> Rows:
    tests = digest["tests"]
    if not tests["runs"]:
        return
    told = f"{times.count(tests['runs'], 'run')}: {tests['passed']} passed, {tests['failed']} failed"
    if tests["last"]:
        told += "; the last one " + to.style(tests["last"], "green" if tests["last"] == "passed" else "red")
    yield "tests", told


def _commands(digest: Digest, to: Terminal, words: Words) -> Rows:
    told = []
    for each in digest["commands"]:
        marks = [f"{each['count']}x"] if each["count"] > 1 else []
        marks += [f"{each['failed']} failed"] if each["failed"] else []
        told.append(words(each["command"]) + (f" ({', '.join(marks)})" if marks else ""))
    yield from _listed("ran", told, digest["commands_more"], to)


def _errors(digest: Digest, to: Terminal, words: Words) -> Rows:
    told = []
    worst = sorted(digest["error_snippets"], key=lambda each: (-each["count"], each["first_seq"]))
    for each in worst:
        head = f"{each['count']}x " if each["count"] > 1 else ""
        told.append(head + words(each["sample"]) + _went_away(each, words))
    yield from _listed("errors", told, digest["errors_more"], to)


def _went_away(snippet: dict[str, Any], words: Words) -> str:
    found = snippet["recovered_by"]
    if not found:
        return ""
    actions = ", ".join(_call(each, words) for each in found["actions"][-2:])
    return f" (went away after {actions})" if actions else " (went away)"


def _call(each: dict[str, Any], words: Words) -> str:
    tool, summary = words(each["tool"]), words(each["summary"])
    return summary if not tool or summary.lower().startswith(tool.lower()) else f"{tool} {summary}".strip()


def _listed(label: str, told: list[str], more: int, to: Terminal, *, count: int | None = None) -> Rows:
    shown = told[:SHOWN] if to.is_screen else told
    for number, text in enumerate(shown):
        yield (label if number == 0 else ""), text
    left = (len(told) if count is None else count) - len(shown) + more
    if left > 0:
        yield "" if shown else label, f"and {left:,} more (--json lists them)" if shown else f"{left:,} times"
