"""Which line of an error's text tells what went wrong.

Every line is ranked; the best rank wins and, within a rank, the first line. Two kinds need the lines around them: a
Python traceback is known by the exception that ends it (of a chain the last, of several reports the first), and
runners that print the assertion below or beside the failing test's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from sessiond.passes._fingerprint_forms import SHELL


class Rank(IntEnum):
    """How much a line says, best first."""

    EXACT = 0  # a compiler's error, a failed assertion, a tool's own verdict
    SUMMED_UP = 1  # the same, as a runner's summary repeats it
    FINAL = 2  # the exception that ends a traceback
    STATED = 3  # "error: ...", "fatal: ...", "SomeError: ..."
    WORDED = 4  # speaks of failure
    WRAPPED = 5  # only says that something below failed
    GENERIC = 6  # "exit code 1"
    PLAIN = 7


@dataclass(frozen=True, slots=True)
class Candidate:
    rank: Rank
    line: str


_EXCEPTION_LINE = re.compile(
    r"(?:[A-Za-z_]\w{0,80}\.){0,12}+[A-Z]\w{2,100}+(?:: |:$|$)|(?:[a-z_]\w{0,80}\.){1,12}+\w{0,20}error(?:: |$)"
)
_STATED = re.compile(
    r"(?:[\w$.\[\] :-]{0,60}?\b)??(?:(?:[\w$]{1,80}(?:\.|::|\\)){0,12}+[A-Z][\w$]{0,80}(?:Error|Exception|Failure|Interrupt|Expired)"
    r"(?: \[[\w-]{1,60}\])?(?::\s|$)|(?:fatal|error|err|critical|failed|panic|abort|FATAL ERROR)(?:\[\w{1,20}\])?: |"
    r"Error response from daemon)"
    r"|\[Error: |ERROR[:\s]\s*\S|E: \S|ERR! |\S{1,200}: (?:-c: )?line \d++: \S|error\s{1,2}\S|\[error\] |[✖✗✘×❌] \S|Error \S",  # noqa: RUF001
)
_COMPILER = re.compile(
    r"[^\s:()]{1,300}+(?::\d++(?::\d++)?:\s|\(\d++,\d++\):\s|:\d++:\d++\s-\s)(?:fatal error|error|Error)\b"
    r"|[^\s:()]{1,300}\.go:\d++:\d++: \S|[^\s:()]{1,300}\.pyi?:\d++:\d++: [A-Z]{1,4}\d{3,4} "
    r"|error(?:\[E\d{4}\]|\sTS\d{4,5})?: |(?:error\s)?TS\d{4,5}: "
)
_LINTER_ROW = re.compile(r"\d{1,6}:\d{1,6}\s++error\s++\S")
_GO_TEST = re.compile(r"\s{0,40}\w{1,100}_test\.go:\d++: ?(.*)")
_SUMMARY = re.compile(r"(?:FAILED|ERROR) \S{1,600}+(?: .{0,200}?\])? - (.+)")
_PANIC = re.compile(r"thread '[^'\n]{0,200}+'(?: \(\d++\))? panicked at (?:'(.+)|.{0,300}:$)")
_FRAME = re.compile(r"""(?:at\s.+(?:\)|:\d++)|File "|~~~|\^|\d++ \|| *\||>\s|raise |throw |return |import |from \S+ import |note: |hint: |help: |"""
    r"""= (?:note|help)|#include|warning[:\[ ]|\S{1,300}: (?:warning|note): |\S{0,60}WARN|npm warn|W: |(?:error: )?usage: |Ran \d|-- |[-+?] |code: |errno|syscall)""", re.IGNORECASE)
