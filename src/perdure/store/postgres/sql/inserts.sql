-- These take part in transactions of other drivers too. Parameters are therefore cast by CAST,
-- and every statement starts with the moment that counts as now (null: the database's own).

-- name: insert_jobs
INSERT INTO {schema}.jobs (
    id, namespace, queue, task, lane, job_group, fingerprint, policy, input, input_hash,
    priority, max_attempts, run_id, node_key, created_at, ready_at, deadline_at, status, rank
)
SELECT id, namespace, queue, task, lane, job_group, fingerprint, policy, input, input_hash,
       priority, max_attempts, run_id, node_key, now, ready_at, deadline_at,
       CASE WHEN ready_at <= now THEN 'waiting' ELSE 'scheduled' END,
       date_part('epoch', ready_at) + priority * aging
FROM (
    SELECT id, namespace, queue, task, lane, job_group, fingerprint, policy, input, input_hash,
           priority, aging, max_attempts, run_id, node_key, moment.now,
           coalesce(run_at, moment.now + delay) AS ready_at,
           coalesce(deadline_at, moment.now + deadline) AS deadline_at
    FROM unnest(
        CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS text[]),
        CAST($6 AS text[]), CAST($7 AS text[]), CAST($8 AS text[]), CAST($9 AS bytea[]),
        CAST($10 AS bytea[]), CAST($11 AS bigint[]), CAST($12 AS integer[]),
        CAST($13 AS double precision[]), CAST($14 AS integer[]), CAST($15 AS interval[]),
        CAST($16 AS timestamptz[]), CAST($17 AS interval[]), CAST($18 AS timestamptz[]),
        CAST($19 AS text[]), CAST($20 AS text[])
    ) AS line (id, namespace, queue, task, lane, job_group, fingerprint, policy, input,
               input_hash, priority, aging, max_attempts, delay, run_at, deadline, deadline_at,
               run_id, node_key)
    CROSS JOIN (
        SELECT coalesce(CAST($1 AS timestamptz), statement_timestamp())
    ) AS moment (now)
) AS given
ON CONFLICT DO NOTHING
RETURNING id, status = 'waiting';

-- name: insert_like_jobs
-- Jobs that differ in nothing but their input, as ``enqueue_many`` makes them. It fails where an
-- id is in already: tolerating that costs a second record in the log for every row, which only a
-- repeated insert needs to pay.
WITH shared AS MATERIALIZED (
    SELECT now, ready_at,
           coalesce(CAST($16 AS timestamptz), now + CAST($17 AS interval)) AS deadline_at,
           CASE WHEN ready_at <= now THEN 'waiting' ELSE 'scheduled' END AS status,
           date_part('epoch', ready_at) + CAST($11 AS integer) * CAST($13 AS double precision)
               AS rank
    FROM (
        SELECT now, coalesce(CAST($14 AS timestamptz), now + CAST($15 AS interval)) AS ready_at
        FROM (
            SELECT coalesce(CAST($1 AS timestamptz), statement_timestamp()) AS now
        ) AS moment
    ) AS times
),
added AS (
    INSERT INTO {schema}.jobs (
        id, input, input_hash, namespace, queue, task, lane, job_group, policy, priority,
        max_attempts, created_at, ready_at, deadline_at, status, rank
    )
    SELECT given.id, given.input, given.input_hash,
           CAST($5 AS text), CAST($6 AS text), CAST($7 AS text), CAST($8 AS text),
           CAST($9 AS text), CAST($10 AS bytea), CAST($11 AS integer), CAST($12 AS integer),
           shared.now, shared.ready_at, shared.deadline_at, shared.status, shared.rank
    FROM unnest(CAST($2 AS text[]), CAST($3 AS bytea[]), CAST($4 AS bigint[]))
        AS given (id, input, input_hash)
    CROSS JOIN shared
)
SELECT status = 'waiting'
FROM shared;

-- name: late_deadlines
-- A job that is in already had its deadline checked: it is being repeated.
SELECT given.id, given.deadline_at, moment.now
FROM unnest(CAST($2 AS text[]), CAST($3 AS timestamptz[])) AS given (id, deadline_at)
CROSS JOIN (SELECT coalesce(CAST($1 AS timestamptz), statement_timestamp())) AS moment (now)
WHERE given.deadline_at <= moment.now
  AND NOT EXISTS (SELECT FROM {schema}.jobs WHERE jobs.id = given.id)
ORDER BY given.id
LIMIT 1;

-- name: find_rivals
-- What stands in the way of jobs that were not inserted: the same id, or a live fingerprint.
SELECT given.id, same.id IS NOT NULL, rival.id
FROM unnest(CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]))
    AS given (id, namespace, queue, fingerprint)
LEFT JOIN {schema}.jobs AS same ON same.id = given.id
LEFT JOIN {schema}.jobs AS rival
    ON rival.namespace = given.namespace
   AND rival.queue = given.queue
   AND rival.fingerprint = given.fingerprint
   AND rival.status IN ('waiting', 'scheduled', 'active', 'paused', 'aborting', 'disabled');

-- name: replace_rivals
WITH rivals AS MATERIALIZED (
    SELECT rival.id, rival.lease_until IS NOT NULL AS was_held, given.id AS replaced_by
    FROM unnest(CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS text[]))
        AS given (id, namespace, queue, fingerprint)
    JOIN {schema}.jobs AS rival
        ON rival.namespace = given.namespace
       AND rival.queue = given.queue
       AND rival.fingerprint = given.fingerprint
       AND rival.status IN ('waiting', 'scheduled', 'active', 'paused', 'aborting', 'disabled')
    -- A job that is in already did its replacing: it is being repeated.
    WHERE NOT EXISTS (SELECT FROM {schema}.jobs AS same WHERE same.id = given.id)
    ORDER BY rival.id
    FOR UPDATE OF rival
),
replaced AS (
    UPDATE {schema}.jobs
    SET status      = 'cancelled',
        epoch       = epoch + CASE WHEN was_held THEN 1 ELSE 0 END,
        lease_until = NULL,
        finished_at = coalesce(CAST($1 AS timestamptz), statement_timestamp())
    FROM rivals
    WHERE jobs.id = rivals.id
    RETURNING jobs.id, jobs.attempt, jobs.worker, jobs.finished_at,
              jobs.limit_keys IS NOT NULL AS was_limited, was_held, replaced_by
),
history AS (
    INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, worker, finished_at,
           json_build_object('type', CAST($6 AS text), 'message', 'replaced by ' || replaced_by)
    FROM replaced
)
SELECT id, was_held, was_held AND was_limited
FROM replaced;

-- name: mark_start
SAVEPOINT perdure_insert;

-- name: undo_to_start
ROLLBACK TO SAVEPOINT perdure_insert;

-- name: forget_start
RELEASE SAVEPOINT perdure_insert;

-- name: notify
SELECT pg_notify(CAST($1 AS text), CAST($2 AS text));
