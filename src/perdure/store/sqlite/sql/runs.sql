-- name: save_definition
INSERT INTO {prefix}definitions (namespace, flow, version, data, children, used_at, was_left)
VALUES (:namespace, :flow, :version, :data, :children, :now, 0)
ON CONFLICT (namespace, flow, version) DO UPDATE
SET used_at  = excluded.used_at,
    children = excluded.children;

-- name: definition_used_at
SELECT used_at
FROM {prefix}definitions
WHERE namespace = ?
  AND flow = ?
  AND version = ?;

-- name: leave_definition
UPDATE {prefix}definitions
SET was_left = 1
WHERE (namespace, flow, version) = (
    SELECT namespace, flow, version
    FROM {prefix}runs
    WHERE serial = :serial
);

-- name: get_definition
SELECT data
FROM {prefix}definitions
WHERE namespace = :namespace
  AND flow = :flow
  AND version = :version;

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

-- name: save_step
-- Under the run of the claimed job, or under the job itself if it is standalone.
INSERT INTO {prefix}steps (owner, name, value, run_serial, job_id)
SELECT :owner, :step, :value, run.serial, CASE WHEN job.run_id IS NULL THEN job.id END
FROM {prefix}jobs AS job
LEFT JOIN {prefix}runs AS run
    ON run.id = job.run_id
    AND run.namespace = job.namespace
WHERE job.id = :id
ON CONFLICT (owner, name) DO NOTHING;

-- name: remove_suspicion
-- The job made progress. It keeps the part of the key that names its partition, which ends with ].
UPDATE {prefix}jobs
SET partition_key = rtrim(partition_key, '~.0123456789'),
    claimed_alone = 0
WHERE id = :id
  AND partition_key GLOB '*]~[0-9]*';

-- name: load_steps
SELECT name, value
FROM {prefix}steps
WHERE owner = :owner
ORDER BY number;
