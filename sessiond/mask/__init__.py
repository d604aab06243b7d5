"""Takes secrets out of text before it is kept, shown or sent: `[masked:github-token]` stands where one stood.

Called for every summary, so clean text must cost next to nothing: a few substring tests decide whether any pattern
is tried at all. Masking what is masked changes nothing.

    own       the user's patterns          names      what stands under a name: `password=...`
    pem       private keys                 context    what stands in a header, an address, a cookie
    vendors   tokens known by their shape  commands   what stands behind a flag: `mysql -p...`
                                           values     is it a secret that stands there?
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.mask.commands import mask_by_command
from sessiond.mask.context import mask_by_context
from sessiond.mask.names import FLAG_NAME, label_under, mask_by_name
from sessiond.mask.own import OwnPattern, too_slow
from sessiond.mask.pem import mask_private_keys
from sessiond.mask.vendors import mask_tokens, may_hold_token

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Masker", "too_slow"]

# Taking one secret out can lay bare the beginning of the next; more rounds than this have never been needed.
_ROUNDS = 4


class Masker:
    """Built in: keys, tokens, passwords of the usual kinds. `extra_patterns` are regular expressions of the user."""

    def __init__(self, extra_patterns: Iterable[str] = ()) -> None:
        self._own = tuple(OwnPattern(pattern) for pattern in extra_patterns)

    def mask(self, text: str) -> str:
        """The text without its secrets; linear in its length."""
        for _ in range(_ROUNDS):
            masked = self._mask_once(text)
            if masked == text:
                return text
            text = masked
        return text

    def mask_json(self, value: Any) -> Any:
        """A copy with every string masked, names too; what stands under a secret's name is masked whatever it is."""
        holder: list[Any] = [None]
        waiting: list[tuple[Any, Any, Any, Any]] = [(value, holder, 0, None)]
        while waiting:  # not by recursion: JSON may be nested deeper than Python's stack
            value, into, at, name = waiting.pop()
            if isinstance(value, str):
                into[at] = self._mask_value(value, name)
            elif isinstance(value, list | tuple):
                into[at] = [None] * len(value)
                waiting += ((each, into[at], n, _name_in_list(value, n, name)) for n, each in enumerate(value))
            elif isinstance(value, dict):
                into[at] = self._renamed(value)
                waiting += (
                    (each, into[at], new, _name_in_object(value, old))
                    for (old, each), new in zip(value.items(), into[at], strict=True)
                )
            else:
                into[at] = value
        return holder[0]

    def _renamed(self, value: dict[Any, Any]) -> dict[Any, Any]:
        names: dict[Any, None] = {}
        for name in value:
            new = self.mask(name) if isinstance(name, str) else name
            count = 2
            while new in names:  # two secrets of a kind must not become one entry
                new, count = f"{self.mask(name)}#{count}", count + 1
            names[new] = None
        return names

    def _mask_value(self, value: str, name: Any) -> str:
        masked = self.mask(value)
        if masked != value or not isinstance(name, str):
            return masked
        label = label_under(name, value)
        return masked if label is None else f"[masked:{label}]"

    def _mask_once(self, text: str) -> str:
        for pattern in self._own:
            text = pattern.mask(text)
        if "-" in text and ("----" in text or "Private-Lines" in text):
            text = mask_private_keys(text)
        if may_hold_token(text):
            text = mask_tokens(text)
        low = text.lower()
        text = mask_by_context(text, low)
        text = mask_by_command(text, low)
        return mask_by_name(text, low)


def _name_in_list(value: list[Any] | tuple[Any, ...], n: int, name: Any) -> Any:
    """The list's own, or the flag before it: ["--password", "..."]"""
    before = value[n - 1] if n else None
    return before if isinstance(before, str) and FLAG_NAME.fullmatch(before) else name


def _name_in_object(value: dict[Any, Any], name: Any) -> Any:
    """Its own, or as lists of variables and headers have it: {"name": "DB_PASSWORD", "value": "..."}"""
    return value.get("name", value.get("key", name)) if name == "value" else name
