"""One run of chaos from its first process to its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

from perdure import AsyncClient, RunStatus
from perdure.clock import monotonic
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.opening import store_at
from proof.chaos import asks, notes
from proof.chaos.faults import ProcessFaults
from proof.chaos.load import ticked, work
from proof.chaos.nemesis import Nemesis
from proof.chaos.processes import ChaosProcess, Crew
from proof.chaos.report import ChaosReport
from proof.chaos.settling import Sight, look, settle
from proof.chaos.stage import Stage
from proof.chaos.turned_clock import TurnedClock
from proof.chaos.verdict import Evidence, judge

WORKER = "proof.chaos.worker_process"
CLIENT = "proof.chaos.client_process"
START_SECONDS_MAX = 60.0
LOOK_SECONDS = 3.0
SCHEDULES = ("ticking flow", "ticking task")
TICK_SECONDS = 1


class ChaosSettings(Value):
    seed: int
    seconds: float
    """How long faults happen."""
    workers: int = 3
    clients: int = 2
    concurrency: int = 8
    """Bodies that one worker runs at once."""
    rate: float = 5.0
    """Runs, and as many plain jobs, that one client process asks for in a second."""
    settle_seconds_max: float = 180.0


class Harness:
    """Chaos on one stage. What it leaves behind is in ``folder``; ``tell`` hears how it goes."""

    def __init__(
        self, stage: Stage, settings: ChaosSettings, folder: Path, tell: Callable[[str], None]
    ) -> None:
        self._stage = stage
        self._settings = settings
        self._folder = folder
        self._tell = tell
        self._quiet = folder / "quiet"
        self._witnessed = folder / "evidence.jsonl"
        self._asked = folder / "asks.jsonl"

    async def run(self) -> ChaosReport:
        async with AsyncExitStack() as stack:
            await self._stage.open()
            stack.push_async_callback(self._stage.close)
            crew = self._crew(
                self._pipe(stack, self._witnessed, "witness"),
                self._pipe(stack, self._asked, "asks"),
            )
            stack.push_async_callback(crew.close)
            nemesis = Nemesis(
                [*ProcessFaults(crew).all(), *self._stage.faults(crew)],
                self._settings.seed,
                self._tell,
            )
            times, complaints = await self._play(crew, nemesis)
        evidence = Evidence(
            witnessed=self._witnessed,
            asked=self._asked,
            complaints=(*nemesis.complaints, *complaints),
        )
        verdict = await judge(self._store(), evidence)
        return ChaosReport(
            store=self._stage.name,
            seed=self._settings.seed,
            workers=len(crew.workers),
            clients=len(crew.clients),
            fault_seconds=times[0],
            settle_seconds=times[1],
            faults=tuple(nemesis.records),
            left_out=tuple(self._stage.left_out()),
            load=verdict.load,
            asked=verdict.asked,
            restarts=sum(each.starts - 1 for each in crew.all),
            failed_starts=sum(each.failed_starts for each in crew.all),
            findings=verdict.findings,
        )

    async def _play(self, crew: Crew, nemesis: Nemesis) -> tuple[tuple[float, float], list[str]]:
        """How long faults happened, how long it took to settle then, and what was wrong."""
        async with AsyncClient(self._store()) as client:
            await self._schedule(client)
            crew.start()
            await self._until_work_is_done(client)
            watching = asyncio.create_task(self._watch(client))
            began = monotonic()
            try:
                await nemesis.rage(self._settings.seconds)
            finally:
                watching.cancel()
            calm = monotonic()
            self._tell("no more faults, and no new work")
            crew.thaw()
            self._quiet.touch()
            for name in SCHEDULES:
                await client.pause_schedule(name)
            complaints = await settle(client, self._settings.settle_seconds_max, self._show)
            settled = monotonic()
        ends = await asyncio.gather(*(each.finish() for each in crew.all))
        complaints += [end for end in ends if end is not None]
        complaints += [end for each in crew.all for end in each.unwanted_ends]
        return (calm - began, settled - calm), complaints

    def _crew(self, witness: Path, asks_pipe: Path) -> Crew:
        told = {
            "url": self._stage.url,
            "clock": None if self._stage.clock is None else str(self._stage.clock),
            "clock_error_seconds": self._stage.clock_error_seconds,
            "concurrency": self._settings.concurrency,
            "rate": self._settings.rate,
            "quiet": str(self._quiet),
        }
        environment = {notes.VARIABLE: str(witness), asks.VARIABLE: str(asks_pipe)}

        def process(name: str, module: str) -> ChaosProcess:
            settings = {**told, "name": name}
            return ChaosProcess(name, module, settings, environment, self._folder)

        return Crew(
            [process(f"worker-{each}", WORKER) for each in range(self._settings.workers)],
            [process(f"client-{each}", CLIENT) for each in range(self._settings.clients)],
        )

    def _pipe(self, stack: AsyncExitStack, log: Path, name: str) -> Path:
        pipe = notes.NotePipe(self._folder / f"{name}.pipe", log)
        stack.callback(pipe.close)
        return pipe.path

    def _store(self) -> Store:
        clock = self._stage.clock
        turned = None if clock is None else TurnedClock(clock)
        return store_at(self._stage.own_url, clock=turned)

    async def _schedule(self, client: AsyncClient) -> None:
        flow, plain = SCHEDULES
        every = timedelta(seconds=TICK_SECONDS)
        await client.schedule(flow, ticked, every=every, input=1, overlap="queue", catch_up="all")
        await client.schedule(plain, work, every=every, args=(1,), overlap="skip")

    async def _until_work_is_done(self, client: AsyncClient) -> None:
        """Faults that happen while everybody starts would hit nothing."""
        async with asyncio.timeout(START_SECONDS_MAX):
            while not await client.count_runs(status=RunStatus.COMPLETED):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _watch(self, client: AsyncClient) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._show(await look(client))

    async def _show(self, sight: Sight) -> None:
        self._tell(
            f"runs {sight.runs_ended} of {sight.runs} ended, "
            f"jobs under way {sight.jobs - sight.jobs_ended}"
        )
