"""The ``check`` node type: validate a value with a JSON Schema or a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput
from perdure.expr.budget import CostBudget
from perdure.expr.condition import (
    condition_faults,
    condition_properties,
    explain_failure,
    parse_condition,
)
from perdure.expr.path import nested
from perdure.forms.schema import by_field, check_schema, faults_of
from perdure.nodes.config import has_template
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, complete

PASS, FAIL = "pass", "fail"

SCHEMA_OR_CONDITION = declare("check.schema_or_condition", "needs either 'schema' or 'condition'")


class Check(NodeType):
    """Continues on port ``pass`` or ``fail``; the output lists what is wrong with the value."""

    name = "check"
    ports = (PASS, FAIL)

    class Config(NodeConfig):
        value: Any = msgspec.UNSET
        """The value to check; all inputs of the node by default."""
        schema: dict[str, Any] | bool | None = None
        condition: dict[str, Any] | list[Any] | None = None
        """Its properties are paths into the value."""

        def __post_init__(self) -> None:
            if (self.schema is None) == (self.condition is None):
                raise InvalidInput(SCHEMA_OR_CONDITION.fault())

    def execute(self, config: Config, ctx: Context) -> Complete:
        value = nested(ctx.inputs) if config.value is msgspec.UNSET else config.value
        if config.schema is not None:
            if broken := check_schema(config.schema):
                raise InvalidInput(broken[0].under("schema"))
            faults = by_field(faults_of(config.schema, value))
        else:
            budget = CostBudget()
            condition = parse_condition(config.condition, budget=budget)
            unmet = explain_failure(condition, value, budget)
            faults = {"": [unmet]} if unmet else {}
        return complete({"passed": not faults, "faults": faults}, FAIL if faults else PASS)

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        schema, condition = config.get("schema"), config.get("condition")
        if (schema is None) == (condition is None):
            return [SCHEMA_OR_CONDITION.fault()]
        if schema is not None:
            broken = [] if has_template(schema) else check_schema(schema)
            return [fault.under("schema") for fault in broken]
        if isinstance(condition, str):
            return []
        found = condition_faults(condition, has_templates=True)
        return [fault.under("condition") for fault in found]

    def reads_of(self, config: Mapping[str, Any]) -> list[tuple[str, ...]]:
        condition = config.get("condition")
        if "value" in config or self.faults_of(config):
            return []
        if not isinstance(condition, list | dict):
            return [()]
        return list(condition_properties(parse_condition(condition, has_templates=True)))
