"""What can be waited for: how hints name it, and how its state is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from perdure.model.hint import HintKind
from perdure.model.ids import JobId, RunId
from perdure.model.job import JobState
from perdure.model.run import Run
from perdure.store.contract import Store

K = TypeVar("K")
S = TypeVar("S", covariant=True)

RunKey = tuple[str, RunId]
"""Namespace and id: ids of runs are chosen by callers, each namespace for itself."""


class Watched(Protocol[K, S]):
    """One sort of thing that has a key and a state."""

    @property
    def hint(self) -> HintKind:
        """By which its changes are told."""

    def name(self, key: K) -> str:
        """What hints call it."""

    async def read(self, store: Store, keys: Sequence[K]) -> Mapping[K, S]:
        """The states of those that are there."""


class WatchedJobs:
    hint = HintKind.CHANGED

    def name(self, key: JobId) -> str:
        return key

    async def read(self, store: Store, keys: Sequence[JobId]) -> Mapping[JobId, JobState]:
        return await store.queries.job_states(keys)


class WatchedRuns:
    hint = HintKind.RUN

    def name(self, key: RunKey) -> str:
        return key[1]

    async def read(self, store: Store, keys: Sequence[RunKey]) -> Mapping[RunKey, Run]:
        states = await store.queries.get_runs(keys)
        return {key: run for key, run in zip(keys, states, strict=True) if run is not None}
