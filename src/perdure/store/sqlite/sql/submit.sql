-- name: remove_jobs
DELETE FROM {prefix}jobs
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: remove_failures
DELETE FROM {prefix}failures
WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: remove_large_inputs
DELETE FROM {prefix}large_inputs
WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: remove_steps_of_jobs
DELETE FROM {prefix}steps
WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: insert_run
-- Returns no row if the id is taken.
INSERT INTO {prefix}runs (
    id, namespace, flow, version, status, parent_run, parent_key, created_at, updated_at,
    finished_at, summary, has_cooldown, number, priority, start_at, started_at, place_key,
    place_limit, rank, settings
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id, namespace) DO NOTHING
RETURNING serial;

-- name: insert_events
INSERT INTO {prefix}events (run_serial, number, at, token, data, value)
VALUES {rows};

-- name: jobs_of_run
SELECT {job_row}, job.node_key
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_run
WHERE job.run_id = :run
  AND job.namespace = :namespace
ORDER BY job.id;

-- name: open_waits
-- Replaces an open wait of the same key, whose opening time stays: the key waits for something else
-- now, or was restarted and still has the wait of an abandoned child.
INSERT INTO {prefix}waits (
    namespace, run_id, key, type, name, opened_at, due_at, deciders, detail, remaining
)
VALUES {rows}
ON CONFLICT (run_id, namespace, key) DO UPDATE
SET type     = excluded.type,
    name     = excluded.name,
    due_at   = excluded.due_at,
    deciders = excluded.deciders,
    detail   = excluded.detail,
    remaining = excluded.remaining,
    suspended = 0;

-- name: child_ended
UPDATE {prefix}waits
SET due_at = min(coalesce(due_at, :now), :now)
WHERE namespace = :namespace
  AND run_id = :run
  AND key = :key
  AND type = 'child'
  AND name = :child;

-- name: get_run
SELECT {run_row}
FROM {prefix}runs AS run
WHERE run.id = :run
  AND (:namespace IS NULL OR run.namespace = :namespace)
ORDER BY run.namespace
LIMIT 1;

-- name: family_of_run
-- The run and all its descendants.
WITH RECURSIVE family (serial, id, created_at) AS (
    SELECT serial, id, created_at
    FROM {prefix}runs
    WHERE id = :run
      AND namespace = :namespace
    UNION
    SELECT child.serial, child.id, child.created_at
    FROM family
    CROSS JOIN {prefix}runs AS child INDEXED BY {prefix}runs_parent
        ON child.parent_run = family.id
        AND child.namespace = :namespace
)
SELECT serial, id, created_at
FROM family;

-- name: remove_waits_of_runs
DELETE FROM {prefix}waits
WHERE namespace = :namespace
  AND run_id IN (SELECT value FROM json_each(:ids));

-- name: remove_events
DELETE FROM {prefix}events
WHERE run_serial IN (SELECT value FROM json_each(:serials));

-- name: remove_snapshots
DELETE FROM {prefix}snapshots
WHERE run_serial IN (SELECT value FROM json_each(:serials));

-- name: remove_steps
DELETE FROM {prefix}steps
WHERE run_serial IN (SELECT value FROM json_each(:serials));

-- name: remove_runs
DELETE FROM {prefix}runs
WHERE serial IN (SELECT value FROM json_each(:serials));

-- name: last_started
SELECT id, created_at
FROM {prefix}runs INDEXED BY {prefix}runs_started
WHERE has_cooldown = 1
  AND status <> 'skipped'
  AND namespace = :namespace
  AND flow = :flow
  AND created_at <= :until
ORDER BY created_at DESC, id DESC
LIMIT 1;

-- name: last_completed
SELECT id, finished_at
FROM {prefix}runs INDEXED BY {prefix}runs_completed
WHERE has_cooldown = 1
  AND status = 'completed'
  AND namespace = :namespace
  AND flow = :flow
  AND finished_at <= :until
ORDER BY finished_at DESC, id DESC
LIMIT 1;
