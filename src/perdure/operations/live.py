"""Live events: a leased subscription that all workers know of before it starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from perdure import clock
from perdure.clock import new_id
from perdure.errors import StoreError
from perdure.model.client_event import (
    LISTENING,
    ClientEvent,
    EventFilter,
    decode_filters,
    encode_event,
)
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import ClaimedJob, Job, Status
from perdure.model.outcome import Outcome, Retried
from perdure.model.payload import Codec
from perdure.model.worker import is_live
from perdure.operations.backend import Backend
from perdure.store.contract import SUBSCRIBER_LEASE, Store

RENEW_SECONDS = 20.0
LISTEN_SECONDS = 6.0
"""By then each live worker has polled, even if it missed the hint, unless ``poll`` is longer."""
PAGE = 500


class LiveFollower:
    """Reads the live events that a filter selects."""

    def __init__(self, store: Store, namespace: str, wanted: EventFilter, codec: Codec) -> None:
        self._store = store
        self._namespace = namespace
        self._wanted = wanted
        self._codec = codec
        self._id = new_id()
        self._number = 0
        self._renew_at = 0.0
        self._unheard: set[str] = set()

    async def start(self, woken: asyncio.Event) -> list[ClientEvent]:
        """Subscribe, and wait until every live worker publishes; return the events so far."""
        store = self._store
        self._number = await self._subscribe()
        now = await store.now()
        workers = await store.queries.workers(self._namespace)
        self._unheard = {each.info.id for each in workers if is_live(each, now)}
        found: list[ClientEvent] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(LISTEN_SECONDS):
                while self._unheard:
                    woken.clear()
                    found += [event async for event in self._read()]
                    if self._unheard:
                        await woken.wait()
        return found

    async def read(self) -> AsyncIterator[ClientEvent]:
        if clock.monotonic() >= self._renew_at:
            await self._subscribe()
        async for event in self._read():
            yield event

    async def stop(self) -> None:
        await self._store.live.unsubscribe(self._namespace, self._id)

    async def _subscribe(self) -> int:
        self._renew_at = clock.monotonic() + RENEW_SECONDS
        wanted = msgspec.json.encode(self._wanted)
        return await self._store.live.subscribe(self._namespace, self._id, wanted, SUBSCRIBER_LEASE)

    async def _read(self) -> AsyncIterator[ClientEvent]:
        is_full = True
        while is_full:
            page = await self._store.live.read(self._namespace, self._number, PAGE)
            is_full = len(page) == PAGE
            for number, data in page:
                self._number = number
                event = self._decoded(data)
                if event is None:
                    continue
                if event.type == LISTENING:
                    if event.subscriber == self._id:
                        self._unheard.discard(event.worker or "")
                elif self._selects(event):
                    yield event

    def _decoded(self, data: bytes) -> ClientEvent | None:
        """None if it was written with another codec."""
        with suppress(Exception):  # a codec may raise anything
            return msgspec.json.decode(self._codec.decode(data), type=ClientEvent)
        return None

    def _selects(self, event: ClientEvent) -> bool:
        return self._wanted.selects(event.type, event.queue or "", event.task or "", event.flow)


async def publish_change(backend: Backend, name: str, id: JobId) -> None:
    """Publish what a command did to a job, if a client subscribes."""
    store, visible = await backend.store(), backend.visible
    if visible is not None and not await store.live.subscribers(visible):
        return
    job = await store.queries.get_job(visible, id)
    if job is not None:
        await _publish(backend, name, job)


async def publish_settled(
    backend: Backend,
    job: ClaimedJob | Job,
    outcome: Outcome,
    status: Status,
    worker: WorkerId | None = None,
) -> None:
    """Publish that a plain job was retried or parked; other outcomes are read from its row.

    The outcome is written, so an error of the store is not one of the call.
    """
    if name := _SETTLED.get(status):
        with suppress(StoreError):
            await _publish(backend, name, job, outcome, worker)


_SETTLED = {
    Status.PAUSED: "job.parked",
    Status.SCHEDULED: "job.retried",
    Status.WAITING: "job.retried",
}


async def _publish(
    backend: Backend,
    name: str,
    job: ClaimedJob | Job,
    outcome: Outcome | None = None,
    worker: WorkerId | None = None,
) -> None:
    store = await backend.store()
    place = job.partition if isinstance(job, ClaimedJob) else job
    filters = decode_filters(await store.live.subscribers(job.namespace))
    if not any(each.selects(name, place.queue, place.task, None) for each in filters.values()):
        return
    at, more = await store.now(), {}
    if isinstance(outcome, Retried):
        more = {"failure": outcome.failure, "next_at": outcome.until or at + outcome.delay}
    event = ClientEvent(
        type=name,
        at=at,
        namespace=job.namespace,
        job=job.claim.id if isinstance(job, ClaimedJob) else job.id,
        task=place.task,
        queue=place.queue,
        attempt=job.attempt,
        worker=worker,
        **more,  # type: ignore[arg-type]
    )
    await store.live.publish(job.namespace, [encode_event(event, backend.codec)])
