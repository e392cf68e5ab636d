"""A decision while it is made: what is to be written, and what follows from an event."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from perdure.diagnostics import Fault
from perdure.engine.failures import failure_of
from perdure.engine.readiness import Counts
from perdure.model.event import NOTHING, Arrival, Event, Then
from perdure.model.graph import Call, FlowRef
from perdure.model.ids import Key, RunId
from perdure.model.run import NewWait
from perdure.model.value import Value

NULL = b"null"


class Values(Protocol):
    """The values of a run's events, as JSON."""

    lists: dict[str, list[bytes]]
    """Items of live maps by node, remembered so that a long list is not read again for each."""

    def json(self, number: int) -> bytes:
        """The value kept with an event; raises ``ValueMissing`` if it has to be read first."""


class Schedule(Value):
    """A job to insert."""

    key: Key
    call: Call
    input: bytes
    resumption: bytes | None = None
    """A ``model.report.Resumption``, if its body paused before or another try came some way."""


class StartChild(Value):
    """A run to start for a key."""

    key: Key
    id: RunId
    flow: FlowRef
    input: bytes


class Skips(Exception):
    """A node lacks an input, and says that it rather does not run then."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class Decision:
    """Events, and what is to be written with them."""

    __slots__ = (
        "children",
        "clears",
        "closes",
        "drops",
        "events",
        "holds",
        "schedules",
        "version",
        "waits",
    )

    def __init__(self) -> None:
        self.events: list[tuple[Event, bytes | None]] = []
        self.schedules: list[Schedule] = []
        self.waits: list[NewWait] = []
        self.closes: list[str] = []
        self.drops: list[str] = []
        """Keys that are given up: their jobs are taken away, their children cancelled."""
        self.children: list[StartChild] = []
        self.clears = False
        """Everything that is live is given up, but for what this decision starts."""
        self.holds: bool | None = None
        self.version: str | None = None


class Unusable(Exception):
    """An input does not fit the node that it is for; ``failure`` is what the node fails with."""

    def __init__(self, node: str, fault: Fault) -> None:
        super().__init__(fault)
        self.node = node
        self.failure = failure_of(fault)


class Following:
    """What follows from one event, while it is put together."""

    __slots__ = ("arrived", "blocked", "children", "mapped", "skipped", "started", "waiting")

    def __init__(self) -> None:
        self.started: list[str] = []
        self.waiting: list[str] = []
        self.children: list[tuple[str, RunId]] = []
        self.mapped: list[tuple[str, int]] = []
        self.skipped: list[str] = []
        self.blocked: list[str] = []
        self.arrived: dict[str, Counts] = {}

    def then(self) -> Then:
        rest = self.waiting or self.children or self.mapped or self.skipped or self.blocked
        if not rest and not self.arrived:  # as nearly always
            return Then(started=tuple(self.started)) if self.started else NOTHING
        return Then(
            started=tuple(self.started),
            waiting=tuple(self.waiting),
            children=tuple(self.children),
            mapped=tuple(self.mapped),
            skipped=tuple(self.skipped),
            blocked=tuple(self.blocked),
            arrived=tuple(
                Arrival(node=node, decided=counts[0], active=counts[1], blocked=counts[2])
                for node, counts in self.arrived.items()
            ),
        )


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)
