"""What a fault is, and those that befall processes, whatever store they use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from proof.chaos.load import LEASE_SECONDS
from proof.chaos.processes import ChaosProcess, Crew


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of thing that goes wrong. ``happen`` undoes it before it returns what it did."""

    name: str
    happen: Callable[[Random], Awaitable[str]]
    is_certain: bool = False
    """Every run of chaos has it, however short."""
    ends_others: bool = False
    """What others hold does not outlive it."""


class Missed(Exception):
    """A fault found nothing to befall, or was over before its time: it does not count."""


class Misbehaved(Exception):
    """A process did under a fault what it must not."""


class ProcessFaults:
    """Ends and standstills of worker and client processes."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def all(self) -> list[Fault]:
        return [
            Fault("kill -9 of a worker", self.kill_worker, is_certain=True),
            Fault("kill -9 of all workers", self.kill_all_workers),
            Fault("stop of a worker", self.stop_worker),
            Fault("worker frozen past its leases", self.freeze_worker, is_certain=True),
            Fault("kill -9 of a client", self.kill_client),
            Fault("client frozen", self.freeze_client),
        ]

    async def kill_worker(self, random: Random) -> str:
        return _killed([_one(self._crew.workers, random)])

    async def kill_all_workers(self, random: Random) -> str:
        return _killed(self._crew.workers)

    async def stop_worker(self, random: Random) -> str:
        worker = _one(self._crew.workers, random)
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
            _one(self._crew.workers, random), random.uniform(1.2, 3) * LEASE_SECONDS
        )

    async def kill_client(self, random: Random) -> str:
        return _killed([_one(self._crew.clients, random)])

    async def freeze_client(self, random: Random) -> str:
        return await _frozen(_one(self._crew.clients, random), random.uniform(0.5, 3))


def _one(processes: Sequence[ChaosProcess], random: Random) -> ChaosProcess:
    """One at work rather than one that starts: there a fault would hit little."""
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
