r"""`password=...` in all its spellings: what is a secret for the name it stands under.

Where a guess must be made, short and wordlike values stay, so that prose and code remain readable.
"""

from __future__ import annotations

import re

from sessiond.mask.values import LETTERS, WORDS, is_said, is_secret, is_secret_in_json, looks_random

QUOTE = r"""\\{0,7}["'`]"""
# A quoted value ends at the same quote, or where the text was cut.
_QUOTED = r"""(?P<quote>\\{0,7}["'`])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\]))*+)"""
_BARE = r"""(?P<bare>[^\s"'`,;&|<>()\[\]{}\\=:][^\s"'`,;&|<>()\[\]{}\\]*+)"""

# Names whose value is a secret. Nothing may stand between the name and its sign: "token_count: 5" is none. The first
# letter is a class of its own, outside (?i:), since only then does `re` skip from candidate to candidate.
_KEYS_OF = (
    "api", "app", "role", "auth", "hmac", "access", "master", "shared", "deploy", "private", "signing", "account",
    "storage", "service", "webhook", "license", "consumer", "encryption", "application", "subscription",
)  # fmt: skip
_KEY = "|".join(rf"(?<={word}key)|(?<={word}[_\- ]key)" for word in _KEYS_OF)
# A pass over something or through a test is none.
_NOT_PASS = "".join(
    rf"(?<!{word}[_-]pass)" for word in ("clean", "first", "last", "second", "test", "tests", "by", "all")
)
_PASS = rf"(?<=[_-]pass){_NOT_PASS}|(?<=(?:db|pg|my)pass)|(?<=keypass)|(?<=(?:user|smtp|root)pass)|(?<=storepass)"
_NAME = (
    r"[PpSsTtKk](?i:"
    r"(?<=p)(?:(?P<password>ass(?:wor[dt]|wd|phrase|code)|(?<![a-z]p)wd)|(?P<pass>ass(?:"
    + _PASS
    + r"))|(?P<short>ass(?<![a-z]pass)(?==)))"
    r"|(?<=s)(?P<secret>ecret(?:[_\- ]?(?:access[_\- ]?)?key(?:[_-]?base)?)?)"
    r"|(?<=t)(?P<token>oken)"
    r"|(?<=k)(?P<key>ey(?:" + _KEY + r"))"
    r"|(?-i:EY(?<=[A-Z0-9]_KEY)(?P<env>)))"
    r"(?:[_-]?[0-9]{1,2})?"
)
# Under the last two stands all sorts of things: PASS=3, CACHE_KEY=...
_LABELS = {
    "password": "password",
    "pass": "password",
    "secret": "secret",
    "token": "token",
    "key": "api-key",
    "short": "password",
    "env": "api-key",
}
_SECRET_NAME = re.compile(rf"{_NAME}\Z|(?i:authorization|(?P<cookie>cookie))\Z")
# How a list of variables has it: {"name": "DB_PASSWORD", "value": "..."}
_VALUE = rf"(?:[,\s]{{1,40}}(?:{QUOTE})?value(?:{QUOTE})?)?"
FLAG_NAME = re.compile(rf"--?[A-Za-z0-9_-]{{0,40}}?{_NAME}")
_ASSIGNMENT = re.compile(
    rf"(?P<keep>{_NAME}(?:{QUOTE})?{_VALUE}(?P<sign>\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}))(?:{_QUOTED}|{_BARE})"
)
_FLAG = re.compile(
    rf"(?P<keep>-(?<![\w-]-)-?[A-Za-z0-9_-]{{0,40}}?{_NAME}(?P<sign>[ \t]{{1,3}}|{QUOTE},\s{{0,3}}))"
    rf"(?:{_QUOTED}|{_BARE})",
    re.ASCII,
)
_ELEMENT = re.compile(
    rf"(?P<keep><[\w:.-]{{0,40}}?{_NAME}>\s{{0,3}})(?P<bare>[^<>\s]{{1,512}})(?=\s{{0,3}}</)", re.ASCII
)
# The same in the cheapest terms, for lower-case text: a word, and how it goes on up to the sign.
_SIGN = r"""[_-]?[0-9]{0,2}(?:\\{0,7}["'`])?(?:[,\s]{1,40}\\{0,7}["'`]?value\\{0,7}["'`]?)?\s{0,3}[:=]"""
_HINTS = tuple(
    (word, re.compile(rf"{word}{rest}{_SIGN}"))
    for word, rest in {
        "pass": "(?:wor[dt]|wd|phrase|code)?",
        "secret": r"(?:[_\- ]?(?:access[_\- ]?)?key(?:[_-]?base)?)?",
        "token": "",
        "key": rf"(?:{_KEY}|(?<=_key))",
        "pwd": "",
    }.items()
)
_FLAG_HINT = re.compile(r"-[a-z]{0,12}[_-]?(?:pass|pwd|secret|token|key)")

