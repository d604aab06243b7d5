"""What the wires have in common: a request as the mock understands it, a reply as it is to be written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
PIECES = 12  # of a streamed text: enough to be cut in the middle


@dataclass(frozen=True)
class Turn:
    role: str
    text: str
    is_result: bool = False


@dataclass(frozen=True)
class Tool:
    name: str
    schema: Json
    is_freeform: bool = False  # takes text instead of JSON
    namespace: str | None = None


@dataclass(frozen=True)
class Asked:
    model: str
    turns: list[Turn]
    tools: list[Tool]
    is_stream: bool
    forced_tool: str | None = None


@dataclass(frozen=True)
class Tokens:
    """As they are served: `input` without the cached part, `output` with the reasoning."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Text:
    text: str
    stall_seconds: float = 0.0  # silence in the middle of it


@dataclass(frozen=True)
class Thought:
    text: str


@dataclass(frozen=True)
class Calling:
    id: str
    tool: Tool
    arguments: Json
    freeform: str | None = None


@dataclass(frozen=True)
class Reply:
    number: int
    model: str
    blocks: list[Text | Thought | Calling] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def has_calls(self) -> bool:
        return any(isinstance(block, Calling) for block in self.blocks)


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    data: Json | str
    name: str | None = None


Frames = Iterator[Frame | Pause]


def pieces(text: str) -> list[str]:
    size = max(8, -(-len(text) // PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


def spoken(block: Text) -> Iterator[str | Pause]:
    """The pieces of an answer, with its silence in the middle."""
    parts = pieces(block.text)
    for at, part in enumerate(parts):
        if block.stall_seconds and at == len(parts) // 2:
            yield Pause(block.stall_seconds)
        yield part


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(each.get("text") or "") for each in content or [] if isinstance(each, dict))
