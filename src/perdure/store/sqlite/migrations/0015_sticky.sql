-- The worker that executed a run's last node, if its nodes stay with one; and the worker whose
-- partition a job is in until sticky_until.
ALTER TABLE {prefix}runs ADD COLUMN sticky_worker TEXT;

ALTER TABLE {prefix}jobs ADD COLUMN sticky_worker TEXT;
