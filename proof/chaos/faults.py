"""Faults, their environment, and the nemesis that injects them.

The nemesis injects faults in a random order of its seed, with pauses in between.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from perdure.clock import monotonic
from perdure.model.value import Value
from perdure.worker.isolation import EXIT_SUPERSEDED
from proof.chaos.load import LEASE_SECONDS
from proof.chaos.processes import ChaosProcess, ProcessPool


@dataclass(frozen=True, slots=True)
class Fault:
    """A type of fault. ``happen`` undoes it before it returns a description."""

    name: str
    happen: Callable[[Random], Awaitable[str]]
    is_certain: bool = False
    """Whether every run of chaos has it, however short."""
    ends_others: bool = False
    """Whether it ends other faults, such as held connections."""


class Missed(Exception):
    """A fault that had no effect or ended early; it does not count."""


class Misbehaved(Exception):
    """A process violated a promise under a fault."""


class ProcessFaults:
    """Kills, stops and freezes of worker and client processes."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool

    def all(self) -> list[Fault]:
        return [
            Fault("kill -9 of a worker", self.kill_worker, is_certain=True),
            Fault("kill -9 of all workers", self.kill_all_workers),
            Fault("stop of a worker", self.stop_worker),
            Fault("worker frozen past its leases", self.freeze_worker, is_certain=True),
            Fault("second worker under one id", self.supersede_worker, is_certain=True),
            Fault("kill -9 of a client", self.kill_client),
            Fault("client frozen", self.freeze_client),
        ]

    async def kill_worker(self, random: Random) -> str:
        return _killed([_one(self._pool.workers, random)])

    async def kill_all_workers(self, random: Random) -> str:
        return _killed(self._pool.workers)

    async def stop_worker(self, random: Random) -> str:
        worker = _one(self._pool.workers, random)
        if not worker.is_at_work:
            raise Missed(f"{worker.name} was starting")
        complaint = await worker.stop_gracefully()
        if complaint is not None:
            raise Misbehaved(complaint)
        if worker.is_killed:
            raise Missed(f"{worker.name} was killed before it had stopped")
        return worker.name

    async def freeze_worker(self, random: Random) -> str:
        return await _frozen(
            _one(self._pool.workers, random), random.uniform(1.2, 3) * LEASE_SECONDS
        )

    async def supersede_worker(self, random: Random) -> str:
        """The older one must lose its claims and end, so that no supervisor restarts it."""
        named = [each for each in self._pool.workers if each.has_worker_id]
        worker = _one(named, random)
        if not worker.is_at_work or worker.is_frozen:
            raise Missed(f"{worker.name} was {'frozen' if worker.is_frozen else 'starting'}")
        code = await worker.supersede()
        if code is None:
            raise Missed(f"the second {worker.name} could not start")
        if worker.is_killed or worker.is_stopped:
            raise Missed(f"{worker.name} ended before")
        if code != EXIT_SUPERSEDED:
            raise Misbehaved(f"{worker.name} ended with {code} after another one had its id")
        return worker.name

    async def kill_client(self, random: Random) -> str:
        return _killed([_one(self._pool.clients, random)])

    async def freeze_client(self, random: Random) -> str:
        return await _frozen(_one(self._pool.clients, random), random.uniform(0.5, 3))


def _one(processes: Sequence[ChaosProcess], random: Random) -> ChaosProcess:
    """A working process rather than a starting one, which a fault would hardly affect."""
    ready = [each for each in processes if each.is_at_work and not each.is_frozen]
    return random.choice(ready or processes)


def _killed(processes: Sequence[ChaosProcess]) -> str:
    hit = [each.name for each in processes if each.is_at_work]
    for each in processes:
        each.kill()
    if not hit:
        raise Missed(f"{', '.join(each.name for each in processes)}: starting")
    return ", ".join(hit)


