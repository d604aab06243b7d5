"""Takes secrets out of text before it is kept, shown or sent: `[masked:github-token]` stands where one stood.

Called for every summary, so clean text must cost next to nothing: a few substring tests decide whether any pattern
is tried at all. Masking what is masked changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sessiond.mask import patterns

if TYPE_CHECKING:
    from collections.abc import Iterable

MASKED = re.compile(r"(\[masked:[a-z0-9-]+\])")
# Taking one secret out can lay bare the beginning of the next; more rounds than this have never been needed.
_ROUNDS = 4


class Masker:
    """Built in: keys, tokens, passwords of the usual kinds. `extra_patterns` are regular expressions of the user."""

    def __init__(self, extra_patterns: Iterable[str] = ()) -> None:
        self._extra = tuple(re.compile(pattern) for pattern in extra_patterns)

    def mask(self, text: str) -> str:
        """The text without its secrets; linear in its length."""
        for _ in range(_ROUNDS):
            masked = self._mask_once(text)
            if masked == text:
                return text
            text = masked
        return text

    def mask_json(self, value: Any) -> Any:
        """A copy with every string masked, names too; what stands under a secret's name is masked whatever it is."""
        holder: list[Any] = [None]
        waiting: list[tuple[Any, Any, Any, str | None]] = [(value, holder, 0, None)]
        while waiting:  # not by recursion: JSON may be nested deeper than Python's stack
            value, into, at, name = waiting.pop()
            if isinstance(value, str):
                into[at] = self._mask_value(value, name)
            elif isinstance(value, list | tuple):
                into[at] = [None] * len(value)
                waiting += ((each, into[at], n, name) for n, each in enumerate(value))
            elif isinstance(value, dict):
                into[at] = self._renamed(value)
                waiting += (
                    (each, into[at], new, old) for (old, each), new in zip(value.items(), into[at], strict=True)
                )
            else:
                into[at] = value
        return holder[0]

    def _renamed(self, value: dict[Any, Any]) -> dict[Any, Any]:
        names: dict[Any, None] = {}
        for name in value:
            new = self.mask(name) if isinstance(name, str) else name
            count = 2
            while new in names:  # two secrets of a kind must not become one entry
                new, count = f"{self.mask(name)}#{count}", count + 1
            names[new] = None
        return names

    def _mask_value(self, value: str, name: str | None) -> str:
        masked = self.mask(value)
        if masked != value or not isinstance(name, str):
            return masked
        found = patterns.SECRET_NAME.search(name)
        if found is None or not _is_secret(value, found.lastgroup, is_quoted=True):
            return masked
        return f"[masked:{patterns.KINDS.get(found.lastgroup or '', 'authorization')}]"

    def _mask_once(self, text: str) -> str:
        for pattern in self._extra:
            # What is masked already is not the user's text any more.
            pieces = MASKED.split(text)
            pieces[::2] = [pattern.sub("[masked:custom]", piece) for piece in pieces[::2]]
            text = "".join(pieces)
        if "-----" in text:
            text = _mask_private_keys(text)
        if _may_hold_token(text):
            text = patterns.TOKEN.sub(_mask_token, text)
        return _mask_by_context(text)


def _may_hold_token(text: str) -> bool:
    """Cheap, and never False for text that TOKEN would match in."""
    if "_" in text and patterns.AFTER_UNDERSCORE.search(text):
        return True
    if "-" in text and patterns.AFTER_HYPHEN.search(text):
        return True
    if "A" in text and ("AKIA" in text or "ASIA" in text or "AIza" in text or ":AA" in text):
        return True
    return (
        ("J" in text and "eyJ" in text)
        or ("S" in text and ("SK" in text or "SG." in text or "GOCSPX-" in text))
        or ("~" in text and "Q~" in text)
        or "ya29." in text
    )


