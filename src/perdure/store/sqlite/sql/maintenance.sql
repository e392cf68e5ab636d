-- Maintenance; retention is decided in worker/janitor.py, and status changes are in jobs.sql.
-- Indexes are named where another would also match: without statistics the planner cannot know
-- which one stays small.

-- name: poll
-- A skip scan: each partition is one index lookup after the previous one, however many jobs wait.
WITH RECURSIVE partitions (partition_key) AS (
    SELECT (
        SELECT min(partition_key)
        FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
        WHERE status = 'waiting'
          AND namespace = :namespace
          AND partition_key > :after_partition
    )
    UNION ALL
    SELECT (
        SELECT min(job.partition_key)
        FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_waiting
        WHERE job.status = 'waiting'
          AND job.namespace = :namespace
          AND job.partition_key > partitions.partition_key
    )
    FROM partitions
    WHERE partitions.partition_key IS NOT NULL
    LIMIT :partitions_max
)
SELECT (SELECT json_group_array(partition_key) FROM partitions WHERE partition_key IS NOT NULL),
       (
           SELECT min(ready_at)
           FROM {prefix}jobs INDEXED BY {prefix}jobs_scheduled
           WHERE status = 'scheduled'
             AND namespace = :namespace
       ),
       (
           SELECT min(lease_until)
           FROM {prefix}jobs INDEXED BY {prefix}jobs_claimed
           WHERE lease_until IS NOT NULL
             AND namespace = :namespace
       ),
       (
           SELECT min(deadline_at)
           FROM {prefix}jobs INDEXED BY {prefix}jobs_deadline
           WHERE deadline_at IS NOT NULL
             AND run_id IS NULL
             AND namespace = :namespace
             AND status IN ('waiting', 'scheduled', 'paused')
       ),
       (
           SELECT min(due_at)
           FROM {prefix}waits INDEXED BY {prefix}waits_due
           WHERE due_at IS NOT NULL
             AND suspended = 0
             AND namespace = :namespace
       ),
       (
           SELECT min(due_at)
           FROM {prefix}schedules INDEXED BY {prefix}schedules_due
           WHERE due_at IS NOT NULL
             AND namespace = :namespace
       ),
       (
           SELECT json_group_array(name)
           FROM (
               SELECT name
               FROM {prefix}queues
               WHERE namespace = :namespace
               ORDER BY name
           )
       );

-- name: acquire_lease
INSERT INTO {prefix}maintenance_leases (name, worker, lease_until)
VALUES (:duty, :worker, :lease_until)
ON CONFLICT (name) DO UPDATE
SET worker      = excluded.worker,
    lease_until = excluded.lease_until
WHERE worker = excluded.worker
   OR lease_until <= :now;

-- name: due_jobs
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_scheduled
WHERE job.status = 'scheduled'
  AND job.namespace = :namespace
  AND job.ready_at <= :now
ORDER BY job.ready_at
LIMIT :limit;

-- name: expired_leases
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_claimed
WHERE job.namespace = :namespace
  AND job.lease_until <= :now
ORDER BY job.lease_until
LIMIT :limit;

-- name: past_deadlines
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_deadline
WHERE job.namespace = :namespace
  AND job.deadline_at <= :now
  AND job.run_id IS NULL
  AND job.status IN ('waiting', 'scheduled', 'paused')
ORDER BY job.deadline_at
LIMIT :limit;

-- name: outdated_jobs
SELECT rowid, id
FROM {prefix}jobs INDEXED BY {prefix}jobs_finished
WHERE status = :status
  AND namespace = :namespace
  AND finished_at <= :until
ORDER BY finished_at
LIMIT :limit;

-- name: idle_limits
SELECT key
FROM {prefix}limits
WHERE namespace = :namespace
  AND coalesce(closed_until, :until) <= :until
  AND coalesce(counts_until, :until) <= :until
LIMIT :limit;

-- name: remove_starts
DELETE FROM {prefix}limit_starts
WHERE namespace = :namespace
  AND key IN (SELECT value FROM json_each(:keys));

-- name: remove_limits
DELETE FROM {prefix}limits
WHERE namespace = :namespace
  AND key IN (SELECT value FROM json_each(:keys));

-- name: register_worker
INSERT INTO {prefix}workers (id, namespace, info, lease, started_at, seen_at)
VALUES (:id, :namespace, :info, :lease, :now, :now)
ON CONFLICT (id) DO UPDATE
SET namespace = excluded.namespace,
    info      = excluded.info,
    lease     = excluded.lease,
    seen_at   = excluded.seen_at;

-- name: remove_worker
DELETE FROM {prefix}workers
WHERE id = :id;

-- name: prune_workers
DELETE FROM {prefix}workers
WHERE namespace = :namespace
  AND seen_at <= :now - max(:idle, 2 * lease);

-- name: outdated_runs
-- Runs without a parent and without unfinished descendants.
SELECT run.id
FROM {prefix}runs AS run INDEXED BY {prefix}runs_ended
WHERE run.status = :status
  AND run.namespace = :namespace
  AND run.finished_at <= :until
  AND run.parent_run IS NULL
  AND NOT EXISTS (
      WITH RECURSIVE below (id, finished_at) AS (
          SELECT child.id, child.finished_at
          FROM {prefix}runs AS child INDEXED BY {prefix}runs_parent
          WHERE child.parent_run = run.id
            AND child.namespace = run.namespace
          UNION
          SELECT child.id, child.finished_at
          FROM below
          CROSS JOIN {prefix}runs AS child INDEXED BY {prefix}runs_parent
              ON child.parent_run = below.id
              AND child.namespace = run.namespace
      )
      SELECT 1
      FROM below
      WHERE finished_at IS NULL
  )
ORDER BY run.finished_at
LIMIT :limit;

-- name: due_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {prefix}schedules INDEXED BY {prefix}schedules_due
WHERE due_at IS NOT NULL
  AND namespace = :namespace
  AND due_at <= :now
ORDER BY due_at
LIMIT :limit;

-- name: due_waits
SELECT {wait_row}
FROM {prefix}waits AS wait INDEXED BY {prefix}waits_due
WHERE wait.namespace = :namespace
  AND wait.due_at <= :now
  AND wait.suspended = 0
ORDER BY wait.due_at, wait.run_id, wait.key
LIMIT :limit;
