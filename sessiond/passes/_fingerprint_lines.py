"""Which lines of an error's text tell what went wrong, the most telling first.

Most lines are ranked by themselves (`_fingerprint_ranks`). Some need the lines around them: a Python traceback is
known by the exception that ends it (of a chain the last, of several reports the first), and runners print the
assertion below, or beside, the name of the failing test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sessiond.passes._fingerprint_ranks import HINTS, Rank, hints_in, is_wrapped, rank_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Candidate:
    rank: Rank
    line: str


_EXCEPTION_LINE = re.compile(
    r"(?:[A-Za-z_]\w{0,80}\.){0,12}+[A-Z]\w{2,100}+(?:: |:$|$)|(?:[a-z_]\w{0,80}\.){1,12}+\w{0,20}error(?:: |$)"
)
_TALKS_OF_RAISING = re.compile(r"(?:\w{1,80}\.){0,12}+[A-Z]\w{2,100}+(?::|$)|assert |Failed: |fixture ")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_PYTEST_SECTION = re.compile(r"_{3,}+ .{1,300} _{3,}$|=+ short test summary info =+$")
_SUMMARY = re.compile(r"(?:FAILED|ERROR) \S{1,600}+(?: .{0,200}?\])? - (.+)")
_GO_TEST = re.compile(r"\s{0,40}\w{1,100}_test\.go:\d++: ?(.*)")
_PANIC = re.compile(r"thread '[^'\n]{0,200}+'(?: \(\d++\))? panicked at (?:'(.+)|.{0,300}:$)")
_TAG = re.compile(r"<(?:tool_use_error|tool_error|error)>\s*+([^<].*)")
_CLOSING_TAG = re.compile(r"</(?:tool_use_error|tool_error|error)>.*")
_MARKUP = re.compile(r"</?[a-z][\w-]{0,60}>")  # what an agent puts around a result
_MOST_JOINED = 8
_LONGEST_LINE = 2000
_NARROW_AFTER = 5  # lines: from there on it pays to know what the whole text holds


@dataclass(slots=True)
class _Scan:
    """What has to be remembered from line to line."""

    text: str
    hints: Sequence[str] = HINTS
    ranked: int = 0
    found: list[Candidate] = field(default_factory=list)
    in_traceback: bool = False
    final: str | None = None  # the last exception of this traceback's chain
    final_is_fixed: bool = False
    raised: list[str] = field(default_factory=list)  # pytest's "E" lines of one block
    assertion: str | None = None
    assertion_is_fixed: bool = False
    awaited: bool = False  # the next line that says something is the failure
    joined: list[str] | None = None  # the lines of one wrapped message

    def add(self, rank: Rank, line: str) -> None:
        self.found.append(Candidate(rank, line))

    def add_by_itself(self, line: str) -> None:
        self.ranked += 1
        if self.ranked == _NARROW_AFTER:
            self.hints = hints_in(self.text)
        rank = rank_of(line, self.hints)
        if rank is not Rank.PLAIN or not _MARKUP.match(line):
            self.add(rank, line)


def candidates(text: str) -> list[Candidate]:
    """Every line that is not blank or a frame, by rank and then in order."""
    scan = _Scan(text)
    for whole_line in text.split("\n"):
        line = whole_line[:_LONGEST_LINE]
        if line.startswith("E   "):
            scan.raised.append(line[4:].strip())
            continue
        if scan.raised:
            _end_block(scan)
        stripped = line.strip()
        if scan.joined is not None and _joins(scan, stripped):
            continue
        if stripped:
            _read(scan, line, stripped)
    if scan.raised:
        _end_block(scan)
    if scan.joined:
        scan.add(Rank.EXACT, " ".join(scan.joined))
    if scan.final is not None:
        scan.found.insert(0, Candidate(Rank.FINAL, scan.final))
    if scan.assertion is not None:
        scan.found.insert(0, Candidate(Rank.EXACT, scan.assertion))
    return sorted(scan.found, key=lambda each: each.rank)


def _end_block(scan: _Scan) -> None:
    """Of pytest's "E" lines the one that names what was raised; the rest explains it."""
    told = next((each for each in scan.raised if _TALKS_OF_RAISING.match(each)), scan.raised[0])
    scan.raised = []
    if scan.assertion_is_fixed:
        scan.add(Rank.FINAL, told)
    else:
        scan.assertion = told


def _joins(scan: _Scan, text: str) -> bool:
    """Whether the line belongs to the wrapped message before it; a blank one ends that."""
    if scan.joined is None or (not text and not scan.joined):
        return True
    if text and len(scan.joined) < _MOST_JOINED:
        scan.joined.append(text)
        return True
    scan.add(Rank.EXACT, " ".join(scan.joined))
    scan.joined = None
    return False


def _read(scan: _Scan, line: str, text: str) -> None:
    if scan.awaited and not text.startswith(("...", "Test suite failed")):
        scan.awaited = False
        scan.add(Rank.EXACT, _CLOSING_TAG.sub("", text))
    elif not _follow_traceback(scan, line, text) and not _announces(scan, line, text):
        scan.add_by_itself(text)


def _follow_traceback(scan: _Scan, line: str, text: str) -> bool:
    if text.startswith(("Traceback (most recent", 'File "', *_CHAINED)):
        scan.in_traceback = True
        return True
    if not scan.in_traceback:
        if scan.final is not None and text.startswith("====="):
            scan.final_is_fixed = True  # the next report of the same run
        return False
    if line[0] in " \t" or text == "...":
        return True
    if not _EXCEPTION_LINE.match(text):
        return False
    scan.in_traceback = False
    if is_wrapped(text):
        scan.add(Rank.WRAPPED, text)
    elif scan.final_is_fixed:
        scan.add(Rank.FINAL, text)
    else:
        scan.final = text
    return True


def _announces(scan: _Scan, line: str, text: str) -> bool:
    """Lines that say what the next one is, or carry the failure behind a name."""
    first = text[0]
    if first in "_=" and _PYTEST_SECTION.match(text):
        scan.assertion_is_fixed = scan.assertion is not None
    elif first in "FE" and (found := _SUMMARY.match(text)):
        scan.add(Rank.SUMMED_UP, found[1])
    elif first == "●" or (first == "F" and text.startswith("FAIL ") and " > " in text):
        scan.awaited = True
    elif "panicked at " in text and (found := _PANIC.match(text)):
        scan.awaited = found[1] is None
        if found[1]:
            scan.add(Rank.EXACT, found[1].partition("', ")[0])
    elif text.startswith("CMake Error"):
        scan.joined = [] if text.endswith(":") else [text.partition(": ")[2]]
    elif "_test.go:" in text and (found := _GO_TEST.match(line)):
        if found[1].strip():
            scan.add(Rank.EXACT, found[1])
    elif text.endswith(("following issue:", "following issues:")):
        scan.awaited = True
    elif first == "<" and (found := _TAG.match(text)):
        scan.add(Rank.EXACT, _CLOSING_TAG.sub("", found[1]))
    else:
        return False
    return True
