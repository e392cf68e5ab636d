"""How waiting jobs become held ones: the order of the queue, and the limits on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice

from perdure.model.duration import nearest_duration
from perdure.model.ids import JobId
from perdure.model.job import Claimed, Status
from perdure.model.limit import LimitRule
from perdure.rules.limits import share_out
from perdure.store.contract import ClaimRequest
from perdure.store.lifecycle import Operation
from perdure.store.memory.limits import record_starts, rooms_under
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Transaction

LaneRules = Mapping[str, tuple[LimitRule, ...]]


def claim(transaction: Transaction, request: ClaimRequest) -> Claimed:
    """Lease the most urgent jobs of the lanes, as many as the limits leave room for."""
    lanes = {
        lane.lane: lane.rules
        for lane in request.lanes
        if (request.namespace, lane.queue) not in transaction.state.paused
    }
    rules = tuple(dict.fromkeys(rule for lane_rules in lanes.values() for rule in lane_rules))
    rooms = rooms_under(transaction, request.namespace, rules)

    candidates = ((job.id, _keys(job, lanes)) for job in _in_order(transaction, request, lanes))
    left = {key: room.count for key, room in rooms.items()}
    chosen = share_out(candidates, left, request.limit)

    started = [_start(transaction, JobId(id), request, lanes) for id in chosen]
    record_starts(transaction, request.namespace, started, rules)
    openings = [room.opens_at for room in rooms.values() if not room.count and room.opens_at]
    return Claimed(
        jobs=[job.as_claimed() for job in started],
        now=transaction.now,
        opens_at=min(openings, default=None),
    )


def _in_order(
    transaction: Transaction, request: ClaimRequest, lanes: LaneRules
) -> Iterator[StoredJob]:
    """The jobs this worker may start, lowest rank first, then oldest id."""

    def startable(lane: str) -> Iterator[tuple[float, JobId]]:
        for rank, id in transaction.state.waiting.entries((request.namespace, lane)):
            if not transaction.state.jobs[id].is_held_off(request.worker, transaction.now):
                yield rank, id

    # All jobs of a lane share its limits, so what lies behind the first ``limit`` cannot be chosen.
    fronts = [islice(startable(lane), request.limit) for lane in lanes]
    return (transaction.state.jobs[id] for _, id in merge(*fronts))


def _start(
    transaction: Transaction, id: JobId, request: ClaimRequest, lanes: LaneRules
) -> StoredJob:
    job = transaction.state.jobs[id]
    return transaction.move(
        job,
        Operation.CLAIM,
        Status.ACTIVE,
        epoch=job.epoch + 1,
        attempt=job.attempt + 1,
        worker=request.worker,
        started_at=transaction.now,
        lease_until=transaction.now + nearest_duration(request.lease),
        limit_keys=_keys(job, lanes),
    )


def _keys(job: StoredJob, lanes: LaneRules) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule.key for rule in lanes[job.lane.text]))
