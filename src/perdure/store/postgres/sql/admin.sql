-- Operators' reports and changes, and transfers. Reads may cost in proportion to the number of
-- rows.

-- name: schema_version
SELECT max(version)
FROM {schema}.migrations;

-- name: indexes_present
SELECT class.relname, index.indisvalid
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_namespace AS place ON place.oid = class.relnamespace
WHERE place.nspname = $1;

-- name: newest_at
-- When a job, run or worker was last recorded.
SELECT max(at)
FROM (
    SELECT max(created_at) AS at FROM {schema}.jobs
    UNION ALL
    SELECT max(started_at) FROM {schema}.jobs
    UNION ALL
    SELECT max(finished_at) FROM {schema}.jobs
    UNION ALL
    SELECT max(created_at) FROM {schema}.runs
    UNION ALL
    SELECT max(finished_at) FROM {schema}.runs
    UNION ALL
    SELECT max(seen_at) FROM {schema}.workers
) AS recorded;

-- name: orphaned_runs
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
  AND CASE WHEN status = 'disabled' AND run_id IS NULL THEN disabled_at ELSE finished_at END
      <= coalesce($1::timestamptz, statement_timestamp()) - $3::interval
GROUP BY status;

-- name: count_ended_runs
SELECT status, count(*)
FROM {schema}.runs
WHERE namespace = $2
  AND finished_at <= coalesce($1::timestamptz, statement_timestamp()) - $3::interval
  AND parent_run IS NULL
GROUP BY status;

-- name: applied
SELECT version, name
FROM {schema}.migrations;

-- name: lock_migrations
SELECT pg_advisory_xact_lock(hashtextextended('perdure migrations ' || $1, 0));

-- name: schema_exists
-- Checked first, because CREATE SCHEMA IF NOT EXISTS needs the right to create even if it exists.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1);

-- name: create_schema
CREATE SCHEMA {schema};

-- name: tables_present
SELECT tablename
FROM pg_catalog.pg_tables
WHERE schemaname = $1
  AND tablename = ANY ($2::text[]);

-- name: record_migration
INSERT INTO {schema}.migrations (version, name)
VALUES ($1, $2);

