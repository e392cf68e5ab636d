"""``Context`` and ``AsyncContext``: a task body's job, steps, pauses, progress and abort signal."""

from __future__ import annotations

import asyncio
import inspect
import threading
import typing
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from perdure.diagnostics import declare
from perdure.errors import Aborted, InvalidInput
from perdure.model.ids import Key, Part
from perdure.model.job import ClaimedJob, Progress
from perdure.model.payload import converter, from_json, storable_text, to_json
from perdure.model.times import Duration
from perdure.model.wait import LAST, PastPause, Report, Resumption
from perdure.tasks.resource import NO_RESOURCES, Resources
from perdure.tasks.result import Pause, paused

P = ParamSpec("P")
R = TypeVar("R")


class AbortSignal:
    """Set once, from any thread, when the body should stop; ``reason`` says why."""

    __slots__ = ("_callbacks", "_event", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[str], object]] = []

    def fire(self, reason: str) -> None:
        self.reason = reason
        if self._event is not None:
            self._event.set()
        for callback in self._callbacks:
            callback(reason)

    def on_fire(self, callback: Callable[[str], object]) -> None:
        """Call back with the reason, on whatever thread fires it."""
        self._callbacks.append(callback)

    def is_set(self) -> bool:
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Block the calling thread until the signal fires. For sync tasks."""
        if self._event is None:
            self._event = threading.Event()
        # Checked after the event exists, so that a signal fired in between is not missed.
        if self.reason is not None:
            return True
        return self._event.wait(timeout)

    async def wait_async(self) -> None:
        """Wait until the signal fires. For async tasks."""
        loop = asyncio.get_running_loop()
        fired = asyncio.Event()

        def wake(_reason: str) -> None:
            with suppress(RuntimeError):  # the loop is closed, so nothing waits any more
                loop.call_soon_threadsafe(fired.set)

        self._callbacks.append(wake)
        if self.reason is None:
            await fired.wait()


class _Reported:
    """The result of ``AsyncContext.progress``: awaiting it is optional."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_REPORTED = _Reported()


