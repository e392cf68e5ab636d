"""Who comes at the end, in calm weather, and brings whatever is still waited for."""

from __future__ import annotations

import asyncio

from perdure.client.client import AsyncClient
from perdure.errors import PerdureError
from perdure.model.job import FINISHED, Status
from perdure.model.run import ENDED, WaitKind
from proof.simulate.clients import QUEUE
from proof.simulate.flows import PEOPLE
from proof.simulate.world import World

ROUNDS_MAX = 60
ROUND_SECONDS = 2.0


class Caretaker:
    """Goes round until everything has ended, or clearly never will."""

    def __init__(self, world: World) -> None:
        self.actor = world.process("caretaker")
        self._world = world

    async def run(self) -> None:
        world = self._world
        self._client = AsyncClient(world.store_of(self.actor), flows=world.first_versions)
        for _ in range(ROUNDS_MAX):
            await self._go_round()
            await asyncio.sleep(ROUND_SECONDS)
            if self._is_all_over():
                break
        await self._client.close()

    async def _go_round(self) -> None:
        client = self._client
        await client.resume_queue(QUEUE)
        for schedule in await client.schedules():
            await client.delete_schedule(schedule.name)
        for run in await client.runs(status="paused", limit=1_000):
            await self._try(client.unpause(run.id))
        for job in await client.jobs(status="disabled", limit=1_000):
            await self._try(client.enable(job.id))
        for job in await client.jobs(status="paused", limit=1_000):
            if job.node is None:
                await self._try(client.resume(job.id))
        for wait in await client.waits(limit=1_000):
            match wait.kind:
                case WaitKind.SIGNAL:
                    payload = {"lane": 1, "value": 3}
                    await self._try(client.signal(wait.run, wait.name, payload))
                case WaitKind.OUTSIDE:
                    await self._try(client.report(wait.run, wait.key, status="completed", result=4))
        for approval in await client.inbox(limit=1_000):
            for person in PEOPLE:
                await self._try(client.decide(approval.id, "approve", by=person))

    async def _try(self, act: object) -> None:
        try:
            await act  # type: ignore[misc]  # a coroutine of any result
        except PerdureError as error:
            self._world.trace(f"caretaker: {type(error).__name__}")

    def _is_all_over(self) -> bool:
        state = self._world.state
        return all(run.status in ENDED for run in state.records.runs.values()) and all(
            job.status in FINISHED for job in state.jobs.values()
        )


def left_over(world: World) -> list[str]:
    """What has not ended, and why that may be."""
    state = world.state
    found = [
        f"run {run.id} of {run.flow} is {run.status}, with jobs "
        f"{[state.jobs[id].status.value for id in state.of_run.ids(run.place)]} and waits "
        f"{sorted(wait.key for wait in state.records.waits_of(run.place))}"
        for run in state.records.runs.values()
        if run.status not in ENDED
    ]
    found += [
        f"job {job.id} of {job.lane.task} is {job.status}"
        for job in state.jobs.values()
        if job.status not in FINISHED and job.node is None
    ]
    return found


def held(world: World) -> list[str]:
    return [
        job.id
        for job in world.state.jobs.values()
        if job.status in (Status.ACTIVE, Status.ABORTING)
    ]
