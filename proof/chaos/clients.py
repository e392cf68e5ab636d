"""Clients that submit, decide, report, signal and intervene, and record the responses."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from perdure import (
    AsyncClient,
    AsyncJobQueue,
    PerdureError,
    ReportReceipt,
    RunStatus,
    Status,
    StoreUnreachable,
)
from perdure.client.queue import ATTEMPTS_DEFAULT, QueuedJob
from perdure.flows.built import BuiltFlow
from perdure.model.client_event import EVENTS, EventSource
from perdure.model.job import Claim, ClaimedJob
from perdure.model.value import Value
from perdure.operations.records import ApprovalRecord, WaitRecord
from perdure.store.contract import Store
from proof.chaos.journal import Answer, Ask, asks, evidence
from proof.chaos.load import (
    ASIDE,
    DEAD_AFTER,
    FAILURES,
    RUNNING_MAX,
    SUBMITTED,
    TASKS,
    UNSENT,
    flaky,
    one_more,
    payload_for,
)
from proof.evidence.log import EventSeen, new_nonce, read_lines

_APART = "."


class Named(Value):
    flow: str
    number: int
    """Its input."""


def run_name(flow: str, number: int, unique: str) -> str:
    return _APART.join([flow, str(number), unique])


def named(id: str) -> Named | None:
    """The parts of an id; None if no client chose it, as with children and ticks."""
    parts = id.split(_APART)
    if "/" in id or "@" in id or len(parts) < 3 or not parts[1].isdigit():
        return None
    return Named(flow=parts[0], number=int(parts[1]))


TIMEOUT_SECONDS = 30.0
"""After this long a client gives up, with an unclear result."""
HASTE_SECONDS = 0.01
HASTY_SHARE = 0.05
"""The share of clients that give up almost immediately, so that unclear results are common."""
RUNS_MAX = 100
JOBS_MAX = 200
"""Maximum unfinished work before clients wait."""
LOOK_SECONDS = 0.3
LISTEN_SECONDS = 3.0
ENDS = [name for name, type in EVENTS.items() if type in (EventSource.JOB, EventSource.RUN)]
LIVE = [name for name, type in EVENTS.items() if type is EventSource.LIVE]
PAGE = 25
CANCEL_SHARE, PAUSE_SHARE, PRIORITY_SHARE = 0.2, 0.4, 0.8
NUMBER_MAX = 1_000
SEEN_MAX = 3
FINAL = (RunStatus.COMPLETED, RunStatus.FAILED)
"""Final statuses: only canceled runs are retried here."""
Found = TypeVar("Found")
_log = logging.getLogger("perdure.chaos")


class Clients:
    """All clients of one process."""

    def __init__(self, store: Store, settings: dict[str, Any]) -> None:
        self._client = AsyncClient(store)
        self._queue = AsyncJobQueue(store)
        self._name = f"{settings['name']}.{settings['generation']}"
        self._follower: str = settings["name"]
        self._cursor = last_cursor(Path(settings["evidence"]), self._follower)
        self._rate: float = settings["rate"]
        self._made = 0
        self._quiet = Path(settings["quiet"])
        self._has_room = True

    async def run(self) -> None:
        await self._open()
        ask_at = partial(random.expovariate, self._rate)
        look_at = partial(random.uniform, 0, LOOK_SECONDS)
        loops: dict[Callable[[], Awaitable[None]], Callable[[], float]] = {
            self._submit: ask_at,
            self._enqueue: ask_at,
            self._decide: look_at,
            self._report: look_at,
            self._signal: look_at,
            self._intervene: look_at,
            self._dequeue: look_at,
            self._read_ends: look_at,
            self._follow: look_at,
            self._listen: look_at,
            self._measure: look_at,
        }
        async with self._client, self._queue, asyncio.TaskGroup() as group:
            for loop, pause in loops.items():
                group.create_task(self._repeated(loop, pause))

    async def _open(self) -> None:
        while True:
            try:
                await self._client.open()
                await self._queue.open()
                return
            except StoreUnreachable:  # the store is down
                await asyncio.sleep(LOOK_SECONDS)

    async def _repeated(
        self, loop: Callable[[], Awaitable[None]], pause: Callable[[], float]
    ) -> None:
        while True:
            await asyncio.sleep(pause())
            try:
                await loop()
            except PerdureError as error:  # of a read; actions record their own
                _log.info("%s: %r", loop.__name__, error)

    async def _submit(self) -> None:
        if not self._is_asking or not self._has_room:
            return
        flow, number = random.choice(SUBMITTED), random.randrange(NUMBER_MAX)
        id = run_name(flow.name, number, self._unique())
        ask = asks().sent("submit", run=id)
        settings = _settings(flow)
        reply = await answered(ask, lambda: self._client.submit(flow, number, id=id, **settings))
        if reply.error is not None:
            evidence().refused(reply.error, run=id)
        elif reply.answer is Answer.ACCEPTED:
            evidence().accepted(run=id)

    async def _enqueue(self) -> None:
        if not self._is_asking or not self._has_room:
            return
        task, number = random.choice(TASKS), random.randrange(NUMBER_MAX)
        group = f"{number}.{self._unique()}"
        delay = random.choice([None, None, None, "700ms"])
        reply = await answered(
            asks().sent("enqueue", group=group),
            lambda: self._client.enqueue(task.options(group=group, delay=delay), number),
        )
        if reply.answer is Answer.ACCEPTED:
            evidence().accepted(job=reply.value.id)

    @property
    def _is_asking(self) -> bool:
        """Once the harness has asked to stop, clients only provide input to waiting runs."""
        return not self._quiet.exists()

    async def _dequeue(self) -> None:
        """Claim a job as a worker of one's own, park it and resume it. Never a node of a run."""
        if not self._is_asking:
            # The client that parked a job may have been killed before resuming it.
            for parked in await self._client.jobs.list(status=Status.PAUSED, limit=PAGE):
                if parked.node is None:
                    await self._resume(parked.id)
            return
        # Such workers apply no limits, and may settle any job as completed.
        names = [each.name for each in TASKS if not each.limits and each.name not in DEAD_AFTER]
        job = await self._queue.dequeue(f"{self._name}.queue", tasks=names, lease="2s")
        if job is None:
            return
        match random.choice(("release", "ack", "nack", "ack parked")):
            case "ack":
                await self._ack(job, job.claimed, job.payload)
            case "nack" if job.task == flaky.name and job.attempt < ATTEMPTS_DEFAULT:
                ask = asks().sent("nack")
                await answered(ask, lambda: self._queue.nack(job, "on purpose", delay=0.1))
            case "ack parked":
                await self._queue.release(job)
                # Settling it counts as another claim.
                claim = Claim(id=job.id, epoch=job.claim_epoch + 1)
                await self._ack(job.id, replace(job.claimed, claim=claim), job.payload)
            case _:
                await self._queue.release(job)
                await self._resume(job.id)

    async def _ack(self, job: QueuedJob | str, claimed: ClaimedJob, payload: Any) -> None:
        worker = f"{self._name}.queue"
        with evidence().work_on(claimed, worker, claimed.claim.id) as execution:
            result = one_more(payload, execution.nonce)
        await answered(asks().sent("ack"), lambda: self._queue.ack(job, result))

    async def _resume(self, id: str) -> None:
        ask = asks().sent("resume job")
        await answered(ask, lambda: self._client.jobs.resume(id, data=1))

    async def _measure(self) -> None:
        runs = await self._client.runs.count(status=RunStatus.RUNNING)
        runs += await self._client.runs.count(status=RunStatus.QUEUED)
        jobs = await self._client.jobs.count(status=Status.WAITING)
        self._has_room = runs < RUNS_MAX and jobs < JOBS_MAX

    async def _decide(self) -> None:
        for approval in await self._client.approvals.list(limit=PAGE):
            await self._decide_on(approval)

    async def _decide_on(self, approval: ApprovalRecord) -> None:
        by = random.choice(approval.deciders or (self._name,))
        decision = "approve" if approval.deciders else random.choice(approval.choices)
        place = Place(command="decide", run=approval.run, key=approval.node, by=by)
        data = {"by": place.nonce}
        await send_command(
            place,
            lambda: self._client.approvals.decide(
                approval.id, decision, by=by, data=data, revision=approval.revision
            ),
        )

    async def _report(self) -> None:
        for wait in await self._client.waits.list(type="external", limit=PAGE):
            await self._report_on(wait)

    async def _report_on(self, wait: WaitRecord) -> None:
        place = Place(command="report", run=wait.run, key=wait.key, by=self._name)
        await send_command(
            place,
            lambda: self._client.runs.report(
                wait.run,
                wait.key,
                status="completed",
                result=place.payload,
                key=place.nonce,
                by=self._name,
            ),
        )

    async def _signal(self) -> None:
        for wait in await self._client.waits.list(type="signal", limit=PAGE):
            if wait.name != UNSENT:
                await self._signal_to(wait)

    async def _signal_to(self, wait: WaitRecord) -> None:
        place = Place(command="signal", run=wait.run, key=wait.name, by=self._name)
        await send_command(
            place,
            lambda: self._client.runs.signal(wait.run, wait.name, place.payload, by=self._name),
        )

    async def _read_ends(self) -> None:
        """Record the reported ends of some runs and jobs, which must not change."""
        status = random.choice(FINAL)
        for run in _some(await self._client.runs.list(status=status, limit=PAGE)):
            evidence().saw_end(run.status, run=run.id)
        ended = random.choice((Status.COMPLETED, Status.DEAD))
        for job in _some(await self._client.jobs.list(status=ended, limit=PAGE)):
            if job.node is None:  # otherwise checked with its run
                evidence().saw_end(job.status, job=job.id)

    async def _follow(self) -> None:
        """Stream ends, after the last one that this client got, before it was killed too."""
        async for event in self._client.events.stream(types=ENDS, after=self._cursor):
            evidence().saw_event(self._follower, event)
            self._cursor = event.cursor

    async def _listen(self) -> None:
        """Subscribe to live events for a while."""
        subscription = await self._client.events.subscribe(
            partial(evidence().saw_event, self._follower), types=LIVE
        )
        try:
            await asyncio.sleep(random.uniform(0, LISTEN_SECONDS))
        finally:
            subscription.unsubscribe()

    async def _intervene(self) -> None:
        if not self._is_asking:
            # The client that paused a run may have been killed before resuming it.
            for run in await self._client.runs.list(status=RunStatus.PAUSED, limit=PAGE):
                await self._move("resume", run.id)
            return
        chance = random.random()
        if chance < CANCEL_SHARE:
            await self._move("cancel", await self._any(RunStatus.RUNNING))
        elif chance < CANCEL_SHARE + PAUSE_SHARE:
            id = await self._any(RunStatus.RUNNING)
            await self._move("pause", id)
            await asyncio.sleep(random.uniform(0, LOOK_SECONDS))
            await self._move("resume", id)
        elif (id := await self._any(RunStatus.RUNNING)) and chance < PRIORITY_SHARE:
            priority = random.randint(1, 5)
            ask = asks().sent("set_priority", run=id)
            await answered(ask, lambda: self._client.runs.set_priority(id, priority))
        else:
            await self._move("retry", await self._any(RunStatus.CANCELLED))

    async def _any(self, status: RunStatus) -> str | None:
        runs = await self._client.runs.list(status=status, limit=PAGE)
        own = [run.id for run in runs if named(run.id)]  # a child's end would fail its parent
        return random.choice(own) if own else None

    async def _move(self, command: str, id: str | None) -> None:
        if id is not None:
            operation = getattr(self._client.runs, command)
            place = Place(command=command, run=id, by=self._name, nonce="")  # it has no payload
            await send_command(place, lambda: operation(id, by=self._name))

    def _unique(self) -> str:
        self._made += 1
        return f"{self._name}.{self._made}"


