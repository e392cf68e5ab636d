"""Rows of a SQLite store changed behind its back, each with what the checker says of it."""

from __future__ import annotations

Row = tuple[str, str, str, str]
"""What is done, by which statement, the invariant that is broken, and the rule that finds it.

Names of plain jobs stand for their ids, those of runs for their serials, ``ages`` for a time far
ahead.
"""

ROWS: list[Row] = [
    (
        "an event is deleted",
        "DELETE FROM perdure_events WHERE number = 2 AND run_serial = {chain}",
        "I4",
        "event_numbers",
    ),
    (
        "an event is garbled",
        "UPDATE perdure_events SET data = x'00' WHERE number = 2 AND run_serial = {chain}",
        "I5",
        "log_folds",
    ),
    (
        "an event has another's data",
        "UPDATE perdure_events SET data = (SELECT data FROM perdure_events"
        " WHERE number = 2 AND run_serial = {chain}) WHERE number = 3 AND run_serial = {chain}",
        "I2",
        "key_committed_once",
    ),
    (
        "an output is deleted",
        "UPDATE perdure_events SET value = NULL WHERE number = 3 AND run_serial = {chain}",
        "I2",
        "outputs_exist",
    ),
    (
        "an ended run is marked as running",
        "UPDATE perdure_runs SET status = 'running', finished_at = NULL WHERE id = 'chain'",
        "I5",
        "run_row",
    ),
    (
        "a wait is deleted",
        "DELETE FROM perdure_waits WHERE run_id = 'asking'",
        "I7",
        "live_waits",
    ),
    (
        "a wait of a paused run is let go",
        "UPDATE perdure_waits SET suspended = 0 WHERE run_id = 'held'",
        "I7",
        "paused_run_parked",
    ),
    (
        "a job is deleted",
        "DELETE FROM perdure_jobs WHERE run_id = 'queued'",
        "I7",
        "live_jobs",
    ),
    (
        "a job is given to a run that has ended",
        "UPDATE perdure_jobs SET run_id = 'chain' WHERE run_id = 'queued'",
        "I8",
        "live_jobs",
    ),
    (
        "a job is in a partition that cannot be read",
        'UPDATE perdure_jobs SET partition_key = \'["nobody", "never", [], [], "other@1"]\''
        " WHERE run_id = 'queued'",
        "I7",
        "run_job_partition",
    ),
    (
        "a run's row is deleted",
        "DELETE FROM perdure_runs WHERE id = 'asking'",
        "I8",
        "orphans",
    ),
    (
        "a snapshot is of another state",
        "UPDATE perdure_snapshots SET data = replace(CAST(data AS TEXT), '\"jobs\":', '\"jobs\":1')"
        " WHERE run_serial = {long}",
        "I5",
        "snapshot_state",
    ),
    (
        "an epoch is raised after the outcome",
        "UPDATE perdure_jobs SET epoch = epoch + 1 WHERE status = 'completed'",
        "I3",
        "output_is_current",
    ),
    (
        "a timer is due at no time",
        "UPDATE perdure_waits SET due_at = NULL WHERE run_id = 'sleeping'",
        "I7",
        "waits_as_opened",
    ),
    (
        "a timer is due in fifty years",
        "UPDATE perdure_waits SET due_at = {ages} WHERE run_id = 'sleeping'",
        "I7",
        "waits_as_opened",
    ),
    (
        "a timer is due an hour early",
        "UPDATE perdure_waits SET due_at = due_at - 3600000000 WHERE run_id = 'sleeping'",
        "I7",
        "waits_as_opened",
    ),
    (
        "a timer waits for a signal",
        "UPDATE perdure_waits SET type = 'signal' WHERE run_id = 'sleeping'",
        "I7",
        "waits_as_opened",
    ),
    (
        "an approval is a timer",
        "UPDATE perdure_waits SET type = 'timer' WHERE run_id = 'open'",
        "I7",
        "waits_as_opened",
    ),
    (
        "a wait is for another signal",
        "UPDATE perdure_waits SET name = 'other' WHERE run_id = 'asking'",
        "I7",
        "waits_as_opened",
    ),
    (
        "an approval is in nobody's inbox",
        "UPDATE perdure_waits SET deciders = '[]' WHERE run_id = 'open'",
        "I7",
        "waits_as_opened",
    ),
    (
        "an approval says not what is asked",
        "UPDATE perdure_waits SET detail = x'' WHERE run_id = 'open'",
        "I7",
        "waits_as_opened",
    ),
    (
        "an approval asks garbage",
        "UPDATE perdure_waits SET detail = x'ff00' WHERE run_id = 'open'",
        "I7",
        "waits_as_opened",
    ),
    (
        "a plain job is in a partition of nobody",
        "UPDATE perdure_jobs SET partition_key = 'garbage' WHERE id = '{idle}'",
        "I7",
        "job_partition",
    ),
    (
        "a plain job is in another queue's partition",
        "UPDATE perdure_jobs SET partition_key = replace(partition_key, '\"nobody\"', '\"other\"')"
        " WHERE id = '{idle}'",
        "I7",
        "job_partition",
    ),
    (
        "a plain job comes after all others",
        "UPDATE perdure_jobs SET rank = 1e300 WHERE id = '{idle}'",
        "I7",
        "job_rank",
    ),
    (
        "a run's job has another queue and task",
        "UPDATE perdure_jobs SET queue = 'x', task = 'y' WHERE run_id = 'queued'",
        "I7",
        "jobs_as_scheduled",
    ),
    (
        "a run's job is in another queue's partition",
        "UPDATE perdure_jobs SET partition_key = replace(partition_key, 'nobody', 'x')"
        " WHERE run_id = 'queued'",
        "I7",
        "jobs_as_scheduled",
    ),
    (
        "a run's job has lost its input",
        "UPDATE perdure_jobs SET input = NULL WHERE run_id = 'queued'",
        "I7",
        "jobs_as_scheduled",
    ),
    (
        "a schedule is looked for at no time",
        "UPDATE perdure_schedules SET due_at = NULL",
        "I7",
        "schedule_due_time",
    ),
    (
        "a schedule is looked for in fifty years",
        "UPDATE perdure_schedules SET due_at = {ages}",
        "I7",
        "schedule_due_time",
    ),
    (
        "a schedule's state is garbage",
        "UPDATE perdure_schedules SET state = x'ff00'",
        "I7",
        "schedule_readable",
    ),
    (
        "a schedule's definition is garbage",
        "UPDATE perdure_schedules SET definition = x'ff00'",
        "I7",
        "schedule_readable",
    ),
    (
        "a completed job waits again",
        "UPDATE perdure_jobs SET status = 'waiting', finished_at = NULL WHERE id = '{done}'",
        "I8",
        "ends_are_final",
    ),
    (
        "a completed job has failed",
        "UPDATE perdure_jobs SET status = 'failed' WHERE id = '{done}'",
        "I8",
        "ends_are_final",
    ),
    (
        "a completed job is cancelled",
        "UPDATE perdure_jobs SET status = 'cancelled', output = NULL WHERE id = '{done}'",
        "I8",
        "ends_are_final",
    ),
    (
        "a completed job has lost its output",
        "UPDATE perdure_jobs SET output = NULL WHERE id = '{done}'",
        "I2",
        "output_is_current",
    ),
    (
        "a run's input is deleted",
        "UPDATE perdure_events SET value = NULL WHERE number = 1 AND run_serial = {chain}",
        "I1",
        "run_input",
    ),
    (
        "a plain job's input is deleted",
        "UPDATE perdure_jobs SET input = NULL WHERE id = '{idle}'",
        "I1",
        "job_callable",
    ),
    (
        "a plain job's input is garbage",
        "UPDATE perdure_jobs SET input = x'ff00' WHERE id = '{idle}'",
        "I1",
        "job_callable",
    ),
    (
        "a plain job's policy is garbage",
        "UPDATE perdure_jobs SET policy = x'ff00' WHERE id = '{idle}'",
        "I1",
        "job_callable",
    ),
    (
        "a plain job is in another namespace",
        "UPDATE perdure_jobs SET namespace = 'other' WHERE id = '{done}'",
        "I1",
        "accepted",
    ),
    (
        "a run's result is of another node",
        "UPDATE perdure_events SET data = CAST(replace(CAST(data AS TEXT), '\"ref\":3',"
        " '\"ref\":2') AS BLOB) WHERE number = 4 AND run_serial = {chain}",
        "I10",
        "log_as_decided",
    ),
    (
        "a log says that a node never ran",
        """
        DELETE FROM perdure_events WHERE number = 3 AND run_serial = {chain};
        UPDATE perdure_events SET data = CAST(json_remove(CAST(data AS TEXT), '$.then') AS BLOB)
        WHERE number = 2 AND run_serial = {chain};
        UPDATE perdure_events SET number = 3, data = CAST(
            json_set(CAST(data AS TEXT), '$.ref', 2) AS BLOB
        ) WHERE number = 4 AND run_serial = {chain}
        """,
        "I10",
        "log_as_decided",
    ),
    (
        "a definition is another flow's",
        "UPDATE perdure_definitions SET data = (SELECT data FROM perdure_definitions WHERE"
        " flow = 'chain' LIMIT 1) WHERE flow = 'asking'",
        "I5",
        "run_definition",
    ),
    (
        "a definition is garbage",
        "UPDATE perdure_definitions SET data = x'ff00' WHERE flow = 'asking'",
        "I5",
        "run_definition",
    ),
    (
        "a limit is closed for fifty years",
        "INSERT OR REPLACE INTO perdure_limits VALUES ('default', 'printer', {ages}, 1, 1)",
        "I11",
        "limit_reopens",
    ),
    (
        "a thousand starts are yet to come",
        "INSERT INTO perdure_limit_starts VALUES ('default', 'plain', {ages}, 1000)",
        "I11",
        "limit_starts_in_past",
    ),
    (
        "a held job counts under no limit",
        "UPDATE perdure_jobs SET status = 'active', worker = 'gone', epoch = 1, attempt ="
        " 1, limit_keys = NULL, lease_until = {soon} WHERE id = '{idle}'",
        "I11",
        "is_counted",
    ),
    (
        "two live jobs have one fingerprint",
        "DROP INDEX perdure_jobs_fingerprint; UPDATE perdure_jobs SET fingerprint = 'same',"
        " queue = 'q' WHERE id IN ('{idle}', '{later}')",
        "I2",
        "shared_fingerprints",
    ),
    (
        "a stale output is hidden",
        "UPDATE perdure_jobs SET hidden = 1, epoch = epoch + 1 WHERE id = '{done}'",
        "I3",
        "output_is_current",
    ),
    (
        "a status is unknown",
        "PRAGMA ignore_check_constraints = 1; UPDATE perdure_jobs SET status = 'odd' WHERE"
        " id = '{idle}'",
        "I7",
        "job_listable",
    ),
    (
        "the summary of a run that waits is garbage",
        "UPDATE perdure_runs SET summary = x'ff00' WHERE id = 'asking'",
        "I5",
        "run_summary",
    ),
]
