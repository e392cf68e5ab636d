-- What can be seen. Readers do not see dropped jobs; their waiters do (job_states).

-- name: get_job
SELECT {record_row},
       coalesce(
           job.input, (SELECT large.input FROM {prefix}large_inputs AS large
                       WHERE large.job_id = job.id)
       ),
       job.output
FROM {prefix}jobs AS job
WHERE job.id = :id
  AND NOT job.dropped
  AND (:namespace IS NULL OR job.namespace = :namespace);

-- name: list_jobs
-- {where} is the condition that an index serves; the other filters look at the rows.
SELECT {record_row}
FROM {prefix}jobs AS job
WHERE {where}
  AND job.id < :before
  AND NOT job.dropped
  AND (:namespace IS NULL OR job.namespace = :namespace)
  AND (:status IS NULL OR job.status = :status)
  AND (:queue IS NULL OR job.queue = :queue)
  AND (:task IS NULL OR job.task = :task)
ORDER BY job.id DESC
LIMIT :limit;

-- name: count_listed
SELECT count(*)
FROM {prefix}jobs AS job
WHERE {where}
  AND job.id < :before
  AND NOT job.dropped
  AND (:namespace IS NULL OR job.namespace = :namespace)
  AND (:status IS NULL OR job.status = :status)
  AND (:queue IS NULL OR job.queue = :queue)
  AND (:task IS NULL OR job.task = :task);

-- name: count_waiting
-- The index has the lane, whose text begins with queue and task; so the rows need no look.
SELECT count(*)
FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
WHERE status = 'waiting'
  AND (:namespace IS NULL OR namespace = :namespace)
  AND (:queue IS NULL OR json_extract(lane, '$[0]') = :queue)
  AND (:task IS NULL OR json_extract(lane, '$[1]') = :task);

-- name: count_finished
SELECT count(*)
FROM {prefix}jobs INDEXED BY {prefix}jobs_finished
WHERE status = :status
  AND finished_at IS NOT NULL
  AND NOT dropped
  AND (:namespace IS NULL OR namespace = :namespace)
  AND (:queue IS NULL OR queue = :queue)
  AND (:task IS NULL OR task = :task);

-- name: job_states
SELECT job.id, job.status, job.attempt,
       job.progress, job.progress_message, job.progress_details,
       job.output,
       CASE WHEN job.status IN ('failed', 'dead', 'cancelled') THEN (
           SELECT past.failure
           FROM {prefix}failures AS past
           WHERE past.job_id = job.id
           ORDER BY past.number DESC
           LIMIT 1
       ) END
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.id = wanted.value;

-- name: failed_attempts
SELECT attempt, worker, failed_at, failure
FROM {prefix}failures
WHERE job_id = :id
ORDER BY number;

-- name: find_result
SELECT job.output
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_results
WHERE job.status = 'completed'
  AND job.input_hash = :input_hash
  AND job.namespace = :namespace
  AND job.task = :task
  AND NOT job.dropped
  AND :input = coalesce(
      job.input, (SELECT large.input FROM {prefix}large_inputs AS large
                  WHERE large.job_id = job.id)
  )
ORDER BY job.finished_at DESC, job.rowid DESC
LIMIT 1;

-- name: depth
-- One part for each index that knows the answer without looking at the rows. They are named,
-- because the planner cares more for finding the status than for leaving the rows alone.
SELECT namespace, queue, status, sum(number)
FROM (
    SELECT namespace, json_extract(lane, '$[0]') AS queue, 'waiting' AS status, number
    FROM (
        SELECT namespace, lane, count(*) AS number
        FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
        WHERE status = 'waiting'
        GROUP BY namespace, lane
    )
    UNION ALL
    SELECT namespace, queue, 'scheduled', count(*)
    FROM {prefix}jobs INDEXED BY {prefix}jobs_scheduled
    WHERE status = 'scheduled'
    GROUP BY namespace, queue
    UNION ALL
    SELECT namespace, queue, status, count(*)
    FROM {prefix}jobs INDEXED BY {prefix}jobs_held
    WHERE lease_until IS NOT NULL
    GROUP BY namespace, queue, status
    UNION ALL
    SELECT namespace, queue, status, count(*)
    FROM {prefix}jobs
    WHERE status IN ('paused', 'disabled')
    GROUP BY namespace, queue, status
    UNION ALL
    SELECT namespace, queue, status, count(*)
    FROM {prefix}jobs INDEXED BY {prefix}jobs_finished
    WHERE finished_at IS NOT NULL
      AND NOT dropped
    GROUP BY namespace, queue, status
)
WHERE :namespace IS NULL OR namespace = :namespace
GROUP BY namespace, queue, status
ORDER BY namespace, queue, status;

-- name: paused_queues
SELECT namespace, name, paused_at, paused_by
FROM {prefix}queues
WHERE :namespace IS NULL OR namespace = :namespace
ORDER BY namespace, name;

-- name: workers
SELECT id, info, started_at, seen_at
FROM {prefix}workers
WHERE :namespace IS NULL OR namespace = :namespace
ORDER BY started_at, id;

-- name: held_jobs
SELECT worker, id
FROM {prefix}jobs INDEXED BY {prefix}jobs_held
WHERE lease_until IS NOT NULL
ORDER BY id;
