"""What went wrong, and what else was noticed, over all sessions: counted by name, and the newest places of each.

A name is an error's fingerprint, or a signal's. Both are kept with the digests, so that a session whose events have
left still counts. Nothing here happens after its session was active last: an agent's clock may be far ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from sessiond.store.reader import Wanted

BUDGET_OVERRUN = "budget_overrun"


@dataclass(frozen=True, slots=True)
class Weeks:
    """The moments that a trend compares: a week ago and two weeks ago, as the store writes times."""

    one_ago: str
    two_ago: str


@dataclass(frozen=True, slots=True)
class Tally:
    """One name over all sessions that were asked for."""

    name: str
    sessions: int
    occurrences: int
    first_at: str
    last_at: str
    recent: int  # sessions with it in the last week
    before: int  # and in the week before that
    flavors: tuple[str, ...]
    repos: tuple[str, ...]
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sighting:
    """One name in one session."""

    session_uid: str
    flavor: str
    repo: str | None
    title: str | None
    tool: str | None
    sample: str
    count: int
    first_seq: int
    last_seq: int
    first_at: str
    last_at: str
    followed_by: dict[str, Any] | None
    recovered_by: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where names come from."""

    query: str
    over: dict[int, str] = field(default_factory=dict)


ERRORS = Source("""
SELECT o.fingerprint AS name, s.id AS session, s.uid, s.flavor, s.repo, s.title, nullif(o.tool, '') AS tool, o.sample,
       o.count, o.first_seq, o.last_seq, min(ifnull(o.first_at, s.active_at), s.active_at) AS first_at,
       min(ifnull(o.last_at, s.active_at), s.active_at) AS last_at, o.followed_by, o.recovered_by
  FROM _occurrence AS o JOIN _session AS s ON s.id = o.session_id
""")
SIGNALS = Source("""
SELECT g.signal AS name, s.id AS session, s.uid, s.flavor, s.repo, s.title, NULL AS tool, g.detail AS sample,
       1 AS count, g.seq AS first_seq, g.seq AS last_seq, s.active_at AS first_at, s.active_at AS last_at,
       NULL AS followed_by,
       (SELECT o.recovered_by FROM _occurrence AS o
         WHERE o.fingerprint = g.fingerprint AND o.session_id = g.session_id
         ORDER BY o.last_seq DESC, o.tool LIMIT 1) AS recovered_by
  FROM _signal AS g JOIN _session AS s ON s.id = g.session_id
""")
_OVERRUNS = f"""
SELECT '{BUDGET_OVERRUN}' AS name, s.id AS session, s.uid, s.flavor, s.repo, s.title, NULL AS tool,
       b.value AS sample, 1 AS count, s.next_seq - 1 AS first_seq, s.next_seq - 1 AS last_seq,
       s.active_at AS first_at, s.active_at AS last_at, NULL AS followed_by, NULL AS recovered_by
  FROM json_each(:over) AS b JOIN _session AS s ON s.id = CAST(b.key AS INTEGER)
"""

_OF_SESSIONS = """
       (:agents IS NULL OR s.flavor IN (SELECT value FROM json_each(:agents)))
   AND (:branches IS NULL OR s.git_branch IN (SELECT value FROM json_each(:branches)))
   AND (:outcomes IS NULL OR s.outcome IN (SELECT value FROM json_each(:outcomes)))
   AND (:models IS NULL OR (SELECT v.model FROM sessions AS v WHERE v.session_uid = s.uid)
                           IN (SELECT value FROM json_each(:models)))
   AND (:repos IS NULL OR EXISTS (SELECT 1 FROM json_each(:repos) AS r  -- a path, or its last part
                                   WHERE s.repo = r.value OR substr(s.repo, -length(r.value) - 1) = '/' || r.value))
"""


def overruns(over: dict[int, str]) -> Source:
    """The signal of the sessions that spent too much, by row, each with how that is said."""
    return Source(_OVERRUNS, over)


def tallies(
    db: apsw.Connection,
    source: Source,
    wanted: Wanted,
    weeks: Weeks,
    *,
    names: Sequence[str] | None = None,
    least_sessions: int = 1,
) -> list[Tally]:
    """One for each name: most sessions first, then most occurrences, then the newest."""
    query = f"""
    SELECT name, count(DISTINCT session), sum(count), min(first_at), max(last_at),
           count(DISTINCT iif(last_at >= :one_ago, session, NULL)),
           count(DISTINCT iif(first_at < :one_ago AND last_at >= :two_ago, session, NULL)),
           json_group_array(DISTINCT flavor), json_group_array(DISTINCT repo), json_group_array(DISTINCT tool)
      FROM ({_seen(source, names)}) GROUP BY name HAVING count(DISTINCT session) >= :least
     ORDER BY 2 DESC, 3 DESC, 5 DESC, 1
    """
    bound = {
        **_bound(source, wanted, names),
        "one_ago": weeks.one_ago,
        "two_ago": weeks.two_ago,
        "least": least_sessions,
    }
    return [Tally(*row[:7], *(_listed(each) for each in row[7:])) for row in rows(db, query, bound)]


