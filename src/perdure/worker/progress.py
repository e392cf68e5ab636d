"""Progress: written a few times a second, however often it is reported.

The first report of an idle worker is written immediately. The last one is never lost: the outcome
of the attempt carries it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from perdure.model.job import Progress
from perdure.store.contract import Store
from perdure.worker.events import AttemptProgressed, WorkerEvents
from perdure.worker.executors import call_on_loop

if TYPE_CHECKING:
    from perdure.worker.attempt import Attempt

INTERVAL_SECONDS = 0.25
_log = logging.getLogger("perdure.worker")


class ProgressWriter:
    """Collects the latest progress of all attempts and writes it in one statement."""

    def __init__(self, store: Store, events: WorkerEvents) -> None:
        self._store = store
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._unwritten: dict[Attempt, Progress] = {}
        self._is_awake = False
        self._writer: asyncio.Task[None] | None = None

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Record progress, from any thread."""
        with self._lock:
            self._unwritten[attempt] = progress
            if self._is_awake:
                return
            self._is_awake = True
        call_on_loop(self._loop, self._wake)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()

    def _wake(self) -> None:
        self._writer = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while batch := self._take():
            try:
                await self._store.jobs.save_progress(
                    [(attempt.claim, progress) for attempt, progress in batch.items()]
                )
            except Exception:
                # Progress is informational: losing it must not fail the job.
                _log.exception("writing progress failed", extra={"fields": {"jobs": len(batch)}})
            for attempt, progress in batch.items():
                if not attempt.is_over:  # no progress event after the attempt ended
                    self._events.emit_job(AttemptProgressed, attempt.job, progress=progress)
            await asyncio.sleep(INTERVAL_SECONDS)

    def _take(self) -> dict[Attempt, Progress]:
        with self._lock:
            reported, self._unwritten = self._unwritten, {}
            # Ended attempts write their progress with the outcome.
            batch = {attempt: latest for attempt, latest in reported.items() if not attempt.is_over}
            self._is_awake = bool(batch)
        return batch
