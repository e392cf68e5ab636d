"""The inside of a store in memory."""

from __future__ import annotations

from perdure.model.ids import RunId
from perdure.store.contract import Store
from perdure.store.memory.state import State
from perdure.store.memory.store import MemoryStore
from perdure.testing.check.inside.reads import Details


class MemoryInside:
    def __init__(self, state: State) -> None:
        self._state = state

    @staticmethod
    def of(store: Store) -> MemoryInside:
        assert isinstance(store, MemoryStore)
        return MemoryInside(store._state)

    async def details(self, namespace: str, run: RunId) -> Details:
        with self._state.lock:
            jobs = [self._state.jobs[id] for id in self._state.of_run.ids((namespace, run))]
            waits = self._state.records.waits_of((namespace, run))
            return Details(
                lanes={job.id: job.lane.text for job in jobs},
                held=frozenset(wait.key for wait in waits if wait.is_held),
            )

    async def strays(self) -> list[str]:
        with self._state.lock:
            records = self._state.records
            runs = records.runs
            found = [f"events of run {place[1]!r}" for place in records.events if place not in runs]
            found += [f"a wait of run {place[1]!r}" for place in records.waits if place not in runs]
            for owner, steps in records.steps.items():
                kept = runs if isinstance(steps.holder, tuple) else self._state.jobs
                if steps.holder not in kept:
                    found.append(f"steps of {owner!r}")
            return sorted(found)
