"""A copy of a history in memory, to be tampered with in ways that no store allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.clock import system_clock
from perdure.diagnostics import Finding
from perdure.engine import snapshot as snapshots
from perdure.engine.fold import fold
from perdure.model.event import Event, StoredEvent, decode_event, encode_event
from perdure.model.ids import JobId, RunId
from perdure.model.run import RunState, Snapshot
from perdure.store.contract import Store
from perdure.store.memory.records import KeptEvent, StoredJob, StoredRun, StoredWait
from perdure.store.memory.store import MemoryStore
from proof.evidence import EvidenceSettings
from proof.evidence.log import BodyBegan, EndSeen, Line
from tests.verify.history import Made

NAMESPACE = "default"


class Broken:
    """What a test breaks, with short ways to break it."""

    def __init__(self, made: Made) -> None:
        self.store = copied(made.store)
        self.state = self.store._session.state
        self.records = self.state.records
        self.lines: list[Line] = list(made.evidence.lines)
        self.settings: EvidenceSettings = made.settings
        self.plain = made.jobs

    @property
    def now(self) -> datetime:
        """When the store was broken."""
        return system_clock()

    # Runs

    def run(self, id: str) -> StoredRun:
        return self.records.runs[NAMESPACE, RunId(id)]

    def change_run(self, id: str, **changes: Any) -> None:
        run = self.run(id)
        self.records.put_run(run.place, replace(run, **changes))

    def remove_run(self, id: str) -> None:
        place = self.run(id).place
        for job in self.jobs_of(id):
            self.state.put(job.id, None)
        for wait in self.records.waits_of(place):
            self.records.put_wait(wait.place, None)
        self.records.put_events(place, None)
        self.records.put_run(place, None)

    # Events

    def log(self, id: str) -> list[KeptEvent]:
        return self.records.events[NAMESPACE, RunId(id)]

    def event(self, id: str, number: int) -> Event:
        kept = self.log(id)[number - 1].event
        return decode_event(RunId(id), number, kept.data)

    def find(self, id: str, live_type: type, place: int = 0) -> int:
        """The number of an event of this kind."""
        found = [
            n for n in range(1, len(self.log(id)) + 1) if isinstance(self.event(id, n), live_type)
        ]
        return found[place]

    def rewrite(self, id: str, number: int, event: Event, value: bytes | None = None) -> None:
        log = self.log(id)
        kept = log[number - 1]
        data = encode_event(event)
        after = replace(kept.event, data=data, value=kept.event.value if value is None else value)
        log[number - 1] = KeptEvent(event=after, token=kept.token)

    def set_value(self, id: str, number: int, value: bytes | None) -> None:
        log = self.log(id)
        kept = log[number - 1]
        log[number - 1] = KeptEvent(event=replace(kept.event, value=value), token=kept.token)

    def insert(self, id: str, number: int, event: Event, value: bytes | None = None) -> None:
        """Add an event so that it has this number; those behind it move up."""
        log = self.log(id)
        at = log[min(number, len(log)) - 1].event.at
        made = StoredEvent(number=number, at=at, data=encode_event(event), value=value)
        log.insert(number - 1, KeptEvent(event=made, token=None))
        for place in range(number, len(log)):
            moved = replace(log[place].event, number=place + 1)
            log[place] = KeptEvent(event=moved, token=log[place].token)
        self.change_run(id, number=len(log))

    def append(self, id: str, event: Event, value: bytes | None = None) -> None:
        self.insert(id, len(self.log(id)) + 1, event, value)

    def folded(self, id: str, number: int | None = None) -> RunState:
        state = RunState()
        for kept in self.log(id)[:number]:
            state = fold(state, decode_event(RunId(id), kept.event.number, kept.event.data))
        return state

    def set_snapshot(self, id: str, state: RunState) -> None:
        self.change_run(id, snapshot=snapshots.take(state))

    def spoil_snapshot(self, id: str) -> None:
        kept = self.run(id).snapshot
        assert kept is not None
        spoilt = Snapshot(number=kept.number, data=kept.data.replace(b'"jobs":', b'"jobs":1'))
        self.change_run(id, snapshot=spoilt)

    # Jobs and waits

    def jobs_of(self, id: str) -> list[StoredJob]:
        ids: Sequence[JobId] = self.state.of_run.ids((NAMESPACE, RunId(id)))
        return [self.state.jobs[each] for each in ids]

    def change_job(self, id: str, **changes: Any) -> None:
        job = self.state.jobs[JobId(id)]
        self.state.put(job.id, replace(job, **changes))

    def add_job_like(self, id: str, new_id: str, **changes: Any) -> None:
        job = replace(self.state.jobs[JobId(id)], id=JobId(new_id), **changes)
        self.state.put(job.id, job)

    def wait(self, id: str, key: str) -> StoredWait:
        found = self.records.wait(NAMESPACE, RunId(id), key)
        assert found is not None
        return found

    def change_wait(self, id: str, key: str, **changes: Any) -> None:
        wait = self.wait(id, key)
        self.records.put_wait(wait.place, replace(wait, **changes))

    def remove_wait(self, id: str, key: str) -> None:
        self.records.put_wait(self.wait(id, key).place, None)

    # The evidence log

    def began(self, *, run: str = "", key: str = "", job: str = "", place: int = 0) -> BodyBegan:
        found = [
            line
            for line in self.lines
            if isinstance(line, BodyBegan)
            and (line.run, line.key) == (run, key)
            and job in ("", line.job)
        ]
        return found[place]

    def end_seen(self, run: str, status: str) -> Line:
        return EndSeen(at=0, namespace=NAMESPACE, status=status, run=run)

    def change_line(self, line: Line, **changes: Any) -> None:
        self.lines[self.lines.index(line)] = replace(line, **changes)


def copied(store: Store) -> MemoryStore:
    """A place in memory of its own, with the same in it."""
    assert isinstance(store, MemoryStore)
    copy, source = MemoryStore("memory://"), store._session.state
    target = copy._session.state
    for id, job in source.jobs.items():
        target.put(id, job)
    target.records.definitions = dict(source.records.definitions)
    for place, run in source.records.runs.items():
        target.records.put_run(place, run)
        target.records.put_events(place, list(source.records.events[place]))
    for waits in source.records.waits.values():
        for wait in waits.values():
            target.records.put_wait(wait.place, wait)
    for owner, steps in source.records.steps.items():
        target.records.put_steps(owner, steps)
    for name, schedule in source.schedules.by_place.items():
        target.schedules.put(name, schedule)
    return copy


def rule_of(finding: Finding) -> str:
    """The rule that found it: codes are named ``verify.rule`` or ``verify.rule.case``."""
    return finding.code.split(".")[1]


Break = Callable[[Broken], None]
Case = tuple[Break, str, str]
"""What breaks something, the invariant that is broken, and the rule that finds it."""
