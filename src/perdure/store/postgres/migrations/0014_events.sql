-- Up to which time of end jobs and runs of a type were pruned, such as job.completed: a follower of
-- events that asks for older ones has missed some.
CREATE TABLE {schema}.pruned_ends (
    namespace text COLLATE "C" NOT NULL,
    type      text COLLATE "C" NOT NULL,
    until     timestamptz NOT NULL,
    PRIMARY KEY (namespace, type)
);

-- The ends of child runs. Those of other runs are in runs_ended, which pruning reads.
CREATE INDEX runs_ended_children ON {schema}.runs (status, namespace, finished_at)
    WHERE finished_at IS NOT NULL AND parent_run IS NOT NULL;

-- Who follows live events, and which. Without a row nobody publishes any.
CREATE TABLE {schema}.subscribers (
    namespace   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    filter      bytea NOT NULL,
    lease_until timestamptz NOT NULL,
    PRIMARY KEY (namespace, id)
);

-- Kept for as long as a subscriber may need to read them.
CREATE TABLE {schema}.live_events (
    number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    at        timestamptz NOT NULL,
    event     bytea NOT NULL
);
