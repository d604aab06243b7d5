"""What was spent, summed by session, model and quarter of an hour: small enough to price, fine enough for any zone.

A zone's day begins at a quarter of an hour everywhere on Earth, so whoever folds quarters into days is right in
Kolkata and on the days the clocks change. A child whose parent already states what it spent is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from sessiond.store.connect import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import apsw

    from sessiond.store.reader import Wanted

QUARTER_SECONDS = 900


class Tokens(NamedTuple):
    input: int = 0  # uncached
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING = Tokens()


class Spent(NamedTuple):
    session_uid: str
    agent: str
    repo: str | None
    model: str | None
    quarter: int  # of an hour, counted from 1970 in UTC
    step: int  # how many of the `steps` asked for the prompt of each of these responses was longer than
    tokens: Tokens


_PROMPT = "ifnull(u.input_tokens, 0) + ifnull(u.cache_read_tokens, 0) + ifnull(u.cache_write_tokens, 0)"
_SPENT = f"""
SELECT u.session_uid, s.flavor, s.repo, u.model,
       coalesce(unixepoch(u.ts), unixepoch(s.ended_at), unixepoch(s.discovered_at)) / {QUARTER_SECONDS} AS quarter,
       STEP AS step,
       sum(ifnull(u.input_tokens, 0)), sum(ifnull(u.output_tokens, 0)),
       sum(ifnull(u.cache_read_tokens, 0)), sum(ifnull(u.cache_write_tokens, 0))
  FROM usage AS u JOIN _session AS s ON s.uid = u.session_uid
 WHERE NOT u.is_in_parent
   AND {_PROMPT} + ifnull(u.output_tokens, 0) > 0
   AND (:since IS NULL OR coalesce(u.ts, s.ended_at, s.discovered_at) >= :since)
   AND (:until IS NULL OR coalesce(u.ts, s.ended_at, s.discovered_at) < :until)
   AND (:models IS NULL OR u.model IN (SELECT value FROM json_each(:models)))
   AND (:agents IS NULL OR s.flavor IN (SELECT value FROM json_each(:agents)))
   AND (:branches IS NULL OR s.git_branch IN (SELECT value FROM json_each(:branches)))
   AND (:outcomes IS NULL OR s.outcome IN (SELECT value FROM json_each(:outcomes)))
   AND (:repos IS NULL OR EXISTS (SELECT 1 FROM json_each(:repos)  -- a path, or its last part
                                   WHERE s.repo = value OR substr(s.repo, -length(value) - 1) = '/' || value))
 GROUP BY s.id, u.model, quarter, step
 ORDER BY quarter, s.id, u.model, step
"""


def spent(db: apsw.Connection, wanted: Wanted, steps: Sequence[int] = ()) -> Iterator[Spent]:
    """Every token of these sessions once, oldest first. Times and models are those of the responses themselves.

    A response without a time counts where its session was active last. `steps`, in rising order, are the lengths of
    a prompt at which a price changes: responses on different sides of one are not summed.
    """
    longer = " + ".join(f"({_PROMPT} > :step{number})" for number in range(len(steps)))
    bound: dict[str, Any] = {f"step{number}": step for number, step in enumerate(steps)}
    for name in ("models", "agents", "branches", "outcomes", "repos"):
        given = getattr(wanted, name)
        bound[name] = orjson.dumps(list(given)).decode() if given else None
    bound.update(since=wanted.since, until=wanted.until)
    for uid, agent, repo, model, quarter, step, *tokens in db.execute(_SPENT.replace("STEP", longer or "0"), bound):
        yield Spent(uid, agent, repo, model, quarter, step, Tokens(*tokens))


def models(db: apsw.Connection) -> list[str]:
    """Every model that a response names."""
    return [row[0] for row in rows(db, "SELECT DISTINCT model FROM usage WHERE model IS NOT NULL ORDER BY model")]


def titles(db: apsw.Connection, uids: Sequence[str]) -> dict[str, str | None]:
    query = "SELECT uid, title FROM _session WHERE uid IN (SELECT value FROM json_each(?)) ORDER BY uid"
    return dict(rows(db, query, (orjson.dumps(list(uids)).decode(),)))
