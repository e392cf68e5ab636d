"""What a task body is given: who it is, how to report progress, and whether it should stop."""

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
        # Looked at after the event is in place, so a signal in between is not missed.
        if self.reason is not None:
            return True
        return self._event.wait(timeout)

    async def wait_async(self) -> None:
        """Wait until the signal fires. For async tasks."""
        loop = asyncio.get_running_loop()
        fired = asyncio.Event()

        def wake(_reason: str) -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(fired.set)

        self._callbacks.append(wake)
        if self.reason is None:
            await fired.wait()


class _Reported:
    """What ``progress`` returns: may be awaited, needs not be."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_REPORTED = _Reported()


class StepKeeper(Protocol):
    """Where the results of one body's steps are kept."""

    async def find(self, name: str) -> tuple[Any, ...]:
        """The stored result, alone; nothing if there is none."""

    async def save(self, name: str, value: Any) -> Any:
        """Store a result, and return it as it will come back."""

    def wait(self, act: Coroutine[Any, Any, Any]) -> Any:
        """Do one of these from a thread that has no event loop."""


class AttemptPaused(BaseException):
    """What ``ctx.pause()`` ends a body with. No error, so ``except Exception`` lets it pass."""


class BaseContext:
    """What contexts of sync and async bodies have in common."""

    __slots__ = (
        "_inputs",
        "_job",
        "_pause_attempt",
        "_pauses_used",
        "_report",
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
        pause: Callable[[Pause], None],
        inputs: Mapping[str, Any],
        resumption: Resumption,
        allows_scripts: bool,
    ) -> None:
        self._job = job
        self._report = report
        self._steps = steps
        self._secret = secret
        self._pause_attempt = pause
        self._inputs = inputs
        self._resumption = resumption
        self._pauses_used: dict[str, int] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._thread_turns: dict[str, threading.Lock] = {}
        self.worker = worker
        self.abort_signal = abort
        self.allows_scripts = allows_scripts
        """Whether the worker executes commands that come with a flow."""

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
        """1 for the first execution."""
        return self._job.attempt

    @property
    def run_id(self) -> str | None:
        """The run it belongs to; None for a plain job."""
        return None if self._job.node is None else self._job.node.run

    @property
    def node(self) -> str | None:
        """The node of the flow that is executed; None for a plain job."""
        return None if self._job.node is None else Key.parse(self._job.node.key).node

    @property
    def iteration(self) -> int:
        """Of a loop, counted from 1; else 0."""
        return 0 if self._job.node is None else Key.parse(self._job.node.key).iteration

    @property
    def item(self) -> int | None:
        """Of a map, counted from 0; else None."""
        return None if self._job.node is None else Key.parse(self._job.node.key).item

    @property
    def part(self) -> Part:
        """What is done for the node besides its own work, such as ``undo`` or ``poll``; else ""."""
        return "" if self._job.node is None else Key.parse(self._job.node.key).part

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs that the node declares, by their names; empty if it declares none."""
        return self._inputs

    @property
    def last_pause(self) -> PastPause | None:
        """The pause that was over last, with its checkpoint and report; None if there was none."""
        pauses = self._resumption.pauses
        return pauses[-1] if pauses else None

    @property
    def partial(self) -> Any:
        """How far the outside party said that it came, also in an earlier try; None if it did not.

        Go on from there instead of from the beginning.
        """
        return self._resumption.progress

    def secret(self, name: str) -> str:
        """The secret of this name, as the worker's provider has it; ``MissingSecret`` if not.

        From then on its value is masked in everything that is kept of this attempt.
        """
        return self._secret(name)

    @property
    def idempotency_key(self) -> str:
        """The same for every execution of this job or node: hand it to outside services."""
        node = self._job.node
        if node is None:
            return self._job.claim.id
        key = Key.parse(node.key)
        item = "" if key.item is None else f"[{key.item}]"
        part = "" if not key.part else f"~{key.part}"
        # Only the run's id may contain a colon, so no two parts of two runs have the same key.
        return f"{node.run}:{key.node}:{key.iteration}{item}{part}"

    @property
    def aborted(self) -> bool:
        """True once the job was aborted, timed out, or its claim was lost: stop soon."""
        return self.abort_signal.is_set()

    def check(self) -> None:
        """Raise ``Aborted`` if the body should stop."""
        if self.abort_signal.reason is not None:
            raise Aborted(f"job {self.job_id}: {self.abort_signal.reason}")

    def _pause(self, asked: Pause, number: int) -> Report:
        """The report that a pause is over with; ends the attempt if there is none yet."""
        past = [each for each in self._resumption.pauses if each.name == asked.name]
        if len(past) >= number and past[number - 1].report.status in LAST:
            return past[number - 1].report
        self._pause_attempt(asked)  # it ends so, whatever the body does from here on
        raise AttemptPaused(f"job {self.job_id} waits for a report")

    def _pause_number(self, name: str) -> int:
        """Pauses of one name are counted as they are asked for, not as they are awaited."""
        number = self._pauses_used[name] = self._pauses_used.get(name, 0) + 1
        return number

    def _reported(self, percent: float, message: str, details: Any) -> None:
        clamped = min(100.0, max(0.0, float(percent)))
        if details is not None:
            details = from_json(to_json(details, "the details of progress"))
        message = storable_text(str(message))
        self._report(Progress(percent=clamped, message=message, details=details))


class Context(BaseContext):
    """What a sync body is given: declare a parameter ``ctx: Context = CONTEXT``."""

    __slots__ = ()

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``function`` once for this job or node, and keep its result under ``name``.

        However often the body is executed, the function has its result stored once and returns
        what was stored from then on. The result is kept as JSON, and comes back as the function's
        return annotation says, the first time too; without one, as plain JSON values. What the
        function raises is raised, and nothing is stored.
        """
        with self._thread_turns.setdefault(name, threading.Lock()):
            found = self._steps.wait(self._steps.find(name))
            if not found:
                made = function(*args, **kwargs)
                found = (self._steps.wait(self._steps.save(name, made)),)
        return cast(R, _as_returned(function, found[0]))

    def pause(
        self,
        name: str = "",
        *,
        checkpoint: Any = None,
        deadline: Duration | None = None,
        poll: Duration | None = None,
    ) -> Report:
        """Wait for somebody outside, holding nothing; returns the ``Report`` they gave.

        The first time it ends the attempt: nothing after it is executed. Once somebody has
        reported with ``client.runs.report``, the body is executed again from its beginning, and
        this returns. So what comes before it is executed twice; keep what must not be in ``step``.
        Several pauses are told apart by name, and those of one name by their order.

        A failure is returned like any other report, so that the body decides what follows: look
        at ``report.status``. ``checkpoint`` is kept as JSON, for those who look at the pause and
        for ``last_pause``. After ``deadline`` the node goes on as its ``on_timeout`` says. With
        ``poll`` the body is also executed so often while nobody reports, to ask for news: then
        ``part`` is ``"poll"``, and it returns a ``Report``, or None if there is nothing new.

        A plain job is parked instead until ``client.jobs.resume``, and gets a report without a
        result; it has no ``deadline`` and no ``poll``.
        """
        asked = paused(checkpoint, name=name, deadline=deadline, poll=poll)
        return self._pause(asked, self._pause_number(name))

    def progress(self, percent: float, message: str = "", details: Any = None) -> None:
        """Report how far the body is, 0 to 100. Cheap: call it as often as you like.

        It is written a few times a second at most, and the last one always is. Details are kept
        as JSON, as they are at this moment.
        """
        self._reported(percent, message, details)