# "user: joe password: hunter": after a user's name a plain word is a password too.
_USER_BEFORE = re.compile(
    r"(?:user(?:name)?|login|e-?mail|account)[\"']?\s{0,2}[:=]\s{0,2}\S{1,40}[\s,;/|]{1,4}(?:and |db_?)?\Z"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}")

# What people write: "my password is hunter2", "log in with password hunter2", "machine x login y password z".
_PHRASE = re.compile(
    r"(?P<keep>[Pp](?i:ass(?:word|wd|phrase|code)(?P<link>\s{1,3}(?:is|was|to|as|of|will be|should be|would be|are)"
    r"(?: now| still| set to| just)?:?|\s{1,3}=)?)\s{1,3})"
    r"(?:(?P<quote>[\"'`\u201c\u2018])(?P<quoted>[^\s\"'`\u201d\u2019]{1,128})(?=[\"'`\u201d\u2019])|(?P<bare>[^\s\"'`,;<>()\[\]{}]{3,128}))"
)
_OWNED = re.compile(r"(?i:\b(?:my|our|whose|root|admin|wifi|wi-fi|sudo|login|database|db|ssh))\s{1,3}\Z")
_GIVEN = re.compile(
    r"(?i:\b(?:with|using|use|enter|enters|type|try|and|the)|\bmachine\s{1,4}\S{1,50}\s{1,4}login\s{1,4}\S{1,30})\s{1,4}\Z"
)
_SQL = re.compile(r"(?P<keep>(?i:identified\s{1,3}by|password)\s{1,3}')(?P<value>[^'\n]{1,256})(?=')")


def label_under(name: str, value: str) -> str | None:
    """What to call the value that stands under this name, as in JSON; None if it is no secret."""
    found = _SECRET_NAME.search(name)
    if found is None:
        return None
    kind = found.lastgroup or "authorization"
    if kind == "cookie" and "=" not in value:
        return None
    if not is_secret_in_json(value, is_password=kind == "password") or not _is_strong(kind, value):
        return None
    return _LABELS.get(kind, kind)


def mask_by_name(text: str, low: str) -> str:
    """`low` is the text in small letters; it may be of before other masks were put in."""
    has_pass = "pass" in low
    if not has_pass and not _may_name(text, low):
        return text
    if "=" in text or ":" in text:
        for word, hint in _HINTS:
            if word in low and hint.search(low):
                text = _ASSIGNMENT.sub(_mask_assignment, text)
                break
    if "-" in text and _FLAG_HINT.search(low):
        text = _FLAG.sub(_mask_assignment, text)
    if "</" in text:
        text = _ELEMENT.sub(_mask_element, text)
    if has_pass:
        text = _PHRASE.sub(_mask_phrase, text)
    if "'" in text and (has_pass or "identified" in low):
        text = _SQL.sub(_mask_sql, text)
    return text


def _may_name(text: str, low: str) -> bool:
    has_sign = "=" in text or ":" in text or "-" in text or "</" in text
    return (has_sign and ("secret" in low or "token" in low or "key" in low or "pwd" in low)) or (
        "'" in text and "identified" in low
    )


