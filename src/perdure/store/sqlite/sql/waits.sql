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
-- {index} and {where} are what serves the filter best; the other filters look at the rows.
SELECT {wait_row}
FROM {prefix}waits AS wait {index}
WHERE {where}
  AND (wait.opened_at, wait.run_id, wait.key) > (:after_at, :after_run, :after_key)
  AND (:namespace IS NULL OR wait.namespace = :namespace)
  AND (:run IS NULL OR wait.run_id = :run)
  AND (:kind IS NULL OR wait.kind = :kind)
  AND (:name IS NULL OR wait.name = :name)
  AND (
      :deciders IS NULL
      OR wait.deciders = '[]'
      OR EXISTS (
          SELECT 1
          FROM json_each(wait.deciders) AS named
          WHERE named.value IN (SELECT value FROM json_each(:deciders))
      )
  )
ORDER BY wait.opened_at, wait.run_id, wait.key, wait.namespace
LIMIT :limit;
