"""A verb on a terminal of its own, and whether anything reached it that a terminal would act upon."""

from __future__ import annotations

import re

from terminals import shown

# What sessiond itself may send: its few styles, and on the live screen what moves and clears lines.
_STYLES = re.compile(r"\x1b\[(?:0|1|2|1;7|3[0-7]|(?:[12];)?3[0-7](?:;[12])?)?m")
_LIVE = re.compile(r"\x1b\[\??[0-9;]{0,6}[ABHJKhl]")
_HARMFUL = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e0fff]"
)


def on_a_terminal(env: dict[str, str], *words: str, width: int = 100) -> str:
    """Everything that `sessiond WORDS...` writes to a terminal, stderr included."""
    return shown(env, *words, width=width).decode(errors="surrogateescape")


def harmful_in(shown: str, *, is_live: bool = False) -> list[str]:
    """What in it is neither text nor ours, with a little of what stands around it."""
    bare = _STYLES.sub("", shown)
    bare = _LIVE.sub("", bare) if is_live else bare
    return [bare[max(0, found.start() - 30) : found.end() + 30] for found in _HARMFUL.finditer(bare)]
