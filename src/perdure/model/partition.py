"""A lane: jobs that any worker able to run one of them is able to run all of.

Waiting jobs are indexed by (lane, rank), so a claim never reads past jobs that it cannot take.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from perdure.model.value import Value


class Lane(Value, cache_hash=True):
    """Queue, task and tags decide who may run a job; ``keys`` are its computed limit keys."""

    queue: str
    task: str
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    flow: str = ""
    """Of a job of a run: the version of its flow, as ``name@version``."""

    @property
    def text(self) -> str:
        """The lane as it is stored."""
        return _encode(self)

    @staticmethod
    def parse(text: str) -> Lane:
        return _parse(text)


@lru_cache(maxsize=4096)
def _encode(lane: Lane) -> str:
    parts: tuple[object, ...] = (lane.queue, lane.task, lane.tags, lane.keys)
    return msgspec.json.encode((*parts, lane.flow) if lane.flow else parts).decode()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Lane:
    try:
        queue, task, tags, keys, *flow = msgspec.json.decode(text)
        return Lane(
            queue=queue, task=task, tags=tuple(tags), keys=tuple(keys), flow=flow[0] if flow else ""
        )
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        return UNREADABLE


UNREADABLE = Lane(queue="", task="")
"""What stands for a text that is no lane: nobody has code for it, so its jobs stay where they are,
and others go on."""
