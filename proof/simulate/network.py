"""The network between actors and the store: calls take time, fail, get lost and are retried."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from perdure.errors import StoreError
from perdure.model.hint import Hint
from perdure.model.job import CLAIMED, Claimed, Status
from perdure.model.outcome import Settlement
from perdure.model.run import NewRun, Submitted
from perdure.model.schedule import ScheduleAnswer, ScheduleCommit, ScheduleCommitState
from perdure.store.memory.state import MemoryState
from perdure.store.wakeups import Listener
from proof.simulate.loop import Actor, Process, SimulatedLoop, Trace, at_once

LATENCIES = (0.0, 0.0005, 0.02, 0.4)
NEVER, RARELY, OFTEN = 0.0, 0.01, 0.08


@dataclass(slots=True)
class FaultProfile:
    """Probabilities of faults, for one store call or one hint."""

    latency: float = 0.0
    """Maximum seconds of a call, each way."""
    lost_before: float = 0.0
    """The connection breaks before the call arrives; the backend retries."""
    lost_after: float = 0.0
    """The connection breaks after the call: the write counts, and is retried."""
    late: float = 0.0
    """A lost call arrives after all, after it was abandoned or retried."""
    silence: float = 0.0
    """Maximum seconds until a broken connection is detected."""
    given_up: float = 0.0
    """After a break, no retry: ``StoreError``, with an unclear result."""
    refused: float = 0.0
    """``StoreError``, and nothing is written."""
    out_until: float = 0.0
    """No call is answered before this time."""
    hint_lost: float = 0.0
    hint_twice: float = 0.0
    hint_unnamed: float = 0.0
    hint_delay: float = 0.0
    """Maximum seconds of a hint."""

    def calm(self) -> None:
        """End all faults."""
        calm = FaultProfile(latency=min(self.latency, 0.02))
        for name in FaultProfile.__dataclass_fields__:
            setattr(self, name, getattr(calm, name))


def drawn_profile(draw: random.Random) -> FaultProfile:
    def chance() -> float:
        return draw.choice((NEVER, NEVER, RARELY, OFTEN))

    return FaultProfile(
        latency=draw.choice(LATENCIES),
        lost_before=chance(),
        lost_after=chance(),
        late=draw.choice((NEVER, 0.5)),
        silence=draw.choice((0.0, 0.0, 0.0, 10.0)),
        given_up=draw.choice((NEVER, NEVER, 0.5)),
        refused=draw.choice((NEVER, NEVER, RARELY)),
        hint_lost=draw.choice((0.0, 0.0, 0.1, 0.5, 1.0)),
        hint_twice=draw.choice((0.0, 0.2)),
        hint_unnamed=draw.choice((0.0, 0.2)),
        hint_delay=draw.choice((0.0, 0.01, 2.0)),
    )


Again = Callable[[], Any]


def repeated(state: MemoryState, name: str, args: tuple[Any, ...], first: Any, again: Again) -> Any:
    """The answer to a retried call; ``first`` is the lost answer, if there was one."""
    if name == "runs.submit" and isinstance(first, Submitted) and first.is_new:
        found = _still_there(state, args[0], first)
        if found is not None:
            return found
    if name == "schedules.commit" and isinstance(first, ScheduleAnswer):
        written = _written(state, args[0], first)
        if written is not None:
            return written
    answer = again()
    if isinstance(answer, Claimed):
        return replace(answer, is_repeated=True)
    if name == "jobs.settle" and isinstance(answer, list):
        return [
            _settled_already(state, settlement) if status is None else status
            for settlement, status in zip(args[0], answer, strict=True)
        ]
    return answer


def is_undone_without_caller(name: str, args: tuple[Any, ...]) -> bool:
    """Whether an attempt has no effect once the next one was answered.

    Replacing a run takes several statements under locks that the next attempt waits for: if one of
    them arrives late, the last one was never sent.
    """
    return name == "runs.submit" and args[0].on_existing == "replace"


def _settled_already(state: MemoryState, settlement: Settlement) -> Status | None:
    """An unclaimed job with our epoch was settled by us: revoking a claim raises it."""
    job = state.jobs.get(settlement.claim.id)
    if job is None or job.epoch != settlement.claim.epoch or job.status in CLAIMED:
        return None
    return job.status


def _still_there(state: MemoryState, new: NewRun, first: Submitted) -> Submitted | None:
    run = state.records.runs.get((new.namespace, new.id))
    if run is None or run.created_at != first.run.created_at:
        return None
    return Submitted(run=run.as_run(), is_new=True)


def _written(
    state: MemoryState, commit: ScheduleCommit, first: ScheduleAnswer
) -> ScheduleAnswer | None:
    if first.state is not ScheduleCommitState.DONE:
        return None
    is_ours = False
    if commit.run is not None and first.submitted is not None:
        is_ours = _still_there(state, commit.run, first.submitted) is not None
    if commit.job is not None:
        is_ours |= commit.job.id in state.jobs
    if not is_ours:
        place = commit.schedule.namespace, commit.schedule.name
        kept = state.schedules.by_place.get(place)
        is_ours = kept is not None and kept.revision == commit.schedule.revision
    return first if is_ours else None


RETRY_FIRST, RETRY_MAX = 0.05, 2.0
CARRIED_OUT_ANYWAY = 0.3
"""The probability that the server completes a statement whose caller has disconnected."""
LATE_SECONDS_MAX = 10.0

Carry = Callable[[], Coroutine[Any, Any, Any]]


class Watcher(Protocol):
    """Observes every call that reached the store: before and after its execution, and its answer.

    ``received`` is for the answer that the sender gets: an execution may have none.
    """

    def sees(self, name: str) -> None: ...

    def saw(self, name: str, args: tuple[Any, ...], answer: Any) -> None: ...

    def received(self, name: str, answer: Any) -> None: ...


@dataclass(slots=True)
class Call:
    """One call to the store, across retries."""

    state: MemoryState
    name: str
    args: tuple[Any, ...]
    carry: Carry
    is_repeated: bool = False
    is_answered: bool = False
    """Whether its sender has an answer."""
    first: Any = None
    """The store's answer to its first execution, if any."""


