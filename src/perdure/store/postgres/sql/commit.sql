-- One step of each of many runs. Parameters are declared in params.py. Rows refer to their commit,
-- and jobs to their spec, by position: an array lookup costs the same for one commit and for a
-- thousand, where a join would compare every pair.
--
-- All decisions use locked rows, hence their newest versions, however long the locks took. The
-- writes find those rows again by key: PostgreSQL follows a row of this statement's snapshot to the
-- version that was locked.

-- name: commit_runs
WITH locked AS MATERIALIZED (
    -- In the order of the caller, which sorts them, so that no two batches deadlock. Serials are
    -- null for commits that must not be written.
    SELECT array_agg(verdict.name) AS verdicts,
           array_agg(CASE WHEN verdict.name = 'write' THEN run.serial END) AS serials,
           array_agg(run.status IS DISTINCT FROM commits.status) AS status_changed
    FROM :commits(namespace, run_id, expected, token, status, created_at)
    LEFT JOIN LATERAL (
        SELECT serial, number, token, status, created_at
        FROM {schema}.runs
        WHERE runs.id = commits.run_id
          AND runs.namespace = commits.namespace
        FOR UPDATE
    ) AS run ON true
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN run.token = commits.token THEN 'written_before'  -- an earlier attempt's response was lost
            WHEN run.created_at <> commits.created_at THEN 'conflict'  -- it was replaced
            WHEN run.number = commits.expected THEN 'write'
            WHEN EXISTS (
                SELECT
                FROM {schema}.events
                WHERE events.run_serial = run.serial
                  AND events.number = commits.expected + 1
                  AND events.token = commits.token
            ) THEN 'written_before'
            ELSE 'conflict'
        END
        OFFSET 0  -- otherwise evaluated for each use
    ) AS verdict (name)
),
held AS MATERIALIZED (
    -- For each claim, null if it is not current; and the commits of those that are not.
    SELECT coalesce(array_agg(job.has_history), '{}') AS has_history,
           coalesce(array_agg(job.is_limited), '{}') AS is_limited,
           coalesce(
               array_agg(claims.commit) FILTER (
                   WHERE job.is_limited IS NULL
                     AND (SELECT serials FROM locked)[claims.commit] IS NOT NULL),
               '{}'
           ) AS stale
    FROM :claims(commit, id, epoch)
    LEFT JOIN LATERAL (
        SELECT failures + snoozes + crashes > 0 AS has_history,
               limit_keys IS NOT NULL AS is_limited
        FROM {schema}.jobs
        WHERE jobs.id = claims.id
          AND jobs.epoch = claims.epoch
          AND jobs.lease_until IS NOT NULL
          -- Every transaction locks runs first.
          AND (SELECT serials FROM locked)[claims.commit] IS NOT NULL
        FOR UPDATE
    ) AS job ON true
),
good AS MATERIALIZED (
    -- The serials of runs whose commits are written; null for the others.
    SELECT CASE
               WHEN held.stale = '{}' THEN locked.serials
               ELSE ARRAY (
                   SELECT CASE WHEN number <> ALL (held.stale) THEN serial END
                   FROM unnest(locked.serials) WITH ORDINALITY AS each (serial, number)
               )
           END AS serials
    FROM locked
    CROSS JOIN held
),
logged AS (
    INSERT INTO {schema}.events (run_serial, number, at, token, data, value)
    SELECT (SELECT serials FROM good)[events.commit], events.number,
           coalesce(:now, statement_timestamp()), (:commits.token)[events.commit],
           events.data, events.value
    FROM :events(commit, number, data, value)
    WHERE (SELECT serials FROM good)[events.commit] IS NOT NULL
),
stepped AS (
    UPDATE {schema}.runs
    SET number      = commits.number,
        token       = commits.token,
        status      = commits.status,
        updated_at  = coalesce(:now, statement_timestamp()),
        finished_at = CASE
            WHEN commits.status NOT IN ('completed', 'failed', 'cancelled', 'skipped')
            THEN NULL
            -- One commit may both retry and end a run; one without events keeps the end time.
            WHEN commits.number > runs.number
            THEN coalesce(:now, statement_timestamp())
            ELSE coalesce(runs.finished_at, :now, statement_timestamp())
        END,
        summary     = coalesce(commits.summary, runs.summary)
    FROM :commits(token, status, number, summary, #commit)
    WHERE runs.serial = (SELECT serials FROM good)[commits.commit]
    RETURNING runs.namespace, runs.id, runs.finished_at, runs.parent_run, runs.parent_key
),
-- The end of a child makes its parent's wait due. Sorted, as wherever waits are locked.
woken AS (
    UPDATE {schema}.waits
    SET due_at = least(waits.due_at, ended.finished_at)
    FROM (
        SELECT namespace, id, finished_at, parent_run, parent_key
        FROM stepped
        WHERE parent_run IS NOT NULL
          AND finished_at IS NOT NULL
        ORDER BY parent_run, namespace, parent_key
    ) AS ended
    WHERE waits.run_id = ended.parent_run
      AND waits.namespace = ended.namespace
      AND waits.key = ended.parent_key
      AND waits.type = 'child'
      AND waits.name = ended.id
    RETURNING waits.key
),
ended AS (
    DELETE FROM {schema}.jobs
    USING :claims(commit, id, ends)
    WHERE jobs.id = claims.id
      AND claims.ends
      AND (SELECT serials FROM good)[claims.commit] IS NOT NULL
),
-- The failures of an ended job, or of the node that its run has completed.
forgotten AS (
    DELETE FROM {schema}.failures
    USING :claims(commit, id, ends, next_spec, #position)
    WHERE failures.job_id = claims.id
      AND (claims.ends OR claims.next_spec IS NOT NULL)
      AND (SELECT has_history FROM held)[claims.position]
      AND (SELECT serials FROM good)[claims.commit] IS NOT NULL
),
job_specs AS MATERIALIZED (
    -- Attributes shared by jobs of one task: few, whatever the size of the batch.
    SELECT number, namespace, queue, task, partition_key, job_group, policy, input_hash, priority,
           max_attempts, now, ready_at,
           CASE WHEN ready_at <= now THEN 'waiting' ELSE 'scheduled' END AS status,
           coalesce(deadline_at, now + deadline) AS deadline_at,
           date_part('epoch', ready_at) + priority * aging AS rank
    FROM (
        SELECT specs.*, moment.now, coalesce(specs.run_at, moment.now + specs.delay) AS ready_at
        FROM :specs(namespace, queue, task, partition_key, job_group, policy, input_hash, priority, aging,
                    max_attempts, delay, run_at, deadline, deadline_at, #number)
        CROSS JOIN (SELECT coalesce(:now, statement_timestamp())) AS moment (now)
    ) AS specs
),
-- As new, except for its id, claim and lease.
continued AS (
    UPDATE {schema}.jobs
    SET queue            = job_specs.queue,
        task             = job_specs.task,
        partition_key    = job_specs.partition_key,
        job_group        = job_specs.job_group,
        policy           = job_specs.policy,
        input            = claims.input,
        input_hash       = job_specs.input_hash,
        priority         = job_specs.priority,
        max_attempts     = job_specs.max_attempts,
        node_key         = claims.node_key,
        created_at       = job_specs.now,
        ready_at         = job_specs.ready_at,
        started_at       = job_specs.now,
        deadline_at      = job_specs.deadline_at,
        rank             = job_specs.rank,
        attempt          = 1,
        failures         = 0,
        snoozes          = 0,
        crashes          = 0,
        claimed_alone    = false,
        avoid_worker     = NULL,
        avoid_until      = NULL,
        limit_keys       = NULL,
        progress         = 0,
        progress_message = '',
        progress_details = NULL
    FROM :claims(commit, id, next_spec, input, node_key)
    JOIN job_specs ON job_specs.number = claims.next_spec
    WHERE jobs.id = claims.id
      AND (SELECT serials FROM good)[claims.commit] IS NOT NULL
),
retried AS (
    UPDATE {schema}.jobs
    SET status = CASE
            WHEN retries.ready_at <= coalesce(:now, statement_timestamp()) THEN 'waiting'
            ELSE 'scheduled'
        END,
        worker       = NULL,
        lease_until  = NULL,
        failures     = jobs.failures + CASE WHEN retries.is_snoozed THEN 0 ELSE 1 END,
        snoozes      = jobs.snoozes + CASE WHEN retries.is_snoozed THEN 1 ELSE 0 END,
        ready_at     = retries.ready_at,
        rank         = jobs.rank + date_part('epoch', retries.ready_at - jobs.ready_at),
        avoid_worker = jobs.worker,
        avoid_until  = retries.ready_at + retries.hold_off
    FROM (
        SELECT id, failure, hold_off, is_snoozed, closes_limit,
               coalesce(until, coalesce(:now, statement_timestamp()) + delay) AS ready_at
        FROM :retries(commit, id, failure, delay, until, hold_off, is_snoozed, closes_limit)
        WHERE (SELECT serials FROM good)[retries.commit] IS NOT NULL
    ) AS retries
    WHERE jobs.id = retries.id
    RETURNING jobs.id, jobs.namespace, jobs.attempt, jobs.avoid_worker AS holder, jobs.partition_key,
              jobs.rank, jobs.status, jobs.ready_at, retries.failure, retries.closes_limit
),
history AS (
    INSERT INTO {schema}.failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, holder, coalesce(:now, statement_timestamp()), failure::json
    FROM retried
),
-- Sorted, so that two batches lock the rows of several limits in the same order.
closed AS (
    INSERT INTO {schema}.limits AS known (namespace, key, closed_until, closed_at)
    SELECT namespace, closes_limit, max(ready_at), coalesce(:now, statement_timestamp())
    FROM retried
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
),
added AS (
    INSERT INTO {schema}.jobs (
        id, namespace, queue, task, partition_key, job_group, policy, input, input_hash, priority,
        max_attempts, run_id, node_key, created_at, ready_at, deadline_at, rank, status
    )
    SELECT jobs.id, namespace, queue, task, partition_key, job_group, policy, jobs.input, input_hash,
           priority, max_attempts, jobs.run_id, jobs.node_key, now, ready_at, deadline_at, rank,
           status
    FROM :jobs(commit, id, run_id, spec, input, node_key)
    JOIN job_specs ON job_specs.number = jobs.spec
    WHERE (SELECT serials FROM good)[jobs.commit] IS NOT NULL
    RETURNING partition_key, rank, status
)
SELECT coalesce(:now, statement_timestamp()) AS now,
       locked.verdicts,
       locked.status_changed,
       held.is_limited,
       EXISTS (SELECT FROM woken) AS is_due,
       -- The partitions of requeued jobs; empty for one that is ready later.
       ARRAY (SELECT CASE status WHEN 'waiting' THEN partition_key ELSE '' END FROM retried) AS partitions,
       -- The lowest rank in the requested partitions; this statement does not see its own jobs in
       -- the table.
       least(
           (
               SELECT min(front.rank)
               FROM unnest(:namespaces) AS place (namespace)
               CROSS JOIN unnest(:partitions) AS wanted (partition_key)
               CROSS JOIN LATERAL (
                   SELECT rank
                   FROM {schema}.jobs
                   WHERE status = 'waiting'
                     AND namespace = place.namespace
                     AND partition_key = wanted.partition_key
                   ORDER BY rank
                   LIMIT 1
               ) AS front
           ),
           (
               SELECT min(rank)
               FROM (
                   SELECT partition_key, rank, status FROM added
                   UNION ALL
                   SELECT partition_key, rank, status FROM retried
               ) AS own
               WHERE status = 'waiting'
                 AND partition_key = ANY (:partitions)
           )
       ) AS most_urgent_rank
FROM locked
CROSS JOIN held;

-- name: lock_runs
-- From here on: the effects of a commit that does more than continue a run, in the same
-- transaction. $1 is the current time (null: the database's clock), where needed; then come lists
-- of equal length. Runs are locked before jobs, and jobs before waits, each in the order of their
-- keys.
SELECT given.namespace, given.id, runs.number, runs.token
FROM unnest($1::text[], $2::text[]) AS given (namespace, id)
CROSS JOIN LATERAL (
    SELECT number, token
    FROM {schema}.runs
    WHERE runs.id = given.id
      AND runs.namespace = given.namespace
    FOR UPDATE
) AS runs;

-- name: cancel_jobs
-- Jobs of some keys ($1 namespaces, $2 runs, $3 keys), except those of $4.
WITH dropped AS (
    DELETE FROM {schema}.jobs
    USING unnest($1::text[], $2::text[], $3::text[]) AS given (namespace, run_id, key)
    WHERE jobs.run_id = given.run_id
      AND jobs.namespace = given.namespace
      AND jobs.node_key = given.key
      AND jobs.id <> ALL ($4::text[])
    RETURNING jobs.id, jobs.lease_until IS NOT NULL AS was_held,
              jobs.lease_until IS NOT NULL AND jobs.limit_keys IS NOT NULL AS was_limited
),
history AS (
    DELETE FROM {schema}.failures
    WHERE job_id = ANY (ARRAY (SELECT id FROM dropped))
)
SELECT id, was_held, was_limited
FROM dropped;

-- name: cancel_all_jobs
-- All jobs of some runs ($1 namespaces, $2 runs), except those of $3.
WITH cleared AS (
    DELETE FROM {schema}.jobs
    USING unnest($1::text[], $2::text[]) AS given (namespace, run_id)
    WHERE jobs.run_id = given.run_id
      AND jobs.namespace = given.namespace
      AND jobs.id <> ALL ($3::text[])
    RETURNING jobs.id, jobs.lease_until IS NOT NULL AS was_held,
              jobs.lease_until IS NOT NULL AND jobs.limit_keys IS NOT NULL AS was_limited
),
history AS (
    DELETE FROM {schema}.failures
    WHERE job_id = ANY (ARRAY (SELECT id FROM cleared))
)
SELECT id, was_held, was_limited
FROM cleared;

-- name: park_jobs
-- Raising the epoch revokes the claim; the attempt is not counted.
WITH found AS MATERIALIZED (
    SELECT jobs.id, jobs.lease_until IS NOT NULL AS was_held,
           jobs.lease_until IS NOT NULL AND jobs.limit_keys IS NOT NULL AS was_limited
    FROM unnest($1::text[], $2::text[]) AS given (namespace, run_id)
    JOIN {schema}.jobs
        ON jobs.run_id = given.run_id
       AND jobs.namespace = given.namespace
    WHERE jobs.status IN ('waiting', 'scheduled', 'active', 'aborting')
      AND jobs.id <> ALL ($3::text[])
),
held AS (
    UPDATE {schema}.jobs
    SET status      = 'paused',
        epoch       = epoch + CASE WHEN was_held THEN 1 ELSE 0 END,
        attempt     = attempt - CASE WHEN was_held THEN 1 ELSE 0 END,
        worker      = NULL,
        lease_until = NULL,
        limit_keys  = NULL
    FROM found
    WHERE jobs.id = found.id
)
SELECT id, was_held, was_limited
FROM found;

-- name: unpark_jobs
UPDATE {schema}.jobs
SET status = CASE
        WHEN jobs.ready_at <= coalesce($1::timestamptz, statement_timestamp()) THEN 'waiting'
        ELSE 'scheduled'
    END
FROM unnest($2::text[], $3::text[]) AS given (namespace, run_id)
WHERE jobs.run_id = given.run_id
  AND jobs.namespace = given.namespace
  -- The status is hidden from the planner, which might scan all paused jobs.
  AND jobs.status || '' = 'paused'
RETURNING jobs.status, jobs.partition_key;

-- name: close_waits
DELETE FROM {schema}.waits
USING unnest($1::text[], $2::text[], $3::text[]) AS given (namespace, run_id, key)
WHERE waits.run_id = given.run_id
  AND waits.namespace = given.namespace
  AND waits.key = given.key;

-- name: cancel_waits
-- Those of a key, or of a whole run if the key is null. The wait for a child becomes due, because
-- the parent must handle the child; the others end.
WITH found AS MATERIALIZED (
    SELECT wait.run_id, wait.namespace, wait.key, wait.type
    FROM unnest($2::text[], $3::text[], $4::text[]) AS given (namespace, run_id, key)
    CROSS JOIN LATERAL (
        SELECT run_id, namespace, key, type
        FROM {schema}.waits
        WHERE waits.run_id = given.run_id
          AND waits.namespace = given.namespace
          AND (given.key IS NULL OR waits.key = given.key)
        ORDER BY key
        FOR UPDATE
    ) AS wait
),
ended AS (
    DELETE FROM {schema}.waits
    USING found
    WHERE waits.run_id = found.run_id
      AND waits.namespace = found.namespace
      AND waits.key = found.key
      AND found.type <> 'child'
)
UPDATE {schema}.waits
SET due_at  = least(waits.due_at, coalesce($1::timestamptz, statement_timestamp())),
    suspended = false
FROM found
WHERE waits.run_id = found.run_id
  AND waits.namespace = found.namespace
  AND waits.key = found.key
  AND found.type = 'child'
RETURNING waits.key;

-- name: suspend_waits
-- $3: whether to suspend or to resume them.
WITH found AS MATERIALIZED (
    SELECT wait.run_id, wait.namespace, wait.key
    FROM unnest($1::text[], $2::text[]) AS given (namespace, run_id)
    CROSS JOIN LATERAL (
        SELECT run_id, namespace, key
        FROM {schema}.waits
        WHERE waits.run_id = given.run_id
          AND waits.namespace = given.namespace
          AND waits.key <> 'run:timeout'  -- a pause does not stop the clock of the run
        ORDER BY key
        FOR UPDATE
    ) AS wait
)
UPDATE {schema}.waits
SET suspended = $3
FROM found
WHERE waits.run_id = found.run_id
  AND waits.namespace = found.namespace
  AND waits.key = found.key
RETURNING waits.due_at IS NOT NULL;

-- name: start_runs
-- Queued runs start, or ($4) runs are queued again for a place ($5 aging).
UPDATE {schema}.runs
SET started_at = CASE WHEN given.is_started THEN moment.now END,
    rank       = CASE
        WHEN NOT given.is_started
        THEN date_part('epoch', moment.now) + runs.priority * given.aging
    END
FROM unnest($2::text[], $3::text[], $4::boolean[], $5::double precision[])
    AS given (namespace, id, is_started, aging)
CROSS JOIN (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
WHERE runs.id = given.id
  AND runs.namespace = given.namespace;

-- name: remember_workers
-- The last worker of each run, if it is live. $4: the workers of these commits, or null.
WITH known AS (
    UPDATE {schema}.runs
    SET sticky_worker = coalesce(given.worker, runs.sticky_worker)
    FROM unnest($2::text[], $3::text[], $4::text[]) AS given (namespace, id, worker)
    WHERE runs.id = given.id
      AND runs.namespace = given.namespace
    RETURNING runs.namespace, runs.id, runs.sticky_worker
)
SELECT known.namespace, known.id, workers.id
FROM known
JOIN {schema}.workers ON workers.id = known.sticky_worker
WHERE workers.seen_at + workers.lease >= coalesce($1::timestamptz, statement_timestamp());

-- name: stick_jobs
-- $2 are the ends of partition keys, empty with a null worker. A suspect waits for no worker.
UPDATE {schema}.jobs
SET partition_key = CASE
        WHEN jobs.partition_key ~ '\]~[0-9]+\.[0-9]+$' THEN jobs.partition_key
        ELSE rtrim(jobs.partition_key, '~0123456789') || given.suffix
    END,
    sticky_worker = given.worker,
    sticky_until  = CASE WHEN given.worker IS NOT NULL THEN jobs.ready_at + given.sticky END
FROM unnest($1::text[], $2::text[], $3::text[], $4::interval[]) AS given (id, suffix, worker, sticky)
WHERE jobs.id = given.id
RETURNING jobs.status, jobs.partition_key;

-- name: stop_clocks
-- Stops the timeouts of runs, except those already due.
UPDATE {schema}.waits
SET remaining = date_part('epoch', due_at - moment.now) * 1000000,
    due_at    = NULL
FROM unnest($2::text[], $3::text[]) AS given (namespace, run_id)
CROSS JOIN (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
WHERE waits.run_id = given.run_id
  AND waits.namespace = given.namespace
  AND waits.key = 'run:timeout'
  AND waits.due_at > moment.now;

-- name: continue_clocks
UPDATE {schema}.waits
SET due_at    = coalesce($1::timestamptz, statement_timestamp()) + remaining * interval '1 microsecond',
    remaining = NULL
FROM unnest($2::text[], $3::text[]) AS given (namespace, run_id)
WHERE waits.run_id = given.run_id
  AND waits.namespace = given.namespace
  AND waits.key = 'run:timeout'
  AND waits.remaining IS NOT NULL
RETURNING waits.key;

-- name: change_priorities
UPDATE {schema}.runs
SET priority = given.priority,
    rank     = runs.rank + (given.priority - runs.priority) * given.aging
FROM unnest($1::text[], $2::text[], $3::integer[], $4::double precision[])
    AS given (namespace, id, priority, aging)
WHERE runs.id = given.id
  AND runs.namespace = given.namespace;

-- name: rank_jobs
UPDATE {schema}.jobs
SET priority = given.priority,
    rank     = jobs.rank + (given.priority - jobs.priority) * given.aging
FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::double precision[])
    AS given (namespace, run_id, key, priority, aging)
WHERE jobs.run_id = given.run_id
  AND jobs.namespace = given.namespace
  AND jobs.node_key = given.key;

-- name: change_versions
-- The logs still refer to the former versions.
WITH former AS MATERIALIZED (
    SELECT DISTINCT runs.namespace, runs.flow, runs.version
    FROM unnest($1::text[], $2::text[]) AS given (namespace, id)
    JOIN {schema}.runs
        ON runs.id = given.id
       AND runs.namespace = given.namespace
),
left_versions AS (
    UPDATE {schema}.definitions
    SET was_left = true
    FROM former
    WHERE definitions.flow = former.flow
      AND definitions.version = former.version
      AND definitions.namespace = former.namespace
      AND NOT was_left
)
UPDATE {schema}.runs
SET version = given.version
FROM unnest($1::text[], $2::text[], $3::text[]) AS given (namespace, id, version)
WHERE runs.id = given.id
  AND runs.namespace = given.namespace
RETURNING runs.namespace, runs.id, runs.flow;

-- name: partitions_of_runs
SELECT DISTINCT given.number, jobs.partition_key
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (namespace, id, number)
JOIN {schema}.jobs
    ON jobs.run_id = given.id
   AND jobs.namespace = given.namespace;

-- name: change_partitions
UPDATE {schema}.jobs
SET partition_key = given.after
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
    AS given (namespace, run_id, before, after)
WHERE jobs.run_id = given.run_id
  AND jobs.namespace = given.namespace
  AND jobs.partition_key = given.before
RETURNING jobs.status, jobs.partition_key;

-- name: put_snapshots
INSERT INTO {schema}.snapshots (run_serial, number, data)
SELECT runs.serial, given.number, given.data
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[])
    AS given (namespace, id, number, data)
JOIN {schema}.runs
    ON runs.id = given.id
   AND runs.namespace = given.namespace
   AND runs.number >= given.number
ON CONFLICT (run_serial) DO UPDATE
SET number = excluded.number,
    data   = excluded.data;
