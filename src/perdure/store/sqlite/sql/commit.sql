-- Commits of runs. The statements that every step needs take positional parameters (?), which cost
-- a fraction of a lookup by name.

-- name: run_and_job
-- Everything that a step is checked against: the run, and the job that it settles. The + keeps the
-- planner from an index with longer keys than the id.
SELECT run.serial, {last_number}, run.token, run.status, run.flow, run.parent_run, run.parent_key,
       run.created_at,
       {node_job_row}
FROM {prefix}runs AS run
LEFT JOIN {prefix}jobs AS job
    ON job.id = ?
    AND +job.run_id = run.id
    AND +job.namespace = run.namespace
WHERE run.id = ?
  AND run.namespace = ?;

-- name: node_job
SELECT {node_job_row}
FROM {prefix}jobs AS job
WHERE job.id = ?
  AND +job.run_id = ?
  AND +job.namespace = ?;

-- name: token_of_event
SELECT token
FROM {prefix}events
WHERE run_serial = ?
  AND number = ?;

-- name: touch_run
-- The caller of this and the following statements has read the rows in the same transaction.
UPDATE {prefix}runs
SET token      = ?,
    updated_at = ?
WHERE serial = ?;

-- name: change_run
UPDATE {prefix}runs
SET status      = :status,
    -- One commit may both retry and end a run; one without events keeps the end time.
    finished_at = CASE
        WHEN :is_ended AND :has_events THEN :now
        WHEN :is_ended THEN coalesce(finished_at, :now)
    END,
    version     = coalesce(:version, version),
    summary     = coalesce(:summary, summary),
    number      = :number
WHERE serial = :serial;

-- name: continue_job
-- As if just inserted and claimed, except for the claim and its lease.
UPDATE {prefix}jobs
SET queue            = ?,
    task             = ?,
    partition_key    = ?,
    job_group        = ?,
    priority         = ?,
    rank             = ?,
    max_attempts     = ?,
    created_at       = ?,
    ready_at         = ?,
    started_at       = ?,
    deadline_at      = ?,
    policy           = ?,
    input            = ?,
    node_key         = ?,
    run_number       = ?,
    attempt          = 1,
    failures         = 0,
    snoozes          = 0,
    crashes          = 0,
    claimed_alone    = 0,
    avoid_worker     = NULL,
    avoid_until      = NULL,
    limit_keys       = NULL,
    progress         = 0,
    progress_message = '',
    progress_details = NULL
WHERE rowid = ?;

-- name: remove_node_job
DELETE FROM {prefix}jobs
WHERE rowid = ?;

-- name: forget_failures
DELETE FROM {prefix}failures
WHERE job_id = ?;

-- name: forget_large_input
DELETE FROM {prefix}large_inputs
WHERE job_id = ?;

-- name: is_any_waiting
SELECT 1
FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
WHERE status = 'waiting'
  AND namespace = ?
LIMIT 1;

-- name: lowest_rank
SELECT min((
    SELECT min(job.rank)
    FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_waiting
    WHERE job.status = 'waiting'
      AND job.namespace = :namespace
      AND job.partition_key = wanted.value
))
FROM json_each(:partitions) AS wanted;

-- name: park_jobs
UPDATE {prefix}jobs
SET status      = 'paused',
    epoch       = epoch + (lease_until IS NOT NULL),
    attempt     = attempt - (lease_until IS NOT NULL),
    worker      = NULL,
    lease_until = NULL,
    limit_keys  = NULL
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: unpark_jobs
UPDATE {prefix}jobs
SET status = CASE WHEN ready_at <= :now THEN 'waiting' ELSE 'scheduled' END
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: remember_worker
UPDATE {prefix}runs
SET sticky_worker = :worker
WHERE serial = :serial
  AND sticky_worker IS NOT :worker;

-- name: sticky_worker
-- The last worker of a run, if it is live.
SELECT worker.id
FROM {prefix}runs AS run
JOIN {prefix}workers AS worker ON worker.id = run.sticky_worker
WHERE run.serial = :serial
  AND worker.seen_at + worker.lease >= :now;

-- name: stick_jobs
UPDATE {prefix}jobs AS job
SET partition_key = stuck.partition_key,
    sticky_worker = stuck.worker,
    sticky_until  = stuck.until
FROM (
    SELECT column1 AS number,
           column2 AS partition_key,
           column3 AS worker,
           column4 AS until
    FROM (VALUES {rows})
) AS stuck
WHERE job.rowid = stuck.number;

-- name: change_partitions
UPDATE {prefix}jobs AS job
SET partition_key = changed.partition_key
FROM (
    SELECT column1 AS number,
           column2 AS partition_key
    FROM (VALUES {rows})
) AS changed
WHERE job.rowid = changed.number;

-- name: close_waits
DELETE FROM {prefix}waits
WHERE namespace = :namespace
  AND run_id = :run
  AND key IN (SELECT value FROM json_each(:keys));

-- name: end_waits
-- NULL keys mean all. The wait for a child stays, because the parent must handle the child.
DELETE FROM {prefix}waits
WHERE namespace = :namespace
  AND run_id = :run
  AND type <> 'child'
  AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)));

-- name: give_up_children
UPDATE {prefix}waits
SET due_at  = min(coalesce(due_at, :now), :now),
    suspended = 0
WHERE namespace = :namespace
  AND run_id = :run
  AND type = 'child'
  AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)));

-- name: suspend_waits
UPDATE {prefix}waits
SET suspended = :suspended
WHERE namespace = :namespace
  AND run_id = :run
  AND key <> 'run:timeout';  -- a pause does not stop the clock of the run

-- name: start_run
-- Or, without a time, queue it again for a place.
UPDATE {prefix}runs
SET started_at = :started_at,
    rank       = CASE WHEN :started_at IS NULL THEN :now + priority * :aging END
WHERE serial = :serial;

-- name: stop_clock
UPDATE {prefix}waits
SET remaining = due_at - :now,
    due_at    = NULL
WHERE namespace = :namespace
  AND run_id = :run
  AND key = :key
  AND due_at > :now;

-- name: continue_clock
UPDATE {prefix}waits
SET due_at    = :now + remaining,
    remaining = NULL
WHERE namespace = :namespace
  AND run_id = :run
  AND key = :key
  AND remaining IS NOT NULL;

-- name: change_priority
UPDATE {prefix}runs
SET priority = :priority,
    rank     = rank + (:priority - priority) * :aging
WHERE serial = :serial;

-- name: rank_job
UPDATE {prefix}jobs INDEXED BY {prefix}jobs_run
SET priority = :priority,
    rank     = rank + (:priority - priority) * :aging
WHERE run_id = :run
  AND namespace = :namespace
  AND node_key = :key;

-- name: replace_snapshot
INSERT INTO {prefix}snapshots (run_serial, number, data)
VALUES (:serial, :number, :data)
ON CONFLICT (run_serial) DO UPDATE
SET number = excluded.number,
    data   = excluded.data;
