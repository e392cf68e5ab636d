"""One run as the rules see it: everything that is kept of it, read at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec

from perdure.model.event import StoredEvent
from perdure.model.graph import Graph
from perdure.model.ids import JobId
from perdure.model.job import Job
from perdure.model.run import Run, RunState, Snapshot, Wait
from perdure.verify.finding import Finding
from perdure.verify.inside.reads import JobDetails
from perdure.verify.redecide import LogValues, Redecided, Redeciding
from perdure.verify.replay import Replay
from perdure.verify.settings import CheckSettings
from perdure.verify.testimony import Testimony


class RunView:
    """What a rule about one run may look at."""

    def __init__(
        self,
        run: Run,
        events: list[StoredEvent],
        replay: Replay,
        settings: CheckSettings,
        testimony: Testimony,
    ) -> None:
        self.run = run
        self.events = events
        self.replay = replay
        self.settings = settings
        self.testimony = testimony
        self.snapshot: Snapshot | None = None
        self.tail: list[StoredEvent] = []
        """Events after the snapshot, as they are loaded with it."""
        self.graphs: dict[str, Graph] = {}
        """By version, those that the run has had."""
        self.definition_faults: dict[str, str] = {}
        """By version, why its definition cannot be used."""
        self.now = run.updated_at
        self.grace: timedelta | None = None
        """How late things may be; None: nobody is there who could be late."""
        self.jobs: list[Job] | None = None
        """None: the run has ended, kept changing while it was read, or cannot be folded."""
        self.waits: list[Wait] = []
        self.details: Mapping[JobId, JobDetails] | None = None
        """Of its jobs, as they are stored; None where the store does not tell."""
        self.held: frozenset[str] | None = None
        """Keys of waits that are kept from becoming due; None where the store does not tell."""
        self.children: dict[str, Run | None] = {}
        """Runs that it waits for."""
        self.parent: Run | None = None
        self.awaited_by_parent = True
        """Whether its parent has a wait for it."""

    @property
    def state(self) -> RunState:
        return self.replay.state

    @cached_property
    def redecided(self) -> Redecided:
        """Its log decided anew; to be asked once everything else is known."""
        values = LogValues(self.events, self.settings.codec)
        return Redeciding(self.run.id, self.replay, self.graphs, values).redecided()

    def finding(self, invariant: str, rule: str, text: str, *numbers: int, **place: Any) -> Finding:
        return Finding(
            invariant=invariant,
            rule=rule,
            text=text,
            namespace=self.run.namespace,
            run=self.run.id,
            numbers=numbers,
            **place,
        )

    def late_by(self, due_at: datetime | None) -> timedelta | None:
        return late_by(due_at, self.now, self.grace)

    def value_of(self, event: StoredEvent) -> bytes:
        """The JSON that is kept with an event, or nothing."""
        return decoded(event.value, self.settings)


def late_by(due_at: datetime | None, now: datetime, grace: timedelta | None) -> timedelta | None:
    """How much later it is than what may be; None if it is not, or nobody could be late."""
    if grace is None or due_at is None or now - due_at <= grace:
        return None
    return now - due_at


def decoded(value: bytes | None, settings: CheckSettings) -> bytes:
    """A stored value as JSON; nothing where there is none, or the codec cannot tell."""
    try:
        return b"" if value is None else settings.codec.decode(value)
    except Exception:  # of whatever codec it is
        return b""


def is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
