-- Jobs and runs of every status, in numbers that make the planner think.
INSERT INTO {schema}.jobs (
    id, namespace, queue, task, partition_key, status, priority, rank, input, input_hash,
    created_at, ready_at, finished_at, output
)
SELECT lpad(number::text, 26, '0'), 'default', 'mail', 'send',
       format('["mail","send-%s",[],[]]', number % 10),
       status, 3, number, '{{}}', number, now(), now(),
       CASE WHEN status <> 'waiting' THEN now() END,
       CASE WHEN status = 'completed' THEN '1'::bytea END
FROM (
    SELECT number,
           CASE
               WHEN number % 60 IN (0, 20, 40)
                   THEN (ARRAY['failed', 'dead', 'cancelled'])[number % 60 / 20 + 1]
               WHEN number % 2 = 0 THEN 'completed'
               ELSE 'waiting'
           END AS status
    FROM generate_series(1, {jobs}) AS number
) AS numbers;

WITH numbers AS (
    SELECT number, number % 2 = 0 AS is_ended, format('run-%s', number) AS id
    FROM generate_series(1, {runs}) AS number
),
jobs_of_runs AS (
    INSERT INTO {schema}.jobs (
        id, namespace, queue, task, partition_key, status, priority, rank, input, input_hash,
        created_at, ready_at, run_id, node_key
    )
    SELECT format('node-%s', number), 'default', 'mail', 'send', '["mail","send",[],[],"f@1"]',
           'waiting', 3, number, '{{}}', 0, now(), now(), id, 'send'
    FROM numbers
    WHERE NOT is_ended
),
log AS (
    INSERT INTO {schema}.events (run_serial, number, at, data)
    SELECT number / 10, number % 10 + 1, now(), '{{}}'
    FROM numbers
),
timers AS (
    INSERT INTO {schema}.waits (namespace, run_id, key, type, name, opened_at, due_at)
    SELECT 'default', id, 'delay', 'timer', '', now(), now()
    FROM numbers
),
asked AS (
    INSERT INTO {schema}.waits (namespace, run_id, key, type, name, opened_at, deciders)
    SELECT 'default', id, type, type, format('name-%s', number % 100), now(),
           CASE WHEN type = 'approval' THEN ARRAY[format('person-%s', number % 100)] ELSE '{{}}' END
    FROM numbers
    CROSS JOIN (VALUES ('signal'), ('external'), ('approval')) AS types (type)
)
INSERT INTO {schema}.runs (
    namespace, id, flow, version, status, number, created_at, updated_at, finished_at, summary,
    parent_run, parent_key, place_key, place_limit, rank
)
SELECT 'default', id, 'orders', 'v1',
       CASE WHEN is_ended THEN 'completed' WHEN number % 4 = 1 THEN 'queued' ELSE 'waiting' END,
       1, now(), now(), CASE WHEN is_ended THEN now() END, '',
       CASE WHEN number % 10 = 0 THEN 'run-1' END, CASE WHEN number % 10 = 0 THEN 'ship' END,
       CASE WHEN number % 4 = 1 THEN 'orders@' END, CASE WHEN number % 4 = 1 THEN 4 END,
       CASE WHEN number % 4 = 1 THEN number END
FROM numbers;
