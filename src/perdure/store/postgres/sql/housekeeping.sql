-- What any worker may do, in bounded batches. $1 is the moment that counts as now (null: the
-- database's own). Rows somebody else has in hand are skipped: the next pass gets them.

-- name: survey
-- Lanes are found by hopping from each to the next one in the index, whatever number of jobs lies
-- between.
WITH RECURSIVE lanes AS (
    (
        SELECT lane
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = $2
          AND lane > $3
        ORDER BY lane
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT jobs.lane
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = $2
          AND jobs.lane > lanes.lane
        ORDER BY jobs.lane
        LIMIT 1
    )
    FROM lanes
    WHERE lanes.lane IS NOT NULL
)
SELECT coalesce($1::timestamptz, statement_timestamp()),
       ARRAY (SELECT lane FROM lanes WHERE lane IS NOT NULL LIMIT $4),
       -- Not min(): where few rows are expected, it is planned to look at all of them.
       (
           SELECT ready_at
           FROM {schema}.jobs
           WHERE status = 'scheduled'
           ORDER BY ready_at
           LIMIT 1
       ),
       (
           SELECT lease_until
           FROM {schema}.jobs
           WHERE status IN ('active', 'aborting')
           ORDER BY lease_until
           LIMIT 1
       ),
       (
           SELECT deadline_at
           FROM {schema}.jobs
           WHERE deadline_at IS NOT NULL
             AND status IN ('waiting', 'scheduled', 'paused')
           ORDER BY deadline_at
           LIMIT 1
       );

-- name: lead
INSERT INTO {schema}.duties AS held (name, worker, lease_until)
VALUES ($2, $3, coalesce($1::timestamptz, statement_timestamp()) + $4::interval)
ON CONFLICT (name) DO UPDATE
SET worker      = excluded.worker,
    lease_until = excluded.lease_until
WHERE held.worker = excluded.worker
   OR held.lease_until <= coalesce($1::timestamptz, statement_timestamp())
RETURNING true;

-- name: promote_due
WITH due AS MATERIALIZED (
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE status = 'scheduled'
      AND ready_at <= coalesce($1::timestamptz, statement_timestamp())
    ORDER BY ready_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs
SET status = 'waiting'
WHERE ctid = ANY (ARRAY (SELECT place FROM due))
RETURNING id, lane;

-- name: take_over_expired
WITH expired AS MATERIALIZED (
    SELECT ctid AS place, worker AS holder
    FROM {schema}.jobs
    WHERE status IN ('active', 'aborting')
      AND lease_until <= coalesce($1::timestamptz, statement_timestamp())
    ORDER BY lease_until
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE {schema}.jobs
    SET status = CASE
            WHEN status = 'aborting' THEN 'cancelled'
            WHEN deaths + 1 >= $3 THEN 'dead'
            ELSE 'waiting'
        END,
        finished_at = CASE
            WHEN status = 'aborting' OR deaths + 1 >= $3
            THEN coalesce($1::timestamptz, statement_timestamp())
        END,
        worker      = CASE WHEN status = 'aborting' OR deaths + 1 >= $3 THEN holder END,
        deaths      = deaths + 1,
        epoch       = epoch + 1,
        lease_until = NULL
    FROM expired
    WHERE jobs.ctid = expired.place
    RETURNING id, namespace, lane, holder, status, attempt, limit_keys IS NOT NULL AS was_limited
),
history AS (
    INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, holder, coalesce($1::timestamptz, statement_timestamp()),
           json_build_object(
               'type', $4::text,
               'message', 'the lease of worker ' || holder || ' ran out before it settled the job'
           )
    FROM taken
)
SELECT id, namespace, lane, holder, status, was_limited
FROM taken;

-- name: expire_deadlines
WITH late AS MATERIALIZED (
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE deadline_at IS NOT NULL
      AND status IN ('waiting', 'scheduled', 'paused')
      AND deadline_at <= coalesce($1::timestamptz, statement_timestamp())
    ORDER BY deadline_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
expired AS (
    UPDATE {schema}.jobs
    SET status      = 'failed',
        finished_at = coalesce($1::timestamptz, statement_timestamp())
    WHERE ctid = ANY (ARRAY (SELECT place FROM late))
    RETURNING id, attempt, worker, finished_at, deadline_at
),
history AS (
    INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, worker, finished_at,
           json_build_object(
               'type', $3::text,
               'message', 'the deadline ' || deadline_at || ' passed before it was completed'
           )
    FROM expired
)
SELECT id
FROM expired;

-- name: prune_jobs
-- $2 is how long completed jobs are kept (null: for ever), $3 and $4 the other statuses and spans.
WITH old AS MATERIALIZED (
    SELECT place, id
    FROM (
        (
            SELECT ctid AS place, id
            FROM {schema}.jobs
            WHERE status = 'completed'
              AND finished_at <= coalesce($1::timestamptz, statement_timestamp()) - $2::interval
            ORDER BY finished_at
            LIMIT $5
        )
        UNION ALL
        SELECT ended.place, ended.id
        FROM unnest($3::text[], $4::interval[]) AS kept (status, span)
        CROSS JOIN LATERAL (
            SELECT ctid AS place, id
            FROM {schema}.jobs
            WHERE status IN ('failed', 'dead', 'cancelled')
              AND status = kept.status
              AND finished_at <= coalesce($1::timestamptz, statement_timestamp()) - kept.span
            ORDER BY finished_at
            LIMIT $5
        ) AS ended
    ) AS candidate
    LIMIT $5
),
-- A job that is being retried just now is left alone.
unlocked AS MATERIALIZED (
    SELECT ctid AS place, id
    FROM {schema}.jobs
    WHERE ctid = ANY (ARRAY (SELECT place FROM old))
      AND finished_at IS NOT NULL
    FOR UPDATE SKIP LOCKED
),
history AS (
    DELETE FROM {schema}.failures
    WHERE job_id = ANY (ARRAY (SELECT id FROM unlocked))
)
DELETE FROM {schema}.jobs
WHERE ctid = ANY (ARRAY (SELECT place FROM unlocked))
RETURNING id;

-- name: register_worker
INSERT INTO {schema}.workers AS known (id, namespace, info, started_at, seen_at)
VALUES ($2, $3, $4::json, coalesce($1::timestamptz, statement_timestamp()),
        coalesce($1::timestamptz, statement_timestamp()))
ON CONFLICT (id) DO UPDATE
SET namespace = excluded.namespace,
    info      = excluded.info,
    seen_at   = excluded.seen_at;

-- name: remove_worker
DELETE FROM {schema}.workers
WHERE id = $1;

-- name: prune_workers
DELETE FROM {schema}.workers
WHERE seen_at <= coalesce($1::timestamptz, statement_timestamp()) - $2::interval
RETURNING id;
