"""Builders and drivers with defaults, so that a test shows only what matters to it.

No two fields of a run that a store keeps have the same value.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from msgspec.structs import replace

from perdure.clock import new_id
from perdure.model.event import NewEvent, Parent, RunSubmitted, encode_event
from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import (
    Claim,
    Claimed,
    ClaimedJob,
    FailedAttempt,
    Job,
    JobState,
    NewJob,
    NodeRef,
    Status,
)
from perdure.model.limit import LimitRule
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Retried,
    Settlement,
)
from perdure.model.partition import UNSUSPECTED, Partition, Suspicion, with_suspicion
from perdure.model.run import (
    CommitResult,
    CommitState,
    Continues,
    Finishes,
    LoadedRun,
    NewRun,
    NewWait,
    NodeSettlement,
    Retries,
    Run,
    RunCommit,
    RunStatus,
    Wait,
    WaitFilter,
    WaitType,
)
from perdure.model.schedule import (
    FlowCall,
    Schedule,
    ScheduleAnswer,
    ScheduleCommit,
    ScheduleDefinition,
    ScheduleState,
    Started,
    TickRecord,
    TickResult,
    Timetable,
)
from perdure.model.worker import WorkerInfo
from perdure.store.contract import ClaimRequest, EventsAfter, PartitionClaim, Store
from perdure.store.lifecycle import Transition

# Jobs


SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)
AGING = timedelta(minutes=5)

NAMESPACE = "team-a"
OTHER_NAMESPACE = "team-b"
PARTITION = Partition(queue="mail", task="send")
WORKER = WorkerId("worker-1")
OTHER_WORKER = WorkerId("worker-2")


def new_job(**changes: Any) -> NewJob:
    job = NewJob(
        id=JobId(new_id()),
        namespace=NAMESPACE,
        partition=PARTITION,
        priority=3,
        aging=AGING,
        input=b"{}",
        input_hash=1,
    )
    return replace(job, **changes)


def failure(message: str = "no route to host") -> Failure:
    return Failure(type="OSError", message=message)


SUSPECTED = Suspicion(crashes=1)
"""After one takeover."""


def request(
    *partitions: Partition,
    rules: tuple[LimitRule, ...] = (),
    suspicion: Suspicion = UNSUSPECTED,
    **changes: Any,
) -> ClaimRequest:
    """A claim from partitions, or from those of their jobs under a suspicion."""
    wanted = ClaimRequest(
        namespace=NAMESPACE,
        worker=WORKER,
        partitions=[
            PartitionClaim(
                partition=with_suspicion(partition.text, suspicion),
                queue=partition.queue,
                rules=rules,
            )
            for partition in partitions or (PARTITION,)
        ],
        limit=100,
        lease=LEASE,
    )
    return replace(wanted, **changes)


async def insert(store: Store, **changes: Any) -> JobId:
    [inserted] = await store.jobs.insert([new_job(**changes)])
    return inserted.id


async def insert_many(store: Store, count: int, **changes: Any) -> list[JobId]:
    inserted = await store.jobs.insert([new_job(**changes) for _ in range(count)])
    return [each.id for each in inserted]


async def claim(store: Store, *partitions: Partition, **changes: Any) -> Claimed:
    return await store.jobs.claim(request(*partitions, **changes))


async def claim_ids(store: Store, *partitions: Partition, **changes: Any) -> list[JobId]:
    claimed = await claim(store, *partitions, **changes)
    return [job.claim.id for job in claimed.jobs]


async def claim_one(store: Store, *partitions: Partition, **changes: Any) -> Claim:
    claimed = await claim(store, *partitions, limit=1, **changes)
    [job] = claimed.jobs
    return job.claim


async def claim_new(
    store: Store, *, worker: WorkerId = WORKER, lease: timedelta = LEASE, **changes: Any
) -> Claim:
    """Insert a job and claim it. Nothing else may wait in its partition."""
    job = new_job(**changes)
    await store.jobs.insert([job])
    claimed = await claim_one(
        store, job.partition, namespace=job.namespace, worker=worker, lease=lease
    )
    assert claimed.id == job.id, "another job of the partition was claimed instead"
    return claimed


async def settle(store: Store, claim: Claim, outcome: Outcome, **changes: Any) -> Status | None:
    settlement = Settlement(claim=claim, outcome=outcome)
    [status] = await store.jobs.settle([replace(settlement, **changes)])
    return status


async def close_limit(store: Store, namespace: str, key: str, until: datetime) -> None:
    """Let nothing start under ``key`` before ``until``, as an attempt does that met the limit."""
    claimed = await claim_new(
        store, namespace=namespace, partition=Partition(queue="default", task="closer")
    )
    await settle(store, claimed, Retried(failure=failure(), until=until, closes_limit=key))


async def insert_in_status(store: Store, status: Status, **changes: Any) -> Claim:
    """Bring a new job into a status; the claim is its last one, or what one would look like."""
    outcomes: dict[Status, Outcome] = {
        Status.COMPLETED: Completed(output=b"1"),
        Status.FAILED: Failed(failure=failure()),
        Status.DEAD: DeadLettered(failure=failure()),
        Status.CANCELLED: Cancelled(),
        Status.PAUSED: Parked(),
    }
    if status is Status.SCHEDULED:
        changes.setdefault("delay", MINUTE)
    if status in (Status.WAITING, Status.SCHEDULED, Status.DISABLED):
        claimed = Claim(id=await insert(store, **changes), epoch=0)
    else:
        claimed = await claim_new(store, **changes)
    if status is Status.DISABLED:
        await store.admin.change_jobs(Transition.DISABLE, None, [claimed.id])
    elif status is Status.ABORTING:
        await store.admin.change_jobs(Transition.ABORT, None, [claimed.id])
    elif status in outcomes:
        await settle(store, claimed, outcomes[status])
    assert await status_of(store, claimed.id) is status
    return claimed


async def read_job(store: Store, id: JobId) -> Job:
    job = await store.queries.get_job(None, id)
    assert job is not None, f"job {id} is not there"
    return job


async def status_of(store: Store, id: JobId) -> Status:
    return (await read_job(store, id)).status


async def job_record(
    store: Store, id: JobId
) -> tuple[Job | None, JobState | None, list[FailedAttempt]]:
    """Everything that can be read of one job."""
    states = await store.queries.job_states([id])
    return (
        await store.queries.get_job(None, id),
        states.get(id),
        await store.queries.failed_attempts(id),
    )


def worker_info(**changes: Any) -> WorkerInfo:
    info = WorkerInfo(
        id=WORKER,
        namespace=NAMESPACE,
        host="host-1",
        pid=4711,
        queues=("mail", "default"),
        tasks=("send",),
        tags=None,
        concurrency=16,
        lease=LEASE,
        flows=("orders@v1", "orders@v2"),
    )
    return replace(info, **changes)


# Runs


RUN = RunId("order-42")
CHILD = RunId("order-42/ship")
FLOW, VERSION = "orders", "v1"
DONE, CONFLICT, STALE = CommitState.DONE, CommitState.CONFLICT, CommitState.STALE
RUNNING, WAITING, PAUSED = RunStatus.RUNNING, RunStatus.WAITING, RunStatus.PAUSED
COMPLETED, FAILED = RunStatus.COMPLETED, RunStatus.FAILED
CANCELLED, QUEUED = RunStatus.CANCELLED, RunStatus.QUEUED

_tokens = count(1_000_000)


def node_partition(task: str = "pack_item", version: str = VERSION, **changes: Any) -> Partition:
    return replace(Partition(queue="packing", task=task, flow=f"{FLOW}@{version}"), **changes)


NODE_PARTITION = node_partition()


def event(text: str = "event", value: str | None = None) -> NewEvent:
    return NewEvent(
        data=f'{{"type":"{text}"}}'.encode(),
        value=None if value is None else f'"{value}"'.encode(),
    )


def node_job(key: str = "pack", run: RunId = RUN, **changes: Any) -> NewJob:
    job = NewJob(
        id=JobId(new_id()),
        namespace=NAMESPACE,
        partition=NODE_PARTITION,
        priority=4,
        aging=AGING,
        input=f'[["{key}"],{{}}]'.encode(),
        input_hash=7,
        node=NodeRef(run=run, key=key),
    )
    return replace(job, **changes)


def timer(key: str = "delay", **changes: Any) -> NewWait:
    return replace(NewWait(key=key, type=WaitType.TIMER), **changes)


def signal(key: str = "ask", **changes: Any) -> NewWait:
    return replace(NewWait(key=key, type=WaitType.SIGNAL, name="paid"), **changes)


def external(key: str = "carrier", **changes: Any) -> NewWait:
    return replace(NewWait(key=key, type=WaitType.EXTERNAL, name="label"), **changes)


def approval(key: str = "check", **changes: Any) -> NewWait:
    """Without deciders by default."""
    return replace(NewWait(key=key, type=WaitType.APPROVAL, name="Ship it?"), **changes)


def child_wait(key: str = "ship", child: RunId = CHILD) -> NewWait:
    return NewWait(key=key, type=WaitType.CHILD, name=child)


def new_run(**changes: Any) -> NewRun:
    """A run of one event, and nothing else by default."""
    run = NewRun(
        id=RUN,
        namespace=NAMESPACE,
        flow=FLOW,
        version=VERSION,
        status=RUNNING,
        events=(event("submitted", "input"),),
        summary=b'{"by":"ann"}',
    )
    return replace(run, **changes)


def new_child(**changes: Any) -> NewRun:
    child = new_run(
        id=CHILD,
        flow="shipping",
        version="v7",
        parent=Parent(run=RUN, key="ship"),
        events=(event("child submitted", "parcel"),),
    )
    return replace(child, **changes)


async def submit(store: Store, **changes: Any) -> Run:
    return (await store.runs.submit(new_run(**changes))).run


def step(expected: int = 1, **changes: Any) -> RunCommit:
    """One more event on top of ``expected``."""
    commit = RunCommit(
        namespace=NAMESPACE,
        run=RUN,
        expected=expected,
        token=next(_tokens),
        events=(event("step", "output"),),
        status=RUNNING,
    )
    return replace(commit, **changes)


async def commit(store: Store, expected: int = 1, **changes: Any) -> CommitResult:
    answer = await store.runs.commit([step(expected, **changes)])
    [result] = answer.results
    return result


async def commit_next(store: Store, **changes: Any) -> None:
    """Commit on top of whatever the run's last event is."""
    run = await read_run(store, changes.get("run", RUN), changes.get("namespace", NAMESPACE))
    result = await commit(store, run.number, **changes)
    assert result.state is DONE, f"the commit was answered with {result}"


