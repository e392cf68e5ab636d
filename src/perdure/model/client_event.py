"""Events for clients: their names with the source of each, and what selects them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model.failure import Failure
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, Progress, Status
from perdure.model.payload import Codec, from_json
from perdure.model.run import ENDED
from perdure.model.value import Value


class EventSource(StrEnum):
    JOB = "job"
    """The row of a job that ended: delivered at least once as long as the row is kept."""
    RUN = "run"
    """The row of a run that ended: delivered at least once as long as the row is kept."""
    WAIT = "wait"
    """The row of an open approval: delivered at least once while it is open."""
    LIVE = "live"
    """Published when it happens, while a client subscribes."""


EVENTS: Mapping[str, EventSource] = {
    **{f"job.{status}": EventSource.JOB for status in sorted(FINISHED)},
    **{f"run.{status}": EventSource.RUN for status in sorted(ENDED)},
    "approval.opened": EventSource.WAIT,
    **dict.fromkeys(
        (
            "job.aborting",
            "job.claim_lost",
            "job.disabled",
            "job.enabled",
            "job.parked",
            "job.progressed",
            "job.requeued",
            "job.resumed",
            "job.retried",
            "job.started",
            "job.taken_over",
            "node.cancelled",
            "node.completed",
            "node.failed",
        ),
        EventSource.LIVE,
    ),
}
"""Every event by name, with its source."""
LISTENING = "worker.listening"
"""Published by a worker that has learned of a subscriber, for that subscriber."""


RESULT_MAX_BYTES = 64 * 1024
"""The largest result that an event carries."""
LIVE_RESULT_MAX_BYTES = 4 * 1024
"""The largest result of a node that a live event carries: each is written once more."""
EVENT_MAX_BYTES = 128 * 1024
"""The largest live event with the details of progress and the traceback of a failure."""


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
    worker: str | None = None
    """That published a live event."""
    holder: str | None = None
    """Of a job that was taken over: the worker that had it."""
    next_at: datetime | None = None
    """Of a retried job: when the next attempt may start."""
    progress: Progress | None = None
    result: Any = None
    """On completion, as plain values."""
    is_result_omitted: bool = False
    """The result is larger than events carry."""
    failure: Failure | None = None
    reason: str | None = None
    """Of a cancelled or skipped run."""
    by: str | None = None
    """Who cancelled the run."""
    subscriber: str | None = None
    """For whom a worker listens."""


class EventFilter(Value):
    """Selects events for a follower. None means any."""

    types: frozenset[str] = frozenset(EVENTS)
    queue: str | None = None
    task: str | None = None
    flow: str | None = None

    @property
    def wants_live(self) -> bool:
        return any(EVENTS[each] is EventSource.LIVE for each in self.types)

    def selects(self, type: str, queue: str, task: str, flow: str | None) -> bool:
        """Whether a live event of a job is wanted."""
        return (
            type in self.types
            and self.queue in (None, queue)
            and self.task in (None, task)
            and self.flow in (None, flow)
        )

    def statuses(self, source: EventSource) -> tuple[str, ...]:
        """The statuses of ended jobs, or of ended runs, whose rows the filter selects."""
        is_other = self.flow if source is EventSource.JOB else self.queue or self.task
        if is_other is not None:
            return ()
        wanted = (each for each in sorted(self.types) if EVENTS[each] is source)
        return tuple(each.partition(".")[2] for each in wanted)


def decode_filters(stored: Mapping[str, bytes]) -> dict[str, EventFilter]:
    """The filters of subscribers by id, except those of clients in a newer version."""
    found: dict[str, EventFilter] = {}
    for id, filter in stored.items():
        with suppress(msgspec.DecodeError):
            found[id] = msgspec.json.decode(filter, type=EventFilter)
    return found


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


def encode_event(event: ClientEvent, codec: Codec) -> bytes:
    """An event as published, without its large parts if it is too large."""
    data = msgspec.json.encode(event)
    if len(data) > EVENT_MAX_BYTES:
        progress = event.progress and replace(event.progress, details=None)
        failure = event.failure and replace(event.failure, traceback="", causes=())
        data = msgspec.json.encode(replace(event, progress=progress, failure=failure))
    return codec.encode(data)


def bounded_result(
    output: bytes | None, codec: Codec, most: int = RESULT_MAX_BYTES
) -> tuple[Any, bool]:
    """A stored result as plain values, and whether it was left out."""
    if output is None:
        return None, False
    try:
        plain = codec.decode(output)
        return (None, True) if len(plain) > most else (from_json(plain), False)
    except Exception:  # a codec may raise anything, and must not hold up later events
        return None, True
