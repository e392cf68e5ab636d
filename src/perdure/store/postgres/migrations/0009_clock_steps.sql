-- A time farther ahead than it can be shows that the clock was set back. These columns tell how far
-- ahead each can be: a lease ends at most its length from now, a closed limit opens at most as long
-- after it was closed. Before, a maintenance lease lasted ten seconds at most.
ALTER TABLE {schema}.maintenance_leases
    ADD COLUMN lease interval NOT NULL DEFAULT interval '10 seconds';

ALTER TABLE {schema}.limits ADD COLUMN closed_at timestamptz;

-- The last heartbeat of a namespace, which each poll compares with the clock.
CREATE INDEX workers_seen ON {schema}.workers (namespace, seen_at);
