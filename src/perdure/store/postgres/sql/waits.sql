-- What runs wait for, as it is read.

-- name: due_waits
SELECT run_id, namespace, key, kind, name, opened_at, due_at, deciders, detail
FROM {schema}.waits
WHERE NOT is_held
  AND due_at IS NOT NULL
  AND namespace = $2
  AND due_at <= coalesce($1::timestamptz, statement_timestamp())
ORDER BY due_at
LIMIT $3;

-- name: run_waits
SELECT run_id, namespace, key, kind, name, opened_at, due_at, deciders, detail
FROM {schema}.waits
WHERE run_id = $2
  AND namespace = $1
ORDER BY key;

-- name: list_waits
-- {filter} is written by waits.py: only the conditions that are asked for, so that each combination
-- is planned by itself.
SELECT run_id, namespace, key, kind, name, opened_at, due_at, deciders, detail
FROM {schema}.waits
WHERE {filter}
ORDER BY opened_at, run_id, key, namespace
LIMIT $1;
