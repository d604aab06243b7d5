"""What a digest keeps of texts and commands: masked, cut, and read for what they do. Pure."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

from sessiond.passes._digest_state import LINE_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable

# More than ingest ever stores of a text: only what never came through it is cut before it is masked.
_LOOKED_AT = 16_384
_TIME_CHARS = 40

# The tools that run a command line, under all the names they go by.
_SHELLS = frozenset(
    {
        *("bash", "sh", "shell", "powershell", "pwsh", "terminal", "exec", "local_shell", "container.exec"),
        *("exec_command", "shell_command", "run_command", "execute_command", "execute_command_tool", "command"),
        *("run_shell_command", "run_terminal_command", "run_terminal_cmd", "run_in_terminal", "execute_shell"),
        *("run_bash", "execute_bash", "bash_tool", "run_shell"),
    }
)
_WHERE = re.compile(r"cd [^\s;&|]+ ?(?:&&|;) ?")
_SHOWN = re.compile(r"(?: ?2>&1)?(?: ?\| ?(?:tail|head)(?: [\w=-]+)*)? ?$")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# Summaries are one line: what were lines of a script stand side by side, so a blank may part two commands.
_COMMIT = re.compile(
    r"(?:^|[\s;&|(])git (?:(?:-[Cc] [^\s;&|]+|-[\w-]+(?:=[^\s;&|]*)?) )*+commit(?![\w-])(?P<rest>[^;&|]*)"
)
_PULL_REQUEST = re.compile(
    r"(?:^|[\s;&|(])(?:gh pr (?:create|new)|glab mr (?:create|new)|hub pull-request|az repos pr create"
    r"|tea (?:pr|pulls) create)(?![\w-])(?P<rest>[^;&|]*)"
)
_NOT_DONE = re.compile(r"(?:^|\s)(?:--dry-run|--help|-h)(?:\s|$)")
_PULL_REQUEST_TOOL = re.compile(r"create_(?:pull_request|merge_request)$")


class Keeper:
    """Everything that a digest keeps of a text goes through here: masked first, for half a secret is none."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask

    def text(self, text: str, limit: int = _LOOKED_AT) -> str:
        text = self._mask(text[:_LOOKED_AT])
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()  # a lone surrogate is no JSON
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def line(self, text: str, limit: int = LINE_CHARS) -> str:
        return self.text(" ".join(text[:_LOOKED_AT].split()), limit)


def moment(ts: str | None) -> str | None:
    """A time as it is kept: bounded, like all else."""
    return None if ts is None else ts[:_TIME_CHARS]


def is_shell(tool: str | None) -> bool:
    return tool is not None and tool.lower() in _SHELLS


def call_key(tool: str | None, summary: str) -> str:
    """The same for calls that do the same: the same tool, the same command or argument.

    Of a command neither where it runs (`cd app && ...`) nor how much of its output is shown (`2>&1 | tail -20`)
    matters.
    """
    what = summary
    if is_shell(tool):
        while (where := _WHERE.match(what)) is not None:
            what = what[where.end() :]
        what = _SHOWN.sub("", what)
    return blake2b(f"{tool or ''}\0{what}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def commits(command: str) -> bool:
    return _does(_COMMIT, command)


def opens_pull_request(tool: str | None, command: str) -> bool:
    if tool is not None and _PULL_REQUEST_TOOL.search(tool):
        return True
    return is_shell(tool) and _does(_PULL_REQUEST, command)


def _does(what: re.Pattern[str], command: str) -> bool:
    bare = _QUOTED.sub("''", command)  # a message that speaks of a commit is none
    return any(not _NOT_DONE.search(found["rest"]) for found in what.finditer(bare))
