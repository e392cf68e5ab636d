"""A partition: jobs that any worker able to run one of them is able to run all of.

Waiting jobs are indexed by (partition, rank), so a claim never reads past jobs that it cannot take.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from perdure.model.value import Value


class Partition(Value, cache_hash=True):
    """Queue, task and tags decide who may run a job; ``keys`` are its computed limit keys."""

    queue: str
    task: str
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    flow: str = ""
    """Of a job of a run: the version of its flow, as ``name@version``."""

    @property
    def text(self) -> str:
        """The partition as it is stored."""
        return _encode(self)

    @staticmethod
    def parse(text: str) -> Partition:
        return _parse(text)


@lru_cache(maxsize=4096)
def _encode(partition: Partition) -> str:
    parts: tuple[object, ...] = (partition.queue, partition.task, partition.tags, partition.keys)
    return msgspec.json.encode((*parts, partition.flow) if partition.flow else parts).decode()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Partition:
    try:
        queue, task, tags, keys, *flow = msgspec.json.decode(text)
        return Partition(
            queue=queue, task=task, tags=tuple(tags), keys=tuple(keys), flow=flow[0] if flow else ""
        )
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        return UNREADABLE


UNREADABLE = Partition(queue="", task="")
"""Stands for a key that does not parse: no worker has code for it, so its jobs stay queued and do
not stop others."""
