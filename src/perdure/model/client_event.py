"""Events for clients: their names with the source of each, and what selects them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from perdure.model.failure import Failure
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, Status
from perdure.model.run import ENDED
from perdure.model.value import Value


class EventSource(StrEnum):
    JOB = "job"
    """The row of a job that ended: delivered at least once as long as the row is kept."""
    RUN = "run"
    """The row of a run that ended: delivered at least once as long as the row is kept."""
    LIVE = "live"
    """Published when it happens, while somebody subscribes."""


EVENTS: Mapping[str, EventSource] = {
    **{f"job.{status}": EventSource.JOB for status in sorted(FINISHED)},
    **{f"run.{status}": EventSource.RUN for status in sorted(ENDED)},
}
"""Every event by name, with its source."""


class ClientEvent(Value, omit_defaults=True):
    """Something that happened to a job or a run."""

    type: str
    """A name of ``EVENTS``."""
    at: datetime
    namespace: str
    cursor: str = ""
    """To continue a stream after this event."""
    job: str | None = None
    task: str | None = None
    queue: str | None = None
    attempt: int | None = None
    run: str | None = None
    """The run, also of a job that executes a node."""
    flow: str | None = None
    node: str | None = None
    """The node with its iteration or item; of a failed run, the node that failed."""
    parent: str | None = None
    """Of a child run: the run that started it."""
    result: Any = None
    """On completion, as plain values."""
    is_result_omitted: bool = False
    """The result is larger than events carry."""
    failure: Failure | None = None
    reason: str | None = None
    """Of a cancelled or skipped run."""
    by: str | None = None
    """Who cancelled the run."""


class EventFilter(Value):
    """Selects events for a follower. None means any."""

    types: frozenset[str] = frozenset(EVENTS)
    queue: str | None = None
    task: str | None = None
    flow: str | None = None

    def statuses(self, source: EventSource) -> tuple[str, ...]:
        """The statuses of ended jobs, or of ended runs, whose rows the filter selects."""
        is_other = self.flow if source is EventSource.JOB else self.queue or self.task
        if is_other is not None:
            return ()
        wanted = (each for each in sorted(self.types) if EVENTS[each] is source)
        return tuple(each.partition(".")[2] for each in wanted)


class EndFilter(Value):
    """Selects ended jobs, or ended runs. None means any."""

    namespace: str
    statuses: tuple[str, ...]
    after: tuple[datetime, str]
    """Time of end and id: only later ones, in this order."""
    until: datetime
    queue: str | None = None
    task: str | None = None
    flow: str | None = None


class EndedJob(Value):
    """A job that ended, hidden ones too."""

    id: JobId
    status: Status
    at: datetime
    queue: str
    task: str
    attempt: int
