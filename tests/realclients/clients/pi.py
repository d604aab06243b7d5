"""pi."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from realclients.clients.base import Client, write


class Pi(Client):
    flavor = "pi"
    package = "@earendil-works/pi-coding-agent"
    versions = ("latest", "0.87.1")  # newer ones have asked for packages that were not published
    program = "pi"
    has_sub_agents = False
    keeps_first_prompt = False

    _FLAGS = ("--offline", "--provider", "mock", "--model", "mock-model")

    def configure(self, home: Path, url: str) -> None:
        model = {"id": "mock-model", "name": "mock", "reasoning": True, "input": ["text"]}
        prices = {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 0}
        model |= {"contextWindow": 200_000, "maxTokens": 8_000, "cost": prices}
        provider = {"baseUrl": url, "api": "anthropic-messages", "apiKey": "dummy", "models": [model]}
        write(home / ".pi" / "agent" / "models.json", json.dumps({"providers": {"mock": provider}}))

    def env(self, url: str) -> dict[str, str]:
        return {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}

    def new(self, prompt: str) -> Sequence[str]:
        return [*self._FLAGS, "-p", prompt]

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        return [*self._FLAGS, *arguments, "-p", prompt]
