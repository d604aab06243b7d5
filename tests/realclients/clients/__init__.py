"""The clients by flavor, in the order they are run."""

from __future__ import annotations

from realclients.clients.base import Client
from realclients.clients.claude import Claude
from realclients.clients.codex import Codex
from realclients.clients.gemini import Gemini
from realclients.clients.grok import Grok
from realclients.clients.mycode import Mycode
from realclients.clients.pi import Pi
from realclients.clients.qwen import Qwen

__all__ = ["CLIENTS", "Client"]

CLIENTS: dict[str, Client] = {
    client.flavor: client for client in (Claude(), Codex(), Grok(), Mycode(), Pi(), Qwen(), Gemini())
}
