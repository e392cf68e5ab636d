-- A time farther ahead than it can be shows that the clock was set back. These columns tell how far
-- ahead each can be: a lease ends at most its length from now, a closed limit opens at most as long
-- after it was closed. Before, a maintenance lease lasted ten seconds at most.
ALTER TABLE {prefix}maintenance_leases ADD COLUMN lease INTEGER NOT NULL DEFAULT 10000000;

ALTER TABLE {prefix}limits ADD COLUMN closed_at INTEGER;

-- The last heartbeat of a namespace, which each poll compares with the clock.
CREATE INDEX {prefix}workers_seen ON {prefix}workers (namespace, seen_at);
