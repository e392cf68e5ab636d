-- Submitting and removing runs. ``:now``, or $1 where parameters are numbered, is the current time
-- (null: the database's clock). Named parameters are in params.py.

-- name: lock_jobs
-- All jobs of some runs ($1 namespaces, $2 ids), the jobs of some keys of runs ($3 namespaces,
-- $4 ids, $5 keys), and the settled jobs ($6), in one order: lease renewals lock all of these by
-- id, too.
SELECT id
FROM {schema}.jobs
WHERE id = ANY (
    ARRAY (
        SELECT jobs.id
        FROM unnest($1::text[], $2::text[]) AS given (namespace, id)
        JOIN {schema}.jobs
            ON jobs.run_id = given.id
           AND jobs.namespace = given.namespace
    ) || ARRAY (
        SELECT jobs.id
        FROM unnest($3::text[], $4::text[], $5::text[]) AS given (namespace, id, key)
        JOIN {schema}.jobs
            ON jobs.run_id = given.id
           AND jobs.namespace = given.namespace
           AND jobs.node_key = given.key
    ) || $6::text[]
)
ORDER BY id
FOR UPDATE;

-- name: open_waits
-- Replaces an open wait of the same key; its opening time stays.
INSERT INTO {schema}.waits (
    namespace, run_id, key, type, name, opened_at, due_at, deciders, detail, remaining
)
SELECT namespace, run_id, key, type, name, moment.now, coalesce(due_at, moment.now + delay),
       deciders::text[], detail, remaining
FROM :opened(namespace, run_id, key, type, name, delay, due_at, deciders, detail, remaining)
CROSS JOIN (SELECT coalesce(:now, statement_timestamp())) AS moment (now)
ON CONFLICT (run_id, namespace, key) DO UPDATE
SET type     = excluded.type,
    name     = excluded.name,
    due_at   = excluded.due_at,
    deciders = excluded.deciders,
    detail   = excluded.detail,
    remaining = excluded.remaining,
    suspended = false;

-- name: get_run
SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
       updated_at, finished_at, summary, priority, start_at, started_at, settings
FROM {schema}.runs
WHERE id = $2
  AND ($1::text IS NULL OR namespace = $1)
ORDER BY namespace
LIMIT 1;

-- name: lock_flow
-- Serializes submissions of a flow with a cooldown.
SELECT pg_advisory_xact_lock(hashtextextended(
    'perdure cooldown {schema} ' || $1::text || ' ' || $2::text, 0
));

-- name: last_runs
-- The latest run to start and the latest to complete, with a flag for the latter. Runs more than
-- $4 in the future predate a clock change and do not count.
SELECT started.id, started.created_at, false, moment.now
FROM (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
CROSS JOIN LATERAL (
    SELECT id, created_at
    FROM {schema}.runs
    WHERE has_cooldown
      AND status <> 'skipped'
      AND namespace = $2
      AND flow = $3
      AND created_at <= moment.now + $4::interval
    ORDER BY created_at DESC, id DESC
    LIMIT 1
) AS started
UNION ALL
SELECT completed.id, completed.finished_at, true, moment.now
FROM (SELECT coalesce($1::timestamptz, statement_timestamp())) AS moment (now)
CROSS JOIN LATERAL (
    SELECT id, finished_at
    FROM {schema}.runs
    WHERE has_cooldown
      AND status = 'completed'
      AND namespace = $2
      AND flow = $3
      AND finished_at <= moment.now + $4::interval
    ORDER BY finished_at DESC, id DESC
    LIMIT 1
) AS completed;

-- name: submit_run
-- One run with its events and jobs. Returns no row, and writes nothing, if its id is taken or its
-- definition was not used recently; waits for a concurrent insert of the id.
WITH added AS (
    INSERT INTO {schema}.runs (
        namespace, id, flow, version, status, submission, parent_run, parent_key, summary, number,
        has_cooldown, created_at, updated_at, finished_at, priority, start_at, started_at,
        place_key, place_limit, rank, settings
    )
    SELECT :namespace, :id, :flow, :version, :status, :submission, :parent_run, :parent_key,
           :summary, coalesce(cardinality(:events.data), 0), :has_cooldown,
           -- Later than the run that it replaces, or earlier if the clock was set back: never equal.
           CASE
               WHEN :former BETWEEN now AND now + :step THEN :former + interval '1 microsecond'
               ELSE now
           END,
           now,
           CASE WHEN :status IN ('completed', 'failed', 'cancelled', 'skipped') THEN now END,
           :priority, coalesce(:start_at, now + :start_delay),
           CASE WHEN :status NOT IN ('queued', 'skipped') THEN now END,
           :place_key, :place_limit,
           -- Only for a run that waits for nothing but a place.
           CASE
               WHEN :status = 'queued' AND :start_at IS NULL AND :start_delay IS NULL
                AND :place_key IS NOT NULL
               THEN date_part('epoch', now) + :priority * :aging
           END,
           :settings
    FROM (SELECT coalesce(:now, statement_timestamp())) AS moment (now)
    WHERE :fresh IS NULL
       OR EXISTS (
           SELECT
           FROM {schema}.definitions
           WHERE definitions.flow = :flow
             AND definitions.version = :version
             AND definitions.namespace = :namespace
             AND used_at > moment.now - :fresh
       )
    ON CONFLICT (id, namespace) DO NOTHING
    RETURNING serial, id, namespace, flow, version, status, number, parent_run, parent_key,
              created_at, updated_at, finished_at, summary, priority, start_at, started_at, settings
),
logged AS (
    INSERT INTO {schema}.events (run_serial, number, at, data, value)
    SELECT added.serial, events.number, added.updated_at, events.data, events.value
    FROM added
    CROSS JOIN :events(data, value, #number)
),
queued AS (
    INSERT INTO {schema}.jobs (
        id, namespace, queue, task, partition_key, job_group, policy, input, input_hash, priority,
        max_attempts, run_id, node_key, created_at, ready_at, deadline_at, rank, status
    )
    SELECT id, namespace, queue, task, partition_key, job_group, policy, input, input_hash, priority,
           max_attempts, run_id, node_key, now, ready_at,
           coalesce(deadline_at, now + deadline),
           date_part('epoch', ready_at) + priority * aging,
           CASE WHEN ready_at <= now THEN 'waiting' ELSE 'scheduled' END
    FROM (
        SELECT jobs.*, added.updated_at AS now,
               coalesce(jobs.run_at, added.updated_at + jobs.delay) AS ready_at
        FROM added
        CROSS JOIN :jobs(id, namespace, queue, task, partition_key, job_group, policy, input, input_hash,
                         priority, aging, max_attempts, delay, run_at, deadline, deadline_at,
                         run_id, node_key)
    ) AS given
)
SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
       updated_at, finished_at, summary, priority, start_at, started_at, settings
FROM added;

-- name: is_definition_fresh
SELECT
FROM {schema}.definitions
WHERE flow = $3
  AND version = $4
  AND namespace = $2
  AND used_at > coalesce($1::timestamptz, statement_timestamp()) - $5::interval;

-- name: get_submitted
-- The run of this id, if this submission added it.
SELECT id, namespace, flow, version, status, number, parent_run, parent_key, created_at,
       updated_at, finished_at, summary, priority, start_at, started_at, settings
FROM {schema}.runs
WHERE id = $2
  AND namespace = $1
  AND submission = $3;

-- name: wake_parents
-- For children that end as soon as they start.
UPDATE {schema}.waits
SET due_at = least(waits.due_at, coalesce(:now, statement_timestamp()))
FROM :ended(namespace, run_id, key, child)
WHERE waits.run_id = ended.run_id
  AND waits.namespace = ended.namespace
  AND waits.key = ended.key
  AND waits.type = 'child'
  AND waits.name = ended.child
RETURNING waits.key;

-- name: add_runs
-- Children; one whose id is taken is left out. Sorted by the caller, like all runs. A parent may be
-- dated after now, because it replaced a run.
INSERT INTO {schema}.runs (
    namespace, id, flow, version, status, number, parent_run, parent_key, summary, created_at,
    updated_at, finished_at, priority, start_at, started_at, settings
)
SELECT children.namespace, children.id, children.flow, children.version, children.status,
       children.number, children.parent_run, children.parent_key, children.summary,
       CASE
           WHEN parent.created_at BETWEEN moment.now AND moment.now + :step THEN parent.created_at
           ELSE moment.now
       END,
       moment.now,
       CASE
           WHEN children.status IN ('completed', 'failed', 'cancelled', 'skipped') THEN moment.now
       END,
       children.priority, coalesce(children.start_at, moment.now + children.start_delay),
       CASE WHEN children.status NOT IN ('queued', 'skipped') THEN moment.now END,
       children.settings
FROM :children(namespace, id, flow, version, status, number, parent_run, parent_key, summary,
               priority, start_at, start_delay, settings)
CROSS JOIN (SELECT coalesce(:now, statement_timestamp())) AS moment (now)
LEFT JOIN {schema}.runs AS parent
    ON parent.id = children.parent_run
   AND parent.namespace = children.namespace
ON CONFLICT (id, namespace) DO NOTHING
RETURNING namespace, id, serial;

-- name: add_events
INSERT INTO {schema}.events (run_serial, number, at, data, value)
SELECT serial, number, coalesce(:now, statement_timestamp()), data, value
FROM :events(serial, number, data, value);

-- name: lock_families
-- Runs with all their descendants.
WITH RECURSIVE family AS (
    SELECT runs.serial, runs.namespace, runs.id
    FROM unnest($1::text[], $2::text[]) AS given (namespace, id)
    JOIN {schema}.runs
        ON runs.id = given.id
       AND runs.namespace = given.namespace
    UNION
    SELECT child.serial, child.namespace, child.id
    FROM family
    JOIN {schema}.runs AS child
        ON child.parent_run = family.id
       AND child.namespace = family.namespace
)
SELECT serial, namespace, id, place_key, created_at
FROM {schema}.runs
WHERE serial = ANY (ARRAY (SELECT serial FROM family))
ORDER BY namespace, id
FOR UPDATE;

-- name: record_pruned_runs
-- A run that is pruned with its parent may have ended later.
INSERT INTO {schema}.pruned_ends AS known (namespace, type, until)
SELECT namespace, 'run.' || status, max(finished_at)
FROM {schema}.runs
WHERE serial = ANY ($1::bigint[])
GROUP BY namespace, status
ORDER BY namespace, status
ON CONFLICT (namespace, type) DO UPDATE
SET until = greatest(known.until, excluded.until);

-- name: remove_runs
-- With all their rows ($1 serials, $2 namespaces, $3 ids); returns the removed jobs.
WITH gone AS (
    DELETE FROM {schema}.runs
    WHERE serial = ANY ($1::bigint[])
),
log AS (
    DELETE FROM {schema}.events
    WHERE run_serial = ANY ($1::bigint[])
),
last_snapshots AS (
    DELETE FROM {schema}.snapshots
    WHERE run_serial = ANY ($1::bigint[])
),
results AS (
    DELETE FROM {schema}.steps
    WHERE run_serial = ANY ($1::bigint[])
),
open_waits AS (
    DELETE FROM {schema}.waits
    USING unnest($2::text[], $3::text[]) AS given (namespace, id)
    WHERE waits.run_id = given.id
      AND waits.namespace = given.namespace
),
live_jobs AS (
    DELETE FROM {schema}.jobs
    USING unnest($2::text[], $3::text[]) AS given (namespace, id)
    WHERE jobs.run_id = given.id
      AND jobs.namespace = given.namespace
    RETURNING jobs.id, jobs.lease_until IS NOT NULL AS was_held,
              jobs.lease_until IS NOT NULL AND jobs.limit_keys IS NOT NULL AS was_limited
),
history AS (
    DELETE FROM {schema}.failures
    WHERE job_id = ANY (ARRAY (SELECT id FROM live_jobs))
)
SELECT id, was_held, was_limited
FROM live_jobs;