def sightings(
    db: apsw.Connection, source: Source, wanted: Wanted, name: str, *, limit: int | None = None
) -> list[Sighting]:
    """Where a name was seen, the newest first."""
    query = f"""
    SELECT uid, flavor, repo, title, tool, sample, count, first_seq, last_seq, first_at, last_at, followed_by,
           recovered_by
      FROM ({_seen(source, [name])}) ORDER BY last_at DESC, uid, last_seq DESC, first_seq, tool LIMIT :limit
    """
    bound = {**_bound(source, wanted, [name]), "limit": -1 if limit is None else limit}
    return [Sighting(*row[:11], *map(_object, row[11:])) for row in rows(db, query, bound)]


def sessions_of(db: apsw.Connection, source: Source, wanted: Wanted, name: str) -> list[int]:
    """The rows of the sessions that a name was seen in: what `tokens` knows them by."""
    query = f"SELECT DISTINCT session FROM ({_seen(source, [name])}) ORDER BY session"
    return [row[0] for row in rows(db, query, _bound(source, wanted, [name]))]


def containing(db: apsw.Connection, words: str) -> list[str]:
    """The errors that have these words in a sample, as they stand, in capitals or not."""
    query = """
    SELECT DISTINCT fingerprint FROM _occurrence WHERE instr(lower(sample), lower(?)) ORDER BY fingerprint
    """
    return [row[0] for row in rows(db, query, (words,))]


def _seen(source: Source, names: Sequence[str] | None) -> str:
    # Not "names is NULL or ...": the index on the name would not be used.
    named = "" if names is None else "AND name IN (SELECT value FROM json_each(:names))"
    return f"""
    SELECT * FROM ({source.query} WHERE {_OF_SESSIONS})
     WHERE (:since IS NULL OR last_at >= :since) AND (:until IS NULL OR first_at < :until) {named}
    """


def _bound(source: Source, wanted: Wanted, names: Sequence[str] | None) -> dict[str, Any]:
    bound: dict[str, Any] = {"since": wanted.since, "until": wanted.until}
    for name in ("agents", "branches", "outcomes", "models", "repos"):
        given = getattr(wanted, name)
        bound[name] = _json(list(given)) if given else None
    bound["names"] = _json(list(names or ()))
    bound["over"] = _json({str(session): words for session, words in source.over.items()})
    return bound


def _json(given: Any) -> str:
    return orjson.dumps(given).decode()


def _listed(found: str) -> tuple[str, ...]:
    return tuple(sorted(each for each in orjson.loads(found) if each is not None))


def _object(found: str | None) -> dict[str, Any] | None:
    return None if found is None else dict(orjson.loads(found))


_IN_PARENT = """
SELECT f.session_id FROM _fact AS f JOIN _session AS s ON s.id = f.session_id JOIN _session AS p ON p.uid = s.parent
 WHERE f.name = 'usage_in_parent'
   AND EXISTS (SELECT 1 FROM _usage AS v WHERE v.session_id = p.id AND v.output_tokens IS NOT NULL)
 ORDER BY f.session_id
"""
_SPENT = """
SELECT session_id, ifnull(input_tokens, 0) + ifnull(output_tokens, 0) + ifnull(cache_read_tokens, 0)
       + ifnull(cache_write_tokens, 0)
  FROM _usage
"""


def tokens(db: apsw.Connection) -> dict[int, int]:
    """What every session spent, by its row. A child whose parent already states what it spent is left out."""
    spent: dict[int, int] = {}
    # Summed here: a GROUP BY sorts every row first, which takes four times as long.
    for session, amount in db.execute(_SPENT):
        spent[session] = spent.get(session, 0) + amount
    for (session,) in rows(db, _IN_PARENT):
        spent.pop(session, None)
    return spent


def is_distilled(db: apsw.Connection) -> bool:
    """Whether there is any digest: without one nothing of all this is known."""
    return bool(value(db, "SELECT EXISTS (SELECT 1 FROM _digest)"))


def sidechains(db: apsw.Connection) -> set[int]:
    """The sessions that are sub-agents of others: small by nature, so no measure for what a session may spend."""
    return {row[0] for row in rows(db, "SELECT id FROM _session WHERE is_sidechain ORDER BY id")}
