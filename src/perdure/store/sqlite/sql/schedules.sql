-- Schedules, and cooldowns of flows.

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
