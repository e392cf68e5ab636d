-- Runs: how they begin, and the one way in which they go on. The statements that each step of a run
-- needs take their parameters by position (?), which costs a fraction of looking them up by name.

-- name: save_definition
INSERT INTO {prefix}definitions (namespace, flow, version, data)
VALUES (:namespace, :flow, :version, :data)
ON CONFLICT (namespace, flow, version) DO NOTHING;

-- name: get_definition
SELECT data
FROM {prefix}definitions
WHERE namespace = :namespace
  AND flow = :flow
  AND version = :version;

-- name: insert_run
-- Nothing is returned when the id is taken.
INSERT INTO {prefix}runs (
    id, namespace, flow, version, status, parent_run, parent_key, created_at, updated_at,
    finished_at, summary, has_cooldown
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id, namespace) DO NOTHING
RETURNING serial;

-- name: insert_events
INSERT INTO {prefix}events (run_serial, number, at, token, data, value)
VALUES {rows};

-- name: run_and_job
-- All that a step has to be checked against: the run, and the job that it settles. The + keeps
-- the planner from an index with longer keys than the id.
SELECT run.serial, {last_number}, run.token, run.status, run.flow, run.parent_run, run.parent_key,
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
-- Whoever calls this, and what follows, has read the rows in the same transaction.
UPDATE {prefix}runs
SET token      = ?,
    updated_at = ?
WHERE serial = ?;

-- name: change_run
UPDATE {prefix}runs
SET status      = :status,
    finished_at = CASE WHEN :is_ended THEN coalesce(finished_at, :now) END,
    version     = coalesce(:version, version),
    summary     = coalesce(:summary, summary)
WHERE serial = :serial;

-- name: continue_job
-- As if it had just been inserted and claimed, but for the claim and its lease.
UPDATE {prefix}jobs
SET queue            = ?,
    task             = ?,
    lane             = ?,
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
    attempt          = 1,
    failures         = 0,
    postpones        = 0,
    deaths           = 0,
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
      AND job.lane = wanted.value
))
FROM json_each(:lanes) AS wanted;

-- name: jobs_of_run
SELECT {job_row}, job.node_key
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_run
WHERE job.run_id = :run
  AND job.namespace = :namespace
ORDER BY job.id;

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

-- name: change_lanes
UPDATE {prefix}jobs AS job
SET lane = changed.lane
FROM (
    SELECT column1 AS number,
           column2 AS lane
    FROM (VALUES {rows})
) AS changed
WHERE job.rowid = changed.number;

-- name: open_waits
-- One that is open makes way, but for when it was opened: what a key waits for changed, or the key
-- is started anew and still has the wait of a child that was given up.
INSERT INTO {prefix}waits (
    namespace, run_id, key, kind, name, opened_at, due_at, deciders, detail
)
VALUES {rows}
ON CONFLICT (run_id, namespace, key) DO UPDATE
SET kind     = excluded.kind,
    name     = excluded.name,
    due_at   = excluded.due_at,
    deciders = excluded.deciders,
    detail   = excluded.detail,
    is_held  = 0;

-- name: close_waits
DELETE FROM {prefix}waits
WHERE namespace = :namespace
  AND run_id = :run
  AND key IN (SELECT value FROM json_each(:keys));

-- name: end_waits
-- keys NULL means all. That for a child stays, so that somebody sees to the child.
DELETE FROM {prefix}waits
WHERE namespace = :namespace
  AND run_id = :run
  AND kind <> 'child'
  AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)));

-- name: give_up_children
UPDATE {prefix}waits
SET due_at  = min(coalesce(due_at, :now), :now),
    is_held = 0
WHERE namespace = :namespace
  AND run_id = :run
  AND kind = 'child'
  AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)));

-- name: child_ended
UPDATE {prefix}waits
SET due_at = min(coalesce(due_at, :now), :now)
WHERE namespace = :namespace
  AND run_id = :run
  AND key = :key
  AND kind = 'child'
  AND name = :child;

-- name: hold_waits
UPDATE {prefix}waits
SET is_held = :is_held
WHERE namespace = :namespace
  AND run_id = :run;

-- name: replace_snapshot
INSERT INTO {prefix}snapshots (run_serial, number, data)
VALUES (:serial, :number, :data)
ON CONFLICT (run_serial) DO UPDATE
SET number = excluded.number,
    data   = excluded.data;

