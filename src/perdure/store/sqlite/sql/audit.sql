-- Reads for the verifier only. These may scan whole tables.

-- name: audit_jobs
SELECT job.id, job.status, job.epoch, job.queue, job.task, job.partition_key, job.rank, job.limit_keys,
       job.incarnation, job.policy,
       CASE WHEN job.finished_at IS NULL THEN coalesce(job.input, large.input) END
FROM {prefix}jobs AS job
LEFT JOIN {prefix}large_inputs AS large ON large.job_id = job.id
WHERE job.id IN (SELECT value FROM json_each(:ids));

-- name: audit_jobs_of_run
SELECT job.id, job.status, job.epoch, job.queue, job.task, job.partition_key, job.rank, job.limit_keys,
       job.incarnation, job.policy,
       CASE WHEN job.finished_at IS NULL THEN coalesce(job.input, large.input) END
FROM {prefix}jobs AS job
LEFT JOIN {prefix}large_inputs AS large ON large.job_id = job.id
WHERE job.run_id = :run
  AND job.namespace = :namespace;

-- name: job_before
SELECT max(id)
FROM {prefix}jobs
WHERE NOT hidden
  AND (:namespace IS NULL OR namespace = :namespace)
  AND (:before IS NULL OR id < :before);

-- name: hidden_jobs
SELECT {record_row}
FROM {prefix}jobs AS job
WHERE job.hidden
  AND (:namespace IS NULL OR job.namespace = :namespace)
  AND (:before IS NULL OR job.id < :before)
ORDER BY job.id DESC
LIMIT :limit;

-- name: suspended_waits
SELECT key
FROM {prefix}waits
WHERE run_id = :run
  AND namespace = :namespace
  AND suspended = 1;

-- name: shared_fingerprints
SELECT namespace, queue, fingerprint, count(*)
FROM {prefix}jobs
WHERE fingerprint IS NOT NULL
  AND finished_at IS NULL
  AND (:namespace IS NULL OR namespace = :namespace)
GROUP BY namespace, queue, fingerprint
HAVING count(*) > 1;

-- name: audit_limits
SELECT namespace, key, max(closed_until), max(last_start_at), max(started_at)
FROM (
    SELECT namespace, key, closed_until, last_start_at, NULL AS started_at
    FROM {prefix}limits
    UNION ALL
    SELECT namespace, key, NULL, NULL, started_at
    FROM {prefix}limit_starts
)
WHERE :namespace IS NULL OR namespace = :namespace
GROUP BY namespace, key;

-- name: schedule_times
SELECT namespace, name, due_at
FROM {prefix}schedules
WHERE :namespace IS NULL OR namespace = :namespace;

-- name: orphans
SELECT 'events', 'run ' || run_serial
FROM (
    SELECT DISTINCT run_serial
    FROM {prefix}events
    WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
)
UNION ALL
SELECT 'snapshots', 'run ' || run_serial
FROM {prefix}snapshots
WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
UNION ALL
SELECT 'waits', run_id
FROM {prefix}waits AS wait
WHERE NOT EXISTS (
    SELECT 1 FROM {prefix}runs AS run
    WHERE run.id = wait.run_id AND run.namespace = wait.namespace
)
UNION ALL
SELECT 'steps', owner
FROM (
    SELECT DISTINCT owner
    FROM {prefix}steps
    WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
       OR job_id NOT IN (SELECT id FROM {prefix}jobs)
)
UNION ALL
SELECT 'failures', job_id
FROM (
    SELECT DISTINCT job_id
    FROM {prefix}failures
    WHERE job_id NOT IN (SELECT id FROM {prefix}jobs)
)
UNION ALL
SELECT 'large_inputs', job_id
FROM {prefix}large_inputs
WHERE job_id NOT IN (SELECT id FROM {prefix}jobs)
LIMIT 100;
