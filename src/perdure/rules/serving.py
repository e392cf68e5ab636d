"""Who takes which jobs: whether a worker is live, and whether it has what a job needs."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from perdure.model.lane import Lane
from perdure.model.worker import WorkerInfo, WorkerState


def is_live(worker: WorkerState, now: datetime, *, leases: float = 1) -> bool:
    """Whether it has given a sign of life within its lease, or within so many of them.

    ``now`` is the store's time, as the sign of life is.
    """
    return now - worker.seen_at <= leases * worker.info.lease


def has_code(worker: WorkerInfo, *, task: str, flow: str) -> bool:
    """Whether it has the version of the flow; without a flow, as of plain jobs, the task."""
    return flow in worker.flows if flow else task in worker.tasks


def has_tags(own: Collection[str] | None, wanted: Collection[str]) -> bool:
    """Whether a worker with these tags takes such jobs; without tags it takes any."""
    return own is None or all(tag in own for tag in wanted)


def can_run(lane: Lane, *, queues: Collection[str], tags: Collection[str] | None) -> bool:
    """Whether a worker with these queues and tags may claim from a lane."""
    return lane.queue in queues and has_tags(tags, lane.tags)
