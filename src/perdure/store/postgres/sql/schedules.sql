-- Schedules. Named parameters are in params.py.

-- name: list_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {schema}.schedules
WHERE ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR name = $2)
ORDER BY namespace, name;

-- name: lock_schedule
-- Waits for a concurrent writer.
SELECT revision
FROM {schema}.schedules
WHERE namespace = $1
  AND name = $2
FOR UPDATE;

-- name: insert_schedule
INSERT INTO {schema}.schedules (namespace, name, revision, due_at, definition, state)
VALUES (:namespace, :name, :revision, :due_at, :definition, :state)
ON CONFLICT (namespace, name) DO NOTHING
RETURNING true;

-- name: update_schedule
UPDATE {schema}.schedules
SET revision   = :revision,
    due_at     = :due_at,
    definition = :definition,
    state      = :state
WHERE namespace = :namespace
  AND name = :name;

-- name: delete_schedule
DELETE FROM {schema}.schedules
WHERE namespace = $1
  AND name = $2
RETURNING true;

-- name: job_is_in
SELECT
FROM {schema}.jobs
WHERE id = $1;
