"""After the last fault: everything that was accepted comes to its end, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from perdure import AsyncClient, PerdureError, RunStatus
from perdure.clock import monotonic
from perdure.model.job import FINISHED
from perdure.model.run import ENDED
from perdure.model.value import Value

LOOK_SECONDS = 0.5
SHOWN_MAX = 5
UNENDED = tuple(status for status in RunStatus if status not in ENDED)


class Sight(Value):
    """How much is under way, and how much has ended."""

    runs: int
    runs_ended: int
    jobs: int
    """Plain ones, and those of runs."""
    jobs_ended: int

    @property
    def is_settled(self) -> bool:
        return self.runs == self.runs_ended and self.jobs == self.jobs_ended


async def look(client: AsyncClient) -> Sight:
    ended = {status: await client.count_runs(status=status) for status in ENDED}
    depth = (await client.depth()).by_status
    return Sight(
        runs=await client.count_runs(),
        runs_ended=sum(ended.values()),
        jobs=sum(depth.values()),
        jobs_ended=sum(count for status, count in depth.items() if status in FINISHED),
    )


async def settle(
    client: AsyncClient, seconds_max: float, tell: Callable[[Sight], Awaitable[None]]
) -> list[str]:
    """Wait until nothing is under way; what is, in words, if that takes too long."""
    until = monotonic() + seconds_max
    while True:
        sight = await look(client)
        await tell(sight)
        if sight.is_settled:
            return []
        if monotonic() > until:
            return await _explained(client, sight, seconds_max)
        await asyncio.sleep(LOOK_SECONDS)


async def _explained(client: AsyncClient, sight: Sight, seconds_max: float) -> list[str]:
    told = [
        f"after {seconds_max:g} s without faults, {sight.runs - sight.runs_ended} runs and "
        f"{sight.jobs - sight.jobs_ended} jobs had not come to their end"
    ]
    for status in UNENDED:
        for run in await client.runs(status=status, limit=SHOWN_MAX):
            try:
                told.append(f"{run.id}: {(await client.explain(run.id)).summary}")
            except PerdureError as error:
                told.append(f"{run.id}: {status}; {error}")
    depth = (await client.depth()).by_status
    told += [f"jobs {status}: {count}" for status, count in depth.items() if count]
    return told
