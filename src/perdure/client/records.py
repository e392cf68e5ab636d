"""What a client answers about jobs, queues and acts: plain values."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from perdure.client.results import decoded
from perdure.diagnostics import Action, declare
from perdure.errors import IllegalTransition, JobNotFound, NoResult
from perdure.model.ids import JobId
from perdure.model.job import (
    FINISHED,
    Job,
    JobState,
    Progress,
    QueueDepth,
    Status,
    StatusChange,
)
from perdure.model.payload import Codec, PlainCodec
from perdure.model.value import Value
from perdure.store.lifecycle import Operation

NOT_COMPLETED = declare(
    "job.not_completed", "job {job_id} has no result; it is {status}", "To see why"
)


class JobRecord(Job):
    """A job as the record shows it, with its values readable."""

    codec: Codec = PlainCodec()

    @property
    def args(self) -> list[Any]:
        """The positional arguments it was enqueued with, as plain values."""
        args: list[Any] = self._call[0]
        return args

    @property
    def kwargs(self) -> dict[str, Any]:
        kwargs: dict[str, Any] = self._call[1]
        return kwargs

    @property
    def result(self) -> Any:
        """Its result as plain values; ``NoResult`` unless it completed."""
        if self.output is None:
            why = Action("jobs.explain", {"id": self.id})
            raise NoResult(NOT_COMPLETED.fault((), why, job_id=self.id, status=self.status))
        return decoded(self.output, self.codec)

    @property
    def _call(self) -> Any:
        return decoded(self.input or b"[[],{}]", self.codec)


def record_of(job: Job, codec: Codec) -> JobRecord:
    return JobRecord(**asdict(job), codec=codec)


class JobUpdate(Value):
    """What ``watch()`` yields: the job's state after a change."""

    id: JobId
    status: Status
    attempt: int
    progress: Progress

    @property
    def is_final(self) -> bool:
        return self.status in FINISHED


def update_of(state: JobState) -> JobUpdate:
    return JobUpdate(
        id=state.id, status=state.status, attempt=state.attempt, progress=state.progress
    )


class AbortOutcome(Value):
    """What an abort did. Aborting a finished job does nothing, and this says so."""

    id: JobId
    before: Status
    after: Status

    @property
    def was_finished(self) -> bool:
        return self.before in FINISHED

    def __str__(self) -> str:
        if self.was_finished:
            return f"job {self.id} was {self.before} already; nothing was changed"
        return f"job {self.id} is {self.after}; it was {self.before}"


def one_of(id: JobId, moved: list[StatusChange]) -> StatusChange:
    """The one move of an act on one job."""
    if not moved:
        raise JobNotFound(job_id=id)
    return moved[0]


def changed_by(operation: Operation, id: JobId, moved: list[StatusChange]) -> StatusChange:
    """The one move of an act that must apply."""
    move = one_of(id, moved)
    if move.before is move.after:
        raise IllegalTransition(job_id=id, operation=operation, status=move.before)
    return move


class GroupAbort(Value):
    """What aborting a group did."""

    group: str
    cancelled: int
    """Jobs that were not running and are cancelled."""
    aborting: int
    """Jobs that are running and were told to stop."""


def group_abort(group: str, moved: list[StatusChange]) -> GroupAbort:
    return GroupAbort(
        group=group,
        cancelled=sum(each.after is Status.CANCELLED for each in moved),
        aborting=sum(each.after is Status.ABORTING for each in moved),
    )


class Depth(Value):
    """How many jobs there are, by status and by queue."""

    entries: tuple[QueueDepth, ...]

    @property
    def by_status(self) -> dict[Status, int]:
        """The total of every status, zeros included."""
        totals = dict.fromkeys(Status, 0)
        for entry in self.entries:
            totals[entry.status] += entry.count
        return totals

    @property
    def by_queue(self) -> dict[str, dict[Status, int]]:
        """``{queue: {status: count}}`` for what there is."""
        queues: dict[str, dict[Status, int]] = {}
        for entry in self.entries:
            counts = queues.setdefault(entry.queue, {})
            counts[entry.status] = counts.get(entry.status, 0) + entry.count
        return queues

    @property
    def total(self) -> int:
        return sum(entry.count for entry in self.entries)
