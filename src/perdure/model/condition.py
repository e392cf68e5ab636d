"""Conditions on properties: what ``match``, ``switch``, ``check`` and filters of signals ask."""

from __future__ import annotations

from typing import Any, Literal

from perdure.model.value import Value

Operator = Literal["eq", "ne", "lt", "le", "gt", "ge", "in", "contains", "exists", "matches"]


class Comparison(Value, tag="comparison"):
    """One property compared with one value."""

    property: tuple[str, ...]
    op: Operator
    value: Any = None


class AllOf(Value, tag="all"):
    """Holds if every part does, and so does one without parts."""

    parts: tuple[Condition, ...]


class AnyOf(Value, tag="any"):
    """Holds if at least one part does, so one without parts never does."""

    parts: tuple[Condition, ...]


class Negation(Value, tag="not"):
    part: Condition


Condition = Comparison | AllOf | AnyOf | Negation
