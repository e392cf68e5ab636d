-- What operators do to jobs and queues.

-- name: change_jobs
-- $1 is the namespace (null: any), $2 the ids or the group, $3 the moment that counts as now.
-- Answers: id, status before, status after, lane, whether it leaves a limit, and its run. A job of a
-- run keeps all from being changed.
--
-- First locks the rows it is about, waiting for whoever changes them just now, then moves those to
-- which the operation applies. They are found again by id, which follows a row that was waited for
-- to its newest version.
WITH found AS MATERIALIZED (
    SELECT id, status, run_id, limit_keys IS NOT NULL AND lease_until IS NOT NULL AS was_limited
    FROM {schema}.jobs
    WHERE {scope}
      AND NOT dropped
    ORDER BY id
    FOR UPDATE
),
moved AS (
    UPDATE {schema}.jobs
    SET {change}
    FROM found
    CROSS JOIN (SELECT coalesce($3::timestamptz, statement_timestamp())) AS moment (now)
    WHERE jobs.id = found.id
      AND found.status IN ({before})
      AND NOT EXISTS (SELECT FROM found WHERE run_id IS NOT NULL)
    RETURNING jobs.id, jobs.status, jobs.lane, found.was_limited
)
SELECT found.id, found.status, coalesce(moved.status, found.status), moved.lane,
       coalesce(moved.was_limited AND moved.status <> 'aborting', false), found.run_id
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

-- name: pause_queue
INSERT INTO {schema}.queues (namespace, name, paused_at, paused_by)
VALUES ($2, $3, coalesce($1::timestamptz, statement_timestamp()), $4)
ON CONFLICT DO NOTHING;

-- name: resume_queue
DELETE FROM {schema}.queues
WHERE namespace = $1
  AND name = $2
RETURNING name;
