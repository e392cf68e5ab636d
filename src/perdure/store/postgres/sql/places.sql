-- Places of flows with ``max_running``: counted from the runs, under the key that they share.

-- name: lock_places
-- Of $1 namespaces and $2 keys, in one order.
SELECT pg_advisory_xact_lock(ordered.number)
FROM (
    SELECT DISTINCT hashtextextended('perdure place {schema} ' || namespace || ' ' || key, 0) AS number
    FROM unnest($1::text[], $2::text[]) AS given (namespace, key)
    ORDER BY number
    OFFSET 0
) AS ordered;

-- name: next_runs
-- How many hold a place, and the queue, as far as the first one has room.
SELECT given.namespace, given.key, held.count, queued.id, queued.place_limit
FROM unnest($1::text[], $2::text[]) AS given (namespace, key)
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM {schema}.runs
    WHERE place_key IS NOT NULL
      AND started_at IS NOT NULL
      AND finished_at IS NULL
      AND namespace = given.namespace
      AND place_key = given.key
) AS held
CROSS JOIN LATERAL (
    SELECT place_limit
    FROM {schema}.runs
    WHERE rank IS NOT NULL
      AND status = 'queued'
      AND namespace = given.namespace
      AND place_key = given.key
    ORDER BY rank, id
    LIMIT 1
) AS first
CROSS JOIN LATERAL (
    SELECT id, place_limit, rank
    FROM {schema}.runs
    WHERE rank IS NOT NULL
      AND status = 'queued'
      AND namespace = given.namespace
      AND place_key = given.key
    ORDER BY rank, id
    LIMIT greatest(0, first.place_limit - held.count)
) AS queued
ORDER BY given.namespace, given.key, queued.rank, queued.id;

-- name: queue_for_place
-- Runs that would start ($2 namespaces, $3 ids, $4 aging); some have a rank already.
UPDATE {schema}.runs
SET rank = coalesce(
        runs.rank,
        date_part('epoch', coalesce($1::timestamptz, statement_timestamp()))
            + runs.priority * given.aging
    )
FROM unnest($2::text[], $3::text[], $4::double precision[]) AS given (namespace, id, aging)
WHERE runs.id = given.id
  AND runs.namespace = given.namespace
  AND runs.status || '' = 'queued'
RETURNING runs.namespace, runs.id;

-- name: wait_for_place
UPDATE {schema}.waits
SET due_at = NULL
FROM unnest($1::text[], $2::text[]) AS given (namespace, run_id)
WHERE waits.run_id = given.run_id
  AND waits.namespace = given.namespace
  AND waits.key = 'run:start';

-- name: place_found
-- Nothing else locks these waits without the place.
UPDATE {schema}.waits
SET due_at = moment.now
FROM unnest($2::text[], $3::text[]) AS given (namespace, run_id)
CROSS JOIN (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
WHERE waits.run_id = given.run_id
  AND waits.namespace = given.namespace
  AND waits.key = 'run:start'
  AND (waits.due_at IS NULL OR waits.due_at > moment.now)
RETURNING waits.key;

-- name: place_of_run
SELECT place_key
FROM {schema}.runs
WHERE id = $2
  AND namespace = $1
  AND place_key IS NOT NULL;

-- name: place_holders
SELECT id
FROM {schema}.runs
WHERE place_key IS NOT NULL
  AND started_at IS NOT NULL
  AND finished_at IS NULL
  AND namespace = $1
  AND place_key = $2
ORDER BY started_at, id
LIMIT $3;

-- name: audit_places
-- The runs that hold a place or wait for one.
SELECT run.namespace, run.place_key, run.id, run.place_limit, run.started_at, run.rank,
       EXISTS (
           SELECT 1
           FROM {schema}.waits
           WHERE run_id = run.id
             AND namespace = run.namespace
             AND key = 'run:start'
             AND due_at IS NOT NULL
             AND NOT suspended
       )
FROM {schema}.runs AS run
WHERE run.place_key IS NOT NULL
  AND run.finished_at IS NULL
  AND (run.started_at IS NOT NULL OR (run.rank IS NOT NULL AND run.status = 'queued'))
  AND ($1::text IS NULL OR run.namespace = $1::text);
