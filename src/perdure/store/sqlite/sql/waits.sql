-- What runs wait for, as it is read.

-- name: due_waits
SELECT {wait_row}
FROM {prefix}waits AS wait INDEXED BY {prefix}waits_due
WHERE wait.namespace = :namespace
  AND wait.due_at <= :now
  AND wait.is_held = 0
ORDER BY wait.due_at, wait.run_id, wait.key
LIMIT :limit;

-- name: run_waits
SELECT {wait_row}
FROM {prefix}waits AS wait
WHERE wait.namespace = :namespace
  AND wait.run_id = :run
ORDER BY wait.key;

-- name: list_waits
-- The filter, written by waits.py, names only what is asked for, so that the page is found in the
-- index alone: to read the row of each wait that is not in an inbox costs six times as much.
SELECT {wait_row}
FROM (
    SELECT wait.run_id, wait.namespace, wait.key, wait.opened_at
    FROM {prefix}waits AS wait {index}
    WHERE {filter}
    ORDER BY wait.opened_at, wait.run_id, wait.key, wait.namespace
    LIMIT :limit
) AS listed
CROSS JOIN {prefix}waits AS wait
    ON wait.run_id = listed.run_id
    AND wait.namespace = listed.namespace
    AND wait.key = listed.key
ORDER BY listed.opened_at, listed.run_id, listed.key, listed.namespace;
