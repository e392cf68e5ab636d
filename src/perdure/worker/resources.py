"""The resources of a worker: opened once per process by its ``lifespan``, and built for each job
by ``provide``.

A child process opens the lifespan again, by its module and name, when a body first needs it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import reduce
from importlib import import_module
from typing import Any

from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput, Permanent
from perdure.model import check
from perdure.model.value import Value
from perdure.tasks.context import BaseContext
from perdure.tasks.resource import Resources, name_of
from perdure.tasks.task import Task

Values = Mapping[str, Any] | None
Opened = AbstractAsyncContextManager[Values] | AbstractContextManager[Values]
Lifespan = Callable[[], Opened]
"""Opens resources once per process, and closes them: a function with ``@asynccontextmanager``."""
Provide = Callable[[BaseContext], Opened | Awaitable[Opened | Values] | Values]
"""Builds values for one job: sync or async, or a context manager that is closed after it."""

_log = logging.getLogger("perdure.worker")

NOT_NAMED_VALUES = declare(
    "resource.not_named",
    "{source:parameter} must provide a mapping of names to resources (got {value})",
)
GIVEN_TWICE = declare(
    "resource.given_twice", "{names} come from both `lifespan` and `provide`", "Rename one"
)
PROVIDES_NOTHING = declare(
    "resource.provides_nothing",
    "`provide` and `provides` belong together",
    "List in `provides` the names of the resources that `provide` builds",
)
OTHER_NAMES = declare(
    "resource.other_names",
    "`provide` built {found}, but `provides` lists {expected}",
)
NOT_IMPORTABLE = declare(
    "resource.not_importable",
    '{source:parameter} must be a function at module level: task {task!r} has isolation="process", '
    "and a child process has to import it (got {value})",
)


class Importable(Value):
    """A function by its module and name."""

    module: str
    name: str

    def load(self) -> Any:
        return reduce(getattr, self.name.split("."), import_module(self.module))


class ProcessResources(Value):
    """How a child process gets the resources of its worker."""

    lifespan: Importable | None
    provide: Importable | None
    provides: tuple[str, ...]


class WorkerResources:
    """The resources of one process, and how to get those of a job."""

    def __init__(
        self,
        lifespan: Lifespan | None = None,
        provide: Provide | None = None,
        provides: Sequence[str] = (),
    ) -> None:
        self.lifespan: Any = _callable(lifespan, "lifespan")
        self.provide: Any = _callable(provide, "provide")
        names = check.listed(provides, "provides", "names")
        self.provides = tuple(check.name(each, "provides", label="resource name") for each in names)
        if (self.provide is None) != (not self.provides):
            raise InvalidInput(PROVIDES_NOTHING.fault(("provides",)))
        self.opened = Resources()

    def provides_for(self, task: Task[..., Any]) -> bool:
        """Whether values are built for the jobs of a task: if it can get them."""
        if self.provide is None:
            return False
        if task.context_parameter is not None:
            return True
        return any(name_of(each) in self.provides for each in task.resources)

    # Once per process

    @asynccontextmanager
    async def open(self, tasks: Iterable[Task[..., Any]]) -> AsyncIterator[None]:
        """Open the resources, check that all tasks get what they declare, and close them again."""
        manager = opened(None if self.lifespan is None else self.lifespan())
        self.use(await manager.__aenter__())
        try:
            self.refuse_missing(tasks)
            yield
        finally:
            # never with an exception: it only has to close, whatever ended the worker
            try:
                await manager.__aexit__(None, None, None)
            except Exception:
                _log.exception("closing the lifespan failed")
            self.opened = Resources()

    def use(self, values: Values) -> None:
        found = Resources(_named(values, "lifespan"))
        if twice := sorted(found.keys() & set(self.provides)):
            raise InvalidInput(GIVEN_TWICE.fault(names=twice))
        self.opened = found

    def refuse_missing(self, tasks: Iterable[Task[..., Any]]) -> None:
        """Raise if tasks declare resources that they would not get."""
        declared = {(task.name, each): None for task in tasks for each in task.resources}
        found = [
            self.opened.fault_of(each, task, provided=self.provides) for task, each in declared
        ]
        if faults := [fault for fault in found if fault is not None]:
            raise InvalidInput(*faults)

    # For each job

    @asynccontextmanager
    async def of_job(self, context: BaseContext) -> AsyncIterator[Resources]:
        """Build values for a job, on the event loop; they are closed after its body."""
        async with opened(self.provide(context)) as values:
            yield self._with(values, context)

    @contextmanager
    def of_job_in_thread(
        self, context: BaseContext, loop: asyncio.AbstractEventLoop
    ) -> Iterator[Resources]:
        """The same in a thread; async parts run on the loop of another one."""
        made = self.provide(context)
        is_sync = not inspect.isawaitable(made) and not hasattr(type(made), "__aenter__")
        with opened_in_thread(made) if is_sync else held_on(loop, opened(made)) as values:
            yield self._with(values, context)

    def _with(self, values: Values, context: BaseContext) -> Resources:
        named = _named(values, "provide")
        if named.keys() != set(self.provides):
            fault = OTHER_NAMES.fault(found=tuple(named), expected=self.provides)
            raise Permanent(fault)
        context._resources = Resources(self.opened, named)
        return context._resources

    # In child processes

    def for_processes(self, tasks: Iterable[Task[..., Any]]) -> ProcessResources | None:
        """How child processes get them; raises if one of these tasks needs them and cannot."""
        users = [each for each in tasks if each.isolation == "process" and uses_resources(each)]
        if not users or (self.lifespan is None and self.provide is None):
            return None
        return ProcessResources(
            lifespan=_importable(self.lifespan, "lifespan", users[0].name),
            provide=_importable(self.provide, "provide", users[0].name),
            provides=self.provides,
        )


def fixed(resources: Mapping[str, Any] | None) -> Lifespan | None:
    """A lifespan that gives these resources, such as the fakes of a test."""
    if resources is None:
        return None
    given = check.mapping(resources, "resources", "names to resources")
    return lambda: nullcontext(given)


def uses_resources(task: Task[..., Any]) -> bool:
    """Whether a task may get resources, as parameters or from its context."""
    return task.context_parameter is not None or bool(task.resources)


@asynccontextmanager
async def opened(made: Any) -> AsyncIterator[Any]:
    """The values of a mapping, an awaitable or a context manager, which is closed after that."""
    if inspect.isawaitable(made):
        made = await made
    if not hasattr(type(made), "__aenter__"):
        with opened_in_thread(made) as values:
            yield values
        return
    error: BaseException | None = None
    async with made as values:
        try:
            yield values
        except BaseException as raised:
            error = raised
            raise
    if error is not None:  # a body that failed has no result, even if this was suppressed
        raise error


@contextmanager
def opened_in_thread(made: Any) -> Iterator[Any]:
    """The same without an event loop: for a mapping or a sync context manager."""
    if not hasattr(type(made), "__enter__"):
        yield made
        return
    error: BaseException | None = None
    with made as values:
        try:
            yield values
        except BaseException as raised:
            error = raised
            raise
    if error is not None:
        raise error


@contextmanager
def held_on(
    loop: asyncio.AbstractEventLoop, manager: AbstractAsyncContextManager[Any]
) -> Iterator[Any]:
    """Enter an async context manager on the event loop of another thread, and close it there.

    One asyncio task does both: timeouts and task groups inside it require that.
    """
    entered: Future[Any] = Future()
    is_over = asyncio.Event()
    info: tuple[Any, Any, Any] = (None, None, None)

    async def hold() -> None:
        try:
            values = await manager.__aenter__()
        except BaseException as error:
            entered.set_exception(error)
            return
        entered.set_result(values)
        await is_over.wait()
        await manager.__aexit__(*info)

    holding = asyncio.run_coroutine_threadsafe(hold(), loop)
    values = entered.result()
    try:
        yield values
    except BaseException as error:
        info = (type(error), error, error.__traceback__)
        raise
    finally:
        loop.call_soon_threadsafe(is_over.set)
        holding.result()


def _callable(function: Any, parameter: str) -> Any:
    # What a decorated function returns is callable too, but could be entered only once.
    is_manager = hasattr(type(function), "__aenter__") or hasattr(type(function), "__enter__")
    if function is not None and (is_manager or not callable(function)):
        raise check.wrong_type(function, parameter, "a function")
    return function


def _named(values: Any, source: str) -> Mapping[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(each, str) for each in values):
        fault = NOT_NAMED_VALUES.fault((source,), source=source, value=safe_repr(values))
        raise InvalidInput(fault)
    return values


def _importable(function: Any, source: str, task: str) -> Importable | None:
    if function is None:
        return None
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    try:
        found = reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        found = None
    if found is not function or (module == "__main__" and not is_main_importable()):
        fault = NOT_IMPORTABLE.fault((source,), source=source, task=task, value=safe_repr(function))
        raise InvalidInput(fault)
    return Importable(module=module, name=name)


def is_main_importable() -> bool:
    """Whether a child that is spawned can run the main module again, as multiprocessing does."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        # It does not run the __main__ of a package again.
        return bool(spec.name.rpartition(".")[2] != "__main__")
    return os.path.isfile(getattr(main, "__file__", ""))


NO_SOURCES = WorkerResources()
