"""The schema, as numbered steps that are only ever appended. `user_version` says how many were taken.

Tables begin with an underscore and are private. The views without one (`sessions`, `events`, `usage`, `errors`,
`files`) are for other programs: documented in docs/architecture.md, and versioned by `SCHEMA_VERSION`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import apsw

from sessiond.errors import ConfigError, SessiondError
from sessiond.store.connect import transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

STEP_1 = """
CREATE TABLE _meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE _counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE _session (
    id              INTEGER PRIMARY KEY,
    uid             TEXT NOT NULL UNIQUE,
    flavor          TEXT NOT NULL,
    native_id       TEXT NOT NULL,
    is_sidechain    INTEGER NOT NULL DEFAULT 0,
    repo            TEXT,
    domain          TEXT,
    cwd             TEXT,
    git_branch      TEXT,
    model           TEXT,               -- as the agent states it; the most used one of _usage goes before it
    title           TEXT,
    task_ref        TEXT,
    parent          TEXT,               -- uid, where the agent states it
    fork_hash       INTEGER,            -- the last record of the main file that another session owns, and where it
    fork_offset     INTEGER,            -- stands: whoever owns it is the parent, where the agent states none
    outcome         TEXT NOT NULL DEFAULT 'unknown',
    outcome_basis   TEXT,
    outcome_reason  TEXT,
    started_at      TEXT,
    ended_at        TEXT,
    stored_at       TEXT,               -- when the newest event came in: what "quiet" means if its ts is absurd
    discovered_at   TEXT NOT NULL,
    ingested_at     TEXT,
    analyzed_at     TEXT,
    evicted_at      TEXT,
    source_gone_at  TEXT,
    pinned          INTEGER NOT NULL DEFAULT 0,
    next_seq        INTEGER NOT NULL DEFAULT 1,
    events          INTEGER NOT NULL DEFAULT 0,
    turns           INTEGER NOT NULL DEFAULT 0,
    retries         INTEGER NOT NULL DEFAULT 0,
    refold          INTEGER NOT NULL DEFAULT 0,  -- something at or below the digested seq changed
    revision        INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX _session_revision ON _session (revision);
CREATE INDEX _session_ended ON _session (ended_at);
CREATE INDEX _session_parent ON _session (parent) WHERE parent IS NOT NULL;

CREATE TABLE _fact (                    -- everything an agent says about a session, best rank first
    session_id      INTEGER NOT NULL REFERENCES _session (id),
    name            TEXT NOT NULL,
    rank            INTEGER NOT NULL,
    value           TEXT NOT NULL,
    PRIMARY KEY (session_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE _lineage (                 -- sessions joined by fork or parent ids; one not in here is its own root
    uid             TEXT PRIMARY KEY,
    root            TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX _lineage_root ON _lineage (root);

CREATE TABLE _source (                  -- a file and how far it was read; kept for ever
    id              INTEGER PRIMARY KEY,
    session_id      INTEGER REFERENCES _session (id),
    flavor          TEXT NOT NULL,
    home            BLOB NOT NULL,      -- paths are bytes: a file name need not be text
    path            BLOB NOT NULL UNIQUE,
    below           BLOB NOT NULL,      -- the path below the home
    member          TEXT NOT NULL,
    role            TEXT NOT NULL,
    reader          TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('live', 'gone', 'excluded', 'foreign', 'forgotten')),
    is_timeless     INTEGER NOT NULL DEFAULT 0,
    generation_id   INTEGER,
    device          INTEGER NOT NULL DEFAULT 0,
    inode           INTEGER NOT NULL DEFAULT 0,
    size            INTEGER NOT NULL DEFAULT 0,
    mtime_ns        INTEGER NOT NULL DEFAULT 0,
    read_offset     INTEGER NOT NULL DEFAULT 0,
    head            BLOB NOT NULL DEFAULT x'',
    head_bytes      INTEGER NOT NULL DEFAULT 0,
    marker          BLOB NOT NULL DEFAULT x'',
    checksum        INTEGER NOT NULL DEFAULT 0,
    skipped         INTEGER NOT NULL DEFAULT 0,
    skipped_hash    BLOB NOT NULL DEFAULT x'',
    pending         BLOB NOT NULL DEFAULT x'',
    pending_bytes   INTEGER NOT NULL DEFAULT 0,
    carry           BLOB NOT NULL DEFAULT x'7b7d',
    adapter_version INTEGER NOT NULL DEFAULT 0,
    seed            BLOB NOT NULL DEFAULT x'7b7d',  -- what the carry begins with: facts of the path
    first_ts        TEXT,               -- of its first record: with the native id, what ownership is decided by
    discovered_at   TEXT NOT NULL,
    gone_at         TEXT,
    is_restorable   INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX _source_session ON _source (session_id, member);
CREATE INDEX _source_inode ON _source (inode, device);

CREATE TABLE _generation (              -- one life of a file's content; superseded once it is closed
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    source_id       INTEGER NOT NULL REFERENCES _source (id),
    number          INTEGER NOT NULL,
    opened_at       TEXT NOT NULL,
    closed_at       TEXT,
    reason          TEXT,               -- why the one before it ended
    UNIQUE (source_id, number)
) STRICT;

CREATE TABLE _frame (
    id              INTEGER PRIMARY KEY,
    generation_id   INTEGER NOT NULL REFERENCES _generation (id),
    start           INTEGER NOT NULL,
    stop            INTEGER NOT NULL,
    codec           TEXT NOT NULL,
    data            BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX _frame_place ON _frame (generation_id, start);

CREATE TABLE _reject (
    generation_id   INTEGER NOT NULL REFERENCES _generation (id),
    start           INTEGER NOT NULL,
    length          INTEGER NOT NULL,
    reason          TEXT NOT NULL,
    hash            BLOB NOT NULL,
    PRIMARY KEY (generation_id, start)
) STRICT, WITHOUT ROWID;

CREATE TABLE _event (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: the search index knows events by it
    session_id      INTEGER NOT NULL REFERENCES _session (id),
    seq             INTEGER NOT NULL,
    generation_id   INTEGER NOT NULL,
    start           INTEGER NOT NULL,
    length          INTEGER NOT NULL,
    block           INTEGER NOT NULL,
    ts              TEXT,
    kind            TEXT NOT NULL,
    role            TEXT,
    tool            TEXT,
    summary         TEXT NOT NULL,
    parent_seq      INTEGER,
    is_sidechain    INTEGER NOT NULL,
    is_error        INTEGER NOT NULL,
    is_turn         INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX _event_seq ON _event (session_id, seq);

CREATE TABLE _key (                     -- a record's name -> its event, or (target) the name of the one it leads to
    hash            INTEGER NOT NULL,
    session_id      INTEGER NOT NULL,
    source_id       INTEGER NOT NULL,
    seq             INTEGER,
    target          INTEGER,
    scope           INTEGER NOT NULL,   -- 0, or of a lineage's name: the hash of its root
    PRIMARY KEY (hash, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX _key_lineage ON _key (scope) WHERE scope <> 0;

CREATE TABLE _waiting (                 -- parents and patches whose record has not come yet
    id              INTEGER PRIMARY KEY,
    hash            INTEGER NOT NULL,
    session_id      INTEGER NOT NULL,
    seq             INTEGER,
    patch           TEXT
) STRICT;
CREATE INDEX _waiting_hash ON _waiting (hash);

CREATE TABLE _line_count (              -- how many equal lines a generation has had: what names keyless records
    generation_id   INTEGER NOT NULL,
    hash            INTEGER NOT NULL,
    lines           INTEGER NOT NULL,
    PRIMARY KEY (generation_id, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE _usage (
    hash            INTEGER NOT NULL,
    session_id      INTEGER NOT NULL,
    source_id       INTEGER NOT NULL,
    scope           INTEGER NOT NULL,
    seq             INTEGER,            -- the event that shows the sum
    ts              TEXT,
    model           TEXT,
    input_tokens    INTEGER,
    output_tokens   INTEGER,
    cache_read_tokens  INTEGER,
    cache_write_tokens INTEGER,
    reasoning_tokens   INTEGER,
    duration_ms     INTEGER,
    PRIMARY KEY (hash, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX _usage_lineage ON _usage (scope) WHERE scope <> 0;
CREATE INDEX _usage_session ON _usage (session_id, seq);

CREATE TABLE _file (                    -- which event of which session edited which file
    session_id      INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    path            TEXT NOT NULL,
    PRIMARY KEY (session_id, seq, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX _file_path ON _file (path);

CREATE TABLE _unknown (                 -- record types that an adapter did not know
    flavor          TEXT NOT NULL,
    name            TEXT NOT NULL,
    records         INTEGER NOT NULL,
    PRIMARY KEY (flavor, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE _outbox (                  -- what the search index has yet to take in, in commit order
    position        INTEGER PRIMARY KEY AUTOINCREMENT,
    data            BLOB NOT NULL
) STRICT;

CREATE VIEW sessions AS
SELECT s.uid AS session_uid, s.flavor, s.native_id AS native_session_id, s.repo, s.domain, s.cwd, s.git_branch,
       coalesce((SELECT u.model FROM _usage AS u WHERE u.session_id = s.id AND u.model IS NOT NULL
                  GROUP BY u.model ORDER BY count(*) DESC, max(u.ts) DESC LIMIT 1), s.model) AS model,
       s.started_at, s.ended_at, s.outcome, s.outcome_basis, s.outcome_reason, s.task_ref, s.title,
       coalesce(s.parent, (SELECT o.uid FROM _key AS k JOIN _session AS o ON o.id = k.session_id
                            WHERE k.hash = s.fork_hash AND k.scope = 0 AND k.session_id <> s.id)) AS parent_uid,
       s.is_sidechain, s.discovered_at, s.ingested_at, s.analyzed_at, s.evicted_at, s.source_gone_at,
       s.pinned, s.events, s.revision
  FROM _session AS s;

CREATE VIEW events AS
SELECT e.id AS event_id, s.uid AS session_uid, e.seq, e.ts, e.kind, e.role, e.tool, e.summary, e.parent_seq,
       e.is_sidechain, e.is_error, g.closed_at IS NOT NULL AS is_superseded
  FROM _event AS e JOIN _session AS s ON s.id = e.session_id JOIN _generation AS g ON g.id = e.generation_id;

-- is_in_parent: its parent's rows state this once more, so a sum over sessions leaves it out.
CREATE VIEW usage AS
SELECT s.uid AS session_uid, u.seq, u.ts, u.model, u.input_tokens, u.output_tokens, u.cache_read_tokens,
       u.cache_write_tokens, u.reasoning_tokens, u.duration_ms,
       EXISTS (SELECT 1 FROM _fact AS f WHERE f.session_id = s.id AND f.name = 'usage_in_parent')
       AND EXISTS (SELECT 1 FROM _session AS p JOIN _usage AS v ON v.session_id = p.id
                    WHERE p.uid = s.parent AND v.output_tokens IS NOT NULL) AS is_in_parent
  FROM _usage AS u JOIN _session AS s ON s.id = u.session_id;

CREATE VIEW errors AS
SELECT session_uid, seq, ts, kind, tool, summary FROM events
 WHERE (is_error OR kind = 'error') AND NOT is_superseded;

CREATE VIEW files AS
SELECT s.uid AS session_uid, f.path, count(*) AS edits FROM _file AS f JOIN _session AS s ON s.id = f.session_id
 GROUP BY f.session_id, f.path;
"""

STEP_2 = """
ALTER TABLE _event ADD COLUMN detail TEXT;          -- more of its text, where a digest needs it

ALTER TABLE _session ADD COLUMN digested_seq INTEGER NOT NULL DEFAULT 0;    -- its digest speaks through this event
ALTER TABLE _session ADD COLUMN evicted_seq INTEGER NOT NULL DEFAULT 0;     -- events up to this one have left
ALTER TABLE _session ADD COLUMN evicted_events INTEGER NOT NULL DEFAULT 0;  -- how many of `events` have
ALTER TABLE _session ADD COLUMN alterations INTEGER NOT NULL DEFAULT 0;     -- changes of events that were stored
ALTER TABLE _session ADD COLUMN stale_since TEXT;       -- since when its digest is behind
ALTER TABLE _session ADD COLUMN outcome_due_at TEXT;    -- when it will have been quiet for long enough to tell
-- When it was active last. An agent's clock may be far ahead: then it counts when it was stored.
ALTER TABLE _session ADD COLUMN active_at TEXT GENERATED ALWAYS AS (
    iif(ended_at IS NULL OR ended_at > stored_at, ifnull(stored_at, discovered_at), ended_at)
) VIRTUAL;
DROP INDEX _session_ended;
CREATE INDEX _session_active ON _session (active_at);
UPDATE _session SET stale_since = ifnull(ingested_at, discovered_at);
CREATE INDEX _session_stale ON _session (stale_since) WHERE stale_since IS NOT NULL;
CREATE INDEX _session_due ON _session (outcome_due_at) WHERE outcome_due_at IS NOT NULL;

CREATE INDEX _usage_model ON _usage (session_id, model);

ALTER TABLE _generation ADD COLUMN evicted_to INTEGER NOT NULL DEFAULT 0;   -- bytes before this have left

CREATE TABLE _digest (
    session_id      INTEGER PRIMARY KEY REFERENCES _session (id),
    data            TEXT NOT NULL,      -- docs/digest.md; its `fold` is private
    base            TEXT                -- as it was through evicted_seq: what the events still here are folded onto
) STRICT;

CREATE TABLE _occurrence (              -- an error in a session: kept when the session's events have left
    fingerprint     TEXT NOT NULL,
    session_id      INTEGER NOT NULL,
    tool            TEXT NOT NULL,      -- '' where no tool was at work
    sample          TEXT NOT NULL,
    count           INTEGER NOT NULL,
    first_seq       INTEGER NOT NULL,
    last_seq        INTEGER NOT NULL,
    first_at        TEXT,
    last_at         TEXT,
    followed_by     TEXT,               -- JSON: the next action that went well
    recovered_by    TEXT,               -- JSON: what was done until the same thing went well
    PRIMARY KEY (fingerprint, session_id, tool)
) STRICT, WITHOUT ROWID;
CREATE INDEX _occurrence_session ON _occurrence (session_id);

CREATE TABLE _signal (                  -- a digest's signals, where all sessions can be asked for them at once
    session_id      INTEGER NOT NULL,
    place           INTEGER NOT NULL,   -- in the digest's list
    signal          TEXT NOT NULL,
    seq             INTEGER NOT NULL,   -- the first event that stands for it
    detail          TEXT NOT NULL,
    fingerprint     TEXT,
    PRIMARY KEY (session_id, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE _leaving (                 -- evicted sessions whose rows are not all deleted yet
    session_id      INTEGER PRIMARY KEY,
    through_seq     INTEGER NOT NULL,
    through_frame   INTEGER NOT NULL
) STRICT;

CREATE TABLE _pass (                    -- what the passes did lately
    id              INTEGER PRIMARY KEY,
    name            TEXT NOT NULL,
    ended_at        TEXT NOT NULL,
    report          TEXT NOT NULL
) STRICT;

CREATE TABLE _loss (                    -- events that left before a digest covered them
    id              INTEGER PRIMARY KEY,
    at              TEXT NOT NULL,
    session_id      INTEGER NOT NULL,
    first_seq       INTEGER NOT NULL,
    last_seq        INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
    reason          TEXT NOT NULL,
    acknowledged_at TEXT
) STRICT;

CREATE TABLE _tombstone (               -- what was forgotten: hashes only
    hash            BLOB PRIMARY KEY,
    forgotten_at    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

DROP VIEW errors;
CREATE VIEW errors AS
SELECT o.fingerprint, s.uid AS session_uid, nullif(o.tool, '') AS tool, o.sample, o.count, o.first_seq, o.last_seq,
       o.first_at, o.last_at, o.followed_by, o.recovered_by
  FROM _occurrence AS o JOIN _session AS s ON s.id = o.session_id;

CREATE VIEW digests AS
SELECT s.uid AS session_uid, s.digested_seq AS through_seq, s.analyzed_at, json_remove(d.data, '$.fold') AS digest
  FROM _digest AS d JOIN _session AS s ON s.id = d.session_id;
"""

STEPS: Sequence[str] = (STEP_1, STEP_2)
VERSION = len(STEPS)


def version(db: apsw.Connection) -> int:
    found = db.pragma("user_version")
    return found if isinstance(found, int) else 0


def migrate(db: apsw.Connection, path: Path) -> None:
    """Bring the store to this program's schema, in one transaction, after a copy of what was there.

    A store of a newer program is refused untouched: its meaning is not known here.
    """
    found = version(db)
    if found > VERSION:
        raise _newer(path, found)
    if found == VERSION:
        return
    if found:
        _back_up(db, path.with_name(f"{path.name}.before-schema-{VERSION}"))
    with transaction(db):
        take_steps(db, found)


def may_be_newer(found: int) -> bool:
    """Of a number that no program will come to soon, a byte was written over."""
    return VERSION < found < VERSION + 1000


def check_readable(db: apsw.Connection, path: Path) -> None:
    """For who only reads, perhaps beside a daemon of another version: SessiondError, with the way out."""
    found = version(db)
    if found > VERSION:
        raise _newer(path, found)
    if not found:
        raise SessiondError(f"there is nothing in {path} yet", hint="start the daemon: sessiond run")
    if found < VERSION:
        raise SessiondError(
            f"{path} was written by an older sessiond (schema {found}, this one reads {VERSION})",
            hint="restart the daemon: it brings the store up to date",
        )


def _newer(path: Path, found: int) -> ConfigError:
    return ConfigError(
        f"{path} was written by a newer sessiond (schema {found}, this one knows {VERSION})",
        hint="upgrade sessiond, or point store.path elsewhere",
    )


def take_steps(db: apsw.Connection, found: int, to: int | None = None) -> None:
    """From one version of the schema to another, or to this program's, in the caller's transaction; a new store gets
    its name.
    """
    to = VERSION if to is None else to
    for step in STEPS[found:to]:
        db.execute(step)
    if not found:
        db.execute("INSERT INTO _meta VALUES ('store_id', ?)", (os.urandom(16).hex(),))
        db.execute("INSERT INTO _meta VALUES ('revision', '0')")
    db.pragma("user_version", to)


@contextmanager
def template(version: int | None = None) -> Iterator[apsw.Connection]:
    """An empty store of this schema, in memory: what one must look like, down to the pages where its tables begin."""
    db = apsw.Connection(":memory:")
    try:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        take_steps(db, 0, version)
        yield db
    finally:
        db.close()


def _back_up(db: apsw.Connection, target: Path) -> None:
    target.unlink(missing_ok=True)
    target.touch(mode=0o600)
    with apsw.Connection(str(target)) as copy, copy.backup("main", db, "main") as backup:
        while not backup.done:
            backup.step(1000)
