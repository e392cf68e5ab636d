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
-- A run whose start time has come, or that was added without checking for a place.
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

-- name: place_holders
SELECT id
FROM {prefix}runs INDEXED BY {prefix}runs_places
WHERE place_key IS NOT NULL
  AND started_at IS NOT NULL
  AND finished_at IS NULL
  AND namespace = :namespace
  AND place_key = :key
ORDER BY started_at, id
LIMIT :limit;

-- name: audit_places
-- The runs that hold a place or wait for one.
SELECT run.namespace, run.place_key, run.id, run.place_limit, run.started_at, run.rank,
       EXISTS (
           SELECT 1
           FROM {prefix}waits
           WHERE run_id = run.id
             AND namespace = run.namespace
             AND key = 'run:start'
             AND due_at IS NOT NULL
             AND suspended = 0
       )
FROM {prefix}runs AS run
WHERE run.place_key IS NOT NULL
  AND run.finished_at IS NULL
  AND (run.started_at IS NOT NULL OR (run.rank IS NOT NULL AND run.status = 'queued'))
  AND (:namespace IS NULL OR run.namespace = :namespace);
