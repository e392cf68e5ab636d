"""The workings of a decision: events as they come about, and what they lead to.

A node starts when all edges that lead to it are decided and at least one was taken; it is skipped
when none was. How many are decided is counted as they are, so a decision looks at what changed and
at nothing else, however large the graph is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from perdure.errors import ValueMissing
from perdure.model.event import NOTHING, Arrival, Event, Then
from perdure.model.failure import Failure
from perdure.model.graph import (
    Call,
    DelayNode,
    Edge,
    FlowNode,
    FlowRef,
    Graph,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import (
    MapState,
    NewWait,
    NodeStatus,
    RunState,
    WaitKind,
)
from perdure.model.value import Value
from perdure.rules.fold import fold
from perdure.rules.readiness import Counts, Standing

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


class StartChild(Value):
    """A run to start for a key."""

    key: Key
    id: RunId
    flow: FlowRef
    input: bytes


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

    def __init__(self, node: str, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.failure = Failure(type="perdure.errors.InvalidInput", message=message)


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


class Deciding:
    """Collects one decision about one run; ``state`` is always what its events add up to."""

    def __init__(self, graph: Graph, run: RunId, state: RunState, values: Values) -> None:
        self.graph = graph
        self.run = run
        self.state = state
        self.decision = Decision()
        self.instant: list[tuple[str, int]] = []
        """Waits for a signal that is there already: node and the event it came with."""
        self.full: list[str] = []
        """Maps that have been started with no item left to do."""
        self.unusable: list[Unusable] = []
        """Nodes that were reached with an input they cannot take."""
        self._values = values
        self._fresh: dict[int, bytes] = {}
        self._ending: tuple[str, str, int] | None = None
        """The node that the event to come completes, its port, and the event of its output."""
        self._taken: set[int] = set()

    @property
    def next_number(self) -> int:
        return self.state.number + 1

    def emit(self, event: Event, value: bytes | None = None) -> None:
        self.state = fold(self.state, event)
        self.decision.events.append((event, value))
        if value is not None:
            self._fresh[self.state.number] = value
        self._ending = None

    def json(self, number: int) -> bytes:
        """The value of an event, old or new."""
        fresh = self._fresh.get(number)
        return self._values.json(number) if fresh is None else fresh

    def json_of(self, numbers: Iterable[int]) -> list[msgspec.Raw]:
        """The values of several events; asks for all that are not at hand at once."""
        found: list[msgspec.Raw] = []
        missing: list[int] = []
        for number in numbers:
            try:
                found.append(msgspec.Raw(self.json(number)))
            except ValueMissing as error:
                missing.extend(error.numbers)
        if missing:
            raise ValueMissing(tuple(missing))
        return found

    def provide(self, value: bytes) -> None:
        """Let the value of the event to come be used before it is emitted."""
        self._fresh[self.next_number] = value

    def give_up(self) -> None:
        """Everything that is live ends here, and so does what this decision was to start."""
        decision = self.decision
        decision.clears = True
        for planned in (decision.schedules, decision.waits, decision.closes, decision.drops):
            planned.clear()
        decision.children.clear()

    # What follows when a node ends

    def after_end(self, node: str, port: str, value: bytes | None, ref: int = 0) -> Following:
        """What follows when ``node`` ends on ``port``, with the value of the event to come."""
        following = Following()
        if not self.graph.outgoing[node]:
            return following
        if value is not None:
            self.provide(value)
        self._ending = (node, port, ref or self.next_number)
        for ready in self._decide_edges(following, node, port):
            self.start(following, ready)
        return following

    def after_block(self, node: str) -> Following:
        """What follows when ``node`` failed and others are to be finished."""
        following = Following()
        for ready in self._decide_edges(following, node, None):
            self.start(following, ready)
        return following

    def after_recount(self, standing: Standing) -> Following:
        """What follows for the nodes that are not reached, when they were counted anew."""
        following = Following()
        following.arrived = dict(standing.arrived)
        following.skipped = list(standing.skipped)
        following.blocked = list(standing.blocked)
        for ready in standing.ready:
            self.start(following, ready)
        return following

    def _decide_edges(self, following: Following, node: str, port: str | None) -> list[str]:
        """Decide the edges that leave a node; the nodes that are ready by it.

        ``port`` None: it failed, and nothing behind it can run.
        """
        ready: list[str] = []
        ended: list[tuple[str, str | None, bool]] = [(node, port, port is None)]
        while ended:
            source, taken, is_blocked = ended.pop()
            for edge in self.graph.outgoing[source]:
                is_active = taken is not None and edge.port == taken
                counts = self._arrive(following, edge.target, is_active, is_blocked)
                if counts is None:
                    continue
                if counts[2]:
                    following.blocked.append(edge.target)
                    ended.append((edge.target, None, True))
                elif counts[1]:
                    ready.append(edge.target)
                else:
                    following.skipped.append(edge.target)
                    ended.append((edge.target, None, False))
        return ready

    def _arrive(
        self, following: Following, target: str, is_active: bool, is_blocked: bool
    ) -> Counts | None:
        """Count one more decided edge; the counts once all of the target's are."""
        degree = len(self.graph.incoming[target])
        if degree == 1:
            return 1, is_active, is_blocked
        known = following.arrived.get(target) or self.state.arrived.get(target) or (0, 0, 0)
        counts = (known[0] + 1, known[1] + is_active, known[2] + is_blocked)
        if counts[0] < degree:
            following.arrived[target] = counts
            return None
        following.arrived.pop(target, None)
        return counts

    # How nodes start

    def start(self, following: Following, id: str) -> None:
        try:
            self._start(following, self.graph.nodes[id])
        except Unusable as error:
            self.unusable.append(error)
            following.waiting.append(id)

    def _start(self, following: Following, node: Node) -> None:
        match node:
            case TaskNode() | RouteNode():
                self.schedule(following, Key(node=node.id), node.call, self.input_of(node.id))
            case MapNode():
                items = _items(node, self.input_of(node.id))
                following.mapped.append((node.id, len(items)))
                launched = min(len(items), node.concurrency or len(items))
                self._launch(following, node, items, range(launched))
            case LoopNode():
                self.call(
                    following, Key(node=node.id, iteration=1), node.body, self.input_of(node.id)
                )
            case FlowNode():
                self.call(following, Key(node=node.id), node.body, self.input_of(node.id))
            case DelayNode():
                self._wait(following, node.id, WaitKind.TIMER, "", node.delay_ms)
            case SignalNode():
                if unread := self.unread(node.signal):
                    following.waiting.append(node.id)
                    self.instant.append((node.id, self.take(unread[0])))
                else:
                    self._wait(following, node.id, WaitKind.SIGNAL, node.signal, node.timeout_ms)

    def resume(self, following: Following, id: str) -> None:
        """Start a node again where it stood, keeping what it has done."""
        node, state = self.graph.nodes[id], self.state.nodes[id]
        if isinstance(node, MapNode) and (progress := self.state.maps.get(id)) is not None:
            left = [item for item in range(progress.launched) if item not in progress.refs]
            self._launch(following, node, _items(node, self.input_of(id)), left)
        elif isinstance(node, LoopNode) and state.part == "check":
            self.check(following, node, state.iteration, self.json(state.ref))
        elif isinstance(node, LoopNode) and state.iteration > 1:
            key = Key(node=id, iteration=state.iteration)
            self.call(following, key, node.body, self.json(state.ref))
        else:
            self.start(following, id)

    def launch_next(self, following: Following, node: MapNode, item: int) -> None:
        """Start one more item of a map that is under way."""
        # Its input is in the log by now. Remembered earlier, what a decision read that then came
        # to nothing could be mistaken for it.
        lists = self._values.lists
        if node.id not in lists:
            lists[node.id] = _items(node, self.input_of(node.id))
        self._launch(following, node, lists[node.id], [item])

    def forget_items(self, id: str) -> None:
        self._values.lists.pop(id, None)

    def _launch(
        self, following: Following, node: MapNode, items: list[bytes], which: Sequence[int]
    ) -> None:
        for item in which:
            self.call(following, Key(node=node.id, item=item), node.body, items[item])
        if not which:
            following.waiting.append(node.id)
            self.full.append(node.id)

    def call(self, following: Following, key: Key, body: Call | FlowRef, input: bytes) -> None:
        """Start a job, or a child run, for a key."""
        if isinstance(body, Call):
            self.schedule(following, key, body, input)
            return
        child = RunId(f"{self.run}/{key.text}")
        if key.text in self.state.children:  # started anew by a retry
            child = RunId(f"{self.run}/{key.text}~{self.next_number}")
        following.children.append((key.text, child))
        self.decision.children.append(StartChild(key=key, id=child, flow=body, input=input))
        self.decision.waits.append(NewWait(key=key.text, kind=WaitKind.CHILD, name=child))

    def check(self, following: Following, node: LoopNode, iteration: int, output: bytes) -> None:
        """Ask whether a loop is done."""
        key = Key(node=node.id, iteration=iteration, part="check")
        self.schedule(following, key, node.check, output)

    def schedule(self, following: Following, key: Key, call: Call, input: bytes) -> None:
        following.started.append(key.text)
        self.decision.schedules.append(Schedule(key=key, call=call, input=input))

    def _wait(
        self, following: Following, id: str, kind: WaitKind, name: str, delay_ms: int | None
    ) -> None:
        following.waiting.append(id)
        delay = None if delay_ms is None else timedelta(milliseconds=delay_ms)
        self.decision.waits.append(NewWait(key=id, kind=kind, name=name, delay=delay))

    # Signals

    def unread(self, signal: str) -> list[int]:
        """The signals of a name that nobody takes, oldest first."""
        return [number for number in self.state.mail.get(signal, ()) if number not in self._taken]

    def take(self, number: int) -> int:
        """Keep a signal from being taken twice before the event that takes it is emitted."""
        self._taken.add(number)
        return number

    # Inputs and outputs

    def input_of(self, id: str) -> bytes:
        """The input of a node whose incoming edges are all decided."""
        node = self.graph.nodes[id]
        if not isinstance(node, TaskNode) or not node.gathers:
            return self.json(self.input_ref(id))
        taken = [
            (edge.name or edge.source, ref)
            for edge in self.graph.incoming[id]
            if (ref := self._ref_along(edge)) is not None
        ]
        return self._object(taken)

    def input_ref(self, id: str) -> int:
        """The event whose value is the one input of a node that does not gather several."""
        edges = self.graph.incoming[id]
        if not edges:
            return 1
        for edge in edges:
            ref = self._ref_along(edge)
            if ref is not None:
                return ref
        raise AssertionError(f"node {id!r} was started though no edge to it was taken")

    def gathered_items(self, progress: MapState) -> bytes:
        """The outputs of all items in their order."""
        refs = progress.refs
        return msgspec.json.encode(self.json_of(refs[n] for n in range(progress.count)))

    def result(self) -> tuple[int, bytes | None]:
        """The run's output: that of the one node at its end, or of several by name."""
        reached = [
            (id, node.ref)
            for id in self.graph.ends
            if (node := self.state.nodes.get(id)) is not None
            and node.status is NodeStatus.COMPLETED
            and not any(edge.port == node.port for edge in self.graph.outgoing[id])
        ]
        if self.graph.definition.gathers:
            return 0, self._object(reached)
        if not reached:
            return 0, NULL
        return reached[0][1], None

    def _object(self, refs: list[tuple[str, int]]) -> bytes:
        values = self.json_of(ref for _, ref in refs)
        return msgspec.json.encode(dict(zip((name for name, _ in refs), values, strict=True)))

    def _ref_along(self, edge: Edge) -> int | None:
        """The event whose value an edge hands on, if the edge was taken."""
        ending = self._ending
        if ending is not None and ending[0] == edge.source:
            return ending[2] if ending[1] == edge.port else None
        node = self.state.nodes.get(edge.source)
        if node is None or node.status is not NodeStatus.COMPLETED or node.port != edge.port:
            return None
        return node.ref


def _items(node: MapNode, input: bytes) -> list[bytes]:
    place = f"map {node.id!r}"
    found: bytes = input
    if node.over is not None:
        try:
            fields = msgspec.json.decode(input, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            raise Unusable(
                node.id, f"{place}: its input is no object, so it has no {node.over!r}"
            ) from None
        if node.over not in fields:
            known = ", ".join(map(repr, fields)) or "none at all"
            raise Unusable(node.id, f"{place}: its input has no key {node.over!r}; it has {known}")
        found = bytes(fields[node.over])
    try:
        return [bytes(item) for item in msgspec.json.decode(found, type=list[msgspec.Raw])]
    except msgspec.ValidationError:
        what = "its input" if node.over is None else f"{node.over!r} of its input"
        raise Unusable(node.id, f"{place}: {what} must be a list") from None
