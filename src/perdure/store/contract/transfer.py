"""Transfer rows: the contents of a store in a form that all backends share, for export and import.

Only backends whose contents outlive the process have this part. Workers and leases are excluded:
they belong to the installation, not to the work.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from perdure.model.job import PRIORITY_DEFAULT, Status
from perdure.model.value import Value
from perdure.store.lifecycle import after_take_over


class TransferRow(Value, tag_field="row", forbid_unknown_fields=True, omit_defaults=True):
    """One row. Fields are named as the columns that both SQL backends have."""


class DefinitionRow(TransferRow, tag="definition"):
    namespace: str
    flow: str
    version: str
    data: bytes


class RunRow(TransferRow, tag="run"):
    serial: int
    """The number by which its events, snapshot and steps refer to it, within one export."""
    id: str
    namespace: str
    flow: str
    version: str
    status: str
    number: int
    """The number of its last event."""
    created_at: datetime
    updated_at: datetime
    summary: bytes
    finished_at: datetime | None = None
    parent_run: str | None = None
    parent_key: str | None = None
    has_cooldown: bool = False
    priority: int = PRIORITY_DEFAULT
    start_at: datetime | None = None
    started_at: datetime | None = None
    place_key: str | None = None
    place_limit: int | None = None
    rank: float | None = None
    settings: bytes | None = None
    sticky_worker: str | None = None


class EventRow(TransferRow, tag="event"):
    run_serial: int
    number: int
    at: datetime
    data: bytes
    value: bytes | None = None


class SnapshotRow(TransferRow, tag="snapshot"):
    run_serial: int
    number: int
    data: bytes


class WaitRow(TransferRow, tag="wait"):
    run_id: str
    namespace: str
    key: str
    type: str
    name: str
    opened_at: datetime
    detail: bytes
    due_at: datetime | None = None
    suspended: bool = False
    deciders: tuple[str, ...] = ()
    remaining: int | None = None


class JobRow(TransferRow, tag="job"):
    """A job, always unclaimed: see :func:`release_lease`."""

    id: str
    namespace: str
    queue: str
    task: str
    partition_key: str
    status: str
    priority: int
    rank: float
    input_hash: int
    input: bytes
    created_at: datetime
    ready_at: datetime
    epoch: int = 0
    attempt: int = 0
    failures: int = 0
    snoozes: int = 0
    crashes: int = 0
    max_attempts: int | None = None
    job_group: str | None = None
    fingerprint: str | None = None
    run_id: str | None = None
    node_key: str | None = None
    worker: str | None = None
    avoid_worker: str | None = None
    avoid_until: datetime | None = None
    deadline_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    hidden: bool = False
    progress: float = 0.0
    progress_message: str = ""
    progress_details: bytes | None = None
    policy: bytes | None = None
    output: bytes | None = None
    sticky_until: datetime | None = None
    disabled_at: datetime | None = None
    sticky_worker: str | None = None


class FailureRow(TransferRow, tag="failure"):
    """A failed attempt; rows are in the order in which they happened."""

    job_id: str
    attempt: int
    failed_at: datetime
    failure: bytes
    worker: str | None = None


class StepRow(TransferRow, tag="step"):
    """A step of a run or of a standalone job; rows are in the order in which they were stored."""

    owner: str
    name: str
    value: bytes
    run_serial: int | None = None
    job_id: str | None = None


class LimitRow(TransferRow, tag="limit"):
    namespace: str
    key: str
    closed_until: datetime | None = None
    closed_at: datetime | None = None
    last_start_at: datetime | None = None
    counts_until: datetime | None = None


class LimitStartRow(TransferRow, tag="limit_start"):
    namespace: str
    key: str
    started_at: datetime
    count: int


class QueueRow(TransferRow, tag="queue"):
    """A paused queue."""

    namespace: str
    name: str
    paused_at: datetime
    paused_by: str | None = None


class PrunedEndRow(TransferRow, tag="pruned_end"):
    """Up to which time of end jobs or runs were pruned, for followers of events."""

    namespace: str
    type: str
    until: datetime


class ScheduleRow(TransferRow, tag="schedule"):
    namespace: str
    name: str
    revision: int
    definition: bytes
    state: bytes
    due_at: datetime | None = None


class PastCountRow(TransferRow, tag="past_count"):
    """One counter of removed workers, for one task and queue."""

    namespace: str
    task: str
    queue: str
    name: str
    value: int


ROW_TYPES: tuple[type[TransferRow], ...] = (
    DefinitionRow,
    RunRow,
    EventRow,
    SnapshotRow,
    WaitRow,
    JobRow,
    FailureRow,
    StepRow,
    LimitRow,
    LimitStartRow,
    QueueRow,
    ScheduleRow,
    PastCountRow,
    PrunedEndRow,
)
"""In export order: referenced rows come first."""


class Contents(Value):
    """A summary of the contents, available before the rows are read."""

    at: datetime
    counts: Mapping[type[TransferRow], int]
    leases_until: datetime | None
    """When the last lease on a job expires; None if no job is claimed."""


class Dump(Protocol):
    """A consistent view of a store, unaffected by concurrent writes."""

    @property
    @abstractmethod
    def contents(self) -> Contents: ...

    @abstractmethod
    def batches(self) -> AsyncIterator[Sequence[TransferRow]]:
        """All rows, in batches of one type, in the order of ``ROW_TYPES``."""


class TransferStore(Protocol):
    """Export and import of all rows."""

    @abstractmethod
    def export_rows(self) -> AbstractAsyncContextManager[Dump]:
        """One consistent view, open until the end of the block.

        - Jobs are as ``release_lease`` leaves them.
        """

    @abstractmethod
    async def import_rows(self, batches: AsyncIterable[Sequence[TransferRow]]) -> None:
        """Write all rows, all or none, into an empty store.

        - Raises ``StoreNotEmpty``, and writes nothing, if the store has rows other than
          definitions.
        - An exception from reading the batches propagates, and nothing is written.
        - Rows keep their order, and rows added later come after them.
        """


def release_lease(
    job: JobRow, lease_until: datetime | None, was_alone: bool, now: datetime
) -> JobRow:
    """Return the job unclaimed, with a higher epoch: its worker cannot write to the new store.

    A claimed job is requeued with its attempt refunded, as by a stopping worker; an expired lease
    counts as a crash, as in a takeover.
    """
    if lease_until is None:
        return job
    is_dead = lease_until <= now
    after, key = after_take_over(Status(job.status), job.partition_key, was_alone=was_alone)
    released = replace(job, status=after.value, epoch=job.epoch + 1, crashes=job.crashes + is_dead)
    if after is Status.CANCELLED:
        return replace(released, finished_at=now)
    return replace(
        released,
        partition_key=key if is_dead else job.partition_key,
        attempt=job.attempt - (not is_dead),
        worker=None,
    )
