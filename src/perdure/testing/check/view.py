"""One run as the rules see it: everything that is kept of it, read at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from perdure.model.event import StoredEvent
from perdure.model.graph import Graph
from perdure.model.job import Job
from perdure.model.run import Run, RunState, Snapshot, Wait
from perdure.testing.check.finding import Finding
from perdure.testing.check.redeciding import LogValues, Redecided, Redeciding
from perdure.testing.check.replay import Replay
from perdure.testing.check.settings import CheckSettings
from perdure.testing.check.testimony import Testimony


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
        self.lacks_definition = False
        self.now = run.updated_at
        self.grace: timedelta | None = None
        """How late things may be; None: nobody is there who could be late."""
        self.jobs: list[Job] | None = None
        """None: the run has ended, kept changing while it was read, or cannot be folded."""
        self.waits: list[Wait] = []
        self.lanes: Mapping[str, str] | None = None
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
        """How much later it is than what may be; None if it is not."""
        if self.grace is None or due_at is None or self.now - due_at <= self.grace:
            return None
        return self.now - due_at

    def value_of(self, event: StoredEvent) -> bytes:
        """The JSON that is kept with an event, or nothing."""
        if event.value is None:
            return b""
        return self.settings.codec.decode(event.value)
