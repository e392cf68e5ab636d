"""JSON Schema forms: defaults filled in, every fault found, within a budget.

jsonschema by itself would fetch what a schema refers to, match patterns that never end, and follow
references that double at every turn. Here nothing is fetched, every keyword counts against a
budget, and patterns, formats and uniqueness are checked by code that has a bound. jsonschema is
imported when the first form is checked: it takes longer than all of Perdure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from fractions import Fraction
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from perdure.diagnostics import Fault, declare, render
from perdure.errors import InvalidInput, PerdureError, fault_text
from perdure.expr.condition import is_number, is_same
from perdure.expr.path import Path, path_text
from perdure.expr.pattern import is_found, pattern_fault, search_cost
from perdure.forms.formats import FORMATS
from perdure.model.payload import from_json, to_json
from perdure.model.text import cut, shown, type_name
from perdure.model.value import Value

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    Errors = Iterator[ValidationError]
    Keyword = Callable[[Any, Any, Any, Any], Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_MAX_BYTES = 65_536
SCHEMA_DEPTH_MAX = 100
SUBSCHEMAS_MAX = 1_000
FAULTS_MAX = 100
"""How many faults of one value are told."""
DEFAULTS_MAX = 10_000
"""How many defaults are filled into one value."""
CHECKS_MAX = 250_000
"""How many checks one value may take, each element of a keyword and some text counting as one."""

NESTING_MAX = 120
"""How many keywords deep a check may go. Well before Python's own bound, on which the libraries
below jsonschema do not raise an error but panic."""

# Faults of data

FORBIDDEN = declare("form.forbidden", "must not be given")
WRONG_TYPE = declare("form.type", "must be {expected}")
NOT_IN_ENUM = declare("form.enum", "is not one of {listed}")
NOT_CONST = declare("form.const", "must be {expected}")
WRONG_FORMAT = declare("form.format", "must be {expected}")
EMPTY = declare("form.empty", "must not be empty")
REQUIRED = declare("form.required", "is required")
DEPENDENT_REQUIRED = declare("form.dependent_required", "is required where {field!r} is given")
UNKNOWN_FIELD = declare("form.unknown_field", "is not a field of this form")
PROPERTY_NAMES = declare("form.property_names", "has a field {field}, whose name {reason}")
NO_ALTERNATIVE = declare("form.any_of", "fits none of the ways to give it: {ways}")
SEVERAL_ALTERNATIVES = declare(
    "form.one_of", "fits more than one of the ways to give it; exactly one is wanted"
)
PATTERN = declare("form.pattern", "must match {pattern}")
OTHER_KEYWORD = declare("form.keyword", "{message}")
INVALID_FORM = declare(
    "form.invalid", "cannot be checked, since the form itself is wrong: {reason}"
)
TOO_MUCH_WORK = declare(
    "form.too_much_work",
    "takes too much work to check: the form or the value is too large, or nested too deep",
)
NOT_JSON_VALUE = declare("form.not_checkable", "cannot be checked: {reason}")
TOO_MANY_DEFAULTS = declare(
    "form.too_many_defaults", "the form has more than {most} defaults to fill in"
)

# Faults of schemas

NOT_A_SCHEMA = declare("schema.not_an_object", "a schema is an object, not {found}")
TOO_DEEP = declare("schema.too_deep", "is nested deeper than {most} levels")
TOO_MANY_SCHEMAS = declare("schema.too_many", "is made of more than {most} schemas")
REFUSED_KEYWORD = declare("schema.refused_keyword", "{keyword} cannot be used in a form; {instead}")
BROKEN_REFERENCE = declare(
    "schema.broken_reference",
    "$ref {reference!r} leads nowhere: it may be '#', or '#/$defs/NAME' with a NAME that is "
    "defined under $defs in this schema",
)
ONLY_AT_TOP = declare("schema.only_at_top", "{keyword} may stand only at the top")
UNKNOWN_DIALECT = declare(
    "schema.unknown_dialect", "$schema {dialect} is not known; leave it out, or use {known}"
)
UNUSABLE_PATTERN = declare("schema.pattern", "{pattern!r} {reason}")


def check_schema(schema: Any) -> list[Fault]:
    """What is wrong with the schema itself, each fault with its place in it."""
    try:
        data = _schema_json(schema)
    except InvalidInput as error:
        return list(error.faults)
    return list(_compiled(data).faults)


def faults_of(schema: Any, data: Any) -> list[Fault]:
    """What is wrong with the data, each fault with the path of its field.

    Empty if it fits. Nothing fits a schema that is wrong itself.
    """
    if own := check_schema(schema):
        return [INVALID_FORM.fault(reason=fault_text(own[0]))]
    return _without_repeats(_faults(_compiled(_schema_json(schema)).validator, data))


def by_field(faults: Iterable[Fault]) -> dict[str, list[str]]:
    """The reasons by the path of the field; "" stands for the whole."""
    found: dict[str, list[str]] = {}
    for fault in faults:
        found.setdefault(path_text(fault.where), []).append(render(fault))
    return found


def with_defaults(schema: Any, data: Any) -> Any:
    """The data with each property that is absent and has a ``default`` filled in.

    Also inside properties and elements that are there, or that a default has just put there.
    Nothing else is created, nothing is changed in place, and the data is not checked.
    """
    return _Defaults(schema).into(data, schema, 0)


class _Defaults:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = DEFAULTS_MAX

    def into(self, data: Any, schema: Any, depth: int) -> Any:
        if depth > SCHEMA_DEPTH_MAX or not isinstance(schema, Mapping):
            return data
        schema = self._resolved(schema)
        if isinstance(data, Mapping) and isinstance(schema.get("properties"), Mapping):
            return self._filled(data, schema["properties"], depth)
        if isinstance(data, list | tuple) and isinstance(schema.get("items"), Mapping):
            return [self.into(element, schema["items"], depth + 1) for element in data]
        return data

    def _filled(
        self, data: Mapping[str, Any], properties: Mapping[str, Any], depth: int
    ) -> dict[str, Any]:
        filled = dict(data)
        for name, schema in properties.items():
            if name not in filled and isinstance(schema, Mapping):
                schema = self._resolved(schema)
                if "default" not in schema:
                    continue
                filled[name] = self._default(schema["default"])
            if name in filled:
                filled[name] = self.into(filled[name], schema, depth + 1)
        return filled

    def _default(self, default: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise InvalidInput(TOO_MANY_DEFAULTS.fault(most=DEFAULTS_MAX))
        return from_json(to_json(default, "a default"))  # a copy: what is filled in may be changed

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema with what it refers to; its own keywords count more."""
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        referred = _referred(reference, self._root)
        return {**referred, **schema} if isinstance(referred, Mapping) else schema


