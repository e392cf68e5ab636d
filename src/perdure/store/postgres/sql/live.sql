-- Live events and their subscribers.

-- name: save_subscriber
WITH lost AS (
    DELETE FROM {schema}.subscribers
    WHERE namespace = :namespace
      AND id <> :id
      AND lease_until <= coalesce(:now, statement_timestamp())
),
saved AS (
    INSERT INTO {schema}.subscribers (namespace, id, filter, lease_until)
    SELECT :namespace, :id, :filter, coalesce(:now, statement_timestamp()) + :lease
    WHERE (
        SELECT count(*)
        FROM {schema}.subscribers
        WHERE namespace = :namespace
          AND id <> :id
          AND lease_until > coalesce(:now, statement_timestamp())
    ) < :most
    ON CONFLICT (namespace, id) DO UPDATE
    SET filter      = excluded.filter,
        lease_until = excluded.lease_until
    RETURNING id
)
SELECT coalesce(max(number), 0), EXISTS (SELECT FROM saved)
FROM {schema}.live_events;

-- name: remove_subscriber
DELETE FROM {schema}.subscribers
WHERE namespace = $1
  AND id = $2;

-- name: subscribers
SELECT id, filter
FROM {schema}.subscribers
WHERE namespace = $1
  AND lease_until > coalesce($2::timestamptz, statement_timestamp());

-- name: publish_live_events
-- One at a time, since a reader continues after the highest number it has seen. The lock is released
-- after the commit is visible.
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('{schema}.live_events')) AS taken
),
old AS (
    DELETE FROM {schema}.live_events
    WHERE number <= (
        SELECT max(number)
        FROM (
            SELECT number, at
            FROM {schema}.live_events
            ORDER BY number
            LIMIT 1000
        ) AS oldest
        WHERE at < coalesce(:now, statement_timestamp()) - :kept
    )
)
INSERT INTO {schema}.live_events (namespace, at, event)
SELECT :namespace, coalesce(:now, statement_timestamp()), published.event
FROM turn
CROSS JOIN :published(event, #position)
WHERE EXISTS (
    SELECT
    FROM {schema}.subscribers
    WHERE namespace = :namespace
      AND lease_until > coalesce(:now, statement_timestamp())
)
ORDER BY published.position
RETURNING number;

-- name: live_events
SELECT number, event
FROM {schema}.live_events
WHERE number > $2
  AND namespace = $1
ORDER BY number
LIMIT $3;
