-- Settings of runs: when, where and how urgently they execute, for how long, and how many at once.

ALTER TABLE {schema}.runs
    -- As it is now; the settings have the one it was submitted with.
    ADD COLUMN priority    smallint         NOT NULL DEFAULT 3,
    -- When a delayed run is to start; null if it was not delayed.
    ADD COLUMN start_at    timestamptz,
    -- Null while it is queued.
    ADD COLUMN started_at  timestamptz,
    -- The flow and the rendered key under which its place is counted; null if it needs none.
    ADD COLUMN place_key   text COLLATE "C",
    ADD COLUMN place_limit integer,
    -- The order of the runs that wait for a place; null for all others.
    ADD COLUMN rank        double precision,
    -- As JSON (RunSettings); null for the defaults.
    ADD COLUMN settings    bytea,
    DROP CONSTRAINT runs_status_is_known,
    ADD CONSTRAINT runs_status_is_known CHECK (status IN (
        'queued', 'running', 'waiting', 'paused', 'compensating', 'completed', 'failed',
        'cancelled', 'skipped'
    ));
UPDATE {schema}.runs SET started_at = created_at WHERE status <> 'skipped';
ALTER TABLE {schema}.runs
    ADD CONSTRAINT runs_place_has_limit CHECK ((place_key IS NULL) = (place_limit IS NULL));

-- The places that are taken, and who is next.
CREATE INDEX runs_places ON {schema}.runs (namespace, place_key)
    WHERE place_key IS NOT NULL AND started_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX runs_queued ON {schema}.runs (namespace, place_key, rank, id)
    WHERE rank IS NOT NULL AND status = 'queued';

-- Of a timer whose clock stands still: the microseconds that are left. It has no due_at then.
ALTER TABLE {schema}.waits ADD COLUMN remaining bigint;

-- Until then, the job is in a partition of the worker that executed the run's last node.
ALTER TABLE {schema}.jobs ADD COLUMN sticky_until timestamptz;
CREATE INDEX jobs_sticky ON {schema}.jobs (namespace, sticky_until)
    WHERE sticky_until IS NOT NULL AND status = 'waiting';