# Schemas

_COMPILED_MAX = 128
_SCHEMAS = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"}
)
_LISTS_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS_OF_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
_REFUSED = {
    "$dynamicRef": "write $ref",
    "$recursiveRef": "write $ref",
    "unevaluatedProperties": "write additionalProperties",
    "unevaluatedItems": "write items",
}


class _Form(Value, gc=True):
    """A schema ready to check with, or what is wrong with it."""

    validator: Any
    faults: tuple[Fault, ...]


def _schema_json(schema: Any) -> bytes:
    if not isinstance(schema, Mapping | bool):
        raise InvalidInput(NOT_A_SCHEMA.fault(found=type_name(schema)))
    return to_json(schema, "the schema", SCHEMA_MAX_BYTES)


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(schema_json: bytes) -> _Form:
    """Kept by the JSON, since that is the same for equal schemas and nobody can change it."""
    schema = from_json(schema_json)
    faults = tuple(islice(_schema_faults(schema), FAULTS_MAX))
    if isinstance(schema, dict):
        schema.pop("$schema", None)  # by which jsonschema would choose a validator without bounds
    return _Form(validator=None if faults else validator_of(schema), faults=faults)


def _schema_faults(schema: Any) -> Iterator[Fault]:
    for count, (where, subschema) in enumerate(_subschemas(schema)):
        if len(where) > SCHEMA_DEPTH_MAX:
            yield TOO_DEEP.fault(most=SCHEMA_DEPTH_MAX)
            return
        if count >= SUBSCHEMAS_MAX:
            yield TOO_MANY_SCHEMAS.fault(most=SUBSCHEMAS_MAX)
            return
        for fault in (
            *_faults_at(subschema, schema),
            *_faults(schema_validator(), _alone(subschema)),
        ):
            yield fault.under(*where)


