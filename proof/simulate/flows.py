"""Flows drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count
from typing import Any

from perdure.client.flow import Flow
from perdure.model.flow import BuiltFlow
from proof.simulate.parts import (
    Approval,
    Child,
    Delay,
    Fork,
    Loop,
    Mapped,
    Outside,
    Part,
    Parts,
    Route,
    Seated,
    Signal,
    Work,
)
from proof.simulate.tasks import Tasks

SIGNALS = ("go", "paid")
PEOPLE = ("ann", "bob", "eve")
DEPTH_MAX = 2

KINDS = (
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
    """A flow, and what it is made of."""

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
        if isinstance(parts[0], Fork | Route):  # whose branches may hand on what came before
            parts.insert(0, Work(f"n{next(self._ids)}", 0))
        return self._built(
            name,
            parts,
            on_failure="finish" if self._draw.random() < 0.3 else "stop",
            cooldown="3s" if self._draw.random() < 0.1 else None,
        )

    def _later(self, flow: SimulatedFlow) -> SimulatedFlow:
        """Another version of a flow, with one thing more to do at its end."""
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
        kind = draw.choice(KINDS)
        if depth >= DEPTH_MAX and kind in ("fork", "route"):
            kind = "work"
        match kind:
            case "fork":
                names = ("x", "y", "z")[: draw.randint(2, 3)]
                return Fork(id, {name: self._branch(depth) for name in names})
            case "route":
                return Route(id, self._branch(depth), self._parts(1, depth + 1))
            case "map":
                return Mapped(id, draw.choice((None, 1, 2)), draw.choice(("fail", "continue")))
            case "loop":
                return Loop(id, draw.random() < 0.5)
            case "delay":
                return Delay(id, draw.randint(1, 8))
            case "signal":
                timeout, lane = draw.choice((None, 6)), draw.choice((None, None, 1))
                return Signal(id, draw.choice(SIGNALS), timeout, lane)
            case "approval":
                deciders = PEOPLE[: draw.randint(0, 3)]
                policy: str | int = draw.choice(("any", "all")) if deciders else "any"
                if len(deciders) == len(PEOPLE):  # else answers that differ decide nothing
                    policy = draw.choice(("any", "all", 2))
                deadline, notifies = draw.choice((None, 10)), draw.random() < 0.3
                return Approval(id, deciders, policy, deadline, notifies)
            case "outside":
                return Outside(id)
            case "seated":
                return Seated(id)
            case "child" if self._child is not None:
                return Child(id, self._child, draw.choice(("fail", "continue")))
        return Work(
            id, draw.randrange(3), draw.choice(("fail", "fail", "continue")), draw.random() < 0.4
        )
