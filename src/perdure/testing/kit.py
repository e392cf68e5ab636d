"""The testing kit: runs flows and tasks as in production, with a store and clock under test
control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, ParamSpec, Self, Unpack, overload

from perdure.client.client import AsyncClient
from perdure.client.facade import mirrors
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.flows.built import BuiltFlow
from perdure.flows.settings import RunOptions
from perdure.model import check
from perdure.model.ids import Key
from perdure.model.run import OnExisting
from perdure.model.times import Duration
from perdure.operations.backend import AnyFlow, AnyTask
from perdure.operations.page import PAGE_MAX
from perdure.operations.records import ScheduleRecord, WaitRecord
from perdure.operations.schedules import AnyTarget, Schedules
from perdure.tasks.task import Task
from perdure.testing.fakes import CallRecorder, MadeCall, Target
from perdure.testing.gate import KitStore, KitWorker, KitWorkerSettings
from perdure.testing.jobs import AsyncKitJob
from perdure.testing.runs import AsyncKitRun
from perdure.worker.grants import Grant
from perdure.worker.resources import fixed
from perdure.worker.secrets import Provider
from perdure.worker.worker import checked_concurrency

P = ParamSpec("P")

TURNED_BACK = declare(
    "testing.clock_turned_back", "the clock of the kit is at {now} and cannot go back to {moment}"
)


class AsyncKit:
    """An in-memory store, a worker, and a clock that stands still until the test advances it.

    Every call on the kit takes effect before it returns: all work that can run by then has run.
    ``client`` is an ordinary client for the code under test; its jobs and runs wait until
    ``run_until_idle`` or the next call on the kit.

    ``fakes`` replaces tasks, by task, task name or node id. All other tasks run for real, unless
    ``fakes_only`` forbids it, and get their resources from ``resources``, by name. ``now`` is the
    initial time. Task bodies run one at a time, so that each test run has the same order;
    ``concurrency`` allows more. ``timeout`` bounds the real time that bodies may take together.
    """

    def __init__(
        self,
        *,
        flows: Iterable[BuiltFlow] = (),
        tasks: Iterable[Task[..., Any]] = (),
        fakes: Mapping[Any, Any] | None = None,
        fakes_only: bool = False,
        now: datetime | None = None,
        concurrency: int = 1,
        timeout: Duration = "30s",
        secrets: Provider | None = None,
        grants: Sequence[Grant] = (),
        allow_scripts: bool = False,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        self._stores = KitStore(None if now is None else check.moment(now, "now"))
        self._recorder = CallRecorder(fakes_only=fakes_only)
        settings = KitWorkerSettings(
            concurrency=checked_concurrency(concurrency),
            timeout=check.span(timeout, "timeout", is_positive=True),
            secrets=secrets,
            grants=grants,
            allow_scripts=allow_scripts,
            lifespan=fixed(resources),
        )
        self._worker = KitWorker(self._stores, self._recorder, settings)
        self._submitted_count = 0
        self._known = (check.listed(tasks, "tasks", "tasks"), check.listed(flows, "flows", "flows"))
        self.client = AsyncClient(self._stores.store, tasks=self._known[0], flows=self._known[1])
        self.add(*self._known[0], *self._known[1])
        for target, outcome in _checked_fakes(fakes).items():
            self.fake(target, outcome)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.now}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        found_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._worker.close()
        await self.client.close()

    @property
    def now(self) -> datetime:
        """The current time of the kit's clock."""
        return self._stores.clock()

    @property
    def calls(self) -> list[MadeCall]:
        """All task executions so far, real or faked, in order."""
        return list(self._recorder.calls)

    def calls_of(self, target: Target) -> list[MadeCall]:
        """Return the executions of one task or node."""
        name = target.name if isinstance(target, Task) else target
        return [
            each
            for each in self._recorder.calls
            if name in (each.task, each.key) or name == _node_of(each)
        ]

    def add(self, *code: BuiltFlow | Task[..., Any]) -> None:
        """Register tasks and flows; ``submit``, ``enqueue`` and ``schedule`` register theirs."""
        for each in code:
            if isinstance(each, BuiltFlow):
                self._worker.add_flow(each)
            elif isinstance(each, Task):
                self._worker.add_task(each)
            else:
                raise check.wrong_type(each, "code", "a task, or a flow that was built")

    def fake(self, target: Target, outcome: Any) -> None:
        """Fake a task from now on, for all its calls or for those of one node.

        ``outcome`` is a value to return, an exception to raise, a function to call with the same
        arguments, or several of them with ``in_turn``. An unknown name is refused when the kit next
        runs something.
        """
        self._recorder.fakes.set(target, outcome)

    async def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncKitRun:
        """Submit a run and execute it as far as it can go now.

        The default ``id`` is the flow's name with a number: ``orders-1``. ``options`` are those of
        ``client.submit``.
        """
        if isinstance(flow, BuiltFlow):
            self.add(flow)
        self._submitted_count += 1
        name = flow.name if isinstance(flow, BuiltFlow) else flow
        id = id or f"{name}-{self._submitted_count}"
        handle = await self.client.submit(flow, input, id=id, on_conflict=on_conflict, **options)
        await self.run_until_idle()
        return AsyncKitRun(self.client, handle, self.run_until_idle)

    @overload
    async def enqueue(
        self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncKitJob: ...
    @overload
    async def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> AsyncKitJob: ...
    async def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> AsyncKitJob:
        """Enqueue a call of a task, as ``client.enqueue`` does, and run it if it is due."""
        if isinstance(task, Task):
            self.add(task.base)
        handle = await self.client.enqueue(task, *args, **kwargs)
        await self.run_until_idle()
        return AsyncKitJob(handle)

    @mirrors(Schedules.save)
    async def schedule(self, name: str, target: AnyTarget, **options: Any) -> ScheduleRecord:
        if isinstance(target, Task):
            self.add(target.base)
        elif isinstance(target, BuiltFlow):
            self.add(target)
        record = await self.client.schedules.save(name, target, **options)
        await self.run_until_idle()
        return record

    def run(self, id: str, flow: AnyFlow | None = None) -> AsyncKitRun:
        """Return a run by id, such as one started by a schedule, another run or the code under
        test."""
        return AsyncKitRun(self.client, self.client.runs.handle(id, flow), self.run_until_idle)

    def job(self, id: str, task: AnyTask | None = None) -> AsyncKitJob:
        """Return a job by id."""
        return AsyncKitJob(self.client.jobs.handle(id, task))

    async def runs(self, flow: AnyFlow | None = None) -> list[AsyncKitRun]:
        """Return all runs, oldest first."""
        records = await self.client.runs.list(flow=flow, limit=PAGE_MAX)
        meant = flow if isinstance(flow, BuiltFlow) else None
        return [self.run(each.id, meant) for each in reversed(records)]

    async def waiting(self) -> list[WaitRecord]:
        """Return the open waits of all runs, oldest first."""
        return list(await self.client.waits.list(limit=PAGE_MAX))

    async def run_until_idle(self) -> None:
        """Run everything that can run now."""
        await self._worker.run_until_idle()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run work as it arrives within the block, for code that waits for its own results.

        The clock stands still here, too.
        """
        working = asyncio.create_task(self._worker.work_on())
        try:
            yield
        finally:
            working.cancel()
            [ended] = await asyncio.gather(working, return_exceptions=True)
        if isinstance(ended, Exception):  # a CancelledError is not an Exception
            raise ended
        await self.run_until_idle()

    async def advance(self, by: Duration) -> None:
        """Advance the clock. Everything due on the way happens at its own time, in order."""
        await self._pass_until(self.now + check.span(by, "by"))

    async def advance_to(self, moment: datetime) -> None:
        """Advance the clock to a time."""
        until = check.moment(moment, "moment")
        if until < self.now:
            raise InvalidInput(TURNED_BACK.fault(("moment",), now=self.now, moment=until))
        await self._pass_until(until)

    async def advance_to_next(self) -> timedelta | None:
        """Advance the clock to the next due time; return how far, or None if nothing is due."""
        await self.run_until_idle()
        due_at = await self._worker.next_due_at()
        if due_at is None:
            return None
        passed = due_at - self.now
        self._stores.turn_to(due_at)
        await self.run_until_idle()
        return passed

    async def _pass_until(self, moment: datetime) -> None:
        await self.run_until_idle()
        while (due_at := await self._worker.next_due_at()) is not None and due_at <= moment:
            self._stores.turn_to(due_at)
            await self.run_until_idle()
        self._stores.turn_to(moment)
        await self.run_until_idle()


def _node_of(call: MadeCall) -> str | None:
    return None if call.key is None else Key.parse(call.key).node


def _checked_fakes(fakes: Any) -> Mapping[Any, Any]:
    if fakes is None:
        return {}
    if not isinstance(fakes, Mapping):
        raise check.wrong_type(fakes, "fakes", "a mapping of tasks or node ids to outcomes")
    return fakes
