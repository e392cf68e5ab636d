"""The kit for tests without an event loop: sync facades of the async kit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from perdure.client.facade import Facade, mirrors, sync
from perdure.client.portal import Portal
from perdure.client.sync import Client
from perdure.flows.built import BuiltFlow
from perdure.model.ids import JobId, RunId
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.operations.backend import AnyFlow, AnyTask
from perdure.operations.records import EventRecord, ScheduleRecord, WaitRecord
from perdure.operations.schedules import AnyTarget
from perdure.tasks.task import Task
from perdure.testing.fakes import MadeCall, Target
from perdure.testing.jobs import AsyncKitJob
from perdure.testing.kit import AsyncKit
from perdure.testing.runs import AsyncKitRun

P = ParamSpec("P")
R = TypeVar("R")
Owner = TypeVar("Owner")


def asserts(
    method: Callable[Concatenate[Owner, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Facade[Owner], P], R]:
    """Make a blocking method. A failed assertion is raised at the line of the test."""

    @functools.wraps(method, assigned=("__name__", "__doc__"))
    def check(facade: Facade[Owner], /, *args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return facade._portal.run(method(facade._target, *args, **kwargs))
        except AssertionError as error:
            raise AssertionError(*error.args) from None  # without the kit's own frames

    return check


class KitRun(Facade[AsyncKitRun]):
    """A run in a :class:`Kit`. Every call takes effect before it returns."""

    def __init__(self, portal: Portal, target: AsyncKitRun) -> None:
        self._portal = portal
        self._target = target

    def __repr__(self) -> str:
        return repr(self._target)

    @property
    def id(self) -> RunId:
        return self._target.id

    @property
    def status(self) -> RunStatus:
        return self._portal.run(self._target.status())

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of its completed nodes, as plain values."""
        return self._portal.run(self._target.outputs())

    @property
    def events(self) -> list[EventRecord]:
        """All its events."""
        return self._portal.run(self._target.events())

    @property
    def executed(self) -> list[str]:
        """Completed nodes, items (``pack[0]``) and iterations (``poll#1``), in order.

        A map comes after its items, and a loop counts as its last iteration.
        """
        return self._portal.run(self._target.executed())

    @property
    def waiting(self) -> list[WaitRecord]:
        """Its open waits, oldest first, including those of its child runs."""
        return self._portal.run(self._target.waiting())

    record = sync(AsyncKitRun.record)
    result = sync(AsyncKitRun.result)
    events_of = sync(AsyncKitRun.events_of)
    explain = sync(AsyncKitRun.explain)
    signal = sync(AsyncKitRun.signal)
    decide = sync(AsyncKitRun.decide)
    report = sync(AsyncKitRun.report)
    pause = sync(AsyncKitRun.pause)
    resume = sync(AsyncKitRun.resume)
    cancel = sync(AsyncKitRun.cancel)
    retry = sync(AsyncKitRun.retry)
    assert_completed = asserts(AsyncKitRun.assert_completed)
    assert_failed = asserts(AsyncKitRun.assert_failed)
    assert_waiting = asserts(AsyncKitRun.assert_waiting)
    assert_executed = asserts(AsyncKitRun.assert_executed)
    assert_event = asserts(AsyncKitRun.assert_event)


class KitJob(Facade[AsyncKitJob]):
    """A job in a :class:`Kit`."""

    def __init__(self, portal: Portal, target: AsyncKitJob) -> None:
        self._portal = portal
        self._target = target

    def __repr__(self) -> str:
        return repr(self._target)

    @property
    def id(self) -> JobId:
        return self._target.id

    @property
    def status(self) -> Status:
        return self._portal.run(self._target.status())

    record = sync(AsyncKitJob.record)
    failures = sync(AsyncKitJob.failures)
    result = sync(AsyncKitJob.result)
    assert_completed = asserts(AsyncKitJob.assert_completed)
    assert_failed = asserts(AsyncKitJob.assert_failed)
    assert_status = asserts(AsyncKitJob.assert_status)


class Kit(Facade[AsyncKit]):
    """An in-memory store, a worker, and a clock that stands still until the test advances it.

    Takes the arguments of :class:`AsyncKit`. Close it, or use it with ``with``.
    """

    @mirrors(AsyncKit.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._target = AsyncKit(*args, **kwargs)
        self._portal = Portal(self._target.close)

    def __repr__(self) -> str:
        return repr(self._target).replace("<Async", "<", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        found_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()
        self._portal.close()

    @cached_property
    def client(self) -> Client:
        """An ordinary client for the code under test.

        Its jobs and runs wait until ``run_until_idle`` or the next call on the kit.
        """
        tasks, flows = self._target._known
        return Client(self._target._stores.store, tasks=tasks, flows=flows)

    @property
    def now(self) -> datetime:
        """The current time of the kit's clock."""
        return self._target.now

    @property
    def calls(self) -> list[MadeCall]:
        """All task executions so far, real or faked, in order."""
        return self._target.calls

    @mirrors(AsyncKit.calls_of)
    def calls_of(self, target: Target) -> list[MadeCall]:
        return self._target.calls_of(target)

    @mirrors(AsyncKit.add)
    def add(self, *code: BuiltFlow | Task[..., Any]) -> None:
        self._target.add(*code)

    @mirrors(AsyncKit.fake)
    def fake(self, target: Target, outcome: Any) -> None:
        self._target.fake(target, outcome)

    @mirrors(AsyncKit.submit)
    def submit(self, flow: AnyFlow, input: Any = None, **options: Any) -> KitRun:
        return KitRun(self._portal, self._portal.run(self._target.submit(flow, input, **options)))

    @overload
    def enqueue(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> KitJob: ...
    @overload
    def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> KitJob: ...
    def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> KitJob:
        """Enqueue a call of a task, as ``client.enqueue`` does, and run it if it is due."""
        return KitJob(self._portal, self._portal.run(self._target.enqueue(task, *args, **kwargs)))

    @mirrors(AsyncKit.schedule)
    def schedule(self, name: str, target: AnyTarget, **options: Any) -> ScheduleRecord:
        return self._portal.run(self._target.schedule(name, target, **options))

    @mirrors(AsyncKit.run)
    def run(self, id: str, flow: AnyFlow | None = None) -> KitRun:
        return KitRun(self._portal, self._target.run(id, flow))

    @mirrors(AsyncKit.job)
    def job(self, id: str, task: AnyTask | None = None) -> KitJob:
        return KitJob(self._portal, self._target.job(id, task))

    @mirrors(AsyncKit.runs)
    def runs(self, flow: AnyFlow | None = None) -> list[KitRun]:
        return [KitRun(self._portal, each) for each in self._portal.run(self._target.runs(flow))]

    @property
    def waiting(self) -> list[WaitRecord]:
        """Return the open waits of all runs, oldest first."""
        return self._portal.run(self._target.waiting())

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run work as it arrives within the block, for code that waits for its own results.

        The clock stands still here, too.
        """
        stack = AsyncExitStack()
        self._portal.run(stack.enter_async_context(self._target.working()))
        try:
            yield
        finally:
            self._portal.run(stack.aclose())

    run_until_idle = sync(AsyncKit.run_until_idle)
    advance = sync(AsyncKit.advance)
    advance_to = sync(AsyncKit.advance_to)
    advance_to_next = sync(AsyncKit.advance_to_next)
