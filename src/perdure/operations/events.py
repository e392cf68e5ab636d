"""Events of jobs and runs for clients, from any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import declare, near
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.client_event import EVENTS, ClientEvent, EventFilter
from perdure.model.hint import Hint, HintType
from perdure.operations.backend import AnyFlow, AnyTask, flow_name
from perdure.operations.ends import Cursor, EndFollower, parse_cursor
from perdure.operations.live import LiveFollower
from perdure.operations.operation import Group, Role, operation
from perdure.tasks.task import Task

UNKNOWN_TYPE = declare(
    "events.unknown_type",
    "{value!r} is not an event[; did you mean {nearest:or}?]",
    "The events are listed in perdure.model.client_event.EVENTS",
)

POLL_SECONDS = 2.0
"""In case a hint was lost, and for ends that become visible late."""
SPACING_SECONDS = 0.05
"""Between reads, however many hints arrive."""


class Events(Group):
    """Events of jobs and runs."""

    @operation("events.stream", role=Role.VIEWER, one_namespace=True, streams=True)
    def stream(
        self,
        *,
        queue: str | None = None,
        task: AnyTask | None = None,
        flow: AnyFlow | None = None,
        types: Sequence[str] | None = None,
        after: str | None = None,
    ) -> AsyncGenerator[ClientEvent, None]:
        """Stream events of jobs and runs as they happen.

        Ends of jobs and runs come at least once as long as their rows are kept: those after the
        cursor ``after``, by default from when the iteration starts. Raises ``EventsGap`` if some of
        them were pruned.
        """
        wanted = event_filter(queue, task, flow, types)
        return self._follow(wanted, None if after is None else parse_cursor(after))

    async def _follow(
        self, wanted: EventFilter, after: Cursor | None, ready: asyncio.Future[str] | None = None
    ) -> AsyncGenerator[ClientEvent, None]:
        """Follow events; ``ready`` gets a cursor once no later event can be missed."""
        backend = self._backend
        store = await backend.store()
        ends = EndFollower(store, backend.namespace, wanted, backend.codec)
        woken = asyncio.Event()

        def wake(_: Hint) -> None:
            woken.set()

        live = LiveFollower(store, backend.namespace, wanted, backend.codec)
        unsubscribe = store.subscribe(wake, (HintType.CHANGED, HintType.RUN, HintType.LIVE))
        try:
            await (ends.start() if after is None else ends.resume(after))
            first = await live.start(woken) if wanted.wants_live else []
            if ready is not None and not ready.done():
                ready.set_result(ends.cursor)
            for event in first:
                yield replace(event, cursor=ends.cursor)
            while True:
                woken.clear()
                if wanted.wants_live:
                    async for event in live.read():
                        yield replace(event, cursor=ends.cursor)
                async for event in ends.read():
                    yield event
                await asyncio.sleep(SPACING_SECONDS)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await woken.wait()
        finally:
            unsubscribe()
            if wanted.wants_live and not backend.place.is_closed:
                await live.stop()


def event_filter(
    queue: Any = None, task: Any = None, flow: Any = None, types: Any = None
) -> EventFilter:
    names = None if types is None else check.listed(types, "types", "names of events")
    for name in names or ():
        if not isinstance(name, str) or name not in EVENTS:
            nearest = near(str(name), EVENTS)
            raise InvalidInput(UNKNOWN_TYPE.fault(("types",), value=name, nearest=nearest))
    return EventFilter(
        types=frozenset(EVENTS if names is None else names),
        queue=check.optional(check.stored_name, queue, "queue"),
        task=task.name
        if isinstance(task, Task)
        else check.optional(check.stored_name, task, "task"),
        flow=flow_name(flow),
    )
