-- Up to which time of end jobs and runs of a type were pruned, such as job.completed: a follower of
-- events that asks for older ones has missed some.
CREATE TABLE {prefix}pruned_ends (
    namespace TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    until     INTEGER NOT NULL,
    PRIMARY KEY (namespace, type)
) WITHOUT ROWID;

-- The ends of child runs. Those of other runs are in runs_ended, which pruning reads.
CREATE INDEX {prefix}runs_ended_children ON {prefix}runs (status, namespace, finished_at)
WHERE finished_at IS NOT NULL AND parent_run IS NOT NULL;

-- Who follows live events, and which. Without a row nobody publishes any.
CREATE TABLE {prefix}subscribers (
    namespace   TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    filter      BLOB    NOT NULL,
    lease_until INTEGER NOT NULL,
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

-- Kept for as long as a subscriber may need to read them. The latest always stays, so that no number
-- is used again.
CREATE TABLE {prefix}live_events (
    number    INTEGER NOT NULL PRIMARY KEY,
    namespace TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    event     BLOB    NOT NULL
);
