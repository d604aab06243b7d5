"""Gemini CLI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realclients.clients.base import Client, write


class Gemini(Client):
    flavor = "gemini"
    package = "@google/gemini-cli"
    program = "gemini"
    keeps_retries = False
    keeps_refusals = False
    keeps_open_calls = False
    resumes_refused = False
    marks_end = False
    has_sub_agents = False

    _FLAGS = ("-y", "--skip-trust", "-m", "gemini-2.5-pro")

    def configure(self, home: Path, url: str) -> None:
        write(home / ".gemini" / "settings.json", json.dumps(settings("gemini-api-key")))

    def env(self, url: str) -> dict[str, str]:
        return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_TELEMETRY_ENABLED": "false"}

    def new(self, prompt: str) -> Sequence[str]:
        return [*self._FLAGS, "-p", prompt]

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        return [*self._FLAGS, *arguments, "-p", prompt]


def settings(auth: str) -> dict[str, Any]:
    """Qwen Code is a child of Gemini CLI and reads the same settings."""
    quiet = {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True}
    return {
        "security": {"auth": {"selectedType": auth}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": quiet,
    }
