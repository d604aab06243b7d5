"""Qwen Code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from realclients.clients.base import Client, write
from realclients.clients.gemini import settings


class Qwen(Client):
    flavor = "qwen"
    package = "@qwen-code/qwen-code"
    program = "qwen"
    uses_proxy = False
    keeps_retries = False
    keeps_asides = True
    marks_end = False

    _FLAGS = ("--auth-type", "openai", "-y")

    def configure(self, home: Path, url: str) -> None:
        write(home / ".qwen" / "settings.json", json.dumps(settings("openai")))

    def env(self, url: str) -> dict[str, str]:
        return {"OPENAI_API_KEY": "dummy", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "mock-model"}

    def new(self, prompt: str) -> Sequence[str]:
        return [*self._FLAGS, "-p", prompt]

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        return [*self._FLAGS, *arguments, "-p", prompt]
