"""One line of a rollout being read: what the file said before it, how its records are named, what it gives.

**Names.** A fork or a sub-agent may copy its parent's history into its own file: with new timestamps, without some
of the records, or only the last few turns. So an event's name is made of what a copy keeps: the id of its turn,
and a hash of what it says (with a number when the turn says the same thing again). Turn ids are unique, so a
child's own records never meet its parent's later ones, and a record that was left out changes no other name.

Where there is no such id (before 2026; or ids that are mere counters), a running hash over every response item
and turn id stands in for it: an equal prefix gives equal names, and the first difference separates all that
follows. That hash begins empty for plain sessions and for all that replay them, through any number of forks: names
are looked up within one lineage only, so a constant is enough. Only a sub-agent that starts clean begins with its own
id, since it is in its parent's lineage and may open with the very same words.

**Carry** holds short strings, numbers and flags, never a list or a dict: undoing a line is copying it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from sessiond.adapters._codex_text import clean
from sessiond.adapters.wording import one_line
from sessiond.model import Carry, Event, Fact, Key, Kind, Link, Record, Role, lineage_key, session_key

if TYPE_CHECKING:
    from collections.abc import Iterable

_HASH_BYTES = 9
_TOKEN = 1 + 2 * _HASH_BYTES  # one letter that is no hex digit, then a hash
_SEEN = 64 * _TOKEN
_MIRROR = _TOKEN + 1
_MIRRORS = 16 * _MIRROR

# What the model made: tokens are shown on the last of these before their record.
_BY_MODEL = {Kind.ASSISTANT_MSG, Kind.THINKING, Kind.TOOL_CALL, Kind.TEST_RUN, Kind.EDIT, Kind.DECISION}


def digest(*parts: str) -> str:
    joined = "\x1f".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=_HASH_BYTES).hexdigest()


class Reading:
    """The line at hand: `carry` is what came before, `records` what it gives."""

    __slots__ = ("carry", "ordinal", "records", "ts")

    def __init__(self, carry: Carry, ts: str | None, ordinal: int | None = None) -> None:
        self.carry = carry
        self.ts = ts
        self.ordinal = ordinal
        self.records: list[Record] = []

    # --- turns and names ------------------------------------------------------------------------------

    def enter_turn(self, turn_id: object) -> None:
        """The records that follow belong to this turn."""
        carry = self.carry
        if not isinstance(turn_id, str) or not turn_id or carry.get("turn") == turn_id:
            return
        carry["turn"] = turn_id[:200]
        if turn_id.isdigit():  # a counter of one process: another session has the same
            carry["chain"] = digest(carry.get("chain", ""), "turn", turn_id)
            carry.pop("anchor", None)
        else:
            carry["anchor"] = f"{carry.get('seed', '')}{turn_id[:200]}"
        carry.pop("seen", None)
        self.begin_turn()

    def begin_turn(self) -> None:
        for name in ("last", "spent", "mirrors", "thought", "thoughts"):
            self.carry.pop(name, None)

    def advance(self, *said: str) -> None:
        """A response item goes by: without turn ids, it is what tells one history from another."""
        carry = self.carry
        if "anchor" not in carry:
            carry["chain"] = digest(carry.get("chain", ""), *said)
            carry.pop("seen", None)

    def anchor(self) -> str:
        carry = self.carry
        anchor: str = carry.get("anchor") or carry.get("chain", "")
        return anchor

    def key(self, tag: str, *said: str) -> Key:
        """The name of what is said here; `tag` is one letter beyond f."""
        token = tag + digest(*said)
        seen: str = self.carry.get("seen", "")
        again = seen.count(token)
        self.carry["seen"] = (seen + token)[-_SEEN:]
        return lineage_key(f"{self.anchor()}:{token}:{again}" if again else f"{self.anchor()}:{token}")

    def mirrored(self, side: str, other: str, tag: str, said: str) -> bool:
        """Whether the other side of the file (items or UI events) said the same a moment ago; once per saying."""
        hashed = tag + digest(said)
        mirrors: str = self.carry.get("mirrors", "")
        if other + hashed in mirrors:
            self.carry["mirrors"] = mirrors.replace(other + hashed, "", 1)
            return True
        self.carry["mirrors"] = (mirrors + side + hashed)[-_MIRRORS:]
        return False

    # --- whose turn it is -----------------------------------------------------------------------------

    def is_replay(self) -> bool:
        """Whether a sub-agent's file is still repeating its parent, as far as the file itself can tell."""
        carry = self.carry
        own_from = carry.get("own_from")
        if own_from is not None and self.ordinal is not None:
            return bool(self.ordinal < own_from)
        return bool(carry.get("replays")) and _is_older(carry.get("turn"), carry.get("id"))

    def is_agents(self) -> bool:
        """Whether a prompt here was written by an agent: in a sub-agent, all but what it repeats of a person's."""
        carry = self.carry
        if not carry.get("side"):
            return False
        nested = carry.get("nested")  # the oldest sub-agent among those it repeats
        return not self.is_replay() or (nested is not None and not _is_older(carry.get("turn"), nested))

    # --- records --------------------------------------------------------------------------------------

    def event(
        self,
        kind: Kind,
        key: Key,
        *,
        role: Role = Role.SYSTEM,
        summary: str = "",
        text: str = "",
        tool: str | None = None,
        parent: Key | None = None,
        is_error: bool = False,
        is_turn: bool = False,
        files: Iterable[str] = (),
    ) -> None:
        carry = self.carry
        last = carry.get("last")
        self.records.append(
            Event(
                kind=kind,
                key=key,
                parent_key=parent or (Key(last) if last else None),
                ts=self.ts,
                role=role,
                tool=tool,
                summary=one_line(clean(summary[:1500])),
                text=clean(text),
                is_sidechain=bool(carry.get("side")),
                is_error=is_error,
                is_turn=is_turn,
                files=tuple(files),
            )
        )
        carry["last"] = key
        if kind in _BY_MODEL:
            carry["spent"] = key

    def link_call(self, call_id: str, key: Key) -> None:
        if call_id:
            self.records.append(Link(session_key("call:" + call_id), key, self.ts))

    def link_result(self, call_id: str, key: Key) -> None:
        if call_id:
            self.records.append(Link(session_key("result:" + call_id), key, self.ts))

    def fact(self, name: str, value: object, *, rank: int = 0, first: bool = False) -> None:
        """Say it once for as long as it stays the same."""
        if not isinstance(value, str) or not value:
            return
        slot = f"{name}={rank}"
        if first and slot in self.carry:
            return
        known = value if len(value) <= 400 else digest(value)
        if self.carry.get(slot) != known:
            self.carry[slot] = known
            self.records.append(Fact(name, value, rank, first))


def _is_older(turn_id: object, session_id: object) -> bool:
    """By the time that both carry (UUIDv7): was the turn begun before the session was? Unknown is no."""
    if not isinstance(turn_id, str) or not isinstance(session_id, str):
        return False
    if len(turn_id) != 36 or len(session_id) != 36 or turn_id[14] != "7" or session_id[14] != "7":
        return False
    return turn_id[:13].lower() < session_id[:13].lower()
