-- Inserting, claiming and settling jobs, in order of rank (store/admission.py). {rows} is as many
-- rows of parameters as one statement takes. Statements start with INSERT or UPDATE, because that
-- is how the sqlite3 module detects the start of a transaction on a caller's connection.
--
-- Limits: the write lock is held, so nothing changes between reading and claiming.

-- name: insert_jobs
-- An existing id changes nothing: an insert may be retried.
INSERT INTO {prefix}jobs (
    id, namespace, queue, task, partition_key, job_group, status, priority, rank, max_attempts, fingerprint,
    created_at, ready_at, deadline_at, input_hash, policy, input, run_id, node_key
)
VALUES {rows}
ON CONFLICT (id) DO NOTHING;

-- name: insert_large_inputs
INSERT INTO {prefix}large_inputs (job_id, input)
VALUES {rows}
ON CONFLICT (job_id) DO NOTHING;

-- name: insert_failures
INSERT INTO {prefix}failures (job_id, attempt, worker, failed_at, failure)
VALUES {rows};

-- name: take_write_lock
-- Changes nothing. Otherwise a caller's transaction could start with a read, which could be
-- outdated by the time of its first write.
UPDATE {prefix}migrations
SET version = version
WHERE version = 0;

-- name: jobs_by_id
SELECT {job_row}
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.id = wanted.value;

-- name: live_fingerprints
-- wanted has [namespace, queue, fingerprint] for each.
SELECT {job_row}
FROM json_each(:wanted) AS wanted
CROSS JOIN {prefix}jobs AS job INDEXED BY {prefix}jobs_fingerprint
    ON job.namespace = json_extract(wanted.value, '$[0]')
    AND job.queue = json_extract(wanted.value, '$[1]')
    AND job.fingerprint = json_extract(wanted.value, '$[2]')
    AND job.finished_at IS NULL;

-- name: paused_among
SELECT name
FROM {prefix}queues
WHERE namespace = :namespace;

-- name: claim_jobs
-- One statement, so it reads the queue once. RETURNING is unordered: the caller sorts.
UPDATE {prefix}jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = :worker,
    lease_until = :lease_until,
    started_at  = :now,
    claimed_alone = :alone,
    incarnation = :incarnation
WHERE rowid IN (
    SELECT job.rowid
    FROM json_each(:partitions) AS wanted
    -- The front of each partition, by index; jobs behind it cannot be among the first.
    CROSS JOIN {prefix}jobs AS job ON job.rowid IN (
        SELECT rowid
        FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
        WHERE status = 'waiting'
          AND namespace = :namespace
          AND partition_key = wanted.value
          AND (
              avoid_until IS NULL
              OR avoid_until <= :now
              OR avoid_worker <> :worker
              OR ready_at > :now  -- the clock was set back since
          )
        ORDER BY rank, id
        LIMIT :limit
    )
    ORDER BY job.rank, job.id
    LIMIT :limit
)
RETURNING {claimed_row};

-- name: front_of_partitions
-- The same jobs, plus spares for those that a limit blocks, in order; the caller picks.
SELECT job.rowid, job.partition_key
FROM json_each(:partitions) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.rowid IN (
    SELECT rowid
    FROM {prefix}jobs INDEXED BY {prefix}jobs_waiting
    WHERE status = 'waiting'
      AND namespace = :namespace
      AND partition_key = wanted.value
      AND (
          avoid_until IS NULL
          OR avoid_until <= :now
          OR avoid_worker <> :worker
          OR ready_at > :now
      )
    ORDER BY rank, id
    LIMIT :limit
)
ORDER BY job.rank, job.id;

-- name: claim_picked
UPDATE {prefix}jobs AS job
SET status      = 'active',
    epoch       = job.epoch + 1,
    attempt     = job.attempt + 1,
    worker      = picked.worker,
    lease_until = picked.lease_until,
    started_at  = picked.started_at,
    limit_keys  = picked.limit_keys,
    claimed_alone = picked.alone,
    incarnation = picked.incarnation
FROM (
    SELECT column1 AS number,
           column2 AS worker,
           column3 AS lease_until,
           column4 AS started_at,
           column5 AS limit_keys,
           column6 AS alone,
           column7 AS incarnation
    FROM (VALUES {rows})
) AS picked
WHERE job.rowid = picked.number
RETURNING {claimed_row};

-- name: large_inputs
SELECT large.job_id, large.input
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}large_inputs AS large ON large.job_id = wanted.value;

