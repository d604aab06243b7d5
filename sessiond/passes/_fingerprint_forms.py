"""A telling line -> its normal form: equal for two lines that a person would call the same error.

Errors that carry a code (a compiler's, a linter's rule, npm's, curl's, an API's) are known by the code alone, since
their words vary with what they are about. Assertions are known by what they compare. Everything else is known by
its words: see `_fingerprint_values`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sessiond.passes._fingerprint_values import EXCEPTION, VALUE, without_values

if TYPE_CHECKING:
    from collections.abc import Callable

_STRERRORS = (
    r"(No such file or directory|Permission denied|Not a directory|Is a directory|File exists|No space left on device|"
    r"Operation not permitted|Read-only file system|Directory not empty|Too many open files|Argument list too long|"
    r"Text file busy|Device or resource busy|Exec format error|Bad interpreter|Broken pipe|Disk quota exceeded|"
    r"Bad substitution|Ambiguous redirect|Unbound variable|Resource temporarily unavailable|Cannot allocate memory|Input/output error|Invalid argument)"
)
SHELL = re.compile(
    r"(?!(?:error|fatal|warning)\b)[\w./+-]{1,80}+(?:\[\d++\])?: (?!.{0,200}(?:\[Errno|\berror: ))(?:.{0,600}: )?"
    rf"{_STRERRORS}[.!]?$",
    re.IGNORECASE,
)
_NOT_FOUND = re.compile(
    r"(?:^|[\s:])[^\s:]{1,200}+: command not found|command not found: \S|^(?:/[\w/]{1,40})?\b(?:da|a|ba|z|k)?sh: (?:\d++: )?[^\s:]{1,200}+: not found",
)
# Where it happened, before what happened: "src/a.c:4:12: ", "lib/x.ts(3,1): ", "  File ..."
_LOCATION = re.compile(
    r"(?!\d++:)(?:[A-Za-z]:)?[^\s:()\"']{1,300}+(?::\d++(?::\d++)?:?|\(\d++(?:,\d++)?\):|:\([^()\n]{1,40}\):)(?:\s-)?\s++(?=\S)"
)
_LABEL = re.compile(
    r"(?:\[?(?:error|fatal error|fatal|err|critical|severe|fail)\]?\s{0,3}[:!\]]|(?-i:ERROR|FATAL)\s(?=\S)(?!\d{4} \()|error\s{2,}|"
    r"(?:uncaught|unhandled)(?: exception:?| error:| \(in promise\))?\s|internal error:|\[?API Error:? \(?(?=[^\s(])|"
    r"[\w./-]{1,60}+: (?=(?:fatal )?error: |Error response)|docker: |remote: |stderr: ?|stdout: ?|output: ?|thrown: ?|"
    r"panic: (?=panic: )|g?make(?:\[\d++\])?: \*\*\* (?!\[)|\*\*\* |psql:[^\s:]{1,200}+:\d++: |npm (?:ERR!|error) |e:\s|##\[error\]|[✖✗✘×❌❯>•●!│|]+\s|\(node:\d++\)\s|Exception in thread \S{1,80}\s)\s*+",  # noqa: RUF001
    re.IGNORECASE,
)
_LOG_PREFIX = re.compile(
    r"(?:#\d{1,4}\s(?:[\d.]{1,12}\s)?|[\w.-]{1,60}\s{1,20}\|\s"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?[\d.,]{0,12}(?:Z|[+-]\d\d:?\d\d)?\]?[\s:|-]{1,4}"
    r"|\[?\d\d:\d\d:\d\d[\d.,]{0,10}\]?\s|(?:INFO|ERROR|FATAL|CRITICAL)[:\s]{1,3}[\w.]{1,80}:\d{0,6}:?\s?(?=[A-Z\[]))"
)
_SHELL_LINE = re.compile(r"[^\s:]{1,200}+: (?:-c: )?line \d++: |[^\s:]{0,100}sh: -c: ")
_SENTENCE_END = re.compile(r"(?<=[\w)\]'\"`’])[.!?] +(?=[A-Z`'\"<])")  # noqa: RUF001
_HINT = re.compile(
    r"[;,.]? (?:\(?did you mean|\(?did you forget|\(?maybe you meant|maybe \"|retrying|request[ _-]id|\(request id|perhaps you|"
    r"\(from versions|· |see https?:|see '|to add it:|// |\(tried |for more information)",
    re.IGNORECASE,
)
_FILE_NOTE = re.compile(r" \([^()\s]{1,200}, line \d++\)$")
_HEAD = re.compile(
    rf"(?:{EXCEPTION.pattern}|(?:[a-z_]\w{{0,80}}\.){{1,12}}+(?P<dotted>[A-Z]\w{{2,80}}+|\w{{0,20}}error))(?: \[[\w-]{{1,60}}\])?(?::|$)"
)
_DRIVER = re.compile(r"\((?:\w{1,40}\.){1,5}+(?P<name>\w{1,60})\) ")
_EXITED = re.compile(r"(?:the )?(?:process|command|script|program|task)?\s?(?:failed|finished|returned)?(?: with)?\s?exit code( \d{1,3})?")
GENERIC = re.compile(
    r"(?:an? )?(?:unknown |unexpected |internal |fatal )?(?:error|errors|exception|failure|failed|fail|failures|null|none|undefined|"
    r"object object|something went wrong|error occurred|exit code|process (?:exited|failed|exit code)|build failed|"
    r"command failed(?: with)?(?: exit code)?|(?:the )?command exit code|task failed|tests? failed|… (?:test )?failed(?: … passed)?|"
    r"operation failed|request failed|aborted|aborting|…|not ok|bad|exit code …)"
)


def normal_form(line: str) -> str:
    """Empty when the line says nothing at all. Its own normal form is left as it is, give or take punctuation."""
    line = _stripped(line.strip(), _LOG_PREFIX, _SHELL_LINE)
    if found := _first(_CODED, line):
        return found
    line = _stripped(line, _LOG_PREFIX, _LABEL, _LOCATION)
    return _first(_PHRASED, line) or _in_words(line)


def _first(forms: Forms, line: str) -> str | None:
    for hints, form in forms:
        if any(hint in line for hint in hints) and (found := form(line)):
            return found
    return None


def _in_words(line: str) -> str:
    found = _HEAD.match(line)
    head, message = "", line
    if found:
        head, message = found["name"] or found["dotted"], line[found.end() :].strip()
        if message.startswith("(") and (driver := _DRIVER.match(message)):
            head, message = driver["name"], message[driver.end() :]  # an error of the driver, wrapped by its library
        message = _stripped(message, _LABEL)
    message = _unquoted(_FILE_NOTE.sub("", message))
    if hint := _HINT.search(message, 8):
        message = message[: hint.start()]
    normal = without_values(_first_sentence(message))
    if exited := _EXITED.fullmatch(normal):
        normal = "exit code" + (exited[1] or "")
    if not head or head == "Error":
        return normal or head.lower()
    return f"{head}: {normal}" if normal and normal != VALUE else head


def _stripped(line: str, *prefixes: re.Pattern[str]) -> str:
    for _ in range(6):
        for prefix in prefixes:
            found = prefix.match(line)
            if found and found.end() < len(line):
                line = line[found.end() :]
                break
        else:
            break
    return line


def _first_sentence(message: str) -> str:
    """What follows the first sentence is advice; unless that sentence says next to nothing."""
    for end in _SENTENCE_END.finditer(message):
        first = message[: end.start()]
        if first.count(" ") >= 2 and not GENERIC.fullmatch(without_values(first)):
            return first
    return message


def _unquoted(message: str) -> str:
    """A message that is one quoted sentence is no value."""
    quote = message[:1]
    if quote in ('"', "'", "`") and message.endswith(quote) and message.count(quote) == 2 and message.count(" ") >= 2:
        return message[1:-1]
    return message


def _by_code(pattern: str, shape: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern)

    def form(line: str) -> str | None:
        found = compiled.search(line)
        return found.expand(shape) if found else None

    return form


_OPERATOR = re.compile(r" (==|!=|not in|in|is not|is|<=|>=|<|>) ")
_QUOTED = re.compile(r"\"[^\"]{0,600}+\"|'[^']{0,600}+'")


def _pytest_assertion(line: str) -> str | None:
    found = re.match(r"(?:AssertionError: )?assert (?=\S)", line)
    if found is None:
        return None
    compared = _QUOTED.sub(VALUE, line[found.end() :])
    if operator := _OPERATOR.search(compared):
        return f"AssertionError: assert {VALUE} {operator[1]} {VALUE}"
    return f"AssertionError: assert {'not ' if compared.startswith('not ') else ''}{VALUE}"


_UNITTEST = re.compile(
    r" (!=|==|not found in|unexpectedly found in|is not true|is not false|is not None|is None|is not an instance of|not raised|"
    r"not (?:less|greater) than(?: or equal to)?|(?:not )?to (?:(?:deeply|strictly|loosely) )?(?:equal|be|include|contain|match|"
    r"throw|have)(?: (?:called|length|property|defined|undefined|null|truthy|falsy|true|false|greater than|less than|close to))*)"
    r"(?=[\s:.]|$)"
)


def _library_assertion(line: str) -> str | None:
    """`3 != 4`, `Lists differ: ... != ...`, `expected 3 to be 4`: by the relation that did not hold."""
    found = re.match(r"(?:\w{1,40}\.)*+AssertionError(?: \[\w{1,40}\])?: (?=\S)", line)
    relation = _UNITTEST.search(line, found.end() - 1) if found else None
    if found is None or relation is None:
        return None
    before = line[found.end() : relation.start()]
    is_compared = relation[1] in ("!=", "==") or "expected " in before or before.count(" ") < 2 or before[:1] in "'\"[{(<"
    return f"AssertionError: {VALUE} {relation[1]}" if is_compared or "found in" in relation[1] else None


_API_NAME = re.compile(r"[\"'](?:type|code|status|reason|error)[\"']\s{0,4}:\s{0,4}[\"']([A-Za-z_]{4,60})[\"']")
_API_MESSAGE = re.compile(
    r"[\"'](?:message|detail|error_description|error)[\"']\s{0,4}:\s{0,4}(?:\"((?:[^\"\\]|\\.){1,1500}+)|'((?:[^'\\]|\\.|'(?=\w)){1,1500}+))"
)
_API_STATUS = re.compile(r"(?:[\"'](?:code|status|statusCode)[\"']\s{0,4}:\s{0,4}|\b)([45]\d\d)\b")
# Names that a provider gives to errors of many kinds: the message tells which.
_VAGUE = frozenset(
    "error invalid_request_error invalid_request_exception bad_request_error tokens requests api_error server_error "
    "invalid_argument failed_precondition internal validation_error not_found_error not_found bad_request".split()
)


def _api_error(line: str) -> str | None:
    """An API's answer in JSON (or as Python prints it): by the name it gives the error, else by status and message."""
    if "{" not in line:
        return None
    body = line[line.index("{") :]
    named = [each.lower() for each in _API_NAME.findall(body)]
    message = _API_MESSAGE.search(body)
    if not named and not message:
        return None
    for name in reversed(named):  # "code" follows "type", and is the more precise of the two
        if name not in _VAGUE:
            return "API error " + re.sub(r"_(?:error|exceeded)$", "", name)
    status = _API_STATUS.search(line)
    words = without_values(_first_sentence(message[1] or message[2])) if message else (named or [""])[-1]
    return f"API error {'HTTP ' + status[1] + ' ' if status and not named else ''}{words}"


