-- For moving everything into empty tables.

-- name: keep_others_from_writing
-- Whoever would fill the tables too, or adds work to them, waits; readers do not.
LOCK TABLE {schema}.definitions, {schema}.runs, {schema}.events, {schema}.snapshots, {schema}.waits,
    {schema}.jobs, {schema}.failures, {schema}.steps, {schema}.limits, {schema}.limit_starts,
    {schema}.queues, {schema}.schedules
IN SHARE ROW EXCLUSIVE MODE;

-- name: load_definition
-- A worker that started here first has saved its own; the same version is the same definition.
INSERT INTO {schema}.definitions (namespace, flow, version, data)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING;

-- name: go_on_numbering_runs
SELECT setval(pg_get_serial_sequence('{schema}.runs', 'serial'), max(serial))
FROM {schema}.runs
HAVING max(serial) IS NOT NULL;
