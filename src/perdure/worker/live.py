"""Publishes this worker's events to clients while any of them subscribes.

Without a subscriber it does not listen, so no events are created. It learns of subscribers from
hints and polls, and announces to each that it listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure import clock
from perdure.model.client_event import (
    LISTENING,
    LIVE_RESULT_MAX_BYTES,
    ClientEvent,
    EventFilter,
    bounded_result,
    decode_filters,
    encode_event,
)
from perdure.model.payload import Codec
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.worker.events import (
    AttemptAborting,
    AttemptCancelled,
    AttemptCompleted,
    AttemptDeadLettered,
    AttemptFailed,
    AttemptLost,
    AttemptParked,
    AttemptProgressed,
    AttemptRequeued,
    AttemptRetried,
    AttemptStarted,
    JobEvent,
    JobTakenOver,
    WorkerEvents,
)

SPACING_SECONDS = 0.2
"""Between two checks: on SQLite, any write of another process may mean a new subscriber."""
BATCH = 500
PENDING_MAX = 10_000
"""Events that wait for a slow store; the oldest are dropped."""

_TYPES: dict[type[JobEvent], str] = {
    AttemptStarted: "job.started",
    AttemptProgressed: "job.progressed",
    AttemptRetried: "job.retried",
    AttemptRequeued: "job.requeued",
    AttemptParked: "job.parked",
    AttemptAborting: "job.aborting",
    AttemptLost: "job.claim_lost",
    JobTakenOver: "job.taken_over",
}
_TYPES_OF_NODES: dict[type[JobEvent], str] = {
    AttemptCompleted: "node.completed",
    AttemptFailed: "node.failed",
    AttemptDeadLettered: "node.failed",
    AttemptCancelled: "node.cancelled",
}
"""Ends of other jobs are read from their rows."""

_log = logging.getLogger("perdure.worker")


class LiveEvents:
    def __init__(self, store: Store, namespace: str, codec: Codec, events: WorkerEvents) -> None:
        self._store = store
        self._namespace = namespace
        self._codec = codec
        self._events = events
        self._filters: dict[str, EventFilter] = {}
        self._stop_listening: Callable[[], None] | None = None
        self._pending: list[ClientEvent] = []
        self._sender: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A client may have subscribed."""
        self._woken.set()

    def note(self, poll: PollResult) -> None:
        if poll.has_subscribers or self._filters:
            self.wake()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SPACING_SECONDS)
            await self._woken.wait()
            self._woken.clear()
            await self.refresh()

    async def flush(self) -> None:
        """Wait until all pending events are published."""
        if self._sender is not None:
            await self._sender

    async def refresh(self) -> None:
        """Read the subscribers and their filters.

        Also called between registering the worker and its first claim: a subscriber waits only for
        registered workers.
        """
        try:
            found = await self._store.live.subscribers(self._namespace)
        except Exception:
            _log.exception("reading subscribers failed; retrying")
            return
        filters = decode_filters(found)
        new = filters.keys() - self._filters.keys()
        self._filters = filters
        if filters and self._stop_listening is None:
            self._stop_listening = self._events.listen(JobEvent, self._note)
        elif not filters and self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        for id in sorted(new):
            self._publish(self._event(LISTENING, subscriber=id))

    def _note(self, event: JobEvent) -> None:
        of_node = None if event.run_id is None else _TYPES_OF_NODES.get(type(event))
        name = of_node or _TYPES.get(type(event))
        if name is None:
            return
        wanted = self._filters.values()
        if not any(each.selects(name, event.queue, event.task, event.flow) for each in wanted):
            return
        output = getattr(event, "output", None)
        result, is_omitted = bounded_result(output, self._codec, LIVE_RESULT_MAX_BYTES)
        self._publish(
            self._event(
                name,
                job=event.job_id,
                task=event.task,
                queue=event.queue,
                attempt=event.attempt,
                run=event.run_id,
                flow=event.flow,
                node=event.node,
                holder=getattr(event, "holder", None),
                next_at=getattr(event, "next_at", None),
                progress=getattr(event, "progress", None),
                failure=getattr(event, "failure", None),
                result=result,
                is_result_omitted=is_omitted,
            )
        )

    def _event(self, name: str, **fields: object) -> ClientEvent:
        return ClientEvent(
            type=name,
            at=clock.system_clock(),
            namespace=self._namespace,
            worker=self._events.worker,
            **fields,  # type: ignore[arg-type]
        )

    def _publish(self, event: ClientEvent) -> None:
        self._pending.append(event)
        del self._pending[:-PENDING_MAX]
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._pending:
            batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
            try:
                data = [encode_event(event, self._codec) for event in batch]
                await self._store.live.publish(self._namespace, data)
            except Exception:  # live events are not worth a retry
                _log.exception(
                    "publishing live events failed", extra={"fields": {"events": len(batch)}}
                )
        self._sender = None
