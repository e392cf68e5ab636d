-- What people do to jobs and queues. How jobs move is in jobs.sql.

-- name: visible_jobs
SELECT {job_row}
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.id = wanted.value
WHERE NOT job.dropped
  AND (:namespace IS NULL OR job.namespace = :namespace);

-- name: unfinished_of_group
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_group
WHERE job.job_group = :group
  AND job.namespace = :namespace
  AND job.finished_at IS NULL
ORDER BY job.id;

-- name: start_anew
-- What a retried job forgets, besides that it was finished.
UPDATE {prefix}jobs
SET rank             = rank + (:now - ready_at) / 1e6,
    ready_at         = :now,
    failures         = 0,
    postpones        = 0,
    deaths           = 0,
    avoid_worker     = NULL,
    avoid_until      = NULL,
    deadline_at      = NULL,
    started_at       = NULL,
    progress         = 0,
    progress_message = '',
    progress_details = NULL
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: pause_queue
INSERT INTO {prefix}queues (namespace, name, paused_at, paused_by)
VALUES (:namespace, :queue, :now, :by)
ON CONFLICT (namespace, name) DO NOTHING;

-- name: resume_queue
DELETE FROM {prefix}queues
WHERE namespace = :namespace
  AND name = :queue;
