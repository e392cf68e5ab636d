"""Broadcasts: one signal for every run that waits for it just now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.client.access import Access
from perdure.client.results import decoded
from perdure.client.run_acts import RunActs
from perdure.client.waits import pages_of
from perdure.engine.cached_run import CachedRun
from perdure.engine.plan import Plan
from perdure.engine.runs import Runs
from perdure.errors import PerdureError
from perdure.expr.condition import holds, parse_condition
from perdure.model.event import NodeCompleted
from perdure.model.ids import RunId
from perdure.model.run import LiveKind, Wait, WaitFilter, WaitKind
from perdure.model.trigger import SendSignal
from perdure.model.value import Value

RUNS_AT_ONCE = 100
"""How many runs get the signal in one write."""


class BroadcastResult(Value):
    """Whom a broadcast reached."""

    name: str
    runs: tuple[RunId, ...]
    """Those that have the signal now, the longest waiting first."""
    unmatched: int
    """How many others wait for one of this name, with a filter that this one does not pass."""

    @property
    def count(self) -> int:
        return len(self.runs)


class Broadcasting:
    """Brings one signal to all runs that wait for it, a page of them at a time."""

    def __init__(self, access: Access, acts: RunActs) -> None:
        self._access = access
        self._acts = acts

    async def broadcast(self, signal: SendSignal, flow: str | None) -> BroadcastResult:
        namespace = self._access.own("runs.broadcast")
        store = await self._access.store.opened()
        runs = await self._acts.runs()
        # What opens from now on is not meant: a run that takes the signal may wait for another.
        until = await store.now()
        wanted = WaitFilter(namespace=namespace, kind=WaitKind.SIGNAL, name=signal.name)
        payload = msgspec.json.decode(signal.payload)
        reached: dict[RunId, None] = {}
        refused: set[RunId] = set()
        async for page in pages_of(store, wanted, RUNS_AT_ONCE):
            waiting = [wait for wait in page if wait.opened_at <= until]
            if not waiting:
                break
            waiting = await self._of_flow(namespace, waiting, flow)
            matching = [wait.run for wait in waiting if self._accepts(wait, payload)]
            new = [id for id in dict.fromkeys(matching) if id not in reached]
            sent = await _send(runs, [(namespace, id) for id in new], signal)
            reached |= dict.fromkeys(id for id in new if id in sent)
            refused.update(wait.run for wait in waiting if wait.run not in matching)
        unmatched = len(refused - reached.keys())
        return BroadcastResult(name=signal.name, runs=tuple(reached), unmatched=unmatched)

    async def _of_flow(self, namespace: str, waits: list[Wait], flow: str | None) -> list[Wait]:
        if flow is None:
            return waits
        store = await self._access.store.opened()
        runs = await store.queries.get_runs([(namespace, wait.run) for wait in waits])
        return [
            wait
            for wait, run in zip(waits, runs, strict=True)
            if run is not None and run.flow == flow
        ]

    def _accepts(self, wait: Wait, payload: Any) -> bool:
        """Whether the wait is for a signal like this; the engine looks at that once more."""
        if not wait.detail:
            return True
        try:
            condition = parse_condition(decoded(wait.detail, self._access.codec)["where"])
        except (PerdureError, LookupError, TypeError):
            return True  # nobody can tell from this
        return holds(condition, payload if isinstance(payload, dict) else {})


async def _send(runs: Runs, ids: Sequence[tuple[str, RunId]], signal: SendSignal) -> set[RunId]:
    """Let the signal happen to these runs, in one write; those that took it or will."""
    loaded = await runs.load_many(ids)
    left = [run for run in loaded if isinstance(run, CachedRun)]
    sent: set[RunId] = set()
    while left:
        plans = [
            plan
            for run in left
            if _waits_for(run, signal.name)
            and _is_taken(plan := await runs.plan(run, lambda plan: plan.apply(signal)))
        ]
        written = await runs.commit(plans)
        sent |= {plan.run.id for plan in written}
        others = [plan.run for plan in plans if plan not in written]
        left = await runs.catch_up(others)
    return sent


def _waits_for(run: CachedRun, name: str) -> bool:
    nodes = run.graph.signals.get(name, ())
    return not run.state.is_ended and any(run.state.live.get(id) is LiveKind.WAIT for id in nodes)


def _is_taken(plan: Plan) -> bool:
    """Whether a node takes the signal; a paused run will, once it goes on."""
    taken = any(
        isinstance(event, NodeCompleted) and event.cause == "signal" for event in plan.events
    )
    return taken or plan.run.state.is_paused
