"""Runs as this store keeps them: immutable values, replaced as a whole by each write."""

from __future__ import annotations

from datetime import datetime

from perdure.model.event import Parent, StoredEvent
from perdure.model.ids import RunId
from perdure.model.run import ENDED, Run, RunStatus, Snapshot, Wait, WaitKind
from perdure.model.value import Value

Place = tuple[str, RunId]
"""Where a run is: its namespace and its id."""
WaitPlace = tuple[str, RunId, str]
"""Where a wait is: that of its run, and its key."""
WaitAge = tuple[datetime, RunId, str]
"""What waits are listed by."""


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
    """That of the last commit."""
    snapshot: Snapshot | None = None
    has_cooldown: bool = False

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
        )


class KeptEvent(Value):
    event: StoredEvent
    token: int | None = None
    """That of the commit it came with."""


class StoredWait(Value):
    run: RunId
    namespace: str
    key: str
    kind: WaitKind
    name: str
    opened_at: datetime
    due_at: datetime | None
    deciders: tuple[str, ...]
    detail: bytes
    is_held: bool = False
    """It does not become due before its run goes on."""

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
            kind=self.kind,
            name=self.name,
            opened_at=self.opened_at,
            due_at=self.due_at,
            deciders=self.deciders,
            detail=self.detail,
        )
