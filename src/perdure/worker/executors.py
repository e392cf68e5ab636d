"""Where task bodies run: on the event loop, in reusable threads, or in child processes.

A stock executor counts a hung thread against its size forever. Here the runner counts the slots,
so a thread that never returns does not occupy one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from perdure.worker.call import prepare
from perdure.worker.isolation import ctrl_c_raises, exit_if_forked
from perdure.worker.outcome import from_result

if TYPE_CHECKING:
    from perdure.model.outcome import NodeOutcome
    from perdure.worker.attempt import Attempt, Body
    from perdure.worker.processes import Processes
    from perdure.worker.runner import JobRunner

Work = Callable[[], None]


class Executors:
    """Starts each body where its task asks to run."""

    def __init__(self, processes: Processes, threads: Threads) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._threads = threads
        self._processes = processes

    def start(self, attempt: Attempt) -> Body:
        if attempt.task.isolation == "process":
            return self._processes.start(attempt)
        if attempt.task.is_async:
            # One task and one copy of the context per body: a body may set context variables, or
            # leave a timer behind that cancels its task, and neither may affect the next node,
            # which may be started from this task.
            return CoroutineBody(attempt, self._loop, self._context.copy())
        self._threads.run(partial(_run_in_thread, attempt, self._loop))
        return THREAD_BODY

    def close(self) -> None:
        self._processes.close()
        self._threads.close()


class CoroutineBody:
    """An async body, cancelled by cancelling its asyncio task."""

    starts_later: ClassVar[bool] = False
    can_be_ended: ClassVar[bool] = True

    __slots__ = ("_has_started", "_task")

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._has_started = False
        self._task = BodyTask(attempt, self._run(attempt), loop, context)

    def stop(self) -> bool:
        self._task.cancel()
        # Cancelled before its first step, a coroutine never runs and cannot report its end.
        return not self._has_started

    async def _run(self, attempt: Attempt) -> None:
        self._has_started = True
        try:
            if attempt.prepares_in_thread:
                args, kwargs = await asyncio.to_thread(prepare, attempt)
            else:
                args, kwargs = prepare(attempt)
            if attempt.is_provided:
                result = await _call_with_provided(attempt, args, kwargs)
            else:
                result = await _call(attempt, args, kwargs)
        # Including SystemExit: a body must neither end its worker nor leak its slot.
        except BaseException as error:
            exit_if_forked(attempt.runner.pid, error)
            if _ends_loop(error, attempt.runner):
                raise
            attempt.raised(error)
        else:
            exit_if_forked(attempt.runner.pid)
            # With no other body running, no outcome could share the commit: write it within this
            # task, which saves a writer task and a turn of the event loop. Not if the body
            # cancelled its own task just before it returned: that would cancel the commit.
            runner = attempt.runner
            attempt.writes_itself = (
                runner.running == 1 and attempt.stopped_by is None and not self._task.cancelling()
            )
            attempt.returned(result)
            if attempt.writes_itself:
                await runner.commits.write_here()


async def _call(attempt: Attempt, args: list[Any], kwargs: dict[str, Any]) -> bytes | NodeOutcome:
    while attempt.seconds_to_start < 0:
        await attempt.count_start_again()
    attempt.keeps_place = False
    value = await attempt.task.function(*args, **kwargs)
    if attempt.rules is not None and attempt.rules.checks_output:
        return await asyncio.to_thread(from_result, attempt, value)
    return from_result(attempt, value)


async def _call_with_provided(
    attempt: Attempt, args: list[Any], kwargs: dict[str, Any]
) -> bytes | NodeOutcome:
    async with attempt.runner.code.resources.of_job(attempt.context) as resources:
        attempt.task.inject(args, kwargs, attempt.context, resources)
        return await _call(attempt, args, kwargs)


def _ends_loop(error: BaseException, runner: JobRunner) -> bool:
    """Whether the event loop itself ends: the exception comes from it, not from the body."""
    # By type: isinstance() may run the exception's own code.
    if issubclass(type(error), GeneratorExit):
        return not runner.loop.is_running()
    return issubclass(type(error), KeyboardInterrupt) and (runner.is_ending or ctrl_c_raises())


class BodyTask(asyncio.Task[None]):
    """The task of an async body, which may commit its outcome, and those of others with it.

    While it commits, only the shutdown of the worker may cancel it: not a timer or anything else
    that the body left behind.
    """

    def __init__(
        self,
        attempt: Attempt,
        coroutine: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        super().__init__(coroutine, loop=loop, context=context)
        self._attempt = attempt

    def cancel(self, msg: Any | None = None) -> bool:
        if self._attempt.is_over and not self._attempt.runner.is_ending:
            return False
        return super().cancel(msg)


class ThreadBody:
    """A sync body. A thread cannot be killed: its signal fires, and its outcome is ignored."""

    starts_later: ClassVar[bool] = False
    can_be_ended: ClassVar[bool] = False

    def stop(self) -> bool:
        return True


THREAD_BODY = ThreadBody()


def _run_in_thread(attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
    try:
        args, kwargs = prepare(attempt)
        if attempt.is_provided:
            context = attempt.context
            with attempt.runner.code.resources.of_job_in_thread(context, loop) as resources:
                attempt.task.inject(args, kwargs, context, resources)
                seconds_to_start(attempt)
                result = from_result(attempt, attempt.task.function(*args, **kwargs))
        else:
            seconds_to_start(attempt)
            result = from_result(attempt, attempt.task.function(*args, **kwargs))
    except BaseException as error:
        exit_if_forked(attempt.runner.pid, error)
        call_on_loop(loop, attempt.raised, error)
    else:
        exit_if_forked(attempt.runner.pid)
        call_on_loop(loop, attempt.returned, result)


class StartsLate(Exception):
    """The body must not start any more under its claim: its job is requeued."""


def seconds_to_start(attempt: Attempt) -> float:
    """How soon the body has to start, after it was counted again if it is late. In a thread."""
    while (left := attempt.seconds_to_start) < 0:
        again = attempt.count_start_again()
        asyncio.run_coroutine_threadsafe(again, attempt.runner.loop).result()
    attempt.keeps_place = False
    return left


class Threads:
    """Runs each call in a thread of its own, starting one when none is idle."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Work | None]] = []
        self._is_closed = False

    def run(self, work: Work) -> None:
        """``work`` must not raise."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            # Daemons, so that a body that never ends cannot keep the process from ending.
            threading.Thread(
                target=self._serve, args=(inbox,), name=self._name, daemon=True
            ).start()
        inbox.put(work)

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _serve(self, inbox: SimpleQueue[Work | None]) -> None:
        while (work := inbox.get()) is not None:
            work()
            del work
            with self._lock:
                if self._is_closed:
                    return
                self._idle.append(inbox)


def call_on_loop(loop: asyncio.AbstractEventLoop, callback: Any, *args: Any) -> None:
    """Call on the worker's event loop; ignored if the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
