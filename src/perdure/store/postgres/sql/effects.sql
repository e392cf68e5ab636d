-- What follows a commit in the same transaction, where it does more than go on. $1 is the moment
-- that counts as now (null: the database's own), where it matters; then come lists of equal length.
-- Runs are locked before jobs, and jobs before waits, each in the order of their keys.

-- name: lock_runs
SELECT runs.serial
FROM unnest($1::text[], $2::text[]) AS given (namespace, id)
CROSS JOIN LATERAL (
    SELECT serial
    FROM {schema}.runs
    WHERE runs.id = given.id
      AND runs.namespace = given.namespace
    FOR UPDATE
) AS runs;

-- name: lock_jobs
-- Those that are settled ($3), and all of some runs ($1 namespaces, $2 ids), in one order:
-- who renews leases locks jobs of both kinds by their ids, too.
SELECT id
FROM {schema}.jobs
WHERE id = ANY (
    $3::text[] || ARRAY (
        SELECT jobs.id
        FROM unnest($1::text[], $2::text[]) AS given (namespace, id)
        JOIN {schema}.jobs
            ON jobs.run_id = given.id
           AND jobs.namespace = given.namespace
    )
)
ORDER BY id
FOR UPDATE;

-- name: drop_jobs
-- Jobs of some keys ($1 namespaces, $2 runs, $3 keys), but for those of $4.
WITH dropped AS (
    DELETE FROM {schema}.jobs
    USING unnest($1::text[], $2::text[], $3::text[]) AS given (namespace, run_id, key)
    WHERE jobs.run_id = given.run_id
      AND jobs.namespace = given.namespace
      AND jobs.node_key = given.key
      AND jobs.id <> ALL ($4::text[])
    RETURNING jobs.id, jobs.lease_until IS NOT NULL AS was_held,
              jobs.lease_until IS NOT NULL AND jobs.limit_keys IS NOT NULL AS was_limited
),
history AS (
    DELETE FROM {schema}.failures
    WHERE job_id = ANY (ARRAY (SELECT id FROM dropped))
)
SELECT id, was_held, was_limited
FROM dropped;

-- name: clear_jobs
-- All jobs of some runs ($1 namespaces, $2 runs), but for those of $3.
WITH cleared AS (
    DELETE FROM {schema}.jobs
    USING unnest($1::text[], $2::text[]) AS given (namespace, run_id)
    WHERE jobs.run_id = given.run_id
      AND jobs.namespace = given.namespace
      AND jobs.id <> ALL ($3::text[])
    RETURNING jobs.id, jobs.lease_until IS NOT NULL AS was_held,
              jobs.lease_until IS NOT NULL AND jobs.limit_keys IS NOT NULL AS was_limited
),
history AS (
    DELETE FROM {schema}.failures
    WHERE job_id = ANY (ARRAY (SELECT id FROM cleared))
)
SELECT id, was_held, was_limited
FROM cleared;

-- name: hold_jobs
-- Raising the epoch takes the claim from a holder, who gets no attempt counted.
WITH found AS MATERIALIZED (
    SELECT jobs.id, jobs.lease_until IS NOT NULL AS was_held,
           jobs.lease_until IS NOT NULL AND jobs.limit_keys IS NOT NULL AS was_limited
    FROM unnest($1::text[], $2::text[]) AS given (namespace, run_id)
    JOIN {schema}.jobs
        ON jobs.run_id = given.run_id
       AND jobs.namespace = given.namespace
    WHERE jobs.status IN ('waiting', 'scheduled', 'active', 'aborting')
      AND jobs.id <> ALL ($3::text[])
),
held AS (
    UPDATE {schema}.jobs
    SET status      = 'paused',
        epoch       = epoch + CASE WHEN was_held THEN 1 ELSE 0 END,
        attempt     = attempt - CASE WHEN was_held THEN 1 ELSE 0 END,
        worker      = NULL,
        lease_until = NULL,
        limit_keys  = NULL
    FROM found
    WHERE jobs.id = found.id
)
SELECT id, was_held, was_limited
FROM found;

-- name: release_jobs
UPDATE {schema}.jobs
SET status = CASE
        WHEN jobs.ready_at <= coalesce($1::timestamptz, statement_timestamp()) THEN 'waiting'
        ELSE 'scheduled'
    END
FROM unnest($2::text[], $3::text[]) AS given (namespace, run_id)
WHERE jobs.run_id = given.run_id
  AND jobs.namespace = given.namespace
  -- The status is hidden from the planner, which might look at all jobs that are paused.
  AND jobs.status || '' = 'paused'
RETURNING jobs.status, jobs.lane;

-- name: close_waits
DELETE FROM {schema}.waits
USING unnest($1::text[], $2::text[], $3::text[]) AS given (namespace, run_id, key)
WHERE waits.run_id = given.run_id
  AND waits.namespace = given.namespace
  AND waits.key = given.key;

-- name: drop_waits
-- Those of a key, or of a whole run where the key is null. Whoever waits for a child has to look
-- after it: that wait becomes due, the others end.
WITH found AS MATERIALIZED (
    SELECT wait.run_id, wait.namespace, wait.key, wait.kind
    FROM unnest($2::text[], $3::text[], $4::text[]) AS given (namespace, run_id, key)
    CROSS JOIN LATERAL (
        SELECT run_id, namespace, key, kind
        FROM {schema}.waits
        WHERE waits.run_id = given.run_id
          AND waits.namespace = given.namespace
          AND (given.key IS NULL OR waits.key = given.key)
        ORDER BY key
        FOR UPDATE
    ) AS wait
),
ended AS (
    DELETE FROM {schema}.waits
    USING found
    WHERE waits.run_id = found.run_id
      AND waits.namespace = found.namespace
      AND waits.key = found.key
      AND found.kind <> 'child'
)
UPDATE {schema}.waits
SET due_at  = least(waits.due_at, coalesce($1::timestamptz, statement_timestamp())),
    is_held = false
FROM found
WHERE waits.run_id = found.run_id
  AND waits.namespace = found.namespace
  AND waits.key = found.key
  AND found.kind = 'child'
RETURNING waits.key;

-- name: hold_waits
-- $3 says whether they are held from now on, or no longer.
WITH found AS MATERIALIZED (
    SELECT wait.run_id, wait.namespace, wait.key
    FROM unnest($1::text[], $2::text[]) AS given (namespace, run_id)
    CROSS JOIN LATERAL (
        SELECT run_id, namespace, key
        FROM {schema}.waits
        WHERE waits.run_id = given.run_id
          AND waits.namespace = given.namespace
        ORDER BY key
        FOR UPDATE
    ) AS wait
)
UPDATE {schema}.waits
SET is_held = $3
FROM found
WHERE waits.run_id = found.run_id
  AND waits.namespace = found.namespace
  AND waits.key = found.key
RETURNING waits.due_at IS NOT NULL;

-- name: open_waits
-- One that is open makes way, but for when it was opened.
INSERT INTO {schema}.waits (
    namespace, run_id, key, kind, name, opened_at, due_at, deciders, detail
)
SELECT namespace, run_id, key, kind, name, moment.now, coalesce(due_at, moment.now + delay),
       deciders::text[], detail
FROM unnest(
    $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::interval[],
    $8::timestamptz[], $9::text[], $10::bytea[]
) AS given (namespace, run_id, key, kind, name, delay, due_at, deciders, detail)
CROSS JOIN (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
ON CONFLICT (run_id, namespace, key) DO UPDATE
SET kind     = excluded.kind,
    name     = excluded.name,
    due_at   = excluded.due_at,
    deciders = excluded.deciders,
    detail   = excluded.detail,
    is_held  = false;

-- name: change_versions
UPDATE {schema}.runs
SET version = given.version
FROM unnest($1::text[], $2::text[], $3::text[]) AS given (namespace, id, version)
WHERE runs.id = given.id
  AND runs.namespace = given.namespace
RETURNING runs.namespace, runs.id, runs.flow;

-- name: lanes_of_runs
SELECT DISTINCT given.number, jobs.lane
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (namespace, id, number)
JOIN {schema}.jobs
    ON jobs.run_id = given.id
   AND jobs.namespace = given.namespace;

-- name: change_lanes
UPDATE {schema}.jobs
SET lane = given.after
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
    AS given (namespace, run_id, before, after)
WHERE jobs.run_id = given.run_id
  AND jobs.namespace = given.namespace
  AND jobs.lane = given.before
RETURNING jobs.status, jobs.lane;

-- name: put_snapshots
INSERT INTO {schema}.snapshots (run_serial, number, data)
SELECT runs.serial, given.number, given.data
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[])
    AS given (namespace, id, number, data)
JOIN {schema}.runs
    ON runs.id = given.id
   AND runs.namespace = given.namespace
   AND runs.number >= given.number
ON CONFLICT (run_serial) DO UPDATE
SET number = excluded.number,
    data   = excluded.data;
