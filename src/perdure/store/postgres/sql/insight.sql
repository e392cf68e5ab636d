-- What operators ask now and then. These may read as much as there is.

-- name: schema_version
SELECT max(version)
FROM {schema}.migrations;

-- name: indexes_present
SELECT class.relname, index.indisvalid
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_namespace AS place ON place.oid = class.relnamespace
WHERE place.nspname = $1;

-- name: strays
SELECT run.id, run.namespace
FROM {schema}.runs AS run
WHERE run.finished_at IS NULL
  AND run.status <> 'paused'
  AND NOT EXISTS (
      SELECT
      FROM {schema}.jobs AS job
      WHERE job.run_id = run.id
        AND job.namespace = run.namespace
        AND job.finished_at IS NULL
  )
  AND NOT EXISTS (
      SELECT
      FROM {schema}.waits AS wait
      WHERE wait.run_id = run.id
        AND wait.namespace = run.namespace
  )
ORDER BY run.created_at, run.id
LIMIT $1;

-- name: count_flows
SELECT definition.namespace, definition.flow, definition.version,
       count(run.serial) - count(run.finished_at), count(run.finished_at), max(run.created_at)
FROM {schema}.definitions AS definition
LEFT JOIN {schema}.runs AS run
    ON run.namespace = definition.namespace
    AND run.flow = definition.flow
    AND run.version = definition.version
WHERE $1::text IS NULL OR definition.namespace = $1
GROUP BY definition.namespace, definition.flow, definition.version
ORDER BY definition.namespace COLLATE "C", definition.flow COLLATE "C",
         definition.version COLLATE "C";

-- name: count_ended_jobs
SELECT status, count(*)
FROM {schema}.jobs
WHERE namespace = $2
  AND finished_at <= coalesce($1::timestamptz, statement_timestamp()) - $3::interval
GROUP BY status;

-- name: count_ended_runs
SELECT status, count(*)
FROM {schema}.runs
WHERE namespace = $2
  AND finished_at <= coalesce($1::timestamptz, statement_timestamp()) - $3::interval
  AND parent_run IS NULL
GROUP BY status;
