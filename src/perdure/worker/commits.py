"""Commits: outcomes written in groups, each under its own claim's fence.

A store that cannot write now is tried again until it can: an outcome is only given up when its
claim is stale, or when the store refuses that one outcome for good. Then a result becomes a failure
that says so; a job that was to run again is left to, once its lease has run out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from perdure.errors import StaleClaim, StoreError
from perdure.model.job import Status
from perdure.model.outcome import (
    Buried,
    Cancelled,
    Completed,
    Failed,
    GivenBack,
    NodeOutcome,
    Paused,
    Released,
    Settlement,
    Skipped,
)
from perdure.model.payload import Codec
from perdure.rules.failure import describe
from perdure.store.batching import Batches
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.parking import save_checkpoint
from perdure.worker.run_commits import RunCommits
from perdure.worker.run_commits import Settled as NodeSettled
from perdure.worker.settings import WorkerSettings
from perdure.worker.steps import owner_of

BATCH_MAX = 500
STEPS_MAX = 64
WRITERS = 2
"""Steps are decided upon before they are committed: while the store is at one batch of them, the
next is decided. Of one run there is never more than one commit under way."""
RETRY_SECONDS = 1.0
_log = logging.getLogger("perdure.worker")

Settled = Callable[[Attempt, NodeOutcome, Status | None], None]
NodesSettled = Callable[[NodeSettled], None]


class Commits:
    """Takes outcomes, and tells what the store made of each: a status, or None if it was stale."""

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        runs: RunCommits,
        settled: Settled,
        node_settled: NodesSettled,
        codec: Codec,
    ) -> None:
        self._store = store
        self._runs = runs
        self._codec = codec
        self._settled = settled
        self._node_settled = node_settled
        self._dropped = _dropped_kinds(settings)
        self._jobs = Batches(self._write_jobs, batch_max=BATCH_MAX)
        self._nodes = Batches(
            self._write_nodes, batch_max=STEPS_MAX, writers=WRITERS, key=lambda item: _run_of(*item)
        )

    def __len__(self) -> int:
        """Outcomes that wait for the next write."""
        return len(self._jobs) + len(self._nodes)

    def add(self, attempt: Attempt, outcome: NodeOutcome) -> None:
        batches = self._nodes if moves_run(attempt, outcome) else self._jobs
        batches.add((attempt, outcome), starts=not attempt.writes_itself)

    async def write_here(self) -> None:
        """Write what was added, within the caller's own task if nobody is writing."""
        await self._nodes.write_here()
        await self._jobs.write_here()

    async def flush(self) -> None:
        await self._nodes.flush()
        await self._jobs.flush()

    async def _write(self, pair: tuple[Attempt, NodeOutcome]) -> None:
        if moves_run(*pair):
            await self._write_nodes([pair])
        else:
            await self._write_jobs([pair])

    async def _write_nodes(self, batch: list[tuple[Attempt, NodeOutcome]]) -> None:
        left = {id(attempt): (attempt, outcome) for attempt, outcome in batch}

        def tell(settled: NodeSettled) -> None:
            del left[id(settled.attempt)]
            self._node_settled(settled)

        try:
            await self._runs.write(batch, tell)
        except Exception as error:
            await self._write_apart(list(left.values()), error)

    async def _write_jobs(self, batch: list[tuple[Attempt, NodeOutcome]]) -> None:
        for attempt, outcome in batch:
            if isinstance(outcome, Paused):
                await self._save_checkpoint(attempt, outcome)
        settlements = [self._settlement(attempt, outcome) for attempt, outcome in batch]
        try:
            statuses = await self._settle(settlements)
        except Exception as error:
            await self._write_apart(batch, error)
        else:
            for (attempt, outcome), status in zip(batch, statuses, strict=True):
                self._settled(attempt, outcome, status)

    async def _save_checkpoint(self, attempt: Attempt, outcome: Paused) -> None:
        """Before the job is parked: from then on somebody may resume it."""
        job = attempt.job
        while True:
            try:
                await save_checkpoint(self._store, job, owner_of(job), self._codec, outcome)
            except StaleClaim:  # as its settlement will tell
                return
            except StoreError:
                _log.exception("the checkpoint of job %s was not written", job.claim.id)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _settle(self, settlements: list[Settlement]) -> list[Status | None]:
        while True:
            try:
                return await self._store.jobs.settle(settlements)
            except StoreError:
                _log.exception("outcomes of %d jobs were not written", len(settlements))
                await asyncio.sleep(RETRY_SECONDS)

    async def _write_apart(
        self, batch: list[tuple[Attempt, NodeOutcome]], error: Exception
    ) -> None:
        """One outcome that the store refuses must not take the others with it."""
        if len(batch) != 1:
            for pair in batch:
                await self._write(pair)
            return
        [(attempt, outcome)] = batch
        _log.error("the outcome of job %s was refused", attempt.claim.id, exc_info=error)
        if attempt.progress is not None:  # it may be what was refused
            attempt.progress = None
            await self._write((attempt, outcome))
        elif isinstance(outcome, Completed | Buried | Cancelled | Paused | Skipped):
            await self._write((attempt, Failed(failure=describe(error))))
        elif attempt.job.node is not None:
            self._node_settled(NodeSettled(attempt, outcome))
        else:
            self._settled(attempt, outcome, None)

    def _settlement(self, attempt: Attempt, outcome: NodeOutcome) -> Settlement:
        assert not isinstance(outcome, Skipped), "only nodes are skipped"
        return Settlement(
            claim=attempt.job.claim,
            outcome=Released() if isinstance(outcome, Paused) else outcome,
            progress=attempt.progress,
            is_dropped=isinstance(outcome, self._dropped),
        )


def moves_run(attempt: Attempt, outcome: NodeOutcome) -> bool:
    """Whether an outcome is the affair of a run, rather than of the job alone."""
    return attempt.job.node is not None and not isinstance(outcome, GivenBack | Released)


def _run_of(attempt: Attempt, outcome: NodeOutcome) -> tuple[str, str]:
    """What two commits must not be about at the same time: one of them would come too late."""
    assert attempt.job.node is not None
    return attempt.job.namespace, attempt.job.node.run


def _dropped_kinds(settings: WorkerSettings) -> tuple[type, ...]:
    """The outcomes after which a job is hidden at once."""
    kinds: list[type] = []
    if settings.keep_completed == timedelta(0):
        kinds += [Completed, Cancelled]
    if settings.keep_failed == timedelta(0):
        kinds.append(Failed)
    if settings.keep_dead == timedelta(0):
        kinds.append(Buried)
    return tuple(kinds)