-- name: complete_jobs
-- The caller has read the row in the same transaction and found the claim current.
UPDATE {prefix}jobs AS job
SET status           = 'completed',
    lease_until      = NULL,
    limit_keys       = NULL,
    finished_at      = done.finished_at,
    hidden           = done.hidden,
    progress         = 100.0,
    -- A message is never NULL, so NULL means that there is no progress to write.
    progress_message = coalesce(done.message, job.progress_message),
    progress_details = CASE
        WHEN done.message IS NULL THEN job.progress_details ELSE done.details
    END,
    output           = done.output
FROM (
    SELECT column1 AS number,
           column2 AS finished_at,
           column3 AS hidden,
           column4 AS message,
           column5 AS details,
           column6 AS output
    FROM (VALUES {rows})
) AS done
WHERE job.rowid = done.number;

-- name: settle_jobs
-- The same for all other outcomes.
UPDATE {prefix}jobs AS job
SET status           = ended.status,
    attempt          = job.attempt - ended.attempts_back,
    failures         = job.failures + ended.failures,
    snoozes          = job.snoozes + ended.snoozes,
    partition_key    = ended.partition_key,
    worker           = CASE WHEN ended.finished_at IS NOT NULL THEN job.worker END,
    lease_until      = NULL,
    limit_keys       = NULL,
    rank             = job.rank + (ended.ready_at - job.ready_at) / 1e6,
    ready_at         = ended.ready_at,
    avoid_worker     = coalesce(ended.avoid_worker, job.avoid_worker),
    avoid_until      = coalesce(ended.avoid_until, job.avoid_until),
    finished_at      = ended.finished_at,
    hidden           = ended.hidden,
    progress         = coalesce(ended.percent, job.progress),
    progress_message = coalesce(ended.message, job.progress_message),
    progress_details = CASE
        WHEN ended.message IS NULL THEN job.progress_details ELSE ended.details
    END
FROM (
    SELECT column1  AS number,
           column2  AS status,
           column3  AS attempts_back,
           column4  AS failures,
           column5  AS snoozes,
           column6  AS ready_at,
           column7  AS avoid_worker,
           column8  AS avoid_until,
           column9  AS finished_at,
           column10 AS hidden,
           column11 AS percent,
           column12 AS message,
           column13 AS details,
           column14 AS partition_key
    FROM (VALUES {rows})
) AS ended
WHERE job.rowid = ended.number;

-- name: move_jobs
-- A status change with all columns that it implies: only claimed jobs have a lease and count under
-- limits, only claimed and finished ones name a worker.
UPDATE {prefix}jobs AS job
SET status      = moved.status,
    epoch       = moved.epoch,
    attempt     = moved.attempt,
    crashes     = moved.crashes,
    partition_key = moved.partition_key,
    finished_at = moved.finished_at,
    lease_until = CASE WHEN moved.status = 'aborting' THEN job.lease_until END,
    limit_keys  = CASE WHEN moved.status = 'aborting' THEN job.limit_keys END,
    worker      = CASE
        WHEN moved.status = 'aborting' OR moved.finished_at IS NOT NULL THEN job.worker
    END
FROM (
    SELECT column1 AS number,
           column2 AS status,
           column3 AS epoch,
           column4 AS attempt,
           column5 AS crashes,
           column6 AS partition_key,
           column7 AS finished_at
    FROM (VALUES {rows})
) AS moved
WHERE job.rowid = moved.number;

-- name: renew_leases
UPDATE {prefix}jobs
SET lease_until = :lease_until
WHERE rowid IN (SELECT value FROM json_each(:numbers));

-- name: accept_parked
UPDATE {prefix}jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = :worker,
    lease_until = :now
WHERE id = :id
  AND epoch = :epoch
  AND status = 'paused'
  AND run_id IS NULL;

-- name: parked_job
SELECT {job_row}
FROM {prefix}jobs AS job
WHERE job.id = :id
  AND job.epoch = :epoch
  AND job.status = 'paused'
  AND job.run_id IS NULL;

-- name: claim_states
SELECT job.rowid, job.id, job.epoch, job.status
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.id = wanted.value
WHERE job.lease_until IS NOT NULL;

-- name: disabled_among
SELECT job.id
FROM json_each(:ids) AS wanted
CROSS JOIN {prefix}jobs AS job ON job.id = wanted.value
WHERE job.status = 'disabled';

