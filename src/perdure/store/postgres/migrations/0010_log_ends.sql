-- Every step writes the row of its run, so nothing else has to tell where the log ends.
COMMENT ON TABLE {schema}.events IS
'The log of each run. The number of the last event is in runs.number.';
