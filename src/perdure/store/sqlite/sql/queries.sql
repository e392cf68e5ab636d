-- Reads. Hidden jobs are visible only to waiters (job_states).

-- name: get_job
SELECT {record_row},
       coalesce(
           job.input, (SELECT large.input FROM {prefix}large_inputs AS large
                       WHERE large.job_id = job.id)
       ),
       job.output
FROM {prefix}jobs AS job
WHERE job.id = :id
  AND NOT job.hidden
  AND (:namespace IS NULL OR job.namespace = :namespace);

-- name: list_jobs
-- {where} is the condition that an index serves; the other filters read the rows.
SELECT {record_row}
FROM {prefix}jobs AS job
WHERE {where}
  AND job.id < :before
  AND NOT job.hidden
  AND (:namespace IS NULL OR job.namespace = :namespace)
  AND (:status IS NULL OR job.status = :status)
  AND (:queue IS NULL OR job.queue = :queue)
  AND (:task IS NULL OR job.task = :task)
ORDER BY job.id DESC
LIMIT :limit;

-- name: peek
SELECT {record_row}
FROM json_each(:partitions) AS wanted
-- The front of each partition, by index; jobs behind it cannot be among the first.
CROSS JOIN {prefix}jobs AS job ON job.rowid IN (
    SELECT front.rowid
    FROM {prefix}jobs AS front
    WHERE front.status = 'waiting'
      AND front.namespace = :namespace
      AND front.partition_key = wanted.value
    ORDER BY front.rank, front.id
    LIMIT :limit
)
ORDER BY job.rank, job.id
LIMIT :limit;

-- name: count_listed
SELECT count(*)
FROM {prefix}jobs AS job
WHERE {where}
  AND job.id < :before
  AND NOT job.hidden
  AND (:namespace IS NULL OR job.namespace = :namespace)
  AND (:status IS NULL OR job.status = :status)
  AND (:queue IS NULL OR job.queue = :queue)
  AND (:task IS NULL OR job.task = :task);

-- name: count_waiting
-- The index has partition_key, which starts with queue and task, so that no rows are read.
SELECT count(*)
FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
WHERE status = 'waiting'
  AND (:namespace IS NULL OR namespace = :namespace)
  AND (:queue IS NULL OR json_extract(rtrim(partition_key, '~.0123456789'), '$[0]') = :queue)
  AND (:task IS NULL OR json_extract(rtrim(partition_key, '~.0123456789'), '$[1]') = :task);

-- name: count_finished
SELECT count(*)
FROM {prefix}jobs INDEXED BY {prefix}jobs_finished
WHERE status = :status
  AND finished_at IS NOT NULL
  AND NOT hidden
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

-- name: last_failures
SELECT job_id, attempt, worker, failed_at, failure
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}failures AS past ON past.job_id = wanted.value
WHERE past.number = (
    SELECT max(other.number)
    FROM {prefix}failures AS other
    WHERE other.job_id = wanted.value
);

-- name: jobs_of_ids
SELECT {record_row}
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.id = wanted.value
WHERE job.namespace = :namespace
  AND NOT job.hidden
ORDER BY job.id;

-- name: find_result
SELECT job.output
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_results
WHERE job.status = 'completed'
  AND job.input_hash = :input_hash
  AND job.namespace = :namespace
  AND job.task = :task
  AND NOT job.hidden
  AND :input = coalesce(
      job.input, (SELECT large.input FROM {prefix}large_inputs AS large
                  WHERE large.job_id = job.id)
  )
ORDER BY job.finished_at DESC, job.rowid DESC
LIMIT 1;

-- name: work_counts
-- The counters of removed workers, and the rows of registered ones.
SELECT namespace, task, queue, name, value, NULL, NULL
FROM {prefix}past_counts
WHERE :namespace IS NULL OR namespace = :namespace
UNION ALL
SELECT namespace, NULL, NULL, NULL, NULL, counts, counts_before
FROM {prefix}workers
WHERE :namespace IS NULL OR namespace = :namespace;

-- name: workers
SELECT id, info, started_at, seen_at
FROM {prefix}workers
WHERE :namespace IS NULL OR namespace = :namespace
ORDER BY started_at, id;

-- name: claimed_jobs
SELECT worker, id
FROM {prefix}jobs INDEXED BY {prefix}jobs_claimed
WHERE lease_until IS NOT NULL
ORDER BY id;

