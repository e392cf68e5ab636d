-- Inserting, claiming and settling jobs, in order of rank (store/admission.py). ``:now``, or $1
-- where parameters are numbered, is the current time (null: the database's clock). Named parameters
-- are in params.py.

-- name: claim_from_one_partition
-- Claiming without limits. The rows are found again by ctid: they are locked by this statement, so
-- they cannot move, and no statistics can mislead the planner. A row that was claimed and requeued
-- between the snapshot and the lock is missed, and waits for the next claim. A waiting job that is
-- not ready yet shows that the clock was set back; its hold-off ends then.
WITH picked AS MATERIALIZED (
    -- Rows locked by other claims are skipped, not waited for.
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE status = 'waiting'
      AND namespace = :namespace
      AND partition_key = :partition_key
      AND (avoid_worker IS NULL
           OR avoid_worker <> :worker
           OR avoid_until <= coalesce(:now, statement_timestamp())
           OR ready_at > coalesce(:now, statement_timestamp()))
      AND :queue <> ALL (ARRAY (SELECT name FROM {schema}.queues WHERE namespace = :namespace))
    ORDER BY rank, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = :worker,
    started_at  = coalesce(:now, statement_timestamp()),
    lease_until = coalesce(:now, statement_timestamp()) + :lease,
    limit_keys  = NULL,
    claimed_alone = :alone,
    incarnation = :incarnation
WHERE ctid = ANY (ARRAY (SELECT place FROM picked))
RETURNING id, epoch, partition_key, input, attempt, failures, snoozes, max_attempts, policy, job_group,
          deadline_at, created_at, rank, started_at, priority, crashes, run_id, node_key,
          -- Whether jobs were skipped. A full claim need not know: it is followed by another.
          CASE WHEN (SELECT count(*) FROM picked) < :limit THEN (
              SELECT count(*)
              FROM (
                  SELECT
                  FROM {schema}.jobs
                  WHERE status = 'waiting'
                    AND namespace = :namespace
                    AND partition_key = :partition_key
                    AND (avoid_worker IS NULL
                         OR avoid_worker <> :worker
                         OR avoid_until <= coalesce(:now, statement_timestamp())
                         OR ready_at > coalesce(:now, statement_timestamp()))
                  LIMIT :limit
              ) AS seen
          ) > (SELECT count(*) FROM picked) ELSE false END;

-- name: claim_from_partitions
WITH open_partitions AS MATERIALIZED (
    SELECT partition_key
    FROM :wanted(partition_key, queue)
    WHERE queue <> ALL (ARRAY (SELECT name FROM {schema}.queues WHERE namespace = :namespace))
),
-- The first few jobs of each partition, without locks. The last of the best ones bounds the rows to
-- lock, so that many partitions do not mean many times as many locks.
fronts AS MATERIALIZED (
    SELECT front.rank, front.id
    FROM open_partitions
    CROSS JOIN LATERAL (
        SELECT rank, id
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = :namespace
          AND partition_key = open_partitions.partition_key
          AND (avoid_worker IS NULL
               OR avoid_worker <> :worker
               OR avoid_until <= coalesce(:now, statement_timestamp())
               OR ready_at > coalesce(:now, statement_timestamp()))
        ORDER BY rank, id
        LIMIT :front
    ) AS front
),
bound AS MATERIALIZED (
    SELECT rank, id
    FROM fronts
    ORDER BY rank, id
    OFFSET :limit - 1
    LIMIT 1
),
picked AS MATERIALIZED (
    SELECT candidate.place, candidate.rank, candidate.id, candidate.partition_key
    FROM open_partitions
    CROSS JOIN LATERAL (
        SELECT ctid AS place, rank, id, partition_key
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = :namespace
          AND partition_key = open_partitions.partition_key
          AND (rank, id) <= (
              coalesce((SELECT rank FROM bound), 'infinity'), coalesce((SELECT id FROM bound), ''))
          AND (avoid_worker IS NULL
               OR avoid_worker <> :worker
               OR avoid_until <= coalesce(:now, statement_timestamp())
               OR ready_at > coalesce(:now, statement_timestamp()))
        ORDER BY rank, id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS candidate
)
UPDATE {schema}.jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = :worker,
    started_at  = coalesce(:now, statement_timestamp()),
    lease_until = coalesce(:now, statement_timestamp()) + :lease,
    limit_keys  = NULL,
    claimed_alone = :alone,
    incarnation = :incarnation
WHERE ctid = ANY (ARRAY (SELECT place FROM picked ORDER BY rank, id LIMIT :limit))
RETURNING id, epoch, partition_key, input, attempt, failures, snoozes, max_attempts, policy, job_group,
          deadline_at, created_at, rank, started_at, priority, crashes, run_id, node_key,
          -- Whether jobs were skipped. A full claim need not know: it is followed by another.
          CASE WHEN (SELECT count(*) FROM picked) < :limit THEN (
              SELECT count(*)
              FROM open_partitions
              CROSS JOIN LATERAL (
                  SELECT
                  FROM {schema}.jobs
                  WHERE status = 'waiting'
                    AND namespace = :namespace
                    AND partition_key = open_partitions.partition_key
                    AND (avoid_worker IS NULL
                         OR avoid_worker <> :worker
                         OR avoid_until <= coalesce(:now, statement_timestamp())
                         OR ready_at > coalesce(:now, statement_timestamp()))
                  LIMIT :limit
              ) AS seen
          ) > (SELECT count(*) FROM picked) ELSE false END;

-- name: skipped_all
-- After a claim that got nothing: the time, and whether jobs wait that it could have taken. Another
-- transaction had locked them, or just queued them.
SELECT coalesce(:now, statement_timestamp()),
       EXISTS (
           SELECT
           FROM :wanted(partition_key, queue)
           CROSS JOIN LATERAL (
               SELECT
               FROM {schema}.jobs
               WHERE status = 'waiting'
                 AND namespace = :namespace
                 AND partition_key = wanted.partition_key
                 AND (avoid_worker IS NULL
                      OR avoid_worker <> :worker
                      OR avoid_until <= coalesce(:now, statement_timestamp())
                      OR ready_at > coalesce(:now, statement_timestamp()))
               LIMIT 1
           ) AS waiting
           WHERE wanted.queue <> ALL (
               ARRAY (SELECT name FROM {schema}.queues WHERE namespace = :namespace)
           )
       );

-- name: insert_jobs
-- This statement and those up to ``notify`` also run on callers' drivers, where colons may mean
-- something else: parameters are cast by CAST.
INSERT INTO {schema}.jobs (
    id, namespace, queue, task, partition_key, job_group, fingerprint, policy, input, input_hash,
    priority, max_attempts, run_id, node_key, created_at, ready_at, deadline_at, status, rank
)
SELECT id, namespace, queue, task, partition_key, job_group, fingerprint, policy, input, input_hash,
       priority, max_attempts, run_id, node_key, now, ready_at, deadline_at,
       CASE WHEN ready_at <= now THEN 'waiting' ELSE 'scheduled' END,
       date_part('epoch', ready_at) + priority * aging
FROM (
    SELECT id, namespace, queue, task, partition_key, job_group, fingerprint, policy, input, input_hash,
           priority, aging, max_attempts, run_id, node_key, moment.now,
           coalesce(run_at, moment.now + delay) AS ready_at,
           coalesce(deadline_at, moment.now + deadline) AS deadline_at
    FROM :jobs(id, namespace, queue, task, partition_key, job_group, fingerprint, policy, input, input_hash,
               priority, aging, max_attempts, delay, run_at, deadline, deadline_at, run_id,
               node_key)
    CROSS JOIN (SELECT coalesce(:now, statement_timestamp())) AS moment (now)
) AS given
ON CONFLICT DO NOTHING
RETURNING id, status = 'waiting';

-- name: insert_like_jobs
-- Jobs that differ only in their inputs, as from ``enqueue_many``. Fails if an id exists:
-- tolerating that costs a second WAL record for every row, which only a retried insert needs.
WITH shared AS MATERIALIZED (
    SELECT now, ready_at,
           coalesce(:deadline_at, now + :deadline) AS deadline_at,
           CASE WHEN ready_at <= now THEN 'waiting' ELSE 'scheduled' END AS status,
           date_part('epoch', ready_at) + :priority * :aging AS rank
    FROM (
        SELECT now, coalesce(:run_at, now + :delay) AS ready_at
        FROM (SELECT coalesce(:now, statement_timestamp()) AS now) AS moment
    ) AS times
),
added AS (
    INSERT INTO {schema}.jobs (
        id, input, input_hash, namespace, queue, task, partition_key, job_group, policy, priority,
        max_attempts, created_at, ready_at, deadline_at, status, rank
    )
    SELECT inputs.id, inputs.input, inputs.input_hash,
           :namespace, :queue, :task, :partition_key, :job_group, :policy, :priority, :max_attempts,
           shared.now, shared.ready_at, shared.deadline_at, shared.status, shared.rank
    FROM :inputs(id, input, input_hash)
    CROSS JOIN shared
)
SELECT status = 'waiting'
FROM shared;

-- name: late_deadlines
-- A job that exists had its deadline checked: the insert is being retried.
SELECT given.id, given.deadline_at, moment.now
FROM unnest(CAST($2 AS text[]), CAST($3 AS timestamptz[])) AS given (id, deadline_at)
CROSS JOIN (SELECT coalesce(CAST($1 AS timestamptz), statement_timestamp())) AS moment (now)
WHERE given.deadline_at <= moment.now
  AND NOT EXISTS (SELECT FROM {schema}.jobs WHERE jobs.id = given.id)
ORDER BY given.id
LIMIT 1;

-- name: find_rivals
-- Why jobs were not inserted: the same id exists, or a live fingerprint.
SELECT given.id, same.id IS NOT NULL, rival.id
FROM :given(id, namespace, queue, fingerprint)
LEFT JOIN {schema}.jobs AS same ON same.id = given.id
LEFT JOIN {schema}.jobs AS rival
    ON rival.namespace = given.namespace
   AND rival.queue = given.queue
   AND rival.fingerprint = given.fingerprint
   AND rival.status IN ('waiting', 'scheduled', 'active', 'paused', 'aborting', 'disabled');

-- name: replace_rivals
WITH rivals AS MATERIALIZED (
    SELECT rival.id, rival.lease_until IS NOT NULL AS was_held, given.failure
    FROM :given(id, namespace, queue, fingerprint, failure)
    JOIN {schema}.jobs AS rival
        ON rival.namespace = given.namespace
       AND rival.queue = given.queue
       AND rival.fingerprint = given.fingerprint
       AND rival.status IN ('waiting', 'scheduled', 'active', 'paused', 'aborting', 'disabled')
    -- A job that exists has done its replacing: the insert is being retried.
    WHERE NOT EXISTS (SELECT FROM {schema}.jobs AS same WHERE same.id = given.id)
    ORDER BY rival.id
    FOR UPDATE OF rival
),
replaced AS (
    UPDATE {schema}.jobs
    SET status      = 'cancelled',
        epoch       = epoch + CASE WHEN was_held THEN 1 ELSE 0 END,
        lease_until = NULL,
        finished_at = coalesce(:now, statement_timestamp())
    FROM rivals
    WHERE jobs.id = rivals.id
    RETURNING jobs.id, jobs.attempt, jobs.worker, jobs.finished_at,
              jobs.limit_keys IS NOT NULL AS was_limited, was_held, failure
),
history AS (
    INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, worker, finished_at, CAST(failure AS json)
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

-- name: settle_completed
-- Here and below, a claimed job is one with a lease, which a CHECK ties to its status. The fence
-- tests the lease rather than the status: otherwise the planner might scan the index of claimed
-- jobs instead of looking up each job by its id. Only a commit of its run ends a node's job.
UPDATE {schema}.jobs
SET status      = CASE jobs.status WHEN 'active' THEN 'completed' ELSE 'cancelled' END,
    output      = CASE jobs.status WHEN 'active' THEN outcomes.output END,
    progress    = CASE jobs.status WHEN 'active' THEN 100 ELSE jobs.progress END,
    finished_at = coalesce(:now, statement_timestamp()),
    lease_until = NULL,
    hidden      = :is_hidden
FROM :outcomes(id, epoch, output)
WHERE jobs.id = outcomes.id
  AND jobs.epoch = outcomes.epoch
  AND jobs.lease_until IS NOT NULL
  AND jobs.run_id IS NULL
RETURNING jobs.id, jobs.status, jobs.limit_keys IS NOT NULL;

-- name: settle_jobs
-- ``after`` is the status an outcome leads to, null for one that is ready again at ``ready_at``.
WITH given AS MATERIALIZED (
    SELECT id, epoch, after, output, is_refunded, is_snoozed, closes_limit, failure,
           percent, message, details, is_hidden, partition_key, moment.now,
           after IS NULL AS is_retried,
           coalesce(until, moment.now + delay) AS ready_at,
           coalesce(until, moment.now + delay) + hold_off AS avoid_until
    FROM :outcomes(id, epoch, after, output, is_refunded, is_snoozed, closes_limit, failure,
                   percent, message, details, is_hidden, delay, until, hold_off, partition_key)
    CROSS JOIN (SELECT coalesce(:now, statement_timestamp())) AS moment (now)
),
settled AS (
    UPDATE {schema}.jobs
    SET status = CASE
            WHEN jobs.status = 'aborting' THEN 'cancelled'
            WHEN NOT is_retried THEN after
            WHEN given.ready_at <= now THEN 'waiting'
            ELSE 'scheduled'
        END,
        finished_at = CASE
            WHEN jobs.status = 'aborting' OR after IN ('completed', 'failed', 'dead', 'cancelled')
            THEN now
        END,
        hidden  = is_hidden
            AND (jobs.status = 'aborting'
                 OR after IN ('completed', 'failed', 'dead', 'cancelled')) IS TRUE,
        worker = CASE
            WHEN jobs.status = 'aborting' OR after IN ('completed', 'failed', 'dead', 'cancelled')
            THEN jobs.worker
        END,
        lease_until = NULL,
        partition_key = CASE
            WHEN jobs.status = 'active' THEN coalesce(given.partition_key, jobs.partition_key)
            ELSE jobs.partition_key
        END,
        output = CASE WHEN jobs.status = 'active' THEN given.output END,
        progress = CASE
            WHEN jobs.status = 'active' AND after = 'completed' THEN 100
            ELSE coalesce(percent, jobs.progress)
        END,
        progress_message = coalesce(message, jobs.progress_message),
        progress_details = CASE
            WHEN percent IS NULL THEN jobs.progress_details ELSE details
        END,
        attempt = jobs.attempt
            - CASE WHEN jobs.status = 'active' AND is_refunded THEN 1 ELSE 0 END,
        failures = jobs.failures
            + CASE WHEN jobs.status = 'active'
                    AND (is_retried AND NOT is_snoozed AND NOT is_refunded
                         OR after IN ('failed', 'dead'))
              THEN 1 ELSE 0 END,
        snoozes   = jobs.snoozes
            + CASE WHEN jobs.status = 'active' AND is_retried AND is_snoozed
              THEN 1 ELSE 0 END,
        ready_at = CASE
            WHEN jobs.status = 'active' AND is_retried THEN given.ready_at ELSE jobs.ready_at
        END,
        rank = CASE
            WHEN jobs.status = 'active' AND is_retried
            THEN jobs.rank + date_part('epoch', given.ready_at - jobs.ready_at)
            ELSE jobs.rank
        END,
        avoid_worker = CASE
            WHEN jobs.status = 'active' AND is_retried THEN jobs.worker ELSE jobs.avoid_worker
        END,
        avoid_until = CASE
            WHEN jobs.status = 'active' AND is_retried THEN given.avoid_until
            ELSE jobs.avoid_until
        END
    FROM given
    WHERE jobs.id = given.id
      AND jobs.epoch = given.epoch
      AND jobs.lease_until IS NOT NULL
      AND (jobs.run_id IS NULL
           OR jobs.status = 'active' AND (is_retried OR after IN ('waiting', 'paused')))
    RETURNING jobs.id, jobs.status, jobs.limit_keys IS NOT NULL AS was_limited,
              jobs.partition_key, jobs.namespace, jobs.attempt,
              coalesce(jobs.worker, jobs.avoid_worker) AS holder,
              given.now, given.failure, given.closes_limit, given.ready_at AS reopens_at
),
history AS (
    INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, holder, now, failure::json
    FROM settled
    WHERE failure IS NOT NULL
),
-- Sorted, so that two settling workers lock the rows of several limits in the same order.
closed AS (
    INSERT INTO {schema}.limits AS known (namespace, key, closed_until, closed_at)
    SELECT namespace, closes_limit, max(reopens_at), max(now)
    FROM settled
    WHERE closes_limit IS NOT NULL
    GROUP BY namespace, closes_limit
    ORDER BY namespace, closes_limit
    ON CONFLICT (namespace, key) DO UPDATE
    SET closed_until = greatest(known.closed_until, excluded.closed_until),
        closed_at    = CASE
            WHEN known.closed_until > excluded.closed_until
            THEN known.closed_at
            ELSE excluded.closed_at
        END
)
SELECT id, status, was_limited, partition_key
FROM settled;

-- name: accept_parked
-- Returns whether the job is claimed now. If this statement is repeated after a lost response, the
-- job may be settled already, and its status is that of our outcome.
WITH accepted AS (
    UPDATE {schema}.jobs
    SET status      = 'active',
        epoch       = epoch + 1,
        attempt     = attempt + 1,
        worker      = :worker,
        lease_until = coalesce(:now, statement_timestamp())
    WHERE id = :id
      AND epoch = :epoch
      AND status = 'paused'
      AND run_id IS NULL
    RETURNING id
)
SELECT true, 'active'
FROM accepted
UNION ALL
SELECT false, status
FROM {schema}.jobs
WHERE :is_repeated
  AND id = :id
  AND epoch = :epoch + 1
  AND lease_until IS NULL
  AND coalesce(worker, avoid_worker) = :worker;

-- name: resume_parked
WITH parked AS MATERIALIZED (
    SELECT id
    FROM {schema}.jobs
    WHERE id = :id
      AND epoch = :epoch
      AND status = 'paused'
      AND run_id IS NULL
    FOR UPDATE
),
kept AS (
    INSERT INTO {schema}.steps (owner, name, value, job_id)
    SELECT id, :name, :value, id
    FROM parked
    ON CONFLICT (owner, name) DO NOTHING
)
UPDATE {schema}.jobs
SET status      = 'waiting',
    lease_until = NULL,
    finished_at = NULL
FROM parked
WHERE jobs.id = parked.id
RETURNING jobs.id, jobs.status, false, jobs.partition_key;

-- name: settled_already
-- After a lost response: an unclaimed row with our epoch was settled by us, because revoking a
-- claim raises the epoch.
SELECT jobs.id, jobs.status, jobs.limit_keys IS NOT NULL, jobs.partition_key
FROM unnest($1::text[], $2::integer[]) AS given (id, epoch)
JOIN {schema}.jobs ON jobs.id = given.id
WHERE jobs.epoch = given.epoch
  AND jobs.lease_until IS NULL;

-- name: renew_leases
UPDATE {schema}.jobs
SET lease_until = coalesce($1::timestamptz, statement_timestamp()) + $4::interval
FROM unnest($2::text[], $3::integer[]) AS given (id, epoch)
WHERE jobs.id = given.id
  AND jobs.epoch = given.epoch
  AND jobs.lease_until IS NOT NULL
RETURNING jobs.id, jobs.status = 'aborting';

-- name: check_claims
SELECT jobs.id, jobs.status = 'aborting'
FROM unnest($1::text[], $2::integer[]) AS given (id, epoch)
JOIN {schema}.jobs ON jobs.id = given.id
WHERE jobs.epoch = given.epoch
  AND jobs.lease_until IS NOT NULL;

-- name: disabled_among
SELECT given.id
FROM unnest($1::text[]) AS given (id)
WHERE (SELECT status FROM {schema}.jobs WHERE jobs.id = given.id) = 'disabled';

-- name: save_progress
UPDATE {schema}.jobs
SET progress         = latest.percent,
    progress_message = latest.message,
    progress_details = latest.details
FROM :latest(id, epoch, percent, message, details)
WHERE jobs.id = latest.id
  AND jobs.epoch = latest.epoch
  AND jobs.lease_until IS NOT NULL
RETURNING jobs.id;

-- name: requeue_unknown
UPDATE {schema}.jobs
SET status      = CASE status WHEN 'active' THEN 'waiting' ELSE 'cancelled' END,
    attempt     = attempt - CASE status WHEN 'active' THEN 1 ELSE 0 END,
    epoch       = epoch + 1,
    lease_until = NULL,
    worker      = CASE status WHEN 'aborting' THEN worker END,
    finished_at = CASE status
        WHEN 'aborting' THEN coalesce($1::timestamptz, statement_timestamp())
    END
WHERE status IN ('active', 'aborting')
  AND worker = $2
  AND id <> ALL ($3::text[])
  AND incarnation IS NOT DISTINCT FROM $4::bigint
RETURNING id, status, limit_keys IS NOT NULL, partition_key;

-- name: lock_limits
-- Claiming under limits, from here on: one transaction that locks the rows of all keys involved, so
-- that claims of one key are serialized. Each statement sees the writes that the previous one
-- waited for. Keys are locked in sorted order, so that no two claims deadlock.
SELECT key, closed_until, last_start_at, closed_at
FROM {schema}.limits
WHERE namespace = $1
  AND key = ANY ($2::text[])
ORDER BY key
FOR UPDATE;

-- name: add_limits
INSERT INTO {schema}.limits (namespace, key)
SELECT $1, key
FROM unnest($2::text[]) AS given (key)
ORDER BY key
ON CONFLICT DO NOTHING;

-- name: limit_usage
-- One row: the time, the paused queues, how many jobs are live under which keys, and for each rate
-- ($3 keys, $4 windows) the starts within the window, the oldest and the newest of them.
-- clock_timestamp, because the locks may have taken long.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),
live AS MATERIALIZED (
    SELECT key, count(*) AS count
    FROM {schema}.jobs
    CROSS JOIN unnest(limit_keys) AS held (key)
    WHERE status IN ('active', 'aborting')
      AND limit_keys IS NOT NULL
      AND namespace = $2
      AND lease_until > (SELECT now FROM moment)
    GROUP BY key
),
rates AS MATERIALIZED (
    SELECT coalesce(starts.count, 0) AS count, starts.oldest_at, starts.newest_at
    FROM unnest($3::text[], $4::interval[]) WITH ORDINALITY AS rate (key, span, number)
    CROSS JOIN LATERAL (
        SELECT sum(count)::integer AS count, min(started_at) AS oldest_at,
               max(started_at) AS newest_at
        FROM {schema}.limit_starts
        WHERE namespace = $2
          AND key = rate.key
          AND started_at > (SELECT now FROM moment) - rate.span
    ) AS starts
    ORDER BY rate.number
)
SELECT (SELECT now FROM moment),
       ARRAY (SELECT name FROM {schema}.queues WHERE namespace = $2),
       ARRAY (SELECT key FROM live),
       ARRAY (SELECT count FROM live),
       ARRAY (SELECT count FROM rates),
       ARRAY (SELECT oldest_at FROM rates),
       ARRAY (SELECT newest_at FROM rates);

-- name: bound_limits
-- After the clock was set back: what happened after ``now`` is recorded as of now. Null keys mean
-- all.
WITH locked AS MATERIALIZED (
    SELECT key
    FROM {schema}.limits
    WHERE namespace = $2
      AND ($3::text[] IS NULL OR key = ANY ($3))
    ORDER BY key
    FOR UPDATE
),
moment AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),
starts AS (
    UPDATE {schema}.limit_starts
    SET started_at = moment.now
    FROM moment
    WHERE namespace = $2
      AND key = ANY (ARRAY (SELECT key FROM locked))
      AND started_at > moment.now
)
UPDATE {schema}.limits
SET counts_until  = counts_until - (greatest(last_start_at, moment.now) - moment.now),
    last_start_at = CASE WHEN last_start_at IS NOT NULL THEN least(last_start_at, moment.now) END,
    closed_until  = closed_until - (greatest(closed_at, moment.now) - moment.now),
    closed_at     = CASE WHEN closed_at IS NOT NULL THEN least(closed_at, moment.now) END
FROM moment
WHERE namespace = $2
  AND key = ANY (ARRAY (SELECT key FROM locked));

-- name: limit_candidates
-- With whether jobs were skipped, in every row; one row without a job if there is none.
WITH candidates AS MATERIALIZED (
    SELECT candidate.id, candidate.partition_key, candidate.rank
    FROM :wanted(partition_key, room)
    CROSS JOIN LATERAL (
        SELECT id, partition_key, rank
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = :namespace
          AND partition_key = wanted.partition_key
          AND (avoid_worker IS NULL
               OR avoid_worker <> :worker
               OR avoid_until <= :now
               OR ready_at > :now)
        ORDER BY rank, id
        LIMIT wanted.room
        FOR UPDATE SKIP LOCKED
    ) AS candidate
),
skipped AS MATERIALIZED (
    SELECT count(*) > (SELECT count(*) FROM candidates) AS has_skipped
    FROM :wanted(partition_key, room)
    CROSS JOIN LATERAL (
        SELECT
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = :namespace
          AND partition_key = wanted.partition_key
          AND (avoid_worker IS NULL
               OR avoid_worker <> :worker
               OR avoid_until <= :now
               OR ready_at > :now)
        LIMIT wanted.room
    ) AS seen
)
SELECT candidate.id, candidate.partition_key, skipped.has_skipped
FROM skipped
LEFT JOIN candidates AS candidate ON true
ORDER BY candidate.rank, candidate.id;

-- name: start_under_limits
WITH counted AS (
    INSERT INTO {schema}.limit_starts (namespace, key, started_at, count)
    SELECT :namespace, key, :now, number
    FROM :starts(key, number, span)
    WHERE span IS NOT NULL
),
forgotten AS (
    DELETE FROM {schema}.limit_starts
    USING :starts(key, span)
    WHERE limit_starts.namespace = :namespace
      AND limit_starts.key = starts.key
      AND limit_starts.started_at <= :now - starts.span
),
remembered AS (
    UPDATE {schema}.limits
    SET last_start_at = :now,
        counts_until  = greatest(counts_until, :now + starts.memory)
    FROM :starts(key, memory)
    WHERE limits.namespace = :namespace
      AND limits.key = starts.key
)
UPDATE {schema}.jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = :worker,
    started_at  = :now,
    lease_until = :now + :lease,
    limit_keys  = CASE
        WHEN chosen.keys IS NOT NULL
        THEN ARRAY (SELECT json_array_elements_text(chosen.keys::json))
    END,
    claimed_alone = :alone,
    incarnation = :incarnation
FROM :chosen(id, keys)
WHERE jobs.id = chosen.id
RETURNING jobs.id, epoch, partition_key, input, attempt, failures, snoozes, max_attempts, policy,
          job_group, deadline_at, created_at, rank, started_at, priority, crashes, run_id, node_key;

-- name: lock_limits_of_job
-- Locks as a claim does, so that the next statement sees other writes and claims see its own.
SELECT limits.key
FROM {schema}.jobs
JOIN {schema}.limits ON limits.namespace = jobs.namespace AND limits.key = ANY (jobs.limit_keys)
WHERE jobs.id = $1
  AND jobs.epoch = $2
  AND jobs.lease_until IS NOT NULL
ORDER BY limits.key
FOR UPDATE OF limits;

-- name: move_start
WITH verdict AS MATERIALIZED (
    SELECT namespace, limit_keys, started_at AS at, moment.now,
           moment.now - started_at < :within AS is_moved
    FROM {schema}.jobs
    CROSS JOIN (SELECT coalesce(:now, statement_timestamp())) AS moment (now)
    WHERE id = :id
      AND epoch = :epoch
      AND lease_until IS NOT NULL
      AND limit_keys IS NOT NULL
),
-- Concurrent claims have one row each; one of them is changed.
counted AS MATERIALIZED (
    SELECT verdict.namespace, held.key, starts.place, starts.count, starts.total
    FROM verdict
    CROSS JOIN unnest(limit_keys) AS held (key)
    CROSS JOIN LATERAL (
        SELECT limit_starts.ctid AS place, count, sum(count) OVER () AS total
        FROM {schema}.limit_starts
        WHERE limit_starts.namespace = verdict.namespace
          AND limit_starts.key = held.key
          AND limit_starts.started_at = verdict.at
        LIMIT 1
    ) AS starts
),
removed AS (
    DELETE FROM {schema}.limit_starts
    WHERE ctid = ANY (ARRAY (SELECT place FROM counted WHERE count = 1))
),
decremented AS (
    UPDATE {schema}.limit_starts
    SET count = count - 1
    WHERE ctid = ANY (ARRAY (SELECT place FROM counted WHERE count > 1))
),
added AS (
    INSERT INTO {schema}.limit_starts (namespace, key, started_at, count)
    SELECT counted.namespace, counted.key, now, 1
    FROM counted
    CROSS JOIN verdict
    WHERE is_moved
),
remembered AS (
    UPDATE {schema}.limits
    SET last_start_at = CASE
            WHEN is_moved THEN now
            WHEN last_start_at = at AND (
                SELECT total FROM counted WHERE counted.key = limits.key
            ) = 1 THEN NULL
            ELSE last_start_at
        END,
        counts_until = CASE WHEN is_moved THEN counts_until + (now - at) ELSE counts_until END
    FROM verdict
    WHERE limits.namespace = verdict.namespace
      AND limits.key = ANY (verdict.limit_keys)
)
UPDATE {schema}.jobs
SET started_at = CASE WHEN is_moved THEN now ELSE jobs.started_at END,
    limit_keys = CASE WHEN is_moved THEN jobs.limit_keys END
FROM verdict
WHERE jobs.id = :id
  AND jobs.epoch = :epoch
  AND jobs.lease_until IS NOT NULL
RETURNING is_moved;
