"""The four wire formats: each reads a request into `Asked` and writes a `Reply` whole, or as a stream of frames."""

from __future__ import annotations

from types import ModuleType

from realclients.mock.wires import anthropic, chat, gemini, responses


def wire_of(path: str) -> ModuleType | None:
    """By the end of the request's path; None: no request for a completion."""
    if path.endswith("/messages"):
        return anthropic
    if path.endswith("/responses"):
        return responses
    if path.endswith("/chat/completions"):
        return chat
    return gemini if path.endswith("enerateContent") else None
