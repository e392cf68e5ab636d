-- Schedules, and by what flows cool down.

-- name: get_schedule
SELECT namespace, name, revision, definition, state, due_at
FROM {prefix}schedules
WHERE namespace = :namespace
  AND name = :schedule;

-- name: list_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {prefix}schedules
WHERE (:namespace IS NULL OR namespace = :namespace)
  AND (:schedule IS NULL OR name = :schedule)
ORDER BY namespace, name;

-- name: due_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {prefix}schedules INDEXED BY {prefix}schedules_due
WHERE due_at IS NOT NULL
  AND namespace = :namespace
  AND due_at <= :now
ORDER BY due_at
LIMIT :limit;

-- name: insert_schedule
INSERT INTO {prefix}schedules (namespace, name, revision, due_at, definition, state)
VALUES (:namespace, :schedule, :revision, :due_at, :definition, :state)
ON CONFLICT (namespace, name) DO NOTHING;

-- name: update_schedule
UPDATE {prefix}schedules
SET revision   = :revision,
    due_at     = :due_at,
    definition = :definition,
    state      = :state
WHERE namespace = :namespace
  AND name = :schedule
  AND revision = :expected;

-- name: delete_schedule
DELETE FROM {prefix}schedules
WHERE namespace = :namespace
  AND name = :schedule;

-- name: last_begun
SELECT id, created_at
FROM {prefix}runs INDEXED BY {prefix}runs_begun
WHERE has_cooldown = 1
  AND status <> 'skipped'
  AND namespace = :namespace
  AND flow = :flow
ORDER BY created_at DESC, id DESC
LIMIT 1;

-- name: last_completed
SELECT id, finished_at
FROM {prefix}runs INDEXED BY {prefix}runs_completed
WHERE has_cooldown = 1
  AND status = 'completed'
  AND namespace = :namespace
  AND flow = :flow
ORDER BY finished_at DESC, id DESC
LIMIT 1;
