"""An error's text -> what makes it the same error, over sessions, repos and agents; pure.

The line that tells what went wrong is looked for (`_fingerprint_lines`), what differs from one occurrence to the next
is taken out of it (`_fingerprint_forms`), and what remains is hashed. Neither the tool nor a path has a part in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

from sessiond.passes._fingerprint_forms import normal_form
from sessiond.passes._fingerprint_lines import Candidate, candidates
from sessiond.passes._fingerprint_ranks import Rank
from sessiond.passes._fingerprint_values import GENERIC

LINE_LIMIT = 200
LOOKUP_LIMIT = 20
_HEAD = 48 * 1024
_TAIL = 16 * 1024
_FEW_LINES = 3
_MOST_TRIED = 20
_MOST_LOOKED_UP = 500

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\-_])")
# An API's answer may be spread over lines.
_API_BODY = re.compile(
    r"\{\s{0,40}[\"'](?:(?:error|message|detail)[\"']\s{0,4}:|type[\"']\s{0,4}:\s{0,4}[\"']error[\"'])"
)


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
    least: Fingerprint | None = None
    ranked = _ranked(text)
    for candidate in ranked[:_MOST_TRIED]:
        if least and candidate.rank >= Rank.WRAPPED:
            break
        made = _made(candidate, is_alone=_is_alone(ranked))
        if made and not made.is_generic:
            return made
        least = least or made
    return least


def lookup_ids(text: str) -> list[Fingerprint]:
    """What a pasted text may be about, likeliest first: the whole, then each of its telling lines; 20 at most."""
    ranked = _ranked(text)
    whole = fingerprint(text)
    prints = {whole.id: whole} if whole else {}
    for candidate in list(dict.fromkeys(ranked))[:_MOST_LOOKED_UP]:
        if len(prints) >= LOOKUP_LIMIT or (candidate.rank is Rank.PLAIN and prints):
            break
        if made := _made(candidate, is_alone=_is_alone(ranked)):
            prints.setdefault(made.id, made)
    return list(prints.values())


def _ranked(text: str) -> list[Candidate]:
    text = _bounded(text)
    found = candidates(text)
    if body := _API_BODY.search(text):
        at = sum(each.rank < Rank.STATED for each in found)
        found.insert(at, Candidate(Rank.STATED, _around(text, body.start())))
    if found and found[0].rank is Rank.GENERIC:
        # A little that was printed beside an exit code says more than the code; a listing does not.
        rest = [each for each in found if each.rank is Rank.PLAIN]
        if 0 < len(rest) <= _FEW_LINES:
            found = rest + [each for each in found if each.rank is not Rank.PLAIN]
    return found


def _is_alone(ranked: list[Candidate]) -> bool:
    """Whether there is but one line that could be meant."""
    return sum(each.rank is not Rank.GENERIC for each in ranked) == 1


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
    begin = max(text.rfind("\n", 0, at) + 1, at - LINE_LIMIT)
    return " ".join(text[begin : at + 1500].split())


def _made(candidate: Candidate, *, is_alone: bool) -> Fingerprint | None:
    normal = _writable(normal_form(candidate.line))
    if not normal:
        return None
    is_generic = (
        candidate.rank in {Rank.WRAPPED, Rank.GENERIC}
        or (candidate.rank is Rank.PLAIN and not is_alone)
        or GENERIC.fullmatch(normal) is not None
    )
    line = _writable(" ".join(candidate.line.split())[:LINE_LIMIT])
    return Fingerprint(blake2b(normal.encode(), digest_size=8).hexdigest(), line, normal, is_generic)


def _writable(text: str) -> str:
    """Half a surrogate pair, as a cut through an emoji leaves it in JSON, can be neither hashed nor stored."""
    return text.encode("utf-8", "replace").decode()
