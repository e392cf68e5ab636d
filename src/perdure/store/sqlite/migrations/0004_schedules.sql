-- Schedules, and flows that cool down. Times and flags are written as in 0001.

CREATE TABLE {prefix}schedules (
    namespace  TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    -- Another one with each write: two that decided upon the same one cannot both write.
    revision   INTEGER NOT NULL,
    -- When a worker has to look; that of the state, which has the rest.
    due_at     INTEGER,
    definition BLOB    NOT NULL,
    state      BLOB    NOT NULL,
    PRIMARY KEY (namespace, name)
);

CREATE INDEX {prefix}schedules_due ON {prefix}schedules (namespace, due_at)
WHERE due_at IS NOT NULL;

-- Runs may be skipped now, and some count for the cooldown of their flow. The table is made anew,
-- because a check cannot be changed; serials stay, since events and steps are kept under them.
CREATE TABLE {prefix}runs_with_cooldown (
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

    CHECK (CASE status
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
    CHECK ((parent_run IS NULL) = (parent_key IS NULL))
);

INSERT INTO {prefix}runs_with_cooldown (
    serial, id, namespace, flow, version, status, parent_run, parent_key, created_at, finished_at,
    token, updated_at, summary
)
SELECT serial, id, namespace, flow, version, status, parent_run, parent_key, created_at,
       finished_at, token, updated_at, summary
FROM {prefix}runs;

DROP TABLE {prefix}runs;

ALTER TABLE {prefix}runs_with_cooldown RENAME TO {prefix}runs;

CREATE UNIQUE INDEX {prefix}runs_id ON {prefix}runs (id, namespace);

CREATE INDEX {prefix}runs_created ON {prefix}runs (created_at, id);

CREATE INDEX {prefix}runs_status ON {prefix}runs (status, created_at, id);

CREATE INDEX {prefix}runs_parent ON {prefix}runs (parent_run, namespace, created_at, id)
WHERE parent_run IS NOT NULL;

CREATE INDEX {prefix}runs_live ON {prefix}runs (namespace, flow, version, created_at, id)
WHERE finished_at IS NULL;

CREATE INDEX {prefix}runs_ended ON {prefix}runs (status, namespace, finished_at)
WHERE finished_at IS NOT NULL AND parent_run IS NULL;

-- By what a flow cools down: the run that began last, and the one that was completed last.
CREATE INDEX {prefix}runs_begun ON {prefix}runs (namespace, flow, created_at, id)
WHERE has_cooldown = 1 AND status <> 'skipped';

CREATE INDEX {prefix}runs_completed ON {prefix}runs (namespace, flow, finished_at, id)
WHERE has_cooldown = 1 AND status = 'completed';
