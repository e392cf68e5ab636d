-- Maintenance of a namespace, in bounded batches; retention is decided in worker/janitor.py. Rows
-- locked by another transaction are skipped until the next pass. ``:now``, or $1 where parameters
-- are numbered, is the current time (null: the database's clock). Named parameters are in
-- params.py.

-- name: poll
-- A skip scan: each partition is one index lookup after the previous one, however many jobs lie
-- between.
WITH RECURSIVE partitions AS (
    (
        SELECT partition_key
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = $2
          AND partition_key > $3
        ORDER BY partition_key
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT jobs.partition_key
        FROM {schema}.jobs
        WHERE status = 'waiting'
          AND namespace = $2
          AND jobs.partition_key > partitions.partition_key
        ORDER BY jobs.partition_key
        LIMIT 1
    )
    FROM partitions
    WHERE partitions.partition_key IS NOT NULL
)
SELECT coalesce($1::timestamptz, statement_timestamp()),
       ARRAY (SELECT partition_key FROM partitions WHERE partition_key IS NOT NULL LIMIT $4),
       -- Not min(): expecting few rows, the planner would read all of them.
       (
           SELECT ready_at
           FROM {schema}.jobs
           WHERE status = 'scheduled'
             AND namespace = $2
           ORDER BY ready_at
           LIMIT 1
       ),
       (
           SELECT lease_until
           FROM {schema}.jobs
           WHERE status IN ('active', 'aborting')
             AND namespace = $2
           ORDER BY lease_until
           LIMIT 1
       ),
       (
           SELECT deadline_at
           FROM {schema}.jobs
           WHERE deadline_at IS NOT NULL
             AND run_id IS NULL
             AND status IN ('waiting', 'scheduled', 'paused')
             AND namespace = $2
           ORDER BY deadline_at
           LIMIT 1
       ),
       (
           SELECT sticky_until
           FROM {schema}.jobs
           WHERE sticky_until IS NOT NULL
             AND status = 'waiting'
             AND namespace = $2
           ORDER BY sticky_until
           LIMIT 1
       ),
       (
           SELECT due_at
           FROM {schema}.waits
           WHERE NOT suspended
             AND due_at IS NOT NULL
             AND namespace = $2
           ORDER BY due_at
           LIMIT 1
       ),
       (
           SELECT due_at
           FROM {schema}.schedules
           WHERE due_at IS NOT NULL
             AND namespace = $2
           ORDER BY due_at
           LIMIT 1
       ),
       ARRAY (SELECT name FROM {schema}.queues WHERE namespace = $2 ORDER BY name),
       (
           SELECT seen_at
           FROM {schema}.workers
           WHERE namespace = $2
           ORDER BY seen_at DESC
           LIMIT 1
       ),
       EXISTS (
           SELECT
           FROM {schema}.subscribers
           WHERE namespace = $2
             AND lease_until > coalesce($1::timestamptz, statement_timestamp())
       );

-- name: acquire_lease
-- A lease that ends too late was acquired before the clock was set back.
INSERT INTO {schema}.maintenance_leases AS held (name, worker, lease_until, lease)
VALUES ($2, $3, coalesce($1::timestamptz, statement_timestamp()) + $4::interval, $4::interval)
ON CONFLICT (name) DO UPDATE
SET worker      = excluded.worker,
    lease_until = excluded.lease_until,
    lease       = excluded.lease
WHERE held.worker = excluded.worker
   OR held.lease_until <= coalesce($1::timestamptz, statement_timestamp())
   OR held.lease_until > coalesce($1::timestamptz, statement_timestamp()) + held.lease
RETURNING true;

-- name: bound_leases
-- Used after the clock was set back, like the statements below (see ``bound_times`` in the
-- contract).
WITH ahead AS MATERIALIZED (
    SELECT held.id, coalesce(holder.lease, $3::interval) AS lease
    FROM {schema}.jobs AS held
    LEFT JOIN {schema}.workers AS holder ON holder.id = held.worker
    WHERE held.status IN ('active', 'aborting')
      AND held.namespace = $2
      AND held.lease_until > coalesce($1::timestamptz, statement_timestamp())
                             + coalesce(holder.lease, $3::interval)
    ORDER BY held.id
    FOR UPDATE OF held
)
UPDATE {schema}.jobs
SET lease_until = coalesce($1::timestamptz, statement_timestamp()) + ahead.lease
FROM ahead
WHERE jobs.id = ahead.id
RETURNING jobs.id;

-- name: bound_waits
-- Waits for children and places have no due time until they are due.
WITH ahead AS MATERIALIZED (
    SELECT run_id, namespace, key
    FROM {schema}.waits
    WHERE namespace = $2
      AND due_at > coalesce($1::timestamptz, statement_timestamp())
      AND NOT suspended
      AND (
          type = 'child'
          OR (
              key = 'run:start'
              AND EXISTS (
                  SELECT
                  FROM {schema}.runs
                  WHERE runs.id = waits.run_id
                    AND runs.namespace = waits.namespace
                    AND runs.rank IS NOT NULL
              )
          )
      )
    ORDER BY run_id, namespace, key
    FOR UPDATE
)
UPDATE {schema}.waits
SET due_at = coalesce($1::timestamptz, statement_timestamp())
FROM ahead
WHERE waits.run_id = ahead.run_id
  AND waits.namespace = ahead.namespace
  AND waits.key = ahead.key
RETURNING waits.key;

-- name: bound_sticky
-- A waiting job that is not ready was made ready before the clock was set back.
WITH ahead AS MATERIALIZED (
    SELECT id
    FROM {schema}.jobs
    WHERE status = 'waiting'
      AND sticky_until > coalesce($1::timestamptz, statement_timestamp())
      AND namespace = $2
      AND ready_at > coalesce($1::timestamptz, statement_timestamp())
    ORDER BY id
    FOR UPDATE
)
UPDATE {schema}.jobs
SET sticky_until = coalesce($1::timestamptz, statement_timestamp())
FROM ahead
WHERE jobs.id = ahead.id;

-- name: bound_subscribers
UPDATE {schema}.subscribers
SET lease_until = coalesce($1::timestamptz, statement_timestamp()) + $3::interval
WHERE namespace = $2
  AND lease_until > coalesce($1::timestamptz, statement_timestamp()) + $3::interval;

-- name: bound_live_events
-- Takes the lock of publishers, because they remove old events in another order.
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('{schema}.live_events')) AS taken
)
UPDATE {schema}.live_events
SET at = coalesce($1::timestamptz, statement_timestamp())
FROM turn
WHERE namespace = $2
  AND at > coalesce($1::timestamptz, statement_timestamp());

