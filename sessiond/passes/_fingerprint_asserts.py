"""A failed assertion's line -> the relation that did not hold: equal whatever the two values were."""

from __future__ import annotations

import re

from sessiond.passes._fingerprint_values import VALUE

_PYTEST = re.compile(r"(?:AssertionError: )?assert (?=\S)")
_OPERATOR = re.compile(r" (==|!=|not in|in|is not|is|<=|>=|<|>) ")
_QUOTED = re.compile(r"\"[^\"]{0,600}+\"|'[^']{0,600}+'")
_LIBRARY = re.compile(r"(?:\w{1,40}\.)*+AssertionError(?: \[\w{1,40}\])?: (?=\S)")
_RELATION = re.compile(
    r" (!=|==|not found in|unexpectedly found in|is not true|is not false|is not None|is None|is not an instance of|"
    r"not raised|not (?:less|greater) than(?: or equal to)?|"
    r"(?:not )?to (?:(?:deeply|strictly|loosely) )?(?:equal|be|include|contain|match|throw|have)"
    r"(?: (?:called(?: once| with)?|been called(?: with| once)?|a length|length|property|defined|undefined|null|truthy|"
    r"falsy|true|false|greater than|less than|close to))*)(?=[\s:.]|$)"
)


def pytest_assertion(line: str) -> str | None:
    """`assert 3 == 4`, with the exception's name before it or not: pytest leaves it out where it can."""
    found = _PYTEST.match(line)
    if found is None:
        return None
    compared = _QUOTED.sub("''", line[found.end() :])
    operator = _OPERATOR.search(compared)
    if operator is None:
        negation = "not " if compared.startswith("not ") else ""
        return f"AssertionError: assert {negation}{_operand(compared.removeprefix(negation))}"
    if operator[1].endswith("in"):
        return f"AssertionError: assert {VALUE} {operator[1]} {VALUE}"
    left, right = _operand(compared[: operator.start()]), _operand(compared[operator.end() :])
    return f"AssertionError: assert {left} {operator[1]} {right}"


def _operand(text: str) -> str:
    """Which value it was differs from run to run; whether it was a number, a text or nothing is part of the error."""
    text = text.strip()
    if text in {"None", "True", "False", "none", "true", "false", "number", "text"}:
        return text.lower()
    if text.lstrip("+-")[:1].isdigit():
        return "number"
    return "text" if text.startswith("'") else VALUE


def library_assertion(line: str) -> str | None:
    """`AssertionError: 3 != 4`, `Lists differ: ... != ...`, `expected 3 to be 4`; None for a message in free words."""
    found = _LIBRARY.match(line)
    relation = _RELATION.search(line, found.end() - 1) if found else None
    if found is None or relation is None:
        return None
    before = line[found.end() : relation.start()]
    is_value = before.count(" ") < 2 or before[:1] in "'\"[{(<" or before[:9].lower() == "expected "
    if is_value or relation[1] in {"!=", "=="} or "found in" in relation[1]:
        return f"AssertionError: {VALUE} {relation[1]}"
    return None
