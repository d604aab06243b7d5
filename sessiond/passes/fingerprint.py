"""An error's text -> what makes it the same error, over sessions, repos and agents; pure.

The line that tells what went wrong is looked for (`_fingerprint_lines`), what differs from one occurrence to the next
is taken out of it (`_fingerprint_forms`, `_fingerprint_values`), and what remains is hashed. Neither the tool nor a
path has a part in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

from sessiond.passes._fingerprint_forms import GENERIC, normal_form
from sessiond.passes._fingerprint_lines import Candidate, Rank, candidates

LINE_LIMIT = 200
LOOKUP_LIMIT = 20
_HEAD = 48 * 1024
_TAIL = 16 * 1024
_LONGEST_LINE = 2000
_FEW_LINES = 3

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\-_])")
_API_BODY = re.compile(r"\{\s{0,40}[\"'](?:error|type|code|message|status|detail)[\"']\s{0,4}:")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`line` is the telling line as it was written, for people; `normal` is what was hashed into `id`."""

    id: str
    line: str
    normal: str
    is_generic: bool  # says that something failed, and not what


def fingerprint(text: str, *, tool: str | None = None) -> Fingerprint | None:  # noqa: ARG001
    """The error that a text is about; None when the text says nothing.

    `tool` is taken so that callers need not choose, and has no part in the answer: the same error of two tools is one.
    """
    found = _ranked(text)
    return _print_of(found[0], found) if found else None


def lookup_ids(text: str) -> list[Fingerprint]:
    """What a pasted text may be about, likeliest first: the whole, then each of its telling lines; 20 at most."""
    found = _ranked(text)
    prints: dict[str, Fingerprint] = {}
    for candidate in found:
        if candidate.rank >= Rank.PLAIN and prints:
            break
        if made := _print_of(candidate, found):
            prints.setdefault(made.id, made)
        if len(prints) >= LOOKUP_LIMIT:
            break
    return list(prints.values())


def _ranked(text: str) -> list[Candidate]:
    text = _bounded(text)
    lines = [line[:_LONGEST_LINE] for line in text.split("\n")]
    found = candidates(lines)
    if body := _API_BODY.search(text):
        found.insert(0, Candidate(Rank.EXACT, _around(text, body.start())))
    if found and found[0].rank is Rank.GENERIC:
        # A little that was printed beside an exit code says more than the code; a listing does not.
        rest = [each for each in found if each.rank is Rank.PLAIN]
        if 0 < len(rest) <= _FEW_LINES:
            found = rest + [each for each in found if each.rank is not Rank.PLAIN]
    return found


def _bounded(text: str) -> str:
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n...\n{text[-_TAIL:]}"
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def _around(text: str, at: int) -> str:
    """An API's answer on one line, with what stands before it on its own line."""
    begin = text.rfind("\n", 0, at) + 1
    return " ".join(text[begin : at + 1500].split())


def _print_of(candidate: Candidate, found: list[Candidate]) -> Fingerprint | None:
    line = " ".join(candidate.line.split())
    normal = normal_form(candidate.line)
    if not normal:
        return None
    alone = len(found) == 1 or all(each.rank >= Rank.GENERIC for each in found)
    is_generic = (
        candidate.rank in (Rank.WRAPPED, Rank.GENERIC)
        or (candidate.rank is Rank.PLAIN and not alone)
        or GENERIC.fullmatch(normal) is not None
    )
    return Fingerprint(blake2b(normal.encode(), digest_size=8).hexdigest(), line[:LINE_LIMIT], normal, is_generic)
