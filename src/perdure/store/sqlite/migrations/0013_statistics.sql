-- Statistics of workers that are gone, and since when jobs are disabled.

-- When it was last disabled. Those that are disabled already count from now.
ALTER TABLE {prefix}jobs ADD COLUMN disabled_at INTEGER;

UPDATE {prefix}jobs SET disabled_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000000
WHERE status = 'disabled';

CREATE INDEX {prefix}jobs_disabled ON {prefix}jobs (namespace, disabled_at)
WHERE status = 'disabled';

-- What the process of a worker has counted, as JSON (TaskCounts), and what of it counts elsewhere.
ALTER TABLE {prefix}workers ADD COLUMN counts BLOB NOT NULL DEFAULT '[]';

ALTER TABLE {prefix}workers ADD COLUMN counts_before BLOB NOT NULL DEFAULT '[]';

-- What workers counted that are gone. A worker adds its own when it signs off.
CREATE TABLE {prefix}past_counts (
    namespace TEXT    NOT NULL,
    task      TEXT    NOT NULL,
    queue     TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    value     INTEGER NOT NULL,
    PRIMARY KEY (namespace, task, queue, name)
) WITHOUT ROWID;
