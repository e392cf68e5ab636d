-- Claiming without limits. $1 is always the moment that counts as now (null: the database's own).
-- The rows are found again by their place (ctid): they were locked in this very statement, so
-- they cannot move, and no statistics can mislead the planner. A row that changed hands between
-- the snapshot and the lock is missed, and still waits for the next claim.

-- name: claim_from_one_lane
WITH picked AS MATERIALIZED (
    -- Others' picks are skipped, not waited for: each claimer gets rows of its own.
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE status = 'waiting'
      AND namespace = $2
      AND lane = $5
      AND (avoid_worker IS NULL
           OR avoid_worker <> $3
           OR avoid_until <= coalesce($1::timestamptz, statement_timestamp()))
      AND $6 <> ALL (ARRAY (SELECT name FROM {schema}.queues WHERE namespace = $2))
    ORDER BY rank, id
    LIMIT $7
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = $3,
    started_at  = coalesce($1::timestamptz, statement_timestamp()),
    lease_until = coalesce($1::timestamptz, statement_timestamp()) + $4::interval,
    limit_keys  = NULL
WHERE ctid = ANY (ARRAY (SELECT place FROM picked))
RETURNING id, epoch, lane, input, attempt, failures, postpones, max_attempts, policy, job_group,
          deadline_at, created_at, rank, started_at, priority, deaths, run_id, node_key;

-- name: claim_from_lanes
WITH open_lanes AS MATERIALIZED (
    SELECT lane
    FROM unnest($5::text[], $6::text[]) AS wanted (lane, queue)
    WHERE queue <> ALL (ARRAY (SELECT name FROM {schema}.queues WHERE namespace = $2))
),
-- A few from the front of each lane, without locks. The last of the best $7 of them bounds what
-- is worth locking, so that many lanes do not mean many times as many locks.
fronts AS MATERIALIZED (
    SELECT front.rank, front.id
    FROM open_lanes
    CROSS JOIN LATERAL (
        SELECT rank, id
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = $2
          AND lane = open_lanes.lane
          AND (avoid_worker IS NULL
               OR avoid_worker <> $3
               OR avoid_until <= coalesce($1::timestamptz, statement_timestamp()))
        ORDER BY rank, id
        LIMIT $8
    ) AS front
),
bound AS MATERIALIZED (
    SELECT rank, id
    FROM fronts
    ORDER BY rank, id
    OFFSET $7 - 1
    LIMIT 1
),
picked AS MATERIALIZED (
    SELECT candidate.place, candidate.rank, candidate.id, candidate.lane
    FROM open_lanes
    CROSS JOIN LATERAL (
        SELECT ctid AS place, rank, id, lane
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = $2
          AND lane = open_lanes.lane
          AND (rank, id) <= (
              coalesce((SELECT rank FROM bound), 'infinity'), coalesce((SELECT id FROM bound), ''))
          AND (avoid_worker IS NULL
               OR avoid_worker <> $3
               OR avoid_until <= coalesce($1::timestamptz, statement_timestamp()))
        ORDER BY rank, id
        LIMIT $7
        FOR UPDATE SKIP LOCKED
    ) AS candidate
)
UPDATE {schema}.jobs
SET status      = 'active',
    epoch       = epoch + 1,
    attempt     = attempt + 1,
    worker      = $3,
    started_at  = coalesce($1::timestamptz, statement_timestamp()),
    lease_until = coalesce($1::timestamptz, statement_timestamp()) + $4::interval,
    limit_keys  = NULL
WHERE ctid = ANY (ARRAY (SELECT place FROM picked ORDER BY rank, id LIMIT $7))
RETURNING id, epoch, lane, input, attempt, failures, postpones, max_attempts, policy, job_group,
          deadline_at, created_at, rank, started_at, priority, deaths, run_id, node_key,
          -- Locked and not taken: others that looked meanwhile have to be told to look again.
          (SELECT count(*) FROM picked) > $7;
