"""What may be printed, and how: escapes made visible, colour only where it is wanted, widths as the eye sees them.

Everything that comes from outside passes `plain` on its way to a screen: an agent's file may hold sequences that
would retitle the window, move the cursor or turn the text around.
"""

from __future__ import annotations

import io
import os
import re
import sys
from shutil import get_terminal_size
from typing import IO, Any, TextIO
from unicodedata import category, east_asian_width

from sessiond.paths import environment

# Controls (C0, DEL, C1), what reorders text, invisible joiners and tags, line separators, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_STYLES = {
    "bold": "1", "dim": "2", "mark": "1;7", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36",
}  # fmt: skip
DEFAULT_WIDTH = 80


def plain(text: str) -> str:
    """The text on one line, every character in it visible and harmless."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain_json(text: str) -> str:
    """The same JSON value, with escapes for what a terminal would act upon."""
    return _UNSAFE.sub(_escape_json, text)


def _escape_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] == "\n":
        return "\n"  # json.dumps writes it between values only
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def width_of(text: str) -> int:
    """Columns that the text takes up."""
    if text.isascii():
        return len(text)
    return sum(
        0 if category(each) in ("Mn", "Me", "Cf") else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def cut(text: str, width: int) -> str:
    """At most so many columns; what was cut off is told by an ellipsis."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for each in text:
        used += width_of(each)
        if used > width - 1:
            break
        kept.append(each)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


def pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space


class Terminal:
    """One output stream: is it a screen, how wide, may it have colour, can it draw."""

    def __init__(self, stream: TextIO) -> None:
        env = environment()
        self.stream = stream
        self.is_screen = stream.isatty()
        self.has_colour = self.is_screen and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
        self.has_shapes = (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"
        self.width = width_now() if self.is_screen else None

    def style(self, text: str, *names: str) -> str:
        """The text in these styles, or as it is where there is no colour. Pad and cut before, not after."""
        if not self.has_colour or not text or not names:
            return text
        return f"\x1b[{';'.join(_STYLES[name] for name in names)}m{text}\x1b[0m"

    def fit(self, text: str, used: int) -> str:
        """The text, cut to what is left of the line; whole where there is no screen."""
        return text if self.width is None else cut(text, max(self.width - used, 10))

    def bar(self, share: float, width: int) -> str:
        filled = min(width, max(0, round(share * width)))
        full, empty = ("█", "░") if self.has_shapes else ("#", "-")
        return full * filled + empty * (width - filled)

    def glyph(self, shape: str, letter: str) -> str:
        return shape if self.has_shapes else letter

    def line(self, text: str = "") -> None:
        self.stream.write(text + "\n")


def width_now() -> int:
    return get_terminal_size((DEFAULT_WIDTH, 24)).columns


def stdout() -> Terminal:
    return Terminal(sys.stdout)


def stderr() -> Terminal:
    return Terminal(sys.stderr)


def say_error(words: str) -> None:
    """One line for a person, on stderr."""
    to = stderr()
    to.line(f"{to.style('sessiond:', 'red', 'bold')} {plain(words)}")


def say_note(words: str) -> None:
    to = stderr()
    to.line(to.style(plain(words), "yellow"))


def be_tolerant() -> None:
    """A character that the terminal's encoding does not have is shown as an escape, not as a traceback; what is said to
    a stream that was closed before we began goes nowhere.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, _nowhere(number, mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere(number: int, mode: str) -> IO[Any]:
    """In the place of the stream's own descriptor: else the next file to be opened gets that number, the lock say, and
    with it every stray word of a library.
    """
    fd = os.open(os.devnull, os.O_RDWR)
    if fd != number:
        os.dup2(fd, number)
        os.close(fd)
    return open(number, mode, encoding="utf-8", closefd=False)


def shown_path(path: str | None) -> str:
    """A path as people read it: below the home with `~`."""
    if not path:
        return ""
    home = environment().get("HOME", "")
    inside = home and home != "/" and (path == home or path.startswith(home + os.sep))
    return plain("~" + path[len(home) :] if inside else path)