-- name: change_jobs
-- $1 is the namespace (null: any), $2 the ids or the group, $3 the current time. Returns: id,
-- status before, status after, partition_key, whether it leaves a limit, and its run. If one is a
-- job of a run, no job is changed.
--
-- Locks the rows first, waiting for concurrent changes, then moves those to which the operation
-- applies. They are found again by id, which follows a row that was waited for to its newest
-- version.
WITH found AS MATERIALIZED (
    SELECT id, status, run_id, limit_keys IS NOT NULL AND lease_until IS NOT NULL AS was_limited
    FROM {schema}.jobs
    WHERE {scope}
      AND NOT hidden
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET {change}
    FROM found
    CROSS JOIN (SELECT coalesce($3::timestamptz, statement_timestamp())) AS moment (now)
    WHERE jobs.id = found.id
      AND found.status IN ({before})
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.partition_key, found.was_limited
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.partition_key,
       coalesce(moved.was_limited AND moved.status <> 'aborting', false), found.run_id
FROM found
LEFT JOIN moved ON moved.id = found.id;

-- name: find_retry_rival
-- The live job that prevents one of these from being retried; it may be one of these.
WITH ended AS MATERIALIZED (
    SELECT id, namespace, queue, fingerprint
    FROM {schema}.jobs
    WHERE id = ANY ($2::text[])
      AND ($1::text IS NULL OR namespace = $1)
      AND finished_at IS NOT NULL
      AND fingerprint IS NOT NULL
)
SELECT queue, fingerprint, rival.id
FROM ended
CROSS JOIN LATERAL (
    SELECT coalesce(
        (
            SELECT live.id
            FROM {schema}.jobs AS live
            WHERE live.namespace = ended.namespace
              AND live.queue = ended.queue
              AND live.fingerprint = ended.fingerprint
              AND live.status IN (
                  'waiting', 'scheduled', 'active', 'paused', 'aborting', 'disabled')
        ),
        (
            SELECT min(like_it.id)
            FROM ended AS like_it
            WHERE like_it.namespace = ended.namespace
              AND like_it.queue = ended.queue
              AND like_it.fingerprint = ended.fingerprint
              AND like_it.id < ended.id
        )
    ) AS id
) AS rival
WHERE rival.id IS NOT NULL
ORDER BY ended.id
LIMIT 1;

-- name: pause_queue
INSERT INTO {schema}.queues (namespace, name, paused_at, paused_by)
VALUES ($2, $3, coalesce($1::timestamptz, statement_timestamp()), $4)
ON CONFLICT DO NOTHING
RETURNING name;

-- name: resume_queue
DELETE FROM {schema}.queues
WHERE namespace = $1
  AND name = $2
RETURNING name;

-- name: queue_stats
-- Skips from queue to queue through the indexes, and counts up to $2 jobs of each in a status, in
-- the index alone. Only finished jobs are ever hidden.
WITH RECURSIVE places (namespace) AS (
    SELECT coalesce($1::text, '') COLLATE "C"
    UNION ALL
    SELECT least(
        (
            SELECT jobs.namespace
            FROM {schema}.jobs
            WHERE status = 'waiting' AND jobs.namespace > places.namespace
            ORDER BY jobs.namespace
            LIMIT 1
        ),
        (
            SELECT jobs.namespace
            FROM {schema}.jobs
            WHERE status IN ('active', 'aborting') AND jobs.namespace > places.namespace
            ORDER BY jobs.namespace
            LIMIT 1
        ),
        (
            SELECT jobs.namespace
            FROM {schema}.jobs
            WHERE status = 'completed' AND jobs.namespace > places.namespace
            ORDER BY jobs.namespace
            LIMIT 1
        ),
        (
            SELECT jobs.namespace
            FROM {schema}.jobs
            WHERE status IN ('failed', 'dead', 'cancelled') AND jobs.namespace > places.namespace
            ORDER BY jobs.namespace
            LIMIT 1
        ),
        (
            SELECT jobs.namespace
            FROM {schema}.jobs
            WHERE status IN ('scheduled', 'paused', 'disabled')
              AND jobs.namespace > places.namespace
            ORDER BY jobs.namespace
            LIMIT 1
        )
    )
    FROM places
    WHERE $1::text IS NULL
      AND places.namespace IS NOT NULL
),
-- A partition starts with its queue: ["mail","send",...]. All partitions of a queue are between
-- the part up to the task's name and the same part with the next character after its quote.
waiting (namespace, queue, part) AS (
    SELECT namespace, NULL::text COLLATE "C", '' COLLATE "C"
    FROM places
    WHERE namespace IS NOT NULL
    UNION ALL
    SELECT waiting.namespace, next.queue, next.part
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT jobs.queue,
               coalesce(
                   substring(partition_key FROM '^(\["([^"\\]|\\.)*",)'), partition_key
               ) AS part
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND jobs.namespace = waiting.namespace
          AND partition_key > waiting.part || '#'
        ORDER BY partition_key
        LIMIT 1
    ) AS next
),
others (namespace, status, queue) AS (
    SELECT namespace, status COLLATE "C", '' COLLATE "C"
    FROM places
    CROSS JOIN unnest(ARRAY[
        'completed', 'failed', 'dead', 'cancelled', 'scheduled', 'paused', 'disabled'
    ]) AS statuses (status)
    WHERE namespace IS NOT NULL
    UNION ALL
    SELECT others.namespace, others.status, coalesce(
        (
            SELECT jobs.queue
            FROM {schema}.jobs
            WHERE jobs.status = 'completed'
              AND others.status = 'completed'
              AND jobs.namespace = others.namespace
              AND jobs.queue > others.queue
            ORDER BY jobs.queue
            LIMIT 1
        ),
        (
            SELECT jobs.queue
            FROM {schema}.jobs
            WHERE jobs.status IN ('failed', 'dead', 'cancelled')
              AND jobs.status = others.status
              AND jobs.namespace = others.namespace
              AND jobs.queue > others.queue
            ORDER BY jobs.queue
            LIMIT 1
        ),
        (
            SELECT jobs.queue
            FROM {schema}.jobs
            WHERE jobs.status IN ('scheduled', 'paused', 'disabled')
              AND jobs.status = others.status
              AND jobs.namespace = others.namespace
              AND jobs.queue > others.queue
            ORDER BY jobs.queue
            LIMIT 1
        )
    )
    FROM others
    WHERE others.queue IS NOT NULL
),
counted (namespace, queue, status, number) AS (
    SELECT waiting.namespace, queue, 'waiting', (
        SELECT count(*)
        FROM (
            SELECT
            FROM {schema}.jobs
            WHERE status = 'waiting'
              AND jobs.namespace = waiting.namespace
              AND partition_key >= waiting.part
              AND partition_key < waiting.part || '#'
            LIMIT $2
        ) AS first
    )
    FROM waiting
    WHERE queue IS NOT NULL
    UNION ALL
    -- As many as workers have at the moment.
    SELECT places.namespace, claimed.queue, claimed.status, claimed.number
    FROM places
    CROSS JOIN LATERAL (
        SELECT jobs.queue, jobs.status, count(*) AS number
        FROM {schema}.jobs
        WHERE jobs.status IN ('active', 'aborting')
          AND jobs.namespace = places.namespace
        GROUP BY jobs.queue, jobs.status
    ) AS claimed
    UNION ALL
    SELECT others.namespace, others.queue, others.status, (
        SELECT count(*)
        FROM (
            SELECT
            FROM {schema}.jobs
            WHERE jobs.status = 'completed'
              AND others.status = 'completed'
              AND jobs.namespace = others.namespace
              AND jobs.queue = others.queue
              AND NOT hidden
            LIMIT $2
        ) AS first
    ) + (
        SELECT count(*)
        FROM (
            SELECT
            FROM {schema}.jobs
            WHERE jobs.status IN ('failed', 'dead', 'cancelled')
              AND jobs.status = others.status
              AND jobs.namespace = others.namespace
              AND jobs.queue = others.queue
              AND NOT hidden
            LIMIT $2
        ) AS first
    ) + (
        SELECT count(*)
        FROM (
            SELECT
            FROM {schema}.jobs
            WHERE jobs.status IN ('scheduled', 'paused', 'disabled')
              AND jobs.status = others.status
              AND jobs.namespace = others.namespace
              AND jobs.queue = others.queue
            LIMIT $2
        ) AS first
    )
    FROM others
    WHERE queue > ''
)
SELECT namespace, queue, status, number
FROM counted
WHERE number > 0
ORDER BY namespace, queue, status;