def finishes(claimed: Claim) -> NodeSettlement:
    return NodeSettlement(claim=claimed, job_outcome=Finishes())


def continues(claimed: Claim, job: NewJob) -> NodeSettlement:
    return NodeSettlement(claim=claimed, job_outcome=Continues(job=job))


def retries(claimed: Claim, outcome: Any) -> NodeSettlement:
    return NodeSettlement(claim=claimed, job_outcome=Retries(outcome=outcome))


async def claim_nodes(store: Store, *partitions: Partition, **changes: Any) -> list[ClaimedJob]:
    claimed = await claim(
        store, *(partitions or (NODE_PARTITION,)), **{"namespace": NAMESPACE, **changes}
    )
    return claimed.jobs


async def claim_node(store: Store, *partitions: Partition, **changes: Any) -> Claim:
    [job] = await claim_nodes(store, *partitions, limit=1, **changes)
    return job.claim


async def claim_new_node(store: Store, **changes: Any) -> Claim:
    """Submit a run of one job, and claim that."""
    await submit(store, jobs=(node_job(**changes),))
    return await claim_node(store, changes.get("partition", NODE_PARTITION))


async def is_still_claimed(store: Store, claimed: Claim) -> bool:
    return not (await store.jobs.check([claimed])).lost


async def renew(store: Store, claimed: Claim) -> None:
    await store.jobs.renew(WORKER, [claimed], LEASE)