def _mask_token(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    if kind in patterns.NEEDS_A_DIGIT and not any(c.isdigit() for c in match[0][3:]):
        return match[0]  # "sk-learn-something-or-other" is a name
    return f"[masked:{kind.replace('_', '-')}]"


def _mask_private_keys(text: str) -> str:
    """Whole blocks; a block without its end to the end of the text; of one without its beginning what is left."""
    parts: list[str] = []
    at = 0
    while begin := patterns.PEM_BEGIN.search(text, at):
        end = patterns.PEM_END.search(text, begin.end())
        parts += [_mask_cut_key(text[at : begin.start()]), "[masked:private-key]"]
        at = end.end() if end else len(text)
    return "".join(parts) + _mask_cut_key(text[at:])


def _mask_cut_key(text: str) -> str:
    parts: list[str] = []
    at = 0
    for end in patterns.PEM_END.finditer(text):
        before = text[at : end.start()]
        tail = patterns.PEM_TAIL_REVERSED.match(before[::-1])
        parts += [before[: len(before) - (tail.end() if tail else 0)], "[masked:private-key]"]
        at = end.end()
    return "".join(parts) + text[at:]


def _mask_by_context(text: str) -> str:
    """What is a secret for what stands before it."""
    low = text.lower()
    if "@" in text and "://" in text:
        text = patterns.URL.sub(_mask_url, text)
        text = patterns.URL_USER.sub(_mask_url, text)
    if "hooks" in low:
        text = patterns.WEBHOOK.sub(r"\g<keep>[masked:webhook]", text)
    if "=" in text and "sig=" in low:
        text = patterns.SIGNATURE.sub(r"\g<keep>[masked:azure-signature]", text)
    if "authorization" in low:
        text = patterns.AUTHORIZATION.sub(_mask_authorization, text)
    if "bearer" in low:
        text = patterns.BEARER.sub(_mask_authorization, text)
    if "curl" in low:
        text = patterns.OTHER_FLAG.sub(_mask_other_flag, text)
    if "pass" in low or "secret" in low or "token" in low or "key" in low or "pwd" in low:
        text = _mask_by_name(text, low)
    return text


def _mask_by_name(text: str, low: str) -> str:
    """`password=...` in all its spellings."""
    if "sshpass" in low or "pass:" in low:
        text = patterns.OTHER_FLAG.sub(_mask_other_flag, text)
    if "=" in text or ":" in text:
        for word, hint in patterns.ASSIGNMENT_HINTS:
            if word in low and hint.search(low):
                text = patterns.ASSIGNMENT.sub(_mask_assignment, text)
                break
    if "-" in text and patterns.FLAG_HINT.search(low):
        text = patterns.FLAG.sub(_mask_assignment, text)
    return text


def _mask_url(match: re.Match[str]) -> str:
    value = match["value"]
    is_user = match.re is patterns.URL_USER
    if patterns.PLACEHOLDER.fullmatch(value) or (is_user and not any(c.isdigit() for c in value)):
        return match[0]
    return f"{match['keep']}[masked:url-credential]"


def _mask_authorization(match: re.Match[str]) -> str:
    value = match["value"]
    is_wordlike = patterns.IDENTIFIER.fullmatch(value.replace("-", "_")) and value in (value.lower(), value.upper())
    is_named = match.re is patterns.BEARER or match["scheme"]
    if is_wordlike or patterns.PLACEHOLDER.fullmatch(value) or not (is_named or len(value) >= 16):
        return match[0]  # "Authorization: Bearer token", "Authorization: required"
    return f"{match['keep']}[masked:authorization]"


def _mask_other_flag(match: re.Match[str]) -> str:
    value = match["value"]
    if patterns.PLACEHOLDER.fullmatch(value) or patterns.NUMBER.fullmatch(value):
        return match[0]  # docker run -u 1000:1000
    return f"{match['keep']}[masked:password]"


def _mask_assignment(match: re.Match[str]) -> str:
    name = next(each for each in patterns.KINDS if match[each])
    quoted, bare, keep = match["quoted"], match["bare"], match["keep"]
    if quoted is not None:
        if not _is_secret(quoted, name, is_quoted=True):
            return match[0]
        return f"{keep}{match['quote']}[masked:{patterns.KINDS[name]}]"
    after = match.string[match.end() : match.end() + 1]
    is_prose = match["sign"].endswith(" ") and ":" in match["sign"] and "\n" not in match["sign"]
    if after in ("(", "[") or not _is_secret(bare, name, is_quoted=False, is_prose=is_prose and after == " "):
        return match[0]
    return f"{keep}[masked:{patterns.KINDS[name]}]"


def _is_secret(value: str, name: str | None, *, is_quoted: bool, is_prose: bool = False) -> bool:
    """Not so: nothing, a placeholder, a number that counts something, a type, a variable's name, a word in prose."""
    value = value.strip()
    word = value.rstrip(".!?:").lower()
    if not word or word in patterns.WORDS or "[masked:" in value or patterns.PLACEHOLDER.fullmatch(value):
        return False
    if name != "password" and patterns.NUMBER.fullmatch(value):
        return False
    if is_quoted:
        return True
    if value.startswith(("-", "/", "~", "=", ":")) or patterns.CODE.fullmatch(value):
        return False
    is_identifier = patterns.IDENTIFIER.fullmatch(value) is not None
    if is_identifier and patterns.SECRET_NAME.search(value):
        return False  # password=new_password
    return not is_prose or (len(value) >= 4 and not patterns.IDENTIFIER.fullmatch(word))
