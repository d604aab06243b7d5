"""The settings, written out for people from the model itself: config.example.toml and the table in the docs."""

from __future__ import annotations

import textwrap
from functools import cache
from typing import TYPE_CHECKING, Literal, get_args, get_origin

import tomli_w
from pydantic import BaseModel

from sessiond.config.settings import Config, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

_HEAD = """\
# sessiond looks for this file in ~/.config/sessiond/config.toml ($XDG_CONFIG_HOME), and reads config.d/*.toml beside it
# after it. Every key is here with its default; take away the # in front of a key to change it, then `sessiond reload`.
# Sizes are written "500MB" or "4GiB", times "30s", "2h30m" or "45d". `sessiond config check` tells what is wrong.
"""
_WIDTH = 118


def render_example() -> str:
    """The text of config.example.toml, which `config init` writes. `#key = value` is a default, `# words` are words."""
    parts = [_HEAD]
    for name, section in _sections():
        parts.append(f"\n{_words(section.__doc__ or '')}[{name}]\n")
        values = section().model_dump(mode="json")
        for key, info in section.model_fields.items():
            parts.append(f"{_words(_meaning(info))}#{tomli_w.dumps({key: values[key]})}")
    parts.append(f"\n{_words(_domains().description or '')}[domains]\n")
    return "".join(parts)


def render_table() -> str:
    """A Markdown table of every key."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for name, section in _sections():
        values = section().model_dump(mode="json")
        for key, info in section.model_fields.items():
            default = tomli_w.dumps({key: values[key]}).partition(" = ")[2].strip()
            rows.append(f"| `{name.replace('claude', '<flavor>')}.{key}` | `{default}` | {_meaning(info)} |")
    rows.append(f"| `domains.<repo>` | | {_domains().description} |")
    return "\n".join(rows) + "\n"


@cache
def known_keys() -> tuple[str, ...]:
    """Every section and every dotted key; `<flavor>` stands for any agent."""
    keys = list(Config.model_fields)
    for name, section in _sections():
        keys += [f"{name.replace('claude', '<flavor>')}.{key}" for key in section.model_fields]
    return tuple(keys)


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, info in Config.model_fields.items():
        if name == "sources":
            yield "sources.claude", SourceSettings
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield name, info.annotation


def _meaning(info: FieldInfo) -> str:
    """The description, and where only certain words are allowed, those."""
    words = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    return f"{info.description} Allowed: {', '.join(words)}." if words else f"{info.description}"


def _domains() -> FieldInfo:
    return Config.model_fields["domains"]


def _words(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, _WIDTH - 2))
