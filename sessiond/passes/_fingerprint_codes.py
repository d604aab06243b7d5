"""Lines that are known by a code or by a fixed phrase, whatever else they say.

A compiler's code, a linter's rule, npm's and curl's codes and the name that an API gives to its error decide alone:
the words beside them vary with what they are about. Each form runs only if one of its hints is in the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sessiond.passes._fingerprint_asserts import library_assertion, pytest_assertion
from sessiond.passes._fingerprint_values import VALUE, in_words

Form = tuple[tuple[str, ...], Callable[[str], str | None]]

SHELL = re.compile(
    r"(?!(?:error|fatal|warning)\b)[\w./+-]{1,80}+(?:\[\d++\])?: (?!.{0,200}(?:\[Errno|\berror: ))(?:.{0,600}: )?"
    r"(No such file or directory|Permission denied|Not a directory|Is a directory|File exists|No space left on device|"
    r"Operation not permitted|Read-only file system|Directory not empty|Too many open files|Argument list too long|"
    r"Text file busy|Device or resource busy|Exec format error|Bad interpreter|Broken pipe|Disk quota exceeded|"
    r"Bad substitution|Ambiguous redirect|Unbound variable|Resource temporarily unavailable|Cannot allocate memory|"
    r"Input/output error|Invalid argument)[.!]?$",
    re.IGNORECASE,
)
_NOT_FOUND = re.compile(
    r"(?:^|[\s:])[^\s:]{1,200}+: command not found|command not found: \S"
    r"|^(?:/[\w/]{1,40})?\b(?:da|a|ba|z|k)?sh: (?:\d++: )?[^\s:]{1,200}+: not found|^command not found$"
)
_CURL = re.compile(r"curl:? \((\d{1,3})\)(?:.{0,200}error: (\d{3}))?(?: HTTP (\d{3}))?")
_NODE_CODE = re.compile(r"\[(ERR_(?!ASSERTION\])[A-Z0-9_]{3,60})\]")
_TYPE_CHECKER = re.compile(r" error: (.{1,1000})\s\s\[([a-z-]{3,40})\]$")

_API_NAME = re.compile(r"[\"'](?:type|code|status|reason|error)[\"']\s{0,4}:\s{0,4}[\"']([A-Za-z_]{4,60})[\"']")
_API_MESSAGE = re.compile(
    r"[\"'](?:message|detail|error_description|error)[\"']\s{0,4}:\s{0,4}"
    r"(?:\"((?:[^\"\\]|\\.){1,1500}+)|'((?:[^'\\]|\\.|'(?=\w)){1,1500}+))"
)
_COMPARED = re.compile(r"(?:\w{1,40}\.)*+(?:AssertionError\b|assert |[Ee]xpect)")
_API_STATUS = re.compile(r"(?:[\"'](?:code|status|statusCode)[\"']\s{0,4}:\s{0,4}|\b)([45]\d\d)\b")
# Names that a provider gives to errors of many kinds: the message tells which.
_VAGUE = re.compile(
    r"error|(?:invalid_request|bad_request|api|server|authentication|permission|validation|not_found)(?:_error)?|"
    r"tokens|requests|invalid_request_exception|invalid_argument|failed_precondition|internal"
)


def _shell(line: str) -> str | None:
    """By what the system answered: which program asked, and for what, is where it happened."""
    if _NOT_FOUND.search(line):
        return "command not found"
    found = SHELL.match(line)
    return found[1].lower() if found else None


def _curl(line: str) -> str | None:
    found = _CURL.match(line)
    if found is None:
        return None
    status = found[2] or found[3]
    return f"curl ({found[1]})" + (f" HTTP {status}" if status else "")


def _type_checker(line: str) -> str | None:
    found = _TYPE_CHECKER.search(line)
    return f"{in_words(found[1])} {found[2]}" if found else None


def _api_error(line: str) -> str | None:
    """An API's answer in JSON (or as Python prints it): by the name it gives the error, else by status and message."""
    if _COMPARED.match(line):
        return None
    body = line[line.index("{") :]
    named: list[str] = [each.lower() for each in _API_NAME.findall(body)]
    message = _API_MESSAGE.search(body)
    if message is None and not any("error" in name for name in named):
        return None
    for name in reversed(named):  # "code" follows "type", and is the more precise of the two
        if not _VAGUE.fullmatch(name):
            return "API error " + name.removesuffix("_error").removesuffix("_exceeded")
    status = _API_STATUS.search(line)
    words = in_words(message[1] or message[2]) if message else named[-1]
    return f"API error {'HTTP ' + status[1] + ' ' if status and not named else ''}{words}"


def _by(pattern: str, shape: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern)

    def form(line: str) -> str | None:
        found = compiled.search(line)
        return found.expand(shape) if found else None

    return form


