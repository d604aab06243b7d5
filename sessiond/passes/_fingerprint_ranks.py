"""How much one line says about what went wrong, judged by itself."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING

from sessiond.passes._fingerprint_codes import SHELL

if TYPE_CHECKING:
    from collections.abc import Sequence


class Rank(IntEnum):
    """Best first."""

    EXACT = 0  # a compiler's error, a failed assertion, a tool's own verdict
    SUMMED_UP = 1  # the same, as a runner's summary repeats it
    FINAL = 2  # the exception that ends a traceback
    STATED = 3  # "error: ...", "fatal: ...", "SomeError: ..."
    WORDED = 4  # speaks of failure
    WRAPPED = 5  # only says that something below failed
    GENERIC = 6  # "exit code 1"
    PLAIN = 7


# Whatever is not PLAIN holds one of these; most lines of a long output hold none, and cost no more than this look.
HINTS = (
    *("err", "fail", "exce", "cannot", "not ", "n't", "no ", "unable", "denied", "refused", "invalid", "time", "unexp"),
    *("unk", "missing", "forbid", "unauth", "reject", "abort", "kill", "termin", "conflict", "exist", "already"),
    *("overl", "undef", "unrec", "unsup", "illegal", "expire", "disconn", "unavail", "overf", "panic", "fatal"),
    *("fault", "bad", "too ", "race", "must", "mismatch", "out of", "curl: (", "exit", "code", "make", "go: "),
    *(".go:", ".py", "line ", "interr", "expect(", "command", "output", "stdout", "signal", "null", "stop", "string"),
    *("✗", "✖", "✘", "×", "❌"),  # noqa: RUF001
    *(
        "modified",
        "nothing",
        "api",
        "apply_",
        "status",
        "e: ",
        "resource",
        "directory",
        "is a",
        "device",
        "pipe",
        "too",
    ),
)
_STATED_AT_START = re.compile(
    r"\[Error: |ERROR[:\s]\s*\S|E: \S|\S{1,200}+ (?:-c: )?line \d++: \S|error\s{1,2}\S|\[error\] |[✖✗✘×❌] \S|Error \S"  # noqa: RUF001
)
_STATED = re.compile(
    r"(?<![\w.])(?:(?:[\w$]{1,80}(?:\.|::|\\)){0,12}+[A-Z][\w$]{0,80}(?:Error|Exception|Failure|Interrupt|Expired)"
    r"(?: \[[\w-]{1,60}\])?(?::\s|$)|(?:fatal|error|err|critical|failed|panic|abort|Error|ERROR|FATAL ERROR)"
    r"(?:\[\w{1,20}\])?: |Error response from daemon)"
)
_STATED_WITHIN = 80
_COMPILER = re.compile(
    r"[^\s:()]{1,300}+(?::\d++(?::\d++)?:\s|\(\d++,\d++\):\s|:\d++:\d++\s-\s)(?:fatal error|error|Error)\b"
    r"|[^\s:()]{1,300}\.go:\d++:\d++: \S|[^\s:()]{1,300}\.pyi?:\d++:\d++: [A-Z]{1,4}\d{3,4} "
    r"|error(?:\[E\d{4}\]|\sTS\d{4,5})?: |(?:error\s)?TS\d{4,5}: |\d{1,6}:\d{1,6}\s++error\s++\S"
)
_EXACT_PARTS = (
    *("undefined reference to", "[rejected]", "CONFLICT (", "cannot find -l", "curl: (", "ERR_PNPM_", "DATA RACE"),
    *("expect(received)", "Undefined symbols for", "ermission denied (publickey", "[remote rejected]"),
    *("egmentation fault", "command not found"),
)
_EXACT_STARTS = (
    *("panic: ", "npm ", "Makefile:", "make: *** No", "make[", "gmake", "go: ", "String to replace", "API Error"),
    "apply_patch",
)
_NPM = re.compile(r"npm (?:ERR!|error) (?:code (?!ELIFECYCLE)E[A-Z0-9]|E[A-Z]{3,20} |[45]\d\d |[A-Z`]|could )")
_WRAPPED = re.compile(
    r"(?:g?make(?:\[\d++\])?: \*\*\* \[|error: (?:could not compile|aborting due to|test failed|build failed|recipe |"
    r"failed to push some refs|subprocess-exited)|collect2: |ninja: build stopped|\S{0,80}clang\S{0,20}: error: linker "
    r"command|error Command failed|.{0,40}ELIFECYCLE|npm (?:ERR!|error) |fatal: Could not read from remote|"
    r".{0,60}process \".{0,800}\" did not complete|--- FAIL|FAIL\b|FAILED\b|ERROR: Job failed|Found \d++ errors?|"
    r"✖ \d++ problem|Tests?(?: Suites| Files)?:? +\d++ failed|test result: FAILED|=++ .*\d (?:failed|errors?)|"
    r"!+ Interrupted|\S{0,60}CalledProcessError|ERROR collecting|ImportError while importing test|"
    r"-- Configuring incomplete|(?:\d++ )?errors? generated|Some errors have detailed|For more information about this|"
    r"Emitted 'error'|Require stack|Automatic merge failed|Unable to find image|ERROR \S+$)",
)
_EXIT = re.compile(
    r"(?:error: )?(?:the )?(?:command|process|script|program)?\s?(?:failed|exited|exit|returned)?(?: with)?(?: a)?"
    r"(?: non-?zero)?\s?(?:exit)?(?:ed)?\s?(?:code|status)?(?: code)?[:=]?\s{0,2}-?\d{0,5}\.?|errors?|failed|"
    r"command failed\.?|\d++ failed|wall time: .*|output:|stdout:.{0,7}|stderr:.{0,7}|error: \(none\)|signal: .{0,10}|"
    r"null|undefined|aborting\.?|stop\.?",
    re.IGNORECASE,
)
# Code, frames, warnings and advice, which may speak of errors without being one.
_ASIDE = re.compile(
    r"at\s.+(?:\)|:\d++)|File \"|~~~|\^|\d++ \|| *\||>\s|raise |throw |return |import |from \S+ import |note: |hint: |"
    r"help: |= (?:note|help)|#include|warning[:\[ ]|\S{1,300}+ (?:warning|note): |\S{0,60}WARN|npm warn|W: |"
    r"(?:error: )?usage: |Ran \d|-- |[-+?] |code: |errno|syscall",
    re.IGNORECASE,
)
_WORDS = re.compile(
    r"\b(?:errors?|failed|failure|fails?|cannot|can't|could not|couldn't|unable|not found|no such|denied|refused|"
    r"invalid|timed out|timeout|unexpected|unknown|missing|exceed(?:s|ed)|not allowed|not permitted|forbidden|"
    r"unauthorized|rejected|aborted|killed|terminated|conflict|not exist|already|overloaded|undefined|"
    r"unrecognized|unsupported|illegal|expired|disconnected|unavailable|overflow|panic|fatal|exception|bad|"
    r"not supported|too (?:long|large|many|low)|must be|mismatch|not match|not raise|haven't|doesn't|didn't|has not|"
    r"have not|has been modified|nothing to commit|out of)\b(?![./]\w)",
    re.IGNORECASE,
)


def is_wrapped(text: str) -> bool:
    return _WRAPPED.match(text) is not None and not (text.startswith("npm ") and _NPM.match(text))


def hints_in(text: str) -> list[str]:
    """What a whole text holds of the hints: only these need be looked for in its lines."""
    low = text.lower()
    return [hint for hint in HINTS if hint in low]


def rank_of(text: str, hints: Sequence[str]) -> Rank:
    """`text` is one line without the blanks around it."""
    low = text.lower()
    if not any(hint in low for hint in hints):
        return Rank.PLAIN
    if is_wrapped(text):
        return Rank.WRAPPED
    if _is_exact(text):
        return Rank.EXACT
    if _EXIT.fullmatch(text):
        return Rank.GENERIC
    if _ASIDE.match(text):
        return Rank.PLAIN
    if _STATED_AT_START.match(text) or _STATED.search(text, 0, _STATED_WITHIN) or SHELL.match(text):
        return Rank.STATED
    return Rank.WORDED if _WORDS.search(text) else Rank.PLAIN


def _is_exact(text: str) -> bool:
    if any(part in text for part in _EXACT_PARTS):
        return True
    if text.startswith(_EXACT_STARTS):
        return text[:4] != "npm " or _NPM.match(text) is not None
    return _COMPILER.match(text) is not None
