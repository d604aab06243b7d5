r"""The user's own patterns (`privacy.mask`): regular expressions of unknown quality, and what keeps them from harm.

Python's `re` tries every way to match, and outside the main thread it cannot be stopped: `(a+)+$` takes years over
fifty letters, and no other thread runs meanwhile. So a pattern is tried before it is used (`too_slow`), and is
applied to pieces of at most PIECE_CHARS. What is left is a pattern whose time grows with the square of a piece's
length: tens of milliseconds at worst. A trial finds what it thinks of; it is no proof.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_CHARS = 4096
_MASKED = re.compile(r"(\[masked:[a-z0-9-]+\])")
_TRIAL = Path(__file__).with_name("trial.py")
_TRIAL_SECONDS = 30  # of the clock; the trial ends itself after a few of CPU


class OwnPattern:
    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def mask(self, text: str) -> str:
        """A match longer than a piece, or over its edge, is missed; pieces end at a blank where there is one."""
        # What is masked already is not the user's text any more.
        parts = _MASKED.split(text)
        parts[::2] = [self._mask_pieces(part) for part in parts[::2]]
        return "".join(parts)

    def _mask_pieces(self, text: str) -> str:
        return "".join(self._pattern.sub("[masked:custom]", piece) for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while len(text) - at > PIECE_CHARS:
        half, end = at + PIECE_CHARS // 2, at + PIECE_CHARS
        cut = max(text.rfind("\n", half, end), text.rfind(" ", half, end)) + 1 or end
        yield text[at:cut]
        at = cut
    yield text[at:]


def too_slow(pattern: str) -> str | None:
    """What the pattern was seen to take too long over, in words; None if nothing was found. The pattern must compile.

    It is tried in a process of its own, the only thing that can be ended in the middle of a match.
    """
    import json  # noqa: PLC0415 - verbs that only read import this module and never come here
    import subprocess  # noqa: PLC0415

    try:
        trial = subprocess.run(  # noqa: S603 - our own script, the pattern goes to its stdin
            [sys.executable, "-I", str(_TRIAL)],
            input=pattern.encode("utf-8", "surrogatepass"),
            capture_output=True,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "takes too long"
    except OSError:
        return None  # no process to be had: nothing was seen
    if not trial.stdout:
        return None
    text, length = json.loads(trial.stdout)
    return f"takes too long over {length} characters such as {text!r}"
