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
           SELECT min(sticky_until)
           FROM {prefix}jobs INDEXED BY {prefix}jobs_sticky
           WHERE sticky_until IS NOT NULL
             AND status = 'waiting'
             AND namespace = :namespace
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
       ),
       (
           SELECT max(seen_at)
           FROM {prefix}workers INDEXED BY {prefix}workers_seen
           WHERE namespace = :namespace
       ),
       EXISTS (
           SELECT 1
           FROM {prefix}subscribers
           WHERE namespace = :namespace
             AND lease_until > :now
       );

-- name: acquire_lease
-- A lease that ends too late was acquired before the clock was set back.
INSERT INTO {prefix}maintenance_leases (name, worker, lease_until, lease)
VALUES (:lease_name, :worker, :now + :lease, :lease)
ON CONFLICT (name) DO UPDATE
SET worker      = excluded.worker,
    lease_until = excluded.lease_until,
    lease       = excluded.lease
WHERE worker = excluded.worker
   OR lease_until <= :now
   OR lease_until > :now + lease;

-- name: bound_leases
-- Here and below: after the clock was set back (see ``bound_times`` in the contract).
UPDATE {prefix}jobs AS job
SET lease_until = :now + coalesce((SELECT lease FROM {prefix}workers WHERE id = job.worker), :lease)
WHERE job.rowid IN (
    SELECT held.rowid
    FROM {prefix}jobs AS held INDEXED BY {prefix}jobs_claimed
    LEFT JOIN {prefix}workers AS holder ON holder.id = held.worker
    WHERE held.namespace = :namespace
      AND held.lease_until > :now + coalesce(holder.lease, :lease)
);

-- name: bound_waits
-- Waits for children and places have no due time until they are due.
UPDATE {prefix}waits AS wait
SET due_at = :now
WHERE namespace = :namespace
  AND due_at > :now
  AND suspended = 0
  AND (
      type = 'child'
      OR (
          key = 'run:start'
          AND EXISTS (
              SELECT 1
              FROM {prefix}runs AS run
              WHERE run.id = wait.run_id
                AND run.namespace = wait.namespace
                AND run.rank IS NOT NULL
          )
      )
  );

-- name: bound_sticky
-- A waiting job that is not ready was made ready before the clock was set back.
UPDATE {prefix}jobs
SET sticky_until = :now
WHERE status = 'waiting'
  AND sticky_until > :now
  AND namespace = :namespace
  AND ready_at > :now;

-- name: bound_subscribers
UPDATE {prefix}subscribers
SET lease_until = :now + :lease
WHERE namespace = :namespace
  AND lease_until > :now + :lease;

-- name: bound_live_events
UPDATE {prefix}live_events
SET at = :now
WHERE namespace = :namespace
  AND at > :now;

-- name: bound_workers
UPDATE {prefix}workers
SET seen_at = :now
WHERE namespace = :namespace
  AND seen_at > :now;

-- name: due_jobs
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_scheduled
WHERE job.status = 'scheduled'
  AND job.namespace = :namespace
  AND job.ready_at <= :now
ORDER BY job.ready_at
LIMIT :limit;

-- name: late_sticky_jobs
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_sticky
WHERE job.status = 'waiting'
  AND job.sticky_until <= :now
  AND job.namespace = :namespace
ORDER BY job.sticky_until
LIMIT :limit;

-- name: orphaned_sticky_jobs
-- Each worker is looked up once, however many jobs wait for it.
WITH RECURSIVE awaited (worker) AS (
    SELECT min(sticky_worker)
    FROM {prefix}jobs INDEXED BY {prefix}jobs_sticky_worker
    WHERE sticky_until IS NOT NULL
      AND status = 'waiting'
      AND namespace = :namespace
    UNION ALL
    SELECT (
        SELECT min(sticky_worker)
        FROM {prefix}jobs INDEXED BY {prefix}jobs_sticky_worker
        WHERE sticky_until IS NOT NULL
          AND status = 'waiting'
          AND namespace = :namespace
          AND sticky_worker > awaited.worker
    )
    FROM awaited
    WHERE awaited.worker IS NOT NULL
)
SELECT {job_row}
FROM awaited
CROSS JOIN {prefix}jobs AS job INDEXED BY {prefix}jobs_sticky_worker
WHERE job.status = 'waiting'
  AND job.sticky_until > :now
  AND job.namespace = :namespace
  AND job.sticky_worker = awaited.worker
  AND NOT EXISTS (
      SELECT 1
      FROM {prefix}workers AS worker
      WHERE worker.id = awaited.worker
        AND worker.seen_at + worker.lease >= :now
  )
LIMIT :limit;

-- name: release_jobs
-- The job keeps the part of the key that names its partition, which ends with ].
UPDATE {prefix}jobs
SET partition_key = CASE
        WHEN rtrim(partition_key, '0123456789') LIKE '%]~~'
        THEN rtrim(partition_key, '~0123456789')
        ELSE partition_key
    END,
    sticky_worker = NULL,
    sticky_until  = NULL
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: expired_leases
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_claimed
WHERE job.namespace = :namespace
  AND job.lease_until <= :now
