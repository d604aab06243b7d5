"""JSON on stdout: the one way it is written."""

from __future__ import annotations

import json
from typing import Any

from sessiond.cli import terminal


def print_json(value: Any, *, is_line: bool = False) -> None:
    """One JSON value; readable where a person is looking, on one line where a program is."""
    to = terminal.stdout()
    indent = 2 if to.is_screen and not is_line else None
    to.line(terminal.plain_json(json.dumps(value, sort_keys=True, ensure_ascii=False, indent=indent)))
