-- $1 is always the moment that counts as now (null: the database's own).
-- A held job is one with a lease, which a CHECK ties to its status. The fence asks for the lease
-- rather than the status: else the planner could walk the index of held jobs instead of looking
-- each job up by its id.

-- name: settle_completed
UPDATE {schema}.jobs
SET status      = CASE jobs.status WHEN 'active' THEN 'completed' ELSE 'cancelled' END,
    output      = CASE jobs.status WHEN 'active' THEN given.output END,
    progress    = CASE jobs.status WHEN 'active' THEN 100 ELSE jobs.progress END,
    finished_at = coalesce($1::timestamptz, statement_timestamp()),
    lease_until = NULL,
    dropped     = $5
FROM unnest($2::text[], $3::integer[], $4::bytea[]) AS given (id, epoch, output)
WHERE jobs.id = given.id
  AND jobs.epoch = given.epoch
  AND jobs.lease_until IS NOT NULL
RETURNING jobs.id, jobs.status, jobs.limit_keys IS NOT NULL;

-- name: settle_jobs
-- ``after`` is the status an outcome leads to, null for one that is retried at ``ready_at``.
WITH given AS MATERIALIZED (
    SELECT id, epoch, after, output, is_refunded, is_postponed, closes_limit, failure,
           percent, message, details, is_dropped, moment.now,
           after IS NULL AS is_retried,
           coalesce(until, moment.now + delay) AS ready_at,
           coalesce(until, moment.now + delay) + hold_off AS avoid_until
    FROM unnest(
        $2::text[], $3::integer[], $4::text[], $5::bytea[], $6::boolean[], $7::boolean[],
        $8::text[], $9::text[], $10::double precision[], $11::text[], $12::bytea[],
        $13::boolean[], $14::interval[], $15::timestamptz[], $16::interval[]
    ) AS line (id, epoch, after, output, is_refunded, is_postponed, closes_limit, failure,
               percent, message, details, is_dropped, delay, until, hold_off)
    CROSS JOIN (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
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
        dropped = is_dropped
            AND (jobs.status = 'aborting'
                 OR after IN ('completed', 'failed', 'dead', 'cancelled')) IS TRUE,
        worker = CASE
            WHEN jobs.status = 'aborting' OR after IN ('completed', 'failed', 'dead', 'cancelled')
            THEN jobs.worker
        END,
        lease_until = NULL,
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
                    AND (is_retried AND NOT is_postponed OR after IN ('failed', 'dead'))
              THEN 1 ELSE 0 END,
        postpones = jobs.postpones
            + CASE WHEN jobs.status = 'active' AND is_retried AND is_postponed
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
    RETURNING jobs.id, jobs.status, jobs.limit_keys IS NOT NULL AS was_limited,
              jobs.lane, jobs.namespace, jobs.attempt,
              coalesce(jobs.worker, jobs.avoid_worker) AS holder,
              given.now, given.failure, given.closes_limit, given.ready_at AS reopens_at
),
history AS (
    INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, holder, now, failure::json
    FROM settled
    WHERE failure IS NOT NULL
),
-- Sorted, so that two settling workers take the rows of several limits in the same order.
closed AS (
    INSERT INTO {schema}.limits AS known (namespace, key, closed_until)
    SELECT namespace, closes_limit, max(reopens_at)
    FROM settled
    WHERE closes_limit IS NOT NULL
    GROUP BY namespace, closes_limit
    ORDER BY namespace, closes_limit
    ON CONFLICT (namespace, key) DO UPDATE
    SET closed_until = greatest(known.closed_until, excluded.closed_until)
)
SELECT id, status, was_limited, lane
FROM settled;

-- name: settled_already
-- After an unclear commit: a row with our epoch that is no longer held was settled by ourselves,
-- since whoever takes a claim away raises the epoch.
SELECT jobs.id, jobs.status, jobs.limit_keys IS NOT NULL, jobs.lane
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

-- name: save_progress
UPDATE {schema}.jobs
SET progress         = given.percent,
    progress_message = given.message,
    progress_details = given.details
FROM unnest($1::text[], $2::integer[], $3::double precision[], $4::text[], $5::bytea[])
    AS given (id, epoch, percent, message, details)
WHERE jobs.id = given.id
  AND jobs.epoch = given.epoch
  AND jobs.lease_until IS NOT NULL
RETURNING jobs.id;

-- name: give_back_unknown
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
RETURNING id, status, limit_keys IS NOT NULL, lane;
