WITH locked AS MATERIALIZED (


    SELECT array_agg(verdict.name) AS verdicts,
           array_agg(CASE WHEN verdict.name = 'write' THEN run.serial END) AS serials,
           array_agg(run.status IS DISTINCT FROM commits.status) AS status_changed
    FROM unnest(CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS bigint[]), CAST($5 AS bigint[]), CAST($6 AS text[]), CAST($7 AS timestamptz[])) AS commits (namespace, run_id, expected, token, status, created_at)
    LEFT JOIN LATERAL (
        SELECT serial, number, token, status, created_at
        FROM "perdure".runs
        WHERE runs.id = commits.run_id
          AND runs.namespace = commits.namespace
        FOR UPDATE
    ) AS run ON true
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN run.token = commits.token THEN 'written_before'
            WHEN run.created_at <> commits.created_at THEN 'conflict'
            WHEN run.number = commits.expected THEN 'write'
            WHEN EXISTS (
                SELECT
                FROM "perdure".events
                WHERE events.run_serial = run.serial
                  AND events.number = commits.expected + 1
                  AND events.token = commits.token
            ) THEN 'written_before'
            ELSE 'conflict'
        END
        OFFSET 0
    ) AS verdict (name)
),
held AS MATERIALIZED (

    SELECT coalesce(array_agg(job.has_history), '{}') AS has_history,
           coalesce(array_agg(job.is_limited), '{}') AS is_limited,
           coalesce(
               array_agg(claims.commit) FILTER (
                   WHERE job.is_limited IS NULL
                     AND (SELECT serials FROM locked)[claims.commit] IS NOT NULL),
               '{}'
           ) AS stale
    FROM unnest(CAST($10 AS integer[]), CAST($11 AS text[]), CAST($12 AS integer[])) AS claims (commit, id, epoch)
    LEFT JOIN LATERAL (
        SELECT failures + snoozes + crashes > 0 AS has_history,
               limit_keys IS NOT NULL AS is_limited
        FROM "perdure".jobs
        WHERE jobs.id = claims.id
          AND jobs.epoch = claims.epoch
          AND jobs.lease_until IS NOT NULL

          AND (SELECT serials FROM locked)[claims.commit] IS NOT NULL
        FOR UPDATE
    ) AS job ON true
),
good AS MATERIALIZED (

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
    INSERT INTO "perdure".events (run_serial, number, at, token, data, value)
    SELECT (SELECT serials FROM good)[events.commit], events.number,
           coalesce(CAST($1 AS timestamptz), statement_timestamp()), (CAST($5 AS bigint[]))[events.commit],
           events.data, events.value
    FROM unnest(CAST($17 AS integer[]), CAST($18 AS bigint[]), CAST($19 AS bytea[]), CAST($20 AS bytea[])) AS events (commit, number, data, value)
    WHERE (SELECT serials FROM good)[events.commit] IS NOT NULL
),
stepped AS (
    UPDATE "perdure".runs
    SET number      = commits.number,
        token       = commits.token,
        status      = commits.status,
        updated_at  = coalesce(CAST($1 AS timestamptz), statement_timestamp()),
        finished_at = CASE
            WHEN commits.status NOT IN ('completed', 'failed', 'cancelled', 'skipped')
            THEN NULL

            WHEN commits.number > runs.number
            THEN coalesce(CAST($1 AS timestamptz), statement_timestamp())
            ELSE coalesce(runs.finished_at, CAST($1 AS timestamptz), statement_timestamp())
        END,
        summary     = coalesce(commits.summary, runs.summary)
    FROM unnest(CAST($5 AS bigint[]), CAST($6 AS text[]), CAST($8 AS bigint[]), CAST($9 AS bytea[])) WITH ORDINALITY AS commits (token, status, number, summary, commit)
    WHERE runs.serial = (SELECT serials FROM good)[commits.commit]
    RETURNING runs.namespace, runs.id, runs.finished_at, runs.parent_run, runs.parent_key
),

woken AS (
    UPDATE "perdure".waits
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
    DELETE FROM "perdure".jobs
    USING unnest(CAST($10 AS integer[]), CAST($11 AS text[]), CAST($13 AS boolean[])) AS claims (commit, id, ends)
    WHERE jobs.id = claims.id
      AND claims.ends
      AND (SELECT serials FROM good)[claims.commit] IS NOT NULL
),