def _settings(flow: BuiltFlow) -> dict[str, Any]:
    """Settings of a run that change when and where it runs, and bounds that it keeps."""
    options: dict[str, Any] = {"priority": random.choice([None, 1, 3, 5])}
    options["delay"] = random.choice([None, None, "700ms"])
    options["queue"] = random.choice([None, None, ASIDE])
    options["tags"] = random.choice([None, None, [ASIDE]])
    options["sticky"] = random.choice([None, "1s"])
    options["max_running"] = random.choice(RUNNING_MAX)
    if flow.name not in FAILURES:  # which have bounds that they reach
        options["timeout"] = random.choice([None, "1h"])
        options["max_attempts"] = random.choice([None, 10_000])
    return options


def last_cursor(evidence_log: Path, follower: str) -> str | None:
    """The cursor of the last end that a follower got."""
    cursor = None
    for _, line in read_lines(evidence_log):
        if isinstance(line, EventSeen) and line.follower == follower and line.name in ENDS:
            cursor = line.cursor
    return cursor


def _some(found: Sequence[Found]) -> list[Found]:
    return random.sample(found, min(SEEN_MAX, len(found)))


class Place(Value):
    """One action on a run."""

    command: str
    run: str
    by: str
    key: str = ""
    nonce: str = msgspec.field(default_factory=new_nonce)

    @property
    def payload(self) -> dict[str, Any]:
        """The payload for a waiting run: derived from its input, signed."""
        name = named(self.run)
        assert name is not None, "only runs of clients wait for external input"
        return {"n": payload_for(name.number), "by": self.nonce}


