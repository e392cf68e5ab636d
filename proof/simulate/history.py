"""One history: from a seed to its findings."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from perdure.errors import StoreError
from proof.evidence import log as evidence_log
from proof.simulate.clients import Asked, SimulatedClient
from proof.simulate.followers import CATCH_UP_SECONDS, Follower
from proof.simulate.loop import simulated_clock, threadless
from proof.simulate.verdict import checked, judge
from proof.simulate.workers import Finisher, WorkerPool
from proof.simulate.world import World

UNREST_SECONDS = (4, 20)
CHECKS = 3
"""Verifier passes under faults."""
STEPPED, STEP_SECONDS = 0.15, (30.0, 600.0)
"""How many histories set the store's clock back, and by how much."""
SETTLING_SECONDS_MAX = 400.0


@dataclass(frozen=True)
class History:
    """The result of one seed."""

    seed: int
    findings: tuple[str, ...]
    digest: str
    steps: int
    seconds: float
    """Simulated seconds."""
    runs: int
    jobs: int


def simulate(seed: int, show: Callable[[str], None] | None = None) -> History:
    """Simulate the history of a seed, and judge it."""
    with _quiet(), _one_of_its_kind(seed):
        world = World(seed, show)
        asked = Asked(world.evidence)
        with (
            simulated_clock(world.loop, world.seed),
            threadless(),
            listening(world),
            world.spacing(),
        ):
            try:
                world.loop.run_until_complete(_live(world, asked))
            except Exception as error:  # any error belongs to this seed
                world.find(f"the history broke off: {type(error).__name__}: {error}")
            history = History(
                seed=seed,
                findings=tuple(world.findings),
                digest=world.trace.digest,
                steps=world.loop.steps,
                seconds=world.loop.now,
                runs=len(world.state.records.runs),
                jobs=len(world.state.jobs),
            )
            world.is_over = True
            world.loop.finalize()
    return history


async def _live(world: World, asked: Asked) -> None:
    """Run with faults; then without, until all work has ended; then shut down."""
    until = world.draw.uniform(*UNREST_SECONDS)
    pool = WorkerPool(world)
    names = [f"client-{number}" for number in range(1, world.draw.randint(1, 3) + 1)]
    clients = [SimulatedClient(world, name, asked) for name in names]
    for client in clients:
        world.spawn(client.actor, client.run(until))
        if world.draw.random() < 0.2:
            client.actor.process.dies_after = world.draw.randint(1, 2_000)
    follower = Follower(world)
    world.spawn(world.process("followers"), follower.run(until))
    steps_back = _drawn_steps_back(world)
    for part in range(1, CHECKS + 1):
        if part in steps_back:
            world.set_clock_back(steps_back[part])
        await pool.run_until(until * part / CHECKS)
        for finding in await checked(world):
            world.find(finding)

    world.trace("no more faults from here on")
    world.faults.calm()
    for client in clients:
        world.loop.kill(
            client.actor.process
        )  # otherwise one that waits for the store would continue
    pool.relieve()
    finisher = Finisher(world)
    care = world.spawn(finisher.actor, finisher.run())
    await asyncio.wait([care], timeout=SETTLING_SECONDS_MAX + world.seconds_back)
    if care.done() and care.exception() is not None:
        world.find(f"finisher: {care.exception()!r}")
    await pool.stop()
    # Ends that are ahead of a clock set back come when it shows their time.
    await asyncio.sleep(CATCH_UP_SECONDS + world.seconds_back)
    for finding in (*judge(world, asked), *follower.missed(), *await checked(world)):
        world.find(finding)


def _drawn_steps_back(world: World) -> dict[int, float]:
    """When the store's clock is set back in this history, and by how many seconds; rarely."""
    draw = random.Random(f"{world.seed} steps of the clock")
    if draw.random() >= STEPPED:
        return {}
    return {draw.randint(1, CHECKS): draw.uniform(*STEP_SECONDS) for _ in range(draw.randint(1, 2))}


class _LogCapture(logging.Handler):
    """Turns logged errors of the library, other than store errors, into findings."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StoreError):
            self._world.find(f"logged: {record.getMessage()}: {type(error).__name__}: {error}")


@contextmanager
def listening(world: World) -> Iterator[None]:
    """Turn log records and uncaught exceptions into findings instead of printing them."""
    log, ear = logging.getLogger("perdure"), _LogCapture(world)
    before = log.propagate, log.level
    log.addHandler(ear)
    log.propagate = False
    log.setLevel(logging.ERROR)

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        world.find(f"unhandled: {context['message']}: {error!r}")

    world.loop.set_exception_handler(failed)
    try:
        yield
    finally:
        log.removeHandler(ear)
        log.propagate = before[0]
        log.setLevel(before[1])


@contextmanager
def _one_of_its_kind(seed: int) -> Iterator[None]:
    """Derive nonces from the seed."""
    draw, before = random.Random(f"nonces of {seed}"), evidence_log.new_nonce
    evidence_log.new_nonce = lambda: f"wit-{draw.randbytes(16).hex()}"
    try:
        yield
    finally:
        evidence_log.new_nonce = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable garbage collection, which would finalize coroutines of killed processes."""
    hook, was_enabled = sys.unraisablehook, gc.isenabled()
    gc.disable()
    sys.unraisablehook = lambda _: None
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = hook
        if was_enabled:
            gc.enable()
