"""One run of chaos, from its first process to its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path

from perdure import AsyncClient, PerdureError, RunStatus
from perdure.clock import monotonic
from perdure.model.job import FINISHED, Status
from perdure.model.run import ENDED
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.opening import store_at
from proof.chaos import journal
from proof.chaos.clock import TurnedClock
from proof.chaos.faults import Environment, Nemesis, ProcessFaults
from proof.chaos.load import ticked, work
from proof.chaos.processes import ChaosProcess, ProcessPool
from proof.chaos.verdict import ChaosRecord, ChaosReport, crowded, judge, missed_ends

SETTLE_LOOK_SECONDS = 0.5
FOLLOW_SECONDS_MAX = 60.0
"""Longer than the clock is turned back: ends that are ahead of it come when it shows their time."""
SHOWN_MAX = 5
UNENDED = tuple(status for status in RunStatus if status not in ENDED)


class WorkCount(Value):
    """The number of unfinished and finished runs and jobs."""

    runs: int
    runs_ended: int
    jobs: int
    """Standalone jobs and those of runs."""
    jobs_ended: int

    @property
    def is_settled(self) -> bool:
        return self.runs == self.runs_ended and self.jobs == self.jobs_ended


async def look(client: AsyncClient) -> WorkCount:
    ended = {status: await client.runs.count(status=status) for status in ENDED}
    depth = {each: await client.jobs.count(status=each) for each in Status}
    return WorkCount(
        runs=await client.runs.count(),
        runs_ended=sum(ended.values()),
        jobs=sum(depth.values()),
        jobs_ended=sum(number for status, number in depth.items() if status in FINISHED),
    )


async def settle(
    client: AsyncClient, seconds_max: float, on_count: Callable[[WorkCount], Awaitable[None]]
) -> list[str]:
    """Wait until all work is finished; returns the unfinished work if that takes too long."""
    until = monotonic() + seconds_max
    while True:
        count = await look(client)
        await on_count(count)
        if count.is_settled:
            return []
        if monotonic() > until:
            return await _explained(client, count, seconds_max)
        await asyncio.sleep(SETTLE_LOOK_SECONDS)


async def _explained(client: AsyncClient, count: WorkCount, seconds_max: float) -> list[str]:
    lines = [
        f"after {seconds_max:g} s without faults, {count.runs - count.runs_ended} runs and "
        f"{count.jobs - count.jobs_ended} jobs had not ended"
    ]
    for status in UNENDED:
        for run in await client.runs.list(status=status, limit=SHOWN_MAX):
            try:
                lines.append(f"{run.id}: {(await client.runs.explain(run.id)).summary}")
            except PerdureError as error:
                lines.append(f"{run.id}: {status}; {error}")
    depth = {each: await client.jobs.count(status=each) for each in Status}
    lines += [f"jobs {status}: {number}" for status, number in depth.items() if number]
    return lines


CHILD = "proof.chaos.children"
START_SECONDS_MAX = 60.0
LOOK_SECONDS = 3.0
SCHEDULES = ("ticking flow", "ticking task")
TICK_SECONDS = 1
SERVING_ALL = 2
"""How many workers serve every queue and tag; the others serve jobs that name neither."""


async def _crowded_until(settled: asyncio.Event, store: Store) -> list[str]:
    """Flows that had too many runs in progress when looked at; the clock does not matter."""
    assert store.audit is not None
    found: dict[str, None] = {}
    await store.open()
    try:
        while not settled.is_set():
            await asyncio.sleep(SETTLE_LOOK_SECONDS)
            with suppress(PerdureError):  # the store is down
                found |= dict.fromkeys(crowded(await store.audit.places(None)))
    finally:
        await store.close()
    return list(found)


class ChaosSettings(Value):
    seed: int
    seconds: float
    """The duration of faults."""
    workers: int = 3
    clients: int = 2
    concurrency: int = 8
    """Concurrent tasks of one worker."""
    rate: float = 5.0
    """Runs, and as many jobs, that one client process starts per second."""
    settle_seconds_max: float = 180.0


class Harness:
    """Chaos in one environment. It leaves logs in ``folder``; ``print_line`` gets progress."""

    def __init__(
        self,
        environment: Environment,
        settings: ChaosSettings,
        folder: Path,
        print_line: Callable[[str], None],
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._folder = folder
        self._print_line = print_line
        self._quiet = folder / "quiet"
        self._evidence = folder / "evidence.jsonl"
        self._asked = folder / "asks.jsonl"

    async def run(self) -> ChaosReport:
        async with AsyncExitStack() as stack:
            await self._environment.open()
            stack.push_async_callback(self._environment.close)
            pool = self._pool(
                self._pipe(stack, self._evidence, "evidence"),
                self._pipe(stack, self._asked, "asks"),
            )
            stack.push_async_callback(pool.close)
            nemesis = Nemesis(
                [*ProcessFaults(pool).all(), *self._environment.faults(pool)],
                self._settings.seed,
                self._print_line,
            )
            times, complaints = await self._play(pool, nemesis)
        record = ChaosRecord(
            evidence_log=self._evidence,
            asked=self._asked,
            complaints=(*nemesis.complaints, *complaints),
            has_steady_clock=self._environment.clock is None,
        )
        verdict = await judge(self._store(), record)
        return ChaosReport(
            store=self._environment.name,
            seed=self._settings.seed,
            workers=len(pool.workers),
            clients=len(pool.clients),
            fault_seconds=times[0],
            settle_seconds=times[1],
            faults=tuple(nemesis.records),
            left_out=tuple(self._environment.left_out()),
            load=verdict.load,
            asked=verdict.asked,
            restarts=sum(each.starts - 1 for each in pool.all),
            failed_starts=sum(each.failed_starts for each in pool.all),
            findings=verdict.findings,
        )

    async def _play(
        self, pool: ProcessPool, nemesis: Nemesis
    ) -> tuple[tuple[float, float], list[str]]:
        """The durations of faults and of settling, and the complaints."""
        async with AsyncClient(self._store()) as client:
            await self._schedule(client)
            pool.start()
            await self._until_work_is_done(client)
            watching = asyncio.create_task(self._watch(client))
            is_settled = asyncio.Event()
            counting = asyncio.create_task(_crowded_until(is_settled, self._store()))
            began = monotonic()
            try:
                await nemesis.inject(self._settings.seconds)
            finally:
                watching.cancel()
            calm = monotonic()
            self._print_line("no more faults, and no new work")
            pool.thaw()
            self._quiet.touch()
            for name in SCHEDULES:
                await client.schedules.pause(name)
            complaints = await settle(client, self._settings.settle_seconds_max, self._show)
            complaints += await self._until_followed(client)
            settled = monotonic()
            is_settled.set()
            complaints += await counting
        ends = await asyncio.gather(*(each.finish() for each in pool.all))
        complaints += [end for end in ends if end is not None]
        complaints += [end for each in pool.all for end in each.unwanted_ends]
        return (calm - began, settled - calm), complaints

    def _pool(self, evidence: Path, asks: Path) -> ProcessPool:
        lines = {
            "url": self._environment.url,
            "clock": None if self._environment.clock is None else str(self._environment.clock),
            "clock_error_seconds": self._environment.clock_error_seconds,
            "concurrency": self._settings.concurrency,
            "rate": self._settings.rate,
            "quiet": str(self._quiet),
            "evidence": str(self._evidence),
        }
        variables = {journal.EVIDENCE_VARIABLE: str(evidence), journal.ASKS_VARIABLE: str(asks)}

        def process(role: str, number: int) -> ChaosProcess:
            name = f"{role}-{number}"
            id = name if role == "worker" and number % 2 == 0 else None
            serves_all = number < SERVING_ALL
            settings = {**lines, "role": role, "name": name, "worker": id, "serves_all": serves_all}
            return ChaosProcess(name, CHILD, settings, variables, self._folder)

        return ProcessPool(
            [process("worker", each) for each in range(self._settings.workers)],
            [process("client", each) for each in range(self._settings.clients)],
        )

    def _pipe(self, stack: AsyncExitStack, log: Path, name: str) -> Path:
        pipe = journal.NotePipe(self._folder / f"{name}.pipe", log)
        stack.callback(pipe.close)
        return pipe.path

    def _store(self) -> Store:
        clock = self._environment.clock
        turned = None if clock is None else TurnedClock(clock)
        return store_at(self._environment.own_url, clock=turned)

    async def _schedule(self, client: AsyncClient) -> None:
        flow, plain = SCHEDULES
        every = timedelta(seconds=TICK_SECONDS)
        await client.schedules.save(
            flow, ticked, every=every, input=1, overlap="queue", catch_up="all"
        )
        await client.schedules.save(plain, work, every=every, args=(1,), overlap="skip")

    async def _until_work_is_done(self, client: AsyncClient) -> None:
        """Wait for the first results: faults during startup would hit nothing."""
        async with asyncio.timeout(START_SECONDS_MAX):
            while not await client.runs.count(status=RunStatus.COMPLETED):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _until_followed(self, client: AsyncClient) -> list[str]:
        """Wait until the followers have got all ends; returns what they missed."""
        until = monotonic() + FOLLOW_SECONDS_MAX
        while missed := await missed_ends(client, self._evidence):
            if monotonic() > until:
                return missed
            await asyncio.sleep(SETTLE_LOOK_SECONDS)
        return []

    async def _watch(self, client: AsyncClient) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._show(await look(client))

    async def _show(self, count: WorkCount) -> None:
        self._print_line(
            f"runs {count.runs_ended} of {count.runs} ended, "
            f"jobs under way {count.jobs - count.jobs_ended}"
        )
