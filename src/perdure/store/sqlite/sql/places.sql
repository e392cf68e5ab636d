-- Places of flows with ``max_running``: counted from the runs, under the key that they share.

-- name: places_held
SELECT count(*)
FROM {prefix}runs INDEXED BY {prefix}runs_places
WHERE place_key IS NOT NULL
  AND started_at IS NOT NULL
  AND finished_at IS NULL
  AND namespace = :namespace
  AND place_key = :key;

-- name: queued_for_place
SELECT id, place_limit
FROM {prefix}runs INDEXED BY {prefix}runs_queued
WHERE rank IS NOT NULL
  AND status = 'queued'
  AND namespace = :namespace
  AND place_key = :key
ORDER BY rank, id
LIMIT :limit;

-- name: queue_for_place
-- A run that has waited for its time, or that was added without a look at the places.
UPDATE {prefix}runs
SET rank = :now + priority * :aging
WHERE serial = :serial
  AND rank IS NULL;

-- name: wait_for_place
UPDATE {prefix}waits
SET due_at = NULL
WHERE namespace = :namespace
  AND run_id = :run
  AND key = 'run:start';

-- name: place_found
UPDATE {prefix}waits
SET due_at = :now
WHERE namespace = :namespace
  AND run_id IN (SELECT value FROM json_each(:runs))
  AND key = 'run:start'
  AND (due_at IS NULL OR due_at > :now);

-- name: place_of_run
SELECT place_key
FROM {prefix}runs
WHERE id = :run
  AND namespace = :namespace
  AND place_key IS NOT NULL;