def _name_in(match: re.Match[str]) -> str:
    return next(each for each in _LABELS if match[each] is not None)


def _mask_assignment(match: re.Match[str]) -> str:
    name = _name_in(match)
    quoted, bare, sign = match["quoted"], match["bare"], match["sign"]
    is_password = name == "password"
    mask = f"[masked:{_LABELS[name]}]"
    if quoted is not None:
        is_real = is_secret(quoted, is_password=is_password, is_quoted=True) and _is_strong(name, quoted)
        return f"{match['keep']}{match['quote']}{mask}" if is_real else match[0]
    after = match.string[match.end() : match.end() + 2]
    if after[:1] in {"(", "["} or (after[:1] == "<" and bare[:1].isupper()) or _is_variable(bare):
        return match[0]
    is_colon = ":" in sign and sign.endswith(" ") and "\n" not in sign
    is_prose = is_colon and after[:1] == " " and after != " #" and not _follows_user(match)
    is_code = not is_password and sign.endswith(" ") and sign != " " and _is_of_code(name, bare)
    is_real = is_secret(bare, is_password=is_password, is_quoted=False, is_prose=is_prose, is_code=is_code)
    return f"{match['keep']}{mask}" if is_real and _is_strong(name, bare) else match[0]


def _is_variable(value: str) -> bool:
    """`password=new_password`, `token: jwt.Token`"""
    found = _SECRET_NAME.search(value)
    return found is not None and LETTERS.fullmatch(value.replace(".", "_")) is not None


def _is_of_code(name: str, value: str) -> bool:
    """`token = payload`, `secret: SomeType`: a plain word is no token, but people do choose one for a secret."""
    return name in {"token", "key", "env"} or "_" in value or "." in value or not value.islower()


def _is_strong(name: str, value: str) -> bool:
    """Under a name that says little only what cannot well be anything else."""
    if name == "short":
        return looks_random(value)
    is_long = len(value) >= 20 and value.isascii() and looks_random(value) and not _UUID.fullmatch(value)
    return name != "env" or is_long


def _follows_user(match: re.Match[str]) -> bool:
    return _USER_BEFORE.search(match.string[max(0, match.start() - 70) : match.start()].lower()) is not None


def _mask_element(match: re.Match[str]) -> str:
    name = _name_in(match)
    if not is_secret(match["bare"], is_password=name == "password", is_quoted=True):
        return match[0]
    return f"{match['keep']}[masked:{_LABELS[name]}]"


def _mask_sql(match: re.Match[str]) -> str:
    is_real = is_secret(match["value"], is_password=True, is_quoted=True) and " " not in match["value"]
    return f"{match['keep']}[masked:password]" if is_real else match[0]


def _mask_phrase(match: re.Match[str]) -> str:
    value = match["quoted"] or match["bare"].rstrip(".!?:")
    before = match.string[max(0, match.start() - 100) : match.start()]
    if (
        not is_secret(value, is_password=True, is_quoted=False)
        or _is_variable(value)
        or not _is_given(match, value, before)
    ):
        return match[0]
    if match["quoted"]:
        return f"{match['keep']}{match['quote']}[masked:password]"
    return f"{match['keep']}[masked:password]{match['bare'][len(value) :]}"


def _is_given(match: re.Match[str], value: str, before: str) -> bool:
    given = _GIVEN.search(before)
    if given and "machine" in given[0].lower():
        return True
    if match["link"] is None:
        return given is not None and looks_random(value) and value.isalnum()
    if match["quoted"]:
        return value.lower() not in WORDS and not is_said(value)
    if looks_random(value) and not re.search(r"[/=(]|\w\.\w", value):
        return True
    is_end = match.string[match.end() : match.end() + 1] in {"", "\n", ",", ";", ")"} or match["bare"] != value
    if value.isdigit():
        return len(value) >= 4 and is_end
    is_is = match["link"].strip().lower().startswith(("is", "was"))
    return is_is and value.isalpha() and not is_said(value) and (is_end or _OWNED.search(before) is not None)
