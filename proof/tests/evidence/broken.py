"""A copy of a history in memory, to be tampered with in ways that no store allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure.clock import system_clock
from perdure.diagnostics import Finding
from perdure.engine import snapshot as snapshots
from perdure.engine.fold import fold
from perdure.model.event import Event, StoredEvent, decode_event, encode_event
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.partition import worker_suffix
from perdure.model.run import RunState, Snapshot
from perdure.store.contract import Store
from perdure.store.memory.records import StoredJob, StoredRun, StoredRunEvent, StoredWait
from perdure.store.memory.state import StoredWorker
from perdure.store.memory.store import MemoryStore
from perdure.testing.contract.builders import worker_info
from proof.evidence import EvidenceSettings
from proof.evidence.log import BodyStarted, EndSeen, EventSeen, Line
from proof.tests.evidence.history import Made

NAMESPACE = "default"


class Broken:
    """What a test breaks, with short ways to break it."""

    def __init__(self, made: Made) -> None:
        self.store = copied(made.store)
        self.state = self.store._session.state
        self.records = self.state.records
        self.lines: list[Line] = list(made.evidence.lines)
        self.settings: EvidenceSettings = made.settings
        self.plain = made.jobs

    @property
    def now(self) -> datetime:
        """When the store was broken."""
        return system_clock()

    # Runs

    def run(self, id: str) -> StoredRun:
        return self.records.runs[NAMESPACE, RunId(id)]

    def change_run(self, id: str, **changes: Any) -> None:
        run = self.run(id)
        self.records.put_run(run.place, replace(run, **changes))

    def remove_run(self, id: str) -> None:
        place = self.run(id).place
        for job in self.jobs_of(id):
            self.state.put(job.id, None)
        for wait in self.records.waits_of(place):
            self.records.put_wait(wait.place, None)
        self.records.put_events(place, None)
        self.records.put_run(place, None)

    # Events

    def log(self, id: str) -> list[StoredRunEvent]:
        return self.records.events[NAMESPACE, RunId(id)]

    def event(self, id: str, number: int) -> Event:
        kept = self.log(id)[number - 1].event
        return decode_event(RunId(id), number, kept.data)

    def find(self, id: str, live_type: type, place: int = 0) -> int:
        """The number of an event of this kind."""
        found = [
            n for n in range(1, len(self.log(id)) + 1) if isinstance(self.event(id, n), live_type)
        ]
        return found[place]

    def rewrite(self, id: str, number: int, event: Event, value: bytes | None = None) -> None:
        log = self.log(id)
        kept = log[number - 1]
        data = encode_event(event)
        after = replace(kept.event, data=data, value=kept.event.value if value is None else value)
        log[number - 1] = StoredRunEvent(event=after, token=kept.token)

    def set_value(self, id: str, number: int, value: bytes | None) -> None:
        log = self.log(id)
        kept = log[number - 1]
        log[number - 1] = StoredRunEvent(event=replace(kept.event, value=value), token=kept.token)

    def insert(self, id: str, number: int, event: Event, value: bytes | None = None) -> None:
        """Add an event so that it has this number; those behind it move up."""
        log = self.log(id)
        at = log[min(number, len(log)) - 1].event.at
        made = StoredEvent(number=number, at=at, data=encode_event(event), value=value)
        log.insert(number - 1, StoredRunEvent(event=made, token=None))
        for place in range(number, len(log)):
            moved = replace(log[place].event, number=place + 1)
            log[place] = StoredRunEvent(event=moved, token=log[place].token)
        self.change_run(id, number=len(log))

    def append(self, id: str, event: Event, value: bytes | None = None) -> None:
        self.insert(id, len(self.log(id)) + 1, event, value)

    def folded(self, id: str, number: int | None = None) -> RunState:
        state = RunState()
        for kept in self.log(id)[:number]:
            state = fold(state, decode_event(RunId(id), kept.event.number, kept.event.data))
        return state

    def set_snapshot(self, id: str, state: RunState) -> None:
        self.change_run(id, snapshot=snapshots.take(state))

    def spoil_snapshot(self, id: str) -> None:
        kept = self.run(id).snapshot
        assert kept is not None
        spoilt = Snapshot(number=kept.number, data=kept.data.replace(b'"jobs":', b'"jobs":1'))
        self.change_run(id, snapshot=spoilt)

    # Jobs and waits

    def jobs_of(self, id: str) -> list[StoredJob]:
        ids: Sequence[JobId] = self.state.of_run.ids((NAMESPACE, RunId(id)))
        return [self.state.jobs[each] for each in ids]

    def change_job(self, id: str, **changes: Any) -> None:
        job = self.state.jobs[JobId(id)]
        self.state.put(job.id, replace(job, **changes))

    def add_job_like(self, id: str, new_id: str, **changes: Any) -> None:
        job = replace(self.state.jobs[JobId(id)], id=JobId(new_id), **changes)
        self.state.put(job.id, job)

    def wait(self, id: str, key: str) -> StoredWait:
        found = self.records.wait(NAMESPACE, RunId(id), key)
        assert found is not None
        return found

    def change_wait(self, id: str, key: str, **changes: Any) -> None:
        wait = self.wait(id, key)
        self.records.put_wait(wait.place, replace(wait, **changes))

    def remove_wait(self, id: str, key: str) -> None:
        self.records.put_wait(self.wait(id, key).place, None)

    def add_worker(self, id: WorkerId, seen_at: datetime, incarnation: int) -> None:
        """A worker that started an hour ago, and its last heartbeat."""
        info = worker_info(id=id, namespace=NAMESPACE, incarnation=incarnation)
        self.state.workers[id] = StoredWorker(info, self.now - timedelta(hours=1), seen_at)

    # The evidence log

    def began(self, *, run: str = "", key: str = "", job: str = "", place: int = 0) -> BodyStarted:
        found = [
            line
            for line in self.lines
            if isinstance(line, BodyStarted)
            and (line.run, line.key) == (run, key)
            and job in ("", line.job)
        ]
        return found[place]

    def end_seen(self, run: str, status: str) -> Line:
        return EndSeen(at=0, namespace=NAMESPACE, status=status, run=run)

    def event_seen(self, name: str, **of: str) -> Line:
        event_at = self.now
        return EventSeen(
            at=0, namespace=NAMESPACE, follower="a", name=name, event_at=event_at, cursor="", **of
        )

    def change_line(self, line: Line, **changes: Any) -> None:
        self.lines[self.lines.index(line)] = replace(line, **changes)


def copied(store: Store) -> MemoryStore:
    """A place in memory of its own, with the same in it."""
    assert isinstance(store, MemoryStore)
    copy, source = MemoryStore("memory://"), store._session.state
    target = copy._session.state
    for id, job in source.jobs.items():
        target.put(id, job)
    target.records.definitions = dict(source.records.definitions)
    for place, run in source.records.runs.items():
        target.records.put_run(place, run)
        target.records.put_events(place, list(source.records.events[place]))
    for waits in source.records.waits.values():
        for wait in waits.values():
            target.records.put_wait(wait.place, wait)
    for owner, steps in source.records.steps.items():
        target.records.put_steps(owner, steps)
    for name, schedule in source.schedules.by_place.items():
        target.schedules.put(name, schedule)
    return copy


def rule_of(finding: Finding) -> str:
    """The rule that found it: codes are named ``verify.rule`` or ``verify.rule.case``."""
    return finding.code.split(".")[1]


Break = Callable[[Broken], None]
Case = tuple[Break, str, str]
"""What breaks something, the invariant that is broken, and the rule that finds it."""


# Rows of a SQLite store changed behind its back, each with what the checker says of it.


Row = tuple[str, str, str, str]
"""What is done, by which statement, the invariant that is broken, and the rule that finds it.

