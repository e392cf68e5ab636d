"""Which lanes a worker may claim from."""

from __future__ import annotations

from collections.abc import Collection

from perdure.model.lane import Lane


def can_run(
    lane: Lane,
    *,
    queues: Collection[str],
    tasks: Collection[str],
    tags: Collection[str] | None,
) -> bool:
    """A worker runs what it has code for. Without tags it takes any job, else those it covers."""
    if lane.queue not in queues or lane.task not in tasks:
        return False
    return tags is None or all(tag in tags for tag in lane.tags)
