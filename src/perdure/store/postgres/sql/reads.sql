-- Readers do not see dropped jobs; those who wait for one by its id do.

-- name: get_job
SELECT id, namespace, lane, status, priority, job_group, fingerprint, attempt, failures, deaths,
       max_attempts, worker, epoch, progress, progress_message, progress_details, created_at,
       ready_at, deadline_at, started_at, finished_at, lease_until, input, output, run_id, node_key
FROM {schema}.jobs
WHERE id = $2
  AND ($1::text IS NULL OR namespace = $1)
  AND NOT dropped;

-- name: list_jobs
-- {filter} is written by reads.py: only the conditions that are asked for, so that each
-- combination is planned by itself.
SELECT id, namespace, lane, status, priority, job_group, fingerprint, attempt, failures, deaths,
       max_attempts, worker, epoch, progress, progress_message, progress_details, created_at,
       ready_at, deadline_at, started_at, finished_at, lease_until, NULL::bytea, NULL::bytea, run_id, node_key
FROM {schema}.jobs
WHERE {filter}
ORDER BY id DESC
LIMIT $1;

-- name: list_jobs_by_status
-- For a status whose index is not in the order of ids. Where few jobs have it, its index finds
-- them and they are sorted; where many have it, going back from the newest job soon finds enough.
-- Without the first, an empty status would be looked for in all jobs; without the second, all jobs
-- of the status would be sorted. {filter_unindexed} hides the status from the planner, lest it
-- sorts nevertheless.
WITH few AS MATERIALIZED (
    SELECT id
    FROM {schema}.jobs
    WHERE {filter}
    LIMIT 201
),
page AS MATERIALIZED (
    (
        SELECT id
        FROM few
        WHERE (SELECT count(*) FROM few) <= 200
        ORDER BY id DESC
        LIMIT $1
    )
    UNION ALL
    (
        SELECT id
        FROM {schema}.jobs
        WHERE (SELECT count(*) FROM few) > 200
          AND {filter_unindexed}
        ORDER BY id DESC
        LIMIT $1
    )
)
SELECT id, namespace, lane, status, priority, job_group, fingerprint, attempt, failures, deaths,
       max_attempts, worker, epoch, progress, progress_message, progress_details, created_at,
       ready_at, deadline_at, started_at, finished_at, lease_until, NULL::bytea, NULL::bytea, run_id, node_key
FROM {schema}.jobs
WHERE id = ANY (ARRAY (SELECT id FROM page))
ORDER BY id DESC;

-- name: count_jobs
SELECT count(*)
FROM {schema}.jobs
WHERE {filter};

-- name: job_states
SELECT jobs.id, status, jobs.attempt, progress, progress_message, progress_details, output,
       latest.failure
FROM {schema}.jobs
LEFT JOIN LATERAL (
    SELECT failure
    FROM {schema}.failures
    WHERE job_id = jobs.id
      AND jobs.status IN ('failed', 'dead', 'cancelled')
    ORDER BY number DESC
    LIMIT 1
) AS latest ON true
WHERE jobs.id = ANY ($1::text[]);

-- name: failed_attempts
SELECT attempt, worker, failed_at, failure
FROM {schema}.failures
WHERE job_id = $1
ORDER BY number;

-- name: find_result
-- The namespace is hidden from the planner, which might look at all that ever completed in it.
SELECT output
FROM {schema}.jobs
WHERE status = 'completed'
  AND input_hash = $3
  AND namespace || '' = $1
  AND task = $2
  AND input = $4
  AND NOT dropped
ORDER BY finished_at DESC, id DESC
LIMIT 1;

-- name: depth
SELECT namespace, queue, status, count(*)
FROM {schema}.jobs
WHERE ($1::text IS NULL OR namespace = $1)
  AND NOT dropped
GROUP BY namespace, queue, status
ORDER BY namespace, queue, status;

-- name: paused_queues
SELECT namespace, name, paused_at, paused_by
FROM {schema}.queues
WHERE $1::text IS NULL OR namespace = $1
ORDER BY namespace, name;

-- name: workers
WITH held AS MATERIALIZED (
    SELECT worker, array_agg(id ORDER BY id) AS ids
    FROM {schema}.jobs
    WHERE status IN ('active', 'aborting')
    GROUP BY worker
)
SELECT info, started_at, seen_at, coalesce(held.ids, '{}')
FROM {schema}.workers
LEFT JOIN held ON held.worker = workers.id
WHERE $1::text IS NULL OR namespace = $1
ORDER BY started_at, workers.id;

-- name: now
SELECT statement_timestamp();
