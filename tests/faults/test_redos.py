"""Row 78: no text makes a pattern blow up. Time grows with the length of a text, never with its square or worse.

Every regex that sessiond compiles is tried in the way its module uses it (`match`, `search`, `sub`...), on texts made to
hurt just that one; a new pattern is looked at without anyone adding it here.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import pytest

import sessiond
from sessiond.adapters import adapters
from sessiond.errors import BadRecord
from sessiond.model import Line
from sessiond.testing import samples_of
from tests.adapters.harness import SAMPLES
from tests.faults.pumps import pumped, pumps
from tests.mask.test_cost import slowness

CHARS = 12_000
FIRST_LOOK_CHARS, FIRST_LOOK_SECONDS = 2_000, 0.0012  # what is as quick as this need not be measured closer
GIVE_UP_SECONDS = 3.0
# They never see a text longer than this, and may take their time with so little.
BOUNDED = {
    "sessiond.cli.events._PLACE": (1_000, "an argument of `events`"),
    "sessiond.units._STEP": (1_000, "a value of the configuration"),
    "sessiond.passes._digest_words._COMMIT": (200, "a summary"),
    "sessiond.passes._fingerprint_forms._LABEL": (2_000, "a line, as _fingerprint_lines cuts it"),
    "sessiond.passes._fingerprint_forms._LOCATION": (2_000, "a line"),
    "sessiond.passes._fingerprint_values._CODE_IN_CAPITALS": (2_000, "a word of a line"),
}
BOUNDED_SECONDS = 0.1


def patterns() -> dict[str, tuple[re.Pattern[Any], frozenset[str]]]:
    """Every compiled pattern that a module of sessiond holds, by name, with the methods that are called on it."""
    found = {}
    for each in pkgutil.walk_packages(sessiond.__path__, "sessiond."):
        if each.name.endswith("__main__"):
            continue
        module = importlib.import_module(each.name)
        calls = _calls(module)
        for name, value in vars(module).items():
            for number, pattern in enumerate(_held(value)):
                label = f"{each.name}.{name}" + (f"[{number}]" if not isinstance(value, re.Pattern) else "")
                found.setdefault(pattern, (label, frozenset(calls.get(name, ()) or {"search"})))
    return {label: (pattern, how) for pattern, (label, how) in found.items()}


def _held(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _held(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _held(key)
            yield from _held(each)


def _calls(module: Any) -> dict[str, set[str]]:
    """name -> methods called on it, read from the module's own source."""
    with open(module.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    calls: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            calls.setdefault(node.value.id, set()).add(node.attr)
    return calls


PATTERNS = patterns()


@contextmanager
def giving_up(seconds: float) -> Iterator[None]:
    """A match that would take years is interrupted: the engine looks at signals as it goes."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds(pattern: re.Pattern[Any], how: frozenset[str], text: str) -> float:
    given: Any = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    for method in how & {"match", "fullmatch", "search"}:
        getattr(pattern, method)(given)
    if how - {"match", "fullmatch"}:  # sub, split, findall, finditer: from every place, to the end
        for _ in pattern.finditer(given):
            pass
    return time.process_time() - began


def what_is_slow(label: str, pump: tuple[str, str, str], slower: float) -> str | None:
    pattern, how = PATTERNS[label]
    try:
        with giving_up(GIVE_UP_SECONDS * slower):
            if label in BOUNDED:
                took = seconds(pattern, how, pumped(pump, BOUNDED[label][0]))
                return None if took < BOUNDED_SECONDS * slower else f"{took:.3f} s"
            if seconds(pattern, how, pumped(pump, FIRST_LOOK_CHARS)) < FIRST_LOOK_SECONDS:
                return None
            half, whole = (min(seconds(pattern, how, pumped(pump, n)) for _ in "123") for n in (CHARS // 2, CHARS))
            return f"{half:.3f} s, twice as long: {whole:.3f} s" if whole > max(0.02, 2.8 * half) else None
    except TimeoutError:
        return "given up"


def check_patterns(every: int) -> None:
    """Try every so manieth text of every pattern."""
    texts = [(label, pump) for label, (pattern, _) in PATTERNS.items() for pump in list(pumps(pattern))[::every]]
    slower = slowness()
    slow = [(label, pump, why) for label, pump in texts if (why := what_is_slow(label, pump, slower))]
    print(f"{len(PATTERNS)} patterns, {len(texts)} texts")
    assert set(BOUNDED) <= set(PATTERNS)
    assert slow == [], "\n".join(map(str, slow))


@pytest.mark.fault(78)
def test_every_pattern_takes_time_in_proportion_to_the_text():
    check_patterns(every=4)


@pytest.mark.long
@pytest.mark.fault(78)
def test_every_pattern_takes_time_in_proportion_to_every_text():
    check_patterns(every=1)


@pytest.mark.fault(78)
@pytest.mark.parametrize("text", [r"(a+)+b", r"(?:a|a)*b", r"(?:-?[\w-]+ )*b", r"a\s*(.*?)\s*b", r"x*x*x*b"])
def test_a_pattern_that_blows_up_is_found_out(text, monkeypatch):
    """The check itself: it knows what it is there for."""
    monkeypatch.setitem(PATTERNS, "bad", (re.compile(text), frozenset({"search"})))
    assert any(what_is_slow("bad", pump, 0.2) for pump in pumps(re.compile(text)))


SIZE = 2**18
WRITTEN = {
    "commands": "<user_shell_command><command>" + " " * SIZE,
    "openings": "<user_shell_command>" + "<command>" * (SIZE // 9),
    "folders": "<environment_context><cwd>" + " " * SIZE,
    "patches": "apply_patch *** Begin Patch\n*** Add File: " + " " * SIZE + "x",
    "queries": "<user_query>" * (SIZE // 12),
    "envelopes": "<skill></skill> " * (SIZE // 16),
    "instructions": "# AGENTS.md instructions</INSTRUCTIONS>" * (SIZE // 39),
    "images": "<image" * (SIZE // 6),
    "workspaces": "**Workspace Directories:**" + "\n" * SIZE,
    "colours": "\x1b[" + "1;" * (SIZE // 2),
    "here-documents": "pytest <<" + "<<A" * (SIZE // 3),
    "quotes": "pytest '\"" * (SIZE // 9),
    "links": "https://a/" + "issues/" * (SIZE // 7),
    "backslashes": "\\" * SIZE,
    "newlines": "\n" * SIZE,
}


def written_into(record: Any, text: str) -> Any:
    """The record with this text in the place of whatever reads like words."""
    if isinstance(record, dict):
        return {name: written_into(each, text) for name, each in record.items()}
    if isinstance(record, list):
        return [written_into(each, text) for each in record]
    return text if isinstance(record, str) and len(record) > 3 and (" " in record or "<" in record) else record


def _loaded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # a sample of what is no JSON
        return {}


@pytest.mark.fault(78)
@pytest.mark.parametrize("flavor", sorted(adapters()))
def test_no_text_holds_an_adapter_up(flavor):
    """A quarter of a megabyte in the place of every text of every sample record takes an adapter no longer than it takes to read."""
    adapter, limit = adapters()[flavor], 0.7 * slowness()
    for sample in samples_of(adapter, SAMPLES / flavor):
        for line in sample.lines[:12]:
            record = _loaded(line.data)
            for name, text in WRITTEN.items():
                made = Line(line.offset, orjson.dumps(written_into(record, text)))
                began = time.process_time()
                with giving_up(10 * limit), suppress(BadRecord):
                    adapter.parse(made, sample.carry)
                assert time.process_time() - began < limit, (name, record)
