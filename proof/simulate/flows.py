"""Flows drawn from a seed, part by part, with the expected output of each part."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from perdure.flows.builder import Flow
from perdure.flows.built import BuiltFlow
from perdure.model.limit import Concurrency
from perdure.model.run import NodeStatus
from perdure.operations.records import NodeRecord
from proof.simulate.tasks import (
    Tasks,
    branch_of,
    is_enough,
    items_in,
    number_of,
    worked,
)

ITERATIONS_MAX = 4


class Unfinished(Exception):
    """The run did not reach, or complete, this node."""


class Wrong(Exception):
    """The recorded output contradicts the expected one."""


@dataclass(frozen=True)
class Reading:
    """The recorded outputs of one run."""

    nodes: Mapping[str, NodeRecord]

    def completed(self, id: str) -> NodeRecord:
        node = self.nodes.get(id)
        if node is None or node.status is not NodeStatus.COMPLETED:
            raise Unfinished(f"node {id!r} is {None if node is None else node.status}")
        return node

    def worked(self, id: str, number: int, value: Any) -> Any:
        """The output of a task, which must follow from its input."""
        node = self.completed(id)
        if not node.has_failed:
            compare_number(id, worked(number, value), node.output)
        return node.output


def compare(id: str, expected: Any, found: Any) -> None:
    if expected != found:
        raise Wrong(f"node {id!r} gave {found!r}, not {expected!r}")


def compare_number(id: str, expected: int, output: Any) -> None:
    compare(id, expected, output["n"] if isinstance(output, dict) else output)


class Part:
    """A sequence of nodes."""

    def add(self, flow: Flow, tasks: Tasks) -> None:
        raise NotImplementedError

    def follow(self, reading: Reading, value: Any) -> Any:
        """The expected output for an input."""
        raise NotImplementedError


Parts = Sequence[Part]


def built(parts: Parts, tasks: Tasks) -> Flow | None:
    """A branch; one without parts returns its input."""
    if not parts:
        return None
    flow = Flow()
    for part in parts:
        part.add(flow, tasks)
    return flow


def follow_all(parts: Parts, reading: Reading, value: Any) -> Any:
    for part in parts:
        value = part.follow(reading, value)
    return value


@dataclass(frozen=True)
class Work(Part):
    id: str
    number: int
    on_error: str = "fail"
    is_undone: bool = False

    def add(self, flow: Flow, tasks: Tasks) -> None:
        undo = tasks.undo if self.is_undone else None
        flow.then(tasks.work[self.number], name=self.id, on_error=self.on_error, undo=undo)

    def follow(self, reading: Reading, value: Any) -> Any:
        return reading.worked(self.id, self.number, value)


@dataclass(frozen=True)
class Seated(Part):
    """A node under a limit."""

    id: str

    def add(self, flow: Flow, tasks: Tasks) -> None:
        flow.then(tasks.seated, name=self.id)

    def follow(self, reading: Reading, value: Any) -> Any:
        return reading.worked(self.id, 12, value)


@dataclass(frozen=True)
class Fork(Part):
    id: str
    branches: Mapping[str, Parts]

    def add(self, flow: Flow, tasks: Tasks) -> None:
        flow.fork({name: built(parts, tasks) for name, parts in self.branches.items()})
        flow.join(tasks.work[0], name=self.id)

    def follow(self, reading: Reading, value: Any) -> Any:
        outputs = {name: follow_all(parts, reading, value) for name, parts in self.branches.items()}
        return reading.worked(self.id, 0, outputs)


@dataclass(frozen=True)
class Route(Part):
    id: str
    left: Parts
    right: Parts

    def add(self, flow: Flow, tasks: Tasks) -> None:
        branches = {"left": built(self.left, tasks), "right": built(self.right, tasks)}
        flow.route(tasks.key, branches, name=self.id)

    def follow(self, reading: Reading, value: Any) -> Any:
        node = reading.completed(self.id)
        compare(self.id, branch_of(value), node.port)
        return follow_all(self.left if node.port == "left" else self.right, reading, value)


@dataclass(frozen=True)
class Mapped(Part):
    id: str
    concurrency: int | None
    on_error: str = "fail"
    is_undone: bool = False

    def add(self, flow: Flow, tasks: Tasks) -> None:
        flow.then(tasks.spread, name=f"{self.id}_items")
        flow.map(
            tasks.work[1],
            name=self.id,
            concurrency=self.concurrency,
            on_error=self.on_error,
            undo=tasks.undo if self.is_undone else None,
        )

    def follow(self, reading: Reading, value: Any) -> Any:
        items = reading.completed(f"{self.id}_items").output
        compare(f"{self.id}_items", items_in(value), items)
        outputs = reading.completed(self.id).output
        compare(f"{self.id} (items)", len(items), len(outputs))
        for number, (item, output) in enumerate(zip(items, outputs, strict=True)):
            if output is not None or self.on_error == "fail":
                compare_number(f"{self.id}[{number}]", worked(1, item), output)
        return outputs


@dataclass(frozen=True)
class Loop(Part):
    id: str
    asks_a_task: bool

    def add(self, flow: Flow, tasks: Tasks) -> None:
        flow.loop(
            tasks.work[2],
            until=tasks.enough if self.asks_a_task else is_enough,
            max_iterations=ITERATIONS_MAX,
            on_max="continue",
            name=self.id,
        )

    def follow(self, reading: Reading, value: Any) -> Any:
        node = reading.completed(self.id)
        iterations = 0
        while iterations < ITERATIONS_MAX and not (iterations and is_enough(value)):
            value = {"n": worked(2, value)}
            iterations += 1
        compare(f"{self.id} (iterations)", iterations, node.iteration)
        compare_number(self.id, value["n"], node.output)
        return node.output


@dataclass(frozen=True)
class Delay(Part):
    id: str
    seconds: int

    def add(self, flow: Flow, tasks: Tasks) -> None:
        flow.delay(f"{self.seconds}s", name=self.id)

    def follow(self, reading: Reading, value: Any) -> Any:
        node = reading.completed(self.id)
        compare(self.id, number_of(value), number_of(node.output))
        return value


@dataclass(frozen=True)
class Signal(Part):
    id: str
    signal: str
    timeout: int | None
    partition: int | None
    """Only signals with this number are for it."""

    def add(self, flow: Flow, tasks: Tasks) -> None:
        where = {"property": "partition", "op": "eq", "value": self.partition}
        flow.wait_for_signal(
            self.signal,
            timeout=None if self.timeout is None else f"{self.timeout}s",
            on_timeout="continue" if self.timeout is not None else "fail",
            where=None if self.partition is None else where,
            name=self.id,
        )

    def follow(self, reading: Reading, value: Any) -> Any:
        output = reading.completed(self.id).output
        if output is None:
            compare(f"{self.id} (timeout)", self.timeout is not None, True)
        elif self.partition is not None:
            compare(f"{self.id} (partition)", self.partition, output["partition"])
        return output


@dataclass(frozen=True)
class Approval(Part):
    id: str
    deciders: tuple[str, ...]
    policy: str | int
    deadline: int | None
    notifies: bool

    def add(self, flow: Flow, tasks: Tasks) -> None:
        more: dict[str, Any] = {}
        if self.deadline is not None:
            more = {
                "deadline": f"{self.deadline}s",
                "on_timeout": "continue",
                "reminders": ["2s", "5s"],
            }
        flow.approve(
            f"May {self.id} continue?",
            name=self.id,
            deciders=self.deciders,
            policy=self.policy,
            on_reject="continue",
            notify=tasks.notify if self.notifies else None,
            **more,
        )

    def follow(self, reading: Reading, value: Any) -> Any:
        return reading.completed(self.id).output


@dataclass(frozen=True)
class External(Part):
    """A task that waits for a report."""

    id: str

    def add(self, flow: Flow, tasks: Tasks) -> None:
        flow.then(tasks.outside, name=self.id, on_timeout="continue")

    def follow(self, reading: Reading, value: Any) -> Any:
        return reading.completed(self.id).output


@dataclass(frozen=True)
class Child(Part):
    id: str
    flow: BuiltFlow
    on_error: str
    delay: str | None

    def add(self, flow: Flow, tasks: Tasks) -> None:
        flow.flow(self.flow, name=self.id, on_error=self.on_error, delay=self.delay)

    def follow(self, reading: Reading, value: Any) -> Any:
        return reading.completed(self.id).output


SIGNALS = ("go", "paid")
PEOPLE = ("ann", "bob", "eve")
DEPTH_MAX = 2

PART_TYPES = (
    "work",
    "work",
    "work",
    "fork",
    "route",
    "map",
    "loop",
    "delay",
    "signal",
    "approval",
    "outside",
    "seated",
    "child",
)


@dataclass(frozen=True)
class SimulatedFlow:
    """A flow, and its parts."""

    flow: BuiltFlow
    parts: Parts
    settings: dict[str, Any]

    @property
    def text(self) -> str:
        return self.flow.graph.text


class Drawing:
    """Draws the flows of one simulation."""

    def __init__(self, draw: random.Random, tasks: Tasks) -> None:
        self._draw = draw
        self._tasks = tasks
        self._ids = count()
        self._child: BuiltFlow | None = None

    def flows(self) -> list[SimulatedFlow]:
        child = self._flow("child", parts_max=2)
        self._child = child.flow
        names = ["flow-a", "flow-b", "flow-c"][: self._draw.randint(1, 3)]
        flows = [self._flow(name, parts_max=4) for name in names]
        later = [self._later(flow) for flow in flows if self._draw.random() < 0.5]
        return [child, *flows, *later]

    def _flow(self, name: str, parts_max: int) -> SimulatedFlow:
        parts = self._parts(parts_max, depth=0)
        if isinstance(parts[0], Fork | Route):  # their branches may pass on the earlier output
            parts.insert(0, Work(f"n{next(self._ids)}", 0))
        return self._built(
            name,
            parts,
            on_failure="finish" if self._draw.random() < 0.3 else "stop",
            cooldown="3s" if self._draw.random() < 0.1 else None,
            max_running=self._places(),
        )

    def _places(self) -> int | Concurrency | None:
        """Few enough that runs wait."""
        if self._draw.random() < 0.7:
            return None
        count = self._draw.randint(1, 3)
        return count if self._draw.random() < 0.5 else Concurrency(count, key="all")

    def _later(self, flow: SimulatedFlow) -> SimulatedFlow:
        """A newer version of a flow, with one more node at its end."""
        more = Work(f"n{next(self._ids)}", self._draw.randrange(3))
        return self._built(flow.flow.name, [*flow.parts, more], **flow.settings)

    def _built(self, name: str, parts: Parts, **settings: Any) -> SimulatedFlow:
        flow = Flow(name, **settings)
        for part in parts:
            part.add(flow, self._tasks)
        return SimulatedFlow(flow.build(), parts, settings)

    def _parts(self, most: int, depth: int) -> list[Part]:
        return [self._part(depth) for _ in range(self._draw.randint(1, most))]

    def _branch(self, depth: int) -> list[Part]:
        return [] if self._draw.random() < 0.15 else self._parts(2, depth + 1)

    def _part(self, depth: int) -> Part:
        draw, id = self._draw, f"n{next(self._ids)}"
        found_type = draw.choice(PART_TYPES)
        if depth >= DEPTH_MAX and found_type in ("fork", "route"):
            found_type = "work"
        match found_type:
            case "fork":
                names = ("x", "y", "z")[: draw.randint(2, 3)]
                return Fork(id, {name: self._branch(depth) for name in names})
            case "route":
                return Route(id, self._branch(depth), self._parts(1, depth + 1))
            case "map":
                return Mapped(
                    id,
                    draw.choice((None, 1, 2)),
                    draw.choice(("fail", "continue")),
                    draw.random() < 0.4,
                )
            case "loop":
                return Loop(id, draw.random() < 0.5)
            case "delay":
                return Delay(id, draw.randint(1, 8))
            case "signal":
                timeout, partition = draw.choice((None, 6)), draw.choice((None, None, 1))
                return Signal(id, draw.choice(SIGNALS), timeout, partition)
            case "approval":
                deciders = PEOPLE[: draw.randint(0, 3)]
                policy: str | int = draw.choice(("any", "all")) if deciders else "any"
                if len(deciders) == len(PEOPLE):  # otherwise differing answers decide nothing
                    policy = draw.choice(("any", "all", 2))
                deadline, notifies = draw.choice((None, 10)), draw.random() < 0.3
                return Approval(id, deciders, policy, deadline, notifies)
            case "outside":
                return External(id)
            case "seated":
                return Seated(id)
            case "child" if self._child is not None:
                on_error, delay = draw.choice(("fail", "continue")), draw.choice((None, None, "2s"))
                return Child(id, self._child, on_error, delay)
        return Work(
            id, draw.randrange(3), draw.choice(("fail", "fail", "continue")), draw.random() < 0.4
        )
