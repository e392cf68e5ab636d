-- Which start of a worker this is, and under which one a job was claimed: a worker that restarts under
-- its own id takes over what it had claimed before.
ALTER TABLE {schema}.workers ADD COLUMN incarnation bigint;

ALTER TABLE {schema}.jobs ADD COLUMN incarnation bigint;
