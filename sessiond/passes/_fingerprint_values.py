"""What changes from one occurrence of an error to the next is taken out of its words; what names the error stays.

A message goes through once, token by token: quoted text, paths, numbers, times, hashes and code-like names become
`…`; codes (E0308, ENOENT, HTTP 429, [Errno 2], ERR_REQUIRE_ESM) and the names of exceptions stay as they are; other
words are lowered. Every pattern is linear: runs are possessive or bounded.
"""

from __future__ import annotations

import re

VALUE = "…"
_MAX_WORDS = 40

_REASONS = (
    r"(?:Bad Request|Unauthorized|Payment Required|Forbidden|Not Found|Method Not Allowed|Request Timeout|Conflict|"
    r"Gone|Payload Too Large|Request Entity Too Large|Unprocessable (?:Entity|Content)|Too Many Requests|"
    r"Internal Server Error|Not Implemented|Bad Gateway|Service (?:Temporarily )?Unavailable|Gateway Time-?out|"
    r"Overloaded)"
)
_TOKEN = re.compile(
    r"(?P<kept>(?:\[?Errno -?\d{1,3}\]?|\(?os error \d{1,3}\)?|SQLSTATE[\s:=\[(]{0,3}[0-9A-Z]{5}(?![0-9A-Z])|"
    r"(?<![\w-])-32\d{3}(?!\d)|(?<!\w)\d\d(?-i:[A-Z])\d\d(?!\w)))"
    r"|(?P<status>(?<!\w)(?:HTTP(?:/\d(?:\.\d)?)?|status(?:[ _]?code)?|error(?: code)?|code|returned)"
    rf"[\"']?\s{{0,2}}[:=]?\s{{0,2}}[\"'(]?(?P<number>[1-5]\d\d)(?![\d.%])(?:[):,-]?\s{_REASONS})?"
    rf"|(?<![\w.])(?P<bare_number>[45]\d\d)(?=\s(?:Client|Server)\sError|[:,]?\s{_REASONS})(?:[:,]?\s{_REASONS})?)"
    r"|(?P<exit>exit(?:ed)?(?: with)?(?: code| status)?[: ]{1,2}(?P<exit_code>\d{1,3})(?!\w))"
    r"|(?P<value>"
    r"[bBrRuUfF]?\"(?:[^\"\\\n]|\\.){0,600}+\"|“[^”\n]{0,600}+”|‘[^’\n]{0,600}+’"  # noqa: RUF001 - as gcc quotes
    r"|(?<!\w)[bBrRuUfF]?'(?:[^'\\\n]|\\.|'(?=\w)){0,600}+'(?!\w)|`[^`'\n]{0,600}+['`]"
    r"|[a-zA-Z][a-zA-Z0-9+.-]{1,20}+://[^\s\"'<>]++"
    r"|<[A-Za-z_/][^<>\n]{0,200}+>|\{[^{}\n]{0,600}+\}"
    r"|[A-Za-z_$][\w.$:]{0,120}+\((?!s\))[^()\n]{0,300}+\)"
    r"|…)"
    r"|(?P<word>(?:[^\s,;()\[\]{}<>\"'`‘’“”|…]|(?<=\w)'(?=\w))++)",  # noqa: RUF001
    re.IGNORECASE,
)
_CODE = re.compile(
    r"[A-Z]{1,6}\d{3,5}|E[A-Z]{3,}\d?|EAI_[A-Z]+|(?:net::)?ERR_[A-Z0-9_]+|SIG[A-Z]{3,6}|ORA-\d{3,5}|[A-Z]{2,4}-?\d{4}"
)
_CODE_IN_CAPITALS = re.compile(
    r"[A-Z0-9_]*(?:ERR|NOT_FOUND|FAIL|INVALID|DENIED|EXHAUSTED|UNAVAILABLE|TIMEOUT|EXCEEDED|CONFLICT|CERT|EXPIRED|"
    r"FORBIDDEN|UNAUTH|REFUSED|MISSING|UNSUPPORTED|PRECONDITION)[A-Z0-9_]*"
)
EXCEPTION = re.compile(
    r"(?:[\w$]{1,80}(?:\.|::|\\)){0,12}+"
    r"(?P<name>[A-Z][\w$]{0,80}(?:Error|Exception|Failure|Interrupt|Timeout|Expired|Denied|Fault|Refused|Conflict|"
    r"NotFound|Exit|Group|Iteration))"
)
_SNAKE_ERROR = re.compile(r"[a-z]+(?:_[a-z]+){0,6}_(?:error|exceeded|exception)")
_NAME = re.compile(r"[a-z][A-Z]|\w_|_\w|\w[.:]\w|::|^[-$@#%]|[=*\\/~^]")
_DIGIT = re.compile(r"\d")
# A bare name is known by the word before it: "permission denied for table users", "validation error for Settings".
_NAMED = re.compile(
    r"\b((?:for|from)(?= [\w-]{1,80}+(?:\s?[,(:;)]|\.?$))"
    r"|(?:for|from|in|of|to|use|using|with|by|tool)(?= [A-Z][a-z])"
    r"|package|crate|endpoint|container|image|service|named|lookup|host|hostname|network|branch|remote(?: ref)?|"
    r"refspec|user|role|database|table|column|relation|function|variable|struct|enum|class|module|plugin|task|target|"
    r"script|job|unit|property|argument to|call to|wheel for)"
    r" (?!(?:is|not|was|has|have|had|does|did|do|are|be|to|of|in|on|for|from|with|at|by|and|or|but|already|could|can|"
    r"cannot|must|may|failed|fails|found|error|errors|name|names|file|files|directory|path|timed|exited|exists?|"
    r"missing|named|the|a|an|this|that|your|it|scope|command|id|type|key|resolution|script|specified|provided|"
    r"version|target|you|we|there|denied|refused)\b)"
    r"[A-Za-z](?:[\w/-]|[.:](?=\w)){0,120}+(?![('’])",  # noqa: RUF001
)
_PLURAL_NOTE = re.compile(r"\((?:e?s|ies)\)")
_MARKS = str.maketrans(dict.fromkeys('()[]{}"`,;|<>‘’“”', " "))  # noqa: RUF001

