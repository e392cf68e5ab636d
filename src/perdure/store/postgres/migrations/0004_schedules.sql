-- Schedules, and flows that cool down. Applied in one transaction.

CREATE TABLE {schema}.schedules (
    -- Another one with each write: two that decided upon the same one cannot both write.
    revision   bigint           NOT NULL,
    -- When a worker has to look; that of the state, which has the rest.
    due_at     timestamptz,
    namespace  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    definition bytea            NOT NULL,
    state      bytea            NOT NULL,
    PRIMARY KEY (namespace, name)
);
CREATE INDEX schedules_due ON {schema}.schedules (namespace, due_at)
    WHERE due_at IS NOT NULL;

-- Runs may be skipped now, and some count for the cooldown of their flow.
ALTER TABLE {schema}.runs
    ADD COLUMN has_cooldown boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT runs_status_is_known,
    DROP CONSTRAINT runs_ended_has_time;
ALTER TABLE {schema}.runs
    ADD CONSTRAINT runs_status_is_known CHECK (status IN (
        'running', 'waiting', 'paused', 'compensating', 'completed', 'failed', 'cancelled',
        'skipped'
    )),
    ADD CONSTRAINT runs_ended_has_time CHECK (
        (status IN ('completed', 'failed', 'cancelled', 'skipped')) = (finished_at IS NOT NULL)
    );
-- By what a flow cools down: the run that began last, and the one that was completed last.
CREATE INDEX runs_begun ON {schema}.runs (namespace, flow, created_at, id)
    WHERE has_cooldown AND status <> 'skipped';
CREATE INDEX runs_completed ON {schema}.runs (namespace, flow, finished_at, id)
    WHERE has_cooldown AND status = 'completed';
