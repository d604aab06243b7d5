"""Codex. Its `resume` is for a terminal; `exec resume` is the same for a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from realclients.clients.base import Client, write

_CONFIG = """
model = "gpt-5.5"
model_provider = "mock"
check_for_update_on_startup = false

[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "MOCK_KEY"

[features]
plugins = false
apps = false

[analytics]
enabled = false

[otel]
exporter = "none"
"""


class Codex(Client):
    flavor = "codex"
    package = "@openai/codex"
    program = "codex"
    keeps_retries = False

    _FLAGS = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")

    def configure(self, home: Path, url: str) -> None:
        write(home / ".codex" / "config.toml", _CONFIG.format(url=url))

    def env(self, url: str) -> dict[str, str]:
        return {"MOCK_KEY": "dummy"}

    def new(self, prompt: str) -> Sequence[str]:
        return ["exec", *self._flags(prompt), prompt]

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        verb, *rest = arguments
        return ["exec", verb, *self._flags(prompt), *rest, prompt]

    def _flags(self, prompt: str) -> Sequence[str]:
        # A model that it does not know is offered the sub-agent tools at once.
        return [*self._FLAGS, "-m", "mock-model"] if "script: task" in prompt else self._FLAGS
