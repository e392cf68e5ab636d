"""Conditions on JSON values, for nodes and signal filters. Evaluation is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, assert_never, get_args

from perdure.diagnostics import Code, Fault, declare, near
from perdure.errors import InvalidInput
from perdure.expr.budget import CostBudget
from perdure.expr.path import MISSING, Path, parse_path, path_text, value_at
from perdure.expr.pattern import TEXT_MAX, is_found, pattern_fault
from perdure.model.text import json_preview, preview, type_name
from perdure.model.value import Value

Operator = Literal["eq", "ne", "lt", "le", "gt", "ge", "in", "contains", "exists", "matches"]


class Comparison(Value, tag="comparison"):
    """Compares one property with one value."""

    property: tuple[str, ...]
    op: Operator
    value: Any = None


class AllOf(Value, tag="all"):
    """True if all parts are; true without parts."""

    parts: tuple[Condition, ...]


class AnyOf(Value, tag="any"):
    """True if at least one part is; false without parts."""

    parts: tuple[Condition, ...]


class Negation(Value, tag="not"):
    part: Condition


Condition = Comparison | AllOf | AnyOf | Negation


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(one: Any, other: Any, spend: Callable[[int], None] = lambda cost: None) -> bool:
    # An explicit stack: hostile values may exceed Python's recursion limit.
    pairs = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        spend(1)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            spend(len(one))
            if one.keys() != other.keys():
                return False
            pairs += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
            if len(one) != len(other):
                return False
            spend(len(one))
            pairs += zip(one, other, strict=True)
        elif isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True


CONDITIONS_MAX = 1_000
DEPTH_MAX = 100
"""The nesting of lists and objects of conditions."""
OPERATORS: tuple[str, ...] = get_args(Operator)

NOT_A_CONDITION = declare("condition.type", "must be an object or a list, not {found}")
TOO_MUCH = declare(
    "condition.too_much", "has more than {most} conditions, or is nested over {deepest} deep"
)
JOIN_NOT_ALONE = declare(
    "condition.join_not_alone", "{join!r} must be the only key; there are also {others}"
)
NOT_A_LIST = declare("condition.not_a_list", "must be a list, not {found}")
UNKNOWN_FIELD = declare(
    "condition.unknown_field",
    "has no field {field!r}[; did you mean {nearest:or}?][; {allowed}]",
)
NEEDS_OPERATOR = declare("condition.needs_operator", "needs 'op', one of {known}")
UNKNOWN_OPERATOR = declare(
    "condition.unknown_operator",
    "{found} is not an operator[; did you mean {nearest:or}?][; known: {known}]",
)
NEEDS_PROPERTY = declare("condition.needs_property", "needs 'property', a path such as order.total")
NOT_A_PATH = declare("condition.not_a_path", "must be a path such as order.total, not {found}")
NEEDS_VALUE = declare("condition.needs_value", "{op!r} needs 'value'")
WRONG_VALUE = declare("condition.value", "must be {expected} for {op!r}, not {found}")

ALIASES: dict[str, str] = {
    "equals": "eq",
    "not_equals": "ne",
    "neq": "ne",
    "less_than": "lt",
    "lte": "le",
    "greater_than": "gt",
    "gte": "ge",
    "not_contains": "contains",
}
"""Operators of other systems, and ours."""
NEGATED = frozenset({"not_contains"})
"""Those that are the opposite of ours."""

_FIELDS = ("property", "op", "value")
_FIELD_ALIASES = {"field": "property", "operator": "op"}
_JOINS = ("all", "any", "not")
_CHARACTERS_PER_UNIT = 500
_SIGNS = {"eq": "=", "ne": "≠", "lt": "<", "le": "≤", "gt": ">", "ge": "≥"}


def parse_condition(
    data: Any, *, has_templates: bool = False, budget: CostBudget | None = None
) -> Condition:
    """Parse a condition; raise ``InvalidInput`` with all faults.

    Building its patterns is charged to the ``budget``, which the evaluation should share.

    ``has_templates`` skips the type check of values with templates, which are not rendered yet.
    Parse it again after rendering: a value of the wrong type is then a fault, while a property of
    the wrong type only makes the condition false.
    """
    reading = _ConditionReader(has_templates=has_templates, budget=budget)
    condition = reading.condition(data, ())
    if reading.faults:
        raise InvalidInput(*reading.faults)
    return condition


def condition_faults(data: Any, *, has_templates: bool = False) -> list[Fault]:
    """All faults of a condition, with their paths."""
    reading = _ConditionReader(has_templates=has_templates)
    try:
        reading.condition(data, ())
    except InvalidInput as error:  # its patterns cost too much to build
        return [*reading.faults, *error.faults]
    return reading.faults


def condition_data(condition: Condition) -> dict[str, Any]:
    """The condition as data; the inverse of ``parse_condition``."""
    match condition:
        case Comparison():
            data = {"property": ".".join(condition.property), "op": condition.op}
            return {**data, "value": condition.value}
        case AllOf():
            return {"all": [condition_data(part) for part in condition.parts]}
        case AnyOf():
            return {"any": [condition_data(part) for part in condition.parts]}
        case Negation():
            return {"not": condition_data(condition.part)}
        case _:
            assert_never(condition)


def condition_properties(condition: Condition) -> Iterator[tuple[str, ...]]:
    """The paths of all properties in the condition."""
    match condition:
        case Comparison():
            yield condition.property
        case AllOf() | AnyOf():
            for part in condition.parts:
                yield from condition_properties(part)
        case Negation():
            yield from condition_properties(condition.part)
        case _:
            assert_never(condition)


def holds(condition: Condition, scope: Mapping[str, Any], budget: CostBudget | None = None) -> bool:
    """Whether the condition holds; raises ``InvalidInput`` if that costs too much to find out.

    A ``budget`` is shared by several evaluations.
    """
    budget = budget or CostBudget()
    match condition:
        case Comparison():
            return _compare(condition, value_at(scope, condition.property), budget)
        case AllOf():
            return all(holds(part, scope, budget) for part in condition.parts)
        case AnyOf():
            return any(holds(part, scope, budget) for part in condition.parts)
        case Negation():
            return not holds(condition.part, scope, budget)
        case _:
            assert_never(condition)


def explain_failure(
    condition: Condition, scope: Mapping[str, Any], budget: CostBudget | None = None
) -> str:
    """The first unmet part of the condition, with the actual value; empty if it holds.

    Costs as much as ``holds``: every part is evaluated once, and explained only if that is needed.
    """
    explain = _failure(condition, scope, budget or CostBudget())
    return "" if explain is None else explain()


def _failure(
    condition: Condition, scope: Mapping[str, Any], budget: CostBudget
) -> Callable[[], str] | None:
    match condition:
        case Comparison():
            actual = value_at(scope, condition.property)
            is_met = _compare(condition, actual, budget)
            return None if is_met else lambda: _explain(condition, actual)
        case AllOf():
            failures = (_failure(part, scope, budget) for part in condition.parts)
            return next(filter(None, failures), None)
        case AnyOf(parts=()):
            return lambda: "there are no conditions, and at least one must hold"
        case AnyOf():
            first: Callable[[], str] | None = None
            for part in condition.parts:
                failure = _failure(part, scope, budget)
                if failure is None:
                    return None
                first = first or failure
            assert first is not None
            explain, others = first, len(condition.parts) - 1
            return lambda: f"{explain()}, and none of {others} others hold" if others else explain()
        case Negation():
            if not holds(condition.part, scope, budget):
                return None
            return lambda: f"must not hold: {_statement(condition.part)}"
        case _:
            assert_never(condition)


def _compare(comparison: Comparison, actual: Any, budget: CostBudget) -> bool:
    wanted = comparison.value
    length = sum(len(each) for each in (actual, wanted) if isinstance(each, str))
    budget.spend(1 + len(comparison.property) + length // _CHARACTERS_PER_UNIT)
    if comparison.op == "exists":
        return (actual is not MISSING) is (wanted is not False)
    if actual is MISSING:
        return comparison.op == "ne"
    match comparison.op:
        case "eq":
            return is_same(actual, wanted, budget.spend)
        case "ne":
            return not is_same(actual, wanted, budget.spend)
        case "lt":
            return _are_ordered(actual, wanted) and bool(actual < wanted)
        case "le":
            return _are_ordered(actual, wanted) and bool(actual <= wanted)
        case "gt":
            return _are_ordered(actual, wanted) and bool(actual > wanted)
        case "ge":
            return _are_ordered(actual, wanted) and bool(actual >= wanted)
        case "in":
            return isinstance(wanted, list | tuple) and _has(wanted, actual, budget)
        case "contains":
            return _contains(actual, wanted, budget)
        case "matches":
            is_text = isinstance(actual, str) and isinstance(wanted, str)
            return is_text and is_found(wanted, actual, budget)
        case _:
            assert_never(comparison.op)


def _are_ordered(one: Any, other: Any) -> bool:
    if isinstance(one, str):
        return isinstance(other, str)
    return is_number(one) and is_number(other)


def _has(elements: list[Any] | tuple[Any, ...], wanted: Any, budget: CostBudget) -> bool:
    return any(is_same(element, wanted, budget.spend) for element in elements)


def _contains(actual: Any, wanted: Any, budget: CostBudget) -> bool:
    if isinstance(actual, list | tuple):
        return _has(actual, wanted, budget)
    if isinstance(actual, str | Mapping):
        return isinstance(wanted, str) and wanted in actual
    return False


def _explain(comparison: Comparison, actual: Any) -> str:
    statement = _statement(comparison)
    if actual is MISSING:
        return f"{statement} is expected, but there is no such property"
    if comparison.op == "exists":
        return f"{statement} is expected, but it exists"
    if comparison.op == "matches" and isinstance(actual, str) and len(actual) > TEXT_MAX:
        return f"{statement} is expected, but it has more than {TEXT_MAX} characters"
    return f"{statement} is expected, but it is {json_preview(actual)}"


def _statement(condition: Condition) -> str:
    match condition:
        case Comparison(op="exists"):
            is_wanted = condition.value is not False
            return f"{path_text(condition.property)} {'exists' if is_wanted else 'is absent'}"
        case Comparison():
            sign = _SIGNS.get(condition.op, condition.op)
            return f"{path_text(condition.property)} {sign} {json_preview(condition.value)}"
        case AllOf() | AnyOf():
            word = "all" if isinstance(condition, AllOf) else "any"
            return f"{word} of {len(condition.parts)} conditions"
        case Negation():
            return f"not ({_statement(condition.part)})"
        case _:
            assert_never(condition)


class _ConditionReader:
    """Parses a condition and collects its faults; invalid parts become conditions never true."""

    def __init__(self, *, has_templates: bool, budget: CostBudget | None = None) -> None:
        self.faults: list[Fault] = []
        self._budget = budget or CostBudget()
        self._has_templates = has_templates
        self._left = CONDITIONS_MAX

    def condition(self, data: Any, where: Path) -> Condition:
        self._left -= 1
        if self._left < 0 or len(where) > DEPTH_MAX:
            return self._too_much()
        if isinstance(data, list | tuple):
            return AllOf(parts=self._parts(data, where))
        if not isinstance(data, Mapping):
            return self._refuse(NOT_A_CONDITION, where, found=type_name(data))
        joins = [key for key in _JOINS if key in data]
        return self._joined(data, joins, where) if joins else self._comparison(data, where)

    def _too_much(self) -> Condition:
        if any(fault.code == TOO_MUCH.name for fault in self.faults):
            return AnyOf(parts=())
        return self._refuse(TOO_MUCH, (), most=CONDITIONS_MAX, deepest=DEPTH_MAX)

    def _joined(self, data: Mapping[Any, Any], joins: list[str], where: Path) -> Condition:
        [join, *_] = joins
        if len(data) > 1:
            others = ", ".join(preview(repr(key)) for key in list(data)[:5] if key != join)
            return self._refuse(JOIN_NOT_ALONE, where, join=join, others=others)
        inside = data[join]
        if join == "not":
            return Negation(part=self.condition(inside, (*where, join)))
        if not isinstance(inside, list | tuple):
            return self._refuse(NOT_A_LIST, (*where, join), found=type_name(inside))
        parts = self._parts(inside, (*where, join))
        return AllOf(parts=parts) if join == "all" else AnyOf(parts=parts)

    def _parts(self, data: list[Any] | tuple[Any, ...], where: Path) -> tuple[Condition, ...]:
        some = data[: CONDITIONS_MAX + 1]
        return tuple(self.condition(part, (*where, at)) for at, part in enumerate(some))

    def _comparison(self, data: Mapping[Any, Any], where: Path) -> Condition:
        names = {_FIELD_ALIASES.get(key, key): key for key in data}
        for key in data:
            if key not in _FIELDS and (key not in _FIELD_ALIASES or _FIELD_ALIASES[key] in data):
                field = preview(str(key))
                nearest = near(field, [*_FIELDS, *_JOINS], 1)
                allowed = "" if nearest else _ALLOWED
                self._refuse(UNKNOWN_FIELD, where, field=field, nearest=nearest, allowed=allowed)
        path = self._property(data.get(names.get("property"), MISSING), where)
        op = data.get(names.get("op"), MISSING)
        if op is MISSING:
            return self._refuse(NEEDS_OPERATOR, where, known=_OPERATORS_TEXT)
        is_negated = isinstance(op, str) and op in NEGATED
        op = ALIASES.get(op, op) if isinstance(op, str) else op
        if not isinstance(op, str) or op not in OPERATORS:
            nearest = near(op, OPERATORS, 1) if isinstance(op, str) and len(op) < 40 else ()
            known = "" if nearest else _OPERATORS_TEXT
            place = (*where, names["op"])
            return self._refuse(
                UNKNOWN_OPERATOR, place, found=json_preview(op), nearest=nearest, known=known
            )
        value = self._value(op, data.get("value", MISSING), (*where, "value"))
        found = Comparison(property=path, op=_OPERATOR[op], value=value)
        return Negation(part=found) if is_negated else found

    def _property(self, given: Any, where: Path) -> tuple[str, ...]:
        if given is MISSING:
            self._refuse(NEEDS_PROPERTY, where)
        elif not isinstance(given, str):
            self._refuse(NOT_A_PATH, (*where, "property"), found=type_name(given))
        else:
            try:
                return parse_path(given)
            except InvalidInput as error:
                self.faults += (fault.under(*where, "property") for fault in error.faults)
        return ()

    def _value(self, op: str, value: Any, where: Path) -> Any:
        if op == "exists" and value is MISSING:
            return True
        if value is MISSING:
            self._refuse(NEEDS_VALUE, where[:-1], op=op)
        elif not (self._has_templates and isinstance(value, str) and "{{" in value):
            fault = _value_fault(op, value, self._budget)
            if fault is not None:
                self.faults.append(fault.under(*where))
        return value

    def _refuse(self, code: Code, where: Path, **args: Any) -> Condition:
        self.faults.append(code.fault(where, **args))
        return AnyOf(parts=())


_OPERATOR: dict[str, Operator] = {name: name for name in get_args(Operator)}
_OPERATORS_TEXT = ", ".join(OPERATORS)
_ALLOWED = "it takes property, op and value, or one of all, any and not"


def _value_fault(op: str, value: Any, budget: CostBudget) -> Fault | None:
    match op:
        case "exists" if not isinstance(value, bool):
            expected = "true or false"
        case "in" if not isinstance(value, list | tuple):
            expected = "a list"
        case "lt" | "le" | "gt" | "ge" if not (is_number(value) or isinstance(value, str)):
            expected = "a number or a string"
        case "matches" if not isinstance(value, str):
            expected = "a pattern"
        case "matches":
            return pattern_fault(value, budget)
        case _:
            return None
    return WRONG_VALUE.fault(expected=expected, op=op, found=type_name(value))
