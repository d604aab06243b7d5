"""mycode, from PyPI, in an environment of its own; it needs Python 3.12."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from realclients.clients.base import Client, write


class Mycode(Client):
    flavor = "mycode"
    package = "mycode-cli"
    program = "mycode"
    keeps_retries = False
    keeps_refusals = False
    has_sub_agents = False
    session_folder = True

    python = (3, 12)
    requirements = ("mycode-sdk", "mycode-cli")
    _FLAGS = ("run", "--permission", "yolo", "--model", "mock/claude-sonnet-4-5")

    def configure(self, home: Path, url: str) -> None:
        provider = {"type": "anthropic", "base_url": url, "api_key": "dummy", "models": {"claude-sonnet-4-5": {}}}
        write(home / ".mycode" / "config.json", json.dumps({"providers": {"mock": provider}}))

    def new(self, prompt: str) -> Sequence[str]:
        return [*self._FLAGS, prompt]

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        return [*self._FLAGS, *arguments, prompt]

    def executable(self, folder: Path) -> Path:
        return folder / self.flavor / "venv" / "bin" / self.program

    def version(self, folder: Path) -> str:
        (found,) = (folder / self.flavor / "venv").glob("lib/*/site-packages/mycode_cli-*.dist-info")
        return found.name.removesuffix(".dist-info").partition("-")[2]
