"""All that one place in memory keeps of runs, with views of it that stay quick."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from perdure.model.ids import JobId, RunId
from perdure.model.run import RunStatus, StoredStep, WaitKind
from perdure.store.memory.index import ALL, Groups, Index
from perdure.store.memory.stored_run import KeptEvent, Place, StoredRun, StoredWait, WaitPlace

StepHolder = JobId | Place
"""The plain job or the run that steps are kept for, and go with."""


@dataclass(slots=True)
class Steps:
    holder: StepHolder
    by_name: dict[str, StoredStep] = field(default_factory=dict)


class RunRecords:
    """Runs, their events, waits and steps, and definitions of flows."""

    def __init__(self) -> None:
        self.definitions: dict[tuple[str, str, str], bytes] = {}
        self.runs: dict[Place, StoredRun] = {}
        self.events: dict[Place, list[KeptEvent]] = {}
        self.waits: dict[Place, dict[str, StoredWait]] = {}
        self.steps: dict[str, Steps] = {}
        self.step_owners: dict[StepHolder, set[str]] = {}

        place = attrgetter("place")
        self.by_age: Index[StoredRun, Place] = Index(
            lambda run: (ALL,), lambda run: (run.created_at, run.id), place
        )
        self.by_name: Index[StoredRun, Place] = Index(
            lambda run: (run.id,), lambda run: run.namespace, place
        )
        self.children: Index[StoredRun, Place] = Index(
            _child_of, lambda run: (run.created_at, run.id), place
        )
        self.ended: Index[StoredRun, Place] = Index(_ended_as, lambda run: run.finished_at, place)
        self.live: Index[StoredRun, Place] = Index(_live_as, lambda run: run.id, place)
        self.due: Index[StoredWait, WaitPlace] = Index(_due_in, lambda wait: wait.due_at, place)
        self.listed: Index[StoredWait, WaitPlace] = Index(_listed_in, lambda wait: wait.age, place)
        self.begun: Index[StoredRun, Place] = Index(
            _begun_as, lambda run: (run.created_at, run.id), place
        )
        self.completed: Index[StoredRun, Place] = Index(
            _completed_as, lambda run: (run.finished_at, run.id), place
        )
        self._of_runs = (
            self.by_age,
            self.by_name,
            self.children,
            self.ended,
            self.live,
            self.begun,
            self.completed,
        )

    # Each writes one thing as a whole; None removes it.

    def put_run(self, place: Place, run: StoredRun | None) -> None:
        before = self.runs.pop(place, None)
        if run is not None:
            self.runs[place] = run
        if _is_found_alike(before, run):
            return
        for index in self._of_runs:
            index.move(before, run)

    def put_events(self, place: Place, events: list[KeptEvent] | None) -> None:
        if events is None:
            self.events.pop(place, None)
        else:
            self.events[place] = events

    def cut_events(self, place: Place, count: int) -> None:
        """Leave the first ``count`` events, which undoes adding more."""
        del self.events[place][count:]

    def put_wait(self, place: WaitPlace, wait: StoredWait | None) -> None:
        namespace, run, key = place
        waits = self.waits.setdefault((namespace, run), {})
        before = waits.pop(key, None)
        if wait is not None:
            waits[key] = wait
        elif not waits:
            del self.waits[namespace, run]
        self.due.move(before, wait)
        self.listed.move(before, wait)

    def put_steps(self, owner: str, steps: Steps | None) -> None:
        before = self.steps.pop(owner, None)
        if before is not None:
            owners = self.step_owners[before.holder]
            owners.discard(owner)
            if not owners:
                del self.step_owners[before.holder]
        if steps is not None:
            self.steps[owner] = steps
            self.step_owners.setdefault(steps.holder, set()).add(owner)

    # What is found through the views

    def wait(self, namespace: str, run: RunId, key: str) -> StoredWait | None:
        return self.waits.get((namespace, run), {}).get(key)

    def waits_of(self, place: Place) -> list[StoredWait]:
        return list(self.waits.get(place, {}).values())

    def tree(self, root: Place) -> list[Place]:
        """A run, its children and all theirs."""
        found = [root]
        for place in found:
            found += self.children.ids(place)
        return found


def _is_found_alike(before: StoredRun | None, after: StoredRun | None) -> bool:
    """Whether a run went on without anything that a view of runs looks at."""
    return (
        before is not None
        and after is not None
        and before.status is after.status
        and before.version == after.version
        and before.finished_at == after.finished_at
        and before.created_at == after.created_at
    )


def _child_of(run: StoredRun) -> Groups:
    return () if run.parent is None else ((run.namespace, run.parent.run),)


def _ended_as(run: StoredRun) -> Groups:
    """Children are left out: they go with their parent."""
    return ((run.namespace, run.status),) if run.is_ended and run.parent is None else ()


def _live_as(run: StoredRun) -> Groups:
    return () if run.is_ended else ((run.namespace, run.flow, run.version),)


def _begun_as(run: StoredRun) -> Groups:
    """By what flows cool down: runs of their own that were not skipped."""
    counts = run.has_cooldown and run.parent is None and run.status is not RunStatus.SKIPPED
    return ((run.namespace, run.flow),) if counts else ()


def _completed_as(run: StoredRun) -> Groups:
    return _begun_as(run) if run.status is RunStatus.COMPLETED else ()


def _due_in(wait: StoredWait) -> Groups:
    return () if wait.due_at is None or wait.is_held else (wait.namespace,)


def _listed_in(wait: StoredWait) -> Groups:
    """Those that somebody outside ends: signals by their names, which is what they are sent to."""
    match wait.kind:
        case WaitKind.SIGNAL:
            return ((wait.kind, wait.name),)
        case WaitKind.OUTSIDE | WaitKind.APPROVAL:
            return (wait.kind,)
        case _:
            return ()
