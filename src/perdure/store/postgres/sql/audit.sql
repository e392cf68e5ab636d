-- Reads for the verifier only. These may scan whole tables.

-- name: audit_jobs
SELECT id, status, epoch, queue, task, partition_key, rank, limit_keys,
       incarnation, policy,
       CASE WHEN finished_at IS NULL THEN input END
FROM {schema}.jobs
WHERE id = ANY ($1::text[]);

-- name: audit_jobs_of_run
SELECT id, status, epoch, queue, task, partition_key, rank, limit_keys,
       incarnation, policy,
       CASE WHEN finished_at IS NULL THEN input END
FROM {schema}.jobs
WHERE run_id = $1
  AND namespace = $2;

-- name: job_before
SELECT max(id)
FROM {schema}.jobs
WHERE NOT hidden
  AND ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR id < $2);

-- name: hidden_jobs
SELECT {job_columns}
FROM {schema}.jobs
WHERE hidden
  AND ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3;

-- name: suspended_waits
SELECT key
FROM {schema}.waits
WHERE run_id = $1
  AND namespace = $2
  AND suspended;

-- name: shared_fingerprints
SELECT namespace, queue, fingerprint, count(*)
FROM {schema}.jobs
WHERE fingerprint IS NOT NULL
  AND finished_at IS NULL
  AND ($1::text IS NULL OR namespace = $1)
GROUP BY namespace, queue, fingerprint
HAVING count(*) > 1;

-- name: audit_limits
SELECT namespace, key, max(closed_until), max(last_start_at), max(started_at)
FROM (
    SELECT namespace, key, closed_until, last_start_at, NULL::timestamptz AS started_at
    FROM {schema}.limits
    UNION ALL
    SELECT namespace, key, NULL, NULL, started_at
    FROM {schema}.limit_starts
) AS known
WHERE $1::text IS NULL OR namespace = $1
GROUP BY namespace, key;

-- name: schedule_times
SELECT namespace, name, due_at
FROM {schema}.schedules
WHERE $1::text IS NULL OR namespace = $1;

-- name: orphans
SELECT 'events', 'run ' || run_serial
FROM (
    SELECT DISTINCT run_serial
    FROM {schema}.events
) AS logs
WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = run_serial)
UNION ALL
SELECT 'snapshots', 'run ' || run_serial
FROM {schema}.snapshots
WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = run_serial)
UNION ALL
SELECT 'waits', run_id
FROM {schema}.waits AS wait
WHERE NOT EXISTS (
    SELECT 1 FROM {schema}.runs AS run
    WHERE run.id = wait.run_id AND run.namespace = wait.namespace
)
UNION ALL
SELECT 'steps', owner
FROM (
    SELECT DISTINCT owner, run_serial, job_id
    FROM {schema}.steps
) AS owners
WHERE (
    run_serial IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = owners.run_serial)
) OR (
    job_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = owners.job_id)
)
UNION ALL
SELECT 'failures', job_id
FROM (SELECT DISTINCT job_id FROM {schema}.failures) AS failed
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = failed.job_id)
LIMIT 100;
