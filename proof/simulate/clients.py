"""Clients of a history: their requests at random times, and the responses."""

from __future__ import annotations

import asyncio
import random
from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from perdure.client.client import AsyncClient
from perdure.client.queue import AsyncJobQueue, QueuedJob
from perdure.errors import PerdureError
from perdure.model.client_event import EVENTS, ClientEvent, EventSource
from perdure.model.job import FINISHED, Claim, ClaimedJob
from perdure.operations.records import ReportOutcome
from proof.evidence import log as evidence_log
from proof.evidence.log import MemoryEvidenceLog
from proof.simulate.flows import PEOPLE, SIGNALS, External, Part
from proof.simulate.loop import Actor
from proof.simulate.tasks import IDS, may_be_replaced, worked
from proof.simulate.world import World


@dataclass
class Asked:
    """Requests and responses, kept outside the store for comparison."""

    evidence: MemoryEvidenceLog
    runs: list[str] = field(default_factory=list)
    """Runs that were confirmed to a client."""
    jobs: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    """Runs with a requested cancellation, answered or not."""
    forked: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    """Ids of runs that may have been replaced."""
    aborted: set[str] = field(default_factory=set)
    """Jobs with a confirmed abort."""
    nacked: set[str] = field(default_factory=set)
    """Jobs that were failed through the queue, which does not know the retries of their tasks."""
    revived: set[str] = field(default_factory=set)
    """Jobs with a requested retry, answered or not."""

    def accepted_run(self, id: str) -> None:
        self.runs.append(id)
        self.evidence.accepted(run=id)

    def accepted_job(self, id: str) -> None:
        self.jobs.append(id)
        self.evidence.accepted(job=id)

    def saw_result(self, run: str) -> None:
        """A client saw the result of a run, which is final."""
        if not may_be_replaced(run):
            self.evidence.saw_end("completed", run=run)

    @asynccontextmanager
    async def command(
        self, command: str, run: str, key: str = "", *, nonce: str = "", by: str = ""
    ) -> AsyncIterator[list[str]]:
        """Wraps an action on a run, and records the response.

        Yields a list, for reasons why the response is unclear.
        """
        error: PerdureError | None = None
        unclear: list[str] = []
        try:
            yield unclear
        except PerdureError as raised:
            error = raised
            raise
        except CancelledError:
            unclear.append("the client stopped waiting")
            raise
        finally:
            if not may_be_replaced(run) and not unclear:
                self.evidence.command_sent(command, run, key, nonce=nonce, by=by, error=error)


SCHEDULES = ("tick", "tock")
LIVE = [name for name, source in EVENTS.items() if source is EventSource.LIVE]
QUEUES = ("default", "side")
TAGS = ("big", "fast")
TIMEOUTS = (None, None, None, None, 3.0, 0.2)
"""Seconds after which a client gives up waiting."""

Command = Callable[[], Awaitable[Any]]


