-- A store of sessiond 0.1.0 with schema 1, as that version wrote it: one session, one failed call.
-- SQLite dump (by APSW 3.54.1.0)
-- SQLite version 3.54.1
-- Tables like: (All)

-- The values of various per-database settings
PRAGMA page_size=4096;
-- PRAGMA encoding='UTF-8';
-- PRAGMA auto_vacuum=INCREMENTAL;
-- PRAGMA max_page_count=4294967294;

BEGIN TRANSACTION;

-- Table  _counter
DROP TABLE IF EXISTS _counter;
CREATE TABLE _counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO _counter VALUES('events',5);
INSERT INTO _counter VALUES('lines',4);
INSERT INTO _counter VALUES('search_trimmed',1);

-- Table  _event
DROP TABLE IF EXISTS _event;
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
INSERT INTO _event VALUES(1,1,1,1,0,248,0,'2026-01-02T03:00:00.000Z','user_msg','user',NULL,'please build it',NULL,0,0,1);
INSERT INTO _event VALUES(2,1,2,1,249,444,0,'2026-01-02T03:00:01.000Z','tool_call','assistant','Bash','make',1,0,0,0);
INSERT INTO _event VALUES(3,1,3,1,694,372,0,'2026-01-02T03:00:02.000Z','tool_result','tool',NULL,'Exit code 2: make: *** No rule to make target ''all''. Stop.',2,0,1,0);
INSERT INTO _event VALUES(4,1,4,1,1067,418,0,'2026-01-02T03:00:03.000Z','assistant_msg','assistant',NULL,'There is no such target.',3,0,0,0);
INSERT INTO _event VALUES(5,1,5,1,1067,418,1,'2026-01-02T03:00:03.000Z','completion','assistant',NULL,'turn ended',4,0,0,0);
-- Triggers and indices on  _event
CREATE UNIQUE INDEX _event_seq ON _event (session_id, seq);

-- Table  _fact
DROP TABLE IF EXISTS _fact;
CREATE TABLE _fact (                    -- everything an agent says about a session, best rank first
    session_id      INTEGER NOT NULL REFERENCES _session (id),
    name            TEXT NOT NULL,
    rank            INTEGER NOT NULL,
    value           TEXT NOT NULL,
    PRIMARY KEY (session_id, name)
) STRICT, WITHOUT ROWID;
INSERT INTO _fact VALUES(1,'cwd',0,'/w');
INSERT INTO _fact VALUES(1,'git_branch',0,'main');
INSERT INTO _fact VALUES(1,'last_cwd',0,'/w');
INSERT INTO _fact VALUES(1,'repo',0,'/w');
INSERT INTO _fact VALUES(1,'title',9,'please build it');
INSERT INTO _fact VALUES(1,'version',0,'2.1.0');

-- Table  _file
DROP TABLE IF EXISTS _file;
CREATE TABLE _file (                    -- which event of which session edited which file
    session_id      INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    path            TEXT NOT NULL,
    PRIMARY KEY (session_id, seq, path)
) STRICT, WITHOUT ROWID;
-- Triggers and indices on  _file
CREATE INDEX _file_path ON _file (path);

-- Table  _frame
DROP TABLE IF EXISTS _frame;
CREATE TABLE _frame (
    id              INTEGER PRIMARY KEY,
    generation_id   INTEGER NOT NULL REFERENCES _generation (id),
    start           INTEGER NOT NULL,
    stop            INTEGER NOT NULL,
    codec           TEXT NOT NULL,
    data            BLOB NOT NULL
) STRICT;
INSERT INTO _frame VALUES(1,1,0,1486,'zstd',X'28B52FFD60CE04C50E0086184921404FDB3F176F226D4AA2679CACA556C0E83A08F957A0FAF58EB54D913386475D0E3F003E003F00EC207B6428E33511F734BDF0E01945521645692E856CB178423FE6CEAE89E885805E349A087BDB895CDA6C9F861DB6E04C13692D762E75586CF866B8903E024EDCD634769ED3EF7D67EE0B10A9434A494969A5B41C8941A5644949814A0A72FBCE8E7DB278D4A88944FA2C9DC6A244B22F37E89BBF5FD31ED407C5BA074BE1839019674C8BCE70599688E0E3D344D2924BBDB9E23D137D1932D0FB882852AE58D7EBDC6BF411A1668FEF81DB7EF6C8B4F7FEF140900C24CFDDCF130E0E87816A189F719A9F267ABE4E67C9901F06CD85C1CA29A5222255A0F70B994A406B1B90CF14703FF37D728B309F42361A8D5C0DA1929DD7E4330C04E5083F0347A81131330A91B1CA689B623580222122E10D12001529435194514C19682698786AE22C2E2E1CB07A6DA99E0FF4C6190B0C2C1B5BD1D268B39A5B10A0A86543F6111A426B798D18F0021585762ACE35A8982D44F1F6258C0E3AAFD510813AC8057E96A01BC25331971A937417BE022FBE9BE371CC6D62CC9914C0F66AA6894E32672D5800225AD5B4580A010291FF0F0424C3FC5779D359CDDDA19298BF8BF667309B76A6606C0A3603AEEC4B36BA5E05');
-- Triggers and indices on  _frame
CREATE UNIQUE INDEX _frame_place ON _frame (generation_id, start);