ORDER BY job.lease_until
LIMIT :limit;

-- name: former_claims
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_claimed
WHERE job.lease_until IS NOT NULL
  AND job.namespace = :namespace
  AND job.worker = :worker
  AND job.incarnation <> :incarnation
ORDER BY job.id
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

-- name: outdated_disabled_jobs
SELECT rowid, id
FROM {prefix}jobs INDEXED BY {prefix}jobs_disabled
WHERE status = 'disabled'
  AND namespace = :namespace
  AND disabled_at <= :until
  AND run_id IS NULL
ORDER BY disabled_at
LIMIT :limit;

-- name: record_pruned_jobs
INSERT INTO {prefix}pruned_ends (namespace, type, until)
SELECT namespace, 'job.' || status, max(finished_at)
FROM {prefix}jobs
WHERE rowid IN (SELECT value FROM json_each(:numbers))
GROUP BY namespace, status
ON CONFLICT (namespace, type) DO UPDATE
SET until = max(until, excluded.until);

-- name: record_pruned_runs
-- A run that is pruned with its parent may have ended later.
INSERT INTO {prefix}pruned_ends (namespace, type, until)
SELECT namespace, 'run.' || status, max(finished_at)
FROM {prefix}runs
WHERE serial IN (SELECT value FROM json_each(:serials))
GROUP BY namespace, status
ON CONFLICT (namespace, type) DO UPDATE
SET until = max(until, excluded.until);

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
INSERT INTO {prefix}workers (
    id, namespace, info, lease, started_at, seen_at, counts, counts_before, incarnation
)
VALUES (:id, :namespace, :info, :lease, :now, :now, :counts, :counts, :incarnation)
ON CONFLICT (id) DO UPDATE
SET namespace     = excluded.namespace,
    info          = excluded.info,
    lease         = excluded.lease,
    incarnation   = excluded.incarnation,
    counts        = excluded.counts,
    counts_before = CASE WHEN :starts THEN excluded.counts ELSE counts_before END,
    started_at    = CASE WHEN :starts THEN excluded.started_at ELSE started_at END,
    -- Never earlier: a heartbeat in the future marks a clock that was set back, until bound_times
    -- runs.
    seen_at     = max(seen_at, excluded.seen_at)
WHERE :starts
   OR incarnation IS excluded.incarnation;

-- name: counts_of_worker
SELECT namespace, counts, counts_before
FROM {prefix}workers
WHERE id = :id;

-- name: remove_worker
DELETE FROM {prefix}workers
WHERE id = :id
  AND incarnation IS :incarnation
RETURNING namespace, counts, counts_before;

-- name: prune_workers
DELETE FROM {prefix}workers
WHERE namespace = :namespace
  AND seen_at <= :now - max(:idle, 2 * lease)
RETURNING namespace, counts, counts_before;

-- name: keep_counts
INSERT INTO {prefix}past_counts AS past (namespace, task, queue, name, value)
SELECT column1, column2, column3, column4, column5
FROM (VALUES {rows})
WHERE TRUE
ON CONFLICT (namespace, task, queue, name) DO UPDATE
SET value = past.value + excluded.value;

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

-- name: old_definitions
-- With a flag for whether each is in use. Where the child flows are unknown, any mention of a
-- version counts.
WITH child (text) AS MATERIALIZED (
    SELECT value
    FROM {prefix}definitions AS parent, json_each(parent.children)
    WHERE parent.namespace = :namespace
)
SELECT old.flow, old.version,
       EXISTS (
           SELECT 1
           FROM {prefix}runs AS run INDEXED BY {prefix}runs_live
           WHERE run.finished_at IS NULL
             AND run.namespace = :namespace
             AND run.flow = old.flow
             AND (run.version = old.version OR old.was_left)
       )
       OR EXISTS (
           SELECT 1
           FROM {prefix}runs AS run INDEXED BY {prefix}runs_of_flows
           WHERE run.finished_at IS NOT NULL
             AND run.namespace = :namespace
             AND run.flow = old.flow
             AND (run.version = old.version OR old.was_left)
       )
       OR old.flow || '@' || old.version IN (SELECT value FROM json_each(:scheduled))
       OR old.flow || '@' || old.version IN (SELECT text FROM child)
       OR EXISTS (
           SELECT 1
           FROM {prefix}definitions AS parent
           WHERE parent.namespace = :namespace
             AND parent.children IS NULL
             AND parent.version <> old.version
             AND instr(parent.data, CAST(old.version AS BLOB)) > 0
       )
FROM {prefix}definitions AS old INDEXED BY {prefix}definitions_used
WHERE old.namespace = :namespace
  AND old.used_at <= :until
ORDER BY old.used_at
LIMIT :limit;

-- name: keep_definition
UPDATE {prefix}definitions
SET used_at = ?
WHERE namespace = ?
  AND flow = ?
  AND version = ?;

-- name: remove_definition
DELETE FROM {prefix}definitions
WHERE namespace = ?
  AND flow = ?
  AND version = ?;

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
