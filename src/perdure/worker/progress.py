"""Progress: written a few times a second however often it is reported.

The first report of a quiet worker is written at once. The last one always is, because the outcome
of an attempt carries it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from perdure.model.job import Progress
from perdure.store.contract import Store
from perdure.worker.events import AttemptProgressed, WorkerEvents
from perdure.worker.executors import tell

if TYPE_CHECKING:
    from perdure.worker.attempt import Attempt

INTERVAL_SECONDS = 0.25
_log = logging.getLogger("perdure.worker")


class ProgressWriter:
    """Gathers the latest progress of all attempts and writes it in one statement."""

    def __init__(self, store: Store, events: WorkerEvents) -> None:
        self._store = store
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._unwritten: dict[Attempt, Progress] = {}
        self._is_awake = False
        self._writer: asyncio.Task[None] | None = None

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Called from any thread."""
        with self._lock:
            self._unwritten[attempt] = progress
            if self._is_awake:
                return
            self._is_awake = True
        tell(self._loop, self._wake)

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
                # Progress is informative only: its loss must not cost the job.
                _log.exception("progress of %d jobs not written", len(batch))
            for attempt, progress in batch.items():
                if not attempt.is_over:  # no event of it after that of its end
                    self._events.emit_job(AttemptProgressed, attempt.job, progress=progress)
            await asyncio.sleep(INTERVAL_SECONDS)

    def _take(self) -> dict[Attempt, Progress]:
        with self._lock:
            reported, self._unwritten = self._unwritten, {}
            # What is over is written with its outcome.
            batch = {attempt: latest for attempt, latest in reported.items() if not attempt.is_over}
            self._is_awake = bool(batch)
        return batch