Names of plain jobs stand for their ids, those of runs for their serials, ``ages`` for a time far
ahead, ``live`` for what is stored of a worker.
"""

GONE = worker_suffix(WorkerId("gone"))
LIVE_WORKER = (
    "INSERT INTO perdure_workers (id, namespace, info, lease, started_at, seen_at, incarnation)"
    " VALUES ('live', 'default', CAST('{live}' AS BLOB), 30000000, 0, {soon}, 2)"
)
"""One that started long ago."""

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
    ("a wait is deleted", "DELETE FROM perdure_waits WHERE run_id = 'asking'", "I7", "live_waits"),
    (
        "a wait of a paused run is resumed",
        "UPDATE perdure_waits SET suspended = 0 WHERE run_id = 'held'",
        "I7",
        "paused_run_parked",
    ),
    ("a job is deleted", "DELETE FROM perdure_jobs WHERE run_id = 'queued'", "I7", "live_jobs"),
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
    ("a run's row is deleted", "DELETE FROM perdure_runs WHERE id = 'asking'", "I8", "orphans"),
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
        "an approval is in no inbox",
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
        "a plain job is in an unserved partition",
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
        "a job is suspected without a crash",
        "UPDATE perdure_jobs SET partition_key = partition_key || '~2.1' WHERE id = '{idle}'",
        "I7",
        "job_suspicion",
    ),
    (
        "a job is in the partition of another worker than it waits for",
        "UPDATE perdure_jobs SET partition_key = partition_key || '~~1', sticky_worker = 'gone',"
        " sticky_until = 0 WHERE run_id = 'queued'",
        "I7",
        "job_sticky",
    ),
    (
        "a job is in the partition of a worker, but is never released",
        "UPDATE perdure_jobs SET partition_key = partition_key || '~~1' WHERE id = '{idle}'",
        "I7",
        "job_sticky",
    ),
    (
        "a job was to wait for a worker until 1970",
        f"UPDATE perdure_jobs SET partition_key = partition_key || '{GONE}',"
        " sticky_worker = 'gone', sticky_until = 0, ready_at = ready_at - 3600000000,"
        " rank = rank - 3600 WHERE id = '{idle}'; " + LIVE_WORKER,
        "I7",
        "job_sticky",
    ),
    (
        "a worker left a claim of an earlier start",
        "UPDATE perdure_jobs SET status = 'active', worker = 'live', epoch = 1, attempt = 1,"
        " incarnation = 1, started_at = 0, lease_until = {soon} WHERE id = '{idle}'; "
        + LIVE_WORKER,
        "I7",
        "job_former_claim",
    ),
    (
        "a job is retried beyond its attempts",
        "UPDATE perdure_jobs SET max_attempts = 2, failures = 1, snoozes = 1 WHERE id = '{idle}'",
        "I9",
        "job_attempts_bound",
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
        "INSERT OR REPLACE INTO perdure_limits VALUES ('default', 'printer', {ages}, 1, 1, 1)",
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
        "UPDATE perdure_jobs SET status = 'active', worker = 'gone', finished_at = NULL,"
        " limit_keys = NULL, lease_until = {soon} WHERE id = '{done}'",
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
