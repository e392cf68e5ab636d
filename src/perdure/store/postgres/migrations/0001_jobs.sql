-- Jobs and everything around them. Applied in one transaction, under an advisory lock.

CREATE TABLE {schema}.migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Wide columns first, so that no row carries padding. A claim and a settle each write a new
-- version of the row; half of each page is left free so that they stay together, and pruned, there.
CREATE TABLE {schema}.jobs (
    rank             double precision NOT NULL,
    progress         double precision NOT NULL DEFAULT 0,
    input_hash       bigint           NOT NULL,
    created_at       timestamptz      NOT NULL,
    ready_at         timestamptz      NOT NULL,
    deadline_at      timestamptz,
    started_at       timestamptz,
    lease_until      timestamptz,
    avoid_until      timestamptz,
    finished_at      timestamptz,
    epoch            integer          NOT NULL DEFAULT 0,
    attempt          integer          NOT NULL DEFAULT 0,
    failures         integer          NOT NULL DEFAULT 0,
    postpones        integer          NOT NULL DEFAULT 0,
    deaths           integer          NOT NULL DEFAULT 0,
    max_attempts     integer,
    priority         smallint         NOT NULL,
    dropped          boolean          NOT NULL DEFAULT false,
    id               text COLLATE "C" PRIMARY KEY,
    status           text COLLATE "C" NOT NULL,
    namespace        text COLLATE "C" NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    task             text COLLATE "C" NOT NULL,
    lane             text COLLATE "C" NOT NULL,
    job_group        text COLLATE "C",
    fingerprint      text COLLATE "C",
    worker           text COLLATE "C",
    avoid_worker     text COLLATE "C",
    limit_keys       text[],
    progress_message text             NOT NULL DEFAULT '',
    progress_details bytea,
    policy           bytea,
    input            bytea            NOT NULL,
    output           bytea,
    CONSTRAINT jobs_status_is_known CHECK (status IN (
        'waiting', 'scheduled', 'active', 'paused', 'aborting',
        'completed', 'failed', 'dead', 'disabled', 'cancelled'
    )),
    CONSTRAINT jobs_held_has_lease
        CHECK ((status IN ('active', 'aborting')) = (lease_until IS NOT NULL)),
    CONSTRAINT jobs_finished_has_time
        CHECK ((status IN ('completed', 'failed', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_completed_has_output
        CHECK ((status = 'completed') = (output IS NOT NULL))
) WITH (
    fillfactor = 50,
    -- Most rows are rewritten twice within seconds: by default they would be vacuumed far too late.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

-- All are partial: a finished job leaves the hot ones at once, and a write touches few of them.
CREATE INDEX jobs_waiting ON {schema}.jobs (namespace, lane, rank, id)
    WHERE status = 'waiting';
CREATE INDEX jobs_scheduled ON {schema}.jobs (namespace, ready_at)
    WHERE status = 'scheduled';
CREATE INDEX jobs_held ON {schema}.jobs (namespace, lease_until)
    WHERE status IN ('active', 'aborting');
CREATE INDEX jobs_limited ON {schema}.jobs (namespace)
    WHERE status IN ('active', 'aborting') AND limit_keys IS NOT NULL;
CREATE INDEX jobs_deadline ON {schema}.jobs (namespace, deadline_at)
    WHERE deadline_at IS NOT NULL AND status IN ('waiting', 'scheduled', 'paused');
-- Completed jobs have an index of their own, in which they are simply appended to their namespace.
CREATE INDEX jobs_completed ON {schema}.jobs (namespace, finished_at)
    WHERE status = 'completed';
CREATE INDEX jobs_ended ON {schema}.jobs (status, namespace, finished_at)
    WHERE status IN ('failed', 'dead', 'cancelled');
CREATE INDEX jobs_results ON {schema}.jobs (input_hash)
    WHERE status = 'completed';
-- What operators list, and no job that simply completes is ever in.
CREATE INDEX jobs_noted ON {schema}.jobs (status, id)
    WHERE status IN ('failed', 'dead', 'cancelled', 'disabled', 'paused');
CREATE INDEX jobs_group ON {schema}.jobs (job_group, namespace, id)
    WHERE job_group IS NOT NULL;
CREATE UNIQUE INDEX jobs_fingerprint ON {schema}.jobs (namespace, queue, fingerprint)
    WHERE fingerprint IS NOT NULL
      AND status IN ('waiting', 'scheduled', 'active', 'paused', 'aborting', 'disabled');

-- The history of failed attempts; removed with its job by the statement that prunes.
CREATE TABLE {schema}.failures (
    number    bigint           GENERATED ALWAYS AS IDENTITY,
    failed_at timestamptz      NOT NULL,
    attempt   integer          NOT NULL,
    job_id    text COLLATE "C" NOT NULL,
    worker    text COLLATE "C",
    failure   json             NOT NULL,
    PRIMARY KEY (job_id, number)
);

-- One row for each limit key; a claim that starts jobs under a key holds its row meanwhile.
CREATE TABLE {schema}.limits (
    namespace     text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    closed_until  timestamptz,
    last_start_at timestamptz,
    -- When the last start is out of every window and spacing. Not in an index: each claim writes it.
    counts_until  timestamptz,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 50);

-- One row for each claim that started something under a rate; gone when out of the window.
CREATE TABLE {schema}.limit_starts (
    namespace  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    started_at timestamptz      NOT NULL,
    count      integer          NOT NULL
);
CREATE INDEX limit_starts_in_window ON {schema}.limit_starts (namespace, key, started_at);

-- Only paused queues have a row.
CREATE TABLE {schema}.queues (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    paused_at timestamptz      NOT NULL,
    paused_by text,
    PRIMARY KEY (namespace, name)
);

CREATE TABLE {schema}.workers (
    id         text COLLATE "C" PRIMARY KEY,
    namespace  text COLLATE "C" NOT NULL,
    info       json             NOT NULL,
    lease      interval         NOT NULL,
    started_at timestamptz      NOT NULL,
    seen_at    timestamptz      NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {schema}.duties (
    name        text COLLATE "C" PRIMARY KEY,
    worker      text COLLATE "C" NOT NULL,
    lease_until timestamptz      NOT NULL
) WITH (fillfactor = 50);