_PYTEST_SECTION = re.compile(r"_{3,}+ .{1,300} _{3,}$|=+ short test summary info =+$")
_TAG = re.compile(r"<(?:tool_use_error|error|tool_error)>\s*+([^\n<]\S?[^\n]*)")
_CLOSING_TAG = re.compile(r"</(?:tool_use_error|error|tool_error)>.*")
_NPM = re.compile(r"npm (?:ERR!|error) (?:code (?!ELIFECYCLE)E[A-Z0-9]|E[A-Z]{3,20} |[45]\d\d |[A-Z`]|could )")
_WRAPPED = re.compile(
    r"(?:g?make(?:\[\d++\])?: \*\*\* \[|error: could not compile|error: aborting due to|error: test failed|error: build failed|"
    r"collect2: |ninja: build stopped|\S*clang\S*: error: linker command|error Command failed|error: failed to push some refs|"
    r"error: recipe |.{0,40}ELIFECYCLE|npm (?:ERR!|error) |fatal: Could not read from remote|.{0,60}process \".{0,800}\" did not complete|"
    r"--- FAIL|FAIL\b|FAILED\b|ERROR: Job failed|Found \d++ errors?|✖ \d++ problem|Tests?( Suites| Files)?:? +\d++ failed|"
    r"test result: FAILED|=+ .*\d (?:failed|errors?)|!+ Interrupted|\S{0,60}CalledProcessError|error: subprocess-exited|"
    r"ERROR collecting|ImportError while importing test|-- Configuring incomplete|(?:\d++ )?errors? generated|"
    r"Some errors have detailed|For more information about this error|Emitted 'error'|Require stack|"
    r"Automatic merge failed|Unable to find image|ERROR \S+$)",
)
_EXIT = re.compile(
    r"(?:error: )?(?:the )?(?:command|process|script|program)?\s?(?:failed|exited|exit|returned)?(?: with)?(?: a)?(?: non-?zero)?\s?"
    r"(?:exit)?(?:ed)?\s?(?:code|status)?(?: code)?[:=]?\s{0,2}-?\d{0,5}\.?|errors?|failed|command failed\.?|\d++ failed|wall time: .*|output:|"
    r"stdout:.{0,7}|stderr:.{0,7}|error: \(none\)|signal: .{0,10}|null|undefined|aborting\.?|stop\.?",
    re.IGNORECASE,
)
_WORDS = re.compile(
    r"\b(?:errors?|failed|failure|fails?|cannot|can't|could not|couldn't|unable|not found|no such|denied|refused|invalid|timed out|"
    r"timeout|unexpected|unknown|missing|exceed(?:s|ed)|not allowed|not permitted|forbidden|unauthorized|rejected|aborted|killed|"
    r"terminated|conflict|not exist|already|overloaded|undefined|unrecognized|unsupported|illegal|expired|disconnected|unavailable|"
    r"overflow|panic|fatal|exception|segmentation fault|bad|not supported|too (?:long|large|many|low)|data race|must be|"
    r"mismatch|not match|not raise|haven't|doesn't|didn't|has not|have not|has been modified|nothing to commit|out of)\b(?![./])",
    re.IGNORECASE,
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TALKS_OF_RAISING = re.compile(r"(?:\w{1,80}\.){0,12}+[A-Z]\w{2,100}+(?::|$)|assert |Failed: |fixture ")


@dataclass(slots=True)
class _Scan:
    """What has to be remembered from line to line."""

    found: list[Candidate] = field(default_factory=list)
    in_traceback: bool = False
    final: str | None = None  # the last exception of this traceback's chain
    final_is_fixed: bool = False
    raised: list[str] = field(default_factory=list)  # pytest's "E" lines of one block
    assertion: str | None = None
    assertion_is_fixed: bool = False
    awaited: bool = False  # the next line that says something is the failure
    joined: list[str] | None = None  # the wrapped words of one message

    def add(self, rank: Rank, line: str) -> None:
        self.found.append(Candidate(rank, line))


def candidates(lines: list[str]) -> list[Candidate]:
    """Every line that tells something, the most telling first."""
    scan = _Scan()
    for line in lines:
        text = line.strip()
        if line.startswith("E   "):
            scan.raised.append(line[4:])
            continue
        if scan.raised:
            _end_block(scan)
        if scan.joined is not None and _joins(scan, text):
            continue
        if text:
            _read(scan, line, text)
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
    """Of pytest's "E" lines the one that names what was raised; the rest is its explanation."""
    told = next((each.strip() for each in scan.raised if _TALKS_OF_RAISING.match(each.strip())), scan.raised[0].strip())
    scan.raised = []
    if scan.assertion_is_fixed:
        scan.add(Rank.FINAL, told)
    else:
        scan.assertion = told


def _joins(scan: _Scan, text: str) -> bool:
    if text and scan.joined is not None and len(scan.joined) < 8:
        scan.joined.append(text)
        return True
    if not text and not scan.joined:
        return True
    scan.add(Rank.EXACT, " ".join(scan.joined or ()))
    scan.joined = None
    return False


def _read(scan: _Scan, line: str, text: str) -> None:
    if scan.awaited and not text.startswith(("...", "Test suite failed")):
        scan.awaited = False
        scan.add(Rank.EXACT, _CLOSING_TAG.sub("", text))
        return
    if _follow_traceback(scan, line, text):
        return
    if not _announces(scan, line, text):
        scan.add(_rank(line, text), text)


def _follow_traceback(scan: _Scan, line: str, text: str) -> bool:
    if text.startswith(("Traceback (most recent", 'File "')) or text.startswith(_CHAINED):
        scan.in_traceback = True
        return True
    if not scan.in_traceback:
        if text.startswith("=====") and scan.final is not None:
            scan.final_is_fixed = True  # the next report of the same run
        return False
    if line[0] in " \t" or text == "...":
        return True
    if _EXCEPTION_LINE.match(text):
        scan.in_traceback = False
        if _WRAPPED.match(text):
            scan.add(Rank.WRAPPED, text)
        elif scan.final_is_fixed:
            scan.add(Rank.FINAL, text)
        else:
            scan.final = text
        return True
    return False


def _announces(scan: _Scan, line: str, text: str) -> bool:
    """Lines that say what the next one is, or carry the failure behind a name."""
    first = text[0]
    if first == "_" or first == "=":
        if scan.assertion is not None and _PYTEST_SECTION.match(text):
            scan.assertion_is_fixed = True
        return _PYTEST_SECTION.match(text) is not None
    if first in "FE" and (found := _SUMMARY.match(text)):
        scan.add(Rank.SUMMED_UP, found[1])
        return True
    if first == "●" or (first == "F" and text.startswith("FAIL ") and " > " in text):
        scan.awaited = True
        return True
    if "panicked at " in text and (found := _PANIC.match(text)):
        scan.awaited = found[1] is None
        if found[1]:
            scan.add(Rank.EXACT, found[1].partition("', ")[0])
        return True
    if text.startswith("CMake Error"):
        scan.joined = [] if text.endswith(":") else [text.partition(": ")[2]]
        return True
    if "_test.go:" in text and (found := _GO_TEST.match(line)):
        if found[1].strip():
            scan.add(Rank.EXACT, found[1])
        return True
    if text.endswith(("following issue:", "following issues:")):
        scan.awaited = True
        return True
    if first == "<" and (found := _TAG.match(text)):
        scan.add(Rank.EXACT, _CLOSING_TAG.sub("", found[1]))
        return True
    return False


_EXACT_PARTS = ("undefined reference to", "[rejected]", "CONFLICT (", "cannot find -l", "curl: (", "ERR_PNPM_", "DATA RACE", "expect(received)",
    "Undefined symbols for", "ermission denied (publickey", "[remote rejected]", "egmentation fault", "command not found")  # fmt: skip
_EXACT_STARTS = ("panic: ", "npm ", "Makefile:", "make: *** No", "make[", "gmake", "go: ", "String to replace", "API Error", "apply_patch")


def _rank(line: str, text: str) -> Rank:
    if _WRAPPED.match(text) and not (text.startswith("npm ") and _NPM.match(text)):
        return Rank.WRAPPED
    if any(part in text for part in _EXACT_PARTS):
        return Rank.EXACT
    if text.startswith(_EXACT_STARTS) and (text[:4] != "npm " or _NPM.match(text)):
        return Rank.EXACT
    if _COMPILER.match(text) or (text[0].isdigit() and _LINTER_ROW.match(text)):
        return Rank.EXACT
    if _EXIT.fullmatch(text):
        return Rank.GENERIC
    if _FRAME.match(text):
        return Rank.PLAIN
    if _STATED.match(text) or SHELL.match(text):
        return Rank.STATED
    return Rank.WORDED if _WORDS.search(text) else Rank.PLAIN
