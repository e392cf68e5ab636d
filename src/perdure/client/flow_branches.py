"""Where a flow divides: forks with their joins, and routes. Branches may divide again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.client.flow_assembly import Assembly, Cursor, End
from perdure.client.flow_calls import key_function
from perdure.client.flow_options import AnyTask, Function, RouteOptions, TaskOptions
from perdure.client.flow_settings import check_options, on_error
from perdure.client.flow_steps import (
    Named,
    Step,
    Steps,
    ThenStep,
    id_of,
    id_or,
    inline,
    one_entry,
    task_node,
)
from perdure.model import check
from perdure.model.flow import BuiltFlow
from perdure.model.graph import DEFAULT_PORT, Call, RouteNode
from perdure.rules.graph_check import nearest

Part = AnyTask | BuiltFlow | Steps
Branch = Part | Sequence[Part] | None
"""A task, a built flow (a child), a flow that is not built (its nodes), a list of those; or None
to go straight on."""

RouteKey = str | int | bool


@dataclass(frozen=True, slots=True)
class ForkStep(Step):
    branches: Mapping[Any, Branch]

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        entry, _ = assembly.entry(cursor, None, place)
        if not self.branches:
            assembly.fault(place, "a fork needs at least one branch: .fork(a=task, b=[task, task])")
        ends: dict[str, Cursor] = {}
        for name in sorted(self.branches, key=str):
            where = f"{place}, branch {name!r}"
            branch = self.branches[name]
            if not isinstance(name, str) or not name:
                assembly.fault(where, "the name of a branch must be a text")
            elif branch is None and not entry.ends:
                assembly.fault(where, "nothing comes before the fork whose output it could hand on")
            else:
                ends[name] = add_branch(assembly, entry, branch, where)
        every = tuple(end for each in ends.values() for end in each.ends)
        return Cursor(ends=every, branches=ends, fork=place)


@dataclass(frozen=True, slots=True)
class JoinStep(Step):
    body: AnyTask | Function | BuiltFlow
    name: str | None
    options: TaskOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_of(assembly, self.name, self.body, place)
        label = assembly.label(id)
        if isinstance(self.body, BuiltFlow):
            assembly.fault(label, "a child flow cannot join; join with a task, and then .flow(...)")
        if not cursor.branches:
            assembly.fault(label, "it joins nothing: a .join(...) follows a .fork(...)")
        for name, branch in cursor.branches.items():
            if branch.fork:
                assembly.fault(label, f"branch {name!r} ends in a fork ({branch.fork}) of its own")
        ends = tuple(
            End(end.source, end.port, name)
            for name, branch in cursor.branches.items()
            for end in branch.ends
        )
        node = task_node(assembly, id, self.body, self.options, gathers=bool(ends))
        return assembly.add(node, Cursor(ends=ends), gathers=node.gathers)


@dataclass(frozen=True, slots=True)
class RouteStep(Step):
    key: AnyTask | Function | str
    branches: Mapping[Any, Branch]
    default: Branch
    named: Named
    keys: Sequence[RouteKey] | None
    options: RouteOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_or(assembly, self.named.name, "route", place)
        label = assembly.label(id)
        branches = self._by_port(assembly, label)
        self._check_keys(assembly, label, branches)
        check_options(assembly, label, self.options, RouteOptions)
        node = RouteNode(
            id=id,
            call=self._call(assembly, id, label),
            ports=tuple(branches),
            on_error=on_error(assembly, label, self.options),
            key=self.key if isinstance(self.key, str) else "",
        )
        assembly.add(node, one_entry(assembly, id, cursor, self.named.after))
        ends: list[End] = []
        fork = ""
        for port, branch in branches.items():
            entry = Cursor(ends=(End(id, port),))
            after = add_branch(assembly, entry, branch, f"{place}, branch {port!r}")
            ends.extend(after.ends)
            fork = fork or after.fork
        return Cursor(ends=tuple(ends), fork=fork)

    def _by_port(self, assembly: Assembly, label: str) -> dict[str, Branch]:
        """The branches by their ports, in an order that is not that of their telling."""
        found: dict[str, Branch] = {}
        told: Any = self.branches
        if not isinstance(told, Mapping):
            assembly.fault(label, f"branches={told!r} must be an object: {{key: branch}}")
            return found
        for key, branch in told.items():
            port = port_of(key)
            if port is None:
                assembly.fault(label, f"the key {key!r} of a branch must be a text or whole number")
            elif port in found:
                assembly.fault(label, f"two branches have the key {port!r}")
            else:
                found[port] = branch
        if self.default is not None:
            if DEFAULT_PORT in found:
                assembly.fault(label, f"the branch {DEFAULT_PORT!r} and default= are the same")
            found[DEFAULT_PORT] = self.default
        return {port: found[port] for port in sorted(found, key=lambda p: (p == DEFAULT_PORT, p))}

    def _check_keys(self, assembly: Assembly, label: str, branches: Mapping[str, Branch]) -> None:
        if self.keys is None:
            return
        keys = assembly.attempt(label, lambda: check.listed(self.keys, "keys", "keys"), None)
        if keys is None:
            return
        declared = {port_of(key) for key in keys}
        for port in sorted(str(port) for port in declared.difference(branches)):
            if DEFAULT_PORT not in branches:
                assembly.fault(label, f"no branch for the declared key {port!r}, and no default=")
        for port in branches:
            if port not in declared and port != DEFAULT_PORT:
                near = nearest(port, [str(each) for each in declared])
                assembly.fault(label, f"branch {port!r} is for no declared key{near}")

    def _call(self, assembly: Assembly, id: str, label: str) -> Call:
        key, name = self.key, id
        if isinstance(key, str):
            # So a worker that has two versions of a flow has the function of each.
            key, name = key_function(key), f"{id}:{key}"
        return assembly.call(key, name, self.options, f"{label}, key")


def port_of(key: Any) -> str | None:
    """The port that a key leads to, as the engine reads what a key function returns."""
    if isinstance(key, bool):
        return str(key).lower()
    return str(key) if isinstance(key, str | int) else None


def add_branch(assembly: Assembly, cursor: Cursor, branch: Any, place: str) -> Cursor:
    """Add the nodes of a branch behind ``cursor``; where it ends."""
    if branch is None:
        return cursor
    if isinstance(branch, Steps):
        return inline(branch, assembly, cursor, place)
    if not isinstance(branch, Sequence):
        return _add_part(assembly, cursor, branch, place)
    if isinstance(branch, str) or not branch:
        assembly.fault(place, f"{branch!r} is no branch: give tasks, flows or a list of them")
    else:
        for number, part in enumerate(branch, 1):
            cursor = _add_part(assembly, cursor, part, f"{place}, item {number}")
    return cursor


def _add_part(assembly: Assembly, cursor: Cursor, part: Any, place: str) -> Cursor:
    if not isinstance(part, Steps | BuiltFlow) and not callable(part):
        assembly.fault(place, f"{part!r} is neither a task nor a flow")
        return cursor
    return ThenStep(part, Named(None, None), None, {}).add(assembly, cursor, place)
