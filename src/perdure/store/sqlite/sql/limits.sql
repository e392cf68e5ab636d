-- Limits at work. The write lock is held, so nothing changes between looking and claiming.

-- name: live_under_limits
-- One pass over the held jobs that count anywhere; there are never more of them than workers run.
SELECT counted.value, count(*)
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_limited, json_each(job.limit_keys) AS counted
WHERE job.namespace = :namespace
  AND job.lease_until > :now
  AND job.limit_keys IS NOT NULL
GROUP BY counted.value;

-- name: limit_holders
-- The longest held first.
SELECT counted.value, job.id
FROM {prefix}jobs AS job INDEXED BY {prefix}jobs_limited, json_each(job.limit_keys) AS counted
WHERE job.namespace = :namespace
  AND job.lease_until > :now
  AND job.limit_keys IS NOT NULL
ORDER BY job.started_at, job.id;

-- name: limits
SELECT key, last_start_at, closed_until
FROM {prefix}limits
WHERE namespace = :namespace
  AND key IN (SELECT value FROM json_each(:keys));

-- name: starts_since
SELECT coalesce(sum(count), 0), min(started_at)
FROM {prefix}limit_starts
WHERE namespace = :namespace
  AND key = :key
  AND started_at > :since;

-- name: record_starts
INSERT INTO {prefix}limits (namespace, key, last_start_at, counts_until)
VALUES {rows}
ON CONFLICT (namespace, key) DO UPDATE
SET last_start_at = excluded.last_start_at,
    counts_until  = max(coalesce(counts_until, 0), excluded.counts_until);

-- name: add_starts
INSERT INTO {prefix}limit_starts (namespace, key, started_at, count)
VALUES {rows};

-- name: forget_starts
DELETE FROM {prefix}limit_starts
WHERE namespace = :namespace
  AND key = :key
  AND started_at <= :until;

-- name: close_limits
INSERT INTO {prefix}limits (namespace, key, closed_until)
VALUES {rows}
ON CONFLICT (namespace, key) DO UPDATE
SET closed_until = max(coalesce(closed_until, excluded.closed_until), excluded.closed_until);
