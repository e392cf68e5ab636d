-- What people do to jobs. $1 is the namespace (null: any), $2 the ids, $3 the moment that counts as
-- now, where it matters. All answer: id, status before, status after, lane, whether it leaves a limit,
-- and its run. A job of a run is not theirs to act on, and keeps them from acting on the others.
--
-- Each first locks the rows it is about, waiting for whoever changes them just now, then moves
-- those to which it applies. They are found again by id, which follows a row that was waited for
-- to its newest version. Before it does so, PostgreSQL checks what the update would make of the
-- old version: whatever the old status, the new row must therefore keep to the table's CHECKs,
-- and is computed from the row itself, never from what ``found`` knows of the newest one.

-- name: abort_jobs
WITH found AS MATERIALIZED (
    SELECT id, status, run_id
    FROM {schema}.jobs
    WHERE id = ANY ($2::text[])
      AND ($1::text IS NULL OR namespace = $1)
      AND NOT dropped
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET status      = CASE jobs.status WHEN 'active' THEN 'aborting' ELSE 'cancelled' END,
        lease_until = CASE jobs.status WHEN 'active' THEN jobs.lease_until END,
        finished_at = CASE
            WHEN jobs.status <> 'active' THEN coalesce($3::timestamptz, statement_timestamp())
        END
    FROM found
    WHERE jobs.id = found.id
      AND found.status IN ('active', 'waiting', 'scheduled', 'paused', 'disabled')
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.lane
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.lane, false,
       found.run_id
FROM found
LEFT JOIN moved ON moved.id = found.id;

-- name: abort_group
-- $2 is the group.
WITH found AS MATERIALIZED (
    SELECT id, status, run_id
    FROM {schema}.jobs
    WHERE job_group = $2
      AND namespace = $1
      AND finished_at IS NULL
      AND NOT dropped
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET status      = CASE jobs.status WHEN 'active' THEN 'aborting' ELSE 'cancelled' END,
        lease_until = CASE jobs.status WHEN 'active' THEN jobs.lease_until END,
        finished_at = CASE
            WHEN jobs.status <> 'active' THEN coalesce($3::timestamptz, statement_timestamp())
        END
    FROM found
    WHERE jobs.id = found.id
      AND found.status IN ('active', 'waiting', 'scheduled', 'paused', 'disabled')
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.lane
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.lane, false,
       found.run_id
FROM found
LEFT JOIN moved ON moved.id = found.id;

-- name: disable_jobs
-- Raising the epoch takes the claim from a holder.
WITH found AS MATERIALIZED (
    SELECT id, status, run_id, limit_keys IS NOT NULL AND lease_until IS NOT NULL AS was_limited
    FROM {schema}.jobs
    WHERE id = ANY ($2::text[])
      AND ($1::text IS NULL OR namespace = $1)
      AND NOT dropped
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET status      = 'disabled',
        epoch       = epoch + CASE jobs.status WHEN 'active' THEN 1 ELSE 0 END,
        lease_until = NULL,
        finished_at = NULL,
        worker      = NULL
    FROM found
    WHERE jobs.id = found.id
      AND found.status IN ('active', 'waiting', 'scheduled', 'paused')
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.lane, found.was_limited
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.lane,
       coalesce(moved.was_limited, false), found.run_id
FROM found
LEFT JOIN moved ON moved.id = found.id;

-- name: enable_jobs
WITH found AS MATERIALIZED (
    SELECT id, status, run_id
    FROM {schema}.jobs
    WHERE id = ANY ($2::text[])
      AND ($1::text IS NULL OR namespace = $1)
      AND NOT dropped
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET status = CASE
            WHEN ready_at <= coalesce($3::timestamptz, statement_timestamp()) THEN 'waiting'
            ELSE 'scheduled'
        END,
        lease_until = NULL,
        finished_at = NULL
    FROM found
    WHERE jobs.id = found.id
      AND found.status = 'disabled'
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.lane
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.lane, false,
       found.run_id
FROM found
LEFT JOIN moved ON moved.id = found.id;

-- name: retry_jobs
WITH found AS MATERIALIZED (
    SELECT id, status, run_id
    FROM {schema}.jobs
    WHERE id = ANY ($2::text[])
      AND ($1::text IS NULL OR namespace = $1)
      AND NOT dropped
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET status           = 'waiting',
        ready_at         = moment.now,
        rank             = rank + date_part('epoch', moment.now - ready_at),
        failures         = 0,
        postpones        = 0,
        deaths           = 0,
        worker           = NULL,
        avoid_worker     = NULL,
        avoid_until      = NULL,
        deadline_at      = NULL,
        started_at       = NULL,
        lease_until      = NULL,
        finished_at      = NULL,
        progress         = 0,
        progress_message = '',
        progress_details = NULL
    FROM found
    CROSS JOIN (SELECT coalesce($3::timestamptz, statement_timestamp())) AS moment (now)
    WHERE jobs.id = found.id
      AND found.status IN ('failed', 'dead', 'cancelled')
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.lane
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.lane, false,
       found.run_id
FROM found
LEFT JOIN moved ON moved.id = found.id;

-- name: find_retry_rival
-- Which live job keeps one of these from being retried; one of these themselves may.
WITH ended AS MATERIALIZED (
    SELECT id, namespace, queue, fingerprint
    FROM {schema}.jobs
    WHERE id = ANY ($2::text[])
      AND ($1::text IS NULL OR namespace = $1)
      AND finished_at IS NOT NULL
      AND fingerprint IS NOT NULL
)
SELECT queue, fingerprint, rival.id
FROM ended
CROSS JOIN LATERAL (
    SELECT coalesce(
        (
            SELECT live.id
            FROM {schema}.jobs AS live
            WHERE live.namespace = ended.namespace
              AND live.queue = ended.queue
              AND live.fingerprint = ended.fingerprint
              AND live.status IN (
                  'waiting', 'scheduled', 'active', 'paused', 'aborting', 'disabled')
        ),
        (
            SELECT min(like_it.id)
            FROM ended AS like_it
            WHERE like_it.namespace = ended.namespace
              AND like_it.queue = ended.queue
              AND like_it.fingerprint = ended.fingerprint
              AND like_it.id < ended.id
        )
    ) AS id
) AS rival
WHERE rival.id IS NOT NULL
ORDER BY ended.id
LIMIT 1;

-- name: resume_jobs
WITH found AS MATERIALIZED (
    SELECT id, status, run_id
    FROM {schema}.jobs
    WHERE id = ANY ($2::text[])
      AND ($1::text IS NULL OR namespace = $1)
      AND NOT dropped
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET status      = 'waiting',
        lease_until = NULL,
        finished_at = NULL
    FROM found
    WHERE jobs.id = found.id
      AND found.status = 'paused'
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.lane
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.lane, false,
       found.run_id
FROM found
LEFT JOIN moved ON moved.id = found.id;

-- name: pause_queue
INSERT INTO {schema}.queues (namespace, name, paused_at, paused_by)
VALUES ($2, $3, coalesce($1::timestamptz, statement_timestamp()), $4)
ON CONFLICT DO NOTHING;

-- name: resume_queue
DELETE FROM {schema}.queues
WHERE namespace = $1
  AND name = $2
RETURNING name;
