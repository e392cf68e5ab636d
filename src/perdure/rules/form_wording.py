"""What is told about a value that does not fit a form: short, for people, and without the value.

One code for each keyword of JSON Schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.diagnostics import Fault, declare, render
from perdure.model.path import path_text
from perdure.model.showing import cut, shown

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

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
