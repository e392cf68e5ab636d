"""A store in which everything has happened: ended, failed, retried, forked, paused, waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from perdure import AsyncClient, AsyncRunHandle, Concurrency, Flow, Rate, RunFailed, Worker, task
from perdure.errors import InvalidInput
from perdure.flows.built import BuiltFlow
from perdure.model.limit import LimitRule
from perdure.model.run import RunStatus
from perdure.store.contract import Store
from perdure.tasks.context import CONTEXT, AsyncContext
from proof.evidence import EvidenceSettings, Expected, MemoryEvidenceLog, new_nonce
from tests.client.harness import until as came_to
from tests.worker.harness import Running, until

UNSERVED = "nobody"
"""A queue without a worker."""
ITEMS = 230
"""Enough for a snapshot."""


@dataclass
class Scene:
    """The flows and tasks of one history, whose bodies record what they do."""

    evidence: MemoryEvidenceLog

    def __post_init__(self) -> None:
        evidence = self.evidence
        self.has_paper = False

        @task(limits=[Concurrency(1, key="printer")])
        async def sign(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            with evidence.execution(ctx, limits=["printer"]) as execution:
                return {"nonce": execution.nonce, "value": value}

        @task
        async def mark(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            with evidence.execution(ctx) as execution:
                return [execution.nonce]

        @task(retries=1)
        async def try_twice(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            with evidence.execution(ctx) as execution:
                if ctx.attempt == 1:
                    raise ValueError("not yet")
                return {"nonce": execution.nonce}

        @task
        async def need_paper(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            with evidence.execution(ctx) as execution:
                if not self.has_paper:
                    raise ValueError("out of paper")
                return {"nonce": execution.nonce}

        @task
        async def hand_over(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            with evidence.execution(ctx) as execution:
                report = await ctx.pause("agent", deadline="2h")
                return {"nonce": execution.nonce, "result": report.result}

        @task(queue=UNSERVED)
        async def never(value: Any) -> Any:
            raise AssertionError("no worker serves this queue")

        @task
        async def undo(value: Any, ctx: AsyncContext = CONTEXT) -> None:
            with evidence.execution(ctx):
                pass

        @task
        async def stepping(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            with evidence.execution(ctx) as execution:
                await ctx.step("once", lambda: 1)
                return execution.nonce

        @task
        async def keep(value: Any) -> Any:
            return value

        @task
        async def is_enough(value: Any) -> bool:
            return len(value) >= 1

        @task(queue="plain", limits=[Rate(100, per="1m", key="plain")])
        async def plain(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            with evidence.execution(ctx, limits=["plain"]) as execution:
                return {"nonce": execution.nonce}

        self.plain = plain
        self.tasks = [plain]
        self.chain = Flow("chain").then(sign, name="a").then(mark, name="b").build()
        self.mapped = Flow("mapped").map(mark, name="m").then(mark, name="after").build()
        self.long = Flow("long").map(keep, name="m").build()
        self.looped = (
            Flow("looped").loop(mark, until=is_enough, name="l").then(mark, name="end").build()
        )
        self.flaky = Flow("flaky").then(try_twice, name="a").build()
        self.failing = Flow("failing").then(mark, name="a").then(need_paper, name="b").build()
        self.asking = Flow("asking").then(mark, name="a").wait_for_signal("go", name="w").build()
        self.twice = (
            Flow("twice").wait_for_signal("go", name="one").wait_for_signal("go", name="two")
        ).build()
        self.sleeping = Flow("sleeping").delay("2h", name="d").then(mark, name="a").build()
        self.queued = Flow("queued").then(never, name="n").build()
        self.moved = Flow("moved").then(never, name="n").build()
        self.moved_on = Flow("moved").then(never, name="n").then(mark, name="then").build()
        self.cooling = Flow("cooling", cooldown="1h").then(stepping, name="s").build()
        self.parent = Flow("parent").then(mark, name="a").flow(self.asking, name="c").build()
        self.undoing = (
            Flow("undoing").then(mark, name="a", undo=undo).wait_for_signal("go", name="w").build()
        )
        self.approving = (
            Flow("approving")
            .approve("Pay?", name="ok", deciders=["ann", "bob", "cid"], policy={"at_least": 2})
            .then(mark, name="a")
            .build()
        )
        self.outside = Flow("outside").then(hand_over, name="h").build()

    @property
    def flows(self) -> list[BuiltFlow]:
        return [each for each in vars(self).values() if isinstance(each, BuiltFlow)]


LIMITS = (
    LimitRule(key="printer", live_max=1),
    LimitRule(key="plain", starts_max=100, window=timedelta(minutes=1)),
)


class Made:
    """A history that was made, and what is needed to check it."""

    def __init__(self, store: Store, evidence: MemoryEvidenceLog) -> None:
        self.store = store
        self.evidence = evidence
        self.jobs: dict[str, str] = {}
        """Plain jobs by what they are for."""
        self.settings = EvidenceSettings(
            limits=LIMITS,
            expected={
                "chain": Expected(status=RunStatus.COMPLETED),
                "failed": Expected(status=RunStatus.FAILED),
                "asking": Expected(status=RunStatus.WAITING),
            },
        )


class Maker:
    """Makes it happen, through a client and a worker as users have them."""

    def __init__(self, store: Store) -> None:
        self.evidence = MemoryEvidenceLog()
        self.scene = Scene(self.evidence)
        self.made = Made(store, self.evidence)
        self._store = store
        self._client = AsyncClient(store)

    async def make(self) -> Made:
        scene = self.scene
        worker = Worker(
            self._store, flows=scene.flows, tasks=scene.tasks, queues=["default", "plain"]
        )
        running = await Running(worker).start()
        try:
            async with self._client:
                for part in self._parts():
                    await part()
        finally:
            await running.stop()
        return self.made

    def _parts(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self._ended,
            self._failed_and_retried,
            self._forked,
            self._waiting,
            self._moved,
            self._paused,
            self._families,
            self._undone,
            self._people,
            self._plain_jobs,
            self._scheduled,
            self._refused,
        ]

    async def _ended(self) -> None:
        for id in ("chain", "chain two"):
            await (await self._submit(self.scene.chain, 1, id)).result(20)
            self.evidence.saw_end("completed", run=id)
        await (await self._submit(self.scene.looped, 1, "looped")).result(20)
        await (await self._submit(self.scene.flaky, 1, "flaky")).result(20)
        await (await self._submit(self.scene.mapped, [1, 2, 3], "mapped")).result(20)
        await (await self._submit(self.scene.long, list(range(ITEMS)), "long")).result(20)

    async def _failed_and_retried(self) -> None:
        for id in ("failed", "retried"):
            run = await self._submit(self.scene.failing, 1, id)
            with suppress(RunFailed):
                await run.result(20)
            self.evidence.saw_end("failed", run=id)
        self.scene.has_paper = True
        await self._client.runs.retry("retried", by="ann")
        await self._client.runs.handle("retried").result(20)
        self.evidence.saw_end("completed", run="retried")

    async def _forked(self) -> None:
        patch = {"a": {"patched": True}}
        fork = await self._client.runs.handle("chain").fork(after="a", patch=patch, new_id="forked")
        await fork.result(20)

    async def _waiting(self) -> None:
        asking = await self._submit(self.scene.asking, 1, "asking")
        await came_to(asking, RunStatus.WAITING)
        answered = await self._submit(self.scene.twice, 1, "answered")
        for _ in range(2):
            nonce = new_nonce()
            await self._client.runs.signal("answered", "go", {"nonce": nonce})
            self.evidence.command_sent("signal", "answered", "go", nonce=nonce)
        await answered.result(20)
        await self._submit(self.scene.sleeping, 1, "sleeping")
        await self._submit(self.scene.queued, 1, "queued")

    async def _moved(self) -> None:
        await self._submit(self.scene.moved, 1, "moved")
        await self._client.runs.migrate("moved", to=self.scene.moved_on)
        await self._submit(self.scene.asking, 1, "replaced")
        await self._client.submit(self.scene.chain, 1, id="replaced", on_conflict="replace")
        await self._client.runs.handle("replaced").result(20)
        await (await self._submit(self.scene.cooling, 1, "begun")).result(20)
        await self._submit(self.scene.cooling, 1, "skipped")
        await (
            await self._client.runs.handle("skipped").fork(after=1, new_id="begun anyway")
        ).result(20)

    async def _paused(self) -> None:
        await self._submit(self.scene.queued, 1, "parked")
        await self._client.runs.pause("parked", reason="lunch", by="ann")
        await self._submit(self.scene.sleeping, 1, "held")
        await self._client.runs.pause("held")
        unpaused = await self._submit(self.scene.asking, 1, "unpaused")
        await came_to(unpaused, RunStatus.WAITING)
        await self._client.runs.pause("unpaused")
        await self._client.runs.resume("unpaused")

    async def _families(self) -> None:
        parent = await self._submit(self.scene.parent, 1, "parent")
        await came_to(parent, RunStatus.WAITING)
        await came_to(self._client.runs.handle("parent/c"), RunStatus.WAITING)
        cancelled = await self._submit(self.scene.parent, 1, "cancelled")
        await came_to(cancelled, RunStatus.WAITING)
        await self._client.runs.cancel("cancelled", reason="enough")
        self.evidence.command_sent("cancel", "cancelled")
        await self._until_ended("cancelled/c")
        done = await self._submit(self.scene.parent, 1, "parent done")
        await came_to(done, RunStatus.WAITING)
        await self._client.runs.signal("parent done/c", "go")
        await done.result(20)

    async def _undone(self) -> None:
        undone = await self._submit(self.scene.undoing, 1, "undone")
        await came_to(undone, RunStatus.WAITING)
        await self._client.runs.cancel("undone", compensate=True)
        await self._until_ended("undone")

    async def _people(self) -> None:
        approved = await self._submit(self.scene.approving, 1, "approved")
        for by in ("ann", "bob"):
            await self._client.approvals.decide("approved:ok", "approve", by=by)
            self.evidence.command_sent("decide", "approved", "ok", by=by)
        await approved.result(20)
        await self._submit(self.scene.approving, 1, "open")
        await self._client.approvals.decide("open:ok", "approve", by="ann")
        reported = await self._submit(self.scene.outside, 1, "reported")
        await came_to(reported, RunStatus.WAITING)
        nonce = new_nonce()
        await self._client.runs.report(
            "reported", "h", status="completed", result={"nonce": nonce}, key="t1"
        )
        self.evidence.command_sent("report", "reported", "h", nonce=nonce)
        await reported.result(20)

    async def _plain_jobs(self) -> None:
        for name in ("done", "done two"):
            handle = await self._client.enqueue(self.scene.plain, 1)
            self.evidence.accepted(job=handle.id)
            await handle.result(20)
            self.evidence.saw_end("completed", job=handle.id)
            self.made.jobs[name] = handle.id
        later = await self._client.enqueue(self.scene.plain.options(delay="2h"), 1)
        idle = await self._client.enqueue(self.scene.plain.options(queue=UNSERVED), 1)
        self.made.jobs |= {"later": later.id, "idle": idle.id}

    async def _scheduled(self) -> None:
        await self._client.schedules.save("nightly", self.scene.chain, cron="0 3 * * *", input=1)
        await self._client.schedules.trigger("nightly")

        async def has_ended() -> bool:
            runs = await self._client.runs.list(flow="chain")
            return all(run.finished_at is not None for run in runs)

        await until(has_ended)

    async def _refused(self) -> None:
        try:
            await self._client.submit(self.scene.chain, object(), id="refused")
        except InvalidInput as error:
            self.evidence.refused(error, run="refused")

    async def _submit(self, flow: BuiltFlow, input: Any, id: str) -> AsyncRunHandle:
        run = await self._client.submit(flow, input, id=id)
        self.evidence.accepted(run=id)
        return run

    async def _until_ended(self, id: str) -> None:
        async def has_ended() -> bool:
            return (await self._client.runs.get(id)).finished_at is not None

        await until(has_ended)
