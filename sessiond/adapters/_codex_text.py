"""Words out of Codex's JSON: content parts, and prompts under their envelopes. Pure.

Nothing here lets through what no person could read: inline images, base64, encrypted content.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from sessiond.adapters.wording import clip

_DATA_URL = re.compile(r"data:[\w.+/-]*;base64,[A-Za-z0-9+/=_-]*")
_FERNET = re.compile(r"gAAAAA[A-Za-z0-9_-]{40,}={0,2}")

# What Codex itself puts before the model in the user's name; a real prompt may follow in the same text.
_ENVELOPES = (
    "environment_context",
    "user_instructions",
    "permissions instructions",
    "collaboration_mode",
    "turn_aborted",
    "subagent_notification",
    "skill",
    "skills_instructions",
    "recommended_plugins",
    "codex_internal_context",
    "goal_context",
    "user_action",
    "model_switch",
    "INSTRUCTIONS",
)
_ENVELOPE = re.compile(rf"<({'|'.join(_ENVELOPES)})(?:\s[^>]*)?>")
_ANY_ENVELOPE = re.compile(r"<([a-z][a-z_ ]*)>.*</\1>\s*\Z", re.DOTALL)
_BLANKS = re.compile(r"\s+")
_AGENTS_MD = "# AGENTS.md instructions"
_AGENT_ROLE = "You are `/root"
_IDE_REQUEST = "## My request for Codex:"
_SHELL_COMMAND = "<user_shell_command>"
# Possessive, here and below: what an agent wrote may be megabytes made to be divided in every way.
_WORKING_DIRECTORY = re.compile(r"<cwd>\s*+([^<\n]++)\s*+</cwd>|Current working directory:\s*([^\n]+)")
_UNSPOKEN = re.compile(r"<image[^<>]*>|</image>|\[[Ii]mage(?: #\d+)?\]|\s+")


def clean(text: str) -> str:
    """Text as a person would search it: without blobs, and of a long one the beginning and the end."""
    if "base64," in text:
        text = _DATA_URL.sub("[data]", text)
    if "gAAAAA" in text:
        text = _FERNET.sub("[encrypted]", text)
    return clip(text)


def content_text(content: Any) -> str:
    """The words of a message: a string, or the text parts of a list; an image is named, encrypted text is not shown."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    parts: list[str] = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict):
            said = _part_text(part)
            if said:
                parts.append(said)
    return "\n".join(parts)


def _part_text(part: dict[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    kind = part.get("type")
    if kind in ("input_image", "image", "local_image"):
        return "[image]"
    encrypted = part.get("encrypted_content")
    if isinstance(encrypted, str):
        return f"[encrypted, {len(encrypted)} characters]"
    nested = part.get("content")
    return nested if isinstance(nested, str) else ""


def prompt_of(text: str) -> str:
    """What a person asked: less the envelopes glued before it and the frame of an IDE; "" if it is all injected."""
    text = text[_envelopes_end(text) :]
    if text.startswith(_AGENT_ROLE):
        return ""
    if _IDE_REQUEST in text:
        text = text.rpartition(_IDE_REQUEST)[2]
    return text.strip()


def _envelopes_end(text: str) -> int:
    """Where the prompt begins. By position: a text may be half a million empty envelopes, too many to copy the rest."""
    at = _blanks_end(text, 0)
    while at < len(text):
        closing = "</INSTRUCTIONS>"
        if not text.startswith(_AGENTS_MD, at):
            opening = _ENVELOPE.match(text, at)
            if opening is None:
                break
            closing = f"</{opening[1]}>"
        end = text.find(closing, at)
        at = len(text) if end < 0 else _blanks_end(text, end + len(closing))
    return at


def _blanks_end(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


def is_enveloped(text: str) -> bool:
    """Whether all of it stands in one tag: a later version's envelope that is not known by name yet."""
    return text.startswith("<") and _ANY_ENVELOPE.match(text) is not None


def shell_command_of(text: str) -> str | None:
    """The command a person ran with `!`, which Codex tells the model in an envelope."""
    text = text.lstrip()
    if not text.startswith(_SHELL_COMMAND):
        return None
    command, closing, _ = text.partition("<command>")[2].partition("</command>")
    return command.strip() if closing else ""


def spoken(text: str) -> str:
    """What two records of the same prompt have in common: one of them marks where images were."""
    return _UNSPOKEN.sub("", text)


def working_directory(text: str) -> str | None:
    """The folder named in an <environment_context>."""
    if "<environment_context>" not in text:
        return None
    found = _WORKING_DIRECTORY.search(text)
    return (found[1] or found[2]).strip() or None if found else None


def without_userinfo(url: str) -> str:
    """A repository's address less the credentials that may stand in it."""
    if "://" not in url:  # git@host:owner/repo names a login, not a person
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