-- name: run_stats
-- Namespace, status, unfinished runs read, runs to count, orphaned runs; reads up to $2 of each.
-- Without a status: the runs that wait for people. Skips from namespace to namespace through the
-- indexes.
WITH RECURSIVE every_place (namespace) AS (
    SELECT coalesce($1::text, '') COLLATE "C"
    UNION ALL
    SELECT least(
        (
            SELECT runs.namespace
            FROM {schema}.runs
            WHERE finished_at IS NULL
              AND runs.namespace > every_place.namespace
            ORDER BY runs.namespace
            LIMIT 1
        ),
        (
            SELECT min(next.namespace)
            FROM unnest(ARRAY['completed', 'failed', 'cancelled', 'skipped']) AS ended (status)
            CROSS JOIN LATERAL (
                SELECT runs.namespace
                FROM {schema}.runs
                WHERE runs.status = ended.status
                  AND runs.namespace > every_place.namespace
                  AND finished_at IS NOT NULL
                  AND parent_run IS NULL
                ORDER BY runs.namespace
                LIMIT 1
            ) AS next
        )
    )
    FROM every_place
    WHERE $1::text IS NULL
      AND every_place.namespace IS NOT NULL
),
places (namespace) AS (
    SELECT namespace
    FROM every_place
    WHERE namespace > ''
)
SELECT places.namespace, live.status, count(*), count(*) FILTER (WHERE live.parent_run IS NULL),
       count(*) FILTER (
           WHERE live.status <> 'paused'
             AND NOT EXISTS (
                 SELECT
                 FROM {schema}.jobs AS job
                 WHERE job.run_id = live.id
                   AND job.namespace = places.namespace
                   AND job.finished_at IS NULL
             )
             AND NOT EXISTS (
                 SELECT
                 FROM {schema}.waits AS wait
                 WHERE wait.run_id = live.id
                   AND wait.namespace = places.namespace
             )
       )
FROM places
CROSS JOIN LATERAL (
    SELECT id, status, parent_run
    FROM {schema}.runs
    WHERE finished_at IS NULL
      AND runs.namespace = places.namespace
    LIMIT $2
) AS live
GROUP BY places.namespace, live.status
UNION ALL
SELECT places.namespace, ended.status, 0, (
    SELECT count(*)
    FROM (
        SELECT
        FROM {schema}.runs
        WHERE runs.status = ended.status
          AND runs.namespace = places.namespace
          AND finished_at IS NOT NULL
          AND parent_run IS NULL
        -- The order of the index: one by flow would be read to its end for a rare status.
        ORDER BY finished_at
        LIMIT $2
    ) AS first
), 0
FROM places
CROSS JOIN unnest(ARRAY['completed', 'failed', 'cancelled', 'skipped']) AS ended (status)
UNION ALL
SELECT places.namespace, NULL, 0, (
    SELECT count(DISTINCT first.run_id)
    FROM (
        SELECT run_id
        FROM {schema}.waits
        WHERE type = 'approval'
          AND waits.namespace = places.namespace
        LIMIT $2
    ) AS first
), 0
FROM places;

-- name: paused_queues
SELECT namespace, name, paused_at, paused_by
FROM {schema}.queues
WHERE $1::text IS NULL OR namespace = $1
ORDER BY namespace, name;

-- name: now
SELECT statement_timestamp();

-- name: live_flows
SELECT namespace, flow, version, count(*)
FROM {schema}.runs
WHERE finished_at IS NULL
  AND ($1::text IS NULL OR namespace = $1)
GROUP BY namespace, flow, version
ORDER BY namespace, flow, version;

-- name: lock_tables
-- Blocks other imports and new work, but not readers.
LOCK TABLE {schema}.definitions, {schema}.runs, {schema}.events, {schema}.snapshots, {schema}.waits,
    {schema}.jobs, {schema}.failures, {schema}.steps, {schema}.limits, {schema}.limit_starts,
    {schema}.queues, {schema}.schedules, {schema}.past_counts
IN SHARE ROW EXCLUSIVE MODE;

-- name: load_definition
-- A worker that started here first has saved its own; the same version is the same definition.
INSERT INTO {schema}.definitions (namespace, flow, version, data)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING;

-- name: continue_run_numbers
SELECT setval(pg_get_serial_sequence('{schema}.runs', 'serial'), max(serial))
FROM {schema}.runs
HAVING max(serial) IS NOT NULL;
