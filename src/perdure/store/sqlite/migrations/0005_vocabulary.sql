-- The words that the rest of Perdure uses. Applied in one transaction, with all workers stopped.
-- Indexes with a new name or column are created again: doctor offers the statement of each.

DROP INDEX {prefix}jobs_waiting;

DROP INDEX {prefix}jobs_held;

DROP INDEX {prefix}jobs_finished;

DROP INDEX {prefix}runs_begun;

ALTER TABLE {prefix}jobs RENAME COLUMN lane TO partition_key;

ALTER TABLE {prefix}jobs RENAME COLUMN deaths TO crashes;

ALTER TABLE {prefix}jobs RENAME COLUMN postpones TO snoozes;

ALTER TABLE {prefix}jobs RENAME COLUMN dropped TO hidden;

CREATE INDEX {prefix}jobs_waiting ON {prefix}jobs (namespace, partition_key, rank, id, status)
WHERE status = 'waiting';

CREATE INDEX {prefix}jobs_claimed ON {prefix}jobs (namespace, lease_until)
WHERE lease_until IS NOT NULL;

CREATE INDEX {prefix}jobs_finished
ON {prefix}jobs (status, namespace, finished_at, queue, task, hidden)
WHERE finished_at IS NOT NULL;

CREATE INDEX {prefix}runs_started ON {prefix}runs (namespace, flow, created_at, id)
WHERE has_cooldown = 1 AND status <> 'skipped';

-- A check cannot be changed in place, so the table is created again.
CREATE TABLE {prefix}waits_renamed (
    run_id    TEXT    NOT NULL,
    namespace TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    type      TEXT    NOT NULL
        CHECK (type IN ('timer', 'signal', 'child', 'external', 'approval')),
    name      TEXT    NOT NULL,
    opened_at INTEGER NOT NULL,
    due_at    INTEGER,
    suspended INTEGER NOT NULL DEFAULT 0,
    deciders  TEXT    NOT NULL DEFAULT '[]',
    detail    BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (run_id, namespace, key)
) WITHOUT ROWID;

INSERT INTO {prefix}waits_renamed (
    run_id, namespace, key, type, name, opened_at, due_at, suspended, deciders, detail
)
SELECT run_id, namespace, key, CASE kind WHEN 'outside' THEN 'external' ELSE kind END, name,
       opened_at, due_at, is_held, deciders, detail
FROM {prefix}waits;

DROP TABLE {prefix}waits;

ALTER TABLE {prefix}waits_renamed RENAME TO {prefix}waits;

CREATE INDEX {prefix}waits_due ON {prefix}waits (namespace, due_at)
WHERE due_at IS NOT NULL AND suspended = 0;

CREATE INDEX {prefix}waits_signals ON {prefix}waits (name, namespace, opened_at, run_id, key, type)
WHERE type = 'signal';

CREATE INDEX {prefix}waits_asking
ON {prefix}waits (type, namespace, opened_at, run_id, key, deciders)
WHERE type IN ('external', 'approval');

ALTER TABLE {prefix}duties RENAME TO {prefix}maintenance_leases;

-- Workers register again when they start, in the new words.
DELETE FROM {prefix}maintenance_leases;

DELETE FROM {prefix}workers;
