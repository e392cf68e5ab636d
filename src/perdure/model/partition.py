"""Partitions: groups of jobs that can be executed by the same workers.

Waiting jobs are indexed by (partition, rank), so a claim only reads jobs that it can take.
For the same reason a job that is suspected of crashing its workers waits in a partition of its own:
the stored key is that of its partition, followed by its suspicion: ``["mail","send",[],[]]~2.0``.
A job that waits for one worker has the number of that worker there: ``["mail","send",[],[]]~~85``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

import msgspec

from perdure.model.ids import WorkerId
from perdure.model.value import Value


class Partition(Value, cache_hash=True):
    """Queue, task and tags decide who may run a job; ``keys`` are its computed limit keys."""

    queue: str
    task: str
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    flow: str = ""
    """For a job of a run: its flow, as ``name@version``."""

    @property
    def text(self) -> str:
        """The stored form."""
        return _encode(self)

    @staticmethod
    def parse(text: str) -> Partition:
        """The partition of a stored key, whatever follows it."""
        return _parse(text)


class Suspicion(Value):
    """How likely a job is to crash its worker, by the crashes since it last made progress.

    A crash is charged to every job of the worker, so it proves nothing unless the job was alone.
    """

    crashes: int = 0
    """It runs beside at most ``concurrency >> crashes`` other jobs."""
    alone: int = 0
    """Crashes while its worker had no other job; these count toward ``max_crashes``."""

    def after_crash(self, *, was_alone: bool) -> Suspicion:
        """After another crash. The first one never counts as alone: the job was not isolated."""
        counts = was_alone and self.crashes > 0
        return Suspicion(crashes=min(self.crashes + 1, CRASHES_MAX), alone=self.alone + counts)

    def slots(self, concurrency: int) -> int:
        """How many jobs a worker may have at once while it has this one."""
        return 1 + (concurrency >> self.crashes)


CRASHES_MAX = 30
"""Bounds the number of partitions; no worker runs so many jobs that a higher number matters."""

_SUSPECTED = re.compile(r"(.*\])~([1-9][0-9]{0,2})\.([0-9]{1,9})", re.DOTALL)
_STICKY = re.compile(r"(.*\])~~[0-9]{1,20}", re.DOTALL)


@lru_cache(maxsize=4096)
def suspicion_in(text: str) -> Suspicion:
    """The suspicion in a stored key."""
    found = _SUSPECTED.fullmatch(text)
    return UNSUSPECTED if found is None else Suspicion(crashes=int(found[2]), alone=int(found[3]))


def with_suspicion(text: str, suspicion: Suspicion) -> str:
    """The stored key with another suspicion. A key that does not parse stays as it is."""
    if _parse(text) == UNREADABLE:
        return text
    base = _base(text)
    return f"{base}~{suspicion.crashes}.{suspicion.alone}" if suspicion.crashes else base


def with_worker(text: str, worker: WorkerId | None) -> str:
    """The stored key of a job that waits for this worker, or for none any more.

    A suspect waits for none: it crashed that worker.
    """
    if _SUSPECTED.fullmatch(text) or _parse(text) == UNREADABLE:
        return text
    return _base(text) + worker_suffix(worker)


def is_sticky(text: str) -> bool:
    """Whether only one worker claims from a stored key."""
    return "]~~" in text and _STICKY.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def worker_suffix(worker: WorkerId | None) -> str:
    """The end of the stored keys of jobs that wait for this worker."""
    if worker is None:
        return ""
    return f"~~{int.from_bytes(blake2b(worker.encode(), digest_size=8).digest())}"


def _base(text: str) -> str:
    found = _SUSPECTED.fullmatch(text) or _STICKY.fullmatch(text)
    return text if found is None else found[1]


UNSUSPECTED = Suspicion()


@lru_cache(maxsize=4096)
def _encode(partition: Partition) -> str:
    parts: tuple[object, ...] = (partition.queue, partition.task, partition.tags, partition.keys)
    return msgspec.json.encode((*parts, partition.flow) if partition.flow else parts).decode()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Partition:
    try:
        queue, task, tags, keys, *flow = msgspec.json.decode(_base(text))
        return Partition(
            queue=queue, task=task, tags=tuple(tags), keys=tuple(keys), flow=flow[0] if flow else ""
        )
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        return UNREADABLE


UNREADABLE = Partition(queue="", task="")
"""Placeholder for a partition that cannot be parsed: no worker serves it, so its jobs stay queued
without blocking others."""