async def _frozen(process: ChaosProcess, seconds: float) -> str:
    pid = process.pid
    if not process.is_at_work or process.is_frozen:
        reason = "frozen already" if process.is_frozen else "starting"
        raise Missed(f"{process.name} was {reason}")
    process.freeze()
    try:
        await asyncio.sleep(seconds)
    finally:
        process.thaw()
    if process.pid != pid:
        raise Missed(f"{process.name} was killed meanwhile")
    return f"{process.name} for {seconds:.1f} s"


class Environment(ABC):
    """One store. ``url`` is for the processes, ``own_url`` for the harness, bypassing faults."""

    name: str
    url: str
    own_url: str
    clock: Path | None = None
    """The shift of the processes' clock; None: the store has its own clock."""

    clock_error_seconds: float = 0.0
    """Maximum error of each process's own clock, if the store has one."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def faults(self, pool: ProcessPool) -> list[Fault]:
        """The faults of this store."""

    @abstractmethod
    def left_out(self) -> list[str]:
        """Faults that are impossible here, and why."""


PAUSE_SECONDS = (0.2, 1.5)
OVERLAP_SHARE = 0.4
"""The share of faults that start while the previous one is active."""
TRIES_MAX = 5
"""Attempts of a certain fault until it takes effect."""


class FaultRecord(Value):
    """A fault that was tried, and how long after the start."""

    name: str
    at_seconds: float
    detail: str
    is_hit: bool
    """Whether it had an effect. Only then was it survived."""


class Nemesis:
    """Injects every certain fault first; then every type once, in a new order each round."""

    def __init__(
        self, faults: Sequence[Fault], seed: int, print_line: Callable[[str], None]
    ) -> None:
        self.records: list[FaultRecord] = []
        self.complaints: list[str] = []
        self._faults = faults
        self._random = Random(seed)
        self._print_line = print_line
        self._began = monotonic()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def hits(self) -> Counter[str]:
        return Counter(record.name for record in self.records if record.is_hit)

    async def inject(self, seconds: float) -> None:
        """Inject faults until the time is over, all certain faults have hit, and all are undone."""
        self._began = monotonic()
        await self._certain_ones(Random(self._random.random()))
        for fault, random in self._order():
            if monotonic() - self._began >= seconds:
                break
            self._start(fault, random)
            if self._random.random() >= OVERLAP_SHARE:
                await self._ended()
            await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))
        await self._ended()

    async def _certain_ones(self, random: Random) -> None:
        """Each starts once the previous one has started, regardless of time, and again if it
        missed.
        """
        left = [fault for fault in self._faults if fault.is_certain]
        for _ in range(TRIES_MAX):
            random.shuffle(left)
            for fault in sorted(left, key=lambda each: each.ends_others):
                if fault.ends_others:
                    await self._ended()
                self._start(fault, Random(random.random()))
                await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
            await self._ended()
            left = [fault for fault in left if not self.hits[fault.name]]

    def _order(self) -> Iterator[tuple[Fault, Random]]:
        """Each fault has its own random numbers, so that the order depends on the seed alone."""
        while True:
            for fault in self._random.sample(self._faults, len(self._faults)):
                yield fault, Random(self._random.random())

    def _start(self, fault: Fault, random: Random) -> None:
        self._under_way.add(asyncio.create_task(self._happen(fault, random)))

    async def _ended(self) -> None:
        await asyncio.gather(*self._under_way)
        self._under_way.clear()

    async def _happen(self, fault: Fault, random: Random) -> None:
        at, is_hit = monotonic() - self._began, True
        try:
            detail = await fault.happen(random)
        except Missed as error:
            detail, is_hit = f"{error}", False
        except Misbehaved as error:
            detail = "misbehaved"
            self.complaints.append(f"{fault.name}: {error}")
        self.records.append(
            FaultRecord(name=fault.name, at_seconds=at, detail=detail, is_hit=is_hit)
        )
        self._print_line(f"{fault.name}: {detail}{'' if is_hit else ' (missed)'}")
