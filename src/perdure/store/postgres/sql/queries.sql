-- Reads. Hidden jobs are visible only to waiters, by id.

-- name: limit_uses
-- The usage of limits, read without locking any key: a row for each rule ($3 keys, $4 windows or
-- null), with its live jobs, the longest claimed first.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
SELECT live.ids, starts.count, starts.oldest_at, limits.last_start_at, limits.closed_until
FROM unnest($3::text[], $4::interval[]) WITH ORDINALITY AS rule (key, span, number)
LEFT JOIN {schema}.limits ON limits.namespace = $2 AND limits.key = rule.key
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(id ORDER BY started_at, id), '{}') AS ids
    FROM {schema}.jobs
    WHERE status IN ('active', 'aborting')
      AND limit_keys IS NOT NULL
      AND namespace = $2
      AND lease_until > (SELECT now FROM moment)
      AND rule.key = ANY (limit_keys)
) AS live
CROSS JOIN LATERAL (
    SELECT coalesce(sum(count), 0)::integer AS count, min(started_at) AS oldest_at
    FROM {schema}.limit_starts
    WHERE namespace = $2
      AND key = rule.key
      AND started_at > (SELECT now FROM moment) - rule.span
) AS starts
ORDER BY rule.number;

-- name: get_job
SELECT {job_columns}, input, output
FROM {schema}.jobs
WHERE id = $2
  AND ($1::text IS NULL OR namespace = $1)
  AND NOT hidden;

-- name: list_jobs
-- {filter}, from queries.py, has only the requested conditions, so that each combination gets its
-- own plan.
SELECT {job_columns}
FROM {schema}.jobs
WHERE {filter}
ORDER BY id DESC
LIMIT $1;

-- name: list_jobs_by_status
-- For statuses whose index is not ordered by id. If few jobs have it, they are found by that
-- index and sorted; if many have it, scanning back from the newest job soon finds enough. Without
-- the first branch, a rare status would be sought in all jobs; without the second, all jobs of the
-- status would be sorted. {filter_unindexed} hides the status from the planner, which would sort
-- anyway.
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
SELECT {job_columns}
FROM {schema}.jobs
WHERE id = ANY (ARRAY (SELECT id FROM page))
ORDER BY id DESC;

-- name: peek
SELECT {job_columns}
FROM (
    SELECT front.*
    FROM unnest($2::text[]) AS wanted (partition_key)
    -- The front of each partition, by index; jobs behind it cannot be among the first.
    CROSS JOIN LATERAL (
        SELECT *
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = $1
          AND partition_key = wanted.partition_key
        ORDER BY rank, id
        LIMIT $3
    ) AS front
) AS jobs
ORDER BY rank, id
LIMIT $3;

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

-- name: last_failures
SELECT DISTINCT ON (job_id) job_id, attempt, worker, failed_at, failure
FROM {schema}.failures
WHERE job_id = ANY($1::text[])
ORDER BY job_id, number DESC;

-- name: jobs_of_ids
SELECT {job_columns}
FROM {schema}.jobs
WHERE id = ANY($2::text[])
  AND namespace = $1
  AND NOT hidden
ORDER BY id;

-- name: find_result
-- The namespace is hidden from the planner, which might scan all jobs ever completed in it.
SELECT output
FROM {schema}.jobs
WHERE status = 'completed'
  AND input_hash = $3
  AND namespace || '' = $1
  AND task = $2
  AND input = $4
  AND NOT hidden
ORDER BY finished_at DESC, id DESC
LIMIT 1;

-- name: work_counts
-- The counters of removed workers, and the rows of registered ones.
SELECT namespace, task, queue, name, value, NULL::json, NULL::json
FROM {schema}.past_counts
WHERE $1::text IS NULL OR namespace = $1
UNION ALL
SELECT namespace, NULL, NULL, NULL, NULL, counts, counts_before
FROM {schema}.workers
WHERE $1::text IS NULL OR namespace = $1;

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

-- name: run_states
SELECT given.position, runs.id, runs.namespace, flow, version, status, number, parent_run,
       parent_key, created_at, updated_at, finished_at, summary, priority, start_at, started_at, settings
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (namespace, id, position)
JOIN {schema}.runs
    ON runs.id = given.id
   AND runs.namespace = given.namespace;

-- name: list_runs
-- {filter}, from queries.py, has only the requested conditions, so that each combination gets its
-- own plan.
SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
       updated_at, finished_at, summary, priority, start_at, started_at, settings
FROM {schema}.runs
WHERE {filter}
ORDER BY created_at DESC, id DESC
LIMIT $1;

