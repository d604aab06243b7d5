"""Tools, files and commands in the fold: the first of each by name, the rest by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiond.passes._digest_state import COMMANDS, FILES, PATH_CHARS, TOOLS, Action, Command, FileEdits, ToolUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessiond.passes._digest_state import CallMemory, Digest
    from sessiond.passes._digest_words import Keeper

_FILES_LOOKED_AT = 1_000  # of one event
# A failed edit is taken back: of each open call so much of what it edits is remembered.
_TAKEN_BACK = 5
_TAKEN_BACK_CHARS = 1_000


class Counts:
    def __init__(self, digest: Digest, keep: Keeper) -> None:
        self._digest = digest
        self._keep = keep
        self._files = {each["path"]: each for each in digest.files}
        self._commands = {each["command"]: each for each in digest.commands}

    def called(self, tool: str | None) -> None:
        tools = self._digest.tools
        if tool is None:
            return
        if tool not in tools and len(tools) >= TOOLS:
            self._digest.tools_more += 1
        else:
            tools.setdefault(tool, ToolUse(calls=0, errors=0))["calls"] += 1

    def failed(self, tool: str | None) -> None:
        if tool is not None and tool in self._digest.tools:
            self._digest.tools[tool]["errors"] += 1

    def ran(self, shown: Action) -> None:
        command = self._commands.get(shown["summary"])
        if command is None:
            if len(self._digest.commands) >= COMMANDS:
                self._digest.commands_more += 1
                return
            command = Command(command=shown["summary"], count=0, failed=0, seq=shown["seq"])
            self._commands[shown["summary"]] = command
            self._digest.commands.append(command)
        command["count"] += 1

    def command_failed(self, shown: Action) -> None:
        if shown["summary"] in self._commands:
            self._commands[shown["summary"]]["failed"] += 1

    def edited(self, files: Sequence[str]) -> tuple[list[str], int]:
        """Count the files that a call edits. Returns what `take_back` needs should it fail."""
        paths = dict.fromkeys(self._keep.text(path, PATH_CHARS) for path in files[:_FILES_LOOKED_AT])
        listed: list[str] = []
        more = 0
        for path in paths:
            found = self._files.get(path)
            if found is None and len(self._digest.files) >= FILES:
                more += 1
                continue
            if found is None:
                found = self._files[path] = FileEdits(path=path, edits=0)
                self._digest.files.append(found)
            found["edits"] += 1
            listed.append(path)
        beyond = max(0, len(files) - _FILES_LOOKED_AT)
        self._digest.files_more += more + beyond
        is_short = len(listed) <= _TAKEN_BACK and sum(map(len, listed)) <= _TAKEN_BACK_CHARS
        return (listed, more) if is_short and not beyond else ([], 0)

    def take_back(self, known: CallMemory) -> None:
        """The call came to nothing: what it was to edit was not edited."""
        self._digest.files_more -= known["more_files"]
        for path in known["files"]:
            found = self._files.get(path)
            if found is None:
                continue
            found["edits"] -= 1
            if not found["edits"]:
                self._digest.files.remove(found)
                del self._files[path]