-- name: bound_workers
UPDATE {schema}.workers
SET seen_at = coalesce($1::timestamptz, statement_timestamp())
WHERE namespace = $2
  AND seen_at > coalesce($1::timestamptz, statement_timestamp());

-- name: promote_due
WITH due AS MATERIALIZED (
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE status = 'scheduled'
      AND namespace = $2
      AND ready_at <= coalesce($1::timestamptz, statement_timestamp())
    ORDER BY ready_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs
SET status = 'waiting'
WHERE ctid = ANY (ARRAY (SELECT place FROM due))
RETURNING id, partition_key;

-- name: release_sticky
-- Each worker is looked up once, however many jobs wait for it. The job keeps the part of the key
-- that names its partition, which ends with ].
WITH RECURSIVE late AS MATERIALIZED (
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE status = 'waiting'
      AND sticky_until <= coalesce($1::timestamptz, statement_timestamp())
      AND namespace = $2
    ORDER BY sticky_until
    LIMIT $3
    FOR UPDATE SKIP LOCKED
),
awaited (worker) AS (
    (
        SELECT sticky_worker
        FROM {schema}.jobs
        WHERE sticky_until IS NOT NULL
          AND status = 'waiting'
          AND namespace = $2
        ORDER BY sticky_worker
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT sticky_worker
        FROM {schema}.jobs
        WHERE sticky_until IS NOT NULL
          AND status = 'waiting'
          AND namespace = $2
          AND sticky_worker > awaited.worker
        ORDER BY sticky_worker
        LIMIT 1
    )
    FROM awaited
    WHERE awaited.worker IS NOT NULL
),
gone AS MATERIALIZED (
    SELECT worker
    FROM awaited
    WHERE worker IS NOT NULL
      AND NOT EXISTS (
          SELECT
          FROM {schema}.workers
          WHERE workers.id = awaited.worker
            AND seen_at + lease >= coalesce($1::timestamptz, statement_timestamp())
      )
),
orphaned AS MATERIALIZED (
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE status = 'waiting'
      AND sticky_until > coalesce($1::timestamptz, statement_timestamp())
      AND namespace = $2
      AND sticky_worker = ANY (ARRAY (SELECT worker FROM gone))
    LIMIT $3 - (SELECT count(*) FROM late)
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs
SET partition_key = CASE
        WHEN rtrim(partition_key, '0123456789') LIKE '%]~~'
        THEN rtrim(partition_key, '~0123456789')
        ELSE partition_key
    END,
    sticky_worker = NULL,
    sticky_until  = NULL
WHERE ctid = ANY (ARRAY (SELECT place FROM late UNION ALL SELECT place FROM orphaned))
RETURNING partition_key;

-- name: expired_leases
SELECT id, partition_key, worker, attempt, status, claimed_alone, limit_keys IS NOT NULL,
       run_id, node_key, epoch, coalesce($1::timestamptz, statement_timestamp())
FROM {schema}.jobs
WHERE status IN ('active', 'aborting')
  AND namespace = $2
  AND lease_until <= coalesce($1::timestamptz, statement_timestamp())
ORDER BY lease_until
LIMIT $3
FOR UPDATE SKIP LOCKED;

-- name: former_claims
-- Waits for locked rows instead of skipping them: the worker takes over its former claims only once.
SELECT id, partition_key, worker, attempt, status, claimed_alone, limit_keys IS NOT NULL,
       run_id, node_key, epoch, coalesce($1::timestamptz, statement_timestamp())
FROM {schema}.jobs
WHERE status IN ('active', 'aborting')
  AND namespace = $2
  AND worker = $3
  AND incarnation <> $4
ORDER BY id
LIMIT $5
FOR UPDATE;

-- name: take_over
-- Jobs that one of these statements found and locked in the same transaction.
UPDATE {schema}.jobs
SET status        = taken.status,
    partition_key = taken.partition_key,
    finished_at   = CASE WHEN jobs.status = 'aborting' THEN :now END,
    worker        = CASE WHEN jobs.status = 'aborting' THEN worker END,
    crashes       = crashes + 1,
    epoch         = epoch + 1,
    lease_until   = NULL
FROM :taken(id, status, partition_key)
WHERE jobs.id = taken.id;

-- name: expire_deadlines
WITH late AS MATERIALIZED (
    SELECT ctid AS place
    FROM {schema}.jobs
    WHERE deadline_at IS NOT NULL
      AND run_id IS NULL
      AND status IN ('waiting', 'scheduled', 'paused')
      AND namespace = $2
      AND deadline_at <= coalesce($1::timestamptz, statement_timestamp())
    ORDER BY deadline_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs
SET status      = 'failed',
    finished_at = coalesce($1::timestamptz, statement_timestamp())
WHERE ctid = ANY (ARRAY (SELECT place FROM late))
RETURNING id, partition_key, worker, attempt, deadline_at, finished_at;

-- name: add_failures
-- For jobs that were taken over or have expired, in the same transaction.
INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
SELECT id, attempt, worker, :now, failure::json
FROM :failed(id, attempt, worker, failure);

-- name: prune_jobs
-- Skips from queue to queue, and takes the oldest jobs of each until there are enough.
WITH RECURSIVE completed (queue) AS (
    SELECT '' COLLATE "C"
    UNION ALL
    SELECT (
        SELECT jobs.queue
        FROM {schema}.jobs
        WHERE status = 'completed'
          AND namespace = :namespace
          AND jobs.queue > completed.queue
        ORDER BY jobs.queue
        LIMIT 1
    )
    FROM completed
    WHERE queue IS NOT NULL
),
ended (status, span, queue) AS (
    SELECT status, span, '' COLLATE "C"
    FROM :kept(status, span)
    UNION ALL
    SELECT ended.status, ended.span, (
        SELECT jobs.queue
        FROM {schema}.jobs
        WHERE jobs.status IN ('failed', 'dead', 'cancelled')
          AND jobs.status = ended.status
          AND namespace = :namespace
          AND jobs.queue > ended.queue
        ORDER BY jobs.queue
        LIMIT 1
    )
    FROM ended
    WHERE queue IS NOT NULL
),
old AS MATERIALIZED (
    SELECT place, id
    FROM (
        SELECT oldest.place, oldest.id
        FROM completed
        CROSS JOIN LATERAL (
            SELECT ctid AS place, id
            FROM {schema}.jobs
            WHERE status = 'completed'
              AND namespace = :namespace
              AND jobs.queue = completed.queue
              AND finished_at <= coalesce(:now, statement_timestamp()) - :completed
            ORDER BY finished_at
            LIMIT :limit
        ) AS oldest
        UNION ALL
        SELECT oldest.place, oldest.id
        FROM ended
        CROSS JOIN LATERAL (
            SELECT ctid AS place, id
            FROM {schema}.jobs
            WHERE jobs.status IN ('failed', 'dead', 'cancelled')
              AND namespace = :namespace
              AND jobs.status = ended.status
              AND jobs.queue = ended.queue
              AND finished_at <= coalesce(:now, statement_timestamp()) - ended.span
            ORDER BY finished_at
            LIMIT :limit
        ) AS oldest
        UNION ALL
        (
            SELECT ctid AS place, id
            FROM {schema}.jobs
            WHERE status = 'disabled'
              AND namespace = :namespace
              AND disabled_at <= coalesce(:now, statement_timestamp()) - :disabled
              AND run_id IS NULL
            ORDER BY disabled_at
            LIMIT :limit
        )
    ) AS candidate
    LIMIT :limit
),
-- A job that is being retried or enabled is skipped.
unlocked AS MATERIALIZED (
    SELECT ctid AS place, id
    FROM {schema}.jobs
    WHERE ctid = ANY (ARRAY (SELECT place FROM old))
      AND (finished_at IS NOT NULL OR status = 'disabled')
    FOR UPDATE SKIP LOCKED
),
history AS (
    DELETE FROM {schema}.failures
    WHERE job_id = ANY (ARRAY (SELECT id FROM unlocked))
),
results AS (
    DELETE FROM {schema}.steps
    WHERE job_id = ANY (ARRAY (SELECT id FROM unlocked))
),
removed AS (
    DELETE FROM {schema}.jobs
    WHERE ctid = ANY (ARRAY (SELECT place FROM unlocked))
    RETURNING id, status, finished_at
),
recorded AS (
    INSERT INTO {schema}.pruned_ends AS known (namespace, type, until)
    SELECT :namespace, 'job.' || status, max(finished_at)
    FROM removed
    WHERE finished_at IS NOT NULL  -- not disabled
    GROUP BY status
    ORDER BY status
    ON CONFLICT (namespace, type) DO UPDATE
    SET until = greatest(known.until, excluded.until)
)
SELECT id
FROM removed;

-- name: prune_limits
-- A key locked by a claim is in use, and skipped. A concurrent claim waits for this statement,
-- finds its key gone and creates it again.
WITH idle AS MATERIALIZED (
    SELECT key
    FROM {schema}.limits
    WHERE namespace = $2
      AND greatest(closed_until, counts_until)
          <= coalesce($1::timestamptz, statement_timestamp()) - $3::interval IS NOT FALSE
    LIMIT $4
    FOR UPDATE SKIP LOCKED
),
starts AS (
    DELETE FROM {schema}.limit_starts
    WHERE namespace = $2
      AND key = ANY (ARRAY (SELECT key FROM idle))
)
DELETE FROM {schema}.limits
WHERE namespace = $2
  AND key = ANY (ARRAY (SELECT key FROM idle))
RETURNING key;

-- name: register_worker
INSERT INTO {schema}.workers AS known (
    id, namespace, info, lease, started_at, seen_at, counts, counts_before, incarnation
)
VALUES (:id, :namespace, :info, :lease, coalesce(:now, statement_timestamp()),
        coalesce(:now, statement_timestamp()), :counts, :counts, :incarnation)
ON CONFLICT (id) DO UPDATE
SET namespace     = excluded.namespace,
    info          = excluded.info,
    lease         = excluded.lease,
    incarnation   = excluded.incarnation,
    counts        = excluded.counts,
    counts_before = CASE WHEN :starts THEN excluded.counts ELSE known.counts_before END,
    started_at    = CASE WHEN :starts THEN excluded.started_at ELSE known.started_at END,
    -- Never earlier: a heartbeat in the future marks a clock that was set back, until bound_times
    -- runs.
    seen_at     = greatest(known.seen_at, excluded.seen_at)
WHERE :starts
   OR known.incarnation IS NOT DISTINCT FROM excluded.incarnation
RETURNING true;

-- name: counts_of_worker
SELECT namespace, counts, counts_before
FROM {schema}.workers
WHERE id = $1
FOR UPDATE;

-- name: remove_worker
DELETE FROM {schema}.workers
WHERE id = $1
  AND incarnation IS NOT DISTINCT FROM $2::bigint
RETURNING namespace, counts, counts_before;

-- name: prune_workers
DELETE FROM {schema}.workers
WHERE namespace = $2
  AND seen_at <= coalesce($1::timestamptz, statement_timestamp())
                 - greatest($3::interval, 2 * lease)
RETURNING namespace, counts, counts_before;

-- name: keep_counts
-- In sorted order, so that no two transactions deadlock.
INSERT INTO {schema}.past_counts AS past (namespace, task, queue, name, value)
SELECT namespace, task, queue, name, sum(value)
FROM :counted(namespace, task, queue, name, value)
GROUP BY namespace, task, queue, name
ORDER BY namespace, task, queue, name
ON CONFLICT (namespace, task, queue, name) DO UPDATE
SET value = past.value + excluded.value;

-- name: prune_definitions
-- $5 are the flows of schedules. Definitions in use are checked again later. Where the child flows
-- are unknown, any mention of a version counts. Returns the number of definitions checked.
WITH old AS MATERIALIZED (
    SELECT flow, version, was_left
    FROM {schema}.definitions
    WHERE namespace = $2
      AND used_at <= coalesce($1::timestamptz, statement_timestamp()) - $3::interval
    ORDER BY used_at
    LIMIT $4
    FOR UPDATE SKIP LOCKED
),
children AS MATERIALIZED (
    SELECT DISTINCT unnest(children) AS text
    FROM {schema}.definitions
    WHERE namespace = $2
      AND EXISTS (SELECT FROM old)
),
judged AS MATERIALIZED (
    SELECT flow, version,
           EXISTS (
               SELECT
               FROM {schema}.runs
               WHERE finished_at IS NULL
                 AND runs.namespace = $2
                 AND runs.flow = old.flow
                 AND (runs.version = old.version OR old.was_left)
           )
           OR EXISTS (
               SELECT
               FROM {schema}.runs
               WHERE finished_at IS NOT NULL
                 AND runs.namespace = $2
                 AND runs.flow = old.flow
                 AND (runs.version = old.version OR old.was_left)
           )
           OR flow || '@' || version = ANY ($5::text[])
           OR flow || '@' || version IN (SELECT text FROM children)
           OR EXISTS (
               SELECT
               FROM {schema}.definitions AS parent
               WHERE parent.namespace = $2
                 AND parent.children IS NULL
                 AND parent.version <> old.version
                 AND position(convert_to(old.version, 'UTF8') IN parent.data) > 0
           ) AS is_used
    FROM old
),
kept AS (
    UPDATE {schema}.definitions
    SET used_at = coalesce($1::timestamptz, statement_timestamp())
    FROM judged
    WHERE definitions.flow = judged.flow
      AND definitions.version = judged.version
      AND definitions.namespace = $2
      AND is_used
),
removed AS (
    DELETE FROM {schema}.definitions
    USING judged
    WHERE definitions.flow = judged.flow
      AND definitions.version = judged.version
      AND definitions.namespace = $2
      AND NOT is_used
)
SELECT count(*)
FROM old;

-- name: due_schedules
SELECT namespace, name, revision, definition, state, due_at
FROM {schema}.schedules
WHERE due_at IS NOT NULL
  AND namespace = $2
  AND due_at <= coalesce($1::timestamptz, statement_timestamp())
ORDER BY due_at
LIMIT $3;

-- name: due_waits
SELECT {wait_columns}
FROM {schema}.waits
WHERE NOT suspended
  AND due_at IS NOT NULL
  AND namespace = $2
  AND due_at <= coalesce($1::timestamptz, statement_timestamp())
ORDER BY due_at
LIMIT $3;

-- name: pick_old_runs
-- Children are pruned with their parent, and a parent is kept while one of them is live.
SELECT old.namespace, old.id
FROM :kept(status, span)
CROSS JOIN LATERAL (
    SELECT namespace, id
    FROM {schema}.runs
    WHERE finished_at IS NOT NULL
      AND parent_run IS NULL
      AND status = kept.status
      AND namespace = :namespace
      AND finished_at <= coalesce(:now, statement_timestamp()) - kept.span
      AND NOT EXISTS (
          WITH RECURSIVE family AS (
              SELECT child.namespace, child.id, child.finished_at
              FROM {schema}.runs AS child
              WHERE child.parent_run = runs.id
                AND child.namespace = runs.namespace
              UNION
              SELECT child.namespace, child.id, child.finished_at
              FROM family
              JOIN {schema}.runs AS child
                  ON child.parent_run = family.id
                 AND child.namespace = family.namespace
          )
          SELECT
          FROM family
          WHERE finished_at IS NULL
      )
    ORDER BY finished_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS old
LIMIT :limit;
