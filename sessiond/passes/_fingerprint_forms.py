"""A telling line -> its normal form: equal for two lines that a person would call the same error.

First what a log, a runner or a shell puts before the message is taken off; then a code or a known phrase decides
(`_fingerprint_codes`); everything else is known by its exception's name and its words (`_fingerprint_values`).
"""

from __future__ import annotations

import re

from sessiond.passes._fingerprint_codes import CODED, PHRASED, Form
from sessiond.passes._fingerprint_values import EXCEPTION, VALUE, in_words

_MOST_PREFIXES = 6

_LOG_PREFIX = re.compile(
    r"(?:#\d{1,4}\s(?:[\d.]{1,12}\s)?|[\w.-]{1,60}\s{1,20}\|\s"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?[\d.,]{0,12}(?:Z|[+-]\d\d:?\d\d)?\]?[\s:|-]{1,4}"
    r"|\[?\d\d:\d\d:\d\d[\d.,]{0,10}\]?\s|(?:INFO|ERROR|FATAL|CRITICAL)[:\s]{1,3}[\w.]{1,80}:\d{0,6}:?\s?(?=[A-Z\[]))"
)
_SHELL_LINE = re.compile(r"[^\s:]{1,200}+: (?:-c: )?line \d++: |[^\s:]{0,100}sh: -c: ")
# Where it happened, before what happened: "src/a.c:4:12: ", "lib/x.ts(3,1): ", "lib/x.ts:3:1 - "
_LOCATION = re.compile(
    r"(?!\d++:)(?:[A-Za-z]:)?[^\s:()\"']{1,300}+(?::\d++(?::\d++)?:?|\(\d++(?:,\d++)?\):|:\([^()\n]{1,40}\):)"
    r"(?:\s-)?\s++(?=\S)"
)
_LABEL = re.compile(
    r"(?:\[?(?:error|fatal error|fatal|err|critical|severe|fail)\]?\s{0,3}[:!\]]"
    r"|(?-i:ERROR|FATAL)\s(?=\S)(?!\d{4} \()|error\s{2,}"
    r"|(?:uncaught|unhandled)(?: exception:?| error:| \(in promise\))?\s|internal error:|\[?API Error:? \(?(?=[^\s(])"
    r"|[\w./-]{1,60}+: (?=(?:fatal )?error: |Error response)|docker: |remote: |stderr: ?|stdout: ?|output: ?|thrown: ?"
    r"|panic: (?=panic: )|g?make(?:\[\d++\])?: \*\*\* (?!\[)|\*\*\* |psql:[^\s:]{1,200}+:\d++: |npm (?:ERR!|error) "
    r"|e:\s|##\[error\]|[✖✗✘×❌❯>•●!│|]+\s|\(node:\d++\)\s|Exception in thread \S{1,80}\s)\s*+",  # noqa: RUF001
    re.IGNORECASE,
)
_HEAD = re.compile(
    rf"(?:{EXCEPTION.pattern}|(?:[a-z_]\w{{0,80}}\.){{1,12}}+(?P<dotted>[A-Z]\w{{2,80}}+|\w{{0,20}}error)"
    r"|(?P<humped>(?:[A-Z][a-z0-9]{1,40}){2,8}+)(?=:))"
    r"(?: \[[\w-]{1,60}\])?(?::|$)"
)
_DRIVER = re.compile(r"\((?:\w{1,40}\.){1,5}+(?P<name>\w{1,60})\) ")
_FILE_NOTE = re.compile(r" \([^()\s]{1,200}, line \d++\)$")
_EXITED = re.compile(
    r"(?:the )?(?:process|command|script|program|task)?\s?(?:failed|finished|returned)?(?: with)?\s?"
    r"exit code( \d{1,3})?"
)


def normal_form(line: str) -> str:
    """Empty when the line says nothing at all."""
    line = _stripped(line.strip(), _LOG_PREFIX, _SHELL_LINE)
    if found := _first(CODED, line):
        return found
    line = _stripped(line, _LOG_PREFIX, _LABEL, _LOCATION)
    return _first(PHRASED, line) or _by_words(line)


def _first(forms: tuple[Form, ...], line: str) -> str | None:
    for hints, form in forms:
        if any(hint in line for hint in hints) and (found := form(line)):
            return found
    return None


def _stripped(line: str, *prefixes: re.Pattern[str]) -> str:
    for _ in range(_MOST_PREFIXES):
        for prefix in prefixes:
            found = prefix.match(line)
            if found and found.end() < len(line):
                line = line[found.end() :]
                break
        else:
            break
    return line


def _by_words(line: str) -> str:
    found = _HEAD.match(line)
    head, message = "", line
    if found:
        head, message = found["name"] or found["dotted"] or found["humped"], line[found.end() :].strip()
        if message.startswith("(") and (driver := _DRIVER.match(message)):
            head, message = driver["name"], message[driver.end() :]  # an error of the driver, wrapped by its library
        message = _stripped(message, _LABEL)
    normal = in_words(_unquoted(_FILE_NOTE.sub("", message)))
    if exited := _EXITED.fullmatch(normal):
        normal = "exit code" + (exited[1] or "")
    if head in {"", "Error"}:
        return normal or head.lower()
    return f"{head}: {normal}" if normal and normal != VALUE else head


def _unquoted(message: str) -> str:
    """A message that is one quoted sentence is no value."""
    quote = message[:1]
    if quote in {'"', "'", "`"} and message.endswith(quote) and message.count(quote) == 2 and message.count(" ") >= 2:
        return message[1:-1]
    return message