class StepKeeper(Protocol):
    """Stores the results of one body's steps."""

    async def find(self, name: str) -> tuple[Any, ...]:
        """A tuple of the stored result, or an empty one."""

    async def save(self, name: str, value: Any) -> Any:
        """Store a result and return it as later executions will read it."""

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Wait for one of these from a thread that has no event loop."""


class AttemptPaused(BaseException):
    """Raised by ``ctx.pause()`` to end the body.

    A ``BaseException``, so that ``except Exception`` in the body does not catch it.
    """


class BaseContext:
    """The common part of the contexts of sync and async bodies."""

    __slots__ = (
        "_arguments",
        "_inputs",
        "_job",
        "_mask",
        "_pause_attempt",
        "_pauses_used",
        "_report",
        "_resources",
        "_resumption",
        "_secret",
        "_steps",
        "_thread_turns",
        "_turns",
        "abort_signal",
        "allows_scripts",
        "worker",
    )

    def __init__(
        self,
        job: ClaimedJob,
        worker: str,
        report: Callable[[Progress], None],
        abort: AbortSignal,
        steps: StepKeeper,
        *,
        secret: Callable[[str], str],
        mask: Callable[[str | bytes], str | bytes],
        pause: Callable[[Pause], None],
        inputs: Mapping[str, Any],
        resumption: Resumption,
        allows_scripts: bool,
        resources: Resources = NO_RESOURCES,
        arguments: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._job = job
        self._report = report
        self._steps = steps
        self._secret = secret
        self._mask = mask
        self._pause_attempt = pause
        self._inputs = inputs
        self._resumption = resumption
        self._resources = resources
        self._arguments = arguments
        self._pauses_used: dict[str, int] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._thread_turns: dict[str, threading.Lock] = {}
        self.worker = worker
        self.abort_signal = abort
        self.allows_scripts = allows_scripts
        """Whether the worker executes ``script`` nodes."""

    @property
    def job_id(self) -> str:
        return self._job.claim.id

    @property
    def task(self) -> str:
        return self._job.partition.task

    @property
    def queue(self) -> str:
        return self._job.partition.queue

    @property
    def namespace(self) -> str:
        return self._job.namespace

    @property
    def group(self) -> str | None:
        return self._job.group

    @property
    def attempt(self) -> int:
        """1 for the first execution, increased by each retry.

        Resuming after a pause continues the same attempt. A node type whose ``resume`` pauses again
        starts another one.
        """
        return self._job.attempt + self._resumption.attempt - 1

    @property
    def failures(self) -> int:
        """How often this job or node has failed before; worker crashes do not count."""
        return self._job.failures + self._resumption.failures

    @property
    def attempt_id(self) -> str:
        """Unique to this execution, unlike the job id, which nodes of a run may share."""
        return self._job.attempt_id

    @property
    def run_id(self) -> str | None:
        """The run that this job belongs to; None for a plain job."""
        return None if self._job.node is None else self._job.node.run

    @property
    def flow(self) -> str | None:
        """The name of the run's flow; None for a plain job."""
        return self._job.partition.flow.rpartition("@")[0] or None

    @property
    def node(self) -> str | None:
        """The node that this job executes; None for a plain job."""
        return None if self._job.node is None else Key.parse(self._job.node.key).node

    @property
    def iteration(self) -> int:
        """The iteration of a loop node, from 1; 0 for other nodes."""
        return 0 if self._job.node is None else Key.parse(self._job.node.key).iteration

    @property
    def item(self) -> int | None:
        """The index of the item of a map node, from 0; None for other nodes."""
        return None if self._job.node is None else Key.parse(self._job.node.key).item

    @property
    def part(self) -> Part:
        """``undo``, ``poll`` or another auxiliary job of the node; "" for the node's own work."""
        return "" if self._job.node is None else Key.parse(self._job.node.key).part

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The node's declared inputs by name; empty if it declares none."""
        return self._inputs

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the call by name, without the context and resources."""
        return self._arguments()

    @property
    def resources(self) -> Resources:
        """The worker's resources by name; a missing one raises ``Permanent``."""
        return self._resources

    @property
    def last_pause(self) -> PastPause | None:
        """The latest finished pause, with its checkpoint and report; None if there was none."""
        pauses = self._resumption.pauses
        return pauses[-1] if pauses else None

    @property
    def partial(self) -> Any:
        """The latest progress reported by the external work, even in an earlier attempt, or None.

        Use it to resume that work instead of restarting it.
        """
        return self._resumption.progress

    def secret(self, name: str) -> str:
        """Return a secret from the worker's provider; raises ``MissingSecret``.

        From then on, its value is masked in everything this attempt stores.
        """
        return self._secret(name)

    @overload
    def mask(self, data: str) -> str: ...
    @overload
    def mask(self, data: bytes) -> bytes: ...
    def mask(self, data: str | bytes) -> str | bytes:
        """Mask the secrets that this attempt has resolved.

        What is stored is masked anyway. Use this before the body truncates, compresses or encodes
        data that may contain a secret, because the secret is not recognized in the result.
        """
        return self._mask(data)

    @property
    def idempotency_key(self) -> str:
        """The same for every execution of this job or node: pass it to external services."""
        node = self._job.node
        if node is None:
            return self._job.claim.id
        key = Key.parse(node.key)
        item = "" if key.item is None else f"[{key.item}]"
        part = "" if not key.part else f"~{key.part}"
        # Only the run's id may contain a colon, so keys of different runs and nodes never collide.
        return f"{node.run}:{key.node}:{key.iteration}{item}{part}"

    @property
    def aborted(self) -> bool:
        """True once the job is aborted, timed out, or its claim is lost: stop soon."""
        return self.abort_signal.is_set()

    def check(self) -> None:
        """Raise ``Aborted`` if the body should stop."""
        if self.abort_signal.reason is not None:
            raise Aborted(f"job {self.job_id}: {self.abort_signal.reason}")

    def _pause(self, pause: Pause, number: int) -> Report:
        """The final report of a pause; ends the attempt if there is none yet."""
        past = [each for each in self._resumption.pauses if each.name == pause.name]
        if len(past) >= number and past[number - 1].report.status in LAST:
            return past[number - 1].report
        # Recorded before raising: the attempt ends as a pause even if the body catches this.
        self._pause_attempt(pause)
        raise AttemptPaused(f"job {self.job_id} waits for a report")

    def _pause_number(self, name: str) -> int:
        """Pauses of one name are numbered in the order of the calls, not of the awaits."""
        number = self._pauses_used[name] = self._pauses_used.get(name, 0) + 1
        return number

    def _reported(self, percent: float, message: str, details: Any) -> None:
        clamped = min(100.0, max(0.0, float(percent)))
        if details is not None:
            details = from_json(to_json(details, "the details of progress"))
        message = storable_text(str(message))
        self._report(Progress(percent=clamped, message=message, details=details))


