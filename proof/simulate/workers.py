"""Workers of a history, which crash, freeze and restart, and the finisher of remaining work."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from perdure.client.client import AsyncClient
from perdure.errors import PerdureError, StoreError, WorkerSuperseded
from perdure.model.job import FINISHED, Status
from perdure.model.run import ENDED, WaitType
from perdure.worker.events import AttemptRequeued
from perdure.worker.worker import Worker
from proof.simulate.clients import QUEUES, TAGS
from proof.simulate.flows import PEOPLE
from proof.simulate.guard import LATENESS_MAX_AT_REST
from proof.simulate.loop import Actor
from proof.simulate.world import World

LEASES = (1, 2, 5)
CALLBACKS_BEFORE_CRASH = 150
STROKES = ("crash", "crash", "freeze", "freeze", "freeze one", "slow", "stop", "outage", "clock")
CLOCK_SECONDS = 7_200.0
PRUNING = 0.25
"""The probability of minimal retention."""
RESTARTS, TWINS = 0.3, 0.05
"""The probability that a worker starts under the id of one that has ended, or of a live one."""
EVERYTHING: dict[str, Any] = {"queues": QUEUES, "tags": None}
"""The queues and tags of a worker that serves all."""
RELIEF = 20
"""Concurrency of relief workers."""


class SimulatedWorker:
    """One process with a worker, from its start to its end."""

    def __init__(
        self, world: World, name: str, settings: dict[str, Any], serves: dict[str, Any]
    ) -> None:
        self.actor: Actor = world.process(name)
        self.name = name
        self.serves = serves
        self._world = world
        self.worker = Worker(
            world.store_of(self.actor),
            tasks=list(world.tasks.plain_ones),
            flows=[each.flow for each in world.flows.values()],
            id=name,
            **settings,
            **serves,
        )
        self.worker.on(AttemptRequeued, self._released)
        self.task = world.spawn(self.actor, self._serve())

    @property
    def is_alive(self) -> bool:
        return not self.actor.process.is_dead and not self.task.done()

    def stop(self, grace: str) -> None:
        """Ask it to stop, as a signal to its process would."""
        self.actor.context().run(self.worker.shutdown, grace)

    def _released(self, event: AttemptRequeued) -> None:
        if event.run_id is None:  # after the next commit, a job of a run has another key
            self._world.evidence.requeued(event.job_id, event.attempt)

    async def _serve(self) -> None:
        self._world.trace("worker starts")
        try:
            await self.worker.serve()
        except StoreError:
            self._world.trace("worker could not start")
        except WorkerSuperseded:
            self._world.trace("worker superseded")
        except Exception as error:
            self._world.find(f"worker {self.name} died of {type(error).__name__}: {error}")
        else:
            self._world.trace("worker stopped")


class WorkerPool:
    """All workers of a history, and the nemesis that attacks them."""

    def __init__(self, world: World) -> None:
        draw = self._draw = random.Random(f"{world.seed} nemesis")
        self._naming = random.Random(f"{world.seed} names")
        self._placing = random.Random(f"{world.seed} places")
        self._world = world
        self._count = 0
        self._size = draw.randint(1, 4)
        self.lease = draw.choice(LEASES)
        self.settings = {
            "lease": f"{self.lease}s",
            "poll": f"{draw.choice((1, 5))}s",
            "concurrency": draw.choice((1, 2, 5, 20)),
            "max_crashes": draw.choice((1, 2, 3, 50)),
            "abort_grace": "200ms",
            "hold_off": draw.choice(("0s", "500ms")),
        }
        if draw.random() < PRUNING:
            world.is_pruned = True
            self.settings |= dict.fromkeys(("keep_completed", "keep_failed", "keep_dead"), "0s")
        self._unrest = draw.choice((0.0, 1.0, 3.0, 8.0))
        """Maximum seconds between two faults; 0: none."""
        if not self._unrest and not world.faults.silence:
            world.guard.deadline_lateness = LATENESS_MAX_AT_REST
        self.workers: list[SimulatedWorker] = []

    async def run_until(self, until: float) -> None:
        """Keep workers running under faults until a given time."""
        world, draw = self._world, self._draw
        while world.loop.now < until:
            while len(self._alive) < self._size:
                self.start()
            await asyncio.sleep(draw.random() * (self._unrest or 10.0))
            if self._unrest:
                self._strike()

    def start(self, serves: dict[str, Any] | None = None) -> None:
        """Start another worker, under a new id or one that was used before."""
        self._count += 1
        name, draw = f"worker-{self._count}", self._naming.random()
        alive = {each.name for each in self._alive}
        ended = [each.name for each in self.workers if each.name not in alive]
        if draw < TWINS and alive:
            name = self._naming.choice(sorted(alive))
        elif draw < TWINS + RESTARTS and ended:
            name = self._naming.choice(ended)
        if all(each.serves != EVERYTHING for each in self._alive):
            serves = EVERYTHING
        serves = serves or self._drawn_place()
        self.workers.append(SimulatedWorker(self._world, name, self.settings, serves))

    def _drawn_place(self) -> dict[str, Any]:
        """Everything, or some queues and tags."""
        draw = self._placing
        if draw.random() < 0.5:
            return EVERYTHING
        queues = draw.choice((QUEUES, QUEUES[:1], QUEUES[1:]))
        return {"queues": queues, "tags": draw.choice((None, (), TAGS[:1], TAGS))}

    def relieve(self) -> None:
        """End all faults, and start relief workers."""
        self.settings["concurrency"] = RELIEF
        for worker in self._alive:
            worker.actor.process.dies_after = None
            for actor in worker.actor.process.actors:
                actor.frozen_until = min(actor.frozen_until, self._world.loop.now)
                actor.pace = 0.0
        for _ in range(2):
            self.start(EVERYTHING)

    async def stop(self) -> None:
        """Stop all workers gracefully."""
        alive = self._alive
        for worker in alive:
            worker.stop("5s")
        if alive:
            await asyncio.wait([worker.task for worker in alive], timeout=60)
        for worker in self._alive:
            self._world.find(f"{worker.name} did not stop")

    @property
    def _alive(self) -> list[SimulatedWorker]:
        return [worker for worker in self.workers if worker.is_alive]

    def _strike(self) -> None:
        draw, alive = self._draw, self._alive
        if not alive:
            return
        worker = draw.choice(alive)
        actors, now = worker.actor.process.actors, self._world.loop.now
        seconds = draw.choice((0.3, 1.2, 3.0)) * self.lease * draw.random()
        match draw.choice(STROKES):
            case "crash":
                worker.actor.process.dies_after = draw.randint(1, CALLBACKS_BEFORE_CRASH)
                self._world.trace(f"{worker.name} is about to crash")
            case "freeze":
                self._world.trace(f"{worker.name} freezes for {seconds:.3f} s")
                for actor in actors:
                    actor.frozen_until = now + seconds
            case "freeze one":
                actor = draw.choice(actors)
                self._world.trace(f"{actor.name} freezes for {seconds:.3f} s")
                actor.frozen_until = now + seconds
            case "slow":
                worker.actor.pace = draw.choice((0.0, 0.002, 0.02))
                self._world.trace(f"{worker.name} slows down to {worker.actor.pace}")
            case "stop":
                self._world.trace(f"{worker.name} is asked to stop")
                worker.stop(f"{draw.choice((0, 1, 5))}s")
            case "clock":
                worker.actor.process.wall_offset = draw.uniform(-CLOCK_SECONDS, CLOCK_SECONDS)
                self._world.trace(f"the clock of {worker.name} jumps")
            case "outage":
                self._world.cut_off(seconds)


ROUNDS_MAX = 150  # runs that wait for places take turns
ROUND_SECONDS = 2.0


class Finisher:
    """Polls until all work has ended, or clearly never will."""

    def __init__(self, world: World) -> None:
        self.actor = world.process("caretaker")  # the name seeds its draws
        self._world = world

    async def run(self) -> None:
        world = self._world
        self._client = AsyncClient(world.store_of(self.actor), flows=world.first_versions)
        # What waits for a time waits for longer after the clock was set back.
        for _ in range(ROUNDS_MAX + int(world.seconds_back / ROUND_SECONDS)):
            await self._go_round()
            await asyncio.sleep(ROUND_SECONDS)
            if self._is_all_over():
                break
        await self._client.close()

    async def _go_round(self) -> None:
        client = self._client
        for queue in QUEUES:
            await self._try(client.queues.resume(queue))
        for schedule in await client.schedules.list():
            await client.schedules.delete(schedule.name)
        for run in await client.runs.list(status="paused", limit=1_000):
            await self._try(client.runs.resume(run.id))
        for job in await client.jobs.list(status="disabled", limit=1_000):
            await self._try(client.jobs.enable(job.id))
        for job in await client.jobs.list(status="paused", limit=1_000):
            if job.node is None:
                await self._try(client.jobs.resume(job.id))
        for wait in await client.waits.list(limit=1_000):
            match wait.type:
                case WaitType.SIGNAL:
                    payload = {"partition": 1, "value": 3}
                    await self._try(client.runs.signal(wait.run, wait.name, payload))
                case WaitType.EXTERNAL:
                    await self._try(
                        client.runs.report(wait.run, wait.key, status="completed", result=4)
                    )
        for approval in await client.approvals.list(limit=1_000):
            for person in PEOPLE:
                await self._try(client.approvals.decide(approval.id, "approve", by=person))

    async def _try(self, coroutine: object) -> None:
        try:
            await coroutine  # type: ignore[misc]  # a coroutine of any result
        except PerdureError as error:
            self._world.trace(f"finisher: {type(error).__name__}")

    def _is_all_over(self) -> bool:
        state = self._world.state
        return (
            all(run.status in ENDED for run in state.records.runs.values())
            and all(job.status in FINISHED for job in state.jobs.values())
            # A wait for a child that was still ending is read again a few seconds later.
            and not state.records.waits
        )


def left_over(world: World) -> list[str]:
    """Unfinished work, and the likely reasons."""
    state = world.state
    found = [
        f"run {run.id} of {run.flow} is {run.status}, with jobs "
        f"{[state.jobs[id].status.value for id in state.of_run.ids(run.place)]} and waits "
        f"{sorted(wait.key for wait in state.records.waits_of(run.place))}"
        for run in state.records.runs.values()
        if run.status not in ENDED
    ]
    found += [
        f"job {job.id} of {job.partition.task} is {job.status}"
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