_UNIT = re.compile(r"[mnuµ]?s|secs?|seconds?|m|mins?|minutes?|h|hours?|days?|milliseconds?|b|bytes?|[kmg]i?b|tokens?")
_JOINTS = frozenset({"and", "or", "&", "+", "-", "->", "=>", ":", "=", "x", "."})
_PUNCTUATION = frozenset({":", "=", ".", "-", "+", "!", "?", "*", "&"})
_NO_PLURAL = re.compile(r"does|always|unless|perhaps|needs|exists|requires|contains|violates|returns")
_STATE = re.compile(
    r"timeout|denied|forbidden|unauthorized|refused|overloaded|eof|cancell?ed|killed|aborted|true|false|null|none|"
    r"unavailable|failed|error|undefined|terminated|unknown"
)
_SENTENCE_END = re.compile(r"(?<=[\w)\]'\"`’])[.!?] +(?=[A-Z`'\"<])")  # noqa: RUF001
_ADVICE = re.compile(
    r"[;,.]? (?:\(?did you mean|\(?did you forget|\(?maybe you meant|maybe \"|retrying|request[ _-]id|\(request id|"
    r"perhaps you|\(from versions|· |see https?:|see '|to add it:|// |\(tried |for more information)",
    re.IGNORECASE,
)
GENERIC = re.compile(
    r"(?:an? )?(?:unknown |unexpected |internal |fatal )?(?:errors?|exception|failures?|failed|fail|null|none|"
    r"undefined|object object|something went wrong|error occurred|exit code|process (?:exited|failed)|"
    r"(?:build|command|task|tests?|operation|request) failed|… (?:test )?failed(?: … passed)?|aborted|aborting|…|"
    r"not ok|bad)"
)


def in_words(message: str) -> str:
    """What a message says, without its values and without the advice that follows."""
    if advice := _ADVICE.search(message, 8):
        message = message[: advice.start()]
    for end in _SENTENCE_END.finditer(message):
        first = without_values(message[: end.start()])
        if first.count(" ") >= 2 and not GENERIC.fullmatch(first):
            return first
    return without_values(message)


def without_values(message: str) -> str:
    """The message with every value as `…`, words in one case, counted things in the singular."""
    text = _NAMED.sub(rf"\1 {VALUE} ", _PLURAL_NOTE.sub("", message))
    text = _TOKEN.sub(_replaced, text)
    words = _collapsed([word for raw in text.translate(_MARKS).split() if (word := raw.strip("'"))])
    if len(words) >= 3 and words[-2].endswith(":") and _is_name_at_end(words[-1]):
        words[-1] = VALUE  # "no such table: users"
    while len(words) > 2 and words[-1] == VALUE:
        words.pop()
    return " ".join(words[:_MAX_WORDS]).rstrip(" .:!?-=")


def _is_name_at_end(word: str) -> bool:
    return word.islower() and word.isidentifier() and not _STATE.fullmatch(word)


def _replaced(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "word":
        return _word(match[0])
    if kind == "value":
        return f" {VALUE} "
    if kind == "status":
        number = match["number"] or match["bare_number"]
        return f" HTTP {number} " if number >= "400" else f" status {number} "
    if kind == "exit":
        # From 124 up the number says what happened: timeout, not executable, not found, killed by a signal.
        return f" exit code {match['exit_code']} " if int(match["exit_code"]) >= 124 else " exit code "
    return match[0]


def _word(text: str) -> str:
    core = text.rstrip(".:!?")
    mark = ":" if text.endswith(":") else ""
    if not any(map(str.isalnum, core)):
        return text if text in _JOINTS else " "
    if core.isalpha() and (core.islower() or core[1:].islower()):
        return core.lower() + mark
    if _CODE.fullmatch(core) or (core.isupper() and "_" in core and _CODE_IN_CAPITALS.fullmatch(core)):
        return core + mark
    if found := EXCEPTION.fullmatch(core):
        return found["name"] + mark
    if _SNAKE_ERROR.fullmatch(core):
        return core + mark
    if _DIGIT.search(core) or _NAME.search(core):
        return f" {VALUE} "
    return core.lower() + mark


def _collapsed(words: list[str]) -> list[str]:
    """Runs of values are one value; a unit after a value goes; what is counted stands in the singular."""
    kept: list[str] = []
    joints = 0  # words after the last value that vanish if another value follows
    since_value = 99
    for word in words:
        if word == VALUE:
            if since_value == joints:
                del kept[len(kept) - joints :]
            else:
                kept.append(VALUE)
            joints = since_value = 0
        elif since_value == joints and word in _JOINTS:
            kept.append(word)
            joints += 1
            since_value += 1
        elif since_value > 0 or not _UNIT.fullmatch(word.rstrip(":")):
            kept.append(_singular(word) if since_value < 4 else word)
            since_value += 1
    return [word for word in kept if word not in _PUNCTUATION]


def _singular(word: str) -> str:
    if word == "were":
        return "was"
    core = word.rstrip(":")
    if len(core) <= 3 or core[-1] != "s" or core[-2] in "siu" or not core.islower() or _NO_PLURAL.fullmatch(core):
        return word
    return (core[:-3] + "y" if core.endswith("ies") else core[:-1]) + word[len(core) :]