-- Table  _generation
DROP TABLE IF EXISTS _generation;
CREATE TABLE _generation (              -- one life of a file's content; superseded once it is closed
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    source_id       INTEGER NOT NULL REFERENCES _source (id),
    number          INTEGER NOT NULL,
    opened_at       TEXT NOT NULL,
    closed_at       TEXT,
    reason          TEXT,               -- why the one before it ended
    UNIQUE (source_id, number)
) STRICT;
INSERT INTO _generation VALUES(1,1,1,'2026-11-18T12:41:28.947Z',NULL,NULL);

-- Table  _key
DROP TABLE IF EXISTS _key;
CREATE TABLE _key (                     -- a record's name -> its event, or (target) the name of the one it leads to
    hash            INTEGER NOT NULL,
    session_id      INTEGER NOT NULL,
    source_id       INTEGER NOT NULL,
    seq             INTEGER,
    target          INTEGER,
    scope           INTEGER NOT NULL,   -- 0, or of a lineage's name: the hash of its root
    PRIMARY KEY (hash, scope)
) STRICT, WITHOUT ROWID;
INSERT INTO _key VALUES(-6046963258770368203,1,1,2,NULL,0);
INSERT INTO _key VALUES(-5163565423953542766,1,1,NULL,6920531789364542110,0);
INSERT INTO _key VALUES(-4558372079379954302,1,1,5,NULL,0);
INSERT INTO _key VALUES(-4458438934943291121,1,1,1,NULL,0);
INSERT INTO _key VALUES(-4302002939228591311,1,1,NULL,-6046963258770368203,0);
INSERT INTO _key VALUES(-2608550993437667416,1,1,NULL,-4458438934943291121,0);
INSERT INTO _key VALUES(-2110121358044068087,1,1,3,NULL,0);
INSERT INTO _key VALUES(-127489980720836546,1,1,NULL,-6046963258770368203,0);
INSERT INTO _key VALUES(6920531789364542110,1,1,4,NULL,0);
INSERT INTO _key VALUES(7092943695417032903,1,1,NULL,-2110121358044068087,0);
-- Triggers and indices on  _key
CREATE INDEX _key_lineage ON _key (scope) WHERE scope <> 0;

-- Table  _line_count
DROP TABLE IF EXISTS _line_count;
CREATE TABLE _line_count (              -- how many equal lines a generation has had: what names keyless records
    generation_id   INTEGER NOT NULL,
    hash            INTEGER NOT NULL,
    lines           INTEGER NOT NULL,
    PRIMARY KEY (generation_id, hash)
) STRICT, WITHOUT ROWID;

