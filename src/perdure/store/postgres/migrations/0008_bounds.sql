-- Counting jobs by queue, and finding definitions that nothing uses, without reading all rows.
-- Applied in one transaction.

-- By queue, so that the queues with finished jobs are found by skipping from one to the next, and
-- counted in the index alone. Pruning skips through them, too.
DROP INDEX {schema}.jobs_completed;
CREATE INDEX jobs_completed ON {schema}.jobs (namespace, queue, finished_at) INCLUDE (hidden)
    WHERE status = 'completed';
DROP INDEX {schema}.jobs_ended;
CREATE INDEX jobs_ended ON {schema}.jobs (namespace, status, queue, finished_at) INCLUDE (hidden)
    WHERE status IN ('failed', 'dead', 'cancelled');
-- No job that is simply enqueued, claimed and completed is ever in it.
CREATE INDEX jobs_idle ON {schema}.jobs (namespace, status, queue)
    WHERE status IN ('scheduled', 'paused', 'disabled');

ALTER TABLE {schema}.definitions
    -- When it was last saved, or found to be in use by pruning.
    ADD COLUMN used_at  timestamptz NOT NULL DEFAULT 'epoch',
    -- The child flows, as name@version; null: unknown, look for the version in the data.
    ADD COLUMN children text[] COLLATE "C",
    -- A run was migrated to another version: its log still refers to this one. Unknown for those
    -- that are stored already, or imported.
    ADD COLUMN was_left boolean NOT NULL DEFAULT true;
CREATE INDEX definitions_used ON {schema}.definitions (namespace, used_at);
CREATE INDEX runs_of_flows ON {schema}.runs (namespace, flow, version)
    WHERE finished_at IS NOT NULL;
