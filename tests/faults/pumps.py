"""Strings on which a backtracking regex works as hard as it ever can, made from the pattern itself.

Wherever a pattern repeats something, the way there is written once, what is repeated many times, and an end put to it
that cannot match: then the engine tries every way of dividing the repeats up.
"""

from __future__ import annotations

import re
from re import _constants as sre, _parser
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
_LETTERS = " a0-_./\"'<x\n;=~"
_FILLERS = (" ", "\n", "a", "-", "\\")  # what one class takes, its neighbour often takes too
_ENDS = ("\x01", "!")
_CATEGORIES = {
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_WORD: lambda letter: letter.isalnum() or letter == "_",
    sre.CATEGORY_NOT_SPACE: lambda letter: not letter.isspace(),
    sre.CATEGORY_NOT_DIGIT: lambda letter: not letter.isdigit(),
    sre.CATEGORY_NOT_WORD: lambda letter: not (letter.isalnum() or letter == "_"),
}


def pumps(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """(beginning, what to repeat, end) for every repeat and every beginning of the pattern."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    tree = _parser.parse(text, flags)
    whole = _sample(tree, {})
    found = {("", whole), ("", whole[:1]), ("", whole[:3]), ("", whole[:-1])}
    for lead, unit in _repeats(tree, "", {}):
        found |= {(lead, each) for each in (unit, *_FILLERS)} | {("", lead), ("", lead + unit), ("", unit)}
    for lead, unit in sorted(found):
        if unit:
            yield from ((lead, unit, end) for end in _ENDS)


def pumped(pump: tuple[str, str, str], length: int) -> str:
    lead, unit, end = pump
    return lead + unit * (length // len(unit)) + end


def _repeats(tokens: Iterable[Any], lead: str, groups: dict[int, str]) -> Iterator[tuple[str, str]]:
    """What leads to each repeat or branch, at any depth, and one turn of it."""
    for token in tokens:
        kind, value = token
        if kind in _REPEATS:
            yield lead, _sample(value[2], groups)
            yield from _repeats(value[2], lead, groups)
        elif kind is sre.SUBPATTERN:
            yield from _repeats(value[3], lead, groups)
        elif kind is sre.ATOMIC_GROUP:
            yield from _repeats(value, lead, groups)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repeats(value[1], lead, groups)
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield lead, _sample(branch, groups)
                yield from _repeats(branch, lead, groups)
        lead += _one(token, groups)


def _sample(tokens: Iterable[Any], groups: dict[int, str]) -> str:
    return "".join(_one(token, groups) for token in tokens)


def _one(token: Any, groups: dict[int, str]) -> str:
    """A short text that this part of a pattern matches, most of the time."""
    kind, value = token
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.IN:
        return _member(value)
    if kind is sre.NOT_LITERAL:
        return "b" if chr(value) == "a" else "a"
    if kind is sre.ANY:
        return "a"
    if kind is sre.BRANCH:
        return _sample(value[1][0], groups)
    if kind is sre.SUBPATTERN:
        groups[value[0]] = made = _sample(value[3], groups)
        return made
    if kind is sre.ATOMIC_GROUP:
        return _sample(value, groups)
    if kind in _REPEATS:
        return _sample(value[2], groups) * max(value[0], 1)
    return groups.get(value, "") if kind is sre.GROUPREF else ""


def _member(items: list[Any]) -> str:
    """A letter of a class, or one that is not where the class is negated."""
    wanted = items[0][0] is not sre.NEGATE
    if items[0][0] is sre.LITERAL:
        return chr(items[0][1])
    if items[0][0] is sre.RANGE:
        return chr(items[0][1][0])
    members = items if wanted else items[1:]
    return next((each for each in _LETTERS if any(_is_in(item, each) for item in members) == wanted), "a")


def _is_in(item: Any, letter: str) -> bool:
    kind, value = item
    if kind is sre.LITERAL:
        return chr(value) == letter
    if kind is sre.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    return kind is sre.CATEGORY and value in _CATEGORIES and bool(_CATEGORIES[value](letter))
