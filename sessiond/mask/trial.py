"""Tries a regular expression on text made from the expression itself. Run as a script, in a process of its own.

Nothing but the standard library, and no import of ours: it is started by its path, from wherever the package lies.
stdin: the pattern. stdout: the beginning of what it took too long over and the length of it, or nothing.
"""

from __future__ import annotations

import json
import re
import signal
import string
import sys
import time
from re import _compiler, _constants as op, _parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN_SECONDS = 0.2  # of CPU. Over the longest text a square takes a tenth of it, a cube fifty times of it
ALL_SECONDS = 3.0
LENGTHS = (24, 48, 96, 512, 2048)

_ALPHABET = string.printable + "\u00e9\u03a9\u4e2d\U0001f600\x00"
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


def main() -> None:
    pattern = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    # `re` looks for signals while it works, in the main thread: what a daemon's other threads cannot do.
    signal.signal(signal.SIGVTALRM, _interrupt)
    compiled = re.compile(pattern)
    for text in _texts(_parser.parse(pattern)):
        if time.process_time() > ALL_SECONDS:
            return
        if _is_slow(compiled, text):
            print(json.dumps([text[:30], len(text)]))  # noqa: T201 - the answer
            return


def _interrupt(*_: object) -> None:
    raise TimeoutError


def _is_slow(compiled: re.Pattern[str], text: str) -> bool:
    signal.setitimer(signal.ITIMER_VIRTUAL, RUN_SECONDS)
    try:
        compiled.sub("", text)
    except TimeoutError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False


def _texts(tree: Any) -> Iterator[str]:
    """What leads up to a repeat, then more and more of what it takes, then what it cannot end with."""
    attacks = list(_attacks(tree))
    for length in LENGTHS:  # short ones first: what doubles with every character shows at once
        for before, pump in attacks:
            for after in ("", "\x00", "!\n"):
                yield before + pump * max(1, (length - len(before)) // len(pump)) + after


def _attacks(tree: Any) -> Iterator[tuple[str, str]]:
    """(what leads to a repeat, what it may take once more): from its own body, and every kind of character there is."""
    kinds = _kinds_of_characters(tree)
    seen = set()
    for before, body in _repeats(tree, ""):
        for pump in [*_samples(body), *kinds]:
            if pump and (before, pump) not in seen:
                seen.add((before, pump))
                yield before, pump


def _kinds_of_characters(tree: Any) -> list[str]:
    """One character for every set of the pattern's classes that some character is in together."""
    classes = [_members(node) for node in _leaves(tree)]
    kinds: dict[tuple[bool, ...], str] = {}
    for character in _ALPHABET + "".join(min(each) for each in classes if each):
        kinds.setdefault(tuple(character in each for each in classes), character)
    return list(kinds.values())[:24]


def _children(node: tuple[Any, Any]) -> list[Any]:
    """The parts below a node of Python's parsed pattern, each a sequence of nodes."""
    code, value = node
    if code in _REPEATS:
        return [value[2]]
    if code is op.BRANCH:
        return list(value[1])
    if code is op.SUBPATTERN:
        return [value[3]]
    if code in (op.ASSERT, op.ASSERT_NOT):
        return [value[1]]
    if code is op.ATOMIC_GROUP:
        return [value]
    if code is op.GROUPREF_EXISTS:
        return [each for each in value[1:] if each is not None]
    return []


def _leaves(tree: Any) -> Iterator[tuple[Any, Any]]:
    for node in tree:
        below = _children(node)
        if not below and node[0] not in (op.AT, op.GROUPREF):
            yield node
        for each in below:
            yield from _leaves(each)


def _members(leaf: tuple[Any, Any]) -> frozenset[str]:
    code, value = leaf
    if code is op.LITERAL:
        return frozenset({chr(value), chr(value).swapcase()[:1]})
    compiled = _class_of(leaf)
    return frozenset(each for each in _ALPHABET if compiled.match(each))


def _class_of(leaf: tuple[Any, Any]) -> re.Pattern[str]:
    tree = _parser.SubPattern(_parser.State(), [leaf])
    tree.state.str = ""
    compiled: re.Pattern[str] = _compiler.compile(tree, re.DOTALL)
    return compiled


def _repeats(tree: Any, before: str) -> Iterator[tuple[str, Any]]:
    for node in tree:
        for below in _children(node):
            if node[0] in _REPEATS and node[1][1] > 1:
                yield before, below
            yield from _repeats(below, before)
        before += next(iter(_samples([node])), "")


def _samples(tree: Any) -> list[str]:
    """A few texts that the nodes match, one for each way of a branch; the shortest of each."""
    texts = [""]
    for code, value in tree:
        if code in _REPEATS:
            low, _, body = value
            more = [each * max(low, 0) for each in _samples(body)] if low < 100 else [""]
            more = more if low else ["", *_samples(body)]
        elif code is op.BRANCH:
            more = [each for branch in value[1] for each in _samples(branch)]
        elif code in (op.SUBPATTERN, op.ATOMIC_GROUP):
            more = _samples(value[3] if code is op.SUBPATTERN else value)
        elif code in (op.AT, op.ASSERT, op.ASSERT_NOT, op.GROUPREF, op.GROUPREF_EXISTS):
            more = [""]
        elif code is op.LITERAL:
            more = [chr(value)]
        else:
            more = [min(_members((code, value)), key=lambda each: (not each.isalnum(), each), default="a")]
        texts = [text + each for text in texts for each in more][:16]
    return texts


if __name__ == "__main__":
    main()
