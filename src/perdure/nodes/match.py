"""The ``match`` node type: choose a port by conditions on the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from perdure.diagnostics import Fault, declare
from perdure.expr.budget import CostBudget
from perdure.expr.condition import (
    AllOf,
    AnyOf,
    Condition,
    condition_faults,
    condition_properties,
    holds,
    parse_condition,
)
from perdure.expr.path import nested
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, complete

YES, NO = "true", "false"

_FLAT = ("property", "operator", "value")

ONE_FORM = declare(
    "match.one_form",
    "needs either 'conditions', or 'property', 'operator' and 'value' of a single condition",
)


class Match(NodeType):
    """Continues on port ``true`` or ``false``, by conditions on properties of the inputs."""

    name = "match"
    ports = (YES, NO)

    class Config(NodeConfig):
        conditions: dict[str, Any] | list[Any] | None = None
        """One condition, or a list of them."""
        mode: Literal["all", "any"] = "all"
        """For a list: whether all conditions must be true, or any."""
        property: str | None = None
        """A single condition may be written without ``conditions``."""
        operator: str | None = None
        value: Any = msgspec.UNSET

    def execute(self, config: Config, ctx: Context) -> Complete:
        conditions = _given(msgspec.to_builtins(config))
        budget = CostBudget()
        condition = _condition(conditions, config.mode, budget=budget)
        is_met = holds(condition, nested(ctx.inputs), budget)
        return complete(is_met, YES if is_met else NO)

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        flat = [name for name in _FLAT if config.get(name) is not None]
        if (config.get("conditions") is None) != bool(flat):
            return [ONE_FORM.fault()]
        if isinstance(config.get("conditions"), str):
            return []
        found = condition_faults(_given(config), has_templates=True)
        return found if flat else [fault.under("conditions") for fault in found]

    def reads_of(self, config: Mapping[str, Any]) -> list[tuple[str, ...]]:
        if self.faults_of(config) or isinstance(config.get("conditions"), str):
            return []
        return list(condition_properties(_condition(_given(config), "all", is_raw=True)))


def _given(config: Mapping[str, Any]) -> Any:
    """The conditions, in either form."""
    if config.get("conditions") is not None:
        return config["conditions"]
    return {name: config[name] for name in _FLAT if name == "value" or config.get(name) is not None
            if name in config}  # fmt: skip


def _condition(
    conditions: Any, mode: str, *, is_raw: bool = False, budget: CostBudget | None = None
) -> Condition:
    found = parse_condition(conditions, has_templates=is_raw, budget=budget)
    if mode == "any" and isinstance(conditions, list) and isinstance(found, AllOf):
        return AnyOf(parts=found.parts)
    return found