class Context(BaseContext):
    """The context of a sync task: declare a parameter ``ctx: Context = CONTEXT``."""

    __slots__ = ()

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``function`` and store its result under ``name``, once per job or node.

        When the body is executed again, this returns the stored result without a call. The result
        is stored as JSON and converted to the function's return annotation, the first time too;
        without an annotation, it consists of plain JSON values. If the function raises, nothing
        is stored.
        """
        with self._thread_turns.setdefault(name, threading.Lock()):
            stored = self._steps.wait(self._steps.find(name))
            if not stored:
                result = function(*args, **kwargs)
                stored = (self._steps.wait(self._steps.save(name, result)),)
        return cast(R, _as_returned(function, stored[0]))

    def pause(
        self,
        name: str = "",
        *,
        checkpoint: Any = None,
        deadline: Duration | None = None,
        poll: Duration | None = None,
    ) -> Report:
        """Wait for external work without occupying a worker; returns its final ``Report``.

        The first call ends the attempt: nothing after it runs. After ``client.runs.report``, the
        body runs again from its beginning, and this call returns. Code before it therefore runs
        twice; wrap what must not in ``step``. Several pauses are distinguished by name, and
        those of one name by their order.

        A failure is returned like any other report: check ``report.status``. ``checkpoint`` is
        stored as JSON, shown with the pause and available as ``last_pause``. When ``deadline``
        passes, the node's ``on_timeout`` applies. With ``poll``, the body also runs at that
        interval while no report arrives, to ask for news: ``part`` is then ``"poll"``, and the
        body returns a ``Report``, or None if there is no news.

        A plain job is parked until ``client.jobs.resume``, whose ``data`` is the result of the
        report. It takes neither ``deadline`` nor ``poll``.
        """
        pause = paused(checkpoint, name=name, deadline=deadline, poll=poll)
        return self._pause(pause, self._pause_number(name))

    def progress(self, percent: float, message: str = "", details: Any = None) -> None:
        """Report progress, from 0 to 100. Cheap: call it as often as you like.

        Writes are throttled to a few per second; the last report is always written. ``details``
        are encoded as JSON immediately, so later changes to them have no effect.
        """
        self._reported(percent, message, details)


class AsyncContext(BaseContext):
    """The context of an async task: declare a parameter ``ctx: AsyncContext = CONTEXT``."""

    __slots__ = ()

    def in_thread(self) -> Context:
        """Return this context for sync code that the body runs in a thread."""
        made = Context.__new__(Context)
        for name in BaseContext.__slots__:
            setattr(made, name, getattr(self, name))
        return made

    @overload
    async def step(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call ``function``, sync or async, once for this job or node; see ``Context.step``."""
        # One at a time: a concurrent second call with this name gets the first one's result.
        async with self._turns.setdefault(name, asyncio.Lock()):
            stored = await self._steps.find(name)
            if not stored:
                result = function(*args, **kwargs)
                result = await result if inspect.isawaitable(result) else result
                stored = (await self._steps.save(name, result),)
        return _as_returned(function, stored[0])

    def pause(
        self,
        name: str = "",
        *,
        checkpoint: Any = None,
        deadline: Duration | None = None,
        poll: Duration | None = None,
    ) -> Coroutine[Any, Any, Report]:
        """Wait for external work without occupying a worker; see ``Context.pause``."""
        pause = paused(checkpoint, name=name, deadline=deadline, poll=poll)
        return self._pause_later(pause, self._pause_number(name))

    async def _pause_later(self, pause: Pause, number: int) -> Report:
        return self._pause(pause, number)

    def progress(self, percent: float, message: str = "", details: Any = None) -> Awaitable[None]:
        """Report progress, from 0 to 100; see ``Context.progress``.

        Takes effect immediately, awaited or not.
        """
        self._reported(percent, message, details)
        return _REPORTED


def _as_returned(function: Callable[..., Any], value: Any) -> Any:
    """Convert a stored result to the function's return annotation; unchanged if it does not fit."""
    try:
        wanted = typing.get_type_hints(getattr(function, "function", function))["return"]
        convert = converter(wanted)
        return value if convert is None else convert(value)
    except (NameError, TypeError, KeyError, ValueError, AttributeError):
        return value


NO_CONTEXT = declare(
    "task.no_context",
    "there is no context, and so no {name!r}: the task was called as a function",
    "Pass a context, or enqueue the task",
)


class _Injected:
    """Placeholder in a signature for an argument that the worker injects."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "CONTEXT"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspect, copy and others look these up on any object
            raise AttributeError(name)
        raise InvalidInput(NO_CONTEXT.fault(name=name))


CONTEXT: Any = _Injected()
"""The default of a context parameter, so that calls without it type-check."""
