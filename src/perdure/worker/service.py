"""``Service``: one worker from start to stop. Wires its parts, starts and drains them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from perdure.engine.ticks import ScheduleTicker
from perdure.errors import WorkerSuperseded
from perdure.model.hint import Hint, HintType
from perdure.model.payload import Codec
from perdure.model.worker import WorkerInfo, WorkerSettings
from perdure.store.contract import Store
from perdure.worker.burst import Burst
from perdure.worker.code import TaskCode
from perdure.worker.due_work import DueSchedules, DueWaits
from perdure.worker.events import WorkerEvents, WorkerStarted, WorkerStopped, WorkerStopping
from perdure.worker.executors import call_on_loop
from perdure.worker.isolation import (
    EXIT_BODY_RUNS,
    EXIT_SUPERSEDED,
    exit_process,
    kill_process_in,
)
from perdure.worker.janitor import Janitor, release_jobs, take_over_former
from perdure.worker.lease_renewal import LeaseRenewer
from perdure.worker.live import LiveEvents
from perdure.worker.poller import Poller
from perdure.worker.runner import JobRunner

FLUSH_SECONDS = 10.0
"""How long a shutdown waits for an unresponsive store."""
SIGN_OFF_SECONDS = 2.0
EXIT_SECONDS = 2.0
"""How long the process may take to end once it starts to requeue the jobs of running bodies."""
LEFT_DELAY = timedelta(seconds=EXIT_SECONDS + 0.5)
HINTS = frozenset(
    {
        HintType.READY,
        HintType.SCHEDULED,
        HintType.DUE,
        HintType.ABORTING,
        HintType.SUBSCRIBED,
    }
)
_log = logging.getLogger("perdure.worker")


class Service:
    """All parts of a running worker, on one event loop."""

    def __init__(
        self,
        store: Store,
        code: TaskCode,
        settings: WorkerSettings,
        info: WorkerInfo,
        codec: Codec,
        events: WorkerEvents,
        *,
        owns_process: bool = False,
    ) -> None:
        self._store = store
        self._info = info
        self._events = events
        self._grace = settings.grace
        self._stop_requested = asyncio.Event()
        self._grace_timers: list[asyncio.TimerHandle] = []
        self.runner = runner = JobRunner(store, code, settings, info, codec, events)
        if owns_process:
            runner.leave_process = self._leave_process
        runs = runner.commits.runs
        due_work = (
            DueWaits(store, runs, settings.namespace),
            DueSchedules(store, ScheduleTicker(runs), settings.namespace),
        )
        self._live = LiveEvents(store, settings.namespace, codec, events)
        janitor = Janitor(store, settings, info.id, events)
        self._poller = Poller(
            store, runner.partitions, settings, janitor, due_work, self._live, runner.claims.look
        )
        self._leases = LeaseRenewer(
            store.clone(),
            lambda: replace(info, concurrency=runner.concurrency),
            lambda: events.task_counts,
            runner.current_claims,
            settings.lease,
            # Called from the lease thread.
            lambda claims, renewal: call_on_loop(runner.loop, runner.renewed, claims, renewal),
            lambda: call_on_loop(runner.loop, self._supersede),
        )
        self._is_superseded = False
        self._exit_code = 0
        """That of the process, if bodies that do not end make the worker end it."""

    async def run(
        self, started: Callable[[], None] | None = None, burst: Burst | None = None
    ) -> None:
        """Work until asked to stop, or until ``burst`` is over; then stop gracefully."""
        runner = self.runner
        runner.serving = asyncio.current_task()
        counts = self._events.task_counts  # of an earlier run of this worker
        await self._store.maintenance.register_worker(self._info, counts, starts=True)
        unsubscribe = self._store.subscribe(self._on_hint, HINTS)
        try:
            await self._live.refresh()
            if started is not None:
                started()  # after registration: the caller may look up the worker in the store
            await take_over_former(self._store, self._info, self._events)
        except BaseException:
            unsubscribe()
            await self._sign_off()
            raise
        self._leases.start()
        self._events.emit(WorkerStarted(worker=self._info.id))
        parts = (runner.claims, self._poller, runner.claim_monitor)
        loops = [asyncio.create_task(each.run(), name=type(each).__name__) for each in parts]
        if burst is not None:
            runner.jobs_left = burst.max_jobs
            ending = burst.run(self._store, runner, self._poller, self.request_stop)
            loops.append(asyncio.create_task(ending))
        live = asyncio.create_task(self._live.run(), name="LiveEvents")
        stopping = asyncio.create_task(self._stop_requested.wait())
        broken: list[asyncio.Task[None]] = []
        try:
            # Without one of its loops a worker would look alive, and do nothing.
            await asyncio.wait([stopping, *loops], return_when=asyncio.FIRST_COMPLETED)
            if not self._stop_requested.is_set():
                broken = [loop for loop in loops if loop.done()]
        finally:
            stopping.cancel()
            try:
                await self._drain(loops)
            finally:  # even a cancelled shutdown must leave no thread behind
                unsubscribe()
                for loop in (*loops, live):
                    loop.cancel()
                await asyncio.gather(*loops, live, return_exceptions=True)
                runner.close()
                # Before the process has only seconds left to end.
                await runner.limiters.close(ends_process=bool(runner.left))
                if runner.left:
                    await self._write_left()
                await self._leases.stop()
                await self._sign_off()
                if runner.left:
                    exit_process(EXIT_SUPERSEDED if self._is_superseded else self._exit_code)
        for loop in broken:
            error = None if loop.cancelled() else loop.exception()
            raise RuntimeError(f"{loop.get_name()} ended before the worker") from error
        if self._is_superseded:
            raise WorkerSuperseded(worker=self._info.id)

    def _leave_process(self) -> None:
        """Stop, because a body does not end, and end the process then."""
        if not self.runner.is_stopping:
            self._exit_code = EXIT_BODY_RUNS
            _log.error("a timed-out body does not end; ending the process")
            self.request_stop()

    async def _write_left(self) -> None:
        """Requeue the jobs of bodies that still run, for when this process has ended."""
        kill_process_in(EXIT_SECONDS)  # before the write, whose time the delay counts from
        for attempt in self.runner.left:
            if not attempt.is_over:
                attempt.leave(LEFT_DELAY)
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await self.runner.commits.flush()

    def _supersede(self) -> None:
        """Stop at once: a newer worker with the same id has taken over the jobs of this one."""
        if not self._is_superseded:
            self._is_superseded = True
            code = WorkerSuperseded.CODE
            fields = {"code": code.name, "worker": self._info.id, "hint": code.remedy}
            message = "worker superseded by a newer one with the same id; stopping"
            _log.error(message, extra={"fields": fields})
            self.request_stop(timedelta(0))

    def call(self, callback: Callable[..., None], *args: Any) -> None:
        """Call a method of this service or its runner from any thread."""
        call_on_loop(self.runner.loop, callback, *args)

    def scale(self, concurrency: int) -> None:
        self.runner.scale(concurrency)
        self._leases.wake()

    def request_stop(self, grace: timedelta | None = None, is_from_body: bool = False) -> None:
        """Start no more jobs and stop after the grace period. The earliest of several ends wins."""
        runner = self.runner
        if is_from_body:
            runner.was_stopped_by_body = True
            _log.warning("a task sent its worker a signal to stop; unfinished jobs count a crash")
        self._grace = self._grace if grace is None else grace
        self._poller.stop()
        runner.stop()
        timer = runner.loop.call_later(self._grace.total_seconds(), runner.stop_bodies)
        self._grace_timers.append(timer)
        if not self._stop_requested.is_set():
            id, running = self._info.id, runner.running
            self._events.emit(WorkerStopping(worker=id, running=running, grace=self._grace))
        self._stop_requested.set()

    async def _drain(self, loops: Sequence[asyncio.Task[None]]) -> None:
        runner = self.runner
        if not runner.is_stopping:
            self.request_stop()  # the task was cancelled without a call of shutdown()
        await runner.is_idle.wait()
        for timer in self._grace_timers:
            timer.cancel()
        runner.claim_monitor.stop()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                # Do not cancel a claim under way: its jobs would be stuck until their leases
                # expire. Once answered, they are requeued.
                await asyncio.wait(loops)
                await runner.commits.flush()
                await self._live.flush()
        except TimeoutError:
            _log.error("store not responding; jobs with unwritten outcomes will run again")

    async def _sign_off(self) -> None:
        try:
            async with asyncio.timeout(SIGN_OFF_SECONDS):
                counts, info = self._events.task_counts, self._info
                await self._store.maintenance.register_worker(info, counts)
                await self._store.maintenance.remove_worker(info.id, info.incarnation)
                await release_jobs(self._store, info.namespace)
        except Exception:
            _log.warning("removing the worker row failed; it will be pruned later")
        self._events.emit(WorkerStopped(worker=self._info.id))

    def _on_hint(self, hint: Hint) -> None:
        runner = self.runner
        match hint.type:
            case HintType.READY:
                if not hint.names:
                    self._poller.wake()
                    runner.claims.look()
                else:
                    if runner.partitions.note(hint.names):
                        runner.claims.look()
                    if any(map(runner.partitions.is_of_another, hint.names)):
                        self._poller.wake()  # to learn until when
            case HintType.SCHEDULED | HintType.DUE:
                self._poller.wake()
            case HintType.SUBSCRIBED:
                self._live.wake()
            case HintType.ABORTING:
                runner.suspect(hint.names)
