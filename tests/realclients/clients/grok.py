"""Grok Build, xAI's own client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from realclients.clients.base import Client, write

_CONFIG = """
[model.mock]
model = "grok-4"
base_url = "{url}/v1"
api_key = "dummy"
api_backend = "chat_completions"
context_window = 128000
"""
_OFF = (
    *("TELEMETRY_ENABLED", "TELEMETRY_MIXPANEL_ENABLED", "TELEMETRY_TRACE_UPLOAD", "FEEDBACK_ENABLED"),
    *("TURN_SUMMARY", "SESSION_RECAP", "TITLE_REFRESH", "PROMPT_SUGGESTIONS"),
)


class Grok(Client):
    flavor = "grok"
    package = "@xai-official/grok"
    program = "grok"
    keeps_tokens_of_killed = False
    session_folder = True

    _FLAGS = ("--always-approve", "-m", "mock")

    def configure(self, home: Path, url: str) -> None:
        write(home / ".grok" / "config.toml", _CONFIG.format(url=url))

    def env(self, url: str) -> dict[str, str]:
        api = dict.fromkeys(
            ("GROK_XAI_API_BASE_URL", "XAI_API_BASE_URL", "GROK_MODELS_BASE_URL", "GROK_CLI_CHAT_PROXY_BASE_URL"),
            f"{url}/v1",
        )
        off = {f"GROK_{name}": "false" for name in _OFF}
        return {"XAI_API_KEY": "dummy", "GROK_DISABLE_AUTOUPDATER": "1", **api, **off}

    def new(self, prompt: str) -> Sequence[str]:
        return [*self._FLAGS, "-p", prompt]

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        return [*self._FLAGS, *arguments, "-p", prompt]
