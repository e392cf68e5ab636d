-- Runs, and waits of every type that there was then.
INSERT INTO perdure_runs (
    serial, id, namespace, flow, version, status, parent_run, parent_key, created_at, finished_at,
    token, updated_at, summary
) VALUES
    (7, 'order-41', 'team-a', 'orders', 'v1', 'completed', NULL, NULL, 1000, 2000, 9, 3000,
     CAST('{"by":"ann"}' AS BLOB)),
    (9, 'order-42', 'team-a', 'orders', 'v1', 'running', NULL, NULL, 4000, NULL, NULL, 4000,
     CAST('{}' AS BLOB)),
    (12, 'order-42/ship', 'team-a', 'shipping', 'v7', 'cancelled', 'order-42', 'ship', 5000, 6000,
     NULL, 5000, CAST('{}' AS BLOB));
INSERT INTO perdure_events (run_serial, number, at, token, data, value) VALUES
    (7, 1, 1000, NULL, CAST('{"type":"first"}' AS BLOB), NULL),
    (9, 1, 4000, NULL, CAST('{"type":"submitted"}' AS BLOB), CAST('"input"' AS BLOB));
INSERT INTO perdure_jobs (
    id, namespace, queue, task, lane, status, priority, rank, created_at, ready_at, input_hash,
    input, run_id, node_key
) VALUES (
    'job-1', 'team-a', 'packing', 'pack_item', '["packing","pack_item",[],[],"orders@v1"]',
    'waiting', 3, 0, 0, 0, 1, x'5b315d', 'order-42', 'pack'
);
INSERT INTO perdure_waits (
    namespace, run_id, key, kind, name, opened_at, due_at, is_held
) VALUES
    ('team-a', 'order-42', 'ask', 'signal', 'paid', 1, 2, 1),
    ('team-a', 'order-42', 'delay', 'timer', '', 1, 3, 0),
    ('team-a', 'order-42', 'ship', 'child', 'order-42/ship', 1, NULL, 0);