class AsyncContext(BaseContext):
    """What an async body is given: declare a parameter ``ctx: AsyncContext = CONTEXT``."""

    __slots__ = ()

    def in_thread(self) -> Context:
        """The same context for sync code that the body runs in a thread."""
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
        # One at a time: the second of a name gets what the first one stored.
        async with self._turns.setdefault(name, asyncio.Lock()):
            found = await self._steps.find(name)
            if not found:
                made = function(*args, **kwargs)
                made = await made if inspect.isawaitable(made) else made
                found = (await self._steps.save(name, made),)
        return _as_returned(function, found[0])

    def pause(
        self,
        name: str = "",
        *,
        checkpoint: Any = None,
        deadline: Duration | None = None,
        poll: Duration | None = None,
    ) -> Coroutine[Any, Any, Report]:
        """Wait for somebody outside, holding nothing; see ``Context.pause``."""
        asked = paused(checkpoint, name=name, deadline=deadline, poll=poll)
        return self._pause_later(asked, self._pause_number(name))

    async def _pause_later(self, asked: Pause, number: int) -> Report:
        return self._pause(asked, number)

    def progress(self, percent: float, message: str = "", details: Any = None) -> Awaitable[None]:
        """Report how far the body is, 0 to 100; see ``Context.progress``.

        Takes effect at once, awaited or not.
        """
        self._reported(percent, message, details)
        return _REPORTED


def _as_returned(function: Callable[..., Any], value: Any) -> Any:
    """A stored result as the function's return annotation says, or plain where it does not fit."""
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
    """Stands in a signature for what the worker fills in."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "CONTEXT"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which inspect, copy and others ask everything for
            raise AttributeError(name)
        raise InvalidInput(NO_CONTEXT.fault(name=name))


CONTEXT: Any = _Injected()
"""The default of a context parameter, so that calls without it type-check."""