-- name: list_runs
-- {index} and {where} serve the filter best; the other filters read the rows.
SELECT {run_row}
FROM {prefix}runs AS run {index}
WHERE {where}
  AND (run.created_at, run.id) < (:before_at, :before_id)
  AND (:namespace IS NULL OR run.namespace = :namespace)
  AND (:id IS NULL OR run.id = :id)
  AND (:status IS NULL OR run.status = :status)
  AND (:flow IS NULL OR run.flow = :flow)
  AND (:version IS NULL OR run.version = :version)
  AND (:parent IS NULL OR run.parent_run = :parent)
  AND (:is_ended IS NULL OR (run.finished_at IS NOT NULL) = :is_ended)
ORDER BY run.created_at DESC, run.id DESC
LIMIT :limit;

-- name: count_runs
SELECT count(*)
FROM {prefix}runs AS run {index}
WHERE {where}
  AND (run.created_at, run.id) < (:before_at, :before_id)
  AND (:namespace IS NULL OR run.namespace = :namespace)
  AND (:id IS NULL OR run.id = :id)
  AND (:status IS NULL OR run.status = :status)
  AND (:flow IS NULL OR run.flow = :flow)
  AND (:version IS NULL OR run.version = :version)
  AND (:parent IS NULL OR run.parent_run = :parent)
  AND (:is_ended IS NULL OR (run.finished_at IS NOT NULL) = :is_ended);

-- name: run_jobs
SELECT {record_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_run
WHERE job.run_id = :run
  AND job.namespace = :namespace
ORDER BY job.id;

-- name: run_waits
SELECT {wait_row}
FROM {prefix}waits AS wait
WHERE wait.namespace = :namespace
  AND wait.run_id = :run
ORDER BY wait.key;

-- name: list_waits
-- The filter, from queries.py, has only the requested conditions, so that the index alone finds the
-- page: reading the row of each wait outside the inbox costs six times as much.
SELECT {wait_row}
FROM (
    SELECT wait.run_id, wait.namespace, wait.key, wait.opened_at
    FROM {prefix}waits AS wait {index}
    WHERE {filter}
    ORDER BY wait.opened_at, wait.run_id, wait.key, wait.namespace
    LIMIT :limit
) AS listed
CROSS JOIN {prefix}waits AS wait
    ON wait.run_id = listed.run_id
    AND wait.namespace = listed.namespace
    AND wait.key = listed.key
ORDER BY listed.opened_at, listed.run_id, listed.key, listed.namespace;

-- name: ended_jobs
-- The index has all columns of the filter, and is in the order of time.
SELECT job.id, job.status, job.finished_at, job.queue, job.task, job.attempt
FROM json_each(:statuses) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.rowid IN (
    SELECT ended.rowid
    FROM {prefix}jobs AS ended INDEXED BY {prefix}jobs_finished
    WHERE ended.status = wanted.value
      AND ended.namespace = :namespace
      AND ended.finished_at >= :after_at
      AND ended.finished_at < :until
      AND (ended.finished_at > :after_at OR ended.id > :after_id)
      AND (:queue IS NULL OR ended.queue = :queue)
      AND (:task IS NULL OR ended.task = :task)
    ORDER BY ended.finished_at, ended.id
    LIMIT :limit
)
ORDER BY job.finished_at, job.id
LIMIT :limit;

-- name: ended_runs
-- Roots and children have an index each.
SELECT {run_row}
FROM json_each(:statuses) AS wanted
CROSS JOIN {prefix}runs AS run ON run.serial IN (
    SELECT serial
    FROM (
        SELECT ended.serial
        FROM {prefix}runs AS ended INDEXED BY {prefix}runs_ended
        WHERE ended.status = wanted.value
          AND ended.namespace = :namespace
          AND ended.parent_run IS NULL
          AND ended.finished_at >= :after_at
          AND ended.finished_at < :until
          AND (ended.finished_at > :after_at OR ended.id > :after_id)
          AND (:flow IS NULL OR ended.flow = :flow)
        ORDER BY ended.finished_at, ended.id
        LIMIT :limit
    )
    UNION ALL
    SELECT serial
    FROM (
        SELECT ended.serial
        FROM {prefix}runs AS ended INDEXED BY {prefix}runs_ended_children
        WHERE ended.status = wanted.value
          AND ended.namespace = :namespace
          AND ended.parent_run IS NOT NULL
          AND ended.finished_at >= :after_at
          AND ended.finished_at < :until
          AND (ended.finished_at > :after_at OR ended.id > :after_id)
          AND (:flow IS NULL OR ended.flow = :flow)
        ORDER BY ended.finished_at, ended.id
        LIMIT :limit
    )
)
ORDER BY run.finished_at, run.id
LIMIT :limit;

-- name: pruned_until
SELECT type, until
FROM {prefix}pruned_ends
WHERE namespace = :namespace;
