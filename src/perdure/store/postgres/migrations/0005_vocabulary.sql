-- The words that the rest of Perdure uses. Applied in one transaction, with all workers stopped.
-- Indexes on renamed columns are created again, so that doctor can offer the statement of each.

DROP INDEX {schema}.jobs_waiting;
DROP INDEX {schema}.waits_due;
DROP INDEX {schema}.waits_signals;
DROP INDEX {schema}.waits_asking;

ALTER TABLE {schema}.jobs RENAME COLUMN lane TO partition_key;
ALTER TABLE {schema}.jobs RENAME COLUMN deaths TO crashes;
ALTER TABLE {schema}.jobs RENAME COLUMN postpones TO snoozes;
ALTER TABLE {schema}.jobs RENAME COLUMN dropped TO hidden;
ALTER TABLE {schema}.jobs RENAME CONSTRAINT jobs_held_has_lease TO jobs_claimed_has_lease;
CREATE INDEX jobs_waiting ON {schema}.jobs (namespace, partition_key, rank, id)
    WHERE status = 'waiting';
ALTER INDEX {schema}.jobs_held RENAME TO jobs_claimed;

ALTER INDEX {schema}.runs_begun RENAME TO runs_started;

ALTER TABLE {schema}.waits DROP CONSTRAINT waits_kind_is_known;
ALTER TABLE {schema}.waits RENAME COLUMN kind TO type;
ALTER TABLE {schema}.waits RENAME COLUMN is_held TO suspended;
UPDATE {schema}.waits SET type = 'external' WHERE type = 'outside';
ALTER TABLE {schema}.waits ADD CONSTRAINT waits_type_is_known
    CHECK (type IN ('timer', 'signal', 'child', 'external', 'approval'));
CREATE INDEX waits_due ON {schema}.waits (namespace, due_at)
    WHERE NOT suspended AND due_at IS NOT NULL;
CREATE INDEX waits_signals ON {schema}.waits (name, namespace, opened_at, run_id, key)
    WHERE type = 'signal';
CREATE INDEX waits_asking ON {schema}.waits (type, namespace, opened_at, run_id, key)
    WHERE type IN ('external', 'approval');

ALTER TABLE {schema}.duties RENAME TO maintenance_leases;
-- Workers register again when they start, in the new words.
DELETE FROM {schema}.maintenance_leases;
DELETE FROM {schema}.workers;
