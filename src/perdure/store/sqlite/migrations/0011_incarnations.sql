-- Which start of a worker this is, and under which one a job was claimed: a worker that restarts under
-- its own id takes over what it had claimed before.
ALTER TABLE {prefix}workers ADD COLUMN incarnation INTEGER;

ALTER TABLE {prefix}jobs ADD COLUMN incarnation INTEGER;
