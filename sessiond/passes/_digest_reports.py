"""What a test run's output says of how it went, where its exit code got lost on the way (`pytest | tail`). Pure."""

from __future__ import annotations

import re

PASSED = "passed"
FAILED = "failed"
RUNNING = "running"
NONE = "none"  # there was nothing to run

_LOOKED_AT = 4_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Of a number only its beginning is looked for: "[1-9]" keeps "0 failed" out, and \b keeps "2 xfailed" out.
_COUNTED = re.compile(
    r"\b[1-9]\d{0,8} (?:tests? |specs? |examples? )?(?:failed|failing|failures?)\b"
    r"|\b[1-9]\d{0,8} errors? (?:in|during) "
    r"|\b(?:Failures|Errors|Failed|failures|errors|failed)[:=] {0,4}[1-9]"
    r"|^# fail [1-9]",
    re.MULTILINE,
)
_SAID = re.compile(
    r"^[ \t]{0,4}(?:FAIL|FAILED|FAILURES!|Failed!)(?![\w-])"
    r"|^--- FAIL|^not ok \d|\btest result: FAILED|\bBUILD FAILED|\bBUILD FAILURE"
    r"|^(?:g?make|ninja)(?:\[\d{1,4}\])?: \*\*\* |^error: test failed|\bTest Run Failed"
    r"|^npm (?:ERR!|error) |^error Command failed",
    re.MULTILINE,
)
_EXIT = re.compile(
    r"^\W{0,3}(?:(?:command|process) )?exit(?:ed with)?(?: code| status)[:=]? ?(?!0\b)-?\d{1,10}\b",
    re.IGNORECASE | re.MULTILINE,
)
_RUNNING = re.compile(
    r"still running|running in (?:the )?background|[Pp]rocess running with|moved to (?:the )?background"
    r"|in background with ID"
)
_NOTHING = re.compile(r"\bno tests (?:ran|found|to run)\b|\bcollected 0 items\b|^No tests found", re.MULTILINE)
_WENT_WELL = re.compile(
    r"\b[1-9]\d{0,8} (?:tests? |specs? )?(?:passed|passing)\b|\btest result: ok\b"
    r"|^ok[ \t]{1,8}\S{1,200}[ \t]{1,8}[\d(]|^OK(?: \(|$)",
    re.MULTILINE,
)


def read_report(text: str) -> str:
    """PASSED unless the text says otherwise: most runners are silent about what went well."""
    text = text[-_LOOKED_AT:]
    told = told_by(text)
    if told is not None:
        return told
    if _RUNNING.search(text):
        return RUNNING
    return NONE if _NOTHING.search(text) else PASSED


def told_by(text: str) -> str | None:
    """PASSED or FAILED where the text itself says so, as a test's report does."""
    text = text[-_LOOKED_AT:]
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if _COUNTED.search(text) or _SAID.search(text) or _EXIT.search(text):
        return FAILED
    return PASSED if _WENT_WELL.search(text) else None
