-- What operators ask now and then. These may read as much as there is.

-- name: schema_version
SELECT max(version)
FROM {prefix}migrations;

-- name: indexes_present
SELECT name
FROM sqlite_master
WHERE type = 'index';

-- name: damages
-- It reads every page, and stops at the tenth fault.
PRAGMA quick_check(10);

-- name: strays
SELECT run.id, run.namespace
FROM {prefix}runs AS run
WHERE run.finished_at IS NULL
  AND run.status <> 'paused'
  AND NOT EXISTS (
      SELECT 1
      FROM {prefix}jobs AS job
      WHERE job.run_id = run.id
        AND job.namespace = run.namespace
        AND job.finished_at IS NULL
  )
  AND NOT EXISTS (
      SELECT 1
      FROM {prefix}waits AS wait
      WHERE wait.run_id = run.id
        AND wait.namespace = run.namespace
  )
ORDER BY run.created_at, run.id
LIMIT :limit;

-- name: count_flows
SELECT definition.namespace, definition.flow, definition.version,
       count(run.serial) - count(run.finished_at), count(run.finished_at), max(run.created_at)
FROM {prefix}definitions AS definition
LEFT JOIN {prefix}runs AS run
    ON run.namespace = definition.namespace
    AND run.flow = definition.flow
    AND run.version = definition.version
WHERE :namespace IS NULL OR definition.namespace = :namespace
GROUP BY definition.namespace, definition.flow, definition.version
ORDER BY definition.namespace, definition.flow, definition.version;

-- name: count_ended_jobs
SELECT status, count(*)
FROM {prefix}jobs
WHERE namespace = :namespace
  AND finished_at <= :until
GROUP BY status;

-- name: count_ended_runs
SELECT status, count(*)
FROM {prefix}runs
WHERE namespace = :namespace
  AND finished_at <= :until
  AND parent_run IS NULL
GROUP BY status;
