"""Private keys, which are blocks of many lines: whole ones, and what a cut has left of one."""

from __future__ import annotations

import re

_MASK = "[masked:private-key]"
_OF = r"[A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?"
_BEGIN = re.compile(rf"-----BEGIN {_OF}-----|---- BEGIN {_OF} ----")
_END = re.compile(rf"-----END {_OF}-----|---- END {_OF} ----")
# What may stand before an END whose BEGIN was cut off: long lines of base64 and a last one of any length. To be matched
# at the start of the text before END turned round: looking for its beginning forwards would take quadratic time.
_BREAK = r"(?:\s|[nr]\\)"
_BASE64 = r"(?:[A-Za-z0-9+/](?!\\))"
_TAIL_REVERSED = re.compile(rf"{_BREAK}*+=*+{_BASE64}*+(?:{_BREAK}++{_BASE64}{{16,}}+)*+")
# PuTTY says how many lines follow, and has no end.
_PUTTY = re.compile(r"(?P<keep>Private-Lines: [0-9]{1,3})(?:(?:\s|\\r|\\n)++[A-Za-z0-9+/=]{20,}+)++")


def mask_private_keys(text: str) -> str:
    """Whole blocks; a block without its end to the end of the text; of one without its beginning what is left."""
    text = _PUTTY.sub(rf"\g<keep> {_MASK}", text)
    parts: list[str] = []
    at = 0
    while begin := _BEGIN.search(text, at):
        end = _END.search(text, begin.end())
        parts += [_mask_cut_key(text[at : begin.start()]), _MASK]
        at = end.end() if end else len(text)
    return "".join(parts) + _mask_cut_key(text[at:])


def _mask_cut_key(text: str) -> str:
    parts: list[str] = []
    at = 0
    for end in _END.finditer(text):
        before = text[at : end.start()]
        tail = _TAIL_REVERSED.match(before[::-1])
        parts += [before[: len(before) - (tail.end() if tail else 0)], _MASK]
        at = end.end()
    return "".join(parts) + text[at:]
