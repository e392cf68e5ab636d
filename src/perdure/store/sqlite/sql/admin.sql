-- Operators' reports and changes. Reads may cost in proportion to the number of rows. Status
-- changes are in jobs.sql.

-- name: schema_version
SELECT max(version)
FROM {prefix}migrations;

-- name: indexes_present
SELECT name
FROM sqlite_master
WHERE type = 'index';

-- name: damages
-- Reads every page, and stops at the tenth fault.
PRAGMA quick_check(10);

-- name: newest_at
-- When a job, run or worker was last recorded.
SELECT max(at)
FROM (
    SELECT max(created_at) AS at FROM {prefix}jobs
    UNION ALL
    SELECT max(started_at) FROM {prefix}jobs
    UNION ALL
    SELECT max(finished_at) FROM {prefix}jobs
    UNION ALL
    SELECT max(created_at) FROM {prefix}runs
    UNION ALL
    SELECT max(finished_at) FROM {prefix}runs
    UNION ALL
    SELECT max(seen_at) FROM {prefix}workers
) AS recorded;

-- name: orphaned_runs
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
  AND (finished_at <= :until OR status = 'disabled' AND run_id IS NULL AND disabled_at <= :until)
GROUP BY status;

-- name: count_ended_runs
SELECT status, count(*)
FROM {prefix}runs
WHERE namespace = :namespace
  AND finished_at <= :until
  AND parent_run IS NULL
GROUP BY status;

-- name: visible_jobs
SELECT {job_row}
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.id = wanted.value
WHERE NOT job.hidden
  AND (:namespace IS NULL OR job.namespace = :namespace);

-- name: unfinished_of_group
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_group
WHERE job.job_group = :group
  AND job.namespace = :namespace
  AND job.finished_at IS NULL
ORDER BY job.id;

-- name: restart_jobs
-- The columns that a retry resets, besides those of a finished job.
UPDATE {prefix}jobs
SET rank             = rank + (:now - ready_at) / 1e6,
    ready_at         = :now,
    failures         = 0,
    snoozes          = 0,
    crashes          = 0,
    avoid_worker     = NULL,
    avoid_until      = NULL,
    deadline_at      = NULL,
    started_at       = NULL,
    progress         = 0,
    progress_message = '',
    progress_details = NULL
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: note_disabled
UPDATE {prefix}jobs
SET disabled_at = :now
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: pause_queue
INSERT INTO {prefix}queues (namespace, name, paused_at, paused_by)
VALUES (:namespace, :queue, :now, :by)
ON CONFLICT (namespace, name) DO NOTHING;

-- name: resume_queue
DELETE FROM {prefix}queues
WHERE namespace = :namespace
  AND name = :queue;

-- name: queue_stats
-- One part for each index that covers it, without reading rows. The indexes are named, because the
-- planner prefers finding the status to skipping the rows.
SELECT namespace, queue, status, sum(number)
FROM (
    SELECT
        namespace,
        -- The queue is '' where the key is damaged: one row must not hide all the others.
        coalesce(CASE WHEN json_valid(key) THEN CAST(json_extract(key, '$[0]') AS TEXT) END, '') AS queue,
        'waiting' AS status,
        number
    FROM (
        SELECT namespace, rtrim(partition_key, '~.0123456789') AS key, count(*) AS number
        FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
        WHERE status = 'waiting'
        GROUP BY namespace, partition_key
    )
    UNION ALL
    SELECT namespace, queue, 'scheduled', count(*)
    FROM {prefix}jobs INDEXED BY {prefix}jobs_scheduled
    WHERE status = 'scheduled'
    GROUP BY namespace, queue
    UNION ALL
    SELECT namespace, queue, status, count(*)
    FROM {prefix}jobs INDEXED BY {prefix}jobs_claimed
    WHERE lease_until IS NOT NULL
    GROUP BY namespace, queue, status
    UNION ALL
    SELECT namespace, queue, status, count(*)
    FROM {prefix}jobs
    WHERE status IN ('paused', 'disabled')
    GROUP BY namespace, queue, status
    UNION ALL
    SELECT namespace, queue, status, count(*)
    FROM {prefix}jobs INDEXED BY {prefix}jobs_finished
    WHERE finished_at IS NOT NULL
      AND NOT hidden
    GROUP BY namespace, queue, status
)
WHERE :namespace IS NULL OR namespace = :namespace
GROUP BY namespace, queue, status
ORDER BY namespace, queue, status;

-- name: namespaces_of_runs
-- Skips from namespace to namespace through the indexes.
WITH RECURSIVE places (namespace) AS (
    SELECT ''
    UNION ALL
    SELECT (
        SELECT min(next)
        FROM (
            SELECT (
                SELECT min(namespace)
                FROM {prefix}runs INDEXED BY {prefix}runs_live
                WHERE finished_at IS NULL
                  AND namespace > places.namespace
            ) AS next
            UNION ALL
            SELECT (
                SELECT min(namespace)
                FROM {prefix}runs INDEXED BY {prefix}runs_ended
                WHERE status = ended.column1
                  AND namespace > places.namespace
                  AND finished_at IS NOT NULL
                  AND parent_run IS NULL
            )
            FROM (VALUES ('completed'), ('failed'), ('cancelled'), ('skipped')) AS ended
        )
    )
    FROM places
    WHERE places.namespace IS NOT NULL
)
SELECT namespace
FROM places
WHERE namespace > '';

-- name: run_stats
-- Of one namespace: status, unfinished runs read, runs to count, orphaned runs. Without a status:
-- the runs that wait for people.
WITH live AS MATERIALIZED (
    SELECT id, status, parent_run
    FROM {prefix}runs INDEXED BY {prefix}runs_live
    WHERE finished_at IS NULL
      AND namespace = :namespace
    LIMIT :most
),
ended (status) AS (
    VALUES ('completed'), ('failed'), ('cancelled'), ('skipped')
)
SELECT status, count(*), sum(parent_run IS NULL), sum(
    status <> 'paused'
    AND NOT EXISTS (
        SELECT 1
        FROM {prefix}jobs AS job
        WHERE job.run_id = live.id
          AND job.namespace = :namespace
          AND job.finished_at IS NULL
    )
    AND NOT EXISTS (
        SELECT 1
        FROM {prefix}waits AS wait
        WHERE wait.run_id = live.id
          AND wait.namespace = :namespace
    )
)
FROM live
GROUP BY status
UNION ALL
SELECT status, 0, (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM {prefix}runs AS run INDEXED BY {prefix}runs_ended
        WHERE run.status = ended.status
          AND run.namespace = :namespace
          AND run.finished_at IS NOT NULL
          AND run.parent_run IS NULL
        LIMIT :most
    )
), 0
FROM ended
UNION ALL
SELECT NULL, 0, count(DISTINCT run_id), 0
FROM (
    SELECT run_id
    FROM {prefix}waits INDEXED BY {prefix}waits_asking
    WHERE type IN ('external', 'approval')
      AND type = 'approval'
      AND namespace = :namespace
    LIMIT :most
);

-- name: paused_queues
SELECT namespace, name, paused_at, paused_by
FROM {prefix}queues
WHERE :namespace IS NULL OR namespace = :namespace
ORDER BY namespace, name;

-- name: live_flows
SELECT namespace, flow, version, count(*)
FROM {prefix}runs INDEXED BY {prefix}runs_live
WHERE finished_at IS NULL
  AND (:namespace IS NULL OR namespace = :namespace)
GROUP BY namespace, flow, version;
