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

-- What others outside were asked, the longest open first.
CREATE INDEX waits_asking ON {schema}.waits (kind, namespace, opened_at, run_id, key)
    WHERE kind IN ('outside', 'approval');
