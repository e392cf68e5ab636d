-- Statistics of workers that are gone, and since when jobs are disabled.

-- When it was last disabled. Those that are disabled already count from now.
ALTER TABLE {schema}.jobs ADD COLUMN disabled_at timestamptz;
UPDATE {schema}.jobs SET disabled_at = now() WHERE status = 'disabled';
CREATE INDEX jobs_disabled ON {schema}.jobs (namespace, disabled_at)
    WHERE status = 'disabled';

ALTER TABLE {schema}.workers
    -- What its process has counted, as JSON (TaskCounts), and what of it counts elsewhere.
    ADD COLUMN counts json NOT NULL DEFAULT '[]',
    ADD COLUMN counts_before json NOT NULL DEFAULT '[]';

-- What workers counted that are gone. A worker adds its own when it signs off.
CREATE TABLE {schema}.past_counts (
    value     bigint           NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    task      text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, task, queue, name)
);
