-- Schedules, and by what flows cool down. $1 is the moment that counts as now (null: the
-- database's own), where it matters.

-- name: list_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {schema}.schedules
WHERE ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR name = $2)
ORDER BY namespace, name;

-- name: due_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {schema}.schedules
WHERE due_at IS NOT NULL
  AND namespace = $2
  AND due_at <= coalesce($1::timestamptz, statement_timestamp())
ORDER BY due_at
LIMIT $3;

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

-- name: lock_flow
-- Those who add runs of a flow that cools down do so one after the other.
SELECT pg_advisory_xact_lock(hashtextextended(
    'perdure cooldown {schema} ' || $1::text || ' ' || $2::text, 0
));

-- name: last_runs
-- The run that began last, and the one that was completed last, with whether it is the latter.
SELECT begun.id, begun.created_at, false, moment.now
FROM (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
CROSS JOIN LATERAL (
    SELECT id, created_at
    FROM {schema}.runs
    WHERE has_cooldown
      AND status <> 'skipped'
      AND namespace = $2
      AND flow = $3
    ORDER BY created_at DESC, id DESC
    LIMIT 1
) AS begun
UNION ALL
SELECT completed.id, completed.finished_at, true, moment.now
FROM (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
CROSS JOIN LATERAL (
    SELECT id, finished_at
    FROM {schema}.runs
    WHERE has_cooldown
      AND status = 'completed'
      AND namespace = $2
      AND flow = $3
    ORDER BY finished_at DESC, id DESC
    LIMIT 1
) AS completed;

-- name: job_is_in
SELECT
FROM {schema}.jobs
WHERE id = $1;
