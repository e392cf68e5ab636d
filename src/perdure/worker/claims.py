"""Claim jobs while there is room, from the partitions known to have work for this worker.

Hints add partitions; a poll replaces the whole set.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from perdure import clock
from perdure.model.partition import Partition
from perdure.model.worker import WorkerSettings, can_run
from perdure.store.admission import governing_rules
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.worker.code import TaskCode

if TYPE_CHECKING:
    from perdure.worker.runner import JobRunner

REQUEST_PARTITIONS_MAX = 200
"""Partitions per claim; with more than this, claims rotate through them."""
JUDGED_MAX = 4096
"""Partitions for which the answer whether this worker can run their jobs is cached."""

T = TypeVar("T")


class KnownPartitions:
    """The partitions that have work for this worker, with their claim requests."""

    def __init__(self, code: TaskCode, settings: WorkerSettings) -> None:
        self._code = code
        self._settings = settings
        self._requests: dict[str, PartitionClaim] = {}
        self._judged: dict[Partition, PartitionClaim | None] = {}
        self.paused: frozenset[str] = frozenset()
        """Queues that were paused at the last poll."""
        self._fresh: set[str] = set()
        self._turn = 0
        self._texts_turn = 0

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def are_limited(self) -> bool:
        return any(request.rules for request in self._requests.values())

    def note(self, texts: Iterable[str]) -> bool:
        """Add partitions that have work; True if this worker can run jobs of any of them."""
        ours = [text for text in texts if self._add(text)]
        self._fresh.update(ours)
        return bool(ours)

    def start_poll(self) -> None:
        self._fresh.clear()

    def end_poll(self) -> None:
        """Drop partitions that were not noted since the poll started: they have no work."""
        for text in self._requests.keys() - self._fresh:
            del self._requests[text]

    def requests(self) -> list[PartitionClaim]:
        """The partitions to claim from now."""
        self._turn += REQUEST_PARTITIONS_MAX
        return _in_turn(list(self._requests.values()), self._turn)

    def texts(self) -> list[str]:
        """The partitions that have work, or a rotating part of them if there are very many."""
        self._texts_turn += REQUEST_PARTITIONS_MAX
        return _in_turn(list(self._requests), self._texts_turn)

    def serves(self, partition: Partition) -> bool:
        """Whether a job of a run may continue in this partition without a claim.

        Not under a limit, because only a claim counts live jobs, and not in a paused queue.
        """
        if partition.queue in self.paused:
            return False
        request = self._request_for(partition)
        return request is not None and not request.rules

    def _add(self, text: str) -> bool:
        if text in self._requests:
            return True
        request = self._request_for(Partition.parse(text))
        if request is None:
            return False
        self._requests[text] = request
        return True

    def _request_for(self, partition: Partition) -> PartitionClaim | None:
        """How to claim from a partition, if this worker can run its jobs."""
        try:
            return self._judged[partition]
        except KeyError:
            if len(self._judged) >= JUDGED_MAX:
                self._judged.clear()
        request = self._judged[partition] = self._judge(partition)
        return request

    def _judge(self, partition: Partition) -> PartitionClaim | None:
        settings = self._settings
        task = self._code.find(partition)
        if task is None or not can_run(partition, queues=settings.queues, tags=settings.tags):
            return None
        rules = governing_rules(partition, task.limits, settings.limits)
        return PartitionClaim(partition=partition.text, queue=partition.queue, rules=rules)


def _in_turn(known: list[T], turn: int) -> list[T]:
    if len(known) <= REQUEST_PARTITIONS_MAX:
        return known
    start = turn % len(known)
    return (known[start:] + known[:start])[:REQUEST_PARTITIONS_MAX]


RETRY_SECONDS = 1.0
BATCH_MAX = 500
TIMER_STEP_SECONDS = 0.001
_log = logging.getLogger("perdure.worker")


class Claims:
    """Claims as many jobs as the runner has room for, until it is stopped."""

    def __init__(self, store: Store, runner: JobRunner) -> None:
        self._store = store
        self._runner = runner
        self._may_have_work = False
        self._unasked = 0
        """Partitions not yet tried since a claim last returned jobs."""
        self._may_hold_unknown = False
        """Whether a claim whose answer was lost may have taken jobs."""
        self._timers: set[int] = set()
        self._changed = asyncio.Event()
        self._is_stopping = False

    def look(self) -> None:
        """Claim soon: there may be work."""
        self._may_have_work = True
        self._changed.set()

    def look_in(self, seconds: float) -> None:
        """Claim again after ``seconds``. Calls for the same moment share one timer."""
        loop = asyncio.get_running_loop()
        tick = math.ceil((loop.time() + max(0.0, seconds)) / TIMER_STEP_SECONDS)
        if tick not in self._timers:
            self._timers.add(tick)
            loop.call_at(tick * TIMER_STEP_SECONDS, self._timer_fired, tick)

    def _timer_fired(self, tick: int) -> None:
        self._timers.discard(tick)
        self.look()

    def wake(self) -> None:
        """There may be room: claim if there may be work."""
        self._changed.set()

    def stop(self) -> None:
        """Claim no more jobs; a claim under way is completed."""
        self._is_stopping = True
        self._changed.set()

    async def run(self) -> None:
        runner = self._runner
        while not self._is_stopping:
            room = min(runner.room(), BATCH_MAX)
            can_claim = room > 0 and bool(runner.partitions)
            if not self._may_have_work or not (can_claim or self._may_hold_unknown):
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await self._requeue_unknown()
                if can_claim:
                    # Cleared before the claim, so that a hint during it is not lost.
                    self._may_have_work = False
                    await self._claim(room)
            except Exception:
                _log.exception("claim failed; trying again")
                self._may_have_work = False
                self.look_in(RETRY_SECONDS)

    async def _claim(self, room: int) -> None:
        runner = self._runner
        partitions, settings = runner.partitions, runner.settings
        requests = partitions.requests()
        if self._unasked <= 0:
            self._unasked = len(partitions)
        request = ClaimRequest(
            namespace=settings.namespace,
            worker=runner.worker_id,
            partitions=requests,
            limit=room,
            lease=settings.lease,
        )
        sent_at = clock.monotonic()
        self._may_hold_unknown = True
        claimed = await self._store.jobs.claim(request)
        # While the event loop was busy, the leases may have expired without a renewal.
        is_fresh = clock.monotonic() - sent_at < settings.lease.total_seconds()
        self._may_hold_unknown = claimed.is_repeated
        runner.take(claimed, is_fresh=is_fresh)
        await self._requeue_unknown()
        if claimed.jobs:
            self._unasked = len(partitions)
        self._unasked -= len(requests)
        if len(claimed.jobs) == room or self._unasked > 0:
            self._may_have_work = True
        if claimed.jobs and any(_is_timed(request) for request in requests):
            # A rate limit may be exhausted now: only the next answer says until when.
            self._may_have_work = True
        if claimed.opens_at is not None:
            self.look_in((claimed.opens_at - claimed.now).total_seconds())

    async def _requeue_unknown(self) -> None:
        """Requeue jobs of an unanswered claim; otherwise they wait until their leases expire.

        Call it only while no claim of this worker is under way.
        """
        if self._may_hold_unknown:
            await self._store.jobs.requeue_unknown(
                self._runner.worker_id, list(self._runner.claimed)
            )
            self._may_hold_unknown = False


def _is_timed(request: PartitionClaim) -> bool:
    """Whether more jobs of a partition may start just because time passes (a rate limit)."""
    return any(rule.window is not None or rule.spacing is not None for rule in request.rules)