class Response(Value):
    """The response to one request. Neither a value nor an error: unclear."""

    answer: Answer
    value: Any = None
    error: PerdureError | None = None


async def send_command(place: Place, operation: Callable[[], Awaitable[Any]]) -> None:
    """Perform an action on a run, and record the response as evidence."""
    reply = await answered(asks().sent(place.command, run=place.run), operation)
    is_ignored = isinstance(reply.value, ReportReceipt) and not reply.value.is_accepted
    if reply.answer is Answer.UNCLEAR or is_ignored:  # another report arrived first
        return
    evidence().command_sent(
        place.command, place.run, place.key, nonce=place.nonce, by=place.by, error=reply.error
    )


async def answered(ask: Ask, operation: Callable[[], Awaitable[Any]]) -> Response:
    seconds = HASTE_SECONDS if random.random() < HASTY_SHARE else TIMEOUT_SECONDS
    try:
        async with asyncio.timeout(seconds):
            reply = Response(answer=Answer.ACCEPTED, value=await operation())
    except PerdureError as error:
        reply = Response(answer=Answer.REFUSED, error=error)
        _log.info("%s: %r", ask.command, error)
    except TimeoutError:
        reply = Response(answer=Answer.UNCLEAR)
    found_type = "" if reply.error is None else type(reply.error).__name__
    asks().write(replace(ask, answer=reply.answer, error=found_type))
    return reply
