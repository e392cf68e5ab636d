"""The validator behind forms: jsonschema's, without a network and with a bound on its work.

jsonschema by itself would fetch what a schema refers to, match patterns that never end, and follow
references that double at every turn. Here nothing is fetched, every keyword counts against a
budget, and patterns, formats and uniqueness are checked by code that has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from perdure.errors import PerdureError
from perdure.model.payload import to_json
from perdure.model.showing import cut
from perdure.rules.form_formats import FORMATS
from perdure.rules.pattern import is_found, search_cost
from perdure.rules.sameness import is_number, is_same

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    Errors = Iterator[ValidationError]
    Keyword = Callable[[Any, Any, Any, Any], Any]

CHECKS_MAX = 250_000
"""How many checks one value may take, each element of a keyword and some text counting as one."""

NESTING_MAX = 120
"""How many keywords deep a check may go. Well before Python's own bound, on which the libraries
below jsonschema do not raise an error but panic."""

_CHARACTERS_PER_CHECK = 50
_CHECKS_PER_REFERENCE = 10


class TooMuchWork(PerdureError):
    """More checks than ``CHECKS_MAX``, or deeper than ``NESTING_MAX``."""


class _Budget:
    def __init__(self) -> None:
        self._left = CHECKS_MAX
        self._nesting = 0

    def spend(self, checks: int) -> None:
        self._left -= checks
        if self._left < 0:
            raise TooMuchWork(f"more than {CHECKS_MAX} checks")

    def go_deeper(self) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise TooMuchWork(f"nested deeper than {NESTING_MAX}")

    def come_back(self) -> None:
        self._nesting -= 1


_budget: ContextVar[_Budget] = ContextVar("checks that are left")


def validator_of(schema: Any) -> Validator:
    from referencing import Registry

    # An empty registry finds nothing outside the schema; the default one asks the network.
    return _validator_class()(schema, registry=Registry())


@cache
def schema_validator() -> Validator:
    """Checks schemas themselves, by the one that comes with jsonschema and can be trusted."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(Draft202012Validator.META_SCHEMA)


def errors_of(validator: Validator, data: Any, errors_max: int) -> list[ValidationError]:
    """What does not fit; ``TooMuchWork`` or ``RecursionError`` if that cannot be said."""
    token = _budget.set(_Budget())
    try:
        return list(islice(validator.iter_errors(data), errors_max))
    finally:
        _budget.reset(token)


@cache
def _validator_class() -> type[Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    keywords: dict[str, Keyword] = {**Draft202012Validator.VALIDATORS, **_OWN_KEYWORDS}
    costs = {"$ref": _CHECKS_PER_REFERENCE}
    counted = {name: _counted(keyword, costs.get(name, 1)) for name, keyword in keywords.items()}
    made: type[Validator] = extend(Draft202012Validator, counted)  # type: ignore[no-untyped-call]
    return made


def _counted(keyword: Keyword, cost: int) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        budget = _budget.get()
        budget.spend(cost + (len(value) if isinstance(value, list | dict) else 0))
        budget.go_deeper()
        try:
            for error in keyword(validator, value, instance, schema) or ():
                # jsonschema writes the whole instance into its message.
                budget.spend(len(error.message) // _CHARACTERS_PER_CHECK)
                yield error
        finally:
            budget.come_back()

    return check


def _matches(pattern: str, text: Any) -> bool:
    if not isinstance(text, str):
        return False
    _budget.get().spend(search_cost(pattern, text))
    return is_found(pattern, text)


def _error(
    message: str, *, field: str | None = None, context: Sequence[ValidationError] = ()
) -> ValidationError:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message, path=() if field is None else (field,), context=context)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Errors:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield _error("does not match")


def _properties(validator: Any, properties: Any, instance: Any, schema: Any) -> Errors:
    for key, subschema in properties.items() if isinstance(instance, dict) else ():
        if key in instance:
            yield from _inside(validator, instance, key, subschema)


def _inside(validator: Any, instance: Any, key: Any, subschema: Any) -> Errors:
    """jsonschema does not tell the field where nothing at all may be given."""
    if subschema is False:
        yield _error("must not be given", field=str(key))
    else:
        yield from validator.descend(instance[key], subschema, path=key, schema_path=key)


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Errors:
    for pattern, subschema in patterns.items() if isinstance(instance, dict) else ():
        for key in instance:
            if _matches(pattern, key):
                yield from _inside(validator, instance, key, subschema)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Errors:
    named = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for key, value in instance.items() if isinstance(instance, dict) else ():
        if key in named or any(_matches(pattern, key) for pattern in patterns):
            continue
        if allowed is False:
            yield _error("is not a field of this form", field=str(key))
        else:
            yield from validator.descend(value, allowed, path=key)


def _required(validator: Any, names: Any, instance: Any, schema: Any) -> Errors:
    for name in names if isinstance(instance, dict) else ():
        if name not in instance:
            yield _error("is required", field=name)


def _dependent_required(validator: Any, needs: Any, instance: Any, schema: Any) -> Errors:
    for name, others in needs.items() if isinstance(instance, dict) else ():
        for other in others if name in instance else ():
            if other not in instance:
                yield _error(f"is required where {cut(name)!r} is given", field=other)


def _property_names(validator: Any, subschema: Any, instance: Any, schema: Any) -> Errors:
    for name in instance if isinstance(instance, dict) else ():
        context = list(validator.descend(name, subschema))
        if context:
            yield _error("has a field of an unfit name", context=context)


def _unique_items(validator: Any, is_wanted: Any, instance: Any, schema: Any) -> Errors:
    if not is_wanted or not isinstance(instance, list):
        return
    # By their JSON, since comparing each with each other takes for ever on a long list.
    if len({_canonical(element) for element in instance}) < len(instance):
        yield _error("has an element twice")


def _canonical(value: Any) -> bytes:
    return to_json(_with_plain_numbers(value), "an element", 2**63, is_input=True)


def _with_plain_numbers(value: Any) -> Any:
    """1.0 as 1, since they are the same and their JSON is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_plain_numbers(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_with_plain_numbers(inside) for inside in value]
    return value


def _multiple_of(validator: Any, unit: Any, instance: Any, schema: Any) -> Errors:
    # As decimals, the way they are written: 19.99 is a multiple of 0.01, as floats it is not.
    if is_number(instance) and (_decimal(instance) / _decimal(unit)).denominator != 1:
        yield _error("is not a multiple")


def _decimal(number: int | float) -> Fraction:
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _enum(validator: Any, values: Any, instance: Any, schema: Any) -> Errors:
    if not any(is_same(value, instance) for value in values):
        yield _error("is not one of the values")


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    if not is_same(value, instance):
        yield _error("is not the value")


def _format(validator: Any, name: Any, instance: Any, schema: Any) -> Errors:
    """Formats that are not known are only remarks, as JSON Schema has it."""
    fits = FORMATS.get(name)
    if fits is not None and isinstance(instance, str) and not fits(instance):
        yield _error("does not have the format")


_OWN_KEYWORDS: dict[str, Keyword] = {
    "properties": _properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "required": _required,
    "dependentRequired": _dependent_required,
    "propertyNames": _property_names,
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
    "enum": _enum,
    "const": _const,
    "format": _format,
}