-- name: run_with_snapshot
SELECT {run_row}, run.serial, snapshot.number, snapshot.data
FROM {prefix}runs AS run
LEFT JOIN {prefix}snapshots AS snapshot
    ON snapshot.run_serial = run.serial
    AND :wants_snapshot
WHERE run.id = :run
  AND run.namespace = :namespace;

-- name: events_after
SELECT number, at, data, value
FROM {prefix}events
WHERE run_serial = ?
  AND number > ?
ORDER BY number;

-- name: latest_events
SELECT number, at, data, NULL
FROM {prefix}events
WHERE run_serial = (
    SELECT serial
    FROM {prefix}runs
    WHERE id = :run
      AND namespace = :namespace
  )
  AND number < :before
ORDER BY number DESC
LIMIT :limit;

-- name: event_values
SELECT number, value
FROM {prefix}events
WHERE run_serial = (
    SELECT serial
    FROM {prefix}runs
    WHERE id = :run
      AND namespace = :namespace
  )
  AND number IN (SELECT value FROM json_each(:numbers))
  AND value IS NOT NULL;

-- name: get_run
SELECT {run_row}
FROM {prefix}runs AS run
WHERE run.id = :run
  AND (:namespace IS NULL OR run.namespace = :namespace)
ORDER BY run.namespace
LIMIT 1;

-- name: list_runs
-- {index} and {where} are what serves the filter best; the other filters look at the rows.
SELECT {run_row}
FROM {prefix}runs AS run {index}
WHERE {where}
  AND (run.created_at, run.id) < (:before_at, :before_id)
  AND (:namespace IS NULL OR run.namespace = :namespace)
  AND (:id IS NULL OR run.id = :id)
  AND (:status IS NULL OR run.status = :status)
  AND (:flow IS NULL OR run.flow = :flow)
  AND (:version IS NULL OR run.version = :version)
  AND (:parent IS NULL OR run.parent_run = :parent)
  AND (:is_ended IS NULL OR (run.finished_at IS NOT NULL) = :is_ended)
ORDER BY run.created_at DESC, run.id DESC
LIMIT :limit;

-- name: count_runs
SELECT count(*)
FROM {prefix}runs AS run {index}
WHERE {where}
  AND (run.created_at, run.id) < (:before_at, :before_id)
  AND (:namespace IS NULL OR run.namespace = :namespace)
  AND (:id IS NULL OR run.id = :id)
  AND (:status IS NULL OR run.status = :status)
  AND (:flow IS NULL OR run.flow = :flow)
  AND (:version IS NULL OR run.version = :version)
  AND (:parent IS NULL OR run.parent_run = :parent)
  AND (:is_ended IS NULL OR (run.finished_at IS NOT NULL) = :is_ended);

-- name: live_flows
SELECT namespace, flow, version, count(*)
FROM {prefix}runs INDEXED BY {prefix}runs_live
WHERE finished_at IS NULL
  AND (:namespace IS NULL OR namespace = :namespace)
GROUP BY namespace, flow, version;

-- name: run_jobs
SELECT {record_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_run
WHERE job.run_id = :run
  AND job.namespace = :namespace
ORDER BY job.id;

-- name: save_step
-- Under the run of the claimed job, or under the job itself if it is a plain one.
INSERT INTO {prefix}steps (owner, name, value, run_serial, job_id)
SELECT :owner, :step, :value, run.serial, CASE WHEN job.run_id IS NULL THEN job.id END
FROM {prefix}jobs AS job
LEFT JOIN {prefix}runs AS run
    ON run.id = job.run_id
    AND run.namespace = job.namespace
WHERE job.id = :id
ON CONFLICT (owner, name) DO NOTHING;

-- name: load_steps
SELECT name, value
FROM {prefix}steps
WHERE owner = :owner
ORDER BY number;

-- name: outdated_runs
-- Runs that nothing is above; not those that something live is below.
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

-- name: family_of_run
-- The run and all below it.
WITH RECURSIVE family (serial, id) AS (
    SELECT serial, id
    FROM {prefix}runs
    WHERE id = :run
      AND namespace = :namespace
    UNION
    SELECT child.serial, child.id
    FROM family
    CROSS JOIN {prefix}runs AS child INDEXED BY {prefix}runs_parent
        ON child.parent_run = family.id
        AND child.namespace = :namespace
)
SELECT serial, id
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
