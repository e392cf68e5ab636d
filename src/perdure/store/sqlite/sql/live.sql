-- Live events and their subscribers.

-- name: save_subscriber
INSERT INTO {prefix}subscribers (namespace, id, filter, lease_until)
VALUES (:namespace, :id, :filter, :until)
ON CONFLICT (namespace, id) DO UPDATE
SET filter      = excluded.filter,
    lease_until = excluded.lease_until;

-- name: remove_subscriber
DELETE FROM {prefix}subscribers
WHERE namespace = :namespace
  AND id = :id;

-- name: remove_lost_subscribers
DELETE FROM {prefix}subscribers
WHERE namespace = :namespace
  AND lease_until <= :now;

-- name: latest_live_event
SELECT coalesce(max(number), 0)
FROM {prefix}live_events;

-- name: subscribers
SELECT id, filter
FROM {prefix}subscribers
WHERE namespace = :namespace
  AND lease_until > :now;

-- name: add_live_event
INSERT INTO {prefix}live_events (namespace, at, event)
VALUES (:namespace, :now, :event);

-- name: remove_live_events
-- Numbers and times have the same order, but for a clock that was set back.
DELETE FROM {prefix}live_events
WHERE number <= (
    SELECT max(number)
    FROM (
        SELECT number, at
        FROM {prefix}live_events
        ORDER BY number
        LIMIT 1000
    )
    WHERE at < :until
)
  AND number < (SELECT max(number) FROM {prefix}live_events);

-- name: live_events
SELECT number, event
FROM {prefix}live_events
WHERE number > :after
  AND namespace = :namespace
ORDER BY number
LIMIT :limit;
