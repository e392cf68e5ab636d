"""Forms: JSON Schema (Draft 2020-12) for what people answer and for what nodes take and give.

A schema may come over a network, so it is data that is not trusted: it refers to nothing but its
own definitions, its patterns are bounded, and so is the work that it can cause
(``rules/form_validator.py``). What is wrong is told per field, in words for people
(``rules/form_wording.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from perdure.diagnostics import Fault, declare, render
from perdure.errors import InvalidInput, fault_text
from perdure.model.path import Path, path_text
from perdure.model.payload import from_json, to_json
from perdure.model.showing import cut, shown, type_name
from perdure.model.value import Value
from perdure.rules.form_validator import TooMuchWork, errors_of, schema_validator, validator_of
from perdure.rules.form_wording import fault_of
from perdure.rules.pattern import pattern_fault

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_MAX_BYTES = 65_536
SCHEMA_DEPTH_MAX = 100
SUBSCHEMAS_MAX = 1_000
FAULTS_MAX = 100
"""How many faults of one value are told."""
DEFAULTS_MAX = 10_000
"""How many defaults are filled into one value."""

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
