-- Of a job of a run: the number of the event with which the job continued in place. A step writes this
-- row anyway, and not that of its run, so it tells where the log of a running run ends.
ALTER TABLE {prefix}jobs ADD COLUMN run_number INTEGER;
