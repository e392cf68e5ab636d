"""Where a flow repeats work: for each item of a list, or until it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.client.flow_assembly import Assembly, Cursor
from perdure.client.flow_calls import condition_function, key_function, truth_of
from perdure.client.flow_options import AnyTask, Function, NodeOptions
from perdure.client.flow_settings import (
    checked_port,
    data,
    on_error,
    told_inputs,
    undo_call,
    whole,
)
from perdure.client.flow_steps import Body, Named, Step, body_of, id_of, one_entry
from perdure.model import check
from perdure.model.graph import Call, LoopNode, MapNode
from perdure.model.payload import to_json
from perdure.model.task import Task
from perdure.rules.condition import condition_faults

Until = AnyTask | Function | str | Mapping[str, Any] | Sequence[Any]
"""What tells that a loop is done: asks about its output, reads a key of it, or is a condition."""


@dataclass(frozen=True, slots=True)
class MapStep(Step):
    body: Body
    named: Named
    over: str | None
    concurrency: int | None
    options: NodeOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_of(assembly, self.named.name, self.body, place)
        label = assembly.label(id)
        if self.over is not None:
            assembly.attempt(label, lambda: check.name(self.over, "over"), "")
        inputs = told_inputs(assembly, id, self.options)
        node = MapNode(
            id=id,
            body=body_of(assembly, id, self.body, self.options),
            over=self.over,
            concurrency=whole(assembly, label, "concurrency", self.concurrency),
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
            on_missing=inputs.on_missing,
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))


@dataclass(frozen=True, slots=True)
class LoopStep(Step):
    body: Body
    named: Named
    until: Until
    max_iterations: int | None
    on_max: str
    options: NodeOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_of(assembly, self.named.name, self.body, place)
        label = assembly.label(id)
        most = whole(assembly, label, "max_iterations", self.max_iterations)
        if most is None:
            assembly.fault(label, "max_iterations=None must be a whole number: no loop is endless")
        inputs = told_inputs(assembly, id, self.options)
        until: Any = self.until
        is_data = isinstance(until, str | Mapping | list | tuple)
        if is_data:
            until = data(assembly, label, "until", until)
        node = LoopNode(
            id=id,
            body=body_of(assembly, id, self.body, self.options),
            check=_check(assembly, id, until),
            until=until if is_data else None,
            iterations_max=1 if most is None else most,
            on_max=checked_port(assembly, label, "on_max", self.on_max),
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
            on_missing=inputs.on_missing,
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))


def _check(assembly: Assembly, id: str, until: Any) -> Call:
    """What is asked about each output. What it is made from is part of its name.

    So a worker that has two versions of a flow has the function of each.
    """
    name = f"{id}.until"
    if isinstance(until, str):
        until, name = key_function(until), f"{name}:{until}"
    elif isinstance(until, dict | list):
        is_sound = not condition_faults(until)  # else that is for the check of the graph to say
        until, name = condition_function(until if is_sound else []), f"{name}:{_digest(until)}"
    if callable(until) and not isinstance(until, Task):
        until = truth_of(until)
    return assembly.call(until, name, {}, f"{assembly.label(id)}, until=")


def _digest(condition: Any) -> str:
    return hashlib.sha256(to_json(condition, "until", is_input=True)).hexdigest()[:8]
