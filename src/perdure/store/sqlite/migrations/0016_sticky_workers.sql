-- Finds the jobs that wait for a worker that is gone without reading those of live ones.
CREATE INDEX {prefix}jobs_sticky_worker ON {prefix}jobs (namespace, sticky_worker)
WHERE sticky_until IS NOT NULL AND status = 'waiting';
