-- Runs of flows, and all that belongs to them. Times and flags are written as in 0001.

-- What a job of a run executes; both are NULL for a plain job.
ALTER TABLE {prefix}jobs ADD COLUMN run_id TEXT;
ALTER TABLE {prefix}jobs ADD COLUMN node_key TEXT CHECK ((run_id IS NULL) = (node_key IS NULL));

CREATE INDEX {prefix}jobs_run ON {prefix}jobs (run_id, namespace, id)
WHERE run_id IS NOT NULL;

-- The deadline of a run's job is not for the store to enforce: such a job never ends as failed.
DROP INDEX {prefix}jobs_deadline;

CREATE INDEX {prefix}jobs_deadline ON {prefix}jobs (namespace, deadline_at)
WHERE deadline_at IS NOT NULL AND run_id IS NULL AND status IN ('waiting', 'scheduled', 'paused');

-- What each step changes is not in here but in its events, so that most steps leave the row alone:
-- a page less to write. The number of the last event is the run's version.
CREATE TABLE {prefix}runs (
    -- What events, snapshots and steps are kept under; they are removed with the row.
    serial      INTEGER NOT NULL PRIMARY KEY,
    id          TEXT    NOT NULL,
    namespace   TEXT    NOT NULL,
    flow        TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    parent_run  TEXT,
    parent_key  TEXT,
    created_at  INTEGER NOT NULL,
    finished_at INTEGER,
    -- Of the last commit without events. Where there are some, they have token and time.
    token       INTEGER,
    updated_at  INTEGER NOT NULL,
    summary     BLOB    NOT NULL,

    CHECK (CASE status
        WHEN 'running'      THEN finished_at IS NULL
        WHEN 'waiting'      THEN finished_at IS NULL
        WHEN 'paused'       THEN finished_at IS NULL
        WHEN 'compensating' THEN finished_at IS NULL
        WHEN 'completed'    THEN finished_at IS NOT NULL
        WHEN 'failed'       THEN finished_at IS NOT NULL
        WHEN 'cancelled'    THEN finished_at IS NOT NULL
        ELSE FALSE
    END),
    CHECK ((parent_run IS NULL) = (parent_key IS NULL))
);

CREATE UNIQUE INDEX {prefix}runs_id ON {prefix}runs (id, namespace);

-- The newest runs, those of one status, and the children of a parent.
CREATE INDEX {prefix}runs_created ON {prefix}runs (created_at, id);

CREATE INDEX {prefix}runs_status ON {prefix}runs (status, created_at, id);

CREATE INDEX {prefix}runs_parent ON {prefix}runs (parent_run, namespace, created_at, id)
WHERE parent_run IS NOT NULL;

-- Runs that are not over, by what a worker must have to continue them.
CREATE INDEX {prefix}runs_live ON {prefix}runs (namespace, flow, version, created_at, id)
WHERE finished_at IS NULL;

-- What to prune next. A child goes with its parent.
CREATE INDEX {prefix}runs_ended ON {prefix}runs (status, namespace, finished_at)
WHERE finished_at IS NOT NULL AND parent_run IS NULL;

CREATE TABLE {prefix}events (
    run_serial INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    -- Of the commit that wrote it.
    token      INTEGER,
    data       BLOB    NOT NULL,
    value      BLOB,
    PRIMARY KEY (run_serial, number)
) WITHOUT ROWID;

CREATE TABLE {prefix}snapshots (
    run_serial INTEGER NOT NULL PRIMARY KEY,
    number     INTEGER NOT NULL,
    data       BLOB    NOT NULL
);

CREATE TABLE {prefix}waits (
    namespace TEXT    NOT NULL,
    run_id    TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('timer', 'signal', 'child')),
    name      TEXT    NOT NULL,
    opened_at INTEGER NOT NULL,
    due_at    INTEGER,
    is_held   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, run_id, key)
) WITHOUT ROWID;

CREATE INDEX {prefix}waits_due ON {prefix}waits (namespace, due_at)
WHERE due_at IS NOT NULL AND is_held = 0;

CREATE TABLE {prefix}definitions (
    namespace TEXT NOT NULL,
    flow      TEXT NOT NULL,
    version   TEXT NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (namespace, flow, version)
);

-- Results of ctx.step in the order of number, removed with the run or the plain job they are of.
CREATE TABLE {prefix}steps (
    number     INTEGER NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    value      BLOB    NOT NULL,
    run_serial INTEGER,
    job_id     TEXT,
    UNIQUE (owner, name),
    CHECK ((run_serial IS NULL) <> (job_id IS NULL))
);

CREATE INDEX {prefix}steps_run ON {prefix}steps (run_serial)
WHERE run_serial IS NOT NULL;

CREATE INDEX {prefix}steps_job ON {prefix}steps (job_id)
WHERE job_id IS NOT NULL;
