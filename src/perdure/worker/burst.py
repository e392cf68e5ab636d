"""Burst mode: run what is there, then stop.

A worker is idle when nothing runs on it and it can claim nothing that waits. It waits for limits
that open by time, but not for later retries and timers, nor for places that other workers hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.errors import StoreError
from perdure.model.value import Value
from perdure.model.worker import AttemptCounts
from perdure.store.contract import POLL_PARTITIONS_MAX, Store
from perdure.worker.poller import Poller
from perdure.worker.runner import JobRunner

LOOK_SECONDS = 0.005
RETRY_SECONDS = 1.0
_log = logging.getLogger("perdure.worker")


class BurstResult(Value):
    """What a worker did in burst mode: attempts by outcome."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    requeued: int = 0
    is_idle: bool = False
    """Whether nothing was left to do; False if it reached ``max_jobs`` or was stopped."""


class Burst:
    """Stops a worker as soon as it is idle, or has run ``max_jobs``."""

    def __init__(self, max_jobs: int | None) -> None:
        self.max_jobs = max_jobs
        self.is_idle = False

    def result(self, before: AttemptCounts, after: AttemptCounts) -> BurstResult:
        names = {*BurstResult.__struct_fields__} & {*AttemptCounts.__struct_fields__}
        done = {name: getattr(after, name) - getattr(before, name) for name in names}
        return BurstResult(**done, is_idle=self.is_idle)

    async def run(
        self, store: Store, runner: JobRunner, poller: Poller, stop: Callable[[], None]
    ) -> None:
        while not runner.is_stopping:
            try:
                if await self._is_over(store, runner, poller):
                    stop()
            except StoreError:
                _log.exception("poll failed; retrying")
                await asyncio.sleep(RETRY_SECONDS)

    async def _is_over(self, store: Store, runner: JobRunner, poller: Poller) -> bool:
        await runner.is_idle.wait()
        if runner.claimed:  # outcomes that are not stored yet
            await asyncio.sleep(LOOK_SECONDS)
            return False
        if runner.jobs_left == 0:
            return True
        partitions, claims, taken = runner.partitions, runner.claims, runner.taken
        is_at_work = poller.is_at_work  # before the poll, which may not see what it does
        partitions.start_poll()
        poll = await store.maintenance.poll(runner.settings.namespace)
        if is_at_work or poller.has_due(poll):
            poller.wake()
            await asyncio.sleep(LOOK_SECONDS)
            return False
        partitions.note(poll.partitions)
        if len(poll.partitions) < POLL_PARTITIONS_MAX:
            partitions.end_poll()
        if partitions:
            claims.opens_later = False
            claims.look()
            await _at_rest(runner)
            if claims.opens_later and runner.taken == taken:
                await _at_rest(runner)  # it looks again when the limit opens
                return False
        # Not ``claimed``: jobs may have come and gone meanwhile, and left others behind.
        self.is_idle = runner.taken == taken and not runner.is_stopping
        return self.is_idle


async def _at_rest(runner: JobRunner) -> None:
    """Wait until the worker has looked for jobs again, and claimed what it can."""
    runner.claims.rested.clear()
    if not runner.is_stopping:
        await runner.claims.rested.wait()