class Network:
    """The connection that all handles of one process share."""

    def __init__(
        self,
        actor: Actor,
        faults: FaultProfile,
        loop: SimulatedLoop,
        trace: Trace,
        watcher: Watcher,
    ) -> None:
        self._actor = actor
        self._wire = Actor(Process(f"{actor.name}~"))
        """Messages in flight: they outlive their sender."""
        self._faults = faults
        self._loop = loop
        self._trace = trace
        self._watcher = watcher
        self._draw = random.Random(f"{loop.seed} line of {actor.name}")

    async def call(self, state: MemoryState, name: str, args: tuple[Any, ...], carry: Carry) -> Any:
        if self._loop.in_thread:  # where nothing can be awaited
            return _given(self._carried_out(name, args, carry))
        call = Call(state, name, args, carry)
        for delay in _growing_delays(self._draw):
            fate = self._draw.random()
            if self._faults.out_until > self._loop.now:
                await asyncio.sleep(self._faults.out_until - self._loop.now)
            faults = self._faults
            if fate < faults.refused:
                await self._travel_back()
                self._trace(f"{name}: refused")
                raise StoreError(f"the simulated store refused {name}, and nothing was written")
            fate -= faults.refused
            if fate < faults.lost_before:
                self._lose(call)
            else:
                answer = await self._answer(call)
                if fate - faults.lost_before >= faults.lost_after:
                    call.is_answered = True
                    await self._travel_back()
                    self._watcher.received(name, answer)
                    return _given(answer)
                self._trace(f"{name}: lost on the way back")
            call.is_repeated = True
            if faults.silence:
                await asyncio.sleep(self._draw.random() * faults.silence)
            if faults.given_up and self._draw.random() < faults.given_up:
                self._trace(f"{name}: given up")
                raise StoreError(f"the outcome of {name} in the simulated store is unknown")
            await asyncio.sleep(delay)
        raise AssertionError("delays never end")

    def hear(self, listener: Listener) -> Listener:
        """A listener that gets hints late, twice, without names, or never."""
        context = copy_context()

        def hear(hint: Hint) -> None:
            faults, draw = self._faults, self._draw
            if self._actor.process.is_dead or draw.random() < faults.hint_lost:
                return
            if hint.names and draw.random() < faults.hint_unnamed:
                hint = Hint(type=hint.type)
            times = 2 if draw.random() < faults.hint_twice else 1
            for _ in range(times):
                delay = draw.random() * faults.hint_delay
                self._loop.call_later(delay, listener, hint, context=context)

        return hear

    def _lose(self, call: Call) -> None:
        """Drop the call, or deliver it long after it was abandoned or retried."""
        faults, draw = self._faults, self._draw
        if draw.random() >= faults.late:
            self._trace(f"{call.name}: lost on the way there")
            return
        self._trace(f"{call.name}: on its way for long")

        def arrive() -> None:
            if not faults.late:  # no faults left: a call that has not arrived is lost
                return
            if call.is_answered and is_undone_without_caller(call.name, call.args):
                self._trace(f"{call.name}: undone")
                return
            self._trace(f"{call.name}: arrives late")
            # A store recognizes its own earlier attempt by a token, however late this one comes.
            again = partial(self._carried_out, call.name, call.args, call.carry)
            call.first = repeated(call.state, call.name, call.args, call.first, again)

        self._send(draw.random() ** 3 * LATE_SECONDS_MAX, arrive)

    async def _answer(self, call: Call) -> Any:
        """The store's answer. Once sent, the call arrives, even if its sender dies."""
        if not self._faults.latency:
            return self._arrived(call)
        answered: asyncio.Future[Any] = self._loop.create_future()

        def arrive() -> None:
            answer = self._arrived(call)
            if not answered.done():
                answered.set_result(answer)

        sent = self._send(self._draw.random() * self._faults.latency, arrive)
        try:
            return await answered
        except asyncio.CancelledError:
            if self._draw.random() < CARRIED_OUT_ANYWAY:
                self._trace(f"{call.name}: cancelled, and carried out all the same")
            else:
                sent.cancel()
            raise

    def _send(self, seconds: float, arrive: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, arrive, context=self._wire.context())

    async def _travel_back(self) -> None:
        if self._faults.latency:
            await asyncio.sleep(self._draw.random() * self._faults.latency)

    def _arrived(self, call: Call) -> Any:
        carried_out = partial(self._carried_out, call.name, call.args, call.carry)
        if call.is_repeated:
            self._trace(f"{call.name}: once more")
            call.first = repeated(call.state, call.name, call.args, call.first, carried_out)
        else:
            call.first = carried_out()
        return call.first

    def _carried_out(self, name: str, args: tuple[Any, ...], carry: Carry) -> Any:
        """The store's answer, or its error."""
        self._watcher.sees(name)
        try:
            answer = at_once(carry())
        except Exception as error:
            answer = error
        self._watcher.saw(name, args, answer)
        return answer


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _growing_delays(draw: random.Random) -> Iterator[float]:
    delay = RETRY_FIRST
    while True:
        yield delay * draw.uniform(0.5, 1)
        delay = min(delay * 2, RETRY_MAX)
