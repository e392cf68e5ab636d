-- Jobs and all that belongs to them. Times are whole microseconds since 1970, so that they
-- compare exactly; flags are 0 or 1; a lane is its JSON text.

CREATE TABLE {prefix}migrations (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
);

CREATE TABLE {prefix}jobs (
    id               TEXT    NOT NULL PRIMARY KEY,
    namespace        TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    task             TEXT    NOT NULL,
    lane             TEXT    NOT NULL,
    job_group        TEXT,
    status           TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    rank             REAL    NOT NULL,
    epoch            INTEGER NOT NULL DEFAULT 0,
    attempt          INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures         INTEGER NOT NULL DEFAULT 0,
    postpones        INTEGER NOT NULL DEFAULT 0,
    deaths           INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER,
    fingerprint      TEXT,
    worker           TEXT,
    lease_until      INTEGER,
    avoid_worker     TEXT,
    avoid_until      INTEGER,
    limit_keys       TEXT,
    created_at       INTEGER NOT NULL,
    ready_at         INTEGER NOT NULL,
    deadline_at      INTEGER,
    started_at       INTEGER,
    finished_at      INTEGER,
    dropped          INTEGER NOT NULL DEFAULT 0,
    progress         REAL    NOT NULL DEFAULT 0,
    progress_message TEXT    NOT NULL DEFAULT '',
    progress_details BLOB,
    input_hash       INTEGER NOT NULL,
    policy           BLOB,
    -- NULL when it is large: a row is written as a whole each time its job moves.
    input            BLOB,
    output           BLOB,

    -- Held jobs have a lease, finished ones an end, and there is no other status. A CASE with the
    -- common ones first costs a fraction of IN lists, which each write would build anew.
    CHECK (CASE status
        WHEN 'active'    THEN lease_until IS NOT NULL AND finished_at IS NULL
        WHEN 'completed' THEN lease_until IS NULL AND finished_at IS NOT NULL
        WHEN 'waiting'   THEN lease_until IS NULL AND finished_at IS NULL
        WHEN 'scheduled' THEN lease_until IS NULL AND finished_at IS NULL
        WHEN 'failed'    THEN lease_until IS NULL AND finished_at IS NOT NULL
        WHEN 'dead'      THEN lease_until IS NULL AND finished_at IS NOT NULL
        WHEN 'cancelled' THEN lease_until IS NULL AND finished_at IS NOT NULL
        WHEN 'aborting'  THEN lease_until IS NOT NULL AND finished_at IS NULL
        WHEN 'paused'    THEN lease_until IS NULL AND finished_at IS NULL
        WHEN 'disabled'  THEN lease_until IS NULL AND finished_at IS NULL
        ELSE FALSE
    END),
    CHECK (lease_until IS NULL OR worker IS NOT NULL),
    CHECK (limit_keys IS NULL OR lease_until IS NOT NULL),
    CHECK (NOT dropped OR finished_at IS NOT NULL)
);

-- Partial wherever possible: finished work leaves the hot indexes at once. Where the CHECKs above
-- allow it, the condition is on a column that queries compare, because SQLite uses a partial index
-- only when the query's own terms imply its condition.

-- The order of the queue: a claim reads the front of its lanes. The status is there so that jobs
-- can be counted without looking at the rows: SQLite checks it even though the condition implies it.
CREATE INDEX {prefix}jobs_waiting ON {prefix}jobs (namespace, lane, rank, id, status)
WHERE status = 'waiting';

CREATE INDEX {prefix}jobs_scheduled ON {prefix}jobs (namespace, ready_at, queue, status)
WHERE status = 'scheduled';

CREATE INDEX {prefix}jobs_held ON {prefix}jobs (namespace, lease_until)
WHERE lease_until IS NOT NULL;

-- Who counts under which limit at the moment, without looking at the rows.
CREATE INDEX {prefix}jobs_limited ON {prefix}jobs (namespace, lease_until, limit_keys)
WHERE limit_keys IS NOT NULL;

CREATE INDEX {prefix}jobs_deadline ON {prefix}jobs (namespace, deadline_at)
WHERE deadline_at IS NOT NULL AND status IN ('waiting', 'scheduled', 'paused');

-- What to prune next; the further columns let jobs be counted without looking at the rows.
CREATE INDEX {prefix}jobs_finished
ON {prefix}jobs (status, namespace, finished_at, queue, task, dropped)
WHERE finished_at IS NOT NULL;

-- The newest jobs of one status.
CREATE INDEX {prefix}jobs_status ON {prefix}jobs (status, id);

-- Results by their input. Not partial: hashes come in no order, so each entry dirties a page of its
-- own, and those of a bulk insert share one transaction while those of its results would not.
CREATE INDEX {prefix}jobs_results ON {prefix}jobs (input_hash);

CREATE UNIQUE INDEX {prefix}jobs_fingerprint ON {prefix}jobs (namespace, queue, fingerprint)
WHERE fingerprint IS NOT NULL AND finished_at IS NULL;

CREATE INDEX {prefix}jobs_group ON {prefix}jobs (job_group, namespace, id)
WHERE job_group IS NOT NULL;

CREATE TABLE {prefix}large_inputs (
    job_id TEXT NOT NULL PRIMARY KEY,
    input  BLOB NOT NULL
);

-- The history of failed attempts, in the order of number.
CREATE TABLE {prefix}failures (
    number    INTEGER NOT NULL PRIMARY KEY,
    job_id    TEXT    NOT NULL,
    attempt   INTEGER NOT NULL,
    worker    TEXT,
    failed_at INTEGER NOT NULL,
    failure   BLOB    NOT NULL
);

CREATE INDEX {prefix}failures_job ON {prefix}failures (job_id);

CREATE TABLE {prefix}limits (
    namespace     TEXT NOT NULL,
    key           TEXT NOT NULL,
    closed_until  INTEGER,
    last_start_at INTEGER,
    -- When the last start is out of every window and spacing.
    counts_until  INTEGER,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;

-- One row for each claim that started jobs under a rate, until it leaves the window.
CREATE TABLE {prefix}limit_starts (
    namespace  TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    count      INTEGER NOT NULL
);

CREATE INDEX {prefix}limit_starts_key ON {prefix}limit_starts (namespace, key, started_at, count);

-- A queue has a row while it is paused.
CREATE TABLE {prefix}queues (
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    paused_at INTEGER NOT NULL,
    paused_by TEXT,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

CREATE TABLE {prefix}workers (
    id         TEXT    NOT NULL PRIMARY KEY,
    namespace  TEXT    NOT NULL,
    info       BLOB    NOT NULL,
    lease      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
);

CREATE TABLE {prefix}duties (
    name        TEXT    NOT NULL PRIMARY KEY,
    worker      TEXT    NOT NULL,
    lease_until INTEGER NOT NULL
);