def _shell(line: str) -> str | None:
    if _NOT_FOUND.search(line):
        return "command not found"
    found = SHELL.match(line)
    return found[1].lower() if found else None


def _curl(line: str) -> str | None:
    found = re.match(r"curl:? \((\d{1,3})\)(?:.{0,200}error: (\d{3}))?(?: HTTP (\d{3}))?", line)
    if found is None:
        return None
    status = found[2] or found[3]
    return f"curl ({found[1]})" + (f" HTTP {status}" if status else "")


def _not_an_assertion(line: str) -> str | None:
    found = re.search(r"\[(ERR_[A-Z0-9_]{3,60})\]", line)
    return found[1] if found and found[1] != "ERR_ASSERTION" else None


def _mypy(line: str) -> str | None:
    found = re.search(r" error: (.{1,1000})\s\s\[([a-z-]{3,40})\]$", line)
    return f"{_in_words(found[1])} [{found[2]}]" if found else None


def _phrase(words: str) -> tuple[tuple[str, ...], Callable[[str], str | None]]:
    """Known by these words wherever they stand, since what stands around them is not quoted."""
    return (words,), lambda _line: words.strip(" (:").lower()


Forms = tuple[tuple[tuple[str, ...], "Callable[[str], str | None]"], ...]

# Tried in order; a form runs only if one of its hints is in the line.
_CODED: Forms = (
    (("TS",), _by_code(r"(?:^|error )(TS\d{4,5})(?::|$)", r"\1")),
    (("E0",), _by_code(r"(?:^|error\[?)(E0\d{3})(?:\]|$)", r"\1")),
    (("npm ",), _by_code(r"^npm (?:(?:ERR!|error) )?(?:code )?(E[A-Z0-9]{3,30})\b", r"npm \1")),
    (("npm ",), _by_code(r"^npm (?:ERR!|error) ([45]\d\d) ", r"npm E\1")),
    (("ERR_PNPM_",), _by_code(r"(ERR_PNPM_[A-Z0-9_]{2,60})", r"\1")),
    (("[ERR_",), _not_an_assertion),
    (("curl",), _curl),
    (("ERROR ", "ORA-"), _by_code(r"(ERROR \d{4} \([0-9A-Z]{5}\)|ORA-\d{5})", r"\1")),
    (
        ("  ", "eslint "),
        _by_code(r"(?:^\d{1,6}:\d{1,6}\s++(?:error|warning)\s.{0,900}\s\s|^eslint )([a-z@][\w@/-]{2,80})$", r"eslint \1"),
    ),
    ((".py",), _by_code(r"^\S{1,300}+:\d++: ([A-Z]{1,4}\d{3,4}) (?:\[\*\] )?\S", r"\1")),
    (("]",), _mypy),
    (("{",), _api_error),
    (("cannot find -l",), _by_code(r"cannot find -l", f"ld: cannot find library {VALUE}")),
    (("ermission denied (",), _by_code(r"Permission denied \(([a-z,-]{3,80})\)", r"permission denied (\1)")),
    ((": ", "not found"), _shell),
    (("rejected] ",), _by_code(r"\[(?:remote )?rejected\].{0,400}\(([a-z -]{3,60})\)", r"rejected (\1)")),
    (("CONFLICT (",), _by_code(r"CONFLICT \(([a-z/ -]{3,40})\)", r"CONFLICT (\1)")),
    (("MCP error -",), _by_code(r"MCP error (-\d{5})", r"MCP error \1")),
    (("*** [",), _by_code(r"^(?:g?make)(?:\[\d{1,3}\])?: \*\*\* \[", "make: recipe failed")),
)
_PHRASED: Forms = (
    (("assert ",), _pytest_assertion),
    (("AssertionError",), _library_assertion),
    (("expect(",), _by_code(r"(expect\(\w{0,20}\)(?:\.\w{1,60}){1,4}\([\w, ]{0,60}\))", r"\1")),
    (("left ",), _by_code(r"^(?:panicked: )?assertion .{0,20}?(left (?:==|!=|matches) right)", r"assertion \1 failed")),
    (("DID NOT RAISE", "did not raise"), _by_code(r"(?i:did not raise)", "Failed: did not raise")),
    (("No matching distribution", "Could not find a version"), _by_code(".", "no matching distribution found")),
    (
        (" is not ",),
        _by_code(r"^((?:Type|Reference)Error: ).{1,200}(?<! object) is not (a function|defined|a constructor|iterable)$", rf"\1{VALUE} is not \2"),
    ),
    (("undefined: ", "not used: "), _by_code(r"^(undefined|declared and not used): \S", r"\1")),
    (("spawn ",), _by_code(r"spawn .{1,300} (E[A-Z]{3,12})$", rf"spawn {VALUE} \1")),
    (("cannot use ",), _by_code(r"^cannot use .{1,600} as .{1,300} value in (\w{1,20})", rf"cannot use {VALUE} as {VALUE} value in \1")),
    _phrase("segmentation fault"),
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
