-- Finds the jobs that wait for a worker that is gone without reading those of live ones.
CREATE INDEX jobs_sticky_worker ON {schema}.jobs (namespace, sticky_worker)
    WHERE sticky_until IS NOT NULL AND status = 'waiting';