def _phrase(words: str) -> Form:
    """Known by these words wherever they stand, since what stands around them is not quoted."""
    return (words,), lambda _line: words.rstrip(" ([").lower()


# Tried on the line as it is, but for what a log puts before it.
CODED: tuple[Form, ...] = (
    (("TS",), _by(r"(?:^|error )(TS\d{4,5})(?::|$)", r"\1")),
    (("E0",), _by(r"(?:^|error\[?)(E0\d{3})(?:\]|$)", r"\1")),
    (("error[",), _by(r"^error\[([a-z][a-z0-9-]{2,60})\]", r"error[\1]")),
    (("npm ",), _by(r"^npm (?:(?:ERR!|error) )?(?:code )?(E[A-Z0-9]{3,30})\b", r"npm \1")),
    (("npm ",), _by(r"^npm (?:ERR!|error) ([45]\d\d) ", r"npm E\1")),
    (("ERR_PNPM_",), _by(r"(ERR_PNPM_[A-Z0-9_]{2,60})", r"\1")),
    (("[ERR_",), _by(_NODE_CODE.pattern, r"\1")),
    (("curl",), _curl),
    (("ERROR ", "ORA-"), _by(r"(ERROR \d{4} \([0-9A-Z]{5}\)|ORA-\d{5})", r"\1")),
    (
        ("  ", "eslint "),
        _by(r"(?:^\d{1,6}:\d{1,6}\s++(?:error|warning)\s.{0,900}\s\s|^eslint )([a-z@][\w@/-]{2,80})$", r"eslint \1"),
    ),
    ((".py",), _by(r"^\S{1,300}+ ([A-Z]{1,4}\d{3,4}) (?:\[\*\] )?\S", r"\1")),
    (("]",), _type_checker),
    (("{",), _api_error),
    (("API error ",), _by(r"^(API error [a-z_ …:-]+)$", r"\1")),
    (("cannot find -l",), _by(r"cannot find -l", "ld: cannot find library")),
    (("ermission denied (",), _by(r"(?i:permission denied) \(([a-z,-]{3,80})\)", r"permission denied (\1)")),
    ((": ", "not found"), _shell),
    (("rejected] ",), _by(r"\[(?:remote )?rejected\].{0,400}\(([a-z -]{3,60})\)", r"rejected \1")),
    (("CONFLICT (",), _by(r"CONFLICT \(([a-z/ -]{3,40})\)", r"CONFLICT (\1)")),
    (("MCP error -",), _by(r"MCP error (-\d{5})", r"MCP error \1")),
    (("*** [",), _by(r"^(?:g?make)(?:\[\d{1,3}\])?: \*\*\* \[", "make: recipe failed")),
)
# Tried on what is left after labels ("error:") and locations ("a.c:4:12:").
PHRASED: tuple[Form, ...] = (
    (("assert ",), pytest_assertion),
    (("AssertionError",), library_assertion),
    (("expect(",), _by(r"(expect\([\w.]{0,20}(?:\(\))?\)(?:\.\w{1,60}){1,4}\([\w., ]{0,60}\))", r"\1")),
    (("left ",), _by(r"^assertion .{0,20}?(left (?:==|!=|matches) right)", r"assertion \1 failed")),
    (("DID NOT RAISE", "did not raise"), _by(r"(?i:did not raise)", "Failed: did not raise")),
    (("No matching distribution", "Could not find a version"), _by(".", "no matching distribution found")),
    (
        (" is not ",),
        _by(
            r"^((?:Type|Reference)Error: ).{1,200}(?<! object) is not (a function|defined|a constructor|iterable)$",
            rf"\1{VALUE} is not \2",
        ),
    ),
    (("undefined: ", "not used: "), _by(r"^(undefined|declared and not used): \S", r"\1")),
    (("spawn ",), _by(r"spawn .{1,300} (E[A-Z]{3,12})$", rf"spawn {VALUE} \1")),
    (
        ("cannot use ",),
        _by(r"^cannot use .{1,600} as .{1,300} value in (\w{1,20})", rf"cannot use {VALUE} as {VALUE} value in \1"),
    ),
    (("Can't resolve ",), _by(r"Can't resolve ", "module not found: can't resolve")),
    _phrase("Segmentation fault"),
    _phrase("undefined reference to"),
    _phrase("No rule to make target"),
    _phrase("unrecognized arguments"),
    _phrase("nothing to commit"),
    _phrase("not a git repository"),
    _phrase("pull access denied for"),
    _phrase("has no field or method"),
    _phrase("mismatched types"),
    _phrase("redeclared in this block"),
    _phrase("not enough arguments in call to"),
    _phrase("too many arguments in call to"),
    _phrase("nil pointer dereference"),
    _phrase("index out of range ["),
)
