-- Claiming under limits: one transaction that holds the rows of all keys involved, so that
-- claimers of a key come one after the other. Each statement sees what the one before waited for.

-- name: lock_limits
-- In the order of the keys, for everybody: no two claimers can wait for each other.
SELECT key, closed_until, last_start_at
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
-- One row: the moment, the paused queues, how many jobs are live under which keys, and for each
-- rate ($3 keys, $4 windows) the starts within the window and the oldest of them.
-- clock_timestamp, because the locks may have been waited for.
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
    SELECT coalesce(starts.count, 0) AS count, starts.oldest_at
    FROM unnest($3::text[], $4::interval[]) WITH ORDINALITY AS rate (key, span, number)
    CROSS JOIN LATERAL (
        SELECT sum(count)::integer AS count, min(started_at) AS oldest_at
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
       ARRAY (SELECT oldest_at FROM rates);

-- name: limit_uses
-- The same for whoever only wants to know, without holding any key: a row for each rule ($3 keys,
-- $4 windows or null), with the jobs that are live under it, the longest held first.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
SELECT live.ids, starts.count, starts.oldest_at, limits.last_start_at, limits.closed_until
FROM unnest($3::text[], $4::interval[]) WITH ORDINALITY AS rule (key, span, number)
LEFT JOIN {schema}.limits ON limits.namespace = $2 AND limits.key = rule.key
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(id ORDER BY started_at, id), '{}') AS ids
    FROM {schema}.jobs
    WHERE status IN ('active', 'aborting')
      AND limit_keys IS NOT NULL
      AND namespace = $2
      AND lease_until > (SELECT now FROM moment)
      AND rule.key = ANY (limit_keys)
) AS live
CROSS JOIN LATERAL (
    SELECT coalesce(sum(count), 0)::integer AS count, min(started_at) AS oldest_at
    FROM {schema}.limit_starts
    WHERE namespace = $2
      AND key = rule.key
      AND started_at > (SELECT now FROM moment) - rule.span
) AS starts
ORDER BY rule.number;

-- name: limit_candidates
SELECT candidate.id, candidate.lane
FROM unnest($4::text[], $5::integer[]) AS wanted (lane, room)
CROSS JOIN LATERAL (
    SELECT id, lane, rank
    FROM {schema}.jobs
    WHERE status = 'waiting'
      AND namespace = $2
      AND lane = wanted.lane
      AND (avoid_worker IS NULL
           OR avoid_worker <> $3
           OR avoid_until <= $1::timestamptz)
    ORDER BY rank, id
    LIMIT wanted.room
    FOR UPDATE SKIP LOCKED
) AS candidate
ORDER BY candidate.rank, candidate.id;

-- name: start_under_limits
WITH counted AS (
    INSERT INTO {schema}.limit_starts (namespace, key, started_at, count)
    SELECT $2, key, $1::timestamptz, count
    FROM unnest($7::text[], $8::integer[], $9::interval[]) AS start (key, count, span)
    WHERE span IS NOT NULL
),
forgotten AS (
    DELETE FROM {schema}.limit_starts
    USING unnest($7::text[], $9::interval[]) AS start (key, span)
    WHERE limit_starts.namespace = $2
      AND limit_starts.key = start.key
      AND limit_starts.started_at <= $1::timestamptz - start.span
),
remembered AS (
    UPDATE {schema}.limits
    SET last_start_at = $1::timestamptz,
        counts_until  = greatest(counts_until, $1::timestamptz + start.memory)
    FROM unnest($7::text[], $10::interval[]) AS start (key, memory)
    WHERE limits.namespace = $2
      AND limits.key = start.key
)
UPDATE {schema}.jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = $3,
    started_at  = $1::timestamptz,
    lease_until = $1::timestamptz + $4::interval,
    limit_keys  = CASE
        WHEN chosen.keys IS NOT NULL
        THEN ARRAY (SELECT json_array_elements_text(chosen.keys::json))
    END
FROM unnest($5::text[], $6::text[]) AS chosen (id, keys)
WHERE jobs.id = chosen.id
RETURNING jobs.id, epoch, lane, input, attempt, failures, postpones, max_attempts, policy,
          job_group, deadline_at, created_at, rank, started_at, priority, deaths, run_id, node_key;
