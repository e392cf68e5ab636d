"""Rows in memory: immutable, so that a change is detected by identity."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from perdure.model.event import Parent, StoredEvent
from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import (
    PRIORITY_DEFAULT,
    Claim,
    ClaimedJob,
    FailedAttempt,
    Job,
    JobState,
    NodeRef,
    Progress,
    Status,
)
from perdure.model.partition import (
    UNSUSPECTED,
    Partition,
    Suspicion,
    with_suspicion,
    with_worker,
)
from perdure.model.run import ENDED, Run, RunStatus, Snapshot, Wait, WaitType
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.value import Value

ENDED_BADLY = frozenset({Status.FAILED, Status.DEAD, Status.CANCELLED})

NO_PROGRESS = Progress(percent=0)

NOT_STICKY: Mapping[str, None] = MappingProxyType({"sticky_worker": None, "sticky_until": None})


class StoredJob(Value):
    id: JobId
    namespace: str
    partition: Partition
    status: Status
    priority: int
    rank: float
    created_at: datetime
    ready_at: datetime
    input: bytes
    input_hash: int
    group: str | None = None
    fingerprint: str | None = None
    max_attempts: int | None = None
    deadline_at: datetime | None = None
    policy: bytes | None = None
    node: NodeRef | None = None
    epoch: int = 0
    attempt: int = 0
    failures: int = 0
    snoozes: int = 0
    crashes: int = 0
    suspicion: Suspicion = UNSUSPECTED
    was_claimed_alone: bool = False
    incarnation: int | None = None
    """Of the last claim: whether its worker had no other job."""
    worker: WorkerId | None = None
    lease_until: datetime | None = None
    limit_keys: tuple[str, ...] = ()
    """The limits it counts under while claimed."""
    avoid_worker: WorkerId | None = None
    avoid_until: datetime | None = None
    sticky_worker: WorkerId | None = None
    """The only worker that may claim it until ``sticky_until``."""
    sticky_until: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    disabled_at: datetime | None = None
    """When it was last disabled."""
    is_hidden: bool = False
    progress: Progress = NO_PROGRESS
    output: bytes | None = None
    history: tuple[FailedAttempt, ...] = ()

    @property
    def partition_key(self) -> str:
        if self.sticky_worker is not None:
            return with_worker(self.partition.text, self.sticky_worker)
        return with_suspicion(self.partition.text, self.suspicion)

    @property
    def failure(self) -> Failure | None:
        """The last failure, if the job failed or is dead."""
        ended_badly = self.status in ENDED_BADLY and self.history
        return self.history[-1].failure if ended_badly else None

    def is_held_off(self, worker: WorkerId, now: datetime) -> bool:
        """Whether ``worker`` failed it so recently that others are preferred."""
        return (
            self.avoid_worker == worker
            and self.avoid_until is not None
            and self.avoid_until > now
            and self.ready_at <= now  # otherwise the clock was set back since
        )

    def as_claimed(self) -> ClaimedJob:
        return ClaimedJob(
            claim=Claim(id=self.id, epoch=self.epoch),
            namespace=self.namespace,
            partition=self.partition,
            input=self.input,
            attempt=self.attempt,
            failures=self.failures,
            snoozes=self.snoozes,
            max_attempts=self.max_attempts,
            policy=self.policy,
            group=self.group,
            deadline_at=self.deadline_at,
            created_at=self.created_at,
            priority=self.priority,
            crashes=self.crashes,
            suspicion=self.suspicion,
            node=self.node,
        )

    def as_job(self, *, with_values: bool) -> Job:
        return Job(
            id=self.id,
            namespace=self.namespace,
            queue=self.partition.queue,
            task=self.partition.task,
            tags=self.partition.tags,
            limit_keys=self.partition.keys,
            status=self.status,
            priority=self.priority,
            group=self.group,
            fingerprint=self.fingerprint,
            attempt=self.attempt,
            failures=self.failures,
            snoozes=self.snoozes,
            crashes=self.crashes,
            suspicion=self.suspicion,
            max_attempts=self.max_attempts,
            worker=self.worker,
            epoch=self.epoch,
            progress=self.progress,
            created_at=self.created_at,
            ready_at=self.ready_at,
            deadline_at=self.deadline_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            lease_until=self.lease_until,
            sticky_worker=self.sticky_worker,
            sticky_until=self.sticky_until,
            input=self.input if with_values else None,
            output=self.output if with_values else None,
            node=self.node,
        )

    def as_state(self) -> JobState:
        return JobState(
            id=self.id,
            status=self.status,
            attempt=self.attempt,
            progress=self.progress,
            output=self.output,
            failure=self.failure,
        )


Place = tuple[str, RunId]
"""The namespace and id of a run."""

WaitPlace = tuple[str, RunId, str]
"""The namespace and id of its run, and the key of the wait."""

WaitAge = tuple[datetime, RunId, str]
"""The order in which waits are listed."""


class StoredRun(Value):
    id: RunId
    namespace: str
    flow: str
    version: str
    status: RunStatus
    number: int
    parent: Parent | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    summary: bytes
    token: int | None = None
    """The token of the last commit."""
    snapshot: Snapshot | None = None
    has_cooldown: bool = False
    priority: int = PRIORITY_DEFAULT
    start_at: datetime | None = None
    started_at: datetime | None = None
    place_key: str | None = None
    place_limit: int | None = None
    rank: float | None = None
    settings: RunSettings = NO_SETTINGS
    sticky_worker: WorkerId | None = None
    """The worker that executed its last node, if its nodes stay with one."""

    @property
    def place(self) -> Place:
        return self.namespace, self.id

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    def as_run(self) -> Run:
        return Run(
            id=self.id,
            namespace=self.namespace,
            flow=self.flow,
            version=self.version,
            status=self.status,
            number=self.number,
            parent=self.parent,
            created_at=self.created_at,
            updated_at=self.updated_at,
            finished_at=self.finished_at,
            summary=self.summary,
            priority=self.priority,
            start_at=self.start_at,
            started_at=self.started_at,
            settings=self.settings,
        )


class StoredRunEvent(Value):
    event: StoredEvent
    token: int | None = None
    """The token of its commit."""


class StoredWait(Value):
    run: RunId
    namespace: str
    key: str
    type: WaitType
    name: str
    opened_at: datetime
    due_at: datetime | None
    deciders: tuple[str, ...]
    detail: bytes
    is_suspended: bool = False
    """Whether it is kept from becoming due until its run resumes."""
    remaining: timedelta | None = None
    """What is left of a stopped timer."""

    @property
    def place(self) -> WaitPlace:
        return self.namespace, self.run, self.key

    @property
    def age(self) -> WaitAge:
        return self.opened_at, self.run, self.key

    def as_wait(self) -> Wait:
        return Wait(
            run=self.run,
            namespace=self.namespace,
            key=self.key,
            type=self.type,
            name=self.name,
            opened_at=self.opened_at,
            due_at=self.due_at,
            deciders=self.deciders,
            detail=self.detail,
            remaining=self.remaining,
        )
