"""The world of one history: a loop, a store, tasks, flows, and the faults of its seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from perdure.clock import Clock
from perdure.engine import plan, snapshot
from perdure.store.contract import PARTS
from perdure.store.memory.state import MemoryState
from perdure.store.memory.store import MemoryStore
from perdure.store.memory.transaction import Session
from perdure.store.wakeups import HintTypes, Listener
from perdure.testing.wrapped_store import wrap_part
from proof.evidence.log import MemoryEvidenceLog
from proof.simulate.flows import Drawing, SimulatedFlow
from proof.simulate.guard import CallGuard
from proof.simulate.loop import Actor, Process, SimulatedLoop, Trace, moment
from proof.simulate.network import Network, drawn_profile
from proof.simulate.tasks import Tasks

URL = "memory://"


class SimulatedStore(MemoryStore):
    """A handle of one process: every call goes over its network."""

    def __init__(self, state: MemoryState, clock: Clock, network: Network) -> None:
        super().__init__(URL, session=Session(state, clock))
        self._network = network
        for name in PARTS:
            setattr(self, name, wrap_part(name, getattr(self, name), self._send))

    def clone(self) -> SimulatedStore:
        return SimulatedStore(self._session.state, self._session.clock, self._network)

    def subscribe(self, listener: Listener, node_types: HintTypes = None) -> Callable[[], None]:
        return super().subscribe(self._network.hear(listener), node_types)

    async def now(self) -> datetime:
        moment: datetime = await self._send("now", super().now, (), {})
        return moment

    async def _send(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        carry = partial(method, *args, **kwargs)
        return await self._network.call(self._session.state, name, args, carry)


RATES = (1.0, 1.0, 1.0, 0.97, 1.05)
SKEW_SECONDS = 30.0
SPACINGS = (3, 10, snapshot.SPACING)
"""Events between snapshots: simulated runs are too short for the real spacing."""
WINDOWS = (1, 2, plan.MAP_WINDOW)
"""Unfinished items of maps: simulated lists are too short for the real window."""


class World:
    """The state that all actors of a history share."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        self.seed = str(seed)
        self.loop = SimulatedLoop(self.seed)
        self.trace = Trace(self.loop, show)
        self.draw = random.Random(f"world of {seed}")
        self.faults = drawn_profile(self.draw)
        self.evidence = MemoryEvidenceLog(now=lambda: self.loop.now)
        self.findings: list[str] = []
        self.is_over = False
        self.seconds_back = 0.0
        """By how much the store's clock was set back."""
        self.is_pruned = False
        """Whether ended work is pruned."""
        self.tasks = Tasks(self.seed, self.evidence, self.trace, self.find)
        self.flows: dict[str, SimulatedFlow] = {
            each.text: each for each in Drawing(self.draw, self.tasks).flows()
        }
        self.state = MemoryState()
        self.first_versions = list(
            {each.flow.name: each.flow for each in reversed(self.flows.values())}.values()
        )
        """The version of each flow that is registered under its name."""
        self.guard = CallGuard(self.state, self.now, self.trace, self.find, lambda: self.loop.now)

    def now(self) -> datetime:
        """The store's time: the true one, unless its clock was set back."""
        return moment(self.loop.now - self.seconds_back)

    def set_clock_back(self, seconds: float) -> None:
        """Set the store's clock back, as an operator or a faulty time server does."""
        self.trace(f"the store's clock is set back by {seconds:.0f} s")
        self.seconds_back += seconds
        self.guard.clock_set_back()

    def find(self, finding: str) -> None:
        """Record a violation."""
        if self.is_over:
            return
        self.trace(f"FOUND {finding}")
        self.findings.append(finding)

    @contextmanager
    def spacing(self) -> Iterator[None]:
        """Take snapshots more often within the block."""
        before = snapshot.SPACING, plan.MAP_WINDOW
        snapshot.SPACING = self.draw.choice(SPACINGS)
        plan.MAP_WINDOW = self.draw.choice(WINDOWS)
        try:
            yield
        finally:
            snapshot.SPACING, plan.MAP_WINDOW = before

    def process(self, name: str) -> Actor:
        """A new process, with a clock that may be wrong."""
        draw = self.draw
        return Actor(
            Process(
                name,
                rate=draw.choice(RATES),
                offset=draw.random() * 1_000,
                wall_offset=draw.uniform(-SKEW_SECONDS, SKEW_SECONDS),
            )
        )

    def store_of(self, actor: Actor) -> SimulatedStore:
        network = Network(actor, self.faults, self.loop, self.trace, self.guard)
        return SimulatedStore(self.state, self.now, network)

    def plain_store(self) -> MemoryStore:
        """A handle without a network, for checks."""
        return MemoryStore(URL, session=Session(self.state, self.now))

    def spawn(self, actor: Actor, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of an actor."""
        task: asyncio.Task[Any] = actor.context().run(self.loop.create_task, coroutine)
        return task

    def cut_off(self, seconds: float) -> None:
        """Make the store unreachable for all actors."""
        self.trace(f"the store is out of reach for {seconds:.3f} s")
        self.faults.out_until = max(self.faults.out_until, self.loop.now + seconds)
