"""Runs at one moment, made by hand: a flow, how far its nodes are, who works on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from immutables import Map

from perdure import Flow, Progress, RunStatus, Status, task
from perdure.flows.built import BuiltFlow
from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import CLAIMED, Job, NodeRef
from perdure.model.run import (
    LiveType,
    MapState,
    NodeState,
    NodeStatus,
    RunState,
    Wait,
    WaitType,
)
from perdure.model.worker import WorkerInfo, WorkerState
from perdure.operations.records import EventRecord, RunRecord, RunSnapshot

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
RUN = RunId("order-7")
LEASE = timedelta(seconds=10)


@task
def work(value: Any) -> Any:
    return value


def shop() -> BuiltFlow:
    """A fork with a map in it, an approval, and two ways on from there."""
    return (
        Flow("shop")
        .then(work, name="fetch")
        .fork(
            items=Flow().map(work, name="pack"),
            price=[Flow().then(work, name="price"), Flow().then(work, name="tax")],
        )
        .join(work, name="bill")
        .approve("Refund 120?", name="review", deciders=["finance"], on_reject="no")
        .then(work, name="ship")
        .node("refuse", work, after="review:no")
        .build()
    )


def snapshot(
    nodes: Mapping[str, NodeStatus | NodeState] | None = None,
    *,
    jobs: Sequence[Job] = (),
    waits: Sequence[Wait] = (),
    workers: Sequence[WorkerState] = (),
    failures: Mapping[str, Failure] | None = None,
    **more: Any,
) -> RunSnapshot:
    """``more`` are fields of the state, and ``flow`` or ``status`` of the run."""
    flow = more.pop("flow", None) or shop()
    status = more.pop("status", RunStatus.RUNNING)
    live = {job.node.key: LiveType.JOB for job in jobs if job.node}
    live |= {wait.key: LiveType.WAIT for wait in waits}
    states = {id: _node(each) for id, each in (nodes or {}).items()}
    state = RunState(status=status, nodes=Map(states), live=Map(live), **more)
    is_ended = state.is_ended
    run = RunRecord(
        id=RUN,
        namespace="default",
        flow=flow.name,
        version=flow.version,
        status=status,
        number=1,
        parent=None,
        created_at=NOW - timedelta(seconds=12),
        updated_at=NOW,
        finished_at=NOW if is_ended else None,
    )
    return RunSnapshot(
        run=run,
        graph=flow.graph,
        state=state,
        events=(),
        failures=failures or {},
        jobs=tuple(jobs),
        waits=tuple(waits),
        workers=tuple(workers),
        now=NOW,
    )


def _node(given: NodeStatus | NodeState) -> NodeState:
    return given if isinstance(given, NodeState) else NodeState(status=given)


def items(count: int, done: int) -> MapState:
    refs = Map({item: item + 2 for item in range(done)})
    return MapState(count=count, launched=count, refs=refs)


def job(key: str, status: Status = Status.ACTIVE, **more: Any) -> Job:
    """One that ``ann`` began three seconds ago, if it is held."""
    is_claimed = status in CLAIMED
    fields: dict[str, Any] = {
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "worker": WorkerId("ann") if is_claimed else None,
        "progress": Progress(percent=0),
        "started_at": NOW - timedelta(seconds=3) if is_claimed else None,
        "ready_at": NOW,
        "lease_until": NOW + timedelta(seconds=4) if is_claimed else None,
    }
    return Job(
        id=JobId(f"job-{key}"),
        namespace="default",
        queue="default",
        task="work",
        tags=(),
        status=status,
        priority=3,
        group=None,
        fingerprint=None,
        max_attempts=None,
        epoch=1,
        created_at=NOW,
        deadline_at=None,
        finished_at=None,
        node=NodeRef(run=RUN, key=key),
        **(fields | more),
    )


def wait(key: str, found_type: WaitType, name: str = "", **more: Any) -> Wait:
    fields: dict[str, Any] = {"due_at": None} | more
    return Wait(
        run=RUN, namespace="default", key=key, type=found_type, name=name, opened_at=NOW, **fields
    )


def worker(id: str, seen_seconds_ago: float = 0) -> WorkerState:
    info = WorkerInfo(
        id=WorkerId(id),
        namespace="default",
        host="here",
        pid=1,
        queues=("default",),
        tasks=(),
        tags=None,
        concurrency=2,
        lease=LEASE,
    )
    seen_at = NOW - timedelta(seconds=seen_seconds_ago)
    return WorkerState(info=info, started_at=NOW, seen_at=seen_at, running=())


def event(number: int, type: str = "node_completed", key: str = "fetch") -> EventRecord:
    return EventRecord(
        number=number,
        at=NOW,
        type=type,
        status=RunStatus.RUNNING,
        details={},
        node=key,
        key=key,
        value={"number": number},
    )
