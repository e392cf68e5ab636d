-- Schedules, and by what flows cool down. $1 is the moment that counts as now (null: the
-- database's own), where it matters.

-- name: list_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {schema}.schedules
WHERE ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR name = $2)
ORDER BY namespace, name;

-- name: lock_schedule
-- Whoever is about to write it is waited for.
SELECT revision
FROM {schema}.schedules
WHERE namespace = $1
  AND name = $2
FOR UPDATE;

-- name: insert_schedule
INSERT INTO {schema}.schedules (namespace, name, revision, due_at, definition, state)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (namespace, name) DO NOTHING
RETURNING true;

-- name: update_schedule
UPDATE {schema}.schedules
SET revision   = $3,
    due_at     = $4,
    definition = $5,
    state      = $6
WHERE namespace = $1
  AND name = $2;

-- name: delete_schedule
DELETE FROM {schema}.schedules
WHERE namespace = $1
  AND name = $2
RETURNING true;

-- name: job_is_in
SELECT
FROM {schema}.jobs
WHERE id = $1;
