"""The nemesis: lets faults happen in a random order of its seed, with pauses in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random

from perdure.clock import monotonic
from perdure.model.value import Value
from perdure.testing.chaos.faults import Fault, Misbehaved

PAUSE_SECONDS = (0.2, 1.5)
OVERLAP_SHARE = 0.4
"""How many faults begin while the one before goes on."""


class FaultRecord(Value):
    """One fault that happened, and how long after the start."""

    name: str
    at_seconds: float
    detail: str


class Nemesis:
    """Every kind of fault once, in another order each time round."""

    def __init__(self, faults: Sequence[Fault], seed: int, tell: Callable[[str], None]) -> None:
        self.records: list[FaultRecord] = []
        self.complaints: list[str] = []
        self._faults = faults
        self._random = Random(seed)
        self._tell = tell

    @property
    def counts(self) -> Counter[str]:
        return Counter(record.name for record in self.records)

    async def rage(self, seconds: float) -> None:
        """Until the time is over and what began is undone."""
        began = monotonic()
        under_way: set[asyncio.Task[None]] = set()
        for fault, random in self._order():
            if monotonic() - began >= seconds:
                break
            under_way.add(asyncio.create_task(self._happen(fault, random, began)))
            if self._random.random() >= OVERLAP_SHARE:
                await asyncio.gather(*under_way)
                under_way.clear()
            await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))
        await asyncio.gather(*under_way)

    def _order(self) -> Iterator[tuple[Fault, Random]]:
        """Each fault draws from numbers of its own, so that the order is that of the seed alone."""
        while True:
            for fault in self._random.sample(self._faults, len(self._faults)):
                yield fault, Random(self._random.random())

    async def _happen(self, fault: Fault, random: Random, began: float) -> None:
        at = monotonic() - began
        try:
            detail = await fault.happen(random)
        except Misbehaved as error:
            detail = "misbehaved"
            self.complaints.append(f"{fault.name}: {error}")
        self.records.append(FaultRecord(name=fault.name, at_seconds=at, detail=detail))
        self._tell(f"{fault.name}: {detail}")
