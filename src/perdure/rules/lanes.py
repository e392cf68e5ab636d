"""Which lanes a worker may claim from."""

from __future__ import annotations

from collections.abc import Collection

from perdure.model.lane import Lane


def can_run(
    lane: Lane,
    *,
    queues: Collection[str],
    tags: Collection[str] | None,
) -> bool:
    """Whether it serves the queue. Without tags it takes any job, else those whose tags it has."""
    if lane.queue not in queues:
        return False
    return tags is None or all(tag in tags for tag in lane.tags)
