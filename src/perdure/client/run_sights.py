"""A run as it stands, looked at again and again: for those who want to see it go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from datetime import datetime

from perdure.client.access import Access
from perdure.client.run_acts import RunActs
from perdure.client.run_log import RunLog
from perdure.client.run_records import EventRecord, RunRecord, run_record
from perdure.errors import RunNotFound
from perdure.model.failure import Failure
from perdure.model.graph import Graph
from perdure.model.ids import RunId
from perdure.model.job import Job
from perdure.model.run import Run, RunState, Wait
from perdure.model.value import Value
from perdure.model.worker import WorkerState
from perdure.store.contract import EventsAfter, Store

EVERY_SECONDS = 0.25
"""Progress of a body is no event of its run: nothing but another look tells it."""
SPACING_SECONDS = 0.1
"""Between looks that events cause."""
SHARE_MAX = 4
"""A look is followed by a rest of so many times its own length: who looks on must not be a load."""


class RunSight(Value):
    """A run at one moment: how far it is, who works on it, and what it waits for."""

    run: RunRecord
    graph: Graph
    state: RunState
    events: tuple[EventRecord, ...]
    """What happened since the sight before; in the first one, since the beginning."""
    failures: Mapping[str, Failure]
    """By key: what the last attempt that failed left behind."""
    jobs: tuple[Job, ...]
    waits: tuple[Wait, ...]
    workers: tuple[WorkerState, ...]
    """Of the run's namespace, dead ones too."""
    now: datetime
    """By the store's clock."""


async def sights(access: Access, acts: RunActs, id: RunId) -> AsyncGenerator[RunSight, None]:
    """The run now, after everything that happens in it, and in between; the last has its end."""
    namespace = await acts.namespace_of(id)
    lookout = _Lookout(await access.store.opened(), acts, access, (namespace, id))
    clock = asyncio.get_running_loop().time
    with access.waiting_for_runs.watch((namespace, id), is_close=True) as watch:
        while True:
            began = clock()
            sight = await lookout.look()
            took = clock() - began
            yield sight
            if sight.state.is_ended:
                return
            await asyncio.sleep(max(SPACING_SECONDS, SHARE_MAX * took))
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await watch.next()


class _Lookout:
    """Reads what is new of one run, and what is around it."""

    def __init__(self, store: Store, acts: RunActs, access: Access, key: tuple[str, RunId]) -> None:
        self._store = store
        self._graphs = acts.graphs
        self._namespace, self._id = key
        self._log = RunLog(self._id, access.codec)
        self._failures: dict[str, Failure] = {}
        self._first: Run | None = None

    async def look(self) -> RunSight:
        # Before the events: a job that the events know to be over may still be seen, which the
        # state tells; one that is missing would look like nobody's.
        jobs = await self._store.queries.run_jobs(self._namespace, self._id)
        waits = await self._store.queries.run_waits(self._namespace, self._id)
        run, events = await self._news()
        state = self._log.state
        text = f"{state.flow}@{state.version}"
        return RunSight(
            run=run_record(run),
            graph=await self._graphs.load(self._store, self._namespace, text),
            state=state,
            events=tuple(events),
            failures=dict(self._failures),
            jobs=tuple(jobs),
            waits=tuple(waits),
            workers=tuple(await self._store.queries.workers(self._namespace)),
            now=await self._store.now(),
        )

    async def _news(self) -> tuple[Run, list[EventRecord]]:
        after = EventsAfter(namespace=self._namespace, id=self._id, number=self._log.state.number)
        [loaded] = await self._store.runs.load([after])
        if loaded is None or (self._first and self._first.created_at != loaded.run.created_at):
            raise RunNotFound(run_id=self._id)
        self._first = self._first or loaded.run
        events = self._log.take(loaded.events)
        for event in events:
            if event.key is not None and event.failure is not None:
                self._failures[event.key] = event.failure
        return loaded.run, events
