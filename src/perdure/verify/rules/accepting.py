"""I1 and I12: what was accepted is there, what was refused left no trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from perdure.model.ids import JobId, RunId
from perdure.store.contract import Store
from perdure.verify.finding import Finding
from perdure.verify.settings import CheckSettings
from perdure.verify.testimony import Testimony

BATCH = 500
CLEAR = "InvalidInput"
"""The one kind of refusal after which there is surely nothing: others may be about another's."""

_LOST = "accepted, as its client was told, and it is not there"

T = TypeVar("T")


class Accepting:
    def __init__(self, store: Store, settings: CheckSettings, testimony: Testimony) -> None:
        self._store = store
        self._settings = settings
        self._testimony = testimony

    async def findings(self) -> AsyncIterator[Finding]:
        async for finding in self._accepted():
            yield finding
        async for finding in self._refused():
            yield finding

    async def _accepted(self) -> AsyncIterator[Finding]:
        """Everything that a client was told is accepted is there, or was pruned if that may be."""
        if self._settings.allows_pruned:
            return
        for batch in _batches(self._testimony.accepted()):
            places = [(namespace, RunId(run)) for namespace, run, _ in batch if run]
            runs = await self._store.run_states(places) if places else []
            for (namespace, id), run in zip(places, runs, strict=True):
                if run is None:
                    yield _finding("I1", "accepted", _LOST, namespace, run=id)
            jobs = [(namespace, JobId(job)) for namespace, _, job in batch if job]
            states = await self._store.job_states([job for _, job in jobs]) if jobs else {}
            for namespace, job in jobs:
                if job not in states:
                    yield _finding("I1", "accepted", _LOST, namespace, job=job)
                elif (found := self._testimony.namespace_of(job)) not in (None, namespace):
                    text = f"accepted in namespace {namespace!r}, and it is in {found!r}"
                    yield _finding("I1", "accepted", text, namespace, job=job)

    async def _refused(self) -> AsyncIterator[Finding]:
        for namespace, run, job, errors in self._testimony.refused_only():
            if CLEAR not in errors.split():
                continue
            text = f"refused with {errors.split()[0]}, and it is there"
            if run:
                [found] = await self._store.run_states([(namespace, RunId(run))])
                if found is not None:
                    yield _finding("I12", "refused", text, namespace, run=run)
            elif JobId(job) in await self._store.job_states([JobId(job)]):
                yield _finding("I12", "refused", text, namespace, job=job)


def _finding(
    invariant: str, rule: str, text: str, namespace: str, *, run: str = "", job: str = ""
) -> Finding:
    return Finding(invariant=invariant, rule=rule, text=text, namespace=namespace, run=run, job=job)


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH)):
        yield batch
