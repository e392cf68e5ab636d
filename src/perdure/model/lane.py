"""A lane: jobs that any worker able to run one of them is able to run all of.

Waiting jobs are indexed by (lane, rank), so a claim never reads past jobs that it cannot take.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from perdure.model.value import Value


class Lane(Value):
    """Queue, task and tags decide who may run a job; ``keys`` are its computed limit keys."""

    queue: str
    task: str
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The lane as it is stored."""
        return _encode(self)

    @staticmethod
    def parse(text: str) -> Lane:
        return _parse(text)


@lru_cache(maxsize=4096)
def _encode(lane: Lane) -> str:
    return msgspec.json.encode((lane.queue, lane.task, lane.tags, lane.keys)).decode()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Lane:
    queue, task, tags, keys = msgspec.json.decode(
        text, type=tuple[str, str, tuple[str, ...], tuple[str, ...]]
    )
    return Lane(queue=queue, task=task, tags=tags, keys=keys)
