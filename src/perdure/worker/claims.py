"""Claim jobs while there is room, from the partitions known to have work for this worker.

Hints add partitions; a poll replaces the whole set.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from msgspec.structs import replace

from perdure import clock
from perdure.model.ids import WorkerId
from perdure.model.job import Claimed
from perdure.model.partition import Partition, is_sticky, suspicion_in, worker_suffix
from perdure.model.worker import WorkerSettings, can_run
from perdure.store.admission import custom_limits, governing_rules, holds_place
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.worker.code import TaskCode
from perdure.worker.limiters import Limiters, Reservation

if TYPE_CHECKING:
    from perdure.worker.runner import JobRunner

REQUEST_PARTITIONS_MAX = 200
"""Partitions per claim; with more than this, claims rotate through them."""
JUDGED_MAX = 4096
"""Partitions for which it is cached whether this worker can run their jobs."""

T = TypeVar("T")


class Suspects:
    """A partition of jobs that are suspected of crashing their workers."""

    def __init__(self, request: PartitionClaim) -> None:
        self.request = request
        self.suspicion = suspicion_in(request.partition)
        self.since = clock.monotonic()
        """Since when they wait, as far as this worker knows."""
        self.retry_at = 0.0
        """When to claim again, after a claim got fewer than it could take."""


class KnownPartitions:
    """The partitions that have work for this worker, with their claim requests.

    Suspects are apart: they are claimed only while the worker has few other jobs.
    """

    def __init__(self, code: TaskCode, settings: WorkerSettings, worker: WorkerId) -> None:
        self._own_suffix = worker_suffix(worker)
        self._code = code
        self._settings = settings
        self._requests: dict[str, PartitionClaim] = {}
        self._suspects: dict[str, Suspects] = {}
        self._judged: dict[Partition, PartitionClaim | None] = {}
        self._keyless: set[str] = set()
        """Partitions whose jobs have yet to move to those of their limit keys."""
        self.limiters: Limiters
        """Set by the runner."""
        self._reservations: dict[str, Reservation] = {}
        """The partitions under custom limits."""
        self.paused: frozenset[str] = frozenset()
        """Queues that were paused at the last poll."""
        self._fresh: set[str] = set()
        self._turn = 0
        self._texts_turn = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __bool__(self) -> bool:
        return bool(self._requests or self._suspects)

    @property
    def are_limited(self) -> bool:
        return any(
            request.rules or request.partition in self._reservations
            for request in self._requests.values()
        )

    def reservation_of(self, request: PartitionClaim) -> Reservation | None:
        """Where to ask for places before claiming from a partition; None without custom limits."""
        return self._reservations.get(request.partition) if self._reservations else None

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
        for text in self._suspects.keys() - self._fresh:
            del self._suspects[text]

    def requests(self) -> list[PartitionClaim]:
        """The partitions to claim from now."""
        self._turn += REQUEST_PARTITIONS_MAX
        return _in_turn(list(self._requests.values()), self._turn)

    def suspects(self) -> list[Suspects]:
        """The partitions of suspects, those that wait for longest first."""
        if not self._suspects:
            return []
        known = sorted(self._suspects.values(), key=lambda each: each.since)
        return [each for each in known if each.request.queue not in self.paused]

    def texts(self) -> list[str]:
        """The partitions that have work, or a rotating part of them if there are very many."""
        self._texts_turn += REQUEST_PARTITIONS_MAX
        return _in_turn(list(self._requests), self._texts_turn)

    def serves(self, partition: Partition) -> bool:
        """Whether a job of a run may continue in this partition without a claim.

        Not under a limit, because only a claim counts live jobs, not before its limit keys are
        known, and not in a paused queue.
        """
        if partition.queue in self.paused:
            return False
        request = self._request_for(partition)
        return (
            request is not None
            and not request.rules
            and self.reservation_of(request) is None
            and request.partition not in self._keyless
        )

    def place_held(self, partition: Partition) -> timedelta:
        """For how long a job that was claimed under limits keeps its place before it starts.

        The rules of all partitions with the same keys count.
        """
        request = self._request_for(partition)
        keys = {rule.key for rule in request.rules} if request is not None else set()
        return holds_place(
            rule
            for each in self._judged.values()
            if each is not None
            for rule in each.rules
            if rule.key in keys
        )

    def _add(self, text: str) -> bool:
        if text in self._requests:
            return True
        if text in self._suspects:
            self._suspects[text].retry_at = 0.0
            return True
        request = self._request_for(Partition.parse(text))
        if request is None or self.is_of_another(text):
            return False
        if text != request.partition:
            if (reservation := self.reservation_of(request)) is not None:
                self._reservations[text] = reservation
            request = replace(request, partition=text)
        if suspicion_in(text).crashes:
            self._suspects[text] = Suspects(request)
        else:
            self._requests[text] = request
        return True

    def is_of_another(self, text: str) -> bool:
        """Whether only another worker claims from this stored key."""
        return is_sticky(text) and not text.endswith("]" + self._own_suffix)

    def _request_for(self, partition: Partition) -> PartitionClaim | None:
        """How to claim from a partition, if this worker can run its jobs."""
        try:
            return self._judged[partition]
        except KeyError:
            if len(self._judged) >= JUDGED_MAX:
                self._judged.clear()
                self._keyless.clear()
                known = self._requests.keys() | self._suspects.keys()
                self._reservations = {
                    text: self._reservations[text] for text in self._reservations.keys() & known
                }
        request = self._judged[partition] = self._judge(partition)
        return request

    def _judge(self, partition: Partition) -> PartitionClaim | None:
        settings = self._settings
        task = self._code.find(partition)
        if task is None or not can_run(partition, queues=settings.queues, tags=settings.tags):
            return None
        if task.computed_limits and not partition.keys:
            self._keyless.add(partition.text)
            return PartitionClaim(partition=partition.text, queue=partition.queue)
        rules = governing_rules(partition, task.limits, settings.limits)
        if custom := custom_limits(partition, task.limits, settings.limits):
            named = [(key, each.limiter) for key, each in custom if each.limiter is not None]
            self._reservations[partition.text] = self.limiters.reservation_under(named)
        return PartitionClaim(partition=partition.text, queue=partition.queue, rules=rules)


def _in_turn(known: list[T], turn: int) -> list[T]:
    if len(known) <= REQUEST_PARTITIONS_MAX:
        return known
    start = turn % len(known)
    return (known[start:] + known[:start])[:REQUEST_PARTITIONS_MAX]


RETRY_SECONDS = 1.0
SKIPPED_SECONDS_FIRST, SKIPPED_SECONDS_MAX = 0.002, 1.0
"""When to claim again after jobs were skipped because another transaction had locked them. It
usually ends at once; the delay doubles while it does not."""
BATCH_MAX = 500
DRAIN_SECONDS_MIN, DRAIN_SECONDS_SPREAD = 10.0, 50.0
"""How long suspects wait before a busy worker claims nothing else until it has room for them. The
time differs by worker, so that usually only one of them makes room."""
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
        self._turn = 0
        self._skipped_seconds = SKIPPED_SECONDS_FIRST
        self._timers: set[int] = set()
        self._changed = asyncio.Event()
        self._is_stopping = False
        self.rested = asyncio.Event()
        """Set whenever it has claimed everything that it can, and when it is stopped."""
        self.opens_later = False
        """Whether a claim left jobs that time alone will make claimable, or locked ones."""
        self._drain_seconds = drain_seconds(runner.worker_id)

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
        self.rested.set()

    @property
    def is_draining(self) -> bool:
        """Whether a suspect has waited for so long that nothing else is claimed before it."""
        runner = self._runner
        if not (suspects := runner.partitions.suspects()):
            return False  # nearly always
        now = clock.monotonic()
        return any(
            now - each.since >= self._drain_seconds and not runner.is_condemned(each.suspicion)
            for each in suspects
        )

    def _claimable_suspects(self) -> list[tuple[Suspects, int, int | None]]:
        """Suspects, how many to claim, and how many jobs the worker may have in all."""
        runner, now = self._runner, clock.monotonic()
        if runner.jobs_left == 0:
            return []
        found: list[tuple[Suspects, int, int | None]] = []
        for each in runner.partitions.suspects():
            if each.retry_at > now:
                continue
            if runner.is_condemned(each.suspicion):
                found.append((each, BATCH_MAX, None))  # to be dead-lettered, not run
            elif (room := runner.room_with(each.suspicion)) <= 0:
                continue
            elif self._has_places(each.request, 1):
                found.append((each, room, runner.slots_with(each.suspicion)))
            elif not self._is_asking(each.request):
                each.since = now  # do not make room for jobs that cannot be claimed
        return found

    async def run(self) -> None:
        runner = self._runner
        while not self._is_stopping:
            suspects = self._claimable_suspects()  # first: it can end the draining
            room = 0 if self.is_draining else min(runner.room(), BATCH_MAX)
            can_claim = self._may_have_work and room > 0 and len(runner.partitions) > 0
            if (
                not can_claim
                and not suspects
                and not (self._may_have_work and self._may_hold_unknown)
            ):
                self._changed.clear()
                runner.limiters.release_all_free()
                self.rested.set()
                await self._changed.wait()
                continue
            try:
                await self._requeue_unknown()
                if can_claim:
                    # Cleared before the claim, so that a hint during it is not lost.
                    self._may_have_work = False
                    await self._claim_unsuspected(room)
                # Those that have waited for longest; the others when there is still room then.
                for each, limit, slots in self._claimable_suspects()[:1]:
                    await self._claim_suspects(each, limit, slots)
            except Exception:
                _log.exception("claim failed; retrying")
                self._may_have_work = False
                for each in runner.partitions.suspects():
                    each.retry_at = clock.monotonic() + RETRY_SECONDS
                self.look_in(RETRY_SECONDS)

    async def _claim_unsuspected(self, room: int) -> None:
        partitions = self._runner.partitions
        requests = partitions.requests()
        if self._unasked <= 0:
            self._unasked = len(partitions)
        count = 0
        for each in self._with_places(requests, room):
            count += len((await self._claim(each, room - count)).jobs)
            if count == room:
                break
        if count:
            self._unasked = len(partitions)
        self._unasked -= len(requests)
        if count == room or self._unasked > 0:
            self._may_have_work = True

    def _with_places(
        self, requests: list[PartitionClaim], wanted: int
    ) -> list[list[PartitionClaim]]:
        """The requests by their custom limits, without those that have no places now."""
        by_reservation: dict[Reservation | None, list[PartitionClaim]] = {}
        for each in requests:
            by_reservation.setdefault(self._runner.partitions.reservation_of(each), []).append(each)
        found = [each for each in by_reservation.values() if self._has_places(each[0], wanted)]
        self._turn += 1
        start = self._turn % len(found) if found else 0
        return found[start:] + found[:start]

    def _has_places(self, request: PartitionClaim, wanted: int) -> bool:
        runner = self._runner
        reservation = runner.partitions.reservation_of(request)
        return reservation is None or runner.limiters.has_places(reservation, wanted)

    def _is_asking(self, request: PartitionClaim) -> bool:
        reservation = self._runner.partitions.reservation_of(request)
        return reservation is not None and reservation.is_asking

    async def _claim_suspects(self, suspects: Suspects, limit: int, slots: int | None) -> None:
        # What is to be dead-lettered (without ``slots``) needs no place.
        take = self._claim_within if slots is None else self._claim
        claimed = await take([suspects.request], limit, slots)
        now = clock.monotonic()
        if len(claimed.jobs) < limit:
            suspects.since = now  # do not make room for jobs that cannot be claimed
            suspects.retry_at = now + RETRY_SECONDS
            self.look_in(RETRY_SECONDS)

    async def _claim(
        self, requests: list[PartitionClaim], limit: int, slots: int | None = None
    ) -> Claimed:
        """Claim up to ``limit`` jobs, beside which the worker has at most ``slots`` at once.

        All requests are under the same custom limits.
        """
        runner = self._runner
        reservation = runner.partitions.reservation_of(requests[0])
        if reservation is None:
            return await self._claim_within(requests, limit, slots)
        try:
            limit = min(limit, len(reservation.free))
            return await self._claim_within(requests, limit, slots, reservation)
        finally:
            runner.limiters.release_free(reservation)

    async def _claim_within(
        self,
        requests: list[PartitionClaim],
        limit: int,
        slots: int | None,
        reservation: Reservation | None = None,
    ) -> Claimed:
        runner, settings = self._runner, self._runner.settings
        if runner.jobs_left is not None:
            limit = min(limit, runner.jobs_left)
        request = ClaimRequest(
            namespace=settings.namespace,
            worker=runner.worker_id,
            partitions=requests,
            limit=limit,
            lease=settings.lease,
            is_alone=slots == 1,
            incarnation=runner.incarnation,
        )
        sent_at = clock.monotonic()
        self._may_hold_unknown = True
        claimed = await self._store.jobs.claim(request)
        # While the event loop was busy, the leases may have expired without a renewal.
        is_fresh = clock.monotonic() - sent_at < settings.lease.total_seconds()
        self._may_hold_unknown = claimed.is_repeated
        if reservation is not None:
            runner.limiters.hold(reservation, claimed.jobs)
        timed = frozenset(Partition.parse(each.partition) for each in requests if _is_timed(each))
        runner.take(claimed, is_fresh=is_fresh, slots=slots, claimed_after=sent_at, timed=timed)
        await self._requeue_unknown()
        if claimed.jobs and timed:
            # A rate limit may be exhausted now: only the next answer says until when.
            self._may_have_work = True
        if claimed.has_skipped or claimed.opens_at is not None:
            self.opens_later = True
        if claimed.has_skipped:
            # The transaction that locked them may leave them unchanged, and then publishes no hint.
            self.look_in(self._skipped_seconds)
            self._skipped_seconds = min(2 * self._skipped_seconds, SKIPPED_SECONDS_MAX)
        else:
            self._skipped_seconds = SKIPPED_SECONDS_FIRST
        if claimed.opens_at is not None:
            self.look_in((claimed.opens_at - claimed.now).total_seconds())
        return claimed

    async def _requeue_unknown(self) -> None:
        """Requeue jobs of an unanswered claim; otherwise they wait until their leases expire.

        Call it only while no claim of this worker is under way.
        """
        if self._may_hold_unknown:
            runner = self._runner
            await self._store.jobs.requeue_unknown(
                runner.worker_id, list(runner.claimed), runner.incarnation
            )
            self._may_hold_unknown = False


def drain_seconds(worker: WorkerId) -> float:
    """How long suspects wait before this worker makes room for them."""
    return DRAIN_SECONDS_MIN + crc32(worker.encode()) % 1000 / 1000 * DRAIN_SECONDS_SPREAD


def _is_timed(request: PartitionClaim) -> bool:
    """Whether more jobs of a partition may start just because time passes (a rate limit)."""
    return any(rule.window is not None or rule.spacing is not None for rule in request.rules)
