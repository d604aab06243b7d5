"""Claude Code."""

from __future__ import annotations

from collections.abc import Sequence

from realclients.clients.base import Client


class Claude(Client):
    flavor = "claude"
    package = "@anthropic-ai/claude-code"
    program = "claude"

    _FLAGS = ("-p", "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5")

    def env(self, url: str) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "IS_SANDBOX": "1",  # else root may not skip the permissions
        }

    def new(self, prompt: str) -> Sequence[str]:
        return [*self._FLAGS, prompt]

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        return [*self._FLAGS, *arguments, prompt]
