-- Settings of runs: when, where and how urgently they execute, for how long, and how many at once.
-- Times and flags are written as in 0001. The table is made again, because a check cannot be
-- changed; serials stay, since events, snapshots and steps refer to them.
CREATE TABLE {prefix}runs_with_settings (
    serial       INTEGER NOT NULL PRIMARY KEY,
    id           TEXT    NOT NULL,
    namespace    TEXT    NOT NULL,
    flow         TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    parent_run   TEXT,
    parent_key   TEXT,
    created_at   INTEGER NOT NULL,
    finished_at  INTEGER,
    -- Of the last commit without events. Where there are some, they have token and time.
    token        INTEGER,
    updated_at   INTEGER NOT NULL,
    summary      BLOB    NOT NULL,
    has_cooldown INTEGER NOT NULL DEFAULT 0,
    -- Where the log ends, as of its last change of status (see 0006).
    number       INTEGER NOT NULL DEFAULT 0,
    -- As it is now; the settings have the one it was submitted with.
    priority     INTEGER NOT NULL DEFAULT 3,
    -- When a delayed run is to start; null if it was not delayed.
    start_at     INTEGER,
    -- Null while it is queued.
    started_at   INTEGER,
    -- The flow and the rendered key under which its place is counted; null if it needs none.
    place_key    TEXT,
    place_limit  INTEGER,
    -- The order of the runs that wait for a place; null for all others.
    rank         REAL,
    -- As JSON (RunSettings); null for the defaults.
    settings     BLOB,

    CHECK (CASE status
        WHEN 'queued'       THEN finished_at IS NULL
        WHEN 'running'      THEN finished_at IS NULL
        WHEN 'waiting'      THEN finished_at IS NULL
        WHEN 'paused'       THEN finished_at IS NULL
        WHEN 'compensating' THEN finished_at IS NULL
        WHEN 'completed'    THEN finished_at IS NOT NULL
        WHEN 'failed'       THEN finished_at IS NOT NULL
        WHEN 'cancelled'    THEN finished_at IS NOT NULL
        WHEN 'skipped'      THEN finished_at IS NOT NULL
        ELSE FALSE
    END),
    CHECK ((parent_run IS NULL) = (parent_key IS NULL)),
    CHECK ((place_key IS NULL) = (place_limit IS NULL))
);

INSERT INTO {prefix}runs_with_settings (
    serial, id, namespace, flow, version, status, parent_run, parent_key, created_at, finished_at,
    token, updated_at, summary, has_cooldown, number, started_at
)
SELECT serial, id, namespace, flow, version, status, parent_run, parent_key, created_at,
       finished_at, token, updated_at, summary, has_cooldown, number,
       CASE WHEN status <> 'skipped' THEN created_at END
FROM {prefix}runs;

DROP TABLE {prefix}runs;

ALTER TABLE {prefix}runs_with_settings RENAME TO {prefix}runs;

CREATE UNIQUE INDEX {prefix}runs_id ON {prefix}runs (id, namespace);

CREATE INDEX {prefix}runs_created ON {prefix}runs (created_at, id);

CREATE INDEX {prefix}runs_status ON {prefix}runs (status, created_at, id);

CREATE INDEX {prefix}runs_parent ON {prefix}runs (parent_run, namespace, created_at, id)
WHERE parent_run IS NOT NULL;

CREATE INDEX {prefix}runs_live ON {prefix}runs (namespace, flow, version, created_at, id)
WHERE finished_at IS NULL;

CREATE INDEX {prefix}runs_ended ON {prefix}runs (status, namespace, finished_at)
WHERE finished_at IS NOT NULL AND parent_run IS NULL;

CREATE INDEX {prefix}runs_started ON {prefix}runs (namespace, flow, created_at, id)
WHERE has_cooldown = 1 AND status <> 'skipped';

CREATE INDEX {prefix}runs_completed ON {prefix}runs (namespace, flow, finished_at, id)
WHERE has_cooldown = 1 AND status = 'completed';

-- The places that are taken, and who is next.
CREATE INDEX {prefix}runs_places ON {prefix}runs (namespace, place_key)
WHERE place_key IS NOT NULL AND started_at IS NOT NULL AND finished_at IS NULL;

CREATE INDEX {prefix}runs_queued ON {prefix}runs (namespace, place_key, rank, id)
WHERE rank IS NOT NULL AND status = 'queued';

-- Of a timer whose clock stands still: the microseconds that are left. It has no due_at then.
ALTER TABLE {prefix}waits ADD COLUMN remaining INTEGER;

-- Until then, the job is in a partition of the worker that executed the run's last node.
ALTER TABLE {prefix}jobs ADD COLUMN sticky_until INTEGER;

CREATE INDEX {prefix}jobs_sticky ON {prefix}jobs (namespace, sticky_until)
WHERE sticky_until IS NOT NULL AND status = 'waiting';
