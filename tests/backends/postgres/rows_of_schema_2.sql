-- Runs and waits of every type that there was then.
INSERT INTO {schema}.runs (
    number, token, created_at, updated_at, finished_at, namespace, id, flow, version, status,
    parent_run, parent_key, summary
) VALUES
    (1, 9, now(), now(), now(), 'team-a', 'order-41', 'orders', 'v1', 'completed', NULL, NULL,
     '{{"by":"ann"}}'),
    (1, NULL, now(), now(), NULL, 'team-a', 'order-42', 'orders', 'v1', 'running', NULL, NULL,
     '{{}}');
INSERT INTO {schema}.events (run_serial, number, at, data, value)
SELECT serial, 1, now(), '{{"type":"submitted"}}', '"input"'
FROM {schema}.runs;
INSERT INTO {schema}.jobs (
    id, namespace, queue, task, lane, status, priority, rank, input, input_hash, created_at,
    ready_at, run_id, node_key
) VALUES (
    'job-1', 'team-a', 'packing', 'pack_item', '["packing","pack_item",[],[],"orders@v1"]',
    'waiting', 3, 1, '[1]', 1, now(), now(), 'order-42', 'pack'
);
INSERT INTO {schema}.waits (namespace, run_id, key, kind, name, opened_at, due_at, is_held)
VALUES
    ('team-a', 'order-42', 'ask', 'signal', 'paid', '2001-02-03Z', '2001-02-03Z', true),
    ('team-a', 'order-42', 'delay', 'timer', '', '2001-02-03Z', '2001-02-03Z', false),
    ('team-a', 'order-42', 'ship', 'child', 'order-42/ship', '2001-02-03Z', NULL, false);
