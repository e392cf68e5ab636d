"""The nemesis: lets faults happen in a random order of its seed, with pauses in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random

from perdure.clock import monotonic
from perdure.model.value import Value
from proof.chaos.faults import Fault, Misbehaved, Missed

PAUSE_SECONDS = (0.2, 1.5)
OVERLAP_SHARE = 0.4
"""How many faults begin while the one before goes on."""
TRIES_MAX = 5
"""How often a certain fault is tried until it hits."""


class FaultRecord(Value):
    """One fault that was tried, and how long after the start."""

    name: str
    at_seconds: float
    detail: str
    is_hit: bool
    """Whether it befell anything. Only then was it survived."""


class Nemesis:
    """First every certain fault; then every kind once, in another order each time round."""

    def __init__(self, faults: Sequence[Fault], seed: int, tell: Callable[[str], None]) -> None:
        self.records: list[FaultRecord] = []
        self.complaints: list[str] = []
        self._faults = faults
        self._random = Random(seed)
        self._tell = tell
        self._began = monotonic()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def hits(self) -> Counter[str]:
        return Counter(record.name for record in self.records if record.is_hit)

    async def rage(self, seconds: float) -> None:
        """Until the time is over, all certain faults have hit, and what began is undone."""
        self._began = monotonic()
        await self._certain_ones(Random(self._random.random()))
        for fault, random in self._order():
            if monotonic() - self._began >= seconds:
                break
            self._begin(fault, random)
            if self._random.random() >= OVERLAP_SHARE:
                await self._ended()
            await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))
        await self._ended()

    async def _certain_ones(self, random: Random) -> None:
        """Each begins once the one before has begun, whatever the time, and again if it missed."""
        left = [fault for fault in self._faults if fault.is_certain]
        for _ in range(TRIES_MAX):
            random.shuffle(left)
            for fault in sorted(left, key=lambda each: each.ends_others):
                if fault.ends_others:
                    await self._ended()
                self._begin(fault, Random(random.random()))
                await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
            await self._ended()
            left = [fault for fault in left if not self.hits[fault.name]]

    def _order(self) -> Iterator[tuple[Fault, Random]]:
        """Each fault draws from numbers of its own, so that the order is that of the seed alone."""
        while True:
            for fault in self._random.sample(self._faults, len(self._faults)):
                yield fault, Random(self._random.random())

    def _begin(self, fault: Fault, random: Random) -> None:
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
        self._tell(f"{fault.name}: {detail}{'' if is_hit else ' (missed)'}")