class SimulatedClient:
    """One process with a client, which performs one action after the other."""

    def __init__(self, world: World, name: str, asked: Asked) -> None:
        self.actor: Actor = world.process(name)
        self._world = world
        self._asked = asked
        self._draw = random.Random(f"{world.seed} client {name}")
        self._flows = [each.flow for each in world.flows.values()]
        self._commands: list[tuple[int, str, Command]] = [
            (12, "submit", self._submit),
            (12, "enqueue", self._enqueue),
            (3, "cancel", self._cancel),
            (3, "pause", self._pause),
            (4, "unpause", self._unpause),
            (6, "signal", self._signal),
            (3, "broadcast", self._broadcast),
            (6, "decide", self._decide),
            (6, "report", self._report),
            (3, "retry", self._retry),
            (2, "fork", self._fork),
            (3, "migrate", self._migrate),
            (3, "set a priority", self._set_priority),
            (2, "wait", self._wait),
            (4, "command on a job", self._change_job),
            (1, "command on the queue", self._change_queue),
            (4, "dequeue", self._dequeue),
            (1, "settle what is parked", self._settle_parked),
            (2, "replace", self._replace),
            (1, "listen", self._listen),
            (3, "command on a schedule", self._change_schedule),
            (1, "look", self._look),
        ]

    async def run(self, until: float) -> None:
        """Command until a given time."""
        world, draw = self._world, self._draw
        self._client = AsyncClient(
            world.store_of(self.actor),
            tasks=list(world.tasks.plain_ones),
            flows=world.first_versions,
        )
        self._queue = AsyncJobQueue(world.store_of(self.actor))
        weights = [weight for weight, _, _ in self._commands]
        await self._attempt("submit", self._submit)
        if draw.random() < 0.3:
            await self._attempt("schedule", self._schedule)
        while world.loop.now < until:
            await asyncio.sleep(draw.choice((0.01, 0.3, 2.0)) * draw.random())
            [(_, name, command)] = draw.choices(self._commands, weights)
            await self._attempt(name, command)
        await self._queue.close()
        await self._client.close()

    async def _attempt(self, name: str, command: Command) -> None:
        """Perform one action; refusals are expected, other errors are not."""
        timeout = self._draw.choice(TIMEOUTS)
        try:
            async with asyncio.timeout(timeout):
                await command()
        except TimeoutError:
            self._world.trace(f"{name}: not waited for any longer")
        except PerdureError as error:
            self._world.trace(f"{name}: refused: {type(error).__name__}")
        except Exception as error:
            self._world.find(f"client: {name} raised {type(error).__name__}: {error}")

    async def _submit(self) -> None:
        draw = self._draw
        id = draw.choice(IDS) if draw.random() < 0.3 else None
        await self._submit_as(id, draw.choice(("fail", "fail", "use_existing", "replace")))

    async def _replace(self) -> None:
        """Replace a run while another command on it is under way."""
        id = self._draw.choice(IDS)
        await self._submit_as(id, "replace")
        commands = (self._client.runs.pause(id, by="ann"), self._submit_as(id, "replace"))
        for result in await asyncio.gather(*commands, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _submit_as(self, id: str | None, policy: str) -> None:
        draw = self._draw
        flow = draw.choice(self._flows)
        if id is not None and policy == "replace":
            self._asked.replaced.add(id)
        handle = await self._client.submit(  # type: ignore[call-overload]
            flow, draw.randrange(1_000), id=id, on_conflict=policy, **self._settings()
        )
        self._asked.accepted_run(handle.id)
        self._world.trace(f"submitted {flow.name} as {handle.id}")

    def _settings(self) -> dict[str, Any]:
        """The settings of a run; its bounds are such that some runs exceed them."""
        draw = self._draw
        options: dict[str, Any] = {}
        if draw.random() < 0.2:
            options["priority"] = draw.randint(1, 5)
        if draw.random() < 0.15:
            seconds = draw.randint(1, 5)
            if draw.random() < 0.5:
                options["delay"] = f"{seconds}s"
            else:
                options["run_at"] = self._world.now() + timedelta(seconds=seconds)
        if draw.random() < 0.2:
            seconds = draw.choice((1, 5, 20))
            if draw.random() < 0.7:
                options["timeout"] = f"{seconds}s"
                options["timeout_counts_waiting"] = draw.random() < 0.5
            else:
                options["deadline"] = self._world.now() + timedelta(seconds=seconds)
        if draw.random() < 0.15:
            options["max_attempts"] = draw.randint(1, 4)
        if draw.random() < 0.1:
            options["max_running"] = draw.randint(1, 4)
        if draw.random() < 0.2:
            options["sticky"] = f"{draw.choice((1, 5, 60))}s"
        return options | self._place()

    def _place(self) -> dict[str, Any]:
        """The queue and tags of a run or job, which not all workers serve; mostly none."""
        draw = self._draw
        options: dict[str, Any] = {}
        if draw.random() < 0.15:
            options["queue"] = draw.choice(QUEUES)
        if draw.random() < 0.15:
            options["tags"] = [draw.choice(TAGS)]
        return options

    async def _set_priority(self) -> None:
        run, priority = self._any_run(), self._draw.randint(1, 5)
        await self._client.runs.set_priority(run, priority, by="ann")
        self._world.trace(f"set the priority of {run}")

    async def _enqueue(self) -> None:
        draw = self._draw
        task = draw.choice(list(self._world.tasks.plain_ones))
        value = draw.randrange(1_000)
        options = self._place()
        if draw.random() < 0.15:
            options["max_attempts"] = draw.randint(1, 3)
        if draw.random() < 0.2:
            options["delay"] = f"{draw.randint(1, 5)}s"
        if draw.random() < 0.2:
            options["priority"] = draw.randint(1, 5)
        if draw.random() < 0.25:
            options["deadline"] = f"{draw.choice((1, 2, 5, 20))}s"
        if draw.random() < 0.15:
            options["fingerprint"] = f"print-{draw.randrange(3)}"
            options["on_conflict"] = draw.choice(("use_existing", "fail", "replace"))
        handle = await self._client.enqueue(task.options(**options), value)
        self._asked.accepted_job(handle.id)
        self._world.trace(f"enqueued {task.name} as {handle.id}")

    async def _cancel(self) -> None:
        run = self._any_run()
        self._asked.cancelled.add(run)
        compensate = self._draw.random() < 0.5
        async with self._asked.command("cancel", run):
            moved = await self._client.runs.cancel(run, compensate=compensate)
        self._world.trace(f"cancelled {run}: {moved.after}")

    async def _pause(self) -> None:
        run = self._any_run()
        await self._client.runs.pause(run, by="ann")
        self._world.trace(f"paused {run}")

    async def _unpause(self) -> None:
        paused = await self._client.runs.list(status="paused")
        run = self._draw.choice(paused).id if paused else self._any_run()
        await self._client.runs.resume(run)
        self._world.trace(f"unpaused {run}")

    async def _signal(self) -> None:
        run, name = self._any_run(), self._draw.choice(SIGNALS)
        nonce = evidence_log.new_nonce()
        async with self._asked.command("signal", run, name, nonce=nonce):
            await self._client.runs.signal(run, name, {**self._payload(), "wit": nonce})
        self._world.trace(f"signalled {run}")

    async def _broadcast(self) -> None:
        result = await self._client.runs.broadcast(self._draw.choice(SIGNALS), self._payload())
        self._world.trace(f"broadcast to {result.count}")

    async def _decide(self) -> None:
        draw = self._draw
        inbox = await self._client.approvals.list(draw.choice((None, *PEOPLE)))
        if not inbox:
            return
        approval = draw.choice(inbox)
        decision = draw.choice(("approve", "approve", "reject"))
        person = draw.choice(PEOPLE)
        async with self._asked.command("decide", approval.run, approval.node, by=person):
            record = await self._client.approvals.decide(approval.id, decision, by=person)
        self._world.trace(f"decided {approval.id}: {record.status}")

    async def _report(self) -> None:
        """Report before, during or after the wait."""
        draw = self._draw
        waits = await self._client.waits.list(type="external")
        if waits and draw.random() < 0.7:
            wait = draw.choice(waits)
            await self._report_on(wait.run, wait.key)
            return
        run = self._any_run()
        record = await self._client.runs.get(run)
        parts = self._world.flows[f"{record.flow}@{record.version}"].parts
        nodes = [part.id for part in every(parts)]
        if nodes:
            await self._report_on(run, draw.choice(nodes))

    async def _report_on(self, run: str, node: str) -> None:
        draw = self._draw
        status = draw.choice(("completed", "completed", "failed", "progress"))
        nonce = "" if draw.random() < 0.3 else evidence_log.new_nonce()
        sent = {"value": draw.randrange(100), "wit": nonce}
        details: dict[str, Any] = {"result" if status == "completed" else "progress": sent}
        key = None if nonce else f"report-{draw.randrange(3)}"  # may be repeated
        async with self._asked.command("report", run, node, nonce=nonce) as unclear:
            answer = await self._client.runs.report(run, node, status=status, key=key, **details)
            if answer.outcome is not ReportOutcome.ACCEPTED:
                unclear.append(answer.outcome)
        self._world.trace(f"reported {status} on {run}/{node}: {answer.outcome}")

    async def _retry(self) -> None:
        ended = await self._client.runs.list(status=self._draw.choice(("failed", "cancelled")))
        failed = [run for run in ended if run.parent is None]  # not known to a client yet
        run = self._draw.choice(failed).id if failed else self._any_run()
        await self._client.runs.retry(run)
        self._world.trace(f"retried {run}")

    async def _fork(self) -> None:
        run = self._any_run()
        if run in self._asked.forked:
            return  # its log starts with that of another run
        handle = await self._client.runs.handle(run).fork(after=self._draw.choice((None, 1, 3)))
        self._asked.forked.add(handle.id)
        self._asked.accepted_run(handle.id)
        self._world.trace(f"forked {run} as {handle.id}")

    async def _migrate(self) -> None:
        run, to = self._any_run(), self._draw.choice(self._flows)
        moved = await self._client.runs.migrate(run, to=to)
        self._world.trace(f"migrated {run}: {moved.after}")

    async def _wait(self) -> None:
        handle = self._client.runs.handle(self._any_run())
        await handle.result(timeout="3s")
        self._asked.saw_result(handle.id)
        self._world.trace(f"got the result of {handle.id}")

    async def _change_job(self) -> None:
        job = self._draw.choice(self._asked.jobs or ["none"])
        command = self._draw.choice(
            (
                self._client.jobs.cancel,
                self._client.jobs.disable,
                self._client.jobs.enable,
                self._client.runs.retry,
                self._client.jobs.resume,
            )
        )
        if command == self._client.runs.retry:
            self._asked.revived.add(job)
        moved = await command(job)
        if command == self._client.jobs.cancel and moved.before not in FINISHED:
            self._asked.aborted.add(job)
        self._world.trace(f"{command.__name__} of job {job}")

    async def _change_queue(self) -> None:
        command = self._draw.choice((self._client.queues.pause, self._client.queues.resume))
        await command(self._draw.choice(QUEUES))
        self._world.trace(command.__name__)

    async def _dequeue(self) -> None:
        """Poll as a custom worker, and settle what it gets. Such workers do not apply limits."""
        draw, nodes = self._draw, [task.name for task in self._world.tasks.work]
        names = [*nodes, *draw.choice(((), ("plain", "urgent", "timed")))]
        queues, worker = draw.choice((QUEUES, QUEUES[:1], QUEUES[1:])), f"{self.actor.name}-queue"
        for _ in range(draw.randint(1, 8)):
            job = await self._queue.dequeue(worker, queues=queues, tasks=names, lease="1s")
            if job is not None:
                if job.queue not in queues:
                    self._world.find(f"job {job.id} of {job.queue} was dequeued from {queues}")
                await self._settle(job)
                return
            await asyncio.sleep(0.1)

    async def _settle(self, job: QueuedJob) -> None:
        match self._draw.choice(("release", "release", "ack", "nack", "leave", "ack parked")):
            case "release":
                await self._queue.release(job)
            case "ack":
                await self._ack(job, job.claimed, job.payload)
            case "nack":
                self._asked.nacked.add(job.id)
                await self._queue.nack(job, "on purpose", delay=self._draw.choice((None, "0s")))
            case "ack parked":
                await self._queue.release(job)
                # Settling it counts as another claim.
                claim = Claim(id=job.id, epoch=job.claim_epoch + 1)
                await self._ack(job.id, replace(job.claimed, claim=claim), job.payload)

            case "leave":
                """Its lease expires."""
        self._world.trace(f"dequeued job {job.id}")

    async def _ack(self, job: QueuedJob | str, claimed: ClaimedJob, payload: Any) -> None:
        number = self._world.tasks.numbers[claimed.partition.task]
        worker = f"{self.actor.name}-queue"
        with self._asked.evidence.work_on(claimed, worker, claimed.claim.id) as execution:
            result = {"n": worked(number, payload), "wit": execution.nonce}
        await self._queue.ack(job, result)

    async def _settle_parked(self) -> None:
        """Settle a parked job by its id. A run alone settles those of its nodes."""
        parked = await self._client.jobs.list(status="paused")
        if not parked:
            return
        job = self._draw.choice(parked)
        if job.node is not None:
            await self._queue.ack(job.id)
            self._world.find(f"job {job.id} of run {job.node.run} was acknowledged")
        else:
            self._asked.nacked.add(job.id)
            await self._queue.nack(job.id, "on purpose", delay="0s")

    async def _listen(self) -> None:
        """Subscribe to live events for a while."""
        heard: list[ClientEvent] = []
        subscription = await self._client.events.subscribe(heard.append, types=LIVE)
        try:
            await asyncio.sleep(3 * self._draw.random())
        finally:
            subscription.unsubscribe()
        count = len(heard)
        await asyncio.sleep(1)
        if len(heard) > count:
            self._world.find(f"a handler got {heard[-1].type} after it had unsubscribed")
        for event in heard:
            if replace(event, cursor="") not in self._world.guard.published:
                self._world.find(f"a handler got {event.type} of job {event.job}, unpublished")
        self._world.trace(f"heard {count} live events")

    async def _change_schedule(self) -> None:
        client, name = self._client, self._draw.choice(SCHEDULES)
        match self._draw.randrange(5):
            case 0:
                await client.schedules.trigger(name)
            case 1:
                await client.schedules.pause(name)
            case 2:
                await client.schedules.resume(name)
            case _:
                await self._schedule()
        self._world.trace(f"changed schedule {name}")

    async def _schedule(self) -> None:
        draw, name = self._draw, self._draw.choice(SCHEDULES)
        is_flow = draw.random() < 0.5
        await self._client.schedules.save(
            name,
            draw.choice(self._flows) if is_flow else self._world.tasks.plain,
            every=f"{draw.randint(1, 6)}s",
            overlap=draw.choice(("skip", "queue", "cancel")),
            catch_up=draw.choice(("one", "all", "none")),
            **({"input": 5} if is_flow else {"args": [5]}),
        )
        self._world.trace(f"scheduled {name}")

    async def _look(self) -> None:
        run = self._any_run()
        await self._client.runs.explain(run)
        await self._client.runs.lineage(run)
        await self._client.queues.list()

    def _any_run(self) -> str:
        return self._draw.choice(self._asked.runs or ["none"])

    def _payload(self) -> dict[str, int]:
        return {"partition": self._draw.randrange(3), "value": self._draw.randrange(100)}


def every(parts: Any) -> list[External]:
    """All nodes in these parts that wait for reports, at any depth."""
    found: list[External] = []
    for part in parts:
        if isinstance(part, External):
            found.append(part)
        for inner in vars(part).values() if isinstance(part, Part) else ():
            if isinstance(inner, dict):
                inner = [each for branch in inner.values() for each in branch]
            if isinstance(inner, list | tuple):
                found += every([each for each in inner if isinstance(each, Part)])
    return found