-- name: list_runs_of_id
-- The few rows of one id are found before they are sorted: seeing the limit, a planner without
-- statistics would scan all runs in order instead.
WITH found AS MATERIALIZED (
    SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
           updated_at, finished_at, summary, priority, start_at, started_at, settings
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

-- name: run_jobs
SELECT {job_columns}
FROM {schema}.jobs
WHERE run_id = $2
  AND namespace = $1
ORDER BY id;

-- name: run_waits
SELECT {wait_columns}
FROM {schema}.waits
WHERE run_id = $2
  AND namespace = $1
ORDER BY key;

-- name: list_waits
-- {filter}, from queries.py, has only the requested conditions, so that each combination gets its
-- own plan.
SELECT {wait_columns}
FROM {schema}.waits
WHERE {filter}
ORDER BY opened_at, run_id, key, namespace
LIMIT $1;

-- name: ended_jobs
-- Both indexes are by queue and then by time, so this skips from queue to queue, as pruning does,
-- and takes the first jobs of each.
WITH RECURSIVE completed (queue) AS (
    SELECT coalesce(:queue, '' COLLATE "C")
    WHERE 'completed' = ANY (:statuses)
    UNION ALL
    SELECT (
        SELECT jobs.queue
        FROM {schema}.jobs
        WHERE status = 'completed'
          AND namespace = :namespace
          AND jobs.queue > completed.queue
        ORDER BY jobs.queue
        LIMIT 1
    )
    FROM completed
    WHERE queue IS NOT NULL
      AND :queue IS NULL
),
ended (status, queue) AS (
    SELECT wanted.status, coalesce(:queue, '' COLLATE "C")
    FROM unnest(:statuses) AS wanted (status)
    WHERE wanted.status <> 'completed'
    UNION ALL
    SELECT ended.status, (
        SELECT jobs.queue
        FROM {schema}.jobs
        WHERE jobs.status IN ('failed', 'dead', 'cancelled')
          AND jobs.status = ended.status
          AND namespace = :namespace
          AND jobs.queue > ended.queue
        ORDER BY jobs.queue
        LIMIT 1
    )
    FROM ended
    WHERE queue IS NOT NULL
      AND :queue IS NULL
)
SELECT id, status, finished_at, queue, task, attempt
FROM (
    SELECT earliest.*
    FROM completed
    CROSS JOIN LATERAL (
        SELECT id, status, finished_at, jobs.queue, task, attempt
        FROM {schema}.jobs
        WHERE status = 'completed'
          AND namespace = :namespace
          AND jobs.queue = completed.queue
          AND finished_at >= :after_at
          AND finished_at < :until
          AND (finished_at > :after_at OR id > :after_id)
          AND (:task IS NULL OR task = :task)
        ORDER BY finished_at, id
        LIMIT :limit
    ) AS earliest
    UNION ALL
    SELECT earliest.*
    FROM ended
    CROSS JOIN LATERAL (
        SELECT id, jobs.status, finished_at, jobs.queue, task, attempt
        FROM {schema}.jobs
        WHERE jobs.status IN ('failed', 'dead', 'cancelled')
          AND jobs.status = ended.status
          AND namespace = :namespace
          AND jobs.queue = ended.queue
          AND finished_at >= :after_at
          AND finished_at < :until
          AND (finished_at > :after_at OR id > :after_id)
          AND (:task IS NULL OR task = :task)
        ORDER BY finished_at, id
        LIMIT :limit
    ) AS earliest
) AS found
ORDER BY finished_at, id
LIMIT :limit;

-- name: ended_runs
-- Roots and children have an index each.
SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
       updated_at, finished_at, summary, priority, start_at, started_at, settings
FROM (
    SELECT earliest.*
    FROM unnest(:statuses) AS wanted (status)
    CROSS JOIN LATERAL (
        SELECT *
        FROM {schema}.runs
        WHERE runs.status = wanted.status
          AND namespace = :namespace
          AND parent_run IS NULL
          AND finished_at >= :after_at
          AND finished_at < :until
          AND (finished_at > :after_at OR id > :after_id)
          AND (:flow IS NULL OR flow = :flow)
        ORDER BY finished_at, id
        LIMIT :limit
    ) AS earliest
    UNION ALL
    SELECT earliest.*
    FROM unnest(:statuses) AS wanted (status)
    CROSS JOIN LATERAL (
        SELECT *
        FROM {schema}.runs
        WHERE runs.status = wanted.status
          AND namespace = :namespace
          AND parent_run IS NOT NULL
          AND finished_at >= :after_at
          AND finished_at < :until
          AND (finished_at > :after_at OR id > :after_id)
          AND (:flow IS NULL OR flow = :flow)
        ORDER BY finished_at, id
        LIMIT :limit
    ) AS earliest
) AS found
ORDER BY finished_at, id
LIMIT :limit;

-- name: pruned_until
SELECT type, until
FROM {schema}.pruned_ends
WHERE namespace = $1;
