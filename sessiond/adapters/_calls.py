"""Tool calls of agents with the usual tools (a shell, reading, editing): what kind of step, which files, in a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sessiond.adapters.base import string_of
from sessiond.adapters.commands import is_test_command
from sessiond.adapters.wording import one_line, searchable
from sessiond.model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_LIMIT = 80
_PATHS = ("file_path", "path", "absolute_path", "notebook_path")
# Where a tool's input says best what it does, best first; the search index has the rest.
_TELLING = (
    *("command", "file_path", "path", "absolute_path", "notebook_path", "pattern", "query", "url", "description"),
    *("question", "prompt", "plan", "name", "skill", "fact"),
)


class Call(NamedTuple):
    kind: Kind
    tool: str
    summary: str
    text: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Which of an agent's tools edit, run a shell, or put a choice to a person."""

    edits: frozenset[str]
    shells: frozenset[str]
    decisions: frozenset[str] = frozenset()

    def read(self, name: Any, given: Mapping[str, Any]) -> Call:
        tool = (string_of(name) or "")[:NAME_LIMIT]
        kind = Kind.TOOL_CALL
        files: tuple[str, ...] = ()
        if tool in self.edits:
            kind = Kind.EDIT
            files = tuple(path for path in (string_of(given.get(field)) for field in _PATHS) if path)[:1]
        elif tool in self.decisions:
            kind = Kind.DECISION
        elif tool in self.shells and is_test_command(string_of(given.get("command")) or ""):
            kind = Kind.TEST_RUN
        return Call(kind, tool, _summary(tool, given), searchable(given), files)


def _summary(tool: str, given: Mapping[str, Any]) -> str:
    todos = given.get("todos")
    if isinstance(todos, list):
        done = sum(isinstance(todo, dict) and todo.get("status") == "completed" for todo in todos)
        return f"{done}/{len(todos)} done"
    for field in _TELLING:
        if isinstance(value := given.get(field), str) and value and not value.isspace():
            return one_line(value)
    return one_line(searchable(given)) or tool or "(a tool without a name)"
