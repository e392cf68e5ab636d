"""Tasks for simulated flows and jobs: their outputs are functions of their inputs.

How often a task fails before it succeeds, and how long it takes, depends on the seed and on its
key, not on the worker or the time.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure import CONTEXT
from perdure.errors import Permanent, RetryLater
from perdure.model.limit import Concurrency, Rate
from perdure.model.retry import Retry
from perdure.model.wait import Report, ReportStatus
from perdure.tasks.context import AsyncContext
from perdure.tasks.task import Task, task
from proof.evidence.log import MemoryEvidenceLog
from proof.simulate.loop import Trace

IDS = tuple(f"order-{number}" for number in range(8))
"""Ids that callers choose, so that they collide. Several runs may have one in turn."""


def may_be_replaced(run: str | None) -> bool:
    """Whether another run may replace this one; a child goes with its parent."""
    return run is not None and run.partition("/")[0] in IDS


MODULUS = 9_973
FAILURES_MAX = 3
SEATS, SEATS_KEY = 2, "seats"
TAPS, TAPS_SECONDS, TAPS_KEY = 3, 4, "taps"
KEYED_SEATS = 1
AGAIN = Retry(2 * FAILURES_MAX, first="200ms", max="2s")
STRICT = Retry(1, first="100ms", max="100ms")
SNOOZES_MAX = 2

AnyTask = Task[..., Any]


def number_of(value: Any) -> int:
    """A number for any value, ignoring nonces."""
    return zlib.crc32(msgspec.json.encode(_unsigned(value), order="deterministic")) % MODULUS


def worked(number: int, value: Any) -> int:
    """The output of a task with this number for a value."""
    return (number_of(value) * 31 + number) % MODULUS


def is_enough(output: Any) -> bool:
    """The end condition of loops."""
    return number_of(output) % 3 == 0


def items_in(value: Any) -> list[int]:
    """The items of maps."""
    number = number_of(value)
    return [number + each for each in range(number % 4)]


def branch_of(value: Any) -> str:
    """The branch of routes."""
    return ("left", "right")[number_of(value) % 2]


def _unsigned(value: Any) -> Any:
    """A value without nonces."""
    if isinstance(value, dict):
        return {name: _unsigned(each) for name, each in value.items() if name != "wit"}
    return [_unsigned(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of the executions of one key."""

    naps: tuple[float, ...]
    failures: int
    """Executions that fail before one succeeds."""
    error: str
    is_hopeless: bool
    """Whether it never succeeds."""


