-- A job that waits.
INSERT INTO perdure_jobs (
    id, namespace, queue, task, lane, status, priority, rank, created_at, ready_at, input_hash,
    input
) VALUES (
    'old', 'default', 'mail', 'send', '["mail","send",[],[]]', 'waiting', 3, 0, 0, 0, 1, x'5b315d'
);