def _subschemas(schema: Any) -> Iterator[tuple[Path, Any]]:
    """The schema and all schemas in it, but not what belongs to keywords that nobody knows."""
    waiting: list[tuple[Path, Any]] = [((), schema)]
    while waiting:
        where, schema = waiting.pop()
        yield where, schema
        if isinstance(schema, dict):
            inside = [((*where, *at), part) for at, part in _parts(schema)]
            waiting += reversed(inside)


def _parts(schema: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The schemas that this one is made of."""
    for keyword, inside in schema.items():
        if keyword in _SCHEMAS:
            yield (keyword,), inside
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(inside, list):
            yield from (((keyword, at), part) for at, part in enumerate(inside))
        elif keyword in _MAPS_OF_SCHEMAS and isinstance(inside, dict):
            yield from (((keyword, name), part) for name, part in inside.items())


def _alone(schema: Any) -> Any:
    """The schema without those in it, which are checked by themselves: so no check goes deep."""
    if not isinstance(schema, dict):
        return schema
    alone = dict(schema)
    for keyword, inside in schema.items():
        if keyword in _SCHEMAS:
            alone[keyword] = True
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(inside, list):
            alone[keyword] = [True] * len(inside)
        elif keyword in _MAPS_OF_SCHEMAS and isinstance(inside, dict):
            alone[keyword] = dict.fromkeys(inside, True)
    return alone


def _faults_at(subschema: Any, root: Any) -> Iterator[Fault]:
    """What JSON Schema allows and a form may not have."""
    if not isinstance(subschema, dict):
        return
    for keyword, instead in _REFUSED.items():
        if keyword in subschema:
            yield REFUSED_KEYWORD.fault(keyword=keyword, instead=instead)
    reference = subschema.get("$ref")
    if isinstance(reference, str) and _referred(reference, root) is None:
        yield BROKEN_REFERENCE.fault(reference=cut(reference))
    for keyword in ("$schema", "$id"):
        if keyword in subschema and subschema is not root:
            yield ONLY_AT_TOP.fault(keyword=keyword)
    if subschema.get("$schema", DIALECT) != DIALECT and subschema is root:
        yield UNKNOWN_DIALECT.fault(dialect=shown(subschema["$schema"]), known=DIALECT)
    for pattern in (subschema.get("pattern"), *_keys(subschema.get("patternProperties"))):
        if isinstance(pattern, str) and (fault := pattern_fault(pattern)):
            yield UNUSABLE_PATTERN.fault(pattern=cut(pattern), reason=render(fault))


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _referred(reference: str, root: Any) -> Any:
    """The schema that a reference such as ``#/$defs/address`` names, or None."""
    if reference == "#":
        return root
    match reference.split("/"):
        case ["#", ("$defs" | "definitions") as keyword, name]:
            defined = root.get(keyword)
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            return defined.get(name) if isinstance(defined, Mapping) else None
    return None


def _faults(validator: Validator, data: Any) -> list[Fault]:
    try:
        return [fault_of(error) for error in errors_of(validator, data, FAULTS_MAX)]
    except (RecursionError, TooMuchWork):
        return [TOO_MUCH_WORK.fault()]
    except ValueError as error:  # what is no JSON: infinities, objects, integers without end
        return [NOT_JSON_VALUE.fault(reason=cut(str(error)))]


def _without_repeats(faults: list[Fault]) -> list[Fault]:
    """Two keywords may find the same fault. Arguments cannot be hashed, so by what is told."""
    return list({(fault.where, render(fault)): fault for fault in faults}.values())


# Checking within a budget

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


def _error(*, field: str | None = None, context: Sequence[ValidationError] = ()) -> ValidationError:
    """An error of a keyword of ours; ``fault_of`` knows it by the keyword, and needs no text."""
    from jsonschema.exceptions import ValidationError

    return ValidationError("", path=() if field is None else (field,), context=context)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Errors:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield _error()


def _properties(validator: Any, properties: Any, instance: Any, schema: Any) -> Errors:
    for key, subschema in properties.items() if isinstance(instance, dict) else ():
        if key in instance:
            yield from _inside(validator, instance, key, subschema)


def _inside(validator: Any, instance: Any, key: Any, subschema: Any) -> Errors:
    """jsonschema does not tell the field where nothing at all may be given."""
    if subschema is False:
        yield _error(field=str(key))
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
            yield _error(field=str(key))
        else:
            yield from validator.descend(value, allowed, path=key)


def _required(validator: Any, names: Any, instance: Any, schema: Any) -> Errors:
    for name in names if isinstance(instance, dict) else ():
        if name not in instance:
            yield _error(field=name)


def _dependent_required(validator: Any, needs: Any, instance: Any, schema: Any) -> Errors:
    for name, others in needs.items() if isinstance(instance, dict) else ():
        for other in others if name in instance else ():
            if other not in instance:
                yield _error(field=other)


def _property_names(validator: Any, subschema: Any, instance: Any, schema: Any) -> Errors:
    for name in instance if isinstance(instance, dict) else ():
        context = list(validator.descend(name, subschema))
        if context:
            yield _error(context=context)


def _unique_items(validator: Any, is_wanted: Any, instance: Any, schema: Any) -> Errors:
    if not is_wanted or not isinstance(instance, list):
        return
    # By their JSON, since comparing each with each other takes for ever on a long list.
    if len({_canonical(element) for element in instance}) < len(instance):
        yield _error()


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
        yield _error()


def _decimal(number: int | float) -> Fraction:
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _enum(validator: Any, values: Any, instance: Any, schema: Any) -> Errors:
    if not any(is_same(value, instance) for value in values):
        yield _error()


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    if not is_same(value, instance):
        yield _error()


def _format(validator: Any, name: Any, instance: Any, schema: Any) -> Errors:
    """Formats that are not known are only remarks, as JSON Schema has it."""
    fits = FORMATS.get(name)
    if fits is not None and isinstance(instance, str) and not fits(instance):
        yield _error()


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


# From an error of jsonschema to a fault

_ALTERNATIVES_MAX = 3
_VALUES_MAX = 10
_TYPES = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_FORMATS = {
    "date": "a date such as 2031-05-17",
    "date-time": "a time with its zone, such as 2031-05-17T14:30:00+02:00",
    "time": "a time of day such as 14:30",
    "email": "an email address",
    "hostname": "a host name",
    "uri": "a web address such as https://example.org/",
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "regex": "a pattern",
}
_PLAIN = {
    "items": declare("form.items", "has more elements than it may"),
    "uniqueItems": declare("form.unique_items", "must not have the same element twice"),
    "contains": declare("form.contains", "has no element of the kind that is wanted"),
    "not": declare("form.not", "must not be given like this"),
    "properties": FORBIDDEN,
    "patternProperties": FORBIDDEN,
    "required": REQUIRED,
    "additionalProperties": UNKNOWN_FIELD,
}
"""Keywords of which nothing needs to be told."""

_BOUNDS = {
    "minimum": declare("form.minimum", "must be at least {limit}"),
    "maximum": declare("form.maximum", "must be at most {limit}"),
    "exclusiveMinimum": declare("form.exclusive_minimum", "must be more than {limit}"),
    "exclusiveMaximum": declare("form.exclusive_maximum", "must be less than {limit}"),
    "multipleOf": declare("form.multiple_of", "must be a multiple of {limit}"),
    "minLength": declare("form.min_length", "must have at least {limit:character|characters}"),
    "maxLength": declare("form.max_length", "must have at most {limit:character|characters}"),
    "minItems": declare("form.min_items", "must have at least {limit:element|elements}"),
    "maxItems": declare("form.max_items", "must have at most {limit:element|elements}"),
    "minContains": declare(
        "form.min_contains", "must have at least {limit} elements of the wanted kind"
    ),
    "maxContains": declare(
        "form.max_contains", "must have at most {limit} elements of the wanted kind"
    ),
    "minProperties": declare("form.min_properties", "must have at least {limit:field|fields}"),
    "maxProperties": declare("form.max_properties", "must have at most {limit:field|fields}"),
}
_COUNTS = frozenset(keyword for keyword in _BOUNDS if keyword[3:4].isupper())
"""Those whose limit is a whole number, though it may be written as 1.0."""


def fault_of(error: ValidationError) -> Fault:
    """The fault, with the path of the field that it is about."""
    return _fault(error).under(*error.absolute_path)


def _fault(error: ValidationError) -> Fault:
    if error.schema is False:
        return FORBIDDEN.fault()
    keyword, wanted = str(error.validator), _any(error.validator_value)
    if keyword in _PLAIN:
        return _PLAIN[keyword].fault()
    if keyword == "minLength" and wanted == 1:
        return EMPTY.fault()
    if keyword in _BOUNDS:
        # As text, a number is shown the way that it is written in the schema.
        limit = int(wanted) if keyword in _COUNTS else shown(wanted)
        return _BOUNDS[keyword].fault(limit=limit)
    match keyword:
        case "type":
            types = tuple(wanted) if isinstance(wanted, list) else (wanted,)
            expected = " or ".join(_TYPES.get(each, str(each)) for each in types)
            return WRONG_TYPE.fault(types=types, expected=expected)
        case "enum":
            listed = ", ".join(shown(value) for value in wanted[:_VALUES_MAX])
            more = ", …" if len(wanted) > _VALUES_MAX else ""
            return NOT_IN_ENUM.fault(values=wanted, listed=f"{listed}{more}")
        case "const":
            return NOT_CONST.fault(value=wanted, expected=shown(wanted))
        case "format":
            return WRONG_FORMAT.fault(format=wanted, expected=_FORMATS.get(wanted, wanted))
        case "pattern":
            return PATTERN.fault(pattern=cut(wanted))
        case "dependentRequired":
            other, given = error.path[-1], _any(error.instance)
            field = next(name for name in wanted if other in wanted[name] and name in given)
            return DEPENDENT_REQUIRED.fault(field=cut(field))
        case "propertyNames":
            [inner, *_] = error.context or [error]
            return PROPERTY_NAMES.fault(field=shown(inner.instance), reason=render(_fault(inner)))
        case "oneOf" if not error.context:
            return SEVERAL_ALTERNATIVES.fault()
        case "anyOf" | "oneOf":
            ways = _alternatives(error) or [render(FORBIDDEN.fault())]
            more = ", or …" if len(ways) > _ALTERNATIVES_MAX else ""
            return NO_ALTERNATIVE.fault(ways=f"{', or '.join(ways[:_ALTERNATIVES_MAX])}{more}")
        case _:
            return OTHER_KEYWORD.fault(keyword=keyword, message=cut(error.message))


def _alternatives(error: ValidationError) -> list[str]:
    """The first fault under each alternative, each told once."""
    first: dict[Any, str] = {}
    for inner in error.context or ():
        [alternative, *_] = inner.relative_schema_path or [None]
        if alternative is not None and alternative not in first:  # None: `false`, which is no way
            at = path_text(tuple(inner.relative_path))
            first[alternative] = cut(f"{at} {render(_fault(inner))}".strip())
    return list(dict.fromkeys(first.values()))


def _any(value: Any) -> Any:
    """What jsonschema holds, whose types say less than is known here."""
    return value
