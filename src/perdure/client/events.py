"""Handlers of events: subscriptions on top of the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from inspect import isawaitable
from typing import Any

from perdure.client.portal import CLOSED_MEANWHILE
from perdure.errors import EventsGap, StoreError
from perdure.model import check
from perdure.model.client_event import ClientEvent, EventFilter
from perdure.operations.backend import AnyFlow, AnyTask, Backend
from perdure.operations.ends import parse_cursor
from perdure.operations.events import Events, event_filter

Handler = Callable[[ClientEvent], Awaitable[object] | object]

RETRY_SECONDS = 1.0
_log = logging.getLogger("perdure.client")


class AsyncSubscription:
    """A handler of events, called until ``unsubscribe``, or until its client is closed."""

    __slots__ = ("_backend", "_is_over", "_task")

    def __init__(
        self, backend: Backend, deliver: Callable[[AsyncSubscription], Awaitable[None]]
    ) -> None:
        self._backend = backend
        self._is_over = False
        self._task = asyncio.ensure_future(deliver(self))
        backend.subscriptions.add(self._task)
        self._task.add_done_callback(backend.subscriptions.discard)

    @property
    def is_active(self) -> bool:
        return not (self._is_over or self._task.done() or self._backend.place.is_closed)

    def unsubscribe(self) -> None:
        """Stop calling the handler, which may do this itself."""
        self._is_over = True
        if self._task is not asyncio.current_task():
            self._task.cancel()


class AsyncEvents(Events):
    """Events of jobs and runs, as a stream or for handlers."""

    async def subscribe(
        self,
        handler: Handler,
        *,
        queue: str | None = None,
        task: AnyTask | None = None,
        flow: AnyFlow | None = None,
        types: Sequence[str] | None = None,
        after: str | None = None,
    ) -> AsyncSubscription:
        """Call a function, sync or async, for each event that happens from now on.

        With ``after``, also for jobs and runs that ended after the event with this cursor. If the
        handler raises, the exception is logged, and the next event follows.
        """
        return await self._subscribe(handler, event_filter(queue, task, flow, types), after)

    async def once(
        self,
        handler: Handler,
        *,
        queue: str | None = None,
        task: AnyTask | None = None,
        flow: AnyFlow | None = None,
        types: Sequence[str] | None = None,
        after: str | None = None,
    ) -> AsyncSubscription:
        """Like ``subscribe``, for the first event only."""
        wanted = event_filter(queue, task, flow, types)
        return await self._subscribe(handler, wanted, after, is_once=True)

    async def _subscribe(
        self, handler: Handler, wanted: EventFilter, after: str | None, *, is_once: bool = False
    ) -> AsyncSubscription:
        self._backend.require_namespace("events.subscribe")
        if not callable(handler):
            raise check.wrong_type(handler, "handler", "a function that takes an event")
        start = None if after is None else parse_cursor(after)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def deliver(subscription: AsyncSubscription) -> None:
            cursor = start
            while True:
                try:
                    async with aclosing(self._follow(wanted, cursor, ready)) as events:
                        async for event in events:
                            cursor = parse_cursor(event.cursor)
                            await call(handler, event)
                            if is_once or not subscription.is_active:
                                return
                except Exception as error:
                    if not ready.done():
                        raise
                    if not subscription.is_active:
                        return
                    _log.warning("event subscription interrupted", exc_info=True)
                    is_gap = isinstance(error, EventsGap)
                    cursor = None if is_gap else cursor or parse_cursor(ready.result())
                    await asyncio.sleep(RETRY_SECONDS)

        subscription = AsyncSubscription(self._backend, deliver)
        following = subscription._task
        try:
            either: list[asyncio.Future[Any]] = [ready, following]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            subscription.unsubscribe()
            raise
        if not ready.done():
            if following.cancelled():
                raise StoreError(CLOSED_MEANWHILE.fault())
            following.result()
        return subscription


async def call(handler: Callable[[Any], object], subject: Any) -> None:
    """Call a handler, plain or async; its exceptions are logged."""
    try:
        result = handler(subject)
        if isawaitable(result):
            await result
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        _log.exception("event handler awaited something that was cancelled")
    except Exception:
        _log.exception("event handler failed")