class Tasks:
    """The tasks of one simulation."""

    def __init__(
        self, seed: str, evidence: MemoryEvidenceLog, trace: Trace, find: Callable[[str], None]
    ) -> None:
        self._seed = seed
        self._evidence = evidence
        self._trace = trace
        self._find = find
        self._executed: Counter[str] = Counter()
        self._stored: dict[str, int] = {}
        self.work = [self._worker(number) for number in range(3)]
        self.key = self._of("way", branch_of)
        self.spread = self._of("spread", items_in)
        self.enough = self._of("enough", is_enough)
        self.undo = task(name="undo", retries=AGAIN)(self._body(90))
        self.notify = task(name="notify", retries=AGAIN)(self._body(91))
        self.outside = task(name="outside", retries=AGAIN)(self._outside)
        self.plain = task(name="plain", retries=AGAIN)(self._body(10))
        self.urgent = task(name="urgent", priority=1, retries=STRICT)(self._body(11))
        self.seated = task(
            name="seated", retries=AGAIN, limits=[Concurrency(SEATS, key=SEATS_KEY)]
        )(self._body(12, SEATS_KEY))
        self.tapped = task(
            name="tapped",
            retries=AGAIN,
            limits=[Rate(TAPS, per=f"{TAPS_SECONDS}s", key=TAPS_KEY)],
        )(self._body(13, TAPS_KEY))
        self.keyed = task(
            name="keyed", retries=AGAIN, limits=[Concurrency(KEYED_SEATS, key=_key_of)]
        )(self._body(14))
        self.timed = task(name="timed", retries=STRICT, timeout="3s")(self._body(15))
        self.parking = task(name="parking", retries=AGAIN)(self._parking)
        self.snoozing = task(name="snoozing", max_snoozes=SNOOZES_MAX)(self._snoozing)

    @property
    def plain_ones(self) -> dict[AnyTask, int]:
        """Standalone tasks, with their numbers."""
        return {
            self.plain: 10,
            self.urgent: 11,
            self.seated: 12,
            self.tapped: 13,
            self.keyed: 14,
            self.timed: 15,
            self.parking: 16,
            self.snoozing: 17,
        }

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of all tasks that a custom worker may get, by name."""
        plain = {task.name: number for task, number in self.plain_ones.items()}
        return plain | {task.name: number for number, task in enumerate(self.work)}

    def fate(self, key: str) -> Fate:
        draw = random.Random(f"{self._seed} fate of {key}")
        naps = tuple(draw.choice((0.0, 0.01, 0.3, 1.5, 1.5)) for _ in range(draw.randrange(4)))
        failures = draw.randrange(FAILURES_MAX + 1) if draw.random() < 0.2 else 0
        error = draw.choice(("plain", "plain", "later"))
        return Fate(naps, failures, error, is_hopeless=draw.random() < 0.03)

    def _worker(self, number: int) -> AnyTask:
        work: AnyTask = task(name=f"work{number}", retries=AGAIN)(self._body(number))
        return work

    def _body(self, number: int, *limits: str) -> Any:
        async def body(value: Any, ctx: AsyncContext = CONTEXT) -> dict[str, Any]:
            with self._evidence.execution(ctx, limits) as execution:
                await self._live_through(ctx)
                return {"n": worked(number, value), "wit": execution.nonce}

        return body

    def _of(self, name: str, function: Any) -> AnyTask:
        """A task that is a pure function of its input."""

        async def body(value: Any) -> Any:
            return function(value)

        made: AnyTask = task(name=name, retries=AGAIN)(body)
        return made

    async def _outside(self, value: Any, ctx: AsyncContext) -> Any:
        """Waits for a report, and requests one if none comes."""
        with self._evidence.execution(ctx):
            key = ctx.idempotency_key
            draw = random.Random(f"{self._seed} pause of {key.partition('~')[0]}")
            poll = draw.choice((None, None, "3s"))
            deadline = draw.choice((None, None, "4s"))
            if ctx.part == "poll":
                self._executed[key] += 1
                self._trace(f"body polls {key}")
                if self._executed[key] < 3:
                    return None
                return Report(status=ReportStatus.COMPLETED, result=7)
            await self._live_through(ctx)
            report = await ctx.pause(checkpoint=value, poll=poll, deadline=deadline)
            return {"n": worked(50, [value, report.status.value, report.result])}

    async def _parking(self, value: Any, ctx: AsyncContext) -> Any:
        """A standalone job that parks until it is resumed."""
        with self._evidence.execution(ctx) as execution:
            await self._live_through(ctx)
            await ctx.pause(checkpoint=value)
            return {"n": worked(16, value), "wit": execution.nonce}

    async def _snoozing(self, value: Any, ctx: AsyncContext) -> Any:
        """A standalone job that asks to be retried later, sometimes more often than it may."""
        with self._evidence.execution(ctx) as execution:
            key = ctx.idempotency_key
            self._executed[key] += 1
            if self._executed[key] <= random.Random(f"{self._seed} snoozes of {key}").randrange(6):
                raise RetryLater(after="100ms")
            return {"n": worked(17, value), "wit": execution.nonce}

    async def _live_through(self, ctx: AsyncContext) -> None:
        """Take time, store a step, and fail as often as fated."""
        key = ctx.idempotency_key
        fate = self.fate(key)
        self._executed[key] += 1
        count = self._executed[key]
        self._trace(f"body begins {key}, execution {count}, attempt {ctx.attempt}")
        ctx.progress(count)
        for nap in fate.naps:
            await asyncio.sleep(nap)
        await self._step(ctx, count)
        if fate.is_hopeless:
            self._trace(f"body fails for good {key}")
            raise Permanent(f"{key} is hopeless")
        if count <= fate.failures:
            self._trace(f"body fails {key}")
            if fate.error == "later":
                raise RetryLater(after="300ms")
            raise ValueError(f"execution {count} of {key} fails")
        self._trace(f"body ends {key}")

    async def _step(self, ctx: AsyncContext, count: int) -> None:
        """Store a step once: later executions get the same."""
        key = ctx.idempotency_key
        stored = await ctx.step("once", lambda: count)
        if may_be_replaced(ctx.run_id):  # by a run with its own steps
            return
        if self._stored.setdefault(key, stored) != stored:
            self._find(f"a step of {key} gave {stored}, and {self._stored[key]} before")


def _key_of(value: Any) -> str:
    return f"keyed-{number_of(value) % 2}"