-- Table  _lineage
DROP TABLE IF EXISTS _lineage;
CREATE TABLE _lineage (                 -- sessions joined by fork or parent ids; one not in here is its own root
    uid             TEXT PRIMARY KEY,
    root            TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- Triggers and indices on  _lineage
CREATE INDEX _lineage_root ON _lineage (root);

-- Table  _meta
DROP TABLE IF EXISTS _meta;
CREATE TABLE _meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO _meta VALUES('revision','2');
INSERT INTO _meta VALUES('store_id','680543fd2d7548d988d015d1256963c1');

-- Table  _outbox
DROP TABLE IF EXISTS _outbox;
CREATE TABLE _outbox (                  -- what the search index has yet to take in, in commit order
    position        INTEGER PRIMARY KEY AUTOINCREMENT,
    data            BLOB NOT NULL
) STRICT;

-- Table  _reject
DROP TABLE IF EXISTS _reject;
CREATE TABLE _reject (
    generation_id   INTEGER NOT NULL REFERENCES _generation (id),
    start           INTEGER NOT NULL,
    length          INTEGER NOT NULL,
    reason          TEXT NOT NULL,
    hash            BLOB NOT NULL,
    PRIMARY KEY (generation_id, start)
) STRICT, WITHOUT ROWID;

-- Table  _session
DROP TABLE IF EXISTS _session;
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
INSERT INTO _session VALUES(1,'claude:s1','claude','s1',0,'/w',NULL,'/w','main',NULL,'please build it',NULL,NULL,NULL,NULL,'unknown',NULL,NULL,'2026-01-02T03:00:00.000Z','2026-01-02T03:00:03.000Z','2026-11-18T12:41:28.947Z','2026-11-18T12:41:28.947Z','2026-11-18T12:41:28.947Z',NULL,NULL,NULL,0,6,5,1,0,0,2);
-- Triggers and indices on  _session
CREATE INDEX _session_ended ON _session (ended_at);
CREATE INDEX _session_parent ON _session (parent) WHERE parent IS NOT NULL;
CREATE INDEX _session_revision ON _session (revision);

-- Table  _source
DROP TABLE IF EXISTS _source;
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
INSERT INTO _source VALUES(1,1,'claude',X'2F686F6D652F736F6D656F6E652F737373732F2E636C61756465',X'2F686F6D652F736F6D656F6E652F737373732F2E636C617564652F70726F6A656374732F2D772F73312E6A736F6E6C',X'70726F6A656374732F2D772F73312E6A736F6E6C','s1.jsonl','main','tail','live',0,1,65024,2237038,1486,1795005688893956744,1486,X'00C20BC27F0373F8',1024,X'725C6793618EDC57',1154892009523756098,0,X'',X'',0,X'7B227473223A22323032362D30312D30325430333A30303A30332E3030305A222C22637764223A222F77222C226272616E6368223A226D61696E222C2276657273696F6E223A22322E312E30222C2270726F6D70746564223A747275657D',1,X'7B7D','2026-01-02T03:00:00.000Z','2026-11-18T12:41:28.947Z',NULL,1);
-- Triggers and indices on  _source
CREATE INDEX _source_inode ON _source (inode, device);
CREATE INDEX _source_session ON _source (session_id, member);

-- Table  _unknown
DROP TABLE IF EXISTS _unknown;
CREATE TABLE _unknown (                 -- record types that an adapter did not know
    flavor          TEXT NOT NULL,
    name            TEXT NOT NULL,
    records         INTEGER NOT NULL,
    PRIMARY KEY (flavor, name)
) STRICT, WITHOUT ROWID;

-- Table  _usage
DROP TABLE IF EXISTS _usage;
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
INSERT INTO _usage VALUES(-1584660029108217353,1,1,0,2,'2026-01-02T03:00:01.000Z','claude-sonnet-4-5',10,5,NULL,NULL,NULL,NULL);
INSERT INTO _usage VALUES(-1051819554435710061,1,1,0,4,'2026-01-02T03:00:03.000Z','claude-sonnet-4-5',20,7,NULL,NULL,NULL,NULL);
-- Triggers and indices on  _usage
CREATE INDEX _usage_lineage ON _usage (scope) WHERE scope <> 0;
CREATE INDEX _usage_session ON _usage (session_id, seq);

-- Table  _waiting
DROP TABLE IF EXISTS _waiting;
CREATE TABLE _waiting (                 -- parents and patches whose record has not come yet
    id              INTEGER PRIMARY KEY,
    hash            INTEGER NOT NULL,
    session_id      INTEGER NOT NULL,
    seq             INTEGER,
    patch           TEXT
) STRICT;
-- Triggers and indices on  _waiting
CREATE INDEX _waiting_hash ON _waiting (hash);

-- Views
DROP VIEW IF EXISTS sessions;
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
DROP VIEW IF EXISTS events;
CREATE VIEW events AS
SELECT e.id AS event_id, s.uid AS session_uid, e.seq, e.ts, e.kind, e.role, e.tool, e.summary, e.parent_seq,
       e.is_sidechain, e.is_error, g.closed_at IS NOT NULL AS is_superseded
  FROM _event AS e JOIN _session AS s ON s.id = e.session_id JOIN _generation AS g ON g.id = e.generation_id;
DROP VIEW IF EXISTS usage;
CREATE VIEW usage AS
SELECT s.uid AS session_uid, u.seq, u.ts, u.model, u.input_tokens, u.output_tokens, u.cache_read_tokens,
       u.cache_write_tokens, u.reasoning_tokens, u.duration_ms,
       EXISTS (SELECT 1 FROM _fact AS f WHERE f.session_id = s.id AND f.name = 'usage_in_parent')
       AND EXISTS (SELECT 1 FROM _session AS p JOIN _usage AS v ON v.session_id = p.id
                    WHERE p.uid = s.parent AND v.output_tokens IS NOT NULL) AS is_in_parent
  FROM _usage AS u JOIN _session AS s ON s.id = u.session_id;
DROP VIEW IF EXISTS errors;
CREATE VIEW errors AS
SELECT session_uid, seq, ts, kind, tool, summary FROM events
 WHERE (is_error OR kind = 'error') AND NOT is_superseded;
DROP VIEW IF EXISTS files;
CREATE VIEW files AS
SELECT s.uid AS session_uid, f.path, count(*) AS edits FROM _file AS f JOIN _session AS s ON s.id = f.session_id
 GROUP BY f.session_id, f.path;

-- For primary key autoincrements the next id to use is stored in
-- sqlite_sequence
DELETE FROM main.sqlite_sequence WHERE name='_event';
INSERT INTO main.sqlite_sequence VALUES ('_event', 5);
DELETE FROM main.sqlite_sequence WHERE name='_generation';
INSERT INTO main.sqlite_sequence VALUES ('_generation', 1);
DELETE FROM main.sqlite_sequence WHERE name='_outbox';
INSERT INTO main.sqlite_sequence VALUES ('_outbox', 1);

pragma user_version=1;

COMMIT TRANSACTION;
