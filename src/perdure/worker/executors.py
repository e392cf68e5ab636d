"""Where task bodies run: on the event loop, or in threads that are reused when idle.

A stock executor counts a hung thread against its size for ever; here a thread that never comes
back costs only itself, since the worker's slots are counted elsewhere.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from perdure.model.outcome import NodeOutcome
from perdure.worker.attempt import Attempt
from perdure.worker.judging import concluded
from perdure.worker.results import RESULTS, encoded_result

Work = Callable[[], None]


class Threads:
    """Runs each piece of work in a thread of its own, starting one when none is idle."""

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


class BodyTask(asyncio.Task[None]):
    """The task of an async body, which may commit its outcome, and those of others with it.

    By then nobody may cancel it any more but a worker that ends: not even a timer, or whatever
    else the body left behind.
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
        if self._attempt.is_over and not self._attempt.is_worker_ending:
            return False
        return super().cancel(msg)


class CoroutineBody:
    """An async body, cancelled by cancelling its asyncio task."""

    begins_later: ClassVar[bool] = False

    __slots__ = ("_has_begun", "_task")

    def __init__(
        self,
        attempt: Attempt,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        payload_max_bytes: int,
    ) -> None:
        self._has_begun = False
        # A context of its own: it may be started by the task of the body before it.
        running = self._run(attempt, payload_max_bytes)
        self._task = BodyTask(attempt, running, loop, context.copy())

    def stop(self) -> bool:
        self._task.cancel()
        # Cancelled before its first step, a coroutine never runs and cannot tell that it ended.
        return not self._has_begun

    async def _run(self, attempt: Attempt, payload_max_bytes: int) -> None:
        self._has_begun = True
        try:
            if attempt.prepares_aside:
                args, kwargs = await asyncio.to_thread(attempt.arguments)
            else:
                args, kwargs = attempt.arguments()
            value = await attempt.task.function(*args, **kwargs)
            result: bytes | NodeOutcome
            if type(value) in RESULTS or attempt.is_ruled:
                result = await _concluded_here(attempt, value, payload_max_bytes)
            else:  # as nearly always
                result = encoded_result(value, attempt.task.name, payload_max_bytes)
        except (GeneratorExit, KeyboardInterrupt):
            raise  # the loop itself ends
        # All others, SystemExit too: a body must neither end its worker nor leak its slot.
        except BaseException as error:
            attempt.raised(error)
        else:
            if self._task.cancelling():  # by itself, and too late
                attempt.returned(result)
            else:
                await attempt.returned_here(result)


class ThreadBody:
    """A sync body. It cannot be made to end: it is flagged, and its outcome no longer counts."""

    begins_later: ClassVar[bool] = False

    __slots__ = ()

    def __init__(
        self,
        attempt: Attempt,
        threads: Threads,
        loop: asyncio.AbstractEventLoop,
        payload_max_bytes: int,
    ) -> None:
        threads.run(partial(_run_in_thread, attempt, loop, payload_max_bytes))

    def stop(self) -> bool:
        return True


async def _concluded_here(attempt: Attempt, value: Any, payload_max_bytes: int) -> NodeOutcome:
    """On the event loop, but for what may take long there: schemas are checked in a thread."""
    if attempt.rules is None or not attempt.rules.concludes_aside:
        return concluded(attempt, value, payload_max_bytes)
    return await asyncio.to_thread(concluded, attempt, value, payload_max_bytes)


def _run_in_thread(
    attempt: Attempt, loop: asyncio.AbstractEventLoop, payload_max_bytes: int
) -> None:
    try:
        args, kwargs = attempt.arguments()
        value = attempt.task.function(*args, **kwargs)
        result: bytes | NodeOutcome
        if type(value) in RESULTS or attempt.is_ruled:
            result = concluded(attempt, value, payload_max_bytes)
        else:
            result = encoded_result(value, attempt.task.name, payload_max_bytes)
    except BaseException as error:
        tell(loop, attempt.raised, error)
    else:
        tell(loop, attempt.returned, result)


def tell(loop: asyncio.AbstractEventLoop, act: Any, *args: Any) -> None:
    """Call on the worker's loop, unless the worker is gone: then nobody wants to know."""
    try:
        loop.call_soon_threadsafe(act, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
