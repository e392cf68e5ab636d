-- Runs of flows: their events, and what they wait for. Applied in one transaction.

-- A job of a run knows which part of it it executes. Its other columns mean what they mean for any
-- job, but it never stays as a finished one.
ALTER TABLE {schema}.jobs
    ADD COLUMN run_id   text COLLATE "C",
    ADD COLUMN node_key text COLLATE "C";
CREATE INDEX jobs_of_runs ON {schema}.jobs (run_id, namespace, node_key)
    WHERE run_id IS NOT NULL;
-- The end of a run's job is its run's affair, so a deadline that passed is nobody's to act on.
DROP INDEX {schema}.jobs_deadline;
CREATE INDEX jobs_deadline ON {schema}.jobs (namespace, deadline_at)
    WHERE deadline_at IS NOT NULL AND run_id IS NULL
      AND status IN ('waiting', 'scheduled', 'paused');

-- Every step of a run rewrites its row. What changes with each is in no index, and half of each
-- page is left free, so that the versions of a row stay together and no index is touched.
CREATE TABLE {schema}.runs (
    serial      bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    number      bigint           NOT NULL,
    -- Of the last commit, and of the submission: whoever lost the answer knows its own by it.
    token       bigint,
    submission  bigint,
    created_at  timestamptz      NOT NULL,
    updated_at  timestamptz      NOT NULL,
    finished_at timestamptz,
    namespace   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    flow        text COLLATE "C" NOT NULL,
    version     text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL,
    parent_run  text COLLATE "C",
    parent_key  text COLLATE "C",
    summary     bytea            NOT NULL,
    CONSTRAINT runs_status_is_known CHECK (status IN (
        'running', 'waiting', 'paused', 'compensating', 'completed', 'failed', 'cancelled'
    )),
    CONSTRAINT runs_ended_has_time
        CHECK ((status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT runs_parent_has_key CHECK ((parent_run IS NULL) = (parent_key IS NULL))
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);
CREATE UNIQUE INDEX runs_id ON {schema}.runs (id, namespace);
CREATE INDEX runs_newest ON {schema}.runs (created_at, id);
CREATE INDEX runs_status ON {schema}.runs (status, created_at, id);
CREATE INDEX runs_live ON {schema}.runs (namespace, flow, version, created_at, id)
    WHERE finished_at IS NULL;
-- What retention goes by. A child goes with its parent, and is found by it.
CREATE INDEX runs_ended ON {schema}.runs (status, namespace, finished_at)
    WHERE finished_at IS NOT NULL AND parent_run IS NULL;
CREATE INDEX runs_children ON {schema}.runs (parent_run, namespace, created_at, id)
    WHERE parent_run IS NOT NULL;

-- Only ever appended to; removed with the run.
CREATE TABLE {schema}.events (
    run_serial bigint      NOT NULL,
    number     bigint      NOT NULL,
    at         timestamptz NOT NULL,
    -- Of the commit it came with; null for those that the run began with.
    token      bigint,
    data       bytea       NOT NULL,
    value      bytea,
    PRIMARY KEY (run_serial, number)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 1
);

CREATE TABLE {schema}.snapshots (
    run_serial bigint PRIMARY KEY,
    number     bigint NOT NULL,
    data       bytea  NOT NULL
);

-- What runs wait for. The log is the truth; these make the time of it come.
CREATE TABLE {schema}.waits (
    opened_at timestamptz      NOT NULL,
    due_at    timestamptz,
    -- While the run is paused.
    is_held   boolean          NOT NULL DEFAULT false,
    namespace text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, namespace, key),
    CONSTRAINT waits_kind_is_known CHECK (kind IN ('timer', 'signal', 'child'))
);
CREATE INDEX waits_due ON {schema}.waits (namespace, due_at)
    WHERE NOT is_held AND due_at IS NOT NULL;

CREATE TABLE {schema}.definitions (
    namespace text COLLATE "C" NOT NULL,
    flow      text COLLATE "C" NOT NULL,
    version   text COLLATE "C" NOT NULL,
    data      bytea            NOT NULL,
    PRIMARY KEY (flow, version, namespace)
);

-- Results stored within a node or a job; removed with the run, or with the job if it is of none.
CREATE TABLE {schema}.steps (
    owner      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    number     bigint           GENERATED ALWAYS AS IDENTITY,
    run_serial bigint,
    job_id     text COLLATE "C",
    value      bytea            NOT NULL,
    PRIMARY KEY (owner, name),
    CONSTRAINT steps_have_holder CHECK ((run_serial IS NULL) <> (job_id IS NULL))
);
CREATE INDEX steps_of_runs ON {schema}.steps (run_serial)
    WHERE run_serial IS NOT NULL;
CREATE INDEX steps_of_jobs ON {schema}.steps (job_id)
    WHERE job_id IS NOT NULL;
