"""What is told about a value that does not fit a form: short, for people, and without the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from perdure.model.path import Path, path_text
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


def told(error: ValidationError) -> tuple[Path, str]:
    """The field that the fault is about, and the fault."""
    return tuple(error.absolute_path), _fault(error)


def _fault(error: ValidationError) -> str:
    if error.schema is False:
        return "must not be given"
    wording = _WORDINGS.get(str(error.validator))
    return wording(error.validator_value, error) if wording else cut(error.message)


def _type(wanted: Any, error: ValidationError) -> str:
    names = wanted if isinstance(wanted, list) else [wanted]
    return f"must be {' or '.join(_TYPES.get(name, str(name)) for name in names)}"


def _enum(values: Any, error: ValidationError) -> str:
    some = ", ".join(shown(value) for value in values[:_VALUES_MAX])
    return f"is not one of {some}{', …' if len(values) > _VALUES_MAX else ''}"


def _format(name: Any, error: ValidationError) -> str:
    return f"must be {_FORMATS.get(name, name)}"


def _any_of(schemas: Any, error: ValidationError) -> str:
    ways = _alternatives(error) or ["must not be given"]
    more = ", or …" if len(ways) > _ALTERNATIVES_MAX else ""
    return f"fits none of the ways to give it: {', or '.join(ways[:_ALTERNATIVES_MAX])}{more}"


def _one_of(schemas: Any, error: ValidationError) -> str:
    if error.context:
        return _any_of(schemas, error)
    return "fits more than one of the ways to give it; exactly one is wanted"


def _alternatives(error: ValidationError) -> list[str]:
    """The first fault under each alternative, each told once."""
    first: dict[Any, str] = {}
    for inner in error.context or ():
        [alternative, *_] = inner.relative_schema_path or [None]
        if alternative is not None and alternative not in first:  # None: `false`, which is no way
            at = path_text(tuple(inner.relative_path))
            first[alternative] = cut(f"{at} {_fault(inner)}".strip())
    return list(dict.fromkeys(first.values()))


def _property_names(schema: Any, error: ValidationError) -> str:
    [inner, *_] = error.context or [error]
    return f"has a field {shown(inner.instance)}, whose name {_fault(inner)}"


def _characters(count: Any) -> str:
    return _counted(count, "character")


def _counted(count: Any, noun: str) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


_WORDINGS: Mapping[str, Callable[[Any, ValidationError], str]] = MappingProxyType(
    {
        "type": _type,
        "enum": _enum,
        "const": lambda value, _: f"must be {shown(value)}",
        "minimum": lambda least, _: f"must be at least {least}",
        "maximum": lambda most, _: f"must be at most {most}",
        "exclusiveMinimum": lambda least, _: f"must be more than {least}",
        "exclusiveMaximum": lambda most, _: f"must be less than {most}",
        "multipleOf": lambda unit, _: f"must be a multiple of {unit}",
        "minLength": lambda count, _: (
            "must not be empty" if count == 1 else f"must have at least {_characters(count)}"
        ),
        "maxLength": lambda count, _: f"must have at most {_characters(count)}",
        "pattern": lambda pattern, _: f"must match {cut(pattern)}",
        "format": _format,
        "minItems": lambda count, _: f"must have at least {_counted(count, 'element')}",
        "maxItems": lambda count, _: f"must have at most {_counted(count, 'element')}",
        "items": lambda _, __: "has more elements than it may",
        "uniqueItems": lambda _, __: "must not have the same element twice",
        "contains": lambda _, __: "has no element of the kind that is wanted",
        "minContains": lambda count, _: f"must have at least {count:g} elements of the wanted kind",
        "maxContains": lambda count, _: f"must have at most {count:g} elements of the wanted kind",
        "minProperties": lambda count, _: f"must have at least {_counted(count, 'field')}",
        "maxProperties": lambda count, _: f"must have at most {_counted(count, 'field')}",
        "propertyNames": _property_names,
        "not": lambda _, __: "must not be given like this",
        "anyOf": _any_of,
        "oneOf": _one_of,
    }
)
