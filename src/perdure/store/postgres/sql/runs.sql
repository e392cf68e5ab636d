-- What is kept of runs, as it is read; and what is kept beside them.

-- name: save_definition
INSERT INTO {schema}.definitions (namespace, flow, version, data)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING;

-- name: get_definition
SELECT data
FROM {schema}.definitions
WHERE flow = $2
  AND version = $3
  AND namespace = $1;

-- name: load_runs
-- One statement, hence one view: the run's number is that of the last event that is read.
SELECT given.position, runs.id, runs.namespace, flow, version, status, runs.number, parent_run,
       parent_key, created_at, updated_at, finished_at, summary,
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
    -- From the end of the primary key: what lies before the page is not looked at.
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

-- name: get_run
SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
       updated_at, finished_at, summary
FROM {schema}.runs
WHERE id = $2
  AND ($1::text IS NULL OR namespace = $1)
ORDER BY namespace
LIMIT 1;

-- name: run_states
SELECT given.position, runs.id, runs.namespace, flow, version, status, number, parent_run,
       parent_key, created_at, updated_at, finished_at, summary
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (namespace, id, position)
JOIN {schema}.runs
    ON runs.id = given.id
   AND runs.namespace = given.namespace;

-- name: list_runs
-- {filter} is written by runs.py: only the conditions that are asked for, so that each combination
-- is planned by itself.
SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
       updated_at, finished_at, summary
FROM {schema}.runs
WHERE {filter}
ORDER BY created_at DESC, id DESC
LIMIT $1;

-- name: list_runs_of_id
-- The few rows of one id are found before they are put in order: with the limit in sight, a planner
-- without statistics would go through all runs in their order instead.
WITH found AS MATERIALIZED (
    SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
           updated_at, finished_at, summary
    FROM {schema}.runs
    WHERE {filter}
)
SELECT *
FROM found
ORDER BY created_at DESC, namespace
LIMIT $1;

-- name: count_runs
SELECT count(*)
FROM {schema}.runs
WHERE {filter};

-- name: live_flows
SELECT namespace, flow, version, count(*)
FROM {schema}.runs
WHERE finished_at IS NULL
  AND ($1::text IS NULL OR namespace = $1)
GROUP BY namespace, flow, version
ORDER BY namespace, flow, version;

-- name: run_jobs
SELECT id, namespace, lane, status, priority, job_group, fingerprint, attempt, failures, deaths,
       max_attempts, worker, epoch, progress, progress_message, progress_details, created_at,
       ready_at, deadline_at, started_at, finished_at, lease_until, NULL::bytea, NULL::bytea,
       run_id, node_key
FROM {schema}.jobs
WHERE run_id = $2
  AND namespace = $1
ORDER BY id;

-- name: save_step
-- The claim's row is held meanwhile, so that it cannot be taken away before the result is kept.
WITH held AS MATERIALIZED (
    SELECT id, namespace, run_id
    FROM {schema}.jobs
    WHERE id = $1
      AND epoch = $2
      AND lease_until IS NOT NULL
    FOR UPDATE
),
kept AS (
    INSERT INTO {schema}.steps (owner, name, value, run_serial, job_id)
    SELECT $3, $4, $5, runs.serial, CASE WHEN held.run_id IS NULL THEN held.id END
    FROM held
    LEFT JOIN {schema}.runs
        ON runs.id = held.run_id
       AND runs.namespace = held.namespace
    ON CONFLICT (owner, name) DO NOTHING
)
SELECT id
FROM held;

-- name: load_steps
SELECT name, value
FROM {schema}.steps
WHERE owner = $1
ORDER BY number;
