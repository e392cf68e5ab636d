-- Reads of runs; definitions and steps.

-- name: save_definition
-- One that was used an hour ago is not written: many clients may start at once.
INSERT INTO {schema}.definitions AS stored (
    namespace, flow, version, data, children, used_at, was_left
)
VALUES ($1, $2, $3, $4, $5, coalesce($6::timestamptz, statement_timestamp()), false)
ON CONFLICT (flow, version, namespace) DO UPDATE
SET used_at  = excluded.used_at,
    children = excluded.children
WHERE stored.used_at <= excluded.used_at - interval '1 hour'
   OR stored.children IS NULL;

-- name: get_definition
SELECT data
FROM {schema}.definitions
WHERE flow = $2
  AND version = $3
  AND namespace = $1;

-- name: load_runs
-- One statement, hence one snapshot: the run's number is that of the last event read.
SELECT given.position, runs.id, runs.namespace, flow, version, status, runs.number, parent_run,
       parent_key, created_at, updated_at, finished_at, summary, priority, start_at,
       started_at, settings,
       snapshots.number, snapshots.data, log.numbers, log.times, log.data, log.values
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY
    AS given (namespace, id, after, position)
JOIN {schema}.runs
    ON runs.id = given.id
   AND runs.namespace = given.namespace
LEFT JOIN {schema}.snapshots
    ON snapshots.run_serial = runs.serial
   AND given.after IS NULL
CROSS JOIN LATERAL (
    SELECT array_agg(number) AS numbers, array_agg(at) AS times, array_agg(data) AS data,
           array_agg(value) AS values
    FROM (
        SELECT number, at, data, value
        FROM {schema}.events
        WHERE events.run_serial = runs.serial
          AND events.number > coalesce(given.after, snapshots.number, 0)
        ORDER BY number
    ) AS tail
) AS log;

-- name: latest_events
SELECT given.position, tail.number, tail.at, tail.data
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY
    AS given (namespace, id, before, position)
JOIN {schema}.runs
    ON runs.id = given.id
   AND runs.namespace = given.namespace
CROSS JOIN LATERAL (
    -- Backward through the primary key: rows before the page are not read.
    SELECT number, at, data
    FROM {schema}.events
    WHERE events.run_serial = runs.serial
      AND events.number < coalesce(given.before, 9223372036854775807)
    ORDER BY number DESC
    LIMIT $4
) AS tail
ORDER BY given.position, tail.number DESC;

-- name: event_values
SELECT events.number, events.value
FROM {schema}.runs
JOIN {schema}.events
    ON events.run_serial = runs.serial
   AND events.number = ANY ($3::bigint[])
WHERE runs.id = $2
  AND runs.namespace = $1
  AND events.value IS NOT NULL;

-- name: save_step
-- Locks the claim's row, so that the claim cannot be lost before the result is stored.
WITH held AS MATERIALIZED (
    SELECT id, namespace, run_id
    FROM {schema}.jobs
    WHERE id = :id
      AND epoch = :epoch
      AND lease_until IS NOT NULL
    FOR UPDATE
),
kept AS (
    INSERT INTO {schema}.steps (owner, name, value, run_serial, job_id)
    SELECT :owner, :name, :value, runs.serial, CASE WHEN held.run_id IS NULL THEN held.id END
    FROM held
    LEFT JOIN {schema}.runs
        ON runs.id = held.run_id
       AND runs.namespace = held.namespace
    ON CONFLICT (owner, name) DO NOTHING
),
-- The job made progress: what is left of the key is that of its partition, which ends with ].
cleared AS (
    UPDATE {schema}.jobs
    SET partition_key = rtrim(partition_key, '~.0123456789'),
        claimed_alone = false
    WHERE id = (SELECT id FROM held)
      AND partition_key ~ '\]~[0-9]'
)
SELECT id
FROM held;

-- name: load_steps
SELECT name, value
FROM {schema}.steps
WHERE owner = $1
ORDER BY number;
