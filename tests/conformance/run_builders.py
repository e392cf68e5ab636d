"""Builders and drivers for runs. No two fields that a store keeps have the same value."""

from __future__ import annotations

from itertools import count
from typing import Any

from msgspec.structs import replace

from perdure.clock import new_id
from perdure.model.event import NewEvent, Parent
from perdure.model.ids import JobId, RunId
from perdure.model.job import Claim, ClaimedJob, FailedAttempt, Job, NewJob, NodeRef
from perdure.model.partition import Partition
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
from perdure.store.contract import EventsAfter, Store
from tests.conformance.builders import AGING, LEASE, WORKER, claim

NAMESPACE = "team-a"
OTHER_NAMESPACE = "team-b"
RUN = RunId("order-42")
CHILD = RunId("order-42/ship")
FLOW, VERSION = "orders", "v1"
DONE, CONFLICT, STALE = CommitState.DONE, CommitState.CONFLICT, CommitState.STALE
RUNNING, WAITING, PAUSED = RunStatus.RUNNING, RunStatus.WAITING, RunStatus.PAUSED
COMPLETED, FAILED = RunStatus.COMPLETED, RunStatus.FAILED
CANCELLED = RunStatus.CANCELLED

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


def outside(key: str = "carrier", **changes: Any) -> NewWait:
    return replace(NewWait(key=key, type=WaitType.EXTERNAL, name="label"), **changes)


def approval(key: str = "check", **changes: Any) -> NewWait:
    """One that nobody is named for, unless told so."""
    return replace(NewWait(key=key, type=WaitType.APPROVAL, name="Ship it?"), **changes)


def child_wait(key: str = "ship", child: RunId = CHILD) -> NewWait:
    return NewWait(key=key, type=WaitType.CHILD, name=child)


def new_run(**changes: Any) -> NewRun:
    """A run of one event, and nothing else unless told so."""
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


async def go_on(store: Store, **changes: Any) -> None:
    """Commit on top of whatever the run's last event is."""
    run = await read_run(store, changes.get("run", RUN), changes.get("namespace", NAMESPACE))
    result = await commit(store, run.number, **changes)
    assert result.state is DONE, f"the commit was answered with {result}"


def ends(held: Claim) -> NodeSettlement:
    return NodeSettlement(claim=held, job_outcome=Finishes())


def continues(held: Claim, job: NewJob) -> NodeSettlement:
    return NodeSettlement(claim=held, job_outcome=Continues(job=job))


def repeats(held: Claim, outcome: Any) -> NodeSettlement:
    return NodeSettlement(claim=held, job_outcome=Retries(outcome=outcome))


async def claim_nodes(store: Store, *partitions: Partition, **changes: Any) -> list[ClaimedJob]:
    claimed = await claim(
        store, *(partitions or (NODE_PARTITION,)), **{"namespace": NAMESPACE, **changes}
    )
    return claimed.jobs


async def claim_node(store: Store, *partitions: Partition, **changes: Any) -> Claim:
    [job] = await claim_nodes(store, *partitions, limit=1, **changes)
    return job.claim


async def held_node(store: Store, **changes: Any) -> Claim:
    """Submit a run of one job, and claim that."""
    await submit(store, jobs=(node_job(**changes),))
    return await claim_node(store, changes.get("partition", NODE_PARTITION))


async def is_suspended(store: Store, held: Claim) -> bool:
    return not (await store.jobs.check([held])).lost


async def renew(store: Store, held: Claim) -> None:
    await store.jobs.renew(WORKER, [held], LEASE)


async def read_run(store: Store, id: RunId = RUN, namespace: str = NAMESPACE) -> Run:
    run = (await store.queries.get_runs([(namespace, id)]))[0]
    assert run is not None, f"run {id} is not there"
    return run


async def load(store: Store, id: RunId = RUN, number: int | None = 0) -> LoadedRun:
    """A run with all its events, unless told otherwise."""
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


async def record_of_run(store: Store, id: RunId = RUN, namespace: str = NAMESPACE) -> RunRecord:
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
