"""Nodes of kinds: those that come with it, by name, and those of an application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.client.flow_assembly import Assembly, Cursor
from perdure.client.flow_inputs import Inputs
from perdure.client.flow_options import KindOptions
from perdure.client.flow_settings import (
    check_options,
    config_told,
    on_error,
    task_settings,
    told_inputs,
    undo_call,
)
from perdure.client.flow_steps import Named, Step, id_or
from perdure.diagnostics import declare, render
from perdure.errors import FaultText, InvalidInput
from perdure.model.graph import TaskNode
from perdure.model.path import path_text
from perdure.nodes.config import config_faults
from perdure.nodes.kind import Kind
from perdure.nodes.registry import STRUCTURAL, Kinds

AnyKind = Kind | type[Kind] | str
"""A kind, its class, or the name of one that comes with it."""

STRUCTURAL_KIND = declare(
    "flow.structural_kind",
    "kind {kind!r} cannot be added with .use()",
    "It has a method of its own",
)


@dataclass(frozen=True, slots=True)
class UseStep(Step):
    kind: AnyKind
    config: Any
    named: Named
    gathers: bool | None
    options: KindOptions
    is_start: bool = False
    """Without ``after`` it is a first node, and does not follow the cursor."""

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        if self.is_start and self.named.after is None:
            cursor = Cursor()
        kind = assembly.attempt(place, self._kind, None)
        name = kind.name if kind is not None else "unnamed"
        id = id_or(assembly, self.named.name, name, place)
        entry, is_several = assembly.entry(cursor, self.named.after, assembly.label(id))
        gathers = is_several if self.gathers is None else self.gathers
        node = self._node(assembly, id, kind or _UNKNOWN, gathers)
        return assembly.add(node, entry, gathers=node.gathers)

    def _kind(self) -> Kind:
        if isinstance(self.kind, str):
            if self.kind in STRUCTURAL:
                raise InvalidInput(STRUCTURAL_KIND.fault(kind=self.kind))
            return Kinds()[self.kind]
        return Kinds([self.kind])[self.kind.name]

    def _node(self, assembly: Assembly, id: str, kind: Kind, gathers: bool) -> TaskNode:
        label = assembly.label(id)
        check_options(assembly, label, self.options, KindOptions)
        inputs = told_inputs(assembly, id, self.options)
        config = config_told(assembly, label, self.config) or {}
        faults = [] if kind is _UNKNOWN else config_faults(kind, config)
        for fault in faults:
            place = f" {path_text(fault.where)!r}" if fault.where else ""
            text = f"config{place}: {render(fault)}"
            assembly.fault(label, FaultText(text, fault.under("config")))
        settings = task_settings(assembly, label, self.options)
        if faults:
            assembly.unread(id, inputs.names)
        else:
            settings["ports"] = (*kind.ports_of(config), *settings["ports"])
            assembly.reads(id, _read(kind, config, inputs))
        return TaskNode(
            id=id,
            call=assembly.call(kind, id, self.options, label),
            gathers=gathers and not inputs.references,
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
            kind=kind.name,
            config=config,
            on_missing=inputs.on_missing,
            **settings,
        )


def _read(kind: Kind, config: Any, inputs: Inputs) -> set[str]:
    paths = kind.reads_of(config)
    everything = set(inputs.names) if () in paths else set()
    return everything | {path[0] for path in paths if path}


class _Unknown(Kind):
    """Stands in for a kind that there is not, while other faults are looked for."""

    name = "unknown"

    def execute(self, config: Any, ctx: Any) -> None: ...


_UNKNOWN = _Unknown()