async def read_run(store: Store, id: RunId = RUN, namespace: str = NAMESPACE) -> Run:
    run = (await store.queries.get_runs([(namespace, id)]))[0]
    assert run is not None, f"run {id} is not there"
    return run


async def load(store: Store, id: RunId = RUN, number: int | None = 0) -> LoadedRun:
    """A run with all its events, by default."""
    [loaded] = await store.runs.load([EventsAfter(namespace=NAMESPACE, id=id, number=number)])
    assert loaded is not None, f"run {id} is not there"
    return loaded


async def jobs_by_key(store: Store, id: RunId = RUN) -> dict[str, Job]:
    jobs = await store.queries.run_jobs(NAMESPACE, id)
    return {job.node.key: job for job in jobs if job.node is not None}


async def waits_by_key(store: Store, id: RunId = RUN) -> dict[str, Wait]:
    return {wait.key: wait for wait in await store.queries.run_waits(NAMESPACE, id)}


async def listed_keys(store: Store, limit: int = 100, **filter: Any) -> list[str]:
    waits = await store.queries.list_waits(WaitFilter(**{"namespace": NAMESPACE, **filter}), limit)
    return [wait.key for wait in waits]


async def due_keys(store: Store, namespace: str = NAMESPACE) -> list[str]:
    return [wait.key for wait in await store.maintenance.due_waits(namespace, 100)]


