"""The ``match`` node type: choose a port by conditions on the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from perdure.diagnostics import Fault
from perdure.expr.condition import (
    AllOf,
    AnyOf,
    Condition,
    condition_faults,
    condition_properties,
    holds,
    parse_condition,
)
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, complete

YES, NO = "true", "false"


class Match(NodeType):
    """Continues on port ``true`` or ``false``, by conditions on properties of the inputs."""

    name = "match"
    ports = (YES, NO)

    class Config(NodeConfig):
        conditions: dict[str, Any] | list[Any]
        """One condition, or a list of them."""
        mode: Literal["all", "any"] = "all"
        """For a list: whether all conditions must be true, or any."""

    def execute(self, config: Config, ctx: Context) -> Complete:
        is_met = holds(_condition(config.conditions, config.mode), ctx.inputs)
        return complete(is_met, YES if is_met else NO)

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        conditions = config.get("conditions")
        if conditions is None or isinstance(conditions, str):
            return []
        found = condition_faults(conditions, has_templates=True)
        return [fault.under("conditions") for fault in found]

    def reads_of(self, config: Mapping[str, Any]) -> list[tuple[str, ...]]:
        if self.faults_of(config) or isinstance(config["conditions"], str):
            return []
        return list(condition_properties(_condition(config["conditions"], "all", is_raw=True)))


def _condition(conditions: Any, mode: str, *, is_raw: bool = False) -> Condition:
    found = parse_condition(conditions, has_templates=is_raw)
    if mode == "any" and isinstance(conditions, list) and isinstance(found, AllOf):
        return AnyOf(parts=found.parts)
    return found
