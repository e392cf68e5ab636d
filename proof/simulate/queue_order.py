"""Whether a claim took what it should: what is ready, the most urgent first, as much as it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from perdure.model.job import HELD, Claimed, Status
from perdure.store.contract import ClaimRequest, LaneRequest
from perdure.store.memory.state import State
from perdure.store.memory.stored_job import StoredJob


def ill_chosen(
    state: State, request: ClaimRequest, claimed: Claimed, now: datetime
) -> Iterator[str]:
    """What is wrong with a claim, right after it was made."""
    taken = [state.jobs[job.claim.id] for job in claimed.jobs]
    for job in taken:
        if job.ready_at > now:
            yield f"job {job.id} was claimed {job.ready_at - now} before it is ready"
    if len(taken) > request.limit:
        yield f"{len(taken)} jobs were claimed, where {request.limit} were asked for"
    left = _first_left(state, request, now)
    for job in taken:
        first = left.get(job.lane.text)
        if first is not None and _urgency(first) < _urgency(job):
            yield f"job {job.id} was claimed, and {first.id} of its lane comes before it"
    free = _free_lanes(state, request, now)
    last = max(map(_urgency, taken), default=None)
    for lane in free & left.keys():
        job = left[lane]
        if len(taken) < request.limit:
            yield f"job {job.id} may be claimed, and was left where it is"
        elif last is not None and _urgency(job) < last:
            yield f"job {job.id} comes before one that was claimed, and nothing is in its way"


def _first_left(state: State, request: ClaimRequest, now: datetime) -> dict[str, StoredJob]:
    """The most urgent job of each lane among those that could still be claimed."""
    lanes = {lane.lane for lane in request.lanes}
    left: dict[str, StoredJob] = {}
    for job in state.jobs.values():
        if job.status is not Status.WAITING or job.lane.text not in lanes:
            continue
        if job.namespace != request.namespace or job.is_held_off(request.worker, now):
            continue
        first = left.get(job.lane.text)
        if first is None or _urgency(job) < _urgency(first):
            left[job.lane.text] = job
    return left


def _free_lanes(state: State, request: ClaimRequest, now: datetime) -> set[str]:
    """Lanes from which more could be claimed: open, and with room under all their limits.

    Leases that ran out take no room, whether or not somebody has taken the jobs over yet.
    """
    live: Counter[str] = Counter()
    for job in state.jobs.values():
        if job.status in HELD and job.lease_until is not None and job.lease_until > now:
            live.update(job.limit_keys)

    def is_free(lane: LaneRequest) -> bool:
        if (request.namespace, lane.queue) in state.paused:
            return False
        for rule in lane.rules:
            kept = state.limits.get((request.namespace, rule.key))
            is_closed = kept is not None and kept.closed_until is not None
            if rule.live_max is None or live[rule.key] >= rule.live_max or is_closed:
                return False  # rates are judged by the starts that there were
        return True

    return {lane.lane for lane in request.lanes if is_free(lane)}


def _urgency(job: StoredJob) -> tuple[float, str]:
    return job.rank, job.id