-- name: save_progress
UPDATE {prefix}jobs AS job
SET progress         = latest.percent,
    progress_message = latest.message,
    progress_details = latest.details
FROM (
    SELECT column1 AS number,
           column2 AS percent,
           column3 AS message,
           column4 AS details
    FROM (VALUES {rows})
) AS latest
WHERE job.rowid = latest.number;

-- name: claimed_by_worker
SELECT {job_row}
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_claimed
WHERE job.lease_until IS NOT NULL
  AND job.worker = :worker
  AND job.incarnation IS :incarnation;

-- name: live_under_limits
-- One pass over the claimed jobs that count under any limit; there are never more than running
-- ones.
SELECT counted.value, count(*)
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_limited, json_each(job.limit_keys) AS counted
WHERE job.namespace = :namespace
  AND job.lease_until > :now
  AND job.limit_keys IS NOT NULL
GROUP BY counted.value;

-- name: limit_holders
-- The longest claimed first.
SELECT counted.value, job.id
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_limited, json_each(job.limit_keys) AS counted
WHERE job.namespace = :namespace
  AND job.lease_until > :now
  AND job.limit_keys IS NOT NULL
ORDER BY job.started_at, job.id;

-- name: limits
SELECT key, last_start_at, closed_until, closed_at
FROM {prefix}limits
WHERE namespace = :namespace
  AND key IN (SELECT value FROM json_each(:keys));

-- name: starts_since
SELECT coalesce(sum(count), 0), min(started_at), max(started_at)
FROM {prefix}limit_starts
WHERE namespace = :namespace
  AND key = :key
  AND started_at > :since;

-- name: record_starts
INSERT INTO {prefix}limits (namespace, key, last_start_at, counts_until)
VALUES {rows}
ON CONFLICT (namespace, key) DO UPDATE
SET last_start_at = excluded.last_start_at,
    counts_until  = max(coalesce(counts_until, 0), excluded.counts_until);

-- name: add_starts
INSERT INTO {prefix}limit_starts (namespace, key, started_at, count)
VALUES {rows};

-- name: forget_starts
DELETE FROM {prefix}limit_starts
WHERE namespace = :namespace
  AND key = :key
  AND started_at <= :until;

-- name: counted_start
SELECT rowid, namespace, started_at, limit_keys
FROM {prefix}jobs
WHERE id = :id
  AND epoch = :epoch
  AND lease_until IS NOT NULL
  AND limit_keys IS NOT NULL;

-- name: starts_at
SELECT rowid, count
FROM {prefix}limit_starts
WHERE namespace = :namespace
  AND key = :key
  AND started_at = :at;

-- name: remove_start
DELETE FROM {prefix}limit_starts
WHERE rowid = :number;

-- name: decrement_starts
UPDATE {prefix}limit_starts
SET count = count - 1
WHERE rowid = :number;

-- name: move_last_start
UPDATE {prefix}limits
SET last_start_at = :now,
    counts_until  = counts_until + :by
WHERE namespace = :namespace
  AND key = :key;

-- name: forget_last_start
UPDATE {prefix}limits
SET last_start_at = NULL
WHERE namespace = :namespace
  AND key = :key
  AND last_start_at = :at;

-- name: move_start
UPDATE {prefix}jobs
SET started_at = :started_at,
    limit_keys = :limit_keys
WHERE rowid = :number;

-- name: close_limits
INSERT INTO {prefix}limits (namespace, key, closed_until, closed_at)
VALUES {rows}
ON CONFLICT (namespace, key) DO UPDATE
SET closed_until = max(coalesce(closed_until, excluded.closed_until), excluded.closed_until),
    closed_at    = CASE
        WHEN closed_until > excluded.closed_until THEN closed_at ELSE excluded.closed_at
    END;

-- name: bound_limits
-- After the clock was set back: what happened after ``now`` is recorded as of now. NULL keys mean
-- all.
UPDATE {prefix}limits
SET counts_until  = counts_until - max(coalesce(last_start_at, :now) - :now, 0),
    last_start_at = min(last_start_at, :now),
    closed_until  = closed_until - max(coalesce(closed_at, :now) - :now, 0),
    closed_at     = min(closed_at, :now)
WHERE namespace = :namespace
  AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)));

-- name: bound_starts
UPDATE {prefix}limit_starts
SET started_at = :now
WHERE namespace = :namespace
  AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys)))
  AND started_at > :now;
