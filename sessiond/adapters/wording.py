"""How adapters put an agent's words: one line for people, a bounded text for the search index, no base64.

Nothing here looks at more of a text than it may return, so a megabyte of tool output costs little.
"""

from __future__ import annotations

import re
from typing import Any

TEXT_HEAD = 15_000
TEXT_TAIL = 5_000
TEXT_LIMIT = TEXT_HEAD + TEXT_TAIL
LINE_LIMIT = 300

_ANSI = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_OPAQUE_KEYS = frozenset({"signature", "thinkingSignature", "encrypted_content", "encryptedContent"})
_UNBROKEN = 1_000  # a string this long without a blank is data, not words

_URL = re.compile(
    r"https?://[\w.-]{1,100}/[\w./~%-]{0,200}?"
    r"(?:issues?|pull|pulls|merge_requests|browse|tickets?|stories|work_items)/[\w-]{1,60}"
)
_ISSUE_KEY = re.compile(r"(?<![\w-])([A-Z][A-Z0-9]{1,9}-[1-9]\d{0,6})(?![\w-]*\.)(?!\w)")
_NUMBERED = re.compile(r"\b(?:issue|bug|ticket|gh|pr|pull request)[ /_-]?#?([1-9]\d{0,6})\b", re.IGNORECASE)
# They look like issue keys and name standards, ciphers and models.
_NO_PROJECT = frozenset(
    {
        *(
            "UTF",
            "SHA",
            "ISO",
            "GPT",
            "CVE",
            "RFC",
            "HTTP",
            "MD",
            "AES",
            "RSA",
            "PEP",
            "ES",
            "TLS",
            "UTC",
            "UCS",
        ),
        *("IPV", "TCP", "COVID", "BASE", "CP", "EAN", "IEEE", "ANSI", "RS", "GB"),
    }
)


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """The beginning of a text as one line, runs of blanks collapsed and terminal colours taken out."""
    head = text[: limit * 4]
    if "\x1b" in head:
        head = _ANSI.sub("", head)
    return " ".join(head.split())[:limit]


def first_line(text: str) -> str:
    """The first line of a text that says something: past rules, an exit code and a traceback's frames."""
    prefix = ""
    for raw in text[: LINE_LIMIT * 10].splitlines():
        line = one_line(raw)
        if not any(map(str.isalnum, line)):
            continue
        if line.startswith("Exit code ") and not prefix:
            prefix = line
            continue
        if line.startswith("Traceback (most recent call last)"):
            line = one_line(text[-LINE_LIMIT * 4 :].rstrip().rpartition("\n")[2])
        return f"{prefix}: {line}" if prefix else line
    return prefix


def clip(text: str) -> str:
    """A text short enough to keep: its first 15,000 and last 5,000 characters."""
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:TEXT_HEAD]}\n...\n{text[-TEXT_TAIL:]}"


def searchable(value: Any) -> str:
    """The words in a JSON value, in order and bounded: every string but base64, signatures and the like."""
    found: list[str] = []
    room = TEXT_LIMIT
    waiting = [value]
    while waiting and room > 0:
        each = waiting.pop()
        if isinstance(each, str):
            if each and not _is_opaque(each):
                found.append(clip(each))
                room -= len(found[-1])
        elif isinstance(each, dict):
            if each.get("type") != "base64":
                waiting.extend(part for name, part in reversed(each.items()) if name not in _OPAQUE_KEYS)
        elif isinstance(each, list):
            waiting.extend(reversed(each))
    return clip("\n".join(found))


def _is_opaque(text: str) -> bool:
    return len(text) >= _UNBROKEN and not any(map(str.isspace, text[:_UNBROKEN]))


def media_note(block: dict[str, Any]) -> str:
    """An image or document in a few words: `image/png, 528 kB`."""
    source = block.get("source")
    source = source if isinstance(source, dict) else block
    kind = source.get("media_type") or source.get("mimeType") or block.get("type")
    kind = kind[:80] if isinstance(kind, str) else "media"
    data = source.get("data")
    if isinstance(data, str):
        return f"{kind}, {size_note(len(data) * 3 // 4)}"
    url = source.get("url") or source.get("file_id")
    return f"{kind}, {one_line(url)}" if isinstance(url, str) and not url.startswith("data:") else kind


def size_note(size_bytes: int) -> str:
    if size_bytes < 1_000:
        return f"{size_bytes} B"
    if size_bytes < 1_000_000:
        return f"{size_bytes / 1_000:.0f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"


def task_ref_in(text: str) -> str | None:
    """The issue, ticket or pull request that a prompt or branch name speaks of, if any."""
    head = text[:4_000]
    if "://" in head and (url := _URL.search(head)):
        return url[0]
    for key in _ISSUE_KEY.finditer(head):
        if key[1].partition("-")[0] not in _NO_PROJECT:
            return key[1]
    numbered = _NUMBERED.search(head)
    return f"#{numbered[1]}" if numbered else None