RunRecord = tuple[
    LoadedRun | None, LoadedRun | None, list[Job | None], list[list[FailedAttempt]], list[Wait]
]


async def run_record(store: Store, id: RunId = RUN, namespace: str = NAMESPACE) -> RunRecord:
    """Everything that can be read of one run."""
    [whole, short] = await store.runs.load(
        [
            EventsAfter(namespace=namespace, id=id, number=0),
            EventsAfter(namespace=namespace, id=id),
        ]
    )
    ids = [job.id for job in await store.queries.run_jobs(namespace, id)]
    waits = sorted(await store.queries.run_waits(namespace, id), key=lambda wait: wait.key)
    return (
        whole,
        short,
        [await store.queries.get_job(namespace, id) for id in ids],
        [await store.queries.failed_attempts(id) for id in ids],
        waits,
    )


# Schedules


NAME = "nightly"
START = datetime(2030, 1, 1, tzinfo=UTC)
"""Where the clock of these tests begins."""
TICK = RunId("nightly@2030-01-01T01:00:00Z")

_revisions = count(1_000)


def new_schedule(name: str = NAME, **state: Any) -> Schedule:
    """One that has started something, and is due in an hour by default."""
    kept = ScheduleState(
        created_at=START - 9 * HOUR,
        changed_at=START - 8 * HOUR,
        anchor=START - 7 * HOUR,
        next_at=START + HOUR,
        due_at=START + HOUR,
        queued=(START - 2 * HOUR,),
        last_at=START - 3 * HOUR,
        last_run=RunId("nightly@before"),
        last_job=JobId("job-1"),
        looks=5,
        triggered=Started(at=START - 2 * HOUR, job=JobId("job-2")),
        started=1,
        skipped=2,
        missed=3,
        failed=4,
        history=(
            TickRecord(at=START - 4 * HOUR, result=TickResult.SKIPPED, reason="ünder way"),
            TickRecord(at=START - 3 * HOUR, result=TickResult.STARTED, run=RunId("nightly@before")),
        ),
    )
    return Schedule(
        namespace=NAMESPACE,
        name=name,
        revision=next(_revisions),
        definition=ScheduleDefinition(
            timetable=Timetable(
                cron="0 3 * * *", timezone="Europe/Berlin", end_at=START + 99 * HOUR
            ),
            call=FlowCall(flow=FLOW, version=VERSION, input=b"\x00\xff", aging_ms=7),
            overlap="queue",
            catch_up="all",
        ),
        state=replace(kept, **state),
    )


async def save_schedule(
    store: Store, name: str = NAME, *, namespace: str = NAMESPACE, **state: Any
) -> Schedule:
    """Write a new schedule."""
    new = replace(new_schedule(name, **state), namespace=namespace)
    answer = await store.schedules.commit(ScheduleCommit(schedule=new, expected=None))
    assert answer.state == "done"
    return new


def advanced(before: Schedule, **state: Any) -> Schedule:
    """The same schedule an hour further, with a revision of its own."""
    return replace(
        before,
        revision=next(_revisions),
        state=replace(before.state, **{"due_at": START + 2 * HOUR, **state}),
    )


async def commit_tick(store: Store, before: Schedule, **changes: Any) -> ScheduleAnswer:
    """Commit the next tick of a schedule, with a run by default."""
    commit = ScheduleCommit(
        schedule=advanced(before),
        expected=before.revision,
        run=new_run(id=TICK, jobs=(node_job(run=TICK),)),
    )
    return await store.schedules.commit(replace(commit, **changes))


async def read_schedule(store: Store, name: str = NAME, namespace: str = NAMESPACE) -> Schedule:
    [found] = await store.schedules.list(namespace, name)
    assert isinstance(found, Schedule)
    return found


def cooling_run(cooldown: timedelta = HOUR, **changes: Any) -> NewRun:
    """A run with a job, of a flow that cools down."""
    id = changes.pop("id", None) or RunId(new_id())
    submitted = RunSubmitted(flow=FLOW, version=VERSION, aging_ms=1)
    run = new_run(
        id=id,
        events=(NewEvent(data=encode_event(submitted), value=b'"input"'),),
        jobs=(node_job(run=id),),
        cooldown=cooldown,
    )
    return replace(run, **changes)