forgotten AS (
    DELETE FROM "perdure".failures
    USING unnest(CAST($10 AS integer[]), CAST($11 AS text[]), CAST($13 AS boolean[]), CAST($14 AS integer[])) WITH ORDINALITY AS claims (commit, id, ends, next_spec, position)
    WHERE failures.job_id = claims.id
      AND (claims.ends OR claims.next_spec IS NOT NULL)
      AND (SELECT has_history FROM held)[claims.position]
      AND (SELECT serials FROM good)[claims.commit] IS NOT NULL
),
job_specs AS MATERIALIZED (

    SELECT number, namespace, queue, task, partition_key, job_group, policy, input_hash, priority,
           max_attempts, now, ready_at,
           CASE WHEN ready_at <= now THEN 'waiting' ELSE 'scheduled' END AS status,
           coalesce(deadline_at, now + deadline) AS deadline_at,
           date_part('epoch', ready_at) + priority * aging AS rank
    FROM (
        SELECT specs.*, moment.now, coalesce(specs.run_at, moment.now + specs.delay) AS ready_at
        FROM unnest(CAST($27 AS text[]), CAST($28 AS text[]), CAST($29 AS text[]), CAST($30 AS text[]), CAST($31 AS text[]), CAST($32 AS bytea[]), CAST($33 AS bigint[]), CAST($34 AS integer[]), CAST($35 AS double precision[]), CAST($36 AS integer[]), CAST($37 AS interval[]), CAST($38 AS timestamptz[]), CAST($39 AS interval[]), CAST($40 AS timestamptz[])) WITH ORDINALITY AS specs (namespace, queue, task, partition_key, job_group, policy, input_hash, priority, aging, max_attempts, delay, run_at, deadline, deadline_at, number)
        CROSS JOIN (SELECT coalesce(CAST($1 AS timestamptz), statement_timestamp())) AS moment (now)
    ) AS specs
),

continued AS (
    UPDATE "perdure".jobs
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
    FROM unnest(CAST($10 AS integer[]), CAST($11 AS text[]), CAST($14 AS integer[]), CAST($15 AS bytea[]), CAST($16 AS text[])) AS claims (commit, id, next_spec, input, node_key)
    JOIN job_specs ON job_specs.number = claims.next_spec
    WHERE jobs.id = claims.id
      AND (SELECT serials FROM good)[claims.commit] IS NOT NULL
),
retried AS (
    UPDATE "perdure".jobs
    SET status = CASE
            WHEN retries.ready_at <= coalesce(CAST($1 AS timestamptz), statement_timestamp()) THEN 'waiting'
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
               coalesce(until, coalesce(CAST($1 AS timestamptz), statement_timestamp()) + delay) AS ready_at
        FROM unnest(CAST($41 AS integer[]), CAST($42 AS text[]), CAST($43 AS text[]), CAST($44 AS interval[]), CAST($45 AS timestamptz[]), CAST($46 AS interval[]), CAST($47 AS boolean[]), CAST($48 AS text[])) AS retries (commit, id, failure, delay, until, hold_off, is_snoozed, closes_limit)
        WHERE (SELECT serials FROM good)[retries.commit] IS NOT NULL
    ) AS retries
    WHERE jobs.id = retries.id
    RETURNING jobs.id, jobs.namespace, jobs.attempt, jobs.avoid_worker AS holder, jobs.partition_key,
              jobs.rank, jobs.status, jobs.ready_at, retries.failure, retries.closes_limit
),
history AS (
    INSERT INTO "perdure".failures (job_id, attempt, worker, failed_at, failure)
    SELECT id, attempt, holder, coalesce(CAST($1 AS timestamptz), statement_timestamp()), failure::json
    FROM retried
),

closed AS (
    INSERT INTO "perdure".limits AS known (namespace, key, closed_until, closed_at)
    SELECT namespace, closes_limit, max(ready_at), coalesce(CAST($1 AS timestamptz), statement_timestamp())
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
    INSERT INTO "perdure".jobs (
        id, namespace, queue, task, partition_key, job_group, policy, input, input_hash, priority,
        max_attempts, run_id, node_key, created_at, ready_at, deadline_at, rank, status
    )
    SELECT jobs.id, namespace, queue, task, partition_key, job_group, policy, jobs.input, input_hash,
           priority, max_attempts, jobs.run_id, jobs.node_key, now, ready_at, deadline_at, rank,
           status
    FROM unnest(CAST($21 AS integer[]), CAST($22 AS text[]), CAST($23 AS text[]), CAST($24 AS integer[]), CAST($25 AS bytea[]), CAST($26 AS text[])) AS jobs (commit, id, run_id, spec, input, node_key)
    JOIN job_specs ON job_specs.number = jobs.spec
    WHERE (SELECT serials FROM good)[jobs.commit] IS NOT NULL
    RETURNING partition_key, rank, status
)
SELECT coalesce(CAST($1 AS timestamptz), statement_timestamp()) AS now,
       locked.verdicts,
       locked.status_changed,
       held.is_limited,
       EXISTS (SELECT FROM woken) AS is_due,

       ARRAY (SELECT CASE status WHEN 'waiting' THEN partition_key ELSE '' END FROM retried) AS partitions,


       least(
           (
               SELECT min(front.rank)
               FROM unnest(CAST($49 AS text[])) AS place (namespace)
               CROSS JOIN unnest(CAST($50 AS text[])) AS wanted (partition_key)
               CROSS JOIN LATERAL (
                   SELECT rank
                   FROM "perdure".jobs
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
                 AND partition_key = ANY (CAST($50 AS text[]))
           )
       ) AS most_urgent_rank
FROM locked
CROSS JOIN held;
