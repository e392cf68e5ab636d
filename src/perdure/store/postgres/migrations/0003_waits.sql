-- Waits for people and for others outside. Applied in one transaction.

ALTER TABLE {schema}.waits
    -- In whose inbox it is.
    ADD COLUMN deciders text[] COLLATE "C" NOT NULL DEFAULT '{}',
    ADD COLUMN detail   bytea              NOT NULL DEFAULT '',
    DROP CONSTRAINT waits_kind_is_known,
    ADD CONSTRAINT waits_kind_is_known
        CHECK (kind IN ('timer', 'signal', 'child', 'outside', 'approval'));

-- Who waits for a signal of a name. Timers and children, which are most, are in neither index.
CREATE INDEX waits_signals ON {schema}.waits (name, namespace, opened_at, run_id, key)
    WHERE kind = 'signal';

-- What people and others outside were asked, the longest open first. A page of an inbox goes
-- through it until it is full: among 100,000 approvals that of somebody who has none took 50 ms. An
-- inverted index on deciders was not chosen by the planner even with fresh statistics, since a wait
-- that names nobody is in every inbox, and would make each change of an approval dearer.
CREATE INDEX waits_asking ON {schema}.waits (kind, namespace, opened_at, run_id, key)
    WHERE kind IN ('outside', 'approval');
